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

static void request_serve_alone(const struct mm_wl_opts *opts, const struct mm_step_model *model,
				uint32_t layers, struct mm_wl_record *record, uint32_t t,
				uint32_t i)
{
	const struct mm_wl_request *q = &record->c->stream[t].request[i];
	uint64_t now_ns = q->arrival_ns;

	for (uint32_t done = 0, part; done < q->prompt_tokens; done += part) {
		part = MM_MIN(q->prompt_tokens - done, opts->batched_tokens);
		now_ns += step_ns(model, layers, done, part, done + part == q->prompt_tokens);
	}
	mm_wl_record_token(record, t, i, now_ns);
	for (uint32_t k = 1; k < q->output_tokens; k++) {
		now_ns += step_ns(model, layers, q->prompt_tokens + k - 1, 1, true);
		mm_wl_record_token(record, t, i, now_ns);
	}
}

static void serve_all(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		      const struct mm_profile *profile, struct mm_wl_record *record)
{
	const struct mm_step_opts as = { .weight_element_bytes = MM_WL_ELEMENT_BYTES,
					 .kv_element_bytes = MM_WL_ELEMENT_BYTES };

	for (uint32_t t = 0; t < record->c->tenants; t++) {
		const struct mm_arch *arch = &opts->tenant[t].shape->arch;
		struct mm_profile part = *profile;
		struct mm_step_model model;

		mm_profile_share(&part, sizes->tenant[t].fraction);
		mm_step_model_init(&model, &part, arch, &as);
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
