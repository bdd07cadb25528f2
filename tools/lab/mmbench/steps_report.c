/* SPDX-License-Identifier: Apache-2.0 */
/* steps_report - the results of `mmbench steps`, as a table and as JSON. */
#include "tools/lab/mmbench/steps_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/json.h"

static double step_ratio(const struct mm_bench_steps_plan *p)
{
	return (double)p->median_ns / (double)p->expected_ns;
}

static const char *shape_name(const struct mm_bench_steps_opts *o)
{
	return o->shape ? o->shape : o->model;
}

static double ns_to_ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static json_t *plan_json(const struct mm_bench_steps_plan *p)
{
	json_t *layers = json_array();

	for (uint32_t i = 0; i < p->set.m; i++)
		json_array_append_new(layers, json_integer(p->set.layer[i]));
	return json_pack("{s:i,s:i,s:i,s:i,s:o,s:I,s:I,s:I,s:I,s:f}", "alpha", (int)p->alpha,
			 "cold", (int)p->cold, "slots", (int)p->beta, "cycling", (int)p->set.m,
			 "layers", layers, "expected_ns", (json_int_t)p->expected_ns, "median_ns",
			 (json_int_t)p->median_ns, "least_ns", (json_int_t)p->least_ns, "most_ns",
			 (json_int_t)p->most_ns, "ratio", step_ratio(p));
}

static int steps_report_json(const struct mm_bench_steps_opts *o,
			     const struct mm_bench_steps_result *r)
{
	mm_cleanup(mm_json_done) json_t *all = NULL;
	json_t *plans = json_array();

	for (uint32_t i = 0; i < r->n; i++)
		json_array_append_new(plans, plan_json(&r->plans[i]));
	all = json_pack("{s:i,s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:f,s:i,s:I,s:I,s:I,s:o,s:f}", "schema",
			1, "benchmark", "steps", "commit", MM_COMMIT, "profile", o->profile,
			"model", shape_name(o), "batch", (int)o->batch, "context", (int)o->context,
			"layers", (int)r->layers, "dilation", o->dilation, "steps", (int)o->steps,
			"layer_bytes", (json_int_t)r->layer_bytes, "t_c_ns", (json_int_t)r->t_c_ns,
			"t_t_ns", (json_int_t)r->t_t_ns, "plans", plans, "worst", r->worst);
	return mm_json_print(all, JSON_COMPACT | JSON_REAL_PRECISION(9));
}

static void steps_report_text(const struct mm_bench_steps_opts *o,
			      const struct mm_bench_steps_result *r)
{
	printf("%s, %s: %u layers of %.1f MB, %u sequences of %u tokens\n", shape_name(o),
	       o->profile, r->layers, (double)r->layer_bytes / 1e6, o->batch, o->context);
	printf("a layer computes %.3f ms and is transferred in %.3f ms; dilation %g\n\n",
	       ns_to_ms(r->t_c_ns), ns_to_ms(r->t_t_ns), o->dilation);
	printf("%6s %6s %8s %6s %13s %11s %11s %11s %7s\n", "away", "slots", "cycling", "cold",
	       "expected ms", "median ms", "least ms", "most ms", "ratio");
	for (uint32_t i = 0; i < r->n; i++) {
		const struct mm_bench_steps_plan *p = &r->plans[i];

		printf("%6u %6u %8u %6u %13.3f %11.3f %11.3f %11.3f %7.4f\n", p->alpha, p->beta,
		       p->set.m, p->cold, ns_to_ms(p->expected_ns), ns_to_ms(p->median_ns),
		       ns_to_ms(p->least_ns), ns_to_ms(p->most_ns), step_ratio(p));
	}
	printf("\nthe median is at most %.2f %% off\n", 100 * r->worst);
}

int mm_bench_steps_report(const struct mm_bench_steps_opts *o,
			  const struct mm_bench_steps_result *r)
{
	if (o->json)
		return steps_report_json(o, r);
	steps_report_text(o, r);
	return 0;
}
