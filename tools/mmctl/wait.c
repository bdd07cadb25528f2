/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait - until mmd is there and ready
 *
 * mmd's sockets exist a little before it answers, and it answers once the pages of all devices are
 * created. A client that connects in between is served then; one that connects before the sockets
 * exist is refused. mmd is ready when it has answered and none of its devices is down.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libclient/support/clock.h"
#include "libclient/ipc/reach.h"
#include "tools/mmctl/ctl.h"

#define POLL_NS   (50 * MM_NS_PER_MS)
#define WHY_BYTES (PATH_MAX + 256)

struct waiting {
	struct mmctl ctl;
	double timeout_s;
	uint64_t begun_ns, deadline_ns;
	int error; /* errno of the last poll; 0: mmd answered */
	char why[WHY_BYTES];
	json_t *status; /* answer of mmd once it is ready */
};

static void waiting_done(struct waiting *w)
{
	json_decref(w->status);
}

/* Returns true if @device is ready; else @why gets the reason. */
static bool device_is_ready(const json_t *device, char *why, size_t bytes)
{
	const uint64_t ordinal = mm_json_u64(json_object_get(device, "device"), "ordinal");
	const uint64_t missing = mm_json_u64(json_object_get(device, "pages"), "not_created");

	if (strcmp(mm_json_text(device, "state"), "down") == 0)
		snprintf(why, bytes, "device %" PRIu64 " is down; mmd's log says why", ordinal);
	else if (missing)
		snprintf(why, bytes, "device %" PRIu64 ": %" PRIu64 " pages are not made yet",
			 ordinal, missing);
	else
		return true;
	return false;
}

static bool devices_are_ready(const json_t *status, char *why, size_t bytes)
{
	const json_t *device;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device)
		if (!device_is_ready(device, why, bytes))
			return false;
	return true;
}

/* True for errors that end when mmd starts. */
static bool error_may_pass(int error)
{
	return error == ENOENT || error == ECONNREFUSED || error == ECONNRESET || error == EPIPE ||
	       error == ETIMEDOUT || error == EAGAIN;
}

static void error_explain(struct waiting *w)
{
	/* The last poll may be cut short by the deadline; the reason is then the one before. */
	if (w->error == ETIMEDOUT && *w->why)
		return;
	if (w->error == ETIMEDOUT || w->error == ECONNRESET || w->error == EPIPE)
		snprintf(w->why, sizeof(w->why), "%s: mmd does not answer", w->ctl.socket);
	else
		mm_reach_explain(w->ctl.socket, w->error, w->why, sizeof(w->why));
}

/*
 * Requests the status once. Return: MM_EXIT_DONE ready; MM_EXIT_UNREACHABLE not yet, w->why has the
 * reason; any other code after a sentence was printed, unless w->error is set.
 */
static int status_poll(struct waiting *w)
{
	mm_cleanup(mm_json_done) json_t *status = NULL;
	const uint64_t now = mm_now_ns();
	int r;

	w->ctl.timeout_ns = MM_MAX(w->deadline_ns > now ? w->deadline_ns - now : 0, POLL_NS);
	w->error = 0;
	r = mmctl_request(&w->ctl, "status", NULL, &status);
	if (w->error)
		error_explain(w);
	if (r != MM_EXIT_DONE)
		return r;
	if (!devices_are_ready(status, w->why, sizeof(w->why)))
		return MM_EXIT_UNREACHABLE;
	w->status = json_incref(status);
	return MM_EXIT_DONE;
}

static int status_poll_until(struct waiting *w)
{
	const struct timespec pause = { .tv_nsec = POLL_NS };

	for (;;) {
		const int r = status_poll(w);

		if (r != MM_EXIT_UNREACHABLE || (w->error && !error_may_pass(w->error)) ||
		    mm_now_ns() >= w->deadline_ns)
			return r;
		nanosleep(&pause, NULL);
	}
}

static int print_ready(const struct waiting *w)
{
	const double waited_s = (double)(mm_now_ns() - w->begun_ns) / (double)MM_NS_PER_S;
	mm_cleanup(mm_json_done) json_t *answer = NULL;

	if (!w->ctl.json) {
		printf("mmd %s is ready\n", mm_json_text(w->status, "version"));
		return MM_EXIT_DONE;
	}
	answer = json_pack("{s:i,s:b,s:f}", "schema", 1, "ready", 1, "waited_s", waited_s);
	return mmctl_print_json(answer);
}

int mmctl_wait_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(waiting_done) struct waiting w = { .ctl = *ctl,
						      .begun_ns = mm_now_ns(),
						      .timeout_s = ctl->options->timeout_s };
	int r;

	(void)argc;
	(void)argv;
	if (!*ctl->socket)
		return mmctl_request(ctl, "status", NULL,
				     &w.status); /* it prints what is missing */
	w.ctl.quiet = true;
	w.ctl.ret_error = &w.error;
	w.deadline_ns = w.begun_ns + (uint64_t)(w.timeout_s * (double)MM_NS_PER_S);
	r = status_poll_until(&w);
	if (r == MM_EXIT_DONE)
		return print_ready(&w);
	if (w.error && !error_may_pass(w.error))
		return mmctl_error(r, "%s", w.why);
	if (r != MM_EXIT_UNREACHABLE)
		return r;
	return mmctl_error(r, "mmd is not ready after %g s: %s", w.timeout_s, w.why);
}
