/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories in which tenants stream cold blocks: windows come, move and go, entries come and go
 * between steps, limits rise and fall, and plans change, while xfer is killed between any two acts.
 */
#include <errno.h>

#include "mmd/core/book/book.h"
#include "tests/sim/history.h"
#include "tests/sim/mortal.h"

#define COOL_TENANTS 4
#define COOL_CHUNKS  48
#define COOL_ROUNDS  4000 /* until a version is acknowledged, once the faults have stopped */

static struct mm_core_opts cool_opts(struct world *w)
{
	struct mm_core_opts opts = h_opts(w);

	opts.pages = 200 + w_below(w, W_PAGES - 200);
	opts.swap_max_bytes = 4096 * opts.page_bytes;
	opts.time_scale = 0;
	return opts;
}

static void cool_model(struct world *w, struct w_proc *p)
{
	uint32_t layers = 4 + w_below(w, 9), pages[W_GROUPS];

	pages[0] = w_below(w, 3);
	for (uint32_t i = 1; i <= layers; i++)
		pages[i] = 1 + w_below(w, 2);
	w_model_of(w, p, 1 + w_below(w, 4), pages, layers);
}

static void cool_spawn(struct world *w)
{
	struct w_proc *p;
	uint64_t features;
	uint32_t n = 0, share;

	W_FOREACH(w, q)
		n += q->used;
	if (n >= COOL_TENANTS)
		return;
	features = w_below(w, 4) ? MM_FEAT_KNOWN : MM_FEAT_KNOWN & ~MM_FEAT_PARTIAL;
	p = w_join(w, w_below(w, W_ACCOUNTS), features);
	if (!p)
		return;
	h_count(H_JOINS, 1);
	cool_model(w, p);
	share = 8 + w_below(w, 24);
	w_kv_declare(w, p, 1 + w_below(w, 2), 1, COOL_CHUNKS, share);
	w_swap_open(w, p, 64 * w->opts.page_bytes);
	w_kv_want(w, p, share);
	p->hostile = !w_below(w, 10);
}

/* ---- what a tenant does with cold blocks ---- */

static void cool_open(struct world *w, struct w_proc *p)
{
	const uint64_t unit = MM_COLD_UNIT_BYTES * (1 + w_below(w, 24));
	const uint32_t entries = 1 + w_below(w, W_COLD);
	const uint32_t floor = w_below(w, entries + 1);

	w_cold_open(w, p, unit, entries, floor);
}

/* Requests chunks in a row that it holds; or none. */
static void cool_window(struct world *w, struct w_proc *p)
{
	uint32_t chunks = w_below(w, 12), first = w_below(w, p->chunks_max), n = 0;

	if (p->cold.asked && !p->hostile)
		return;
	/* As often as not from where the one before begins, so that entries stay in place. */
	if (p->cold.chunks && w_below(w, 2))
		first = p->cold.first;
	while (n < chunks && first + n < p->chunks_max && p->chunk[first + n])
		n++;
	if (!n && w_below(w, 3))
		return;
	h_count(H_COLD_WINDOWS, 1);
	w_cold_window(w, p, first, n);
}

/* All that is live moves up, as far as the limit lets it. */
static void cool_exchange(struct w_proc *p)
{
	const uint32_t entries = MM_MIN(p->cold.entries_max, W_COLD);

	for (uint32_t e = 0; e < entries; e++)
		w_cold_set(p, e, e >= entries / 2);
}

static void cool_entries(struct world *w, struct w_proc *p)
{
	if (!p->cold.entries_max || p->machine.open)
		return;
	w_cold_change(p);
	if (!w_below(w, 3)) {
		cool_exchange(p);
		return;
	}
	for (uint32_t n = w_below(w, 4); n; n--) {
		const uint32_t entry = w_below(w, MM_MIN(p->cold.entries_max, W_COLD));

		w_cold_set(p, entry, w_below(w, 3));
	}
}

static void cool_limit(struct world *w, const struct w_proc *p, int32_t limit)
{
	w_event(w, (struct mm_event){
			   .kind = MM_EVENT_COLD_SET, .tenant = p->tenant, .cold_limit = limit });
	w_drain(w);
}

/*
 * A limit falls below what is live, and its deadline passes while the tenant is stopped or slow, as
 * often as not within a step. Sometimes it rises again before the tenant has looked.
 */
static void cool_late(struct world *w, struct w_proc *p)
{
	const uint32_t limit = w_below(w, 3), parts = 4, looks = w_below(w, 24);

	if (!p->connected || !p->cold.classes || p->cold.limit <= limit)
		return;
	cool_limit(w, p, (int32_t)limit);
	p->frozen = w_below(w, 2);
	for (uint32_t i = 0; i <= parts && p->connected; i++) {
		w_tick(w, w->opts.reclaim_timeout_ns / parts);
		w_xfer_work(w, 4, 0);
	}
	p->frozen = false;
	for (uint32_t i = 0; i < looks && p->connected; i++) {
		w_proc_event(w, p);
		w_xfer_work(w, 4, 0);
	}
	if (p->connected && w_below(w, 2))
		cool_limit(w, p, (int32_t)p->cold.entries_max);
}

/*
 * Releases a chunk of the window that the plan before had, or else of the one in force: it stays
 * held, since xfer may still write to it.
 */
static void cool_release_window(struct world *w, struct w_proc *p)
{
	const struct mm_c_tenant *t = &w->core->tenant[MM_TENANT_INDEX(p->tenant)];
	const bool before = t->cold.was_chunks;
	const uint32_t first = before ? t->cold.was_first : t->plan.cold.first;

	if (!before && !t->plan.cold.chunks)
		return;
	h_count(H_COLD_RELEASES, 1);
	p->releases++;
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_KV_RELEASE, .arg = { first } });
	mm_assert(!p->connected || mm_c_kv_holds(t, first));
}

/* The operator takes what is beyond the share: also chunks of the window, which ends for it. */
static void cool_revoke(struct world *w, struct w_proc *p)
{
	h_count(H_COLD_REVOKES, !w_steer(w, p, MM_STEER_REVOKE, 0) && p->cold.chunks);
	w_drain(w);
}

/* It writes what it likes into the region, and its requests have numbers of any kind. */
static void cool_hostile(struct world *w, struct w_proc *p)
{
	struct mm_msg msg = { .opcode = w_below(w, 2) ? MM_OP_COLD_OPEN : MM_OP_COLD_WINDOW };
	const uint32_t bit = w_below(w, 34), shift = w_below(w, 64);

	p->cold.version = w_random(w) << shift;
	for (uint32_t e = 0; e < W_COLD; e++)
		p->cold.live[e] = w_below(w, 2);
	if (p->n_groups > 1)
		p->gate[w_below(w, p->n_groups - 1)] ^= UINT64_C(1) << bit;
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t bits = w_below(w, 64);

		msg.arg[i] = w_random(w) >> bits;
	}
	h_count(H_HOSTILE_MESSAGES, 1);
	w_send(w, p, &msg);
}

static void cool_act(struct world *w, struct w_proc *p)
{
	if (!p->connected || p->frozen || !p->kv_declared)
		return;
	if (p->hostile && !w_below(w, 4)) {
		cool_hostile(w, p);
		return;
	}
	if (!p->model_ready)
		return;
	if (!p->cold.classes) {
		if (!p->cold.entries_max)
			cool_open(w, p);
		return;
	}
	if (!p->cold.chunks && !p->cold.asked && !w_below(w, 2)) {
		cool_window(w, p);
		return;
	}
	switch (w_below(w, 12)) {
	case 0:
		cool_window(w, p);
		break;
	case 1:
		if (w_below(w, 4))
			cool_limit(w, p, (int32_t)w_below(w, W_COLD + 1) - 1);
		else
			cool_revoke(w, p);
		break;
	case 2:
		cool_release_window(w, p);
		break;
	case 3:
		w_kv_want(w, p, w_below(w, p->chunks_max));
		break;
	case 4:
		w_kv_release(w, p);
		break;
	default:
		cool_entries(w, p);
		break;
	}
	while (p->connected && p->reclaim && w_kv_release(w, p))
		;
}

/* ---- everything else ---- */

static void cool_move(struct world *w, struct w_proc *p)
{
	switch (w_below(w, 6)) {
	case 0:
		if (!w->xfer_up && !w_below(w, 3))
			w_xfer_up(w);
		for (uint32_t n = w_below(w, 12); n && w_xfer_work(w, 4, 0); n--)
			;
		break;
	case 1:
		for (uint32_t n = w_below(w, 50); n && w_proc_event(w, p); n--)
			;
		break;
	case 2:
		w_tick(w, w_below(w, MM_NS_PER_MS));
		break;
	default:
		for (uint32_t n = w_below(w, 24); n && w_proc_step(w, p); n--)
			for (uint32_t looks = w_below(w, 4); looks; looks--)
				w_xfer_stream(w, p);
		w_xfer_stream(w, p);
		break;
	}
}

static void cool_fault(struct world *w, struct w_proc *p)
{
	switch (w_below(w, 8)) {
	case 0:
		w_xfer_kill(w, !w_below(w, 4));
		break;
	case 1:
		if (p->alive)
			h_kill(w, p);
		break;
	case 2:
		if (p->connected && p->model_ready && p->machine.open)
			h_resync(w, p);
		break;
	case 3:
		w_unload(w, p);
		break;
	case 4:
		if (p->connected && !p->unloading && !p->model_asked)
			cool_model(w, p);
		break;
	case 5:
		cool_late(w, p);
		break;
	default:
		p->frozen = !p->frozen && !w_below(w, 4);
		break;
	}
}

static void cool_event(struct world *w, struct w_proc *p)
{
	const uint32_t random = w_below(w, 100), slots = w_below(w, MM_SLOTS_MAX + 1);

	w->now_ns += w_below(w, 100000);
	if (random < 64)
		cool_move(w, p);
	else if (random < 88)
		cool_act(w, p);
	else if (random < 94 && p->used)
		w_plan_set(w, p, (int32_t)w_below(w, MM_MAX(p->n_groups, 1)) - 1, slots);
	else if (random < 97)
		cool_fault(w, p);
	else if (random < 99)
		cool_spawn(w);
	w_drain(w);
}

/* ---- afterwards ---- */

static bool cool_waits(const struct w_proc *p)
{
	return p->connected && p->model_ready && p->cold.chunks && !p->cold.asked &&
	       p->cold.acked < p->cold.version;
}

/* Whatever became of it: what is streamed, and is stepped, is acknowledged. */
static void cool_assert_acked(struct world *w)
{
	uint32_t rounds = 0;
	bool waits = true;

	W_FOREACH(w, p)
		p->cold.version += p->cold.classes != 0;
	for (; waits && rounds < COOL_ROUNDS; rounds++) {
		waits = false;
		h_round(w, 8 * MM_NS_PER_MS);
		W_FOREACH(w, p)
			waits |= cool_waits(p);
	}
	mm_assert(!waits);
}

void h_cool(struct world *w, uint64_t seed, uint64_t steps)
{
	struct mm_core_opts opts;

	w->rng = seed * 113 + 11;
	opts = cool_opts(w);
	h_begin(w, &opts, seed);
	w_xfer_up(w);
	for (uint32_t i = 0; i < COOL_TENANTS - 1; i++)
		cool_spawn(w);
	for (uint32_t i = 0; i < 8; i++)
		h_round(w, MM_NS_PER_MS);
	for (uint64_t i = 0; i < 3 * steps; i++)
		cool_event(w, &w->proc[w_below(w, COOL_TENANTS)]);
	h_calm(w);
	cool_assert_acked(w);
	h_assert_moving(w);
}
