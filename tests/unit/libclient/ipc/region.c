/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/ipc/region.h"
#include "libclient/base/base.h"

#define SIZE 8192

static void test_shared(void **state)
{
	mm_cleanup(mm_region_done) struct mm_region mine = MM_REGION_NULL;
	mm_cleanup(mm_region_done) struct mm_region theirs = MM_REGION_NULL;

	(void)state;
	assert_int_equal(mm_region_create(SIZE, MM_REGION_SHARED, "test", &mine), 0);
	assert_int_equal(fcntl(mine.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(ftruncate(mine.fd, 4096), -1);
	assert_int_equal(ftruncate(mine.fd, 2 * SIZE), -1);
	assert_int_equal(fcntl(mine.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(mm_region_open(fcntl(mine.fd, F_DUPFD_CLOEXEC, 0), SIZE, true, &theirs),
			 0);
	strcpy(theirs.base, "written by the peer");
	assert_string_equal(mine.base, "written by the peer");
}

static void test_readonly(void **state)
{
	mm_cleanup(mm_region_done) struct mm_region mine = MM_REGION_NULL;
	mm_cleanup(mm_region_done) struct mm_region theirs = MM_REGION_NULL;

	(void)state;
	assert_int_equal(mm_region_create(SIZE, MM_REGION_READONLY, "test", &mine), 0);
	assert_int_equal(mm_region_open(fcntl(mine.fd, F_DUPFD_CLOEXEC, 0), SIZE, true, &theirs),
			 -EPERM);
	assert_int_equal(mm_region_open(fcntl(mine.fd, F_DUPFD_CLOEXEC, 0), SIZE, false, &theirs),
			 0);
	/* Neither write() nor a later mprotect() gets around the seal. */
	assert_int_equal(pwrite(theirs.fd, "x", 1, 0), -1);
	assert_int_equal(mprotect(theirs.base, SIZE, PROT_READ | PROT_WRITE), -1);
	strcpy(mine.base, "written by us");
	assert_string_equal(theirs.base, "written by us");
}

static int fd_unsealed(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, SIZE), 0);
	return fd;
}

static int fd_short(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, SIZE - 1), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static int fd_pipe(void)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	close(fds[1]);
	return fds[0];
}

static int fd_zero(void)
{
	return open("/dev/zero", O_RDWR | O_CLOEXEC);
}

static int fd_bad(void)
{
	return -1;
}

static void test_refused(void **state)
{
	static const struct {
		const char *name;
		int (*make)(void);
	} cases[] = { { "can be truncated", fd_unsealed },
		      { "one byte short", fd_short },
		      { "a pipe", fd_pipe },
		      { "a device", fd_zero },
		      { "no fd", fd_bad } };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct mm_region region = MM_REGION_NULL;
		int fd = cases[i].make();

		print_message("%s\n", cases[i].name);
		assert_int_equal(mm_region_open(fd, SIZE, false, &region), -EPROTO);
		assert_null(region.base);
		assert_int_equal(fcntl(fd, F_GETFD), -1); /* taken over all the same */
	}
	assert_int_equal(mm_region_create(0, MM_REGION_SHARED, "test", &(struct mm_region){ 0 }),
			 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_readonly),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
