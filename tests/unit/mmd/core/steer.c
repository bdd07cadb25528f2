/* SPDX-License-Identifier: Apache-2.0 */
/* The operator steers a tenant: revokes, drains, activates, pins, and when that ends. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include <errno.h>

#include "mmd/core/book/book.h"
#include "mmd/core/event.h"
#include "tests/sim/mortal.h"

#define SHARE 10

static int steer(const struct w_proc *p, enum mm_steer how, uint64_t until_ns, uint64_t *ret_pages)
{
	struct mm_event_result result = w_event(w, (struct mm_event){ .kind = MM_EVENT_STEER,
								      .tenant = p->tenant,
								      .steer = { how, until_ns } });

	w_drain(w);
	if (ret_pages)
		*ret_pages = result.pages;
	return result.r;
}

static struct mm_core_tenant tenant_state(const struct w_proc *p)
{
	struct mm_core_tenant t;

	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	return t;
}

/* A tenant that holds @held chunks of a page; its share is SHARE. */
static struct w_proc *tenant_holds(uint32_t account, uint32_t held)
{
	struct w_proc *p = w_join(w, account, MM_FEAT_KNOWN);

	assert_non_null(p);
	w_kv_declare(w, p, 1, 1, 60, SHARE);
	w_run(w);
	w_kv_want(w, p, held);
	pass_ms(500);
	assert_int_equal(p->held, held);
	return p;
}

/* ---- revoke ---- */

static void what_is_beyond_the_share_is_revoked(void **state)
{
	struct w_proc *p;
	uint64_t pages;
	uint32_t chunks;

	(void)state;
	story_begin(MM_POLICY_REMAP, 100);
	p = tenant_holds(0, 30);
	assert_int_equal(mm_core_revocable(w->core, p->tenant, &chunks), 20);
	assert_int_equal(chunks, 20);
	assert_int_equal(steer(p, MM_STEER_REVOKE, 0, &pages), 0);
	assert_int_equal(pages, 20);
	assert_int_equal(tenant_state(p).revoking_chunks, 20);
	for (uint32_t held = 29; held > SHARE; held--) {
		/* Wants of meanwhile are not granted: it would never end. */
		w_kv_want(w, p, 50);
		assert_true(w_kv_release(w, p));
		w_run(w);
		assert_int_equal(p->held, held);
		assert_int_equal(tenant_state(p).revoking_chunks, held - SHARE);
	}
	w_kv_want(w, p, 0);
	assert_true(w_kv_release(w, p));
	w_run(w);
	assert_int_equal(p->held, SHARE);
	assert_int_equal(tenant_state(p).revoking_chunks, 0);
	/* That is all: now it is granted again what nobody else needs. */
	w_kv_want(w, p, 40);
	pass_ms(500);
	assert_int_equal(p->held, 40);
	assert_int_equal(story_stats().kills, 0);
}

static void the_share_and_the_min_stay(void **state)
{
	const struct mm_core_quota min = { .min_pages = 25, .weight = MM_WEIGHT_DEFAULT };
	struct w_proc *p;
	uint64_t pages = 1;

	(void)state;
	story_begin(MM_POLICY_REMAP, 100);
	w_account_add(w, 0, 0, &min);
	p = tenant_holds(0, 30);
	assert_int_equal(mm_core_revocable(w->core, p->tenant, NULL), 5);
	w_quota_set(w, 0, &(struct mm_core_quota){ .min_pages = 30, .weight = 100 });
	w_drain(w);
	assert_int_equal(steer(p, MM_STEER_REVOKE, 0, &pages), 0);
	assert_int_equal(pages, 0);
	pass_ms(100);
	assert_int_equal(tenant_state(p).revoking_chunks, 0);
	p = tenant_holds(1, SHARE);
	assert_int_equal(mm_core_revocable(w->core, p->tenant, NULL), 0);
}

/* The ladder follows: a deadline, the check whether it is stopped, a kill. */
static void one_that_does_not_give_is_killed(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 100);
	p = tenant_holds(0, 30);
	assert_int_equal(steer(p, MM_STEER_REVOKE, 0, NULL), 0);
	for (uint32_t i = 0; i < 200 && p->alive; i++) {
		w_tick(w, 100 * MM_NS_PER_MS);
		w_drain(w);
	}
	assert_int_equal(story_stats().kills, 1);
}

static void one_that_is_quarantined_lives(void **state)
{
	struct mm_core_quota q = { .weight = 100, .on_timeout = MM_ON_TIMEOUT_QUARANTINE };
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 100);
	w_account_add(w, 0, 0, &q);
	p = tenant_holds(0, 30);
	assert_int_equal(steer(p, MM_STEER_REVOKE, 0, NULL), 0);
	for (uint32_t i = 0; i < 200; i++) {
		w_tick(w, 100 * MM_NS_PER_MS);
		w_drain(w);
	}
	assert_int_equal(story_stats().kills, 0);
	assert_int_equal(story_stats().overdue, 1);
	assert_true(p->alive);
}

/* ---- drain ---- */

static void one_that_drains_gets_nothing(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 100);
	p = tenant_holds(0, 30);
	assert_int_equal(steer(p, MM_STEER_DRAIN, UINT64_MAX, NULL), 0);
	w_kv_want(w, p, 40);
	pass_ms(500);
	assert_int_equal(w->events_of[MM_EV_LEAVE], 1);
	assert_int_equal(p->held, 30);
	assert_true(p->denials != 0);
	assert_int_equal(p->denied, -ENOSPC);
	assert_true(tenant_state(p).drains);
	/* Nor a model, nor other memory. */
	w_model(w, p, 7, 2, 2, 1);
	pass_ms(100);
	assert_int_equal(p->model_result, -ENOSPC);
	assert_true(w_mem_alloc(w, p, 2));
	pass_ms(100);
	assert_int_equal(tenant_state(p).pages_mem, 0);
	assert_int_equal(steer(p, MM_STEER_UNDRAIN, 0, NULL), 0);
	w_kv_want(w, p, 40);
	pass_ms(500);
	assert_int_equal(p->held, 40);
}

static void a_drain_ends_with_its_time(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 100);
	p = tenant_holds(0, 30);
	assert_int_equal(steer(p, MM_STEER_DRAIN, w->now_ns + 3 * MM_NS_PER_S, NULL), 0);
	pass_ms(2900);
	assert_true(p->connected);
	assert_true(mm_core_deadline(w->core) <= w->now_ns + 200 * MM_NS_PER_MS);
	pass_ms(200);
	assert_int_equal(story_stats().kicks, 1);
	assert_false(p->connected);
}

/* ---- activate and pin ---- */

static void layers_come_home_once(void **state)
{
	struct w_proc *p;
	uint64_t pages;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 8, 3);
	story_plan_by_hand(p, 3);
	pass_ms(100);
	assert_int_equal(story_plan(p)->alpha, 3);
	assert_int_equal(steer(p, MM_STEER_ACTIVATE, 0, &pages), 0);
	assert_true(pages >= 9);
	assert_true(tenant_state(p).model_activates);
	for (uint32_t i = 0; i < 50 && story_plan(p)->alpha; i++)
		pass_ms(5);
	assert_int_equal(story_plan(p)->alpha, 0);
	/* mmd decides again: the operator's plan has ended. */
	pass_ms(500);
	assert_false(tenant_state(p).model_activates);
	assert_int_equal(story_plan(p)->alpha, 0);
	assert_int_equal(story_plan(p)->alpha_by_hand, -1);
}

static void a_pin_stays(void **state)
{
	struct w_proc *p, *other;

	(void)state;
	story_begin(MM_POLICY_REMAP, 40);
	p = tenant_with(0, 8, 3);
	other = w_join(w, 1, MM_FEAT_KNOWN);
	w_kv_declare(w, other, 1, 1, 60, 0);
	assert_int_equal(steer(p, MM_STEER_PIN, 0, NULL), 0);
	story_plan_by_hand(p, 4);
	w_kv_want(w, other, 30);
	w_stats(w, other, 1);
	pass_ms(2000);
	assert_int_equal(story_plan(p)->alpha, 0);
	assert_true(other->held < 30);
	assert_true(tenant_state(p).model_pinned);
	assert_int_equal(steer(p, MM_STEER_UNPIN, 0, NULL), 0);
	pass_ms(2000);
	assert_int_equal(story_plan(p)->alpha, 4);
}

/* Without room there is no half of it: nothing was changed. */
static void what_has_no_room_is_refused(void **state)
{
	struct w_proc *p, *other;
	uint64_t pages;

	(void)state;
	story_begin(MM_POLICY_REMAP, 40);
	p = tenant_with(0, 8, 3);
	story_plan_by_hand(p, 5);
	pass_ms(100);
	other = tenant_that(MM_FEAT_KNOWN, 1, 1, 8);
	w_kv_declare(w, other, 1, 1, 60, 0);
	w_run(w);
	w_kv_want(w, other, 30);
	w_stats(w, other, 1);
	pass_ms(500);
	assert_int_equal(steer(p, MM_STEER_PIN, 0, &pages), MM_E_FULL);
	assert_true(pages > 9);
	assert_false(tenant_state(p).model_pinned);
	assert_int_equal(steer(p, MM_STEER_ACTIVATE, 0, &pages), MM_E_FULL);
	assert_false(tenant_state(p).model_activates);
	w_quota_set(w, 0,
		    &(struct mm_core_quota){ .max_pages = tenant_state(p).pages_param +
							  tenant_state(p).pages_slot,
					     .weight = 100 });
	w_drain(w);
	assert_int_equal(steer(p, MM_STEER_PIN, 0, &pages), MM_E_QUOTA);
	assert_int_equal(steer(other, MM_STEER_PIN, 0, &pages), 0);
	w_kill(w, p);
	pass_ms(100);
	assert_int_equal(steer(p, MM_STEER_PIN, 0, &pages), MM_E_STALE);
	assert_int_equal(steer(p, MM_STEER_REVOKE, 0, &pages), MM_E_STALE);
}

/* A pin is of a model, and the next one begins without. */
static void a_pin_ends_with_its_model(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 8, 3);
	assert_int_equal(steer(p, MM_STEER_PIN, 0, NULL), 0);
	assert_true(w_unload(w, p));
	pass_ms(100);
	assert_false(tenant_state(p).model_pinned);
	assert_int_equal(steer(p, MM_STEER_PIN, 0, NULL), MM_E_STALE);
}

int main(void)
{
#define STORY(f) cmocka_unit_test_teardown(f, story_teardown)
	const struct CMUnitTest tests[] = {
		STORY(what_is_beyond_the_share_is_revoked),
		STORY(the_share_and_the_min_stay),
		STORY(one_that_does_not_give_is_killed),
		STORY(one_that_is_quarantined_lives),
		STORY(one_that_drains_gets_nothing),
		STORY(a_drain_ends_with_its_time),
		STORY(layers_come_home_once),
		STORY(a_pin_stays),
		STORY(what_has_no_room_is_refused),
		STORY(a_pin_ends_with_its_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
