/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "tools/lab/common/rpc_client.h"

static const char answer[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"there\":true}}\n";

static void listen_at(char *path, size_t bytes, int *ret_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(path, bytes, "/tmp/mm-test-rpc.%d", (int)getpid());
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1), 0);
	*ret_fd = fd;
}

static void rpc_request(const char *path)
{
	int fd = mm_rpc_client_open(path);
	json_t *result = fd < 0 ? NULL : mm_rpc_client_call(fd, "status");

	_exit(json_is_true(json_object_get(result, "there")) ? 0 : 1);
}

/* Returns the state of a process. 'S' is sleeping; here it can only wait for the answer. */
static char state_of(pid_t pid)
{
	char path[64], text[256] = "";
	const char *end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	end = strrchr(text, ')');
	assert_non_null(end);
	return end[2];
}

static void stop_and_continue(pid_t pid)
{
	int status = 0;

	while (!strchr("SZ", state_of(pid)))
		usleep(1000);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitpid(pid, &status, WCONTINUED), pid);
	assert_true(WIFCONTINUED(status));
}

/* The client is stopped and continued while it waits for the answer, as by Ctrl-Z and fg. */
static void test_stopped_and_continued(void **state)
{
	int listener, fd, status = 0;
	char path[64], request[256];
	pid_t pid;

	(void)state;
	listen_at(path, sizeof(path), &listener);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		rpc_request(path);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	assert_true(recv(fd, request, sizeof(request), 0) > 0);
	for (int i = 0; i < 3; i++)
		stop_and_continue(pid);
	assert_int_equal(send(fd, answer, strlen(answer), MSG_NOSIGNAL), strlen(answer));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(fd);
	close(listener);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped_and_continued),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
