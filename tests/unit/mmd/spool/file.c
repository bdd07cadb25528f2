/* SPDX-License-Identifier: Apache-2.0 */
/* spool as a process: the file that it makes, requests that it refuses, the proof of its seal. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "mmd/common/log.h"
#include "mmd/spool/spool.h"

#define WAIT_NS (120 * MM_NS_PER_S) /* generous, for slow disks and sanitizers */
#define BYTES   (UINT64_C(300) * 1000)

static char dir[64];

struct spool {
	pid_t pid;
	int sock;
	int write_fd, read_fd;
	struct mm_smsg answer;
};

static bool on_a_disk(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC;
}

/* Some file systems, and some settings of kernels, have no leases. */
static bool has_leases(void)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), again;
	char path[32];
	bool has;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	mm_close_fd(&fd);
	has = again >= 0 && fcntl(again, F_SETLEASE, F_RDLCK) == 0;
	mm_close_fd(&again);
	return has;
}

static int setup(void **state)
{
	(void)state;
	strcpy(dir,
	       on_a_disk("/tmp") ? "/tmp/mm-test-spool-XXXXXX" : "/var/tmp/mm-test-spool-XXXXXX");
	assert_non_null(mkdtemp(dir));
	return 0;
}

/* The directory must be empty. */
static int teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

static void spool_start(struct spool *s, const char *store_dir)
{
	static struct mm_config config;
	int pair[2];

	*s = (struct spool){ .write_fd = -1, .read_fd = -1 };
	snprintf(config.store_dir, sizeof(config.store_dir), "%s", store_dir);
	assert_int_equal(mm_sock_pair(pair), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		mm_log_init("spool", MM_LOG_ERROR);
		_exit(mm_spool_main(pair[1], &config));
	}
	close(pair[1]);
	s->sock = pair[0];
}

static void spool_send(struct spool *s, enum mm_sop op, uint64_t bytes)
{
	const struct mm_smsg msg = { .magic = MM_PROTO_MAGIC, .op = op, .bytes = bytes };

	assert_int_equal(mm_sock_send(s->sock, &msg, sizeof(msg), NULL, 0), 0);
}

/* Receives the next message. Return: its result. */
static int spool_receive(struct spool *s, enum mm_sop op)
{
	int fds[2] = { -1, -1 };
	size_t n_fds = 0, len = 0;

	assert_int_equal(mm_sock_wait(s->sock, POLLIN, mm_deadline_ns(WAIT_NS)), 0);
	assert_int_equal(mm_sock_recv(s->sock, &s->answer, sizeof(s->answer), fds, 2, &n_fds, &len),
			 0);
	assert_int_equal(len, sizeof(s->answer));
	assert_int_equal(s->answer.op, op);
	assert_int_equal(n_fds, op == MM_S_OPENED && s->answer.result == 0 ? 2 : 0);
	if (n_fds) {
		s->write_fd = fds[0];
		s->read_fd = fds[1];
	}
	return s->answer.result;
}

static int spool_end(struct spool *s)
{
	int status;

	mm_close_fd(&s->write_fd);
	mm_close_fd(&s->read_fd);
	mm_close_fd(&s->sock);
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int open_to_write(int fd)
{
	char path[32];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	return again < 0 ? -errno : again;
}

static void test_file(void **state)
{
	struct spool s;
	struct stat st;
	char byte = 'x', got = 0, *block;

	(void)state;
	if (!on_a_disk(dir))
		skip();
	spool_start(&s, dir);
	spool_send(&s, MM_S_OPEN, BYTES);
	assert_int_equal(spool_receive(&s, MM_S_OPENED), 0);
	assert_int_equal(fstat(s.write_fd, &st), 0);
	/*
	 * The file has no name, a mode for its owner only, whole blocks, and all of them allocated.
	 */
	assert_int_equal(st.st_nlink, 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, mm_round_up(BYTES, 4096));
	assert_true((uint64_t)st.st_blocks * 512 >= BYTES);
	assert_int_equal(fcntl(s.read_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(pwrite(s.write_fd, &byte, 1, 4096), 1);
	assert_int_equal(fdatasync(s.write_fd), 0);
	block = aligned_alloc(4096, 4096);
	assert_non_null(block);
	assert_int_equal(pread(s.read_fd, block, 4096, 4096), 4096);
	got = block[0];
	free(block);
	assert_int_equal(got, byte);
	assert_int_equal(spool_end(&s), 0);
}

/*
 * A sealed file can no longer be opened for writing, even by its owner. This is tried once: some
 * time after the first attempt the kernel takes the lease away.
 */
static void check_seal(bool killed)
{
	struct spool s;

	spool_start(&s, dir);
	spool_send(&s, MM_S_OPEN, BYTES);
	assert_int_equal(spool_receive(&s, MM_S_OPENED), 0);
	mm_close_fd(&s.write_fd);
	spool_send(&s, MM_S_SEAL, 0);
	assert_int_equal(spool_receive(&s, MM_S_SEALED), 0);
	/* The lease is the file's, not the process's. */
	if (killed) {
		kill(s.pid, SIGKILL);
		waitpid(s.pid, NULL, 0);
	}
	assert_int_equal(open_to_write(s.read_fd), -EAGAIN);
	if (!killed)
		assert_int_equal(spool_end(&s), 0);
	mm_close_fd(&s.read_fd);
	mm_close_fd(&s.sock);
}

static void test_seal(void **state)
{
	(void)state;
	if (!on_a_disk(dir) || !has_leases())
		skip();
	check_seal(false);
	check_seal(true);
}

/* A descriptor for writing that was passed on, or a mapping, is found. */
static void test_still_written(void **state)
{
	struct spool s;
	void *map;

	(void)state;
	if (!on_a_disk(dir) || !has_leases())
		skip();
	spool_start(&s, dir);
	spool_send(&s, MM_S_OPEN, BYTES);
	assert_int_equal(spool_receive(&s, MM_S_OPENED), 0);
	spool_send(&s, MM_S_SEAL, 0);
	assert_int_equal(spool_receive(&s, MM_S_SEALED), -EBUSY);
	assert_non_null(strstr(s.answer.text, "writing"));
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s.write_fd, 0);
	assert_true(map != MAP_FAILED);
	mm_close_fd(&s.write_fd);
	spool_send(&s, MM_S_SEAL, 0);
	assert_int_equal(spool_receive(&s, MM_S_SEALED), -EBUSY);
	munmap(map, 4096);
	spool_send(&s, MM_S_SEAL, 0);
	assert_int_equal(spool_receive(&s, MM_S_SEALED), 0);
	assert_int_equal(spool_end(&s), 0);
}

static void spool_refuses(const char *store_dir, int want, const char *needle)
{
	struct spool s;

	spool_start(&s, store_dir);
	spool_send(&s, MM_S_OPEN, BYTES);
	assert_int_equal(spool_receive(&s, MM_S_OPENED), want);
	if (!strstr(s.answer.text, needle) || !strstr(s.answer.text, store_dir))
		fail_msg("'%s'", s.answer.text);
	assert_int_equal(spool_end(&s), 1);
}

static void test_refused(void **state)
{
	char path[96];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/nowhere", dir);
	spool_refuses(path, -ENOENT, "No such file or directory");
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	spool_refuses(path, -ENOTDIR, "Not a directory");
	unlink(path);
	if (!on_a_disk("/dev/shm"))
		spool_refuses("/dev/shm", -EINVAL, "lies in memory");
}

/* A message that core never sends ends the role. */
static void test_nonsense(void **state)
{
	struct spool s;

	(void)state;
	spool_start(&s, dir);
	spool_send(&s, MM_S_SEAL, 0); /* there is no file yet */
	assert_int_equal(spool_end(&s), 1);
	spool_start(&s, dir);
	spool_send(&s, (enum mm_sop)77, BYTES);
	assert_int_equal(spool_end(&s), 1);
	spool_start(&s, dir);
	assert_int_equal(mm_sock_send(s.sock, "x", 1, NULL, 0), 0);
	assert_int_equal(spool_end(&s), 1);
	spool_start(&s, dir);
	assert_int_equal(spool_end(&s), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),          cmocka_unit_test(test_seal),
		cmocka_unit_test(test_still_written), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
