/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/base/percentile.h"

/* Length of a turn for the limits of goodput under `drain`, which has no quantum. */
#define DRAIN_TURN_NS MM_NS_PER_S

int mm_wl_record_init(struct mm_wl_record *record, const struct mm_wl_case *c, double seconds)
{
	mm_cleanup(mm_wl_record_done) struct mm_wl_record r = { .c = c };

	r.window_ns = (uint64_t)(seconds * 1e9);
	r.gaps = calloc(c->tenants, sizeof(*r.gaps));
	if (!r.gaps)
		return -ENOMEM;
	for (uint32_t t = 0; t < c->tenants; t++) {
		r.served[t] = calloc(c->stream[t].n + 1u, sizeof(*r.served[t]));
		if (!r.served[t])
			return -ENOMEM;
	}
	*record = r;
	r = (struct mm_wl_record){ 0 };
	return 0;
}

void mm_wl_record_done(struct mm_wl_record *record)
{
	for (uint32_t t = 0; t < MM_WL_TENANTS_MAX; t++)
		free(record->served[t]);
	free(record->gaps);
	*record = (struct mm_wl_record){ 0 };
}

static bool is_complete(const struct mm_wl_request *q, const struct mm_wl_served *s)
{
	return s->tokens >= q->output_tokens;
}

static double ttft_ns(const struct mm_wl_request *q, const struct mm_wl_served *s)
{
	return (double)s->first_ns - (double)q->arrival_ns;
}

/* Returns a request's mean time per output token; it must have two tokens or more. */
static double tpot_ns(const struct mm_wl_served *s)
{
	return s->tokens > 1 ? (double)(s->last_ns - s->first_ns) / (s->tokens - 1) : 0;
}

int mm_wl_slo_of(const struct mm_wl_opts *opts, const struct mm_wl_record *record,
		 struct mm_wl_slo *ret_slo)
{
	struct mm_wl_slo slo = { 0 };

	for (uint32_t t = 0; t < record->c->tenants; t++) {
		const struct mm_wl_stream *stream = &record->c->stream[t];
		mm_cleanup(mm_free_ptr) double *ttft = calloc(stream->n + 1u, sizeof(*ttft));
		mm_cleanup(mm_free_ptr) double *tpot = calloc(stream->n + 1u, sizeof(*tpot));
		size_t n_ttft = 0, n_tpot = 0;

		if (!ttft || !tpot)
			return -ENOMEM;
		for (uint32_t i = 0; i < stream->n; i++) {
			const struct mm_wl_served *s = &record->served[t][i];

			if (s->tokens)
				ttft[n_ttft++] = ttft_ns(&stream->request[i], s);
			if (s->tokens > 1)
				tpot[n_tpot++] = tpot_ns(s);
		}
		slo.ttft_median_ns[t] = (uint64_t)mm_percentile(ttft, n_ttft, 50);
		slo.tpot_median_ns[t] = (uint64_t)mm_percentile(tpot, n_tpot, 50);
	}
	if (opts->sharing == MM_WL_TEMPORAL)
		slo.turns_ns = (opts->tenants - 1) * (opts->turns == MM_WL_QUANTUM
							      ? opts->quantum_ms * MM_NS_PER_MS
							      : DRAIN_TURN_NS);
	slo.goal_ttft_ns = opts->goal_ttft_ms * MM_NS_PER_MS;
	slo.goal_factor = opts->goal_factor;
	*ret_slo = slo;
	return 0;
}

/* Tenants alternate, so that no tenant still has the device when its next request arrives. */
int mm_wl_case_alone(const struct mm_wl_case *c, uint32_t each, uint64_t apart_ns,
		     struct mm_wl_case *ret_case)
{
	mm_cleanup(mm_wl_case_done) struct mm_wl_case alone = { .window = c->window,
								.tenants = c->tenants,
								.disjoint = c->disjoint };

	for (uint32_t t = 0; t < c->tenants; t++) {
		const struct mm_wl_stream *from = &c->stream[t];
		struct mm_wl_stream *to = &alone.stream[t];

		*to = *from;
		to->n = MM_MIN(from->n, each);
		to->request = calloc(to->n + 1u, sizeof(*to->request));
		if (!to->request)
			return -ENOMEM;
		for (uint32_t i = 0; i < to->n; i++) {
			/* Spread over the whole window, so that not all are of one burst. */
			to->request[i] = from->request[(uint64_t)i * from->n / to->n];
			to->request[i].arrival_ns = ((uint64_t)i * c->tenants + t) * apart_ns;
		}
	}
	*ret_case = alone;
	alone = (struct mm_wl_case){ 0 };
	return 0;
}

/* ---- numbers ---- */

struct metrics_gather {
	const struct mm_wl_slo *slo;
	double *ttft, *tpot;
	size_t n_ttft, n_tpot;
	struct mm_histogram *gaps;
	uint64_t last_ns, own_last_ns, window_tokens, good_tokens, attained_tokens;
	double seconds, own_s, window_s, ttft_sum;
	struct mm_wl_metrics m;
};

static bool is_good(const struct mm_wl_slo *slo, uint32_t t, double ttft, double tpot)
{
	const double ttft_max =
		MM_WL_SLO_FACTOR * (double)slo->ttft_median_ns[t] + (double)slo->turns_ns;
	const double tpot_max = MM_WL_SLO_FACTOR * (double)slo->tpot_median_ns[t];

	return (!slo->ttft_median_ns[t] || ttft <= ttft_max) &&
	       (!slo->tpot_median_ns[t] || tpot <= tpot_max);
}

static bool is_attained(uint64_t goal_ttft_ns, double factor, const struct mm_wl_request *q,
			double ttft, double tpot)
{
	const double ttft_max = (double)goal_ttft_ns + factor * (double)q->alone_ttft_ns;

	return factor > 0 && ttft <= ttft_max &&
	       (q->output_tokens < 2 || tpot <= factor * (double)q->alone_tpot_ns);
}

bool mm_wl_is_late(const struct mm_wl_opts *opts, const struct mm_wl_request *q,
		   const struct mm_wl_served *s)
{
	return !is_attained(opts->goal_ttft_ms * MM_NS_PER_MS, opts->goal_factor, q, ttft_ns(q, s),
			    tpot_ns(s));
}

static void served_gather(struct metrics_gather *g, uint32_t t, const struct mm_wl_request *q,
			  const struct mm_wl_served *s)
{
	const double ttft = ttft_ns(q, s), tpot = tpot_ns(s);

	g->m.requests++;
	if (!s->tokens)
		return;
	g->ttft[g->n_ttft++] = ttft;
	g->ttft_sum += ttft;
	if (s->tokens > 1)
		g->tpot[g->n_tpot++] = tpot;
	g->own_last_ns = MM_MAX(g->own_last_ns, s->last_ns);
	g->m.output_tokens += s->tokens;
	g->m.prompt_tokens += q->prompt_tokens;
	if (!is_complete(q, s))
		return;
	g->m.completed++;
	if (g->slo && is_attained(g->slo->goal_ttft_ns, g->slo->goal_factor, q, ttft, tpot)) {
		g->m.attained++;
		g->attained_tokens += s->tokens;
	}
	if (!g->slo || !is_good(g->slo, t, ttft, tpot))
		return;
	g->m.good++;
	g->good_tokens += s->tokens;
}

static void gather_record(struct metrics_gather *g, const struct mm_wl_record *r, uint32_t tenant)
{
	const struct mm_wl_case *c = r->c;

	/* Each tenant gets the time of the whole run, so that throughputs can be added. */
	g->last_ns = g->own_last_ns = 0;
	for (uint32_t t = 0; t < c->tenants; t++) {
		for (uint32_t i = 0; i < c->stream[t].n; i++)
			g->last_ns = MM_MAX(g->last_ns, r->served[t][i].last_ns);
	}
	for (uint32_t t = 0; t < c->tenants; t++) {
		if (tenant != MM_WL_ALL && t != tenant)
			continue;
		for (uint32_t i = 0; i < c->stream[t].n; i++)
			served_gather(g, t, &c->stream[t].request[i], &r->served[t][i]);
		mm_histogram_merge(g->gaps, &r->gaps[t]);
		g->window_tokens += r->window_tokens[t];
	}
	g->seconds += (double)g->last_ns / 1e9;
	g->own_s += (double)g->own_last_ns / 1e9;
	g->window_s += (double)r->window_ns / 1e9;
}

static double gap_s(const struct mm_histogram *h, double percent)
{
	return (double)mm_histogram_percentile(h, percent) / 1e9;
}

static void gather_conclude(struct metrics_gather *g)
{
	struct mm_wl_metrics *m = &g->m;

	m->seconds = g->seconds;
	if (g->seconds > 0) {
		m->throughput_tok_s = (double)m->output_tokens / g->seconds;
		m->total_tok_s = (double)(m->output_tokens + m->prompt_tokens) / g->seconds;
		m->goodput_tok_s = (double)g->good_tokens / g->seconds;
		m->goodput_req_s = (double)m->good / g->seconds;
		m->attained_tok_s = (double)g->attained_tokens / g->seconds;
	}
	if (g->own_s > 0)
		m->own_tok_s = (double)m->output_tokens / g->own_s;
	if (m->requests)
		m->attainment = (double)m->attained / (double)m->requests;
	if (g->window_s > 0)
		m->window_tok_s = (double)g->window_tokens / g->window_s;
	m->ttft_p50_s = mm_percentile(g->ttft, g->n_ttft, 50) / 1e9;
	m->ttft_p99_s = mm_percentile(g->ttft, g->n_ttft, 99) / 1e9;
	if (g->n_ttft)
		m->ttft_mean_s = g->ttft_sum / (double)g->n_ttft / 1e9;
	m->tpot_p50_s = mm_percentile(g->tpot, g->n_tpot, 50) / 1e9;
	m->tpot_p99_s = mm_percentile(g->tpot, g->n_tpot, 99) / 1e9;
	m->tbt_p50_s = gap_s(g->gaps, 50);
	m->tbt_p99_s = gap_s(g->gaps, 99);
	if (g->gaps->n)
		m->tbt_mean_s = g->gaps->sum / (double)g->gaps->n / 1e9;
}

int mm_wl_measure(const struct mm_wl_record *const *records, uint32_t n, uint32_t tenant,
		  const struct mm_wl_slo *slo, struct mm_wl_metrics *ret_metrics)
{
	mm_cleanup(mm_free_ptr) double *ttft = NULL, *tpot = NULL;
	mm_cleanup(mm_free_ptr) struct mm_histogram *gaps = calloc(1, sizeof(*gaps));
	struct metrics_gather g = { .slo = slo, .gaps = gaps };
	size_t requests = 0;

	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t t = 0; t < records[i]->c->tenants; t++)
			requests += records[i]->c->stream[t].n;
	}
	g.ttft = ttft = calloc(requests + 1, sizeof(*ttft));
	g.tpot = tpot = calloc(requests + 1, sizeof(*tpot));
	if (!gaps || !ttft || !tpot)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		gather_record(&g, records[i], tenant);
	gather_conclude(&g);
	*ret_metrics = g.m;
	return 0;
}
