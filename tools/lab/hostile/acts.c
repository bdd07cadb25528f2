/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all acts, and what acts share. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libclient/base/base.h"
#include "libclient/support/clock.h"
#include "tools/lab/hostile/groups.h"

#define OPEN_NS (30 * MM_NS_PER_S)
#define NAP_NS  (2 * MM_NS_PER_MS)

static const struct mm_act *const act_groups[] = {
	mm_acts_rings, mm_acts_requests, mm_acts_hellos, mm_acts_memory,
	mm_acts_fds,   mm_acts_floods,   mm_acts_loads,  mm_acts_processes,
};

const struct mm_act *mm_act_at(size_t i)
{
	for (size_t g = 0; g < MM_ARRAY_SIZE(act_groups); g++) {
		for (const struct mm_act *act = act_groups[g]; act->name; act++) {
			if (!i--)
				return act;
		}
	}
	return NULL;
}

const struct mm_act *mm_act_find(const char *name)
{
	const struct mm_act *act;

	for (size_t i = 0; (act = mm_act_at(i)); i++) {
		if (!strcmp(act->name, name))
			return act;
	}
	return NULL;
}

bool mm_act_is_listed(const struct mm_act *act, const char *list)
{
	const size_t n = strlen(act->name);

	if (!strcmp(list, "all"))
		return true;
	for (const char *word = list; word; word = strchr(word, ',')) {
		word += *word == ',';
		if (strcspn(word, ",") == n && !strncmp(word, act->name, n))
			return true;
	}
	return false;
}

const char *mm_act_outcome_name(unsigned int outcome)
{
	static const char *const names[] = { "refused", "ended",  "ignored", "charged",
					     "taken",   "killed", "skipped", "failed" };

	for (size_t i = 0; i < MM_ARRAY_SIZE(names); i++) {
		if (outcome & 1u << i)
			return names[i];
	}
	return "none";
}

enum mm_act_outcome mm_act_fail(struct mm_stage *stage, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(stage->text, sizeof(stage->text), format, args);
	va_end(args);
	return MM_ACT_FAILED;
}

enum mm_act_outcome mm_act_skip(struct mm_stage *stage, const char *why)
{
	snprintf(stage->text, sizeof(stage->text), "%s", why);
	return MM_ACT_SKIPPED;
}

/* Return: whether another try may succeed: others have all places, or core is starting. */
static bool open_may_come(int error)
{
	return error == -EUSERS || error == -EDQUOT || error == -ECONNRESET || error == -EAGAIN ||
	       error == -ENODEV;
}

int mm_act_open(struct mm_stage *stage, struct mm_raw *raw)
{
	const uint64_t deadline_ns = mm_deadline_ns(OPEN_NS);
	const struct timespec nap = mm_timespec(NAP_NS);
	int r;

	for (;;) {
		r = mm_raw_open(raw, stage->socket, "hostile", stage->act->features);
		if (!r || !open_may_come(r) || mm_now_ns() > deadline_ns)
			break;
		stage->operations += raw->operations;
		mm_raw_done(raw);
		nanosleep(&nap, NULL);
	}
	if (r)
		mm_act_fail(stage, "not let in: %s%s%s", strerror(-r),
			    raw->welcome.reason[0] ? ": " : "", raw->welcome.reason);
	return r;
}

enum mm_act_outcome mm_act_look(struct mm_stage *stage, struct mm_raw *raw)
{
	int r = mm_raw_ping(raw, MM_RAW_WAIT_NS);

	if (r == 0)
		return MM_ACT_IGNORED;
	if (r != -ECONNRESET)
		return mm_act_fail(stage, "neither an answer nor the end: %s", strerror(-r));
	mm_raw_await_end(raw, 0);
	snprintf(stage->text, sizeof(stage->text), "%s", raw->reason);
	return MM_ACT_ENDED;
}

enum mm_act_outcome mm_act_done(struct mm_stage *stage, struct mm_raw *raw,
				enum mm_act_outcome outcome)
{
	stage->operations += raw->operations;
	mm_raw_done(raw);
	return outcome;
}
