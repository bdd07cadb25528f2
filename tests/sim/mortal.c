/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/mortal.h"

#include <stdlib.h>
#include <string.h>

#include "libclient/base/random.h"
#include "mmd/core/image.h"
#include "mmd/core/market/market.h"
#include "mmd/journal/journal.h"

#define JOURNAL_BYTES (1u << 20)

struct w_mortal {
	struct w_odds odds;
	uint64_t rng;
	struct mm_core *twin;
	struct mm_core *dead; /* the last one, to which pointers may still be held */
	void *memory;
	struct mm_journal journal;
	uint8_t *image, *scratch;
	size_t room, bytes;
	uint64_t seq, performed;             /* events and actions so far */
	uint64_t image_seq, image_performed; /* those that the image has */
	struct w_mortality happened;
};

static bool mortal_draws(struct w_mortal *m, uint64_t odds)
{
	return odds && mm_random_next(&m->rng) % odds == 0;
}

/* ---- what outlives the core ---- */

static void mortal_image(struct world *w, struct w_mortal *m)
{
	mm_assert(mm_core_image_save(w->core, m->image, m->room, &m->bytes) == 0);
	m->image_seq = m->seq;
	m->image_performed = m->performed;
	mm_journal_empty(&m->journal);
	m->happened.images++;
}

/* The core is as its twin is, to the last byte. */
static void mortal_compare(const struct world *w, struct w_mortal *m)
{
	size_t bytes, twins;

	mm_assert(mm_core_image_save(w->core, m->scratch, m->room, &bytes) == 0);
	mm_assert(mm_core_image_save(m->twin, m->scratch + m->room, m->room, &twins) == 0);
	mm_assert(bytes == twins);
	mm_assert(memcmp(m->scratch, m->scratch + m->room, bytes) == 0);
}

static void mortal_die(struct world *w, struct w_mortal *m)
{
	struct mm_journal_replay replay = { .seq = m->image_seq,
					    .taken = m->image_performed,
					    .performed = m->performed };
	char err[200];

	mm_core_destroy(m->dead);
	m->dead = w->core;
	w->core = NULL;
	if (mm_core_image_load(&w->opts, m->image, m->bytes, &w->core, err, sizeof(err)) != 0)
		mm_panic(err, __FILE__, __LINE__);
	w->core->market->policy = m->dead->market->policy; /* as it is watched (market.c) */
	mm_assert(mm_journal_open(m->memory, JOURNAL_BYTES, &m->journal) == 0);
	mm_assert(mm_journal_replay(&m->journal, w->core, &replay) == 0);
	mm_assert(replay.seq == m->seq);
	m->happened.replayed += m->seq - m->image_seq;
	m->happened.dropped += m->performed - m->image_performed;
	if (mm_queue_is_empty(&w->core->queue))
		mortal_compare(w, m);
}

/* ---- life ---- */

void w_mortal_begin(struct world *w, const struct w_odds *odds, uint64_t seed)
{
	struct w_mortal *m = calloc(1, sizeof(*m));

	mm_assert(m);
	m->odds = *odds;
	m->rng = seed;
	m->room = mm_core_image_room(w->core);
	m->image = malloc(m->room);
	m->scratch = malloc(2 * m->room);
	m->memory = malloc(JOURNAL_BYTES);
	mm_assert(m->image && m->scratch && m->memory);
	mm_assert(mm_core_create(&w->opts, &m->twin) == 0);
	mm_journal_create(m->memory, JOURNAL_BYTES, &m->journal);
	w->mortal = m;
	mortal_image(w, m);
}

void w_mortal_end(struct world *w, struct w_mortality *ret)
{
	struct w_mortal *m = w->mortal;

	*ret = (struct w_mortality){ 0 };
	if (!m)
		return;
	if (mm_queue_is_empty(&w->core->queue))
		mortal_compare(w, m);
	*ret = m->happened;
	mm_core_destroy(m->dead);
	mm_core_destroy(m->twin);
	free(m->image);
	free(m->scratch);
	free(m->memory);
	free(m);
	w->mortal = NULL;
}

struct mm_event_result w_event(struct world *w, struct mm_event event)
{
	struct w_mortal *m = w->mortal;
	struct mm_event_result result, twins;
	struct mm_journal_record record;

	event.now_ns = w->now_ns;
	if (!m) {
		mm_core_event(w->core, &event, &result);
		return result;
	}
	if (mm_queue_is_empty(&w->core->queue) &&
	    (mortal_draws(m, m->odds.image) || mm_journal_used(&m->journal) > JOURNAL_BYTES / 2))
		mortal_image(w, m);
	record = (struct mm_journal_record){ .seq = m->seq,
					     .performed = m->performed,
					     .within = !mm_queue_is_empty(&w->core->queue) };
	mm_assert(mm_journal_append(&m->journal, &record, &event) == 0);
	m->seq++;
	mm_core_event(w->core, &event, &result);
	mm_core_event(m->twin, &event, &twins);
	mm_assert(result.r == twins.r && result.tenant == twins.tenant && result.max == twins.max);
	if (mortal_draws(m, m->odds.event)) {
		m->happened.events++;
		mortal_die(w, m);
	}
	return result;
}

static void actions_must_equal(const struct mm_action *a, const struct mm_action *b)
{
	mm_assert(a->kind == b->kind && a->tenant == b->tenant);
	mm_assert(a->page == b->page && a->entry == b->entry && a->word == b->word);
	mm_assert(memcmp(&a->msg, &b->msg, sizeof(a->msg)) == 0);
	mm_assert(a->reason == b->reason);
}

/* An action counts as performed when it is returned: nothing of it is done before. */
bool w_next(struct world *w, struct mm_action *ret_action)
{
	struct w_mortal *m = w->mortal;
	struct mm_action twins;
	bool any;

	if (!m)
		return mm_core_next(w->core, ret_action);
	any = mm_core_next(w->core, ret_action);
	if (mortal_draws(m, m->odds.action)) {
		m->happened.actions++;
		mortal_die(w, m);
		mm_assert(mm_core_next(w->core, ret_action) == any);
	}
	mm_assert(mm_core_next(m->twin, &twins) == any);
	if (any) {
		actions_must_equal(ret_action, &twins);
		m->performed++;
	}
	return any;
}

void w_turns_set(struct world *w, bool beside, uint64_t quantum_ns)
{
	mm_c_turns_set(w->core, beside, quantum_ns);
	if (!w->mortal)
		return;
	mm_c_turns_set(w->mortal->twin, beside, quantum_ns);
	mortal_image(w, w->mortal);
}

int w_plan_set(struct world *w, const struct w_proc *p, int32_t alpha, uint32_t slots)
{
	return w_event(w, (struct mm_event){ .kind = MM_EVENT_PLAN_SET,
					     .tenant = p->tenant,
					     .plan = { alpha, slots } })
		.r;
}

int w_steer(struct world *w, const struct w_proc *p, enum mm_steer how, uint64_t until_ns)
{
	return w_event(w, (struct mm_event){ .kind = MM_EVENT_STEER,
					     .tenant = p->tenant,
					     .steer = { how, until_ns } })
		.r;
}
