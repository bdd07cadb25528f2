/* SPDX-License-Identifier: Apache-2.0 */
/* Acts about pages: acknowledged never, early and twice; kept, wanted without end. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/clock.h"
#include "tools/lab/hostile/groups.h"

#define PAGES 4

/* Opens a connection and takes a few pages, which others may hold for now. */
static int pages_open(struct mm_stage *stage, struct mm_raw *raw)
{
	int r = mm_act_open(stage, raw);

	if (r)
		return r;
	r = mm_raw_take_pages(raw, PAGES, MM_RAW_WAIT_NS);
	if (r)
		mm_act_fail(stage, "no pages: %s: %s", strerror(-r), raw->reason);
	return r;
}

/* Acknowledges a batch a hundred times; once is as good. */
static enum mm_act_outcome act_ack_again(struct mm_stage *stage)
{
	enum mm_act_outcome outcome = MM_ACT_FAILED;
	struct mm_raw raw;

	if (pages_open(stage, &raw))
		return mm_act_done(stage, &raw, outcome);
	for (int i = 0; i < 100; i++)
		mm_raw_op(&raw, MM_OP_FDS_ACK, 1, 0, 0, 0);
	outcome = mm_act_look(stage, &raw);
	mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

/* Has no room for a batch, whenever it comes again. */
static enum mm_act_outcome act_ack_full(struct mm_stage *stage)
{
	const struct mm_msg full = { .opcode = MM_OP_FDS_ACK, .result = -EMFILE, .arg = { 1 } };
	const uint64_t deadline_ns = mm_deadline_ns(MM_RAW_WAIT_NS);
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	mm_raw_op(&raw, MM_OP_KV_DECLARE, raw.welcome.page_bytes, 1, PAGES, 0);
	mm_raw_op(&raw, MM_OP_KV_WANT, PAGES, 0, 0, 0);
	for (uint64_t answered = 0; !raw.ended && mm_now_ns() < deadline_ns;) {
		struct timespec nap = mm_timespec(MM_NS_PER_MS);
		struct mm_msg again = full;

		mm_raw_drain(&raw);
		again.arg[0] = raw.batches;
		if (raw.batches == answered) {
			nanosleep(&nap, NULL);
			continue;
		}
		answered = raw.batches;
		mm_raw_drop_fds(&raw);
		mm_raw_push(&raw, &again);
	}
	strcpy(stage->text, raw.reason);
	return mm_act_done(stage, &raw, raw.ended ? MM_ACT_ENDED : MM_ACT_FAILED);
}

/* Takes fds and never acknowledges them, and reads no event. */
static enum mm_act_outcome act_ack_never(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	mm_raw_op(&raw, MM_OP_KV_DECLARE, raw.welcome.page_bytes, 1, 64, 0);
	mm_raw_op(&raw, MM_OP_KV_WANT, 64, 0, 0, 0);
	outcome = mm_act_look(stage, &raw);
	/* The answer lies behind grants that wait for the acknowledgement: no answer is right. */
	if (outcome == MM_ACT_FAILED || outcome == MM_ACT_IGNORED)
		outcome = MM_ACT_CHARGED;
	return mm_act_done(stage, &raw, outcome);
}

/* Wants all and more, one chunk more each time, and gives all back. */
static enum mm_act_outcome act_want_all(struct mm_stage *stage)
{
	const uint64_t until_ns = mm_deadline_ns(stage->flood_ns);
	struct mm_msg event;
	struct mm_raw raw;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	raw.acks = true;
	mm_raw_op(&raw, MM_OP_KV_DECLARE, raw.welcome.page_bytes, 1, 256, 0);
	for (uint64_t n = 1; !raw.ended && mm_now_ns() < until_ns; n = n % 256 + 1) {
		mm_raw_op(&raw, MM_OP_KV_WANT, n, 0, 0, 0);
		while (mm_raw_pop(&raw, &event))
			;
	}
	if (raw.ended)
		return mm_act_done(stage, &raw, mm_act_fail(stage, "ended: %s", raw.reason));
	return mm_act_done(stage, &raw, MM_ACT_CHARGED);
}

/* Closes its connection and lives on, with its pages. */
static enum mm_act_outcome act_keep_pages(struct mm_stage *stage)
{
	const struct timespec nap = mm_timespec(60 * MM_NS_PER_S);
	struct mm_raw raw;

	if (pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	stage->operations += raw.operations;
	close(raw.sock);
	nanosleep(&nap, NULL);
	return mm_act_fail(stage, "it was left alone for a minute");
}

/* Goes without a word, with its pages. */
static enum mm_act_outcome act_leave_pages(struct mm_stage *stage)
{
	struct mm_raw raw;

	if (pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	stage->operations += raw.operations;
	return MM_ACT_CHARGED; /* and ends with its process */
}

/* Releases a chunk twice, the second time when it may be another's. */
static enum mm_act_outcome act_release_twice(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	mm_raw_drop_fds(&raw);
	mm_raw_op(&raw, MM_OP_KV_RELEASE, 0, 0, 0, 0);
	mm_raw_op(&raw, MM_OP_KV_RELEASE, 0, 0, 0, 0);
	outcome = mm_act_look(stage, &raw);
	stage->operations += raw.operations;
	return outcome; /* its other pages go with its process */
}

/* Never reads an event: they pile up until there is no room for them. */
static enum mm_act_outcome act_events_unread(struct mm_stage *stage)
{
	const struct mm_msg ask = { .opcode = MM_OP_TURN_JOIN };
	struct mm_raw raw;
	int r = 0;

	if (mm_act_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (uint32_t i = 0; !r && i < 80000; i++)
		r = mm_raw_push(&raw, &ask);
	if (mm_raw_await_end(&raw, MM_RAW_WAIT_NS))
		return mm_act_done(stage, &raw, mm_act_fail(stage, "80000 events are unread"));
	strcpy(stage->text, raw.reason);
	return mm_act_done(stage, &raw, MM_ACT_ENDED);
}

/* Lists of pieces of chunks that it does not hold, and out of every range. */
static enum mm_act_outcome act_swap_foreign(struct mm_stage *stage)
{
	enum mm_act_outcome outcome = MM_ACT_FAILED;
	struct mm_swap_piece *piece;
	struct mm_msg event;
	struct mm_raw raw;
	int r;

	if (pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	mm_raw_op(&raw, MM_OP_SWAP_OPEN, 16 * raw.welcome.page_bytes, 0, 0, 0);
	r = mm_raw_await(&raw, MM_EV_REPLY, &event, MM_RAW_WAIT_NS);
	if (!r && event.result < 0) {
		mm_raw_bye(&raw);
		return mm_act_done(stage, &raw, mm_act_skip(stage, "mmd gives no swap space"));
	}
	piece = raw.tenant->swap[0];
	for (uint32_t i = 0; i < MM_SWAP_PIECES; i++) {
		uint64_t *word = (uint64_t *)&piece[i];

		for (size_t w = 0; w < sizeof(piece[i]) / sizeof(*word); w++)
			word[w] = mm_random_next(&stage->random) >>
				  mm_random_below(&stage->random, 64);
	}
	if (!r)
		r = mm_raw_op(&raw, MM_OP_SWAP, 0, MM_SWAP_PIECES, 0, 0);
	if (!r)
		r = mm_raw_await(&raw, MM_EV_SWAPPED, &event, MM_RAW_WAIT_NS);
	if (!r)
		outcome = event.result < 0 ? MM_ACT_REFUSED : MM_ACT_FAILED;
	else
		mm_act_fail(stage, "the list: %s", strerror(-r));
	mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

const struct mm_act mm_acts_memory[] = {
	{ .name = "ack-again",
	  .text = "acknowledges one batch a hundred times",
	  .run = act_ack_again,
	  .expected = MM_ACT_IGNORED,
	  .alone = true },
	{ .name = "ack-full",
	  .text = "has no room for a batch, as often as it comes",
	  .run = act_ack_full,
	  .expected = MM_ACT_ENDED,
	  .reason = "protocol",
	  .alone = true,
	  .slow = true },
	{ .name = "ack-never",
	  .text = "never acknowledges a batch",
	  .run = act_ack_never,
	  .expected = MM_ACT_CHARGED,
	  .alone = true,
	  .slow = true },
	{ .name = "want-all",
	  .text = "wants all memory, one chunk more each time",
	  .run = act_want_all,
	  .expected = MM_ACT_CHARGED,
	  .alone = true },
	{ .name = "pages-kept",
	  .text = "closes its connection and lives on with its pages",
	  .run = act_keep_pages,
	  .expected = MM_ACT_KILLED,
	  .alone = true,
	  .slow = true },
	{ .name = "pages-left",
	  .text = "goes without a word, with its pages",
	  .run = act_leave_pages,
	  .expected = MM_ACT_CHARGED,
	  .alone = true },
	{ .name = "release-twice",
	  .text = "releases a chunk twice",
	  .run = act_release_twice,
	  .expected = MM_ACT_ENDED,
	  .reason = "protocol",
	  .alone = true },
	{ .name = "events-unread",
	  .text = "never reads an event",
	  .run = act_events_unread,
	  .expected = MM_ACT_ENDED,
	  .reason = "takes no events",
	  .slow = true },
	{ .name = "swap-foreign",
	  .text = "swaps pieces that are not its own",
	  .run = act_swap_foreign,
	  .features = MM_FEAT_KV_SWAP,
	  .expected = MM_ACT_REFUSED,
	  .alone = true },
	{ 0 },
};
