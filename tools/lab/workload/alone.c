/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/alone.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "tools/lab/stepcost/stepcost.h"

static uint64_t step_ns(const struct mm_step_model *model, uint32_t layers, uint32_t first,
			uint32_t tokens, bool sampled)
{
	struct mm_step_batch batch = { 0 };
	struct mm_step_ns cost;

	mm_step_batch_add(&batch, first, tokens, sampled);
	mm_step_cost(model, &batch, &cost);
	return cost.before + layers * cost.layer + cost.after;
}

/* Tokens of a step by which goals are computed, so that --batched-tokens does not move them. */
#define GOAL_STEP_TOKENS 2048

/* Returns the time of the steps that compute a prompt, of at most @most tokens each. */
static uint64_t prompt_ns(const struct mm_step_model *model, uint32_t layers,
			  uint32_t prompt_tokens, uint32_t most)
{
	uint64_t ns = 0;

	for (uint32_t done = 0, part; done < prompt_tokens; done += part) {
		part = MM_MIN(prompt_tokens - done, most);
		ns += step_ns(model, layers, done, part, done + part == prompt_tokens);
	}
	return ns;
}

static void request_serve_alone(const struct mm_wl_opts *opts, const struct mm_step_model *model,
				uint32_t layers, struct mm_wl_record *record, uint32_t t,
				uint32_t i)
{
	const struct mm_wl_request *q = &record->c->stream[t].request[i];
	uint64_t now_ns =
		q->arrival_ns + prompt_ns(model, layers, q->prompt_tokens, opts->batched_tokens);

	mm_wl_record_token(record, t, i, now_ns);
	for (uint32_t k = 1; k < q->output_tokens; k++) {
		now_ns += step_ns(model, layers, q->prompt_tokens + k - 1, 1, true);
		mm_wl_record_token(record, t, i, now_ns);
	}
}

static void model_alone(struct mm_step_model *model, const struct mm_profile *profile,
			const struct mm_arch *arch)
{
	const struct mm_step_opts as = { .weight_element_bytes = MM_WL_ELEMENT_BYTES,
					 .kv_element_bytes = MM_WL_ELEMENT_BYTES };

	mm_step_model_init(model, profile, arch, &as);
}

static void serve_all(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		      const struct mm_profile *profile, struct mm_wl_record *record)
{
	for (uint32_t t = 0; t < record->c->tenants; t++) {
		const struct mm_arch *arch = &opts->tenant[t].shape->arch;
		struct mm_profile part = *profile;
		struct mm_step_model model;

		mm_profile_share(&part, sizes->tenant[t].fraction);
		model_alone(&model, &part, arch);
		for (uint32_t i = 0; i < record->c->stream[t].n; i++)
			request_serve_alone(opts, &model, arch->layers, record, t, i);
	}
}

int mm_wl_slo_alone(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		    const struct mm_profile *profile, const struct mm_wl_case *c, uint32_t each,
		    struct mm_wl_slo *ret_slo)
{
	mm_cleanup(mm_wl_record_done) struct mm_wl_record record = { 0 };
	mm_cleanup(mm_wl_case_done) struct mm_wl_case alone = { 0 };
	int r = mm_wl_case_alone(c, each, MM_NS_PER_S, &alone);

	if (!r)
		r = mm_wl_record_init(&record, &alone, opts->seconds);
	if (r)
		return r;
	serve_all(opts, sizes, profile, &record);
	return mm_wl_slo_of(opts, &record, ret_slo);
}

/* The step of a token grows with the tokens before it, so the mean is that of first and last. */
static uint64_t token_ns(const struct mm_step_model *model, uint32_t layers,
			 const struct mm_wl_request *q)
{
	const uint32_t last = q->prompt_tokens + q->output_tokens - 2;

	if (q->output_tokens < 2)
		return 0;
	return (step_ns(model, layers, q->prompt_tokens, 1, true) +
		step_ns(model, layers, last, 1, true)) /
	       2;
}

void mm_wl_alone(const struct mm_wl_opts *opts, const struct mm_profile *profile,
		 struct mm_wl_case *c)
{
	for (uint32_t t = 0; t < c->tenants; t++) {
		const struct mm_arch *arch = &opts->tenant[t].shape->arch;
		struct mm_step_model model;

		model_alone(&model, profile, arch);
		for (uint32_t i = 0; i < c->stream[t].n; i++) {
			struct mm_wl_request *q = &c->stream[t].request[i];

			q->alone_ttft_ns =
				prompt_ns(&model, arch->layers, q->prompt_tokens, GOAL_STEP_TOKENS);
			q->alone_tpot_ns = token_ns(&model, arch->layers, q);
		}
	}
}
