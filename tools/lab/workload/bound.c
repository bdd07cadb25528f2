/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/bound.h"

#include <math.h>

#include "libclient/base/base.h"

/*
 * Proof that it is a bound. Take any schedule that serves the requests R, and let it end at T.
 *
 * Let model i run S steps. A step produces at most one token of each of at most max_seqs sequences,
 * and processes at most batched_tokens tokens: S >= outputs / max_seqs, S >= (prompts + outputs -
 * requests) / batched_tokens (the first output comes with the prompt's last token).
 * Compute: each step launches, for each layer, products that read its matrices once; each output
 * token but the first is decoded by a kernel that reads its sequence's KV. A kernel takes at least
 * its bytes over the profile's bandwidth, and at least its operations over the profile's rate of
 * operations; kernels share one timeline. So T >= (sum of S * W + KV read) / hbm and T >=
 * operations / flops, over all models.
 * Memory: let step s keep k(s) bytes of KV of the sequences that it decodes, while a(s) bytes of
 * its model's layers are not on the device when it begins. The rest of the device holds at least
 * each other model's resident group and one layer (its slot, because at most all layers but one can
 * be away), and all of this model except a(s): k(s) <= B + a(s), with B = pool - own weights - what
 * the others keep. Sum over the steps: the KV of a sequence with t tokens is needed in the step
 * that decodes its next one, so sum of k(s) >= A = sum over requests and decoded tokens of t *
 * bytes per token, in whichever steps they are. With Y = sum of a(s): S * B + Y >= A.
 * Link: a layer that is away when the step begins must come over the link during it, so T >= sum of
 * Y / h2d over all models. T is at least the least T for which such S and Y exist: a linear
 * program, in which only sums over steps are left. Steps beyond the necessary ones only lower the
 * need for Y. For a given T, the compute time that is left is spent on steps where a byte of
 * weights read saves most bytes of Y: a fractional knapsack, which is exact for one constraint. A
 * need that is feasible for T is feasible for any larger T, so bisection finds the least one.
 * Time: all of this also holds for the requests that arrive from s on, counted from s: T >= s +
 * T(s). Besides, T >= arrival + outputs * W / hbm for each single request.
 */

struct model_need {      /* needs of one model's requests */
	double steps;    /* least number of steps */
	double weights;  /* bytes that a step reads */
	double kv_read;  /* bytes, sum over all decodes */
	double flops;    /* operations, sum over all tokens */
	double room;     /* B; may be below 0 */
	double shortage; /* A; 0 with unlimited memory */
};

struct device_pace {
	double bps, flops, h2d;
};

/* Can the needs of all models be met within @seconds? */
static bool need_is_feasible(const struct model_need *need, uint32_t n, const struct device_pace *d,
			     double seconds)
{
	double compute = seconds * d->bps, link = 0, extra[MM_WL_TENANTS_MAX];
	double flops = 0;

	for (uint32_t i = 0; i < n; i++) {
		compute -= need[i].steps * need[i].weights + need[i].kv_read;
		flops += need[i].flops;
		extra[i] = fmax(0, need[i].shortage - need[i].steps * need[i].room);
		link += extra[i];
	}
	if (compute < 0 || flops > seconds * d->flops)
		return false;
	for (;;) {
		double best = 0, steps;
		uint32_t which = n;

		for (uint32_t i = 0; i < n; i++) {
			if (extra[i] > 0 && need[i].room / need[i].weights > best) {
				best = need[i].room / need[i].weights;
				which = i;
			}
		}
		if (link <= seconds * d->h2d || which == n)
			return link <= seconds * d->h2d;
		steps = fmin(extra[which] / need[which].room, compute / need[which].weights);
		compute -= steps * need[which].weights;
		link -= steps * need[which].room;
		if (compute <= 0)
			return link <= seconds * d->h2d;
		extra[which] = 0;
	}
}

static double least_seconds(const struct model_need *need, uint32_t n, const struct device_pace *d)
{
	double low = 0, high = 1e-3;

	while (!need_is_feasible(need, n, d, high) && high < 1e9)
		high *= 2;
	for (int i = 0; i < 60 && high - low > 1e-7 * high; i++) {
		const double middle = (low + high) / 2;

		if (need_is_feasible(need, n, d, middle))
			high = middle;
		else
			low = middle;
	}
	return low; /* the largest time that is known to be infeasible */
}

/* Returns how much of the other models' weights stays on the device while @active computes. */
static double kept_by_others(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			     uint32_t active)
{
	double kept = 0;

	for (uint32_t t = 0; t < opts->tenants; t++) {
		if (t != active)
			kept += (double)(sizes->tenant[t].resident_bytes +
					 sizes->tenant[t].layer_bytes);
	}
	return kept;
}

/* Adds a request to its model's need, except steps. */
static void add_request(const struct mm_wl_tenant_sizes *s, const struct mm_arch *a,
			const struct mm_wl_request *q, bool limited, struct model_need *need,
			double *outputs, double *tokens)
{
	const double decoded = q->output_tokens - 1.0, prompt = q->prompt_tokens;
	/* Decode k = 1.. reads prompt + k tokens. */
	const double context = decoded * prompt + decoded * (decoded + 1) / 2;
	/* Two operations per weight and token; of attention only that of decodes is counted. */
	const double layer = (double)s->layer_bytes / MM_WL_ELEMENT_BYTES * a->layers;

	need->kv_read += context * (double)s->kv_token_bytes;
	need->flops += 2 * layer * (prompt + decoded);
	if (limited)
		need->shortage += context * (double)s->kv_token_bytes;
	*outputs += q->output_tokens;
	*tokens += prompt + decoded;
}

/* Adds up the needs of the requests that arrive at @from_ns or later. */
static void add_up(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		   const struct mm_wl_case *c, uint32_t t, uint64_t from_ns, bool limited,
		   struct model_need *need)
{
	const struct mm_wl_tenant_sizes *s = &sizes->tenant[t];
	const struct mm_arch *a = &opts->tenant[t].shape->arch;
	double outputs = 0, tokens = 0;
	const double pool =
		opts->sharing == MM_WL_MIG
			? (double)(s->weight_pages * opts->page_bytes + s->kv_share_bytes)
			: (double)sizes->pool_bytes;
	const double others = opts->sharing == MM_WL_MIG ? 0 : kept_by_others(opts, sizes, t);

	*need = (struct model_need){ .weights = (double)s->layer_bytes * a->layers,
				     .room = pool - (double)s->weight_bytes - others };
	for (uint32_t i = c->stream[t].n; i-- > 0;) {
		if (c->stream[t].request[i].arrival_ns < from_ns)
			break;
		add_request(s, a, &c->stream[t].request[i], limited, need, &outputs, &tokens);
	}
	need->steps = fmax(outputs / opts->max_seqs, tokens / opts->batched_tokens);
}

static double suffix_seconds(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			     const struct device_pace *d, const struct mm_wl_case *c,
			     uint64_t from_ns, bool limited)
{
	struct model_need need[MM_WL_TENANTS_MAX];
	double most = 0;

	for (uint32_t t = 0; t < opts->tenants; t++)
		add_up(opts, sizes, c, t, from_ns, limited, &need[t]);
	if (opts->sharing != MM_WL_MIG)
		return least_seconds(need, opts->tenants, d);
	for (uint32_t t = 0; t < opts->tenants; t++) {
		const double f = sizes->tenant[t].fraction;
		const struct device_pace part = { d->bps * f, d->flops * f, d->h2d * f };

		most = fmax(most, least_seconds(&need[t], 1, &part));
	}
	return most;
}

/* Returns the latest end of a request that is alone: its arrival plus the time of its steps. */
static double alone_seconds(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			    const struct device_pace *d, const struct mm_wl_case *c)
{
	double last = 0;

	for (uint32_t t = 0; t < opts->tenants; t++) {
		const struct mm_wl_tenant_sizes *s = &sizes->tenant[t];
		const double step = (double)s->layer_bytes * opts->tenant[t].shape->arch.layers /
				    (d->bps * s->fraction);

		for (uint32_t i = 0; i < c->stream[t].n; i++) {
			const struct mm_wl_request *q = &c->stream[t].request[i];

			last = fmax(last, (double)q->arrival_ns / 1e9 + q->output_tokens * step);
		}
	}
	return last;
}

static uint64_t last_arrival(const struct mm_wl_case *c)
{
	uint64_t last_ns = 0;

	for (uint32_t t = 0; t < c->tenants; t++)
		last_ns = MM_MAX(last_ns, c->stream[t].request[c->stream[t].n - 1].arrival_ns);
	return last_ns;
}

/* Number of instants s for which the requests that arrive from s on give a bound. */
#define SUFFIXES 64

void mm_wl_bound(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		 const struct mm_profile *profile, const struct mm_wl_case *c, bool limited,
		 struct mm_wl_bound *ret)
{
	const struct device_pace d = { .bps = profile->hbm_bps * profile->mem_efficiency,
				       .flops = profile->f16_flops * profile->flop_efficiency,
				       .h2d = profile->h2d_bps };
	const double step_s = opts->seconds / SUFFIXES;
	double tokens = 0;

	*ret = (struct mm_wl_bound){ .seconds = alone_seconds(opts, sizes, &d, c) };
	/* Only up to the last arrival, because there are no requests after it. */
	for (uint32_t i = 0; i < SUFFIXES && i * step_s * 1e9 <= (double)last_arrival(c); i++) {
		const double from_s = i * step_s;
		const double busy =
			suffix_seconds(opts, sizes, &d, c, (uint64_t)(from_s * 1e9), limited);

		ret->seconds = fmax(ret->seconds, from_s + busy);
		if (i == 0)
			ret->busy_s = busy;
	}
	for (uint32_t t = 0; t < opts->tenants; t++) {
		for (uint32_t i = 0; i < c->stream[t].n; i++)
			tokens += c->stream[t].request[i].output_tokens;
	}
	ret->throughput_tok_s = ret->seconds > 0 ? tokens / ret->seconds : 0;
}

/* Returns how many layers of a model can be hidden: (a + 1) * T_T <= (n - a - 1) * T_c. */
static double hidden_layers(const struct mm_wl_opts *opts, const struct mm_profile *profile,
			    uint32_t t)
{
	const double n = opts->tenant[t].shape->arch.layers;
	const double transfer = 1 / profile->h2d_bps;
	const double compute = 1 / (profile->hbm_bps * profile->mem_efficiency);

	return fmax(0, floor(n * compute / (transfer + compute)) - 1);
}

uint64_t mm_wl_lendable(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			const struct mm_profile *profile)
{
	double least = INFINITY, all_hidden = 0;

	for (uint32_t t = 0; t < opts->tenants; t++) {
		const double hidden =
			hidden_layers(opts, profile, t) * (double)sizes->tenant[t].layer_bytes;
		double sum = hidden;

		all_hidden += hidden;
		for (uint32_t o = 0; o < opts->tenants; o++) {
			if (o != t)
				sum += (double)sizes->tenant[o].layer_bytes *
				       (opts->tenant[o].shape->arch.layers - 1.0);
		}
		least = fmin(least, sum);
	}
	return (uint64_t)(opts->sharing == MM_WL_TEMPORAL ? least : all_hidden);
}
