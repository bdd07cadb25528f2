/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "tests/sim/laws.h"
#include "tests/unit/mmd/core/views.h"

void views_begin(struct views *v, uint64_t pages)
{
	memset(v, 0, sizeof(*v));
	v->view = (struct mm_view){
		.now_ns = 100 * MM_NS_PER_S,
		.policy = MM_POLICY_REMAP,
		.pages = pages,
		.free = pages,
		.link_slows_permille = 105,
		.rho_permille = 500,
		.dwell_ns = 200 * MM_NS_PER_MS,
		.turn_cost_permille = 50,
		.may_beside = true,
		.may_turns = true,
		.n_accounts = 1,
		.tenant = v->tenant,
		.account = v->account,
	};
	v->targets.tenant = v->target;
	for (uint32_t i = 0; i < VIEWS_ACCOUNTS; i++)
		v->account[i].max_pages = UINT64_MAX / 2;
}

/* One slot: a transfer that the layers between two that are away do not hide is a longer step. */
void views_cost(struct mm_view_tenant *t)
{
	uint64_t per = t->layers ? t->step_ns / t->layers : 0;
	uint32_t gap = MM_MAX(1u, (t->alpha_max + MM_VIEW_POINTS - 2) / (MM_VIEW_POINTS - 1));

	t->points = 0;
	for (uint32_t alpha = 0; t->points < MM_VIEW_POINTS && alpha <= t->alpha_max;
	     alpha += gap) {
		uint64_t cycling = alpha ? alpha + 1 : 0;
		uint64_t hidden = (t->layers - MM_MIN(cycling, t->layers)) * per;
		uint64_t stream = cycling * t->transfer_ns, step = MM_MAX(t->step_ns, 1u);
		uint64_t slow = stream > hidden ? (stream - hidden) * 1000 / step : 0;

		t->point[t->points++] = (struct mm_view_point){
			.alpha = alpha,
			.slow_permille = (uint32_t)MM_MIN(slow, UINT32_MAX - 1),
			.link_permille = (uint32_t)MM_MIN(
				stream * 1000 / (step + step * slow / 1000), 1000u),
		};
	}
}

struct mm_view_tenant *views_add(struct views *v, uint32_t layers, uint32_t layer_pages,
				 uint64_t step_ns, uint64_t transfer_ns)
{
	uint32_t i = v->view.n_tenants++;
	struct mm_view_tenant *t = &v->tenant[i];

	*t = (struct mm_view_tenant){
		.index = i,
		.weight = MM_WEIGHT_DEFAULT,
		.lends = layers > 1,
		.layers = layers,
		.layer_pages = layer_pages,
		.slot_pages = layer_pages,
		.alpha_max = layers > 1 ? layers - 1 : 0,
		.transfer_ns = transfer_ns,
		.chunk_pages = 1,
		.kv_share = 100,
		.kv_limit = 1000000,
		.gives = true,
		.reclaims = true,
		.step_ns = step_ns,
		.active = true,
		.hungry_permille = 1000,
		.active_ns = v->view.now_ns - i,
		.home_mean_ns = layers * transfer_ns,
		.quantum_ns = 200 * MM_NS_PER_MS,
	};
	views_cost(t);
	return t;
}

void views_wait(struct mm_view_tenant *t, uint32_t place)
{
	t->turn = MM_VIEW_WAITS;
	t->place = place;
}

void views_idle(struct mm_view_tenant *t)
{
	t->active = false;
	t->hungry_permille = 0;
	t->kv_used = t->kv_wanted = 0;
	t->active_ns = 1;
}

void views_mode(struct views *v, bool beside)
{
	v->memory.chosen = true;
	v->memory.beside = beside;
	v->memory.mode_since_ns = 0;
}

void views_decide(struct views *v)
{
	const char *broken;

	mm_market_decide(&v->view, &v->memory, &v->targets);
	broken = laws_broken(&v->view, &v->targets);
	if (broken)
		fail_msg("%s", broken);
}

void views_follow(struct views *v)
{
	for (uint32_t i = 0; i < v->view.n_tenants; i++) {
		struct mm_view_tenant *t = &v->tenant[i];
		const struct mm_target *g = &v->target[t->index];
		uint32_t want = MM_MIN(t->kv_wanted, g->kv_most);

		t->alpha = t->alpha_next = g->alpha;
		t->kv_held = MM_MIN(t->kv_held, g->kv_keep);
		t->kv_held = MM_MAX(t->kv_held, want);
		t->kv_used = MM_MIN(t->kv_used, t->kv_held);
	}
}

/* ---- drawn views ---- */

static uint64_t next_draw(uint64_t *seed)
{
	uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint32_t draw_below(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(next_draw(seed) % n);
}

static bool draw_one_in(uint64_t *seed, uint32_t n)
{
	return !draw_below(seed, n);
}

static void draw_tenant(struct views *v, uint64_t *s)
{
	uint32_t layers = draw_one_in(s, 10) ? draw_below(s, 3) : 2 + draw_below(s, 63);
	struct mm_view_tenant *t =
		views_add(v, layers, 1 + draw_below(s, 40), 1 + next_draw(s) % 80000000,
			  1 + next_draw(s) % 8000000);

	t->account = draw_below(s, v->view.n_accounts);
	t->weight = 1 + draw_below(s, draw_one_in(s, 3) ? 1000 : 100);
	t->priority = draw_below(s, 3);
	t->fixed_pages = draw_below(s, 50);
	t->lends = t->lends && !draw_one_in(s, 8);
	t->alpha = t->alpha_next =
		t->alpha_max && !draw_one_in(s, 3) ? draw_below(s, t->alpha_max) : 0;
	t->changing = t->alpha_max && draw_one_in(s, 6);
	t->alpha_next = t->changing ? draw_below(s, t->alpha_max) : t->alpha;
	t->chunk_pages = draw_one_in(s, 12) ? 0 : 1 + draw_below(s, 8);
	t->kv_limit = draw_below(s, 4000);
	t->kv_share = draw_below(s, t->kv_limit + 1);
	t->kv_held = t->chunk_pages ? draw_below(s, t->kv_limit + 1) : 0;
	t->kv_held /= 1 + draw_below(s, 8);
	t->kv_used = draw_below(s, t->kv_held + 1);
	t->kv_wanted = draw_below(s, t->kv_limit + 100);
	t->kv_queued = draw_one_in(s, 4) ? draw_below(s, 1000) : 0;
	t->waiting = draw_below(s, 3);
	t->gives = !draw_one_in(s, 5);
	t->swap_bytes = draw_one_in(s, 2) ? 1u << 30 : 0;
	t->late_permille = draw_one_in(s, 3) ? draw_below(s, 1001) : 0;
	t->kappa_permille = draw_one_in(s, 2) ? 1 + draw_below(s, 2000) : 0;
	t->hungry_permille = draw_one_in(s, 3) ? 0 : draw_below(s, 1001);
	t->active = !draw_one_in(s, 3);
	t->turn = draw_below(s, 4);
	t->place = draw_below(s, 4);
	t->goal_ttft_ns = draw_one_in(s, 4) ? next_draw(s) % (10 * MM_NS_PER_S) : 0;
	t->goal_tpot_ns = draw_one_in(s, 4) ? next_draw(s) % (MM_NS_PER_S / 5) : 0;
	if (t->points > 1 && draw_one_in(s, 8))
		t->point[1 + draw_below(s, t->points - 1)].slow_permille = UINT32_MAX;
}

/* As if memory went to one after the other. */
static void draw_rotation(struct views *v, uint64_t *s)
{
	views_mode(v, true);
	v->view.may_beside = v->view.may_turns = true;
	v->view.joined = 0;
	for (uint32_t i = 0; i < v->view.n_tenants; i++) {
		v->tenant[i].turn = MM_VIEW_NO_TURNS;
		v->tenant[i].swap_bytes = 1u << 30;
	}
	v->memory.rotates = true;
	v->memory.memory_of = draw_below(s, v->view.n_tenants);
	v->memory.memory_account = v->tenant[v->memory.memory_of].account;
	v->memory.memory_weight = v->tenant[v->memory.memory_of].weight;
	v->memory.memory_of_ns = v->view.now_ns - next_draw(s) % (20 * MM_NS_PER_S);
}

void views_draw(struct views *v, uint64_t seed)
{
	uint64_t s = seed;
	uint32_t n = 1 + draw_below(&s, draw_one_in(&s, 20) ? 64 : 6);

	views_begin(v, 100 + draw_below(&s, n * 3000));
	v->view.n_accounts = 1 + draw_below(&s, VIEWS_ACCOUNTS);
	for (uint32_t i = 0; i < v->view.n_accounts; i++) {
		v->account[i].max_pages =
			draw_one_in(&s, 3) ? draw_below(&s, 5000) : UINT64_MAX / 2;
		v->account[i].owes = draw_one_in(&s, 6) ? draw_below(&s, 500) : 0;
	}
	v->view.unused_mins = draw_one_in(&s, 4) ? draw_below(&s, 300) : 0;
	v->view.big_pages = draw_one_in(&s, 5) ? draw_below(&s, 2000) : 0;
	v->view.may_beside = !draw_one_in(&s, 4);
	v->view.may_turns = !v->view.may_beside || !draw_one_in(&s, 4);
	v->view.joined = draw_below(&s, 3);
	v->view.rho_permille = draw_below(&s, 1001);
	v->view.link_slows_permille = draw_below(&s, 500);
	for (uint32_t i = 0; i < n; i++)
		draw_tenant(v, &s);
	views_mode(v, draw_one_in(&s, 2));
	v->memory.mode_since_ns = draw_one_in(&s, 2) ? v->view.now_ns - 2 * MM_NS_PER_S : 0;
	for (uint32_t i = 0; i < n; i++)
		v->memory.taken_ns[i] = v->view.now_ns - next_draw(&s) % MM_NS_PER_S;
	if (draw_one_in(&s, 4))
		draw_rotation(v, &s);
}
