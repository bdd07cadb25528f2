/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "libclient/base/percentile.h"

void mm_samples_add(struct mm_samples *s, double value)
{
	if (s->max && s->n == s->max) {
		s->all[s->at] = value;
		s->at = (s->at + 1) % s->max;
		return;
	}
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
	free(s->ttft_s.all);
	free(s->tbt_s.all);
	*s = (struct mm_stats){ 0 };
}

static double seconds_rounded(double s)
{
	return round(s * 1e6) / 1e6;
}

/* ---- a request's line: built by hand, which is fast, as it is written between two steps ---- */

#define NUMBER_BYTES 24u /* longest number, with a comma */
#define LINE_BYTES \
	2048u /* a line without its lists: keys, an id and a sentence with each byte escaped */

static char *report_put(char *at, const char *text)
{
	return stpcpy(at, text);
}

static char *put_number(char *at, uint64_t value, uint32_t digits)
{
	char reversed[NUMBER_BYTES];
	uint32_t n = 0;

	for (; value || n < digits; value /= 10)
		reversed[n++] = (char)('0' + value % 10);
	while (n)
		*at++ = reversed[--n];
	return at;
}

static char *put_seconds(char *at, double s)
{
	const int64_t us = (int64_t)llround(s * 1e6);
	const uint64_t size = us < 0 ? -(uint64_t)us : (uint64_t)us;

	if (us < 0)
		*at++ = '-';
	at = put_number(at, size / 1000000, 1);
	*at++ = '.';
	return put_number(at, size % 1000000, 6);
}

static char *put_key(char *at, const char *key)
{
	at = report_put(at, ",\"");
	at = report_put(at, key);
	return report_put(at, "\":");
}

/* Return: the text as JSON, malloc'ed; NULL: no memory. */
static char *text_quote(const char *text)
{
	mm_cleanup(mm_json_done) json_t *string = mm_json_string(text);

	return string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
}

static char *put_lists(char *at, const struct mm_request *q)
{
	at = report_put(put_key(at, "ids"), "[");
	for (uint32_t i = 0; i < q->n_output; i++) {
		at = put_number(i ? report_put(at, ",") : at, q->ids[q->n_prompt + i], 1);
	}
	at = report_put(put_key(report_put(at, "]"), "times"), "[");
	for (uint32_t i = 0; i < q->n_output; i++)
		at = put_seconds(i ? report_put(at, ",") : at, q->times[i]);
	return report_put(at, "]}\n");
}

int mm_report_request(FILE *out, const struct mm_request *q)
{
	mm_cleanup(mm_free_ptr) char *line = malloc(LINE_BYTES + 2 * NUMBER_BYTES * q->n_output);
	mm_cleanup(mm_free_ptr) char *id = q->id_is_number ? strdup(q->id) : text_quote(q->id);
	mm_cleanup(mm_free_ptr) char *error = text_quote(q->error);
	char *at = line;

	if (!line || !id || !error)
		return -EIO;
	at = report_put(report_put(at, "{\"id\":"), id);
	at = put_seconds(put_key(at, "arrival_s"), q->arrival_s);
	at = put_number(put_key(at, "preemptions"), q->preemptions, 1);
	if (q->error[0])
		at = report_put(put_key(at, "error"), error);
	else
		at = put_seconds(put_key(at, "finish_s"), q->finish_s);
	if (q->n_output)
		at = put_seconds(put_key(at, "first_token_s"), q->times[0]);
	at = put_lists(at, q);
	return fwrite(line, 1, (size_t)(at - line), out) == (size_t)(at - line) && !fflush(out)
		       ? 0
		       : -EIO;
}

static void set_percentiles(json_t *o, const char *what, double *values, size_t n)
{
	static const int percents[] = { 50, 90, 99 };
	char key[32];

	for (size_t i = 0; i < MM_ARRAY_SIZE(percents); i++) {
		snprintf(key, sizeof(key), "%s_p%d_s", what, percents[i]);
		mm_json_put_real(o, key, seconds_rounded(mm_percentile(values, n, percents[i])));
	}
}

struct report_totals {
	double *ttft, *tbt;
	size_t n_ttft, n_tbt;
	size_t served, refused;
};

static void report_total(struct report_totals *t, const struct mm_requests *requests)
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

/* Estimates the stalls of all gated steps: those not timed count as the mean of the timed ones. */
static double all_stalls_s(const struct mm_stats *s)
{
	const struct mm_samples *timed = &s->stalls_s;
	double sum = 0;

	for (size_t i = 0; i < timed->n; i++)
		sum += timed->all[i];
	if (!timed->n || s->gated_steps <= timed->n)
		return s->stall_s;
	return s->stall_s + sum / (double)timed->n * (double)(s->gated_steps - timed->n);
}

/* Adds those of jobs, of which there are none where requests are those of a file. */
static void put_latencies(json_t *o, struct report_totals *t, const struct mm_stats *s)
{
	const bool live = s->ttft_s.n != 0;

	set_percentiles(o, "ttft", live ? s->ttft_s.all : t->ttft, t->n_ttft + s->ttft_s.n);
	set_percentiles(o, "tbt", live ? s->tbt_s.all : t->tbt, t->n_tbt + s->tbt_s.n);
}

static json_t *report_summary(struct report_totals *t, const struct mm_stats *s)
{
	const uint64_t tokens = t->n_ttft + t->n_tbt + s->tokens;
	json_t *o = json_pack("{s:i,s:I,s:I,s:I,s:f,s:f}", "schema", 1, "requests",
			      (json_int_t)(t->served + s->served), "refused",
			      (json_int_t)(t->refused + s->refused), "tokens", (json_int_t)tokens,
			      "duration_s", seconds_rounded(s->end_s), "throughput_tok_s",
			      s->end_s > 0 ? seconds_rounded((double)tokens / s->end_s) : 0.0);
	const struct {
		const char *key;
		uint64_t value;
	} counts[] = {
		{ "requests_late", s->requests_late },
		{ "cancelled", s->cancelled },
		{ "preemptions", s->preemptions },
		{ "slices", s->slices },
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
		{ "cold_blocks", s->blocks_cooled },
		{ "cold_entries_max", s->cold_entries_max },
		{ "cold_out_bytes", s->cold_out_bytes },
		{ "cold_permille", s->cold_read * 1000 / MM_MAX(s->blocks_read, 1) },
		{ "plan_changes", s->plan_changes },
		{ "layers_remapped_max", s->layers_remapped_max },
		{ "gated_steps", s->gated_steps },
		{ "stall_samples", s->stalls_s.n },
		{ "graph_captures", s->graph_captures },
		{ "graph_launches", s->graph_launches },
	};

	mm_json_put_real(o, "stall_total_s", seconds_rounded(all_stalls_s(s)));
	mm_json_put_real(o, "plan_held_s", seconds_rounded(s->plan_held_s));
	mm_json_put_real(o, "swap_total_s", seconds_rounded(s->swap_s));
	put_latencies(o, t, s);
	set_percentiles(o, "stall", s->stalls_s.all, s->stalls_s.n);
	set_percentiles(o, "gap", s->gaps_s.all, s->gaps_s.n);
	for (size_t i = 0; i < MM_ARRAY_SIZE(counts); i++)
		mm_json_put_u64(o, counts[i].key, counts[i].value);
	mm_json_put_real(o, "step_mean_s",
			 s->steps ? seconds_rounded(s->step_s / (double)s->steps) : 0);
	return o;
}

json_t *mm_report_summary(const struct mm_requests *requests, const struct mm_stats *stats)
{
	struct report_totals t = { 0 };
	size_t tokens = 1;
	json_t *o = NULL;

	for (size_t i = 0; i < requests->n; i++)
		tokens += requests->all[i].n_output;
	t.ttft = calloc(requests->n + 1, sizeof(*t.ttft));
	t.tbt = calloc(tokens, sizeof(*t.tbt));
	if (t.ttft && t.tbt) {
		report_total(&t, requests);
		o = report_summary(&t, stats);
	}
	free(t.ttft);
	free(t.tbt);
	return o;
}
