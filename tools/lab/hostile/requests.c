/* SPDX-License-Identifier: Apache-2.0 */
/* Acts that are one wrong request: each field of each request, foreign ids, wrong moments. */
#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tools/lab/hostile/groups.h"

#define TRIES 24

/* Sends the act's request and waits for the answer to it, or for the end. */
static enum mm_act_outcome act_request(struct mm_stage *stage)
{
	struct mm_msg ask = stage->act->msg, event;
	enum mm_act_outcome outcome = MM_ACT_IGNORED;
	struct mm_raw raw;
	int r;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	ask.user_data = 42;
	r = mm_raw_push(&raw, &ask);
	if (!r)
		r = mm_raw_op(&raw, MM_OP_TURN_JOIN, 0, 0, 0, 0);
	/* The second request's answer comes behind the first one's, if that has one. */
	while (!r) {
		r = mm_raw_next(&raw, &event, MM_RAW_WAIT_NS);
		if (r || event.opcode != MM_EV_REPLY)
			continue;
		if (event.user_data != ask.user_data)
			break;
		outcome = event.result < 0 ? MM_ACT_REFUSED : MM_ACT_CHARGED;
	}
	if (r && mm_raw_await_end(&raw, MM_RAW_WAIT_NS))
		return mm_act_done(stage, &raw, mm_act_fail(stage, "no answer and no end"));
	if (r) {
		strcpy(stage->text, raw.reason);
		return mm_act_done(stage, &raw, MM_ACT_ENDED);
	}
	mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

/* Requests whose fields are each right, or one of the values that hurt most. */
static enum mm_act_outcome act_any_field(struct mm_stage *stage)
{
	static const uint64_t worst[] = { 0,       1,          2,         255,        1 << 14,
					  1 << 16, UINT32_MAX, INT64_MAX, UINT64_MAX, 1ull << 40 };
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (int i = 0; i < TRIES; i++) {
		struct mm_msg msg = {
			.opcode = (uint16_t)mm_random_below(&stage->random, MM_OP_COUNT),
			.epoch = mm_random_below(&stage->random, 8) ? 0 : 1,
		};

		/* Only the first fields count for most, so that some requests get through. */
		for (uint64_t a = 0; a < mm_random_below(&stage->random, 5); a++)
			msg.arg[a] = worst[mm_random_below(&stage->random, MM_ARRAY_SIZE(worst))];
		if (mm_raw_push(&raw, &msg))
			break;
	}
	outcome = mm_act_look(stage, &raw);
	if (outcome == MM_ACT_IGNORED)
		mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

/* BYE, and behind it more, in one go. */
static enum mm_act_outcome act_behind_bye(struct mm_stage *stage)
{
	const struct mm_msg bye = { .opcode = MM_OP_BYE };
	struct mm_msg event;
	struct mm_raw raw;
	int r;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	mm_raw_put(&raw, &bye);
	mm_raw_put(&raw, &stage->act->msg);
	mm_raw_put(&raw, &bye);
	mm_raw_bell(&raw);
	r = mm_raw_await(&raw, MM_EV_REPLY, &event, MM_RAW_WAIT_NS);
	if (r == -ETIMEDOUT)
		return mm_act_done(stage, &raw, mm_act_fail(stage, "BYE was not answered"));
	return mm_act_done(stage, &raw, r ? MM_ACT_ENDED : MM_ACT_IGNORED);
}

#define FORBIDDEN "a request that the protocol forbids"
#define ALL       (MM_FEAT_KNOWN & ~(MM_FEAT_KV_FIXED | MM_FEAT_KV_SWAP))
#define PAGE      (1u << 14)
#define ROW(word, says, ...) \
	.name = word, .text = says, .run = act_request, .features = ALL, .msg = { __VA_ARGS__ }
#define ENDS(why)  .expected = MM_ACT_ENDED, .reason = (why)
#define IS_REFUSED .expected = MM_ACT_REFUSED

const struct mm_act mm_acts_requests[] = {
	{ ROW("opcode-unknown", "an opcode that there is not", .opcode = MM_OP_COUNT),
	  ENDS("unknown opcode") },
	{ ROW("opcode-highest", "the highest opcode", .opcode = UINT16_MAX),
	  ENDS("unknown opcode") },
	{ ROW("flags", "a flag", .opcode = MM_OP_NOP, .flags = 0x8000), ENDS("flags") },
	{ ROW("reserved", "a reserved field", .opcode = MM_OP_NOP, .reserved = 1),
	  ENDS("reserved") },
	{ ROW("result", "a result in a request", .opcode = MM_OP_KV_WANT, .result = -1),
	  ENDS("result in a request") },
	{ ROW("epoch", "an epoch where none belongs", .opcode = MM_OP_NOP, .epoch = 1),
	  ENDS("epoch") },
	{ ROW("argument", "an argument that the request has not", .opcode = MM_OP_BYE,
	      .arg = { 0, 0, 0, 1 }),
	  ENDS("unused argument") },
	{ .name = "any-field",
	  .text = "all requests with the worst values in their fields",
	  .run = act_any_field,
	  .features = ALL,
	  .expected = MM_ACT_ENDED | MM_ACT_IGNORED,
	  .alone = true },
	{ ROW("want-first", "wants chunks before it has declared them", .opcode = MM_OP_KV_WANT,
	      .arg = { 1 }),
	  ENDS(FORBIDDEN) },
	{ ROW("release-foreign", "releases a chunk that it does not hold",
	      .opcode = MM_OP_KV_RELEASE),
	  ENDS(FORBIDDEN) },
	{ ROW("declare-nothing", "chunks of no bytes", .opcode = MM_OP_KV_DECLARE,
	      .arg = { 0, 1, 1, 0 }),
	  IS_REFUSED },
	{ ROW("declare-wraps", "chunks whose bytes wrap", .opcode = MM_OP_KV_DECLARE,
	      .arg = { 0 - (uint64_t)PAGE, 4, 4, 0 }),
	  IS_REFUSED },
	{ ROW("declare-huge", "more chunks than the table has entries", .opcode = MM_OP_KV_DECLARE,
	      .arg = { PAGE, 1, 1 << 30, 0 }),
	  IS_REFUSED },
	{ ROW("declare-share", "a share above all that it can hold", .opcode = MM_OP_KV_DECLARE,
	      .arg = { PAGE, 1, 2, 3 }),
	  IS_REFUSED },
	{ ROW("ack-of-nothing", "acknowledges a batch that was never sent", .opcode = MM_OP_FDS_ACK,
	      .arg = { 77 }),
	  ENDS(FORBIDDEN) },
	{ ROW("ack-early", "acknowledges the batch to come", .opcode = MM_OP_FDS_ACK, .arg = { 1 }),
	  ENDS(FORBIDDEN) },
	{ ROW("ack-positive", "acknowledges with a result that is none", .opcode = MM_OP_FDS_ACK,
	      .result = 5, .arg = { 1 }),
	  ENDS(FORBIDDEN) },
	{ ROW("parked-unasked", "has parked for no change", .opcode = MM_OP_PARKED, .epoch = 5),
	  ENDS(FORBIDDEN) },
	{ ROW("committed-unasked", "has committed no change", .opcode = MM_OP_COMMITTED,
	      .epoch = 5),
	  ENDS(FORBIDDEN) },
	{ ROW("mapped-unasked", "has mapped layers of no change", .opcode = MM_OP_MAPPED,
	      .epoch = 5, .arg = { 1 }),
	  ENDS(FORBIDDEN) },
	{ ROW("resync-first", "a step broke off before there was a model", .opcode = MM_OP_RESYNC),
	  ENDS(FORBIDDEN) },
	{ ROW("hold-first", "holds the layers of no model", .opcode = MM_OP_HOLD, .arg = { 1 }),
	  IS_REFUSED },
	{ ROW("unload-first", "gives back a model that it has not", .opcode = MM_OP_UNLOAD),
	  IS_REFUSED },
	{ ROW("memory-outside", "memory behind the end of the table", .opcode = MM_OP_MEM_ALLOC,
	      .arg = { MM_MAP_ENTRIES, 1 }),
	  ENDS(FORBIDDEN) },
	{ ROW("memory-of-the-model", "memory in entries of the model", .opcode = MM_OP_MEM_ALLOC,
	      .arg = { 3, 1 }),
	  ENDS(FORBIDDEN) },
	{ ROW("memory-wraps", "memory whose end wraps", .opcode = MM_OP_MEM_ALLOC,
	      .arg = { MM_MAP_KV_BASE, UINT64_MAX }),
	  ENDS(FORBIDDEN) },
	{ ROW("memory-foreign", "frees memory that it has not", .opcode = MM_OP_MEM_FREE,
	      .arg = { MM_MAP_ENTRIES - 8, 4 }),
	  ENDS(FORBIDDEN) },
	{ ROW("swap-first", "a list of pieces without a swap space", .opcode = MM_OP_SWAP,
	      .arg = { 0, 1, 0 }),
	  ENDS(FORBIDDEN) },
	{ ROW("swap-lot", "a list in a lot that there is not", .opcode = MM_OP_SWAP,
	      .arg = { MM_SWAP_LOTS, 1, 0 }),
	  ENDS(FORBIDDEN) },
	{ ROW("swap-huge", "more swap space than there is memory", .opcode = MM_OP_SWAP_OPEN,
	      .arg = { UINT64_MAX - 4095 }),
	  .expected = MM_ACT_REFUSED | MM_ACT_ENDED },
	{ ROW("group-size", "a group of no ranks", .opcode = MM_OP_GROUP_JOIN,
	      .arg = { 'g', 0, 0, 0 }),
	  .expected = MM_ACT_REFUSED | MM_ACT_ENDED },
	{ ROW("group-rank", "a rank behind the last", .opcode = MM_OP_GROUP_JOIN,
	      .arg = { 'g', 0, 0, 9 | 2ull << 32 }),
	  .expected = MM_ACT_REFUSED | MM_ACT_ENDED },
	{ ROW("group-foreign", "a chunk of a group that it is not in", .opcode = MM_OP_GROUP_MAPPED,
	      .arg = { 7 }),
	  ENDS(FORBIDDEN) },
	{ ROW("turn-foreign", "gives back a turn that it never had", .opcode = MM_OP_TURN_DONE,
	      .arg = { UINT64_MAX }),
	  ENDS(FORBIDDEN) },
	{ ROW("turn-mode", "a way of turns that there is not", .opcode = MM_OP_TURN_JOIN,
	      .arg = { MM_TURN_MODES }),
	  ENDS(FORBIDDEN) },
	{ ROW("turn-priority", "the highest priority there is", .opcode = MM_OP_TURN_JOIN,
	      .arg = { 1, 0, UINT64_MAX }),
	  ENDS(FORBIDDEN) },
	{ .name = "behind-bye",
	  .text = "goes on talking behind its BYE",
	  .run = act_behind_bye,
	  .features = ALL,
	  .msg = { .opcode = MM_OP_KV_WANT, .arg = { 1 } },
	  .expected = MM_ACT_IGNORED },
	{ 0 },
};
