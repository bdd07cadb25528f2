/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children of a tenant, made in every way: they cannot use the client, and the parent is not
 * affected.
 */
#undef NDEBUG
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/client/internal.h"
#include "libclient/base/base.h"
#include "mm/client_model.h"

static int is_refused(struct fixture *f)
{
	struct mm_client_info info = { .size = sizeof(info) };
	struct mm_event event = { .size = sizeof(event) };
	struct mm_model *model;
	struct mm_kv *kv;
	const struct mm_kv_opts opts = { .size = sizeof(opts), .chunk_bytes = PEER_PAGE_BYTES };
	int bad = mm_client_info(f->client, &info) != -ECHILD;

	bad |= mm_step_begin(f->client) != -ECHILD;
	bad |= mm_step_end(f->client, f->stream, NULL) != -ECHILD;
	bad |= mm_step_abandon(f->client, f->stream) != -ECHILD;
	bad |= mm_layer_begin(f->model, 0, f->stream) != -ECHILD;
	bad |= mm_layer_end(f->model, 0, f->stream) != -ECHILD;
	bad |= mm_client_next_event(f->client, &event) != -ECHILD;
	bad |= mm_model_load(f->client, "/nowhere", NULL, &model) != -ECHILD;
	bad |= mm_model_load_key(f->client, "key", 3, NULL, &model) != -ECHILD;
	bad |= mm_kv_open(f->client, &opts, &kv) != -ECHILD;
	mm_client_hint(f->client, &(struct mm_load_hint){ .size = sizeof(struct mm_load_hint),
							  .waiting = 77 });
	return bad;
}

static void ends_well(pid_t child)
{
	int status;

	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void parent_goes_on(struct fixture *f)
{
	struct mm_client_info info = { .size = sizeof(info) };

	assert_int_equal(mm_client_info(f->client, &info), 0);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(__atomic_load_n(&f->peer->tenant->stats.waiting, __ATOMIC_RELAXED), 0);
}

static void test_fork(void **state)
{
	struct fixture *f = *state;
	const int fds[] = { f->client->sock, f->client->event_fd, f->client->wake_fd };
	pid_t child = fork();

	if (child == 0) {
		int bad = is_refused(f);

		/* The parent's connection must end with the parent, whatever its children do. */
		for (size_t i = 0; i < MM_ARRAY_SIZE(fds); i++)
			bad |= fcntl(fds[i], F_GETFD) != -1;
		_exit(bad | (mm_client_close(f->client) != NULL));
	}
	ends_well(child);
	parent_goes_on(f);
}

/* The child has no device memory: neither can it read weights, nor does it keep them alive. */
static void test_weights_stay_behind(void **state)
{
	struct fixture *f = *state;
	struct mm_tensor tensor = { .size = sizeof(tensor) };
	char name[MM_TENSOR_NAME_BYTES];
	unsigned char resident;
	uintptr_t page;
	pid_t child;

	assert_int_equal(mm_model_tensor_at(f->model, 0, name, sizeof(name), &tensor), 0);
	page = tensor.va - tensor.va % (uintptr_t)sysconf(_SC_PAGESIZE);
	/* mincore() tells what is mapped without touching it. */
	assert_int_equal(mincore((void *)page, 1, &resident), 0);
	child = fork();
	if (child == 0)
		_exit(mincore((void *)page, 1, &resident) != -1 || errno != ENOMEM);
	ends_well(child);
	assert_int_equal(mincore((void *)page, 1, &resident), 0);
	parent_goes_on(f);
}

/* No handler of fork() runs, and in a new PID namespace the child may have the parent's pid. */
static void test_raw_clone(void **state)
{
	struct fixture *f = *state;
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0UL);

	if (child == 0)
		_exit(is_refused(f));
	ends_well(child);
	parent_goes_on(f);
}

static void test_grandchild(void **state)
{
	struct fixture *f = *state;
	pid_t child = fork();

	if (child == 0) {
		int status = 1;
		pid_t grandchild = fork();

		if (grandchild == 0)
			_exit(is_refused(f));
		if (waitpid(grandchild, &status, 0) < 0)
			_exit(1);
		_exit(status || is_refused(f));
	}
	ends_well(child);
	parent_goes_on(f);
}

/* A program that the engine starts inherits none of the client's descriptors. */
static void test_exec(void **state)
{
	struct fixture *f = *state;
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/fd");
	int without = 0;

	(void)f;
	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		int fd = atoi(entry->d_name), flags;

		if (entry->d_name[0] == '.' || fd == dirfd(dir) || fd <= STDERR_FILENO)
			continue;
		flags = fcntl(fd, F_GETFD);
		if (flags >= 0 && !(flags & FD_CLOEXEC)) {
			char path[64], target[128] = "";

			snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
			if (readlink(path, target, sizeof(target) - 1) > 0 &&
			    (strstr(target, "memfd:") || strstr(target, "socket:") ||
			     strstr(target, "eventfd") || strstr(target, "mm-")))
				without++;
		}
	}
	closedir(dir);
	assert_int_equal(without, 0);
}

/* A fork while other threads are in the middle of calls leaves neither side hanging. */
static void *hints_and_infos(void *arg)
{
	struct fixture *f = arg;
	struct mm_client_info info = { .size = sizeof(info) };

	for (int i = 0; i < 2000; i++)
		if (mm_client_info(f->client, &info))
			return f;
	return NULL;
}

static void test_fork_among_threads(void **state)
{
	struct fixture *f = *state;
	pthread_t threads[3];
	void *failed = NULL;

	for (size_t i = 0; i < MM_ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hints_and_infos, f), 0);
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();

		if (child == 0) {
			struct mm_client_info info = { .size = sizeof(info) };

			_exit(mm_client_info(f->client, &info) != -ECHILD);
		}
		ends_well(child);
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(threads); i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	parent_goes_on(f);
}

#define MODEL(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_model, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MODEL(test_fork), MODEL(test_raw_clone),          MODEL(test_grandchild),
		MODEL(test_exec), MODEL(test_fork_among_threads), MODEL(test_weights_stay_behind),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
