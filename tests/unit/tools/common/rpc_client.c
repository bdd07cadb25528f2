/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "tools/common/rpc_client.h"

#define SECOND_NS MM_NS_PER_S
#define SOON_NS   (50 * MM_NS_PER_MS)

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
	int fd = mm_rpc_client_open(path, SECOND_NS);
	json_t *result = NULL;
	char err[128];

	if (fd < 0 ||
	    mm_rpc_client_request(fd, 60 * SECOND_NS, "status", NULL, &result, err, sizeof(err)))
		_exit(1);
	_exit(mm_json_flag(result, "there") ? 0 : 1);
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

/* ---- what comes back ---- */

static void pair_open(int ends[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
}

/* Requests on @fd, whose peer has said all that it will say. */
static int one_request(int fd, json_t **ret_result, char *err, size_t bytes)
{
	return mm_rpc_client_request(fd, SOON_NS, "status", json_pack("{s:i}", "device", 1),
				     ret_result, err, bytes);
}

static const struct {
	const char *name, *line;
	int want;
	const char *sentence;
} lines[] = {
	{ "refused", "{\"error\":{\"code\":-1,\"message\":\"no such tenant\"}}\n", -EREMOTEIO,
	  "no such tenant" },
	{ "not JSON", "{\n", -EPROTO, "the answer is not one line of JSON" },
	{ "an empty line", "\n", -EPROTO, "the answer is not one line of JSON" },
	{ "two answers", "{\"result\":1}\n{\"result\":2}\n", -EPROTO,
	  "the answer is not one line of JSON" },
	{ "a list", "[]\n", -EPROTO, "the answer has neither a result nor a reason" },
	{ "a reason that is no text", "{\"error\":{\"message\":3}}\n", -EPROTO,
	  "the answer has neither a result nor a reason" },
	{ "silence", "", -ETIMEDOUT, "mmd does not answer within 1 s" },
	{ "half a line", "{\"result\":", -ETIMEDOUT, "mmd does not answer within 1 s" },
};

static void test_answers(void **state)
{
	char err[128];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines); i++) {
		json_t *result = NULL;
		int ends[2];

		print_message("%s\n", lines[i].name);
		pair_open(ends);
		assert_int_equal(write(ends[1], lines[i].line, strlen(lines[i].line)),
				 strlen(lines[i].line));
		assert_int_equal(one_request(ends[0], &result, err, sizeof(err)), lines[i].want);
		assert_string_equal(err, lines[i].sentence);
		assert_null(result);
		close(ends[0]);
		close(ends[1]);
	}
}

static void test_request_line(void **state)
{
	static const char want[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\","
				   "\"params\":{\"device\":1}}\n";
	json_t *result = NULL;
	char text[256] = "", err[128];
	int ends[2];

	(void)state;
	pair_open(ends);
	assert_true(write(ends[1], answer, strlen(answer)) > 0);
	assert_int_equal(one_request(ends[0], &result, err, sizeof(err)), 0);
	assert_true(mm_json_flag(result, "there"));
	json_decref(result);
	assert_int_equal(read(ends[1], text, sizeof(text) - 1), strlen(want));
	assert_string_equal(text, want);
	close(ends[0]);
	close(ends[1]);
}

/*
 * A peer that answered and has closed, before the request came (@early) or with the request
 * unread, which resets the connection: what it wrote counts.
 */
static void closed_by_peer(bool early, const char *line, int want, const char *sentence)
{
	json_t *result = NULL;
	char err[128], byte;
	int ends[2], status;
	pid_t pid;

	pair_open(ends);
	assert_true(write(ends[1], line, strlen(line)) >= 0);
	if (early)
		close(ends[1]);
	pid = early ? 0 : fork();
	assert_true(pid >= 0);
	if (!early && pid == 0) {
		/* Closes once there is something that it does not read. */
		close(ends[0]);
		while (recv(ends[1], &byte, 1, MSG_PEEK) < 1)
			;
		_exit(0);
	}
	if (!early)
		close(ends[1]);
	assert_int_equal(mm_rpc_client_request(ends[0], 60 * SECOND_NS, "status", NULL, &result,
					       err, sizeof(err)),
			 want);
	if (sentence)
		assert_string_equal(err, sentence);
	json_decref(result);
	close(ends[0]);
	if (!early)
		assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void test_reads_before_a_reset_counts(void **state)
{
	static const char lost[] = "no answer: Connection reset by peer; has mmd ended?";

	(void)state;
	for (int early = 0; early < 2; early++) {
		closed_by_peer(early, answer, 0, NULL);
		closed_by_peer(early, lines[0].line, -EREMOTEIO, "no such tenant");
		closed_by_peer(early, "{\"resu", -ECONNRESET, lost);
		closed_by_peer(early, "", -ECONNRESET, lost);
	}
}

/* Writes @text again and again, @pause_us apart, until the peer is gone. */
static pid_t writer_start(int ends[2], const char *text, useconds_t pause_us)
{
	const pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		close(ends[0]);
		while (send(ends[1], text, strlen(text), MSG_NOSIGNAL) > 0)
			usleep(pause_us);
		_exit(0);
	}
	close(ends[1]);
	return pid;
}

static void from_writer(const char *text, useconds_t pause_us, uint64_t timeout_ns, int want)
{
	json_t *result = NULL;
	int ends[2], status;
	char err[128];
	pid_t pid;

	pair_open(ends);
	pid = writer_start(ends, text, pause_us);
	assert_int_equal(mm_rpc_client_request(ends[0], timeout_ns, "status", NULL, &result, err,
					       sizeof(err)),
			 want);
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void test_hostile_peers(void **state)
{
	char text[4096];

	(void)state;
	memset(text, ' ', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	/* Each piece comes in time, the answer does not. */
	from_writer(" ", 1000, SOON_NS, -ETIMEDOUT);
	from_writer(text, 0, 60 * SECOND_NS, -EMSGSIZE);
}

/* An answer that fills the socket many times over, with its newline as the very last byte. */
static void test_large_answer(void **state)
{
	const size_t bytes = (size_t)4 << 20;
	json_t *result = NULL;
	int ends[2], status;
	char err[128];
	pid_t pid;

	(void)state;
	pair_open(ends);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char *text = malloc(bytes + 1);

		close(ends[0]);
		memset(text, ' ', bytes);
		memcpy(text + bytes / 2, "{\"result\":7}", strlen("{\"result\":7}"));
		text[bytes] = '\n';
		_exit(write(ends[1], text, bytes + 1) == (ssize_t)bytes + 1 ? 0 : 1);
	}
	close(ends[1]);
	assert_int_equal(mm_rpc_client_request(ends[0], 60 * SECOND_NS, "status", NULL, &result,
					       err, sizeof(err)),
			 0);
	assert_int_equal(json_integer_value(result), 7);
	json_decref(result);
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- connecting ---- */

static void test_open_fails(void **state)
{
	char path[200];
	int listener, waiting[8], fd = 0;

	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(mm_rpc_client_open(path, SOON_NS), -ENAMETOOLONG);
	assert_int_equal(mm_rpc_client_open("/nonexistent/socket", SOON_NS), -ENOENT);
	/* Nobody is let in: the queue of a listener that takes one is full at some time. */
	listen_at(path, 64, &listener);
	for (size_t i = 0; i < MM_ARRAY_SIZE(waiting); i++) {
		waiting[i] = fd >= 0 ? mm_rpc_client_open(path, SOON_NS) : -1;
		fd = waiting[i];
		assert_true(fd >= 0 || fd == -1 || fd == -EAGAIN);
	}
	assert_true(fd < 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(waiting); i++) {
		if (waiting[i] >= 0)
			close(waiting[i]);
	}
	close(listener);
	assert_int_equal(mm_rpc_client_open(path, SOON_NS), -ECONNREFUSED);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_request_line),
		cmocka_unit_test(test_reads_before_a_reset_counts),
		cmocka_unit_test(test_hostile_peers),
		cmocka_unit_test(test_large_answer),
		cmocka_unit_test(test_open_fails),
		cmocka_unit_test(test_stopped_and_continued),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
