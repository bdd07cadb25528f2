/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steer - `mmctl revoke`, `drain`, `activate`, `pin` and `unpin`: what one tenant is to do now
 *
 * The request is made once. Then status is looked at until it is done, unless --no-wait was given.
 * mmd goes on with it whether or not somebody waits.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libclient/support/clock.h"
#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

#define POLL_NS (100 * MM_NS_PER_MS)

struct steering {
	const struct mmctl *ctl;
	enum mmctl_command_index command;
	json_t *answer; /* of mmd to the request */
	json_t *tenant; /* as status shows it last; NULL: it is gone */
	double waited_s;
};

static void steering_done(struct steering *s)
{
	json_decref(s->answer);
	json_decref(s->tenant);
}

static int steering_begin(struct steering *s, const char *method, json_t *params)
{
	if (!params)
		return mm_opt_refuse(&mmctl_program, s->command, "TENANT: not a text");
	return mmctl_request(s->ctl, method, params, &s->answer);
}

/* Looks how the tenant is now. */
static int tenant_look(struct steering *s)
{
	const uint64_t id = mm_json_u64(s->answer, "tenant");
	struct mmctl all = *s->ctl;
	mm_cleanup(mm_json_done) json_t *status = NULL;
	json_t *one;
	size_t i;
	int r;

	all.device = -1;
	all.uuid = NULL;
	r = mmctl_request(&all, "status", NULL, &status);
	if (r != MM_EXIT_DONE)
		return r;
	json_decref(s->tenant);
	s->tenant = NULL;
	json_array_foreach(json_object_get(status, "tenants"), i, one)
		if (mm_json_u64(one, "tenant") == id &&
		    strcmp(mm_json_text(one, "connection"), "open") == 0)
			s->tenant = json_incref(one);
	return MM_EXIT_DONE;
}

static bool steering_goes_on(const struct steering *s)
{
	if (!s->tenant)
		return false;
	if (s->command == MMCTL_REVOKE)
		return mm_json_u64(s->tenant, "kv_chunks_revoking") != 0;
	if (s->command == MMCTL_DRAIN)
		return mm_json_flag(s->tenant, "drains") && mm_json_u64(s->tenant, "pages");
	return mm_json_flag(s->tenant, "model_activates") ||
	       (mm_json_flag(s->tenant, "model_pinned") && mm_json_u64(s->tenant, "alpha"));
}

static int steering_wait(struct steering *s)
{
	const struct timespec pause = { .tv_nsec = POLL_NS };
	const uint64_t begun_ns = mm_now_ns();
	int r = tenant_look(s);

	while (r == MM_EXIT_DONE && steering_goes_on(s)) {
		nanosleep(&pause, NULL);
		r = tenant_look(s);
	}
	s->waited_s = (double)(mm_now_ns() - begun_ns) / MM_NS_PER_S;
	return r;
}

static int steering_print_json(const struct steering *s, const char *outcome)
{
	mm_json_put_text(s->answer, "outcome", outcome);
	mm_json_put_real(s->answer, "waited_s", s->waited_s);
	return mmctl_print_json(s->answer);
}

/* The last line of a command that has waited: @done, or that the tenant has gone. */
static void steering_print_end(const struct steering *s, const char *done)
{
	printf("%s %s after %.1f s\n", mm_json_text(s->answer, "name"),
	       s->tenant ? done : "has gone", s->waited_s);
}

/* ---- revoke ---- */

int mmctl_revoke_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	mm_cleanup(steering_done) struct steering s = { .ctl = ctl, .command = MMCTL_REVOKE };
	char size[MM_SIZE_TEXT_BYTES];
	uint64_t bytes;
	int r = steering_begin(&s, "revoke",
			       json_pack("{s:s,s:b}", "name", argv[0], "dry_run", o->dry_run));

	(void)argc;
	if (r != MM_EXIT_DONE)
		return r;
	bytes = mm_json_u64(s.answer, "bytes");
	if (!ctl->json && !bytes)
		printf("%s: has nothing beyond its share\n", mm_json_text(s.answer, "name"));
	else if (!ctl->json)
		printf("%s: %s of KV cache beyond its share %s\n", mm_json_text(s.answer, "name"),
		       mm_size_print(bytes, size), o->dry_run ? "would be revoked" : "revoked");
	if (!bytes || o->dry_run || o->no_wait)
		return ctl->json ? steering_print_json(&s, bytes ? "begun" : "nothing") : r;
	r = steering_wait(&s);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return steering_print_json(&s, s.tenant ? "done" : "gone");
	steering_print_end(&s, "has given it");
	return MM_EXIT_DONE;
}

/* ---- drain ---- */

static void drain_print(const struct steering *s)
{
	const char *name = mm_json_text(s->answer, "name");

	if (!mm_json_flag(s->answer, "drains"))
		printf("%s: is granted memory again\n", name);
	else
		printf("%s: is granted nothing more; %s\n", name,
		       mm_json_flag(s->answer, "told")
			       ? "it was told to leave"
			       : "it cannot be told to leave (an engine of before)");
}

int mmctl_drain_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	mm_cleanup(steering_done) struct steering s = { .ctl = ctl, .command = MMCTL_DRAIN };
	json_t *params = json_pack("{s:s,s:b}", "name", argv[0], "cancel", o->cancel);
	int r;

	(void)argc;
	if (o->drain_within_s != MMCTL_UNSET && params)
		mm_json_put_u64(params, "within_s", o->drain_within_s);
	r = steering_begin(&s, "drain", params);
	if (r != MM_EXIT_DONE)
		return r;
	if (!ctl->json)
		drain_print(&s);
	if (o->cancel || o->no_wait)
		return ctl->json ? steering_print_json(&s, o->cancel ? "cancelled" : "begun") : r;
	r = steering_wait(&s);
	if (r != MM_EXIT_DONE)
		return r;
	if (s.tenant && !mm_json_flag(s.tenant, "drains"))
		return mmctl_error(MM_EXIT_FAILED, "%s: somebody has cancelled it",
				   mm_json_text(s.answer, "name"));
	if (ctl->json)
		return steering_print_json(&s, s.tenant ? "empty" : "gone");
	steering_print_end(&s, "holds no memory of the device any more");
	return MM_EXIT_DONE;
}

/* ---- layers at home ---- */

/* Reports whether the layers are at home, after the wait. */
static int home_report(const struct steering *s)
{
	const char *name = mm_json_text(s->answer, "name");
	const uint64_t away = mm_json_u64(s->tenant, "alpha");
	const uint64_t layers = mm_json_u64(s->tenant, "layers");
	const bool pin = s->command == MMCTL_PIN;

	if (!s->tenant)
		return mmctl_error(MM_EXIT_FAILED, "%s: has gone", name);
	if (s->ctl->json)
		(void)steering_print_json(s, away ? "failed" : "done");
	if (away)
		return mmctl_error(MM_EXIT_FAILED,
				   "%s: %" PRIu64 " of %" PRIu64 " layers are still away after "
				   "%.1f s; mmctl plan why %s says what it waits for",
				   name, away, layers, s->waited_s, name);
	if (!s->ctl->json)
		printf("%s: all of its %" PRIu64 " layers are at home, after %.1f s%s\n", name,
		       layers, s->waited_s, pin ? "; they stay there until mmctl unpin" : "");
	return MM_EXIT_DONE;
}

static int home_run(struct steering *s, const char *method, const char *name)
{
	char size[MM_SIZE_TEXT_BYTES];
	int r = steering_begin(s, method, json_pack("{s:s}", "name", name));

	if (r != MM_EXIT_DONE)
		return r;
	if (s->ctl->options->no_wait && s->ctl->json)
		return steering_print_json(s, "begun");
	if (!s->ctl->json && mm_json_u64(s->answer, "bytes"))
		printf("%s: its layers come home, which takes %s\n",
		       mm_json_text(s->answer, "name"),
		       mm_size_print(mm_json_u64(s->answer, "bytes"), size));
	if (s->ctl->options->no_wait)
		return MM_EXIT_DONE;
	r = steering_wait(s);
	return r == MM_EXIT_DONE ? home_report(s) : r;
}

int mmctl_activate_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(steering_done) struct steering s = { .ctl = ctl, .command = MMCTL_ACTIVATE };

	(void)argc;
	return home_run(&s, "activate", argv[0]);
}

int mmctl_pin_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(steering_done) struct steering s = { .ctl = ctl, .command = MMCTL_PIN };

	(void)argc;
	return home_run(&s, "pin", argv[0]);
}

int mmctl_unpin_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(steering_done) struct steering s = { .ctl = ctl, .command = MMCTL_UNPIN };
	int r = steering_begin(&s, "unpin", json_pack("{s:s}", "name", argv[0]));

	(void)argc;
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return steering_print_json(&s, "done");
	printf("%s: mmd decides about its layers again\n", mm_json_text(s.answer, "name"));
	return MM_EXIT_DONE;
}
