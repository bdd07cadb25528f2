/* SPDX-License-Identifier: Apache-2.0 */
/* Acts that do what is allowed, or is refused, as often as a processor can. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/clock.h"
#include "tools/lab/hostile/groups.h"

#define AT_ONCE 100

/* Connects and goes, a hundred at a time. */
static enum mm_act_outcome act_flood_connects(struct mm_stage *stage)
{
	const uint64_t until_ns = mm_deadline_ns(stage->flood_ns);
	static struct mm_raw raw[AT_ONCE];

	while (mm_now_ns() < until_ns) {
		size_t n = 0;

		while (n < AT_ONCE && !mm_raw_connect(&raw[n], stage->socket))
			n++;
		for (size_t i = 0; i < n; i++)
			mm_act_done(stage, &raw[i], MM_ACT_IGNORED);
	}
	return MM_ACT_IGNORED;
}

/* A part of a flood on a connection that stays. Return: 0; negative errno ends the flood. */
typedef int flood_part(struct mm_stage *stage, struct mm_raw *raw);

/* Repeats a part on one connection until the time is over; then it has to be served as before. */
static enum mm_act_outcome flood_run(struct mm_stage *stage, flood_part *begin, flood_part *part)
{
	const uint64_t until_ns = mm_deadline_ns(stage->flood_ns);
	enum mm_act_outcome outcome;
	struct mm_raw raw;
	int r;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	raw.acks = true;
	r = begin ? begin(stage, &raw) : 0;
	while (!r && mm_now_ns() < until_ns)
		r = part(stage, &raw);
	outcome = mm_act_look(stage, &raw);
	mm_raw_drop_fds(&raw);
	mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

static int part_bell(struct mm_stage *stage, struct mm_raw *raw)
{
	(void)stage;
	mm_raw_bell(raw);
	return 0;
}

/* Rings the doorbell and nothing else. */
static enum mm_act_outcome act_flood_bells(struct mm_stage *stage)
{
	return flood_run(stage, NULL, part_bell);
}

static int part_requests(struct mm_stage *stage, struct mm_raw *raw)
{
	struct mm_msg event;
	int r = 0;

	for (size_t i = 0; !r && i < MM_SQ_SLOTS; i++)
		r = mm_raw_push(raw, &stage->act->msg);
	while (mm_raw_pop(raw, &event))
		;
	return r;
}

/* Fills the ring with its request as fast as mmd empties it, and reads what comes. */
static enum mm_act_outcome act_flood_requests(struct mm_stage *stage)
{
	return flood_run(stage, NULL, part_requests);
}

static int wants_begin(struct mm_stage *stage, struct mm_raw *raw)
{
	(void)stage;
	return mm_raw_op(raw, MM_OP_KV_DECLARE, raw->welcome.page_bytes, 1, 64, 0);
}

static int part_wants(struct mm_stage *stage, struct mm_raw *raw)
{
	struct mm_msg event;
	int r = mm_raw_op(raw, MM_OP_KV_WANT, stage->act->number, 0, 0, 0);

	if (!r)
		r = mm_raw_op(raw, MM_OP_KV_WANT, 0, 0, 0, 0);
	while (!r && mm_raw_pop(raw, &event)) {
		if (event.opcode != MM_EV_KV_GRANT)
			continue;
		mm_raw_drop_fds(raw);
		r = mm_raw_op(raw, MM_OP_KV_RELEASE, event.arg[0], 0, 0, 0);
	}
	return r;
}

/* Wants a chunk, does not, wants it again: the market is asked each time. */
static enum mm_act_outcome act_flood_wants(struct mm_stage *stage)
{
	return flood_run(stage, wants_begin, part_wants);
}

/* Hellos that are refused, one after the other. */
static enum mm_act_outcome act_flood_refused(struct mm_stage *stage)
{
	const uint64_t until_ns = mm_deadline_ns(stage->flood_ns);

	while (mm_now_ns() < until_ns) {
		struct mm_raw raw;
		int r = mm_raw_connect(&raw, stage->socket);

		if (!r)
			r = mm_raw_send(&raw, "not a hello", 11);
		if (!r)
			r = mm_raw_welcome(&raw);
		mm_act_done(stage, &raw, MM_ACT_REFUSED);
		if (r == 0)
			return mm_act_fail(stage, "junk was welcomed");
	}
	return MM_ACT_REFUSED;
}

/* Joins and leaves in order, one after the other. */
static enum mm_act_outcome act_flood_joins(struct mm_stage *stage)
{
	const uint64_t until_ns = mm_deadline_ns(stage->flood_ns);

	while (mm_now_ns() < until_ns) {
		struct mm_raw raw;

		if (mm_act_open(stage, &raw))
			return mm_act_done(stage, &raw, MM_ACT_FAILED);
		mm_raw_bye(&raw);
		mm_act_done(stage, &raw, MM_ACT_IGNORED);
	}
	return MM_ACT_IGNORED;
}

/* As many places as it gets, and keeps them until there are no more. */
static enum mm_act_outcome act_places(struct mm_stage *stage)
{
	static struct mm_raw raw[MM_SQ_SLOTS];
	enum mm_act_outcome outcome = MM_ACT_FAILED;
	size_t n = 0;
	int r = 0;

	while (n < MM_ARRAY_SIZE(raw)) {
		r = mm_raw_open(&raw[n], stage->socket, "hostile", 0);
		if (r)
			break;
		n++;
	}
	if (r == -EDQUOT || r == -EUSERS)
		outcome = MM_ACT_REFUSED;
	else
		mm_act_fail(stage, "%zu places, then: %s", n, strerror(-r));
	if (n < MM_ARRAY_SIZE(raw))
		mm_act_done(stage, &raw[n], outcome);
	for (size_t i = 0; i < n; i++) {
		mm_raw_bye(&raw[i]);
		mm_act_done(stage, &raw[i], outcome);
	}
	return outcome;
}

const struct mm_act mm_acts_floods[] = {
	{ .name = "flood-connects",
	  .text = "connects and goes, a hundred at a time",
	  .run = act_flood_connects,
	  .expected = MM_ACT_IGNORED },
	{ .name = "flood-bells",
	  .text = "rings the doorbell without end",
	  .run = act_flood_bells,
	  .expected = MM_ACT_IGNORED },
	{ .name = "flood-nothing",
	  .text = "requests that do nothing, as fast as they are taken",
	  .run = act_flood_requests,
	  .msg = { .opcode = MM_OP_NOP },
	  .expected = MM_ACT_IGNORED },
	{ .name = "flood-answers",
	  .text = "requests that are answered, as fast as they are taken",
	  .run = act_flood_requests,
	  .msg = { .opcode = MM_OP_TURN_JOIN },
	  .expected = MM_ACT_IGNORED },
	{ .name = "flood-refusals",
	  .text = "requests that are refused, as fast as they are taken",
	  .run = act_flood_requests,
	  .msg = { .opcode = MM_OP_KV_DECLARE, .arg = { 1, 1, 1, 0 } },
	  .expected = MM_ACT_IGNORED },
	{ .name = "flood-unloads",
	  .text = "gives back a model that it has not, again and again",
	  .run = act_flood_requests,
	  .msg = { .opcode = MM_OP_UNLOAD },
	  .features = MM_FEAT_UNLOAD,
	  .expected = MM_ACT_IGNORED },
	{ .name = "flood-wants",
	  .text = "wants a chunk and does not want it, without end",
	  .run = act_flood_wants,
	  .number = 1,
	  .expected = MM_ACT_IGNORED,
	  .alone = true },
	{ .name = "flood-grants",
	  .text = "takes chunks and gives them back, without end",
	  .run = act_flood_wants,
	  .number = 64,
	  .expected = MM_ACT_IGNORED,
	  .alone = true },
	{ .name = "flood-hellos",
	  .text = "hellos that are refused, without end",
	  .run = act_flood_refused,
	  .expected = MM_ACT_REFUSED },
	{ .name = "flood-joins",
	  .text = "joins and leaves, without end",
	  .run = act_flood_joins,
	  .expected = MM_ACT_IGNORED },
	{ .name = "places",
	  .text = "takes all places that it gets",
	  .run = act_places,
	  .expected = MM_ACT_REFUSED },
	{ 0 },
};
