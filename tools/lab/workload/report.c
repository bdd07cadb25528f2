/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"

#define GIB 0x1p30

/* Adds up the counters of all windows of a policy; of peaks it takes the highest. */
static struct mm_wl_counters sum_counters(const struct mm_wl_report *r, uint32_t policy)
{
	struct mm_wl_counters sum = { 0 };

	for (uint32_t w = 0; w < r->windows; w++) {
		const struct mm_wl_counters *c = &mm_wl_report_record(r, policy, w)->counters;

		sum.preemptions += c->preemptions;
		sum.recomputed_tokens += c->recomputed_tokens;
		sum.swapped_bytes += c->swapped_bytes;
		sum.streamed_bytes += c->streamed_bytes;
		sum.plan_changes += c->plan_changes;
		sum.layers_remapped_max = MM_MAX(sum.layers_remapped_max, c->layers_remapped_max);
		sum.kv_peak_bytes = MM_MAX(sum.kv_peak_bytes, c->kv_peak_bytes);
		sum.steps += c->steps;
		sum.turns += c->turns;
		sum.stall_ns += c->stall_ns;
		sum.refused += c->refused;
	}
	return sum;
}

static int windows_measure(const struct mm_wl_report *r, uint32_t policy, uint32_t tenant,
			   struct mm_wl_metrics *ret)
{
	const struct mm_wl_record **all = calloc(r->windows, sizeof(*all));
	int err;

	if (!all)
		return -ENOMEM;
	for (uint32_t w = 0; w < r->windows; w++)
		all[w] = mm_wl_report_record(r, policy, w);
	err = mm_wl_measure(all, r->windows, tenant, r->slo, ret);
	free(all);
	return err;
}

static int measure_one(const struct mm_wl_report *r, uint32_t policy, uint32_t window,
		       uint32_t tenant, struct mm_wl_metrics *ret)
{
	const struct mm_wl_record *one = mm_wl_report_record(r, policy, window);

	return mm_wl_measure(&one, 1, tenant, r->slo, ret);
}

/* ---- paired ratios ---- */

static double throughput_of(const struct mm_wl_metrics *m)
{
	return m->throughput_tok_s;
}

static double goodput_of(const struct mm_wl_metrics *m)
{
	return m->goodput_tok_s;
}

static double window_of(const struct mm_wl_metrics *m)
{
	return m->window_tok_s;
}

static double own_of(const struct mm_wl_metrics *m)
{
	return m->own_tok_s;
}

static double attainment_of(const struct mm_wl_metrics *m)
{
	return m->attainment;
}

static double attained_of(const struct mm_wl_metrics *m)
{
	return m->attained_tok_s;
}

static double ttft_p99(const struct mm_wl_metrics *m)
{
	return m->ttft_p99_s;
}

static double tbt_p99(const struct mm_wl_metrics *m)
{
	return m->tbt_p99_s;
}

static const struct {
	const char *name;
	double (*of)(const struct mm_wl_metrics *m);
	bool in_table;
} paired[] = {
	{ "throughput", throughput_of, true }, { "window_tok_s", window_of, true },
	{ "attainment", attainment_of, true }, { "ttft_p99", ttft_p99, true },
	{ "tbt_p99", tbt_p99, true },          { "goodput", goodput_of, false },
	{ "own_tok_s", own_of, false },        { "attained_tok_s", attained_of, false },
};

/* Computes the ratios of a policy to the first one, window by window. @tenant: or MM_WL_ALL. */
static int policy_ratios(const struct mm_wl_report *r, uint32_t policy, uint32_t tenant,
			 struct mm_ratio ret[MM_ARRAY_SIZE(paired)])
{
	mm_cleanup(mm_free_ptr) double *a = calloc(r->windows, sizeof(*a));
	mm_cleanup(mm_free_ptr) double *b = calloc(r->windows, sizeof(*b));
	mm_cleanup(mm_free_ptr) struct mm_wl_metrics *m = calloc(r->windows, 2 * sizeof(*m));

	if (!a || !b || !m)
		return -ENOMEM;
	for (uint32_t w = 0; w < r->windows; w++) {
		int err = measure_one(r, policy, w, tenant, &m[2 * w]);

		if (!err)
			err = measure_one(r, 0, w, tenant, &m[2 * w + 1]);
		if (err)
			return err;
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(paired); i++) {
		for (uint32_t w = 0; w < r->windows; w++) {
			a[w] = paired[i].of(&m[2 * w]);
			b[w] = paired[i].of(&m[2 * w + 1]);
		}
		ret[i] = mm_ratio_of(a, b, r->windows, MM_WL_CONFIDENCE);
	}
	return 0;
}

/* ---- for people ---- */

static void table_head(const struct mm_wl_report *r)
{
	const struct mm_wl_opts *o = r->opts;

	printf("%s %s, %.1f GiB, pool %.1f GiB; %s%s%s; %.0f s x %u\n", r->mode, o->profile,
	       (double)r->sizes->device_bytes / GIB, (double)r->sizes->pool_bytes / GIB,
	       mm_wl_sharing_name(o->sharing), o->sharing == MM_WL_TEMPORAL ? " " : "",
	       o->sharing == MM_WL_TEMPORAL ? mm_wl_turns_name(o->turns) : "", o->seconds,
	       r->windows);
	for (uint32_t t = 0; t < o->tenants; t++) {
		const struct mm_wl_tenant_sizes *s = &r->sizes->tenant[t];

		printf("  %-12s %4.1f %%: weights %.2f, overhead %.2f, KV %.2f GiB; %.3g "
		       "requests/s, %s (%.0f + %.0f tokens)\n",
		       o->tenant[t].shape->name, o->tenant[t].share_permille / 10.0,
		       (double)s->weight_bytes / GIB, (double)s->overhead_bytes / GIB,
		       (double)s->kv_share_bytes / GIB, o->tenant[t].rate, o->tenant[t].lengths,
		       r->cases[0].stream[t].prompt_mean, r->cases[0].stream[t].output_mean);
	}
}

static int table_row(const struct mm_wl_report *r, uint32_t policy)
{
	const struct mm_wl_counters c = sum_counters(r, policy);
	struct mm_wl_metrics m;
	int err = windows_measure(r, policy, MM_WL_ALL, &m);

	if (err)
		return err;
	printf("%-13s %7.1f %7.1f %6.1f %8.3f %8.3f %7.1f %8.1f %8" PRIu64 " %9.2f %6" PRIu64
	       " %7.2f\n",
	       r->opts->policy[policy].name, m.throughput_tok_s, m.window_tok_s, 100 * m.attainment,
	       m.ttft_p50_s, m.ttft_p99_s, 1e3 * m.tbt_p50_s, 1e3 * m.tbt_p99_s, c.preemptions,
	       (double)c.streamed_bytes / GIB, c.plan_changes, (double)c.stall_ns / 1e9);
	return 0;
}

static void ratio_cell(const struct mm_ratio *q)
{
	if (q->n > 1)
		printf("  %6.3f [%6.3f, %6.3f]", q->ratio, q->low, q->high);
	else if (q->n)
		printf("  %6.3f %17s", q->ratio, "");
	else
		printf("  %24s", "-");
}

static int table_ratios(const struct mm_wl_report *r)
{
	printf("\nratio to %s, %u paired windows [95 %% interval]\n%-13s", r->opts->policy[0].name,
	       r->windows, "policy");
	for (size_t i = 0; i < MM_ARRAY_SIZE(paired); i++)
		if (paired[i].in_table)
			printf("  %24s", paired[i].name);
	putchar('\n');
	for (uint32_t p = 1; p < r->opts->policies; p++) {
		struct mm_ratio q[MM_ARRAY_SIZE(paired)];
		int err = policy_ratios(r, p, MM_WL_ALL, q);

		if (err)
			return err;
		printf("%-13s", r->opts->policy[p].name);
		for (size_t i = 0; i < MM_ARRAY_SIZE(paired); i++)
			if (paired[i].in_table)
				ratio_cell(&q[i]);
		putchar('\n');
	}
	puts("throughput, window_tok_s, attainment: above 1 is better; ttft, tbt: below 1");
	return 0;
}

int mm_wl_report_table(const struct mm_wl_report *r)
{
	table_head(r);
	printf("\n%-13s %7s %7s %6s %8s %8s %7s %8s %8s %9s %6s %7s\n", "policy", "tok/s", "window",
	       "SLO %", "TTFT p50", "p99 s", "TBT p50", "p99 ms", "preempt.", "GiB strm.", "plans",
	       "stall s");
	for (uint32_t p = 0; p < r->opts->policies; p++) {
		int err = table_row(r, p);

		if (err)
			return err;
	}
	return r->opts->policies > 1 ? table_ratios(r) : 0;
}

/* ---- for programs ---- */

/* These return 0, or not: no memory. */
static int put_metrics(json_t *json, const struct mm_wl_metrics *m, bool goodput_known)
{
	int r = mm_json_put_u64(json, "requests", m->requests) ||
		mm_json_put_u64(json, "completed", m->completed) ||
		mm_json_put_u64(json, "output_tokens", m->output_tokens) ||
		mm_json_put_u64(json, "prompt_tokens", m->prompt_tokens) ||
		mm_json_put_real(json, "seconds", m->seconds) ||
		mm_json_put_real(json, "throughput_tok_s", m->throughput_tok_s) ||
		mm_json_put_real(json, "total_tok_s", m->total_tok_s) ||
		mm_json_put_real(json, "window_tok_s", m->window_tok_s) ||
		mm_json_put_real(json, "own_tok_s", m->own_tok_s) ||
		mm_json_put_real(json, "ttft_p50_s", m->ttft_p50_s) ||
		mm_json_put_real(json, "ttft_p99_s", m->ttft_p99_s) ||
		mm_json_put_real(json, "ttft_mean_s", m->ttft_mean_s) ||
		mm_json_put_real(json, "tbt_p50_s", m->tbt_p50_s) ||
		mm_json_put_real(json, "tbt_p99_s", m->tbt_p99_s) ||
		mm_json_put_real(json, "tbt_mean_s", m->tbt_mean_s) ||
		mm_json_put_real(json, "tpot_p50_s", m->tpot_p50_s) ||
		mm_json_put_real(json, "tpot_p99_s", m->tpot_p99_s);

	if (r || !goodput_known)
		return r;
	return mm_json_put_u64(json, "good_requests", m->good) ||
	       mm_json_put_real(json, "goodput_tok_s", m->goodput_tok_s) ||
	       mm_json_put_real(json, "goodput_req_s", m->goodput_req_s) ||
	       mm_json_put_u64(json, "attained_requests", m->attained) ||
	       mm_json_put_real(json, "attainment", m->attainment) ||
	       mm_json_put_real(json, "attained_tok_s", m->attained_tok_s);
}

static int put_counters(json_t *json, const struct mm_wl_counters *c)
{
	return mm_json_put_u64(json, "preemptions", c->preemptions) ||
	       mm_json_put_u64(json, "recomputed_tokens", c->recomputed_tokens) ||
	       mm_json_put_u64(json, "swapped_bytes", c->swapped_bytes) ||
	       mm_json_put_u64(json, "bytes_streamed", c->streamed_bytes) ||
	       mm_json_put_u64(json, "plan_changes", c->plan_changes) ||
	       mm_json_put_u64(json, "layers_remapped_max", c->layers_remapped_max) ||
	       mm_json_put_u64(json, "kv_peak_bytes", c->kv_peak_bytes) ||
	       mm_json_put_u64(json, "steps", c->steps) ||
	       mm_json_put_u64(json, "turns", c->turns) ||
	       mm_json_put_real(json, "stall_s", (double)c->stall_ns / 1e9) ||
	       mm_json_put_u64(json, "refused", c->refused);
}

static json_t *tenants_json(const struct mm_wl_report *r)
{
	mm_cleanup(mm_json_done) json_t *list = json_array();

	for (uint32_t t = 0; list && t < r->opts->tenants; t++) {
		const struct mm_wl_tenant *tenant = &r->opts->tenant[t];
		const struct mm_wl_tenant_sizes *s = &r->sizes->tenant[t];
		json_t *one = json_pack(
			"{s:s s:f s:f s:s s:i s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "model",
			tenant->shape->name, "share", tenant->share_permille / 1000.0, "rate",
			tenant->rate, "lengths", tenant->lengths, "tokens_max",
			(int)tenant->tokens_max, "share_bytes", (json_int_t)s->share_bytes,
			"context_bytes", (json_int_t)s->context_bytes, "activation_bytes",
			(json_int_t)s->activation_bytes, "graph_bytes", (json_int_t)s->graph_bytes,
			"weight_bytes", (json_int_t)s->weight_bytes, "layer_bytes",
			(json_int_t)s->layer_bytes, "kv_token_bytes", (json_int_t)s->kv_token_bytes,
			"kv_share_bytes", (json_int_t)s->kv_share_bytes, "layers",
			(json_int_t)tenant->shape->arch.layers);
		int err = mm_json_put_real(one, "fraction", s->fraction);

		if (!err && r->slo)
			err = mm_json_put_real(
				      one, "slo_ttft_s",
				      (double)(MM_WL_SLO_FACTOR * r->slo->ttft_median_ns[t] +
					       r->slo->turns_ns) /
					      1e9) ||
			      mm_json_put_real(
				      one, "slo_tpot_s",
				      (double)(MM_WL_SLO_FACTOR * r->slo->tpot_median_ns[t]) / 1e9);
		if (json_array_append_new(list, one) || err)
			return NULL;
	}
	return mm_json_take(&list);
}

static json_t *stream_json(const struct mm_wl_stream *s, double seconds)
{
	return json_pack("{s:I s:I s:I s:f s:I s:I s:f s:f}", "first_row", (json_int_t)s->first_row,
			 "rows", (json_int_t)s->rows, "wraps", (json_int_t)s->wraps, "time_scale",
			 seconds / s->trace_s, "requests", (json_int_t)s->n, "filtered",
			 (json_int_t)s->filtered, "prompt_mean", s->prompt_mean, "output_mean",
			 s->output_mean);
}

static json_t *windows_json(const struct mm_wl_report *r)
{
	mm_cleanup(mm_json_done) json_t *list = json_array();

	for (uint32_t w = 0; list && w < r->windows; w++) {
		const struct mm_wl_case *c = &r->cases[w];
		json_t *tenants = json_array();
		bool ok = tenants;

		for (uint32_t t = 0; ok && t < c->tenants; t++)
			ok = !json_array_append_new(tenants,
						    stream_json(&c->stream[t], r->opts->seconds));
		ok = !json_array_append_new(list,
					    json_pack("{s:b s:o}", "disjoint", (int)c->disjoint,
						      "tenants", tenants)) &&
		     ok;
		if (!ok)
			return NULL;
	}
	return mm_json_take(&list);
}

/* Makes the numbers of each tenant, in one window or in all of them, and Jain's index of them. */
static json_t *policy_tenants_json(const struct mm_wl_report *r, uint32_t policy, uint32_t window,
				   double *ret_jain)
{
	mm_cleanup(mm_json_done) json_t *list = json_array();
	double attainment[MM_WL_TENANTS_MAX];

	for (uint32_t t = 0; list && t < r->opts->tenants; t++) {
		struct mm_wl_metrics m;
		json_t *one = json_object();
		int err = window == MM_WL_ALL ? windows_measure(r, policy, t, &m)
					      : measure_one(r, policy, window, t, &m);

		if (json_array_append_new(list, one) || err || put_metrics(one, &m, r->slo))
			return NULL;
		attainment[t] = m.attainment;
	}
	*ret_jain = mm_jain_index(attainment, r->opts->tenants);
	return mm_json_take(&list);
}

static int put_tenants(json_t *json, const struct mm_wl_report *r, uint32_t policy, uint32_t window)
{
	double jain;
	int err = mm_json_put(json, "tenants", policy_tenants_json(r, policy, window, &jain));

	return err || !r->slo ? err : mm_json_put_real(json, "jain", jain);
}

static int put_run(json_t *json, const struct mm_wl_record *record)
{
	int r = mm_json_put_real(json, "wall_s", record->wall_s);

	if (r || !(record->late_max_s > 0))
		return r;
	return mm_json_put_real(json, "late_mean_s", record->late_mean_s) ||
	       mm_json_put_real(json, "late_max_s", record->late_max_s);
}

static json_t *policy_windows_json(const struct mm_wl_report *r, uint32_t policy)
{
	mm_cleanup(mm_json_done) json_t *list = json_array();

	for (uint32_t w = 0; list && w < r->windows; w++) {
		const struct mm_wl_record *record = mm_wl_report_record(r, policy, w);
		struct mm_wl_metrics m;
		json_t *one = json_object();

		if (json_array_append_new(list, one) || measure_one(r, policy, w, MM_WL_ALL, &m) ||
		    put_metrics(one, &m, r->slo) || put_counters(one, &record->counters) ||
		    put_run(one, record) || put_tenants(one, r, policy, w))
			return NULL;
	}
	return mm_json_take(&list);
}

static json_t *policy_json(const struct mm_wl_report *r, uint32_t policy)
{
	const struct mm_wl_counters counters = sum_counters(r, policy);
	mm_cleanup(mm_json_done) json_t *json = json_object();
	struct mm_wl_metrics m;

	if (windows_measure(r, policy, MM_WL_ALL, &m) || put_metrics(json, &m, r->slo) ||
	    put_counters(json, &counters) || put_tenants(json, r, policy, MM_WL_ALL) ||
	    mm_json_put(json, "windows", policy_windows_json(r, policy)))
		return NULL;
	return mm_json_take(&json);
}

static json_t *policies_json(const struct mm_wl_report *r)
{
	mm_cleanup(mm_json_done) json_t *json = json_object();

	for (uint32_t p = 0; p < r->opts->policies; p++) {
		if (mm_json_put(json, r->opts->policy[p].name, policy_json(r, p)))
			return NULL;
	}
	return mm_json_take(&json);
}

static json_t *ratio_json(const struct mm_ratio *q)
{
	return json_pack("{s:f s:f s:f s:I s:I}", "ratio", q->ratio, "low", q->low, "high", q->high,
			 "windows", (json_int_t)q->n, "lost", (json_int_t)q->lost);
}

static json_t *policy_ratios_json(const struct mm_wl_report *r, uint32_t policy, uint32_t tenant)
{
	mm_cleanup(mm_json_done) json_t *json = json_object();
	struct mm_ratio q[MM_ARRAY_SIZE(paired)];

	if (policy_ratios(r, policy, tenant, q))
		return NULL;
	for (size_t i = 0; i < MM_ARRAY_SIZE(paired); i++) {
		if (mm_json_put(json, paired[i].name, ratio_json(&q[i])))
			return NULL;
	}
	return mm_json_take(&json);
}

static json_t *paired_json(const struct mm_wl_report *r)
{
	mm_cleanup(mm_json_done) json_t *json = json_object();

	for (uint32_t p = 1; p < r->opts->policies; p++) {
		json_t *one = policy_ratios_json(r, p, MM_WL_ALL), *tenants;

		if (mm_json_put(json, r->opts->policy[p].name, one))
			return NULL;
		tenants = json_array();
		if (mm_json_put(one, "tenants", tenants))
			return NULL;
		for (uint32_t t = 0; t < r->opts->tenants; t++) {
			if (json_array_append_new(tenants, policy_ratios_json(r, p, t)))
				return NULL;
		}
	}
	return mm_json_take(&json);
}

static json_t *head_json(const struct mm_wl_report *r)
{
	const struct mm_wl_opts *o = r->opts;

	return json_pack(
		"{s:i s:s s:s s:s? s:s s:I s:I s:I s:s s:s s:i s:s s:f s:i s:I s:i s:i s:i}",
		"schema", 1, "mode", r->mode, "profile", o->profile, "combo", o->combo, "shares",
		o->shares_whole ? "whole" : "given", "device_bytes",
		(json_int_t)r->sizes->device_bytes, "pool_bytes", (json_int_t)r->sizes->pool_bytes,
		"page_bytes", (json_int_t)o->page_bytes, "sharing", mm_wl_sharing_name(o->sharing),
		"turns", mm_wl_turns_name(o->turns), "quantum_ms", (int)o->quantum_ms, "trace",
		mm_wl_arrivals_name(o), "seconds", o->seconds, "windows", (int)r->windows, "seed",
		(json_int_t)o->seed, "max_seqs", (int)o->max_seqs, "batched_tokens",
		(int)o->batched_tokens, "slots", (int)o->slots);
}

json_t *mm_wl_report_json(const struct mm_wl_report *r)
{
	const struct mm_wl_opts *o = r->opts;
	mm_cleanup(mm_json_done) json_t *json = head_json(r);

	if (mm_json_put_text(json, "version", MM_VERSION) ||
	    mm_json_put_text(json, "commit", MM_COMMIT) ||
	    mm_json_put(json, "controller",
			o->controller ? json_string(o->controller) : json_null()) ||
	    mm_json_put_known(json, "swap_bytes", o->swap_bytes != MM_WL_SWAP_AUTO,
			      o->swap_bytes) ||
	    mm_json_put_u64(json, "goal_ttft_ms", o->goal_ttft_ms) ||
	    mm_json_put_real(json, "goal_factor", o->goal_factor) ||
	    mm_json_put(json, "tenants", tenants_json(r)) ||
	    mm_json_put(json, "cases", windows_json(r)) ||
	    mm_json_put(json, "results", policies_json(r)) ||
	    mm_json_put(json, "paired", paired_json(r)) ||
	    (r->more && json_object_update(json, r->more)))
		return NULL;
	return mm_json_take(&json);
}

int mm_wl_report_print(const struct mm_wl_report *r)
{
	mm_cleanup(mm_json_done) json_t *json = mm_wl_report_json(r);

	return mm_json_print(json, JSON_COMPACT);
}
