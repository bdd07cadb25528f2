/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/report.h"

#include <errno.h>
#include <math.h>

#include "mm/base.h"
#include "tools/percentile.h"

void mm_samples_add(struct mm_samples *s, double value)
{
	if (s->n == s->room) {
		const size_t room = MM_MAX(s->room * 2, 256);
		double *all = realloc(s->all, room * sizeof(*all));

		if (!all)
			return;
		s->all = all;
		s->room = room;
	}
	s->all[s->n++] = value;
}

void mm_stats_done(struct mm_stats *s)
{
	free(s->stalls_s.all);
	free(s->gaps_s.all);
	*s = (struct mm_stats){ 0 };
}

static double microseconds(double s)
{
	return round(s * 1e6) / 1e6;
}

static void free_json(json_t **j)
{
	json_decref(*j);
}

int mm_report_request(FILE *out, const struct mm_request *q)
{
	mm_cleanup(free_json) json_t *line = json_object();
	json_t *ids = json_array(), *times = json_array();

	for (uint32_t i = 0; i < q->n_output; i++) {
		json_array_append_new(ids, json_integer(q->ids[q->n_prompt + i]));
		json_array_append_new(times, json_real(microseconds(q->times[i])));
	}
	json_object_set_new(line, "id", json_string(q->id));
	json_object_set_new(line, "arrival_s", json_real(microseconds(q->arrival_s)));
	json_object_set_new(line, "preemptions", json_integer(q->preemptions));
	if (q->error[0])
		json_object_set_new(line, "error", json_string(q->error));
	else
		json_object_set_new(line, "finish_s", json_real(microseconds(q->finish_s)));
	if (q->n_output)
		json_object_set_new(line, "first_token_s", json_real(microseconds(q->times[0])));
	json_object_set_new(line, "ids", ids);
	json_object_set_new(line, "times", times);
	if (json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(12)) ||
	    fputc('\n', out) == EOF || fflush(out))
		return -EIO;
	return 0;
}

static void set_percentiles(json_t *o, const char *what, double *values, size_t n)
{
	static const int percents[] = { 50, 90, 99 };
	char key[32];

	for (size_t i = 0; i < MM_ARRAY_SIZE(percents); i++) {
		snprintf(key, sizeof(key), "%s_p%d_s", what, percents[i]);
		json_object_set_new(o, key,
				    json_real(microseconds(mm_percentile(values, n, percents[i]))));
	}
}

struct totals {
	double *ttft, *tbt;
	size_t n_ttft, n_tbt;
	size_t served, refused;
};

static void total(struct totals *t, const struct mm_requests *requests)
{
	for (size_t i = 0; i < requests->n; i++) {
		const struct mm_request *q = &requests->all[i];

		t->refused += q->error[0] != '\0';
		t->served += q->n_output == q->max_tokens;
		if (q->n_output)
			t->ttft[t->n_ttft++] = q->times[0] - q->arrival_s;
		for (uint32_t k = 1; k < q->n_output; k++)
			t->tbt[t->n_tbt++] = q->times[k] - q->times[k - 1];
	}
}

static json_t *summary(struct totals *t, const struct mm_stats *s)
{
	const uint64_t tokens = t->n_ttft + t->n_tbt;
	json_t *o = json_pack("{s:i,s:I,s:I,s:I,s:f,s:f}", "schema", 1, "requests",
			      (json_int_t)t->served, "refused", (json_int_t)t->refused, "tokens",
			      (json_int_t)tokens, "duration_s", microseconds(s->end_s),
			      "throughput_tok_s",
			      s->end_s > 0 ? microseconds((double)tokens / s->end_s) : 0.0);
	const struct {
		const char *key;
		uint64_t value;
	} counts[] = {
		{ "preemptions", s->preemptions },
		{ "steps", s->steps },
		{ "steps_void", s->steps_void },
		{ "steps_broken", s->steps_broken },
		{ "computed_tokens", s->computed_tokens },
		{ "batch_max", s->batch_max },
		{ "checksum_failures", s->checksum_failures },
		{ "kv_chunks_max", s->kv_chunks_max },
		{ "kv_chunks_released", s->chunks_released },
		{ "kv_blocks_moved", s->blocks_moved },
		{ "swapped_out_bytes", s->swapped_out_bytes },
		{ "swapped_in_bytes", s->swapped_in_bytes },
		{ "swaps_failed", s->swaps_failed },
		{ "plan_changes", s->plan_changes },
		{ "layers_remapped_max", s->layers_remapped_max },
		{ "gated_steps", s->stalls_s.n },
	};

	json_object_set_new(o, "stall_total_s", json_real(microseconds(s->stall_s)));
	json_object_set_new(o, "plan_held_s", json_real(microseconds(s->plan_held_s)));
	json_object_set_new(o, "swap_total_s", json_real(microseconds(s->swap_s)));
	set_percentiles(o, "ttft", t->ttft, t->n_ttft);
	set_percentiles(o, "tbt", t->tbt, t->n_tbt);
	set_percentiles(o, "stall", s->stalls_s.all, s->stalls_s.n);
	set_percentiles(o, "gap", s->gaps_s.all, s->gaps_s.n);
	for (size_t i = 0; i < MM_ARRAY_SIZE(counts); i++)
		json_object_set_new(o, counts[i].key, json_integer((json_int_t)counts[i].value));
	json_object_set_new(o, "step_mean_s",
			    json_real(s->steps ? microseconds(s->step_s / (double)s->steps) : 0));
	return o;
}

json_t *mm_report_summary(const struct mm_requests *requests, const struct mm_stats *stats)
{
	struct totals t = { 0 };
	size_t tokens = 1;
	json_t *o = NULL;

	for (size_t i = 0; i < requests->n; i++)
		tokens += requests->all[i].n_output;
	t.ttft = calloc(requests->n + 1, sizeof(*t.ttft));
	t.tbt = calloc(tokens, sizeof(*t.tbt));
	if (t.ttft && t.tbt) {
		total(&t, requests);
		o = summary(&t, stats);
	}
	free(t.ttft);
	free(t.tbt);
	return o;
}
