/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask - the client of mmd's admin socket: JSON-RPC over a Unix socket, one request per connection
 */
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

int mmctl_error(int code, const char *fmt, ...)
{
	va_list ap;

	fputs("mmctl: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return code;
}

int mmctl_unexpected(const char *command, const char *word)
{
	return mmctl_error(MM_EXIT_USAGE, "%s: unexpected argument '%s'", command, word);
}

void mmctl_json_done(json_t **json)
{
	json_decref(*json);
}

int mmctl_print_json(const json_t *result)
{
	if (json_dumpf(result, stdout, JSON_INDENT(2)) < 0 || putchar('\n') == EOF)
		return mmctl_error(MM_EXIT_FAILED, "standard output: %s", strerror(errno));
	return MM_EXIT_DONE;
}

uint64_t mmctl_u64(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

const char *mmctl_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

void mmctl_each_device(const json_t *result, void (*print)(const json_t *device))
{
	const json_t *devices = json_object_get(result, "devices"), *one, *facts;
	size_t i;

	json_array_foreach(devices, i, one) {
		facts = json_object_get(one, "device");
		if (json_array_size(devices) > 1)
			printf("%sdevice %" PRIu64 ": %s (%s), %s\n", i ? "\n" : "",
			       mmctl_u64(facts, "ordinal"), mmctl_text(facts, "name"),
			       mmctl_text(facts, "uuid"), mmctl_text(one, "state"));
		print(one);
	}
}

static uint64_t answer_timeout_ns(const struct mmctl *ctl)
{
	return ctl->timeout_ns ? ctl->timeout_ns : TIMEOUT_NS;
}

/* Reports that mmd was not reached; with ctl->quiet the caller prints a sentence of its own. */
static int answer_missing(const struct mmctl *ctl, int error, const char *sentence)
{
	if (ctl->ret_error)
		*ctl->ret_error = error;
	return ctl->quiet ? MM_EXIT_UNREACHABLE : mmctl_error(MM_EXIT_UNREACHABLE, "%s", sentence);
}

static int socket_unreachable(const struct mmctl *ctl, int error)
{
	char sentence[PATH_MAX];

	mm_reach_explain(ctl->socket, error, sentence, sizeof(sentence));
	return answer_missing(ctl, error, sentence);
}

/* Reports an error on a connection that had been made. */
static int answer_failed(const struct mmctl *ctl, int error)
{
	char sentence[PATH_MAX];

	if (error == EAGAIN)
		snprintf(sentence, sizeof(sentence), "%s: mmd does not answer within %" PRIu64 " s",
			 ctl->socket, mm_div_up(answer_timeout_ns(ctl), MM_NS_PER_S));
	else
		snprintf(sentence, sizeof(sentence), "%s: no answer: %s; has mmd ended?",
			 ctl->socket, strerror(error));
	return answer_missing(ctl, error == EAGAIN ? ETIMEDOUT : error, sentence);
}

static int socket_connect(const struct mmctl *ctl, int *ret_fd)
{
	const uint64_t timeout_us = MM_MAX(answer_timeout_ns(ctl) / 1000, 1);
	struct timeval timeout = { .tv_sec = (time_t)(timeout_us / 1000000),
				   .tv_usec = (suseconds_t)(timeout_us % 1000000) };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mm_cleanup(mm_close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!*ctl->socket && ctl->quiet)
		return answer_missing(ctl, EDESTADDRREQ, "");
	if (!*ctl->socket)
		return mmctl_error(
			MM_EXIT_USAGE,
			"--dir: XDG_RUNTIME_DIR is not set; say where mmd's sockets are");
	if (strlen(ctl->socket) >= sizeof(address.sun_path)) {
		(void)socket_unreachable(ctl, ENAMETOOLONG);
		return MM_EXIT_USAGE;
	}
	strcpy(address.sun_path, ctl->socket);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
		return socket_unreachable(ctl, errno);
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EINTR)
			return socket_unreachable(ctl, errno);
	}
	*ret_fd = fd;
	fd = -1;
	return MM_EXIT_DONE;
}

static int request_send(const struct mmctl *ctl, int fd, const char *text)
{
	size_t left = strlen(text);

	while (left > 0) {
		ssize_t n = send(fd, text, left, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return answer_failed(ctl, errno);
		text += n;
		left -= (size_t)n;
	}
	return MM_EXIT_DONE;
}

static int answer_receive(const struct mmctl *ctl, int fd, char *reply, size_t *ret_bytes)
{
	size_t bytes = 0;

	while (bytes < REPLY_BYTES) {
		ssize_t n = recv(fd, reply + bytes, REPLY_BYTES - bytes, 0);

		/* On a socket with a timeout, SIGCONT after a stop interrupts recv(), too. */
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return answer_failed(ctl, n < 0 ? errno : ECONNRESET);
		bytes += (size_t)n;
		if (reply[bytes - 1] == '\n') {
			*ret_bytes = bytes;
			return MM_EXIT_DONE;
		}
	}
	return mmctl_error(MM_EXIT_FAILED, "%s: the answer does not end", ctl->socket);
}

static int request_exchange(const struct mmctl *ctl, const json_t *request, json_t **ret_reply)
{
	mm_cleanup(mm_free_ptr) char *text = json_dumps(request, JSON_COMPACT);
	mm_cleanup(mm_free_ptr) char *reply = malloc(REPLY_BYTES);
	mm_cleanup(mm_close_fd) int fd = -1;
	size_t bytes = 0;
	int r;

	if (!text || !reply)
		return mmctl_error(MM_EXIT_FAILED, "out of memory");
	r = socket_connect(ctl, &fd);
	if (r == MM_EXIT_DONE)
		r = request_send(ctl, fd, text);
	if (r == MM_EXIT_DONE)
		r = request_send(ctl, fd, "\n");
	if (r == MM_EXIT_DONE)
		r = answer_receive(ctl, fd, reply, &bytes);
	if (r != MM_EXIT_DONE)
		return r;
	*ret_reply = json_loadb(reply, bytes, 0, NULL);
	if (!*ret_reply)
		return mmctl_error(MM_EXIT_FAILED, "%s: the answer is not JSON", ctl->socket);
	return MM_EXIT_DONE;
}

/* True if @uuid, such as "GPU-8932f9…", is a beginning of @hex, prefix and dashes left out. */
static bool uuid_begins(const char *hex, const char *uuid)
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

/* Looks up the ordinal of the device whose UUID was given: mmd's methods take ordinals only. */
static int device_ordinal(const struct mmctl *ctl, json_int_t *ret_device)
{
	const struct mmctl all = { .socket = ctl->socket,
				   .quiet = ctl->quiet,
				   .device = -1,
				   .timeout_ns = ctl->timeout_ns,
				   .ret_error = ctl->ret_error };
	mm_cleanup(mmctl_json_done) json_t *status = NULL;
	const json_t *one;
	int r = mmctl_request(&all, "status", NULL, &status);
	size_t i, found = 0;

	if (r != MM_EXIT_DONE)
		return r;
	json_array_foreach(json_object_get(status, "devices"), i, one) {
		const json_t *facts = json_object_get(one, "device");

		if (!uuid_begins(mmctl_text(facts, "uuid"), ctl->uuid))
			continue;
		*ret_device = (json_int_t)mmctl_u64(facts, "ordinal");
		found++;
	}
	if (found == 1)
		return MM_EXIT_DONE;
	return mmctl_error(MM_EXIT_FAILED,
			   "--device: %s device of this mmd's is %s; mmctl devices lists them",
			   found ? "more than one" : "no", ctl->uuid);
}

int mmctl_request(const struct mmctl *ctl, const char *method, json_t *params, json_t **ret_result)
{
	mm_cleanup(mmctl_json_done) json_t *request =
		json_pack("{s:s,s:i,s:s}", "jsonrpc", "2.0", "id", 1, "method", method);
	mm_cleanup(mmctl_json_done) json_t *reply = NULL;
	json_int_t device = ctl->device;
	json_t *result;
	int r = ctl->uuid ? device_ordinal(ctl, &device) : MM_EXIT_DONE;

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
	r = request_exchange(ctl, request, &reply);
	if (r != MM_EXIT_DONE)
		return r;
	result = json_object_get(reply, "result");
	if (!result)
		return mmctl_error(MM_EXIT_FAILED, "%s",
				   mmctl_text(json_object_get(reply, "error"), "message"));
	*ret_result = json_incref(result);
	return MM_EXIT_DONE;
}
