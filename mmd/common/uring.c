/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/uring.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"

#define READS 2 /* how many of the restrictions below any ring gets */

/* liburing 2.2 and 2.3 declare functions for these two operations, but do not export them. */
static int uring_register(int ring_fd, unsigned int opcode, const void *arg, unsigned int n)
{
	return syscall(SYS_io_uring_register, ring_fd, opcode, arg, n) < 0 ? -errno : 0;
}

int mm_uring_restrict(int ring_fd, bool fixed_files)
{
	const struct io_uring_restriction only[] = {
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ },
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ_FIXED },
		{ .opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = IOSQE_FIXED_FILE },
		{ .opcode = IORING_RESTRICTION_REGISTER_OP,
		  .register_op = IORING_REGISTER_FILES_UPDATE },
	};
	int r;

	if (mm_fault("uring.restrict"))
		return -EINVAL;
	r = uring_register(ring_fd, IORING_REGISTER_RESTRICTIONS, only,
			   fixed_files ? MM_ARRAY_SIZE(only) : READS);
	return r < 0 ? r : uring_register(ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}
