/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "libclient/ipc/reach.h"
#include "libclient/support/cleanup.h"
#include "tools/mmctl/ctl.h"

#define TIMEOUT_NS  (30 * MM_NS_PER_S)
#define REPLY_BYTES (8u << 20)

int mm_complain(int code, const char *fmt, ...)
{
	va_list ap;

	fputs("mmctl: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return code;
}

int mm_unexpected(const char *command, const char *word)
{
	return mm_complain(MM_EXIT_USAGE, "%s: unexpected argument '%s'", command, word);
}

void mm_json_done(json_t **json)
{
	json_decref(*json);
}

int mm_print_json(const json_t *result)
{
	if (json_dumpf(result, stdout, JSON_INDENT(2)) < 0 || putchar('\n') == EOF)
		return mm_complain(MM_EXIT_FAILED, "standard output: %s", strerror(errno));
	return MM_EXIT_DONE;
}

uint64_t mm_u64(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

const char *mm_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

void mm_each_device(const json_t *result, void (*print)(const json_t *device))
{
	const json_t *devices = json_object_get(result, "devices"), *one, *facts;
	size_t i;

	json_array_foreach(devices, i, one) {
		facts = json_object_get(one, "device");
		if (json_array_size(devices) > 1)
			printf("%sdevice %" PRIu64 ": %s (%s), %s\n", i ? "\n" : "",
			       mm_u64(facts, "ordinal"), mm_text(facts, "name"),
			       mm_text(facts, "uuid"), mm_text(one, "state"));
		print(one);
	}
}

static uint64_t timeout_ns(const struct mm_ctl *ctl)
{
	return ctl->timeout_ns ? ctl->timeout_ns : TIMEOUT_NS;
}

/* What the sentence is about; with ctl->quiet the caller makes one himself. */
static int no_answer(const struct mm_ctl *ctl, int error, const char *sentence)
{
	if (ctl->ret_error)
		*ctl->ret_error = error;
	return ctl->quiet ? MM_EXIT_UNREACHABLE : mm_complain(MM_EXIT_UNREACHABLE, "%s", sentence);
}

static int unreachable(const struct mm_ctl *ctl, int error)
{
	char sentence[PATH_MAX];

	mm_reach_explain(ctl->socket, error, sentence, sizeof(sentence));
	return no_answer(ctl, error, sentence);
}

/* The connection stands, or stood. */
static int silent(const struct mm_ctl *ctl, int error)
{
	char sentence[PATH_MAX];

	if (error == EAGAIN)
		snprintf(sentence, sizeof(sentence), "%s: mmd does not answer within %" PRIu64 " s",
			 ctl->socket, mm_div_up(timeout_ns(ctl), MM_NS_PER_S));
	else
		snprintf(sentence, sizeof(sentence), "%s: no answer: %s; has mmd ended?",
			 ctl->socket, strerror(error));
	return no_answer(ctl, error == EAGAIN ? ETIMEDOUT : error, sentence);
}

static int dial(const struct mm_ctl *ctl, int *ret_fd)
{
	const uint64_t timeout_us = MM_MAX(timeout_ns(ctl) / 1000, 1);
	struct timeval timeout = { .tv_sec = (time_t)(timeout_us / 1000000),
				   .tv_usec = (suseconds_t)(timeout_us % 1000000) };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mm_cleanup(mm_close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!*ctl->socket && ctl->quiet)
		return no_answer(ctl, EDESTADDRREQ, "");
	if (!*ctl->socket)
		return mm_complain(
			MM_EXIT_USAGE,
			"--dir: XDG_RUNTIME_DIR is not set; say where mmd's sockets are");
	if (strlen(ctl->socket) >= sizeof(address.sun_path)) {
		(void)unreachable(ctl, ENAMETOOLONG);
		return MM_EXIT_USAGE;
	}
	strcpy(address.sun_path, ctl->socket);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
		return unreachable(ctl, errno);
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EINTR)
			return unreachable(ctl, errno);
	}
	*ret_fd = fd;
	fd = -1;
	return MM_EXIT_DONE;
}

static int say(const struct mm_ctl *ctl, int fd, const char *text)
{
	size_t left = strlen(text);

	while (left > 0) {
		ssize_t n = send(fd, text, left, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return silent(ctl, errno);
		text += n;
		left -= (size_t)n;
	}
	return MM_EXIT_DONE;
}

static int hear(const struct mm_ctl *ctl, int fd, char *reply, size_t *ret_bytes)
{
	size_t bytes = 0;

	while (bytes < REPLY_BYTES) {
		ssize_t n = recv(fd, reply + bytes, REPLY_BYTES - bytes, 0);

		/* With a timeout, who was stopped and goes on is told so, too. */
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return silent(ctl, n < 0 ? errno : ECONNRESET);
		bytes += (size_t)n;
		if (reply[bytes - 1] == '\n') {
			*ret_bytes = bytes;
			return MM_EXIT_DONE;
		}
	}
	return mm_complain(MM_EXIT_FAILED, "%s: the answer does not end", ctl->socket);
}

static int exchange(const struct mm_ctl *ctl, const json_t *request, json_t **ret_reply)
{
	mm_cleanup(mm_free_ptr) char *text = json_dumps(request, JSON_COMPACT);
	mm_cleanup(mm_free_ptr) char *reply = malloc(REPLY_BYTES);
	mm_cleanup(mm_close_fd) int fd = -1;
	size_t bytes = 0;
	int r;

	if (!text || !reply)
		return mm_complain(MM_EXIT_FAILED, "out of memory");
	r = dial(ctl, &fd);
	if (r == MM_EXIT_DONE)
		r = say(ctl, fd, text);
	if (r == MM_EXIT_DONE)
		r = say(ctl, fd, "\n");
	if (r == MM_EXIT_DONE)
		r = hear(ctl, fd, reply, &bytes);
	if (r != MM_EXIT_DONE)
		return r;
	*ret_reply = json_loadb(reply, bytes, 0, NULL);
	if (!*ret_reply)
		return mm_complain(MM_EXIT_FAILED, "%s: the answer is not JSON", ctl->socket);
	return MM_EXIT_DONE;
}

/* "GPU-8932f9…" without its prefix and dashes begins @hex. */
static bool begins(const char *hex, const char *uuid)
{
	for (uuid += 4; *uuid; uuid++) {
		if (*uuid == '-')
			continue;
		if (!*hex || (*hex | 0x20) != (*uuid | 0x20))
			return false;
		hex++;
	}
	return true;
}

/* mmd's socket knows devices by ordinal alone. */
static int find_device(const struct mm_ctl *ctl, json_int_t *ret_device)
{
	const struct mm_ctl all = { .socket = ctl->socket,
				    .quiet = ctl->quiet,
				    .device = -1,
				    .timeout_ns = ctl->timeout_ns,
				    .ret_error = ctl->ret_error };
	mm_cleanup(mm_json_done) json_t *status = NULL;
	const json_t *one;
	int r = mm_ask(&all, "status", NULL, &status);
	size_t i, found = 0;

	if (r != MM_EXIT_DONE)
		return r;
	json_array_foreach(json_object_get(status, "devices"), i, one) {
		const json_t *facts = json_object_get(one, "device");

		if (!begins(mm_text(facts, "uuid"), ctl->uuid))
			continue;
		*ret_device = (json_int_t)mm_u64(facts, "ordinal");
		found++;
	}
	if (found == 1)
		return MM_EXIT_DONE;
	return mm_complain(MM_EXIT_FAILED,
			   "--device: %s device of this mmd's is %s; mmctl devices lists them",
			   found ? "more than one" : "no", ctl->uuid);
}

int mm_ask(const struct mm_ctl *ctl, const char *method, json_t *params, json_t **ret_result)
{
	mm_cleanup(mm_json_done) json_t *request =
		json_pack("{s:s,s:i,s:s}", "jsonrpc", "2.0", "id", 1, "method", method);
	mm_cleanup(mm_json_done) json_t *reply = NULL;
	json_int_t device = ctl->device;
	json_t *result;
	int r = ctl->uuid ? find_device(ctl, &device) : MM_EXIT_DONE;

	if (r != MM_EXIT_DONE) {
		json_decref(params);
		return r;
	}
	if (device >= 0) {
		params = params ? params : json_object();
		json_object_set_new(params, "device", json_integer(device));
	}
	if (params)
		json_object_set_new(request, "params", params);
	r = exchange(ctl, request, &reply);
	if (r != MM_EXIT_DONE)
		return r;
	result = json_object_get(reply, "result");
	if (!result)
		return mm_complain(MM_EXIT_FAILED, "%s",
				   mm_text(json_object_get(reply, "error"), "message"));
	*ret_result = json_incref(result);
	return MM_EXIT_DONE;
}
