/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/ipc/region.h"
#include "libclient/base/base.h"

#define SIZE     8192
#define STRANGER 65534

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
			 -EACCES);
	assert_int_equal(mm_region_open(fcntl(mine.fd, F_DUPFD_CLOEXEC, 0), SIZE, false, &theirs),
			 0);
	/* Neither write() nor a later mprotect() gets around the mode of the fd. */
	assert_int_equal(pwrite(theirs.fd, "x", 1, 0), -1);
	assert_int_equal(mprotect(theirs.base, SIZE, PROT_READ | PROT_WRITE), -1);
	strcpy(mine.base, "written by us");
	assert_string_equal(theirs.base, "written by us");
}

/* Return: 0, or which attempt to write the region behind @fd did not fail as it must. */
static int stranger_tries(int fd, void *mapped)
{
	char path[40];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0 || errno != EACCES)
		return 1;
	if (fchmod(fd, 0666) == 0 || errno != EPERM)
		return 2;
	if (mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED ||
	    errno != EACCES)
		return 3;
	if (mprotect(mapped, SIZE, PROT_READ | PROT_WRITE) == 0 || errno != EACCES)
		return 4;
	return pwrite(fd, "x", 1, 0) >= 0 ? 5 : ftruncate(fd, 0) == 0 ? 6 : 0;
}

/* A process of another user cannot write it by any way; only root can play one. */
static void test_readonly_for_others(void **state)
{
	mm_cleanup(mm_region_done) struct mm_region mine = MM_REGION_NULL;
	mm_cleanup(mm_region_done) struct mm_region theirs = MM_REGION_NULL;
	int status;
	pid_t pid;

	(void)state;
	if (geteuid())
		skip();
	assert_int_equal(mm_region_create(SIZE, MM_REGION_READONLY, "test", &mine), 0);
	assert_int_equal(mm_region_open(fcntl(mine.fd, F_DUPFD_CLOEXEC, 0), SIZE, false, &theirs),
			 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		munmap(mine.base, mine.size_bytes);
		if (setgid(STRANGER) || setuid(STRANGER))
			_exit(99);
		_exit(stranger_tries(theirs.fd, theirs.base));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* A process that takes over from the creator, without its mapping, can write the region. */
static void test_readonly_for_successor(void **state)
{
	mm_cleanup(mm_region_done) struct mm_region mine = MM_REGION_NULL;
	mm_cleanup(mm_region_done) struct mm_region again = MM_REGION_NULL;
	char path[40];

	(void)state;
	assert_int_equal(mm_region_create(SIZE, MM_REGION_READONLY, "test", &mine), 0);
	strcpy(mine.base, "written before");
	assert_int_equal(munmap(mine.base, mine.size_bytes), 0);
	mine.base = NULL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", mine.fd);
	assert_int_equal(mm_region_open(open(path, O_RDWR | O_CLOEXEC), SIZE, true, &again), 0);
	assert_string_equal(again.base, "written before");
	strcpy(again.base, "written after");
}

/* A successor of another build takes what lies between the first version's size and its own. */
static void test_again(void **state)
{
	static const struct {
		size_t has, least, most;
		int result;
	} cases[] = { { SIZE, SIZE, SIZE, 0 },
		      { SIZE, SIZE, 2 * SIZE, 0 },
		      { 2 * SIZE, SIZE, 2 * SIZE, 0 },
		      { SIZE, SIZE + 1, 2 * SIZE, -EPROTO },
		      { 2 * SIZE, SIZE, 2 * SIZE - 1, -EPROTO } };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		mm_cleanup(mm_region_done) struct mm_region mine = MM_REGION_NULL;
		mm_cleanup(mm_region_done) struct mm_region again = MM_REGION_NULL;
		int fd;

		assert_int_equal(mm_region_create(cases[i].has, MM_REGION_READONLY, "test", &mine),
				 0);
		fd = fcntl(mine.fd, F_DUPFD_CLOEXEC, 0);
		assert_int_equal(mm_region_again(fd, cases[i].least, cases[i].most, &again),
				 cases[i].result);
		if (cases[i].result) {
			assert_null(again.base);
			assert_int_equal(fcntl(fd, F_GETFD), -1); /* taken over all the same */
			continue;
		}
		assert_int_equal(again.size_bytes, cases[i].has);
		((char *)again.base)[cases[i].has - 1] = 'x';
		assert_int_equal(((char *)mine.base)[cases[i].has - 1], 'x');
	}
}

/* As much is mapped as the file has, between what is needed and what is known. */
static void test_between(void **state)
{
	static const struct {
		size_t has, least, most, want;
	} cases[] = { { SIZE, SIZE, SIZE, SIZE },
		      { 4 * SIZE, SIZE, 2 * SIZE, 2 * SIZE },
		      { SIZE, SIZE, 2 * SIZE, SIZE },
		      { SIZE, SIZE + 1, 2 * SIZE, 0 } };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		mm_cleanup(mm_region_done) struct mm_region mine = MM_REGION_NULL;
		mm_cleanup(mm_region_done) struct mm_region theirs = MM_REGION_NULL;
		int r;

		assert_int_equal(mm_region_create(cases[i].has, MM_REGION_SHARED, "test", &mine),
				 0);
		r = mm_region_open_between(fcntl(mine.fd, F_DUPFD_CLOEXEC, 0), cases[i].least,
					   cases[i].most, false, &theirs);
		assert_int_equal(r, cases[i].want ? 0 : -EPROTO);
		assert_int_equal(theirs.size_bytes, cases[i].want);
	}
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
		cmocka_unit_test(test_readonly_for_others),
		cmocka_unit_test(test_readonly_for_successor),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_between),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
