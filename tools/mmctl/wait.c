/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait - until mmd is there and ready
 *
 * The sockets exist a little before mmd answers, and mmd answers once the pages of all devices are
 * made: who connects before is let in then, but who comes before the sockets exist is turned away.
 * Ready is what has answered and has no device that is down.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/support/clock.h"
#include "libclient/ipc/reach.h"
#include "tools/mmctl/ctl.h"

#define TIMEOUT_S_DEFAULT 60.0
#define TIMEOUT_S_MAX     86400.0
#define LOOK_NS           (50 * MM_NS_PER_MS)
#define WHY_BYTES         (PATH_MAX + 256)

struct waiting {
	struct mm_ctl ctl;
	double timeout_s;
	uint64_t begun_ns, deadline_ns;
	int error; /* of the last look */
	char why[WHY_BYTES];
	json_t *status; /* of a mmd that is ready */
};

static void waiting_done(struct waiting *w)
{
	json_decref(w->status);
}

static int parse(int argc, char **argv, double *ret_timeout_s)
{
	const char flag[] = "--timeout";
	const char *text = NULL;
	double timeout_s;
	char *end;

	*ret_timeout_s = TIMEOUT_S_DEFAULT;
	if (argc == 0)
		return MM_EXIT_DONE;
	if (strncmp(argv[0], "--timeout=", sizeof(flag)) == 0)
		text = argv[0] + sizeof(flag);
	else if (strcmp(argv[0], flag) == 0 && argc > 1)
		text = argv[1];
	else if (strcmp(argv[0], flag) == 0)
		return mm_complain(MM_EXIT_USAGE, "%s: needs a value", flag);
	else
		return mm_unexpected("wait", argv[0]);
	if (argc > (argc > 1 && text == argv[1] ? 2 : 1))
		return mm_unexpected("wait", argv[argc - 1]);
	timeout_s = strtod(text, &end);
	if (end == text || *end || !isfinite(timeout_s) || timeout_s < 0 ||
	    timeout_s > TIMEOUT_S_MAX)
		return mm_complain(MM_EXIT_USAGE, "wait: --timeout: '%s' is not 0 to %g seconds",
				   text, TIMEOUT_S_MAX);
	*ret_timeout_s = timeout_s;
	return MM_EXIT_DONE;
}

/* A device that is not ready makes a sentence. */
static bool device_ready(const json_t *device, char *why, size_t bytes)
{
	const uint64_t ordinal = mm_u64(json_object_get(device, "device"), "ordinal");
	const uint64_t missing = mm_u64(json_object_get(device, "pages"), "not_created");

	if (strcmp(mm_text(device, "state"), "down") == 0)
		snprintf(why, bytes, "device %" PRIu64 " is down; mmd's log says why", ordinal);
	else if (missing)
		snprintf(why, bytes, "device %" PRIu64 ": %" PRIu64 " pages are not made yet",
			 ordinal, missing);
	else
		return true;
	return false;
}

static bool devices_ready(const json_t *status, char *why, size_t bytes)
{
	const json_t *device;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device)
		if (!device_ready(device, why, bytes))
			return false;
	return true;
}

/* These end by themselves when mmd starts; other errors do not. */
static bool may_pass(int error)
{
	return error == ENOENT || error == ECONNREFUSED || error == ECONNRESET || error == EPIPE ||
	       error == ETIMEDOUT || error == EAGAIN;
}

static void error_explain(struct waiting *w)
{
	/* The last look may be cut short; what the one before saw is still why. */
	if (w->error == ETIMEDOUT && *w->why)
		return;
	if (w->error == ETIMEDOUT || w->error == ECONNRESET || w->error == EPIPE)
		snprintf(w->why, sizeof(w->why), "%s: mmd does not answer", w->ctl.socket);
	else
		mm_reach_explain(w->ctl.socket, w->error, w->why, sizeof(w->why));
}

/*
 * Return: MM_EXIT_DONE ready; MM_EXIT_UNREACHABLE not yet, *w says why; else without an error in *w
 * it was said.
 */
static int status_look(struct waiting *w)
{
	mm_cleanup(mm_json_done) json_t *status = NULL;
	const uint64_t now = mm_now_ns();
	int r;

	w->ctl.timeout_ns = MM_MAX(w->deadline_ns > now ? w->deadline_ns - now : 0, LOOK_NS);
	w->error = 0;
	r = mm_ask(&w->ctl, "status", NULL, &status);
	if (w->error)
		error_explain(w);
	if (r != MM_EXIT_DONE)
		return r;
	if (!devices_ready(status, w->why, sizeof(w->why)))
		return MM_EXIT_UNREACHABLE;
	w->status = json_incref(status);
	return MM_EXIT_DONE;
}

static int look_until(struct waiting *w)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };

	for (;;) {
		const int r = status_look(w);

		if (r != MM_EXIT_UNREACHABLE || (w->error && !may_pass(w->error)) ||
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
		printf("mmd %s is ready\n", mm_text(w->status, "version"));
		return MM_EXIT_DONE;
	}
	answer = json_pack("{s:i,s:b,s:f}", "schema", 1, "ready", 1, "waited_s", waited_s);
	return mm_print_json(answer);
}

int mm_wait_run(const struct mm_ctl *ctl, int argc, char **argv)
{
	mm_cleanup(waiting_done) struct waiting w = { .ctl = *ctl, .begun_ns = mm_now_ns() };
	int r = parse(argc, argv, &w.timeout_s);

	if (r != MM_EXIT_DONE)
		return r;
	if (!*ctl->socket)
		return mm_ask(ctl, "status", NULL, &w.status); /* says what is missing */
	w.ctl.quiet = true;
	w.ctl.ret_error = &w.error;
	w.deadline_ns = w.begun_ns + (uint64_t)(w.timeout_s * (double)MM_NS_PER_S);
	r = look_until(&w);
	if (r == MM_EXIT_DONE)
		return print_ready(&w);
	if (w.error && !may_pass(w.error))
		return mm_complain(r, "%s", w.why);
	if (r != MM_EXIT_UNREACHABLE)
		return r;
	return mm_complain(r, "mmd is not ready after %g s: %s", w.timeout_s, w.why);
}
