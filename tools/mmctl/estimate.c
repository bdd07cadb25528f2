/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmctl/estimate.h"

#include "libclient/base/base.h"
#include "libclient/model/shapes.h"
#include "mmd/core/market/value.h"
#include "mmd/core/plan/plan.h"
#include "tools/lab/stepcost/stepcost.h"

#define ELEMENT_BYTES   2 /* fp16, of weights and of KV */
#define WEIGHT_PERMILLE 1000
#define GBPS            1e9

const char *mmctl_estimate_begin(struct mmctl_estimate *e)
{
	const struct mm_arch *a = &e->arch;

	e->layer_bytes = mm_arch_layer_bytes(a, ELEMENT_BYTES);
	e->resident_bytes = mm_arch_resident_bytes(a, ELEMENT_BYTES);
	e->weight_bytes = mm_arch_weight_bytes(a, ELEMENT_BYTES);
	e->request_bytes = mm_arch_kv_token_bytes(a, ELEMENT_BYTES) * e->context;
	e->layer_pages = mm_div_up(e->layer_bytes, e->page_bytes);
	e->weight_pages = e->layer_pages * a->layers + mm_div_up(e->resident_bytes, e->page_bytes);
	e->pool_pages = e->pool_bytes / e->page_bytes;
	e->transfer_ns = mm_cost_copy_ns(&e->profile, MM_LINK_H2D, e->layer_bytes, 0);
	e->away_one = e->away_two = 0;
	for (uint32_t alpha = 1; alpha <= a->layers && a->layers <= MM_LAYERS_MAX; alpha++) {
		e->away_one = mm_plan_possible(a->layers, alpha, 1) ? alpha : e->away_one;
		e->away_two = mm_plan_possible(a->layers, alpha, 2) ? alpha : e->away_two;
	}
	if (a->layers > MM_LAYERS_MAX)
		return "it has more layers than mmd can move";
	if (e->weight_pages > e->pool_pages)
		return "its weights are larger than the pool: mmd grants a model all of its pages "
		       "before layers may be away";
	return NULL;
}

/* ---- steps ---- */

/* The mean layer's computing time of a step that decodes @requests, as mmd measures it. */
static uint64_t layer_ns(const struct mmctl_estimate *e, uint32_t requests)
{
	const struct mm_step_opts opts = { ELEMENT_BYTES, ELEMENT_BYTES, false };
	struct mm_step_batch batch = { 0 };
	struct mm_step_model model;
	struct mm_step_ns ns;

	for (uint32_t i = 0; i < requests; i++)
		mm_step_batch_add(&batch, e->context - 1, 1, true);
	mm_step_model_init(&model, &e->profile, &e->arch, &opts);
	mm_step_cost(&model, &batch, &ns);
	return ns.layer + (ns.before + ns.after) / e->arch.layers;
}

/* The set that mmd begins with: evenly spaced, with one slot or two, whichever is shorter. */
static void away_set(const struct mmctl_estimate *e, uint32_t away, uint64_t t_c_ns,
		     struct mm_plan_set *ret_set)
{
	const uint32_t n = e->arch.layers;
	const struct mm_plan_set none = { .m = 0 };
	struct mm_plan_set set[2] = { { .m = 0 }, { .m = 0 } };
	uint32_t beta;

	for (beta = 1; beta <= 2; beta++) {
		if (!mm_plan_possible(n, away, beta))
			continue;
		mm_plan_even(n, mm_plan_cycling(away, beta), &none, &set[beta - 1]);
		set[beta - 1].beta = beta;
	}
	beta = !set[1].m   ? 1
	       : !set[0].m ? 2
			   : mm_plan_beta(&set[0], &set[1], n, t_c_ns, e->transfer_ns);
	*ret_set = set[beta - 1];
}

/* Pages that @away layers set free: their own, without those of the slots. */
static uint64_t freed_pages(const struct mmctl_estimate *e, uint32_t away)
{
	return away * e->layer_pages;
}

static uint32_t requests_that_fit(const struct mmctl_estimate *e, uint32_t away, uint32_t batch)
{
	const uint64_t kv_pages = e->pool_pages - e->weight_pages + freed_pages(e, away);
	const uint64_t each = MM_MAX(mm_div_up(e->request_bytes, e->page_bytes), 1u);

	return (uint32_t)MM_MIN(kv_pages / each, (uint64_t)batch);
}

static struct mmctl_estimate_point estimate_at(const struct mmctl_estimate *e, uint32_t away,
					       uint32_t batch)
{
	struct mmctl_estimate_point p = { .away = away,
					  .requests = requests_that_fit(e, away, batch) };
	const uint64_t t_c_ns = layer_ns(e, MM_MAX(p.requests, 1u));
	struct mm_plan_set set = { .m = 0 };

	if (away)
		away_set(e, away, t_c_ns, &set);
	p.slots = set.beta;
	p.step_ns = mm_plan_set_step_ns(&set, e->arch.layers, t_c_ns, e->transfer_ns);
	if (p.step_ns)
		p.link = MM_MIN((double)set.m * (double)e->transfer_ns / (double)p.step_ns, 1);
	p.step_ns = (uint64_t)((double)p.step_ns * mm_cost_slowdown(&e->profile, p.link, 0));
	p.tokens = p.step_ns ? p.requests * (double)MM_NS_PER_S / (double)p.step_ns : 0;
	return p;
}

/* ---- the choice ---- */

/* Fills in what the market sees of the model: costs of streaming for some numbers of layers. */
static void view_fill(const struct mmctl_estimate *e, uint64_t t_c_ns, struct mm_view_tenant *v)
{
	const uint32_t most = e->away_one, n = e->arch.layers;

	v->layers = n;
	v->layer_pages = (uint32_t)e->layer_pages;
	v->fixed_pages = e->weight_pages - n * e->layer_pages;
	v->alpha_max = most;
	v->lends = most != 0;
	v->points = MM_MIN(most + 1, (uint32_t)MM_VIEW_POINTS);
	for (uint32_t i = 0; i < v->points; i++) {
		struct mm_view_point *p = &v->point[i];
		struct mm_plan_set set = { .m = 0 };
		uint64_t step_ns;

		p->alpha = v->points == most + 1 ? i : i * most / (v->points - 1);
		if (!p->alpha)
			continue;
		away_set(e, p->alpha, t_c_ns, &set);
		step_ns = mm_plan_set_step_ns(&set, n, t_c_ns, e->transfer_ns);
		p->slow_permille = (uint32_t)MM_MIN((step_ns - MM_MIN(step_ns, n * t_c_ns)) * 1000 /
							    MM_MAX(n * t_c_ns, 1u),
						    (uint64_t)MM_VALUE_SLOW_KNOWN);
		p->link_permille = (uint32_t)MM_MIN(
			set.m * e->transfer_ns * 1000 / MM_MAX(step_ns, 1u), (uint64_t)1000);
	}
}

static uint32_t away_choose(const struct mmctl_estimate *e, uint32_t batch)
{
	const uint32_t fit = requests_that_fit(e, 0, batch);
	const uint64_t each = MM_MAX(mm_div_up(e->request_bytes, e->page_bytes), 1u);
	const uint64_t kv_pages = MM_MAX(e->pool_pages - e->weight_pages, each);
	struct mm_view_tenant view = { .kv_share = 1 };
	struct mm_value value = {
		.computing = 1,
		.weight_permille = WEIGHT_PERMILLE,
		/* ln(rate) grows with ln(KV), less what reading more KV makes steps longer. */
		.gain_permille =
			WEIGHT_PERMILLE - (int64_t)(kv_pages * 1000 / (kv_pages + e->weight_pages)),
		.kv_pages = kv_pages,
		.kv_enough = batch * each,
		.rho_permille = 1000,
		.link_slows_permille = (uint32_t)(e->profile.link_slows_in * 1000),
		.slow_most = MM_VALUE_SLOW_KNOWN,
		.alpha_most = e->away_one,
	};

	if (fit == batch || !e->away_one)
		return 0;
	view_fill(e, layer_ns(e, MM_MAX(fit, 1u)), &view);
	return mm_value_choose(&value, &view, 0).alpha;
}

/* ---- what stays hidden ---- */

static uint32_t hidden_most(const struct mmctl_estimate *e, uint64_t t_c_ns)
{
	struct mm_plan_set set;
	uint32_t most = 0;

	for (uint32_t away = 1; away <= e->away_one; away++) {
		away_set(e, away, t_c_ns, &set);
		if (mm_plan_hidden(&set, e->arch.layers, t_c_ns, e->transfer_ns))
			most = away;
	}
	return most;
}

/* The rate of the link from which one layer away makes no step longer, found by halves. */
static double hidden_gbps(const struct mmctl_estimate *e, uint64_t t_c_ns)
{
	uint64_t low = 0, high = t_c_ns * e->arch.layers;
	struct mm_plan_set set;

	if (!e->away_one)
		return 0;
	away_set(e, 1, t_c_ns, &set);
	while (low < high) {
		uint64_t mid = low + (high - low + 1) / 2;

		if (mm_plan_hidden(&set, e->arch.layers, t_c_ns, mid))
			low = mid;
		else
			high = mid - 1;
	}
	return low ? (double)e->layer_bytes / (double)low * MM_NS_PER_S / GBPS : 0;
}

void mmctl_estimate_row(const struct mmctl_estimate *e, uint32_t batch,
			struct mmctl_estimate_row *ret_row)
{
	const uint64_t t_c_ns = layer_ns(e, MM_MAX(requests_that_fit(e, 0, batch), 1u));

	ret_row->batch = batch;
	ret_row->home = estimate_at(e, 0, batch);
	ret_row->chosen = estimate_at(e, away_choose(e, batch), batch);
	ret_row->hidden = hidden_most(e, t_c_ns);
	ret_row->hidden_gbps = hidden_gbps(e, t_c_ns);
}
