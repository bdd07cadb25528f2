/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask - what the subcommands share: requests to mmd, one per connection, and their sentences
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/ipc/reach.h"
#include "libclient/support/cleanup.h"
#include "tools/common/rpc_client.h"
#include "tools/mmctl/ctl.h"

#define TIMEOUT_NS (30 * MM_NS_PER_S)
#define WHY_BYTES  512 /* longer than any sentence of mmd's */

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

int mmctl_print_json(const json_t *result)
{
	const int r = mm_json_print(result, JSON_INDENT(2));

	return r ? mmctl_error(MM_EXIT_FAILED, "standard output: %s", strerror(-r)) : MM_EXIT_DONE;
}

int mmctl_print_new_json(json_t *result)
{
	const int r = mmctl_print_json(result);

	json_decref(result);
	return r;
}

void mmctl_each_device(const json_t *result, void (*print)(const json_t *device))
{
	const json_t *devices = json_object_get(result, "devices"), *one, *facts;
	size_t i;

	json_array_foreach(devices, i, one) {
		facts = json_object_get(one, "device");
		if (json_array_size(devices) > 1)
			printf("%sdevice %" PRIu64 ": %s (%s), %s\n", i ? "\n" : "",
			       mm_json_u64(facts, "ordinal"), mm_json_text(facts, "name"),
			       mm_json_text(facts, "uuid"), mm_json_text(one, "state"));
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

static int socket_unreachable(const struct mmctl *ctl, const char *path, int error)
{
	char sentence[PATH_MAX];

	mm_reach_explain(path, error, sentence, sizeof(sentence));
	return answer_missing(ctl, error, sentence);
}

/*
 * For who may not administer mmd, but perhaps look at it. The sentence is about the socket that is
 * the easier to get to, if there is one: its group can be joined.
 */
static int view_connect(const struct mmctl *ctl, int *ret_fd)
{
	const int fd = mm_rpc_client_open(ctl->view, answer_timeout_ns(ctl));

	if (fd == -EACCES)
		return socket_unreachable(ctl, ctl->view, EACCES);
	if (fd < 0)
		return socket_unreachable(ctl, ctl->socket, EACCES);
	*ret_fd = fd;
	return MM_EXIT_DONE;
}

int mmctl_connect(const struct mmctl *ctl, int *ret_fd)
{
	int fd;

	if (!*ctl->socket && ctl->quiet)
		return answer_missing(ctl, EDESTADDRREQ, "");
	if (!*ctl->socket)
		return mmctl_error(
			MM_EXIT_USAGE,
			"--dir: XDG_RUNTIME_DIR is not set; say where mmd's sockets are");
	fd = mm_rpc_client_open(ctl->socket, answer_timeout_ns(ctl));
	if (fd == -ENAMETOOLONG) {
		(void)socket_unreachable(ctl, ctl->socket, ENAMETOOLONG);
		return MM_EXIT_USAGE;
	}
	if (fd == -EACCES && ctl->view)
		return view_connect(ctl, ret_fd);
	if (fd < 0)
		return socket_unreachable(ctl, ctl->socket, -fd);
	*ret_fd = fd;
	return MM_EXIT_DONE;
}

/* Reports why a request has no result. @why: the client's sentence, or mmd's for -EREMOTEIO. */
static int request_failed(const struct mmctl *ctl, int r, const char *why)
{
	char sentence[PATH_MAX];

	if (r == -EREMOTEIO)
		return mmctl_error(MM_EXIT_FAILED, "%s", why);
	snprintf(sentence, sizeof(sentence), "%s: %s", ctl->socket, why);
	if (r == -EMSGSIZE || r == -EPROTO || r == -ENOMEM)
		return mmctl_error(MM_EXIT_FAILED, "%s", sentence);
	return answer_missing(ctl, -r, sentence);
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
				   .view = ctl->view,
				   .quiet = ctl->quiet,
				   .device = -1,
				   .timeout_ns = ctl->timeout_ns,
				   .ret_error = ctl->ret_error };
	mm_cleanup(mm_json_done) json_t *status = NULL;
	const json_t *one;
	int r = mmctl_request(&all, "status", NULL, &status);
	size_t i, found = 0;

	if (r != MM_EXIT_DONE)
		return r;
	json_array_foreach(json_object_get(status, "devices"), i, one) {
		const json_t *facts = json_object_get(one, "device");

		if (!uuid_begins(mm_json_text(facts, "uuid"), ctl->uuid))
			continue;
		*ret_device = (json_int_t)mm_json_u64(facts, "ordinal");
		found++;
	}
	if (found == 1)
		return MM_EXIT_DONE;
	return mmctl_error(MM_EXIT_FAILED,
			   "--device: %s device of this mmd's is %s; mmctl devices lists them",
			   found ? "more than one" : "no", ctl->uuid);
}

/* Asks once. *ret_lost: the connection was lost before there was an answer. */
static int request_once(const struct mmctl *ctl, const char *method, json_t *params,
			json_t **ret_result, bool *ret_lost)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	char why[WHY_BYTES];
	int r = mmctl_connect(ctl, &fd);

	if (r != MM_EXIT_DONE)
		return r;
	r = mm_rpc_client_request(fd, answer_timeout_ns(ctl), method, json_incref(params),
				  ret_result, why, sizeof(why));
	if (r == -ECONNRESET && ret_lost) {
		*ret_lost = true;
		return MM_EXIT_UNREACHABLE;
	}
	return r ? request_failed(ctl, r, why) : MM_EXIT_DONE;
}

/*
 * A core that dies takes the connections of operators with it, and its successor answers a moment
 * later. All requests can be made again, except those that a revision makes count only once.
 */
static int request_repeat(const struct mmctl *ctl, const char *method, json_t *params,
			  json_t **ret_result)
{
	const bool repeats = !json_object_get(params, "revision");
	bool lost = false;
	int r = request_once(ctl, method, params, ret_result, repeats ? &lost : NULL);

	return lost ? request_once(ctl, method, params, ret_result, NULL) : r;
}

int mmctl_request(const struct mmctl *ctl, const char *method, json_t *params, json_t **ret_result)
{
	mm_cleanup(mm_json_done) json_t *all = params;
	json_int_t device = ctl->device;
	int r = ctl->uuid ? device_ordinal(ctl, &device) : MM_EXIT_DONE;

	if (r != MM_EXIT_DONE)
		return r;
	if (device >= 0) {
		all = all ? all : json_object();
		mm_json_put_u64(all, "device", (uint64_t)device);
	}
	return request_repeat(ctl, method, all, ret_result);
}
