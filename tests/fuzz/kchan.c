/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes messages between keeper and core, with as many fds as the first byte says: what is
 * accepted has names for no more than there is room for, and no fd is lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "mmd/common/fdtab.h"
#include "mmd/common/kchan.h"
#include "tests/fuzz/input.h"

static int pair[2] = { -1, -1 };
static int spare = -1;
static struct mm_kchan chan;

static void begin_once(void)
{
	if (spare >= 0)
		return;
	mm_assert(mm_sock_pair(pair) == 0);
	mm_kchan_init(&chan, pair[0]);
	spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	mm_assert(spare >= 0);
}

static int lowest_free_fd(void)
{
	mm_cleanup(mm_close_fd) int fd = fcntl(spare, F_DUPFD_CLOEXEC, 0);

	return fd;
}

/* As keeper does with what it is to hold. */
static void packet_hold(struct mm_kpacket *packet)
{
	struct mm_fdtab table;
	int old = -1;

	mm_fdtab_init(&table);
	for (uint32_t i = 0; i < packet->n_names && i < packet->n_fds; i++) {
		mm_assert(mm_fdtab_put(&table, packet->name[i], mm_kpacket_take(packet, i), &old) ==
			  0);
		mm_close_fd(&old);
	}
	for (uint32_t i = 0; i < packet->n_names; i++) {
		int fd = mm_fdtab_take(&table, packet->name[i]);

		mm_close_fd(&fd);
	}
	mm_fdtab_done(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static uint8_t digits[8192];
	struct mm_kpacket packet;
	int fds[MM_KCHAN_FDS], free_fd, r;
	size_t n_fds;

	begin_once();
	if (size_bytes > sizeof(digits))
		return 0;
	data = input_bytes(data, &size_bytes, digits);
	free_fd = lowest_free_fd();
	if (size_bytes < 2 || size_bytes > sizeof(packet))
		return 0;
	n_fds = data[0] % (MM_KCHAN_FDS + 1);
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = spare;
	mm_assert(mm_sock_send(pair[1], data + 1, size_bytes - 1, fds, n_fds) == 0);
	r = mm_kchan_recv(&chan, &packet);
	mm_assert(r == 0 || r == -EPROTO || r == -EMSGSIZE);
	if (r == 0) {
		mm_assert(packet.msg.magic == MM_PROTO_MAGIC && packet.n_names <= MM_KCHAN_FDS &&
			  packet.n_fds == n_fds);
		packet_hold(&packet);
		mm_kpacket_done(&packet);
	}
	mm_assert(lowest_free_fd() == free_fd);
	return 0;
}
