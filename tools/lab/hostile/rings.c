/* SPDX-License-Identifier: Apache-2.0 */
/* Acts on the shared regions: cursors, entries that change, gates and statistics that lie. */
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tools/lab/hostile/groups.h"

#define SCRIBBLES 8
#define CHANGES   64

/* Publishes a tail that is so far from the one before. */
static enum mm_act_outcome act_tail(struct mm_stage *stage)
{
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	if (mm_raw_ping(&raw, MM_RAW_WAIT_NS))
		return mm_act_done(stage, &raw, mm_act_fail(stage, "no answer"));
	__atomic_store_n(&raw.tenant->sq_tail.value, raw.tail + (uint32_t)stage->act->number,
			 __ATOMIC_RELEASE);
	mm_raw_bell(&raw);
	if (mm_raw_await_end(&raw, MM_RAW_WAIT_NS))
		return mm_act_done(stage, &raw, mm_act_fail(stage, "mmd took the cursor"));
	strcpy(stage->text, raw.reason);
	return mm_act_done(stage, &raw, MM_ACT_ENDED);
}

/* Publishes a head that is so far from the one before; an event has to come after it. */
static enum mm_act_outcome act_head(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (int i = 0; i < 3; i++)
		if (mm_raw_ping(&raw, MM_RAW_WAIT_NS))
			return mm_act_done(stage, &raw, mm_act_fail(stage, "no answer"));
	__atomic_store_n(&raw.tenant->cq_head.value, raw.head + (uint32_t)stage->act->number,
			 __ATOMIC_RELEASE);
	outcome = mm_act_look(stage, &raw);
	return mm_act_done(stage, &raw, outcome);
}

/* Publishes entries, and changes them while mmd may be reading. */
static enum mm_act_outcome act_change_entries(struct mm_stage *stage)
{
	const struct mm_msg nop = { .opcode = MM_OP_NOP };
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (int i = 0; i < CHANGES; i++) {
		uint64_t *slot = raw.tenant->sq[raw.tail % MM_SQ_SLOTS];

		mm_raw_put(&raw, &nop);
		mm_raw_bell(&raw);
		for (size_t w = 0; w < MM_MSG_WORDS; w++)
			__atomic_store_n(&slot[w], mm_random_next(&stage->random),
					 __ATOMIC_RELAXED);
		for (size_t w = 0; w < MM_MSG_WORDS; w++)
			__atomic_store_n(&slot[w], 0, __ATOMIC_RELAXED);
	}
	outcome = mm_act_look(stage, &raw);
	return mm_act_done(stage, &raw, outcome);
}

/* Fills the ring with entries of which not even the writer knows what they say. */
static enum mm_act_outcome act_entries_random(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_msg msg;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (size_t i = 0; i < MM_SQ_SLOTS; i++) {
		uint64_t words[MM_MSG_WORDS];

		for (size_t w = 0; w < MM_MSG_WORDS; w++)
			words[w] = mm_random_next(&stage->random);
		memcpy(&msg, words, sizeof(msg));
		msg.opcode %= MM_OP_COUNT + 1;
		mm_raw_put(&raw, &msg);
	}
	mm_raw_bell(&raw);
	outcome = mm_act_look(stage, &raw);
	return mm_act_done(stage, &raw, outcome);
}

static void words_scribble(struct mm_stage *stage, void *at, size_t bytes)
{
	uint64_t *word = at;

	for (size_t i = 0; i < bytes / sizeof(*word); i++)
		__atomic_store_n(&word[i], mm_random_next(&stage->random), __ATOMIC_RELAXED);
}

/* Writes over everything that it may write. */
static enum mm_act_outcome act_scribble(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	if (mm_raw_op(&raw, MM_OP_KV_DECLARE, raw.welcome.page_bytes, 1, 16, 0) == 0)
		mm_raw_op(&raw, MM_OP_KV_WANT, 1, 0, 0, 0);
	for (int i = 0; i < SCRIBBLES; i++) {
		words_scribble(stage, raw.tenant, sizeof(*raw.tenant));
		words_scribble(stage, raw.gates, sizeof(*raw.gates));
		mm_raw_bell(&raw);
	}
	outcome = mm_act_look(stage, &raw);
	return mm_act_done(stage, &raw, outcome);
}

/* Gates that say READY, DONE, EMPTY and ABORT at once, and a step that never ends. */
static enum mm_act_outcome act_gates(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (int i = 0; i < SCRIBBLES; i++) {
		words_scribble(stage, raw.gates, sizeof(*raw.gates));
		raw.gates->step_seq = 2 * (uint64_t)i + 1;
		mm_raw_bell(&raw);
	}
	outcome = mm_act_look(stage, &raw);
	return mm_act_done(stage, &raw, outcome);
}

/* Statistics of all ones, or without any order; requests that were served before they came. */
static enum mm_act_outcome act_statistics(struct mm_stage *stage)
{
	enum mm_act_outcome outcome = MM_ACT_IGNORED;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	if (mm_raw_op(&raw, MM_OP_KV_DECLARE, raw.welcome.page_bytes, 1, 16, 0))
		outcome = MM_ACT_ENDED;
	for (int i = 0; i < SCRIBBLES && outcome == MM_ACT_IGNORED; i++) {
		if (stage->act->number)
			memset(&raw.tenant->stats, (int)stage->act->number,
			       sizeof(raw.tenant->stats));
		else
			words_scribble(stage, &raw.tenant->stats, sizeof(raw.tenant->stats));
		stage->operations++;
		outcome = mm_act_look(stage, &raw);
	}
	return mm_act_done(stage, &raw, outcome);
}

/* Writes into its own view of mmd's region, where the kernel lets it: that of mmd's own user. */
static enum mm_act_outcome act_writes_mmds(struct mm_stage *stage)
{
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	stage->operations++;
	if (mm_raw_protect_mmds(&raw))
		return mm_act_done(stage, &raw, MM_ACT_REFUSED);
	return mm_act_done(stage, &raw, mm_act_fail(stage, "mmd's region became writable"));
}

#define CURSOR  "impossible ring cursor"
#define FEATURE (MM_FEAT_DEMAND | MM_FEAT_RECLAIM)

const struct mm_act mm_acts_rings[] = {
	{ .name = "tail-ahead",
	  .text = "publishes one request more than the ring has slots",
	  .run = act_tail,
	  .number = MM_SQ_SLOTS + 1,
	  .expected = MM_ACT_ENDED,
	  .reason = CURSOR },
	{ .name = "tail-far",
	  .text = "publishes two thousand million requests",
	  .run = act_tail,
	  .number = 0x80000000,
	  .expected = MM_ACT_ENDED,
	  .reason = CURSOR },
	{ .name = "tail-back",
	  .text = "takes the last request back",
	  .run = act_tail,
	  .number = 0xffffffff,
	  .expected = MM_ACT_ENDED,
	  .reason = CURSOR },
	{ .name = "head-ahead",
	  .text = "has read an event that was never written",
	  .run = act_head,
	  .number = 1,
	  .expected = MM_ACT_ENDED,
	  .reason = CURSOR },
	{ .name = "head-far",
	  .text = "has read two thousand million events",
	  .run = act_head,
	  .number = 0x80000000,
	  .expected = MM_ACT_ENDED,
	  .reason = CURSOR },
	{ .name = "head-back",
	  .text = "has not read the last three events after all",
	  .run = act_head,
	  .number = 0xfffffffd,
	  .expected = MM_ACT_IGNORED },
	{ .name = "head-far-back",
	  .text = "has not read more events than the ring holds",
	  .run = act_head,
	  .number = (uint32_t)-2000,
	  .expected = MM_ACT_ENDED,
	  .reason = CURSOR },
	{ .name = "entries-changed",
	  .text = "changes requests after they were published",
	  .run = act_change_entries,
	  .expected = MM_ACT_ENDED | MM_ACT_IGNORED },
	{ .name = "entries-random",
	  .text = "publishes a ring full of random bytes",
	  .run = act_entries_random,
	  .expected = MM_ACT_ENDED },
	{ .name = "scribble",
	  .text = "writes random bytes over all that it may write",
	  .run = act_scribble,
	  .expected = MM_ACT_ENDED | MM_ACT_IGNORED },
	{ .name = "gates-lie",
	  .text = "gates in all states at once, and a step without an end",
	  .run = act_gates,
	  .expected = MM_ACT_IGNORED },
	{ .name = "statistics-random",
	  .text = "statistics without sense",
	  .run = act_statistics,
	  .features = FEATURE,
	  .expected = MM_ACT_IGNORED },
	{ .name = "statistics-huge",
	  .text = "statistics of all ones",
	  .run = act_statistics,
	  .features = FEATURE,
	  .number = 0xff,
	  .expected = MM_ACT_IGNORED },
	{ .name = "region-of-mmd",
	  .text = "makes its mapping of mmd's region writable",
	  .run = act_writes_mmds,
	  .expected = MM_ACT_REFUSED },
	{ 0 },
};
