/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of a group, each on a core of its own and beside another tenant: chunks, demands, denials
 * and reclaims of all or none.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "mmd/core/group.h"
#include "tests/sim/world.h"

#define RANKS_MAX   4
#define CHUNKS      24
#define CHUNK_PAGES 2
#define PAGES       60

/* A rank's process, which does what libclient does, and the tenant beside it. */
struct rank {
	struct w_proc *p, *beside;
	bool mapped[CHUNKS];   /* reported as mapped */
	bool usable[CHUNKS];   /* told to be usable, and not released since */
	bool drop_due[CHUNKS]; /* told to be released */
	bool free_due[CHUNKS]; /* the engine has decided to release it, on all ranks */
	uint32_t drops, left, ready;
};

static struct world world[RANKS_MAX];
static struct rank rank[RANKS_MAX];
static struct mm_group group;
static uint32_t size;
static uint64_t rng;
static jmp_buf killed;
static uint32_t points_left; /* until the group's process is killed; 0: it is not */
static uint64_t deaths;

static uint32_t below(uint32_t n)
{
	rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)((rng >> 33) % n);
}

/* ---- what the shell does ---- */

/* Its process may be killed before and behind all that it has done outside of the group. */
static void point_pass(void)
{
	if (!points_left || --points_left)
		return;
	deaths++;
	longjmp(killed, 1);
}

static void event_take(uint32_t k, const struct mm_msg *msg)
{
	uint32_t chunk = (uint32_t)msg->arg[0];

	if (msg->opcode == MM_EV_GROUP_READY) {
		assert_int_equal(msg->arg[0], size);
		rank[k].ready++;
	} else if (msg->opcode == MM_EV_GROUP_USABLE) {
		assert_true(rank[k].mapped[chunk] && (deaths || !rank[k].usable[chunk]));
		rank[k].usable[chunk] = true;
	} else if (msg->opcode == MM_EV_GROUP_DROP) {
		/* No chunk that the engine knows of is taken away from under it. */
		assert_false(rank[k].usable[chunk] || (rank[k].drop_due[chunk] && !deaths));
		rank[k].drops += !rank[k].drop_due[chunk];
		rank[k].drop_due[chunk] = true;
	} else {
		assert_int_equal(msg->opcode, MM_EV_GROUP_LEFT);
		rank[k].left++;
	}
}

static void event_send(void *context, uint32_t k, const struct mm_msg *msg)
{
	(void)context;
	point_pass();
	event_take(k, msg);
	point_pass();
}

static int rank_begin(void *context, uint32_t k)
{
	(void)context;
	return mm_core_rank_begin(world[k].core, rank[k].p->tenant);
}

static void rank_order_give(void *context, uint32_t k, uint64_t now_ns,
			    const struct mm_core_rank *order)
{
	(void)context;
	point_pass();
	mm_core_rank_order(world[k].core, now_ns, rank[k].p->tenant, order);
	w_drain(&world[k]);
	point_pass();
}

static const struct mm_group_calls calls = {
	.send = event_send,
	.begin = rank_begin,
	.order = rank_order_give,
};

/* Another process goes on with it. */
static void settle(void)
{
	if (setjmp(killed))
		mm_group_resume(&group, &calls, NULL);
	for (uint32_t i = 0; mm_group_settle(&group, world[0].now_ns); i++)
		assert_true(i < 100);
}

/* A report that was not handled to its end is handled again. */
static void mapped_report(uint32_t k, uint32_t chunk)
{
	if (setjmp(killed))
		mm_group_resume(&group, &calls, NULL);
	assert_int_equal(mm_group_on_mapped(&group, k, chunk), 0);
}

static struct mm_core_kv kv_of(uint32_t k)
{
	struct mm_core_kv kv;

	assert_true(mm_core_kv(world[k].core, rank[k].p->tenant, &kv));
	return kv;
}

static bool core_holds(uint32_t k, uint32_t chunk)
{
	return kv_of(k).map[chunk / 64] >> chunk % 64 & 1;
}

/* ---- what the processes do ---- */

static void chunk_release(uint32_t k, uint32_t chunk)
{
	struct rank *r = &rank[k];

	r->mapped[chunk] = r->usable[chunk] = r->drop_due[chunk] = r->free_due[chunk] = false;
	w_kv_release_chunk(&world[k], r->p, chunk);
	settle();
}

/* Reports what was granted since, and releases what is to be released. */
static void rank_work(uint32_t k)
{
	struct rank *r = &rank[k];

	for (uint32_t i = 0; i < CHUNKS; i++) {
		if (!r->p->chunk[i])
			continue;
		if (!r->mapped[i]) {
			r->mapped[i] = true;
			mapped_report(k, i);
			settle();
		}
		if (r->drop_due[i] || r->free_due[i])
			chunk_release(k, i);
	}
}

static void engine_frees(uint32_t chunk)
{
	for (uint32_t k = 0; k < size; k++) {
		assert_true(rank[k].mapped[chunk]);
		rank[k].free_due[chunk] = true;
	}
}

/* Returns a chunk that the engine can release, beginning with @first; CHUNKS: none. */
static uint32_t chunk_in_use(uint32_t first)
{
	for (uint32_t i = 0; i < CHUNKS; i++) {
		uint32_t chunk = (first + i) % CHUNKS;
		bool used = true;

		for (uint32_t k = 0; k < size; k++)
			used = used && rank[k].usable[chunk] && !rank[k].free_due[chunk];
		if (used)
			return chunk;
	}
	return CHUNKS;
}

static uint32_t in_use_count(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < CHUNKS; i++)
		n += chunk_in_use(i) == i;
	return n;
}

/* All ranks do all that they can, until nothing changes any more. */
static void run_all(void)
{
	for (uint32_t i = 0; i < 60; i++)
		for (uint32_t k = 0; k < size; k++) {
			w_tick(&world[k], 50 * MM_NS_PER_MS);
			w_run(&world[k]);
			settle();
			rank_work(k);
		}
}

/* ---- laws ---- */

static void laws_check(void)
{
	uint32_t odd = 0;

	for (uint32_t i = 0; i < CHUNKS; i++) {
		uint32_t held = 0, leaving = 0, usable = 0, frees = 0, mapped = 0;

		for (uint32_t k = 0; k < size; k++) {
			held += core_holds(k, i);
			leaving += rank[k].drop_due[i];
			usable += rank[k].usable[i];
			frees += rank[k].free_due[i];
			mapped += rank[k].mapped[i];
		}
		/* Whoever believes in a chunk can rely on all, until the engine gives it up. */
		if (usable && !frees && usable == size)
			assert_int_equal(mapped, size);
		if (held && held < size && !leaving && !frees && !usable)
			odd++;
	}
	assert_true(odd <= 1);
	for (uint32_t k = 0; k < size; k++)
		mm_core_check(world[k].core);
}

/* ---- beginning and end ---- */

static void ranks_begin(uint32_t n, uint64_t seed, const uint32_t *pages)
{
	size = n;
	rng = seed;
	memset(rank, 0, sizeof(rank));
	memset(&group, 0, sizeof(group));
	mm_group_init(&group, n, &calls, NULL);
	for (uint32_t k = 0; k < n; k++) {
		struct mm_core_opts opts = { .pages = pages[k],
					     .page_bytes = 4096,
					     .policy = MM_POLICY_REMAP,
					     .tag = (uint8_t)k,
					     .reclaim_ns = 20 * MM_NS_PER_MS };

		w_init(&world[k], &opts, seed * 100 + k);
		w_account_add(&world[k], 0, 0, &(struct mm_core_quota){ .max_pages = pages[k] });
		w_xfer_up(&world[k]);
		w_run(&world[k]);
		rank[k].p = w_join(&world[k], 0, MM_FEAT_KNOWN);
		rank[k].beside = w_join(&world[k], 1, MM_FEAT_KNOWN);
		assert_non_null(rank[k].p);
		assert_non_null(rank[k].beside);
	}
}

static void ranks_join(void)
{
	for (uint32_t k = 0; k < size; k++)
		assert_int_equal(mm_group_add(&group, k, world[k].core, rank[k].p->tenant), 0);
	for (uint32_t k = 0; k < size; k++) {
		assert_int_equal(rank[k].ready, 1);
		w_kv_declare(&world[k], rank[k].p, CHUNK_PAGES, 1, CHUNKS, 0);
		w_kv_declare(&world[k], rank[k].beside, 1, 1, PAGES, 0);
	}
}

static void all_begin(uint32_t n, uint64_t seed)
{
	const uint32_t pages[RANKS_MAX] = { PAGES, PAGES, PAGES, PAGES };

	ranks_begin(n, seed, pages);
	ranks_join();
	settle();
}

static int teardown(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < size; k++)
		w_done(&world[k]);
	size = points_left = 0;
	return 0;
}

/* ---- tests ---- */

static void one_demand_is_that_of_all(void **state)
{
	(void)state;
	all_begin(3, 1);
	w_kv_want(&world[1], rank[1].p, 5);
	run_all();
	for (uint32_t k = 0; k < size; k++) {
		assert_int_equal(kv_of(k).held, 5);
		assert_int_equal(kv_of(k).wanted, 5);
		for (uint32_t i = 0; i < 5; i++)
			assert_true(rank[k].usable[i]);
	}
	/* A chunk that one rank has released is offered again when no rank holds it. */
	chunk_release(0, 2);
	w_kv_want(&world[0], rank[0].p, 5);
	run_all();
	assert_false(core_holds(0, 2));
	assert_true(core_holds(0, 5));
	chunk_release(1, 2);
	chunk_release(2, 2);
	run_all();
	assert_true(core_holds(1, 5) && core_holds(2, 5));
	assert_false(core_holds(0, 2) || core_holds(1, 2));
	w_kv_want(&world[2], rank[2].p, 6);
	run_all();
	assert_true(core_holds(0, 2) && core_holds(1, 2) && core_holds(2, 2));
	assert_int_equal(in_use_count(), 6);
	laws_check();
}

static void a_device_that_is_full_limits_all(void **state)
{
	const uint32_t pages[RANKS_MAX] = { PAGES, 15 };

	(void)state;
	ranks_begin(2, 2, pages);
	ranks_join();
	w_kv_want(&world[0], rank[0].p, 20);
	run_all();
	/* 15 pages are 7 chunks; the other rank has at most one that is of no use. */
	assert_int_equal(kv_of(1).held, 7);
	assert_in_range(kv_of(0).held, 7, 8);
	assert_int_equal(in_use_count(), 7);
	assert_int_equal(rank[1].p->denied, -ENOSPC);
	assert_int_equal(rank[0].p->denied, -ENOSPC);
	/* More would be of no use to it: nobody gives layers for that. */
	assert_int_equal(group.rank[0].order.most, 8);
	/* One that asks again is answered again. */
	rank[0].p->denied = rank[1].p->denied = 0;
	w_tick(&world[1], 2 * MM_NS_PER_S);
	w_tick(&world[0], 2 * MM_NS_PER_S);
	w_kv_want(&world[0], rank[0].p, 20);
	run_all();
	assert_int_equal(rank[0].p->denied, -ENOSPC);
	laws_check();
}

static void a_reclaim_is_of_all(void **state)
{
	(void)state;
	all_begin(2, 3);
	w_kv_want(&world[0], rank[0].p, 20);
	run_all();
	assert_int_equal(in_use_count(), 20);
	/* Its account on one device may have less from now on. */
	w_quota_set(&world[1], 0, &(struct mm_core_quota){ .max_pages = 30 });
	w_run(&world[1]);
	settle();
	assert_true(kv_of(1).reclaim > 0);
	assert_int_equal(kv_of(0).reclaim, kv_of(1).reclaim);
	for (uint32_t left = kv_of(0).reclaim; left; left--)
		engine_frees(chunk_in_use(0));
	rank_work(0);
	assert_int_equal(kv_of(0).reclaim, 0);
	assert_true(kv_of(1).reclaim > 0);
	rank_work(1);
	assert_int_equal(kv_of(1).reclaim, 0);
	assert_int_equal(kv_of(0).wanted, kv_of(0).held);
	assert_int_equal(kv_of(1).wanted, kv_of(0).held);
	laws_check();
}

static void what_one_cannot_map_all_give_back(void **state)
{
	(void)state;
	all_begin(2, 4);
	w_kv_want(&world[0], rank[0].p, 1);
	w_run(&world[0]);
	w_run(&world[1]);
	settle();
	w_run(&world[0]);
	w_run(&world[1]);
	assert_true(rank[0].p->chunk[0] && rank[1].p->chunk[0]);
	rank[0].mapped[0] = true;
	assert_int_equal(mm_group_on_mapped(&group, 0, 0), 0);
	settle();
	/* The device of rank 1 does not map it. */
	w_kv_release_chunk(&world[1], rank[1].p, 0);
	settle();
	assert_true(rank[0].drop_due[0]);
	assert_int_equal(rank[0].drops, 1);
	run_all();
	assert_int_equal(kv_of(0).held, 0);
	assert_int_equal(kv_of(1).held, 0);
	assert_int_equal(mm_group_on_mapped(&group, 0, 0), MM_E_PROTOCOL);
	assert_int_equal(mm_group_on_mapped(&group, 0, UINT64_MAX), MM_E_PROTOCOL);
	assert_int_equal(mm_group_on_mapped(&group, 0, CHUNKS), MM_E_PROTOCOL);
}

static void who_may_join(void **state)
{
	const uint32_t pages[RANKS_MAX] = { PAGES, PAGES, PAGES };

	(void)state;
	ranks_begin(3, 5, pages);
	assert_int_equal(mm_group_add(&group, 3, world[0].core, rank[0].p->tenant), -EINVAL);
	w_kv_declare(&world[0], rank[0].p, 1, 1, 4, 0);
	assert_int_equal(mm_group_add(&group, 0, world[0].core, rank[0].p->tenant), -EBUSY);
	w_turn_join(&world[1], rank[1].p, MM_TURN_DRAIN, 0, 0);
	assert_int_equal(mm_group_add(&group, 1, world[1].core, rank[1].p->tenant), -EBUSY);
	assert_int_equal(mm_group_add(&group, 2, world[2].core, rank[2].p->tenant), 0);
	assert_int_equal(mm_group_add(&group, 2, world[2].core, rank[2].p->tenant), -EEXIST);
	/* Nothing is granted before all are there. */
	w_kv_declare(&world[2], rank[2].p, 1, 1, 4, 0);
	w_kv_want(&world[2], rank[2].p, 4);
	w_run(&world[2]);
	settle();
	assert_int_equal(kv_of(2).held, 0);
	/* A rank that leaves an incomplete group leaves its place. */
	mm_group_remove(&group, world[2].now_ns, 2);
	assert_int_equal(group.joined, 0);
	assert_false(group.over);
}

static void nothing_is_granted_after_one_has_left(void **state)
{
	(void)state;
	all_begin(2, 6);
	w_kv_want(&world[0], rank[0].p, 4);
	run_all();
	mm_group_remove(&group, world[0].now_ns, 0);
	assert_int_equal(rank[1].left, 1);
	assert_int_equal(rank[0].left, 0);
	w_kv_want(&world[1], rank[1].p, 20);
	w_run(&world[1]);
	settle();
	assert_int_equal(kv_of(1).held, 4);
	assert_int_equal(mm_group_add(&group, 0, world[0].core, rank[0].p->tenant), -EEXIST);
	mm_group_remove(&group, world[1].now_ns, 1);
	assert_int_equal(group.joined, 0);
}

/* ---- histories ---- */

static void beside_act(struct world *w, struct w_proc *p)
{
	if (p->reclaim || below(3) == 0)
		w_kv_release(w, p);
	else if (below(2))
		w_kv_want(w, p, below(PAGES));
	w_stats(w, p, 1);
}

/* The engine, which is the same on all ranks, answers reclaims and sets demands. */
static void engine_act(void)
{
	uint32_t owed = 0, pending = 0;

	for (uint32_t k = 0; k < size; k++) {
		owed = MM_MAX(owed, kv_of(k).reclaim);
		for (uint32_t i = 0; i < CHUNKS; i++)
			pending += rank[k].free_due[i];
	}
	if ((owed && !pending) || below(4) == 0) {
		uint32_t chunk = chunk_in_use(below(CHUNKS));

		if (chunk < CHUNKS)
			engine_frees(chunk);
	} else if (below(3) == 0) {
		uint32_t k = below(size);

		w_kv_want(&world[k], rank[k].p, below(CHUNKS + 1));
	}
}

static void act(void)
{
	uint32_t k = below(size);

	switch (below(8)) {
	case 0:
		beside_act(&world[k], rank[k].beside);
		break;
	case 1:
		engine_act();
		break;
	case 2:
	case 3:
		w_proc_event(&world[k], rank[k].p);
		w_proc_event(&world[k], rank[k].beside);
		break;
	case 4:
		w_xfer_work(&world[k], 4, 0);
		break;
	case 5:
		w_tick(&world[k], below(20) * MM_NS_PER_MS);
		break;
	case 6:
		w_stats(&world[k], rank[k].p, 1);
		break;
	default:
		rank_work(k);
	}
	settle();
}

/* @dies: one in so many acts has a point at which the process is killed; 0: none. */
static void history(uint64_t seed, uint32_t dies, uint64_t *ret_drops, uint64_t *ret_grants)
{
	all_begin(2 + (uint32_t)(seed % 3), seed);
	for (uint32_t i = 0; i < 1500; i++) {
		if (dies && !points_left && below(dies) == 0)
			points_left = 1 + below(8);
		act();
		laws_check();
	}
	/* Once nobody else wants memory, all get what they want. */
	for (uint32_t k = 0; k < size; k++) {
		w_kv_want(&world[k], rank[k].beside, 0);
		while (w_kv_release(&world[k], rank[k].beside))
			w_run(&world[k]);
	}
	run_all();
	w_kv_want(&world[0], rank[0].p, CHUNKS);
	run_all();
	laws_check();
	assert_int_equal(in_use_count(), CHUNKS);
	for (uint32_t k = 0; k < size; k++) {
		assert_int_equal(kv_of(k).held, CHUNKS);
		*ret_drops += rank[k].drops;
		*ret_grants += rank[k].p->grants;
		w_kv_verify(&world[k], rank[k].p);
	}
	teardown(NULL);
}

static void histories(void **state)
{
	uint64_t drops = 0, grants = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++)
		history(seed, 0, &drops, &grants);
	/* They happened. */
	assert_true(drops > 50);
	assert_true(grants > 5000);
}

/* The laws hold while process after process is killed, and all get what they want in the end. */
static void histories_with_deaths(void **state)
{
	uint64_t drops = 0, grants = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++)
		history(seed, 4, &drops, &grants);
	assert_true(drops > 50);
	assert_true(grants > 5000);
	assert_true(deaths > 1000);
}

/* A process was killed while a rank joined: it joins again. */
static void a_rank_that_was_joining(void **state)
{
	const uint32_t pages[RANKS_MAX] = { PAGES, PAGES, PAGES };

	(void)state;
	ranks_begin(3, 7, pages);
	for (uint32_t k = 0; k < size; k++)
		assert_int_equal(mm_group_add(&group, k, world[k].core, rank[k].p->tenant), 0);
	assert_true(group.complete);
	group.rank[1].core = NULL; /* the book does not have it yet */
	mm_group_resume(&group, &calls, NULL);
	assert_int_equal(group.joined, 2);
	assert_false(group.complete || group.over);
	assert_int_equal(mm_group_add(&group, 1, world[1].core, rank[1].p->tenant), 0);
	assert_true(group.complete);
	assert_int_equal(group.joined, 3);
	mm_group_remove(&group, world[2].now_ns, 2);
	assert_true(group.over);
	mm_group_resume(&group, &calls, NULL);
	assert_true(group.over);
	assert_int_equal(mm_group_add(&group, 2, world[2].core, rank[2].p->tenant), -EEXIST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(one_demand_is_that_of_all, teardown),
		cmocka_unit_test_teardown(a_device_that_is_full_limits_all, teardown),
		cmocka_unit_test_teardown(a_reclaim_is_of_all, teardown),
		cmocka_unit_test_teardown(what_one_cannot_map_all_give_back, teardown),
		cmocka_unit_test_teardown(who_may_join, teardown),
		cmocka_unit_test_teardown(nothing_is_granted_after_one_has_left, teardown),
		cmocka_unit_test_teardown(histories, teardown),
		cmocka_unit_test_teardown(histories_with_deaths, teardown),
		cmocka_unit_test_teardown(a_rank_that_was_joining, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
