/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/results.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "libclient/base/percentile.h"

int mm_results_init(struct mm_results *results, size_t tenants)
{
	*results = (struct mm_results){ .tenant = calloc(tenants, sizeof(*results->tenant)) };
	if (!results->tenant)
		return -ENOMEM;
	results->n = tenants;
	return 0;
}

void mm_results_done(struct mm_results *results)
{
	for (size_t t = 0; t < results->n; t++) {
		for (size_t r = 0; r < results->tenant[t].n; r++) {
			free(results->tenant[t].request[r].id);
			free(results->tenant[t].request[r].time_s);
		}
		free(results->tenant[t].request);
	}
	free(results->tenant);
	*results = (struct mm_results){ 0 };
}

static int take_tokens(struct mm_result_request *request, const json_t *ids, const json_t *times)
{
	size_t n = json_array_size(ids);

	if (json_array_size(times) != n)
		return -EBADMSG;
	request->id = calloc(n + 1, sizeof(*request->id));
	request->time_s = calloc(n + 1, sizeof(*request->time_s));
	if (!request->id || !request->time_s)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const json_t *time = json_array_get(times, i);
		uint64_t id;

		if (!mm_json_is_whole(json_array_get(ids, i), 0, UINT32_MAX, &id) ||
		    !json_is_number(time))
			return -EBADMSG;
		request->id[i] = (uint32_t)id;
		request->time_s[i] = json_number_value(time);
	}
	request->n = n;
	return 0;
}

static int take_request(struct mm_results_tenant *tenant, const json_t *line)
{
	const json_t *arrival = json_object_get(line, "arrival_s");
	struct mm_result_request *request;
	uint64_t index; /* row in the trace, from 0 */

	if (!tenant->n || !mm_json_is_whole(json_object_get(line, "id"), 0, tenant->n - 1, &index))
		return -EBADMSG;
	request = &tenant->request[index];
	if (!json_is_number(arrival) || request->id)
		return -EBADMSG;
	request->arrival_s = json_number_value(arrival);
	return take_tokens(request, json_object_get(line, "ids"), json_object_get(line, "times"));
}

static int summary_take(struct mm_results_tenant *tenant, const json_t *line)
{
	const json_t *summary = json_object_get(line, "summary");

	if (tenant->complete)
		return -EBADMSG;
	if (!summary)
		return take_request(tenant, line);
	tenant->preemptions = mm_json_u64(summary, "preemptions");
	tenant->steps = mm_json_u64(summary, "steps");
	tenant->swapped_out_bytes = mm_json_u64(summary, "swapped_out_bytes");
	tenant->swapped_in_bytes = mm_json_u64(summary, "swapped_in_bytes");
	tenant->checksum_failures = mm_json_u64(summary, "checksum_failures");
	tenant->stall_p99_s = mm_json_real(summary, "stall_p99_s");
	tenant->stall_total_s = mm_json_real(summary, "stall_total_s");
	tenant->complete = true;
	return 0;
}

int mm_results_read(struct mm_results *results, size_t tenant, size_t rows, const char *path,
		    char *errbuf, size_t errbuf_bytes)
{
	struct mm_results_tenant *into = &results->tenant[tenant];
	mm_cleanup(mm_close_file) FILE *file = fopen(path, "re");
	mm_cleanup(mm_free_ptr) char *text = NULL;
	size_t room = 0;

	if (!file) {
		snprintf(errbuf, errbuf_bytes, "%s: cannot open: %m", path);
		return -errno;
	}
	into->request = calloc(rows + 1, sizeof(*into->request));
	if (!into->request)
		return -ENOMEM;
	into->n = rows;
	for (unsigned long line = 1; getline(&text, &room, file) > 0; line++) {
		mm_cleanup(mm_json_done) json_t *json = json_loads(text, 0, NULL);
		int r = summary_take(into, json);

		if (r) {
			text[strcspn(text, "\n")] = '\0';
			snprintf(errbuf, errbuf_bytes, "%s:%lu: not a request's result: %.80s",
				 path, line, text);
			return r;
		}
	}
	if (into->complete)
		return 0;
	snprintf(errbuf, errbuf_bytes, "%s: ends without a summary", path);
	return -EBADMSG;
}

static uint64_t request_mismatches(const struct mm_result_request *a,
				   const struct mm_result_request *b)
{
	size_t common = MM_MIN(a->n, b->n);
	uint64_t different = MM_MAX(a->n, b->n) - common;

	for (size_t i = 0; i < common; i++)
		different += a->id[i] != b->id[i];
	/* A request that both runs lack counts as a mismatch, because it was not compared. */
	return a->n || b->n ? different : 1;
}

uint64_t mm_results_mismatches(const struct mm_results *a, const struct mm_results *b)
{
	uint64_t different = 0;

	mm_assert(a->n == b->n);
	for (size_t t = 0; t < a->n; t++) {
		mm_assert(a->tenant[t].n == b->tenant[t].n);
		for (size_t r = 0; r < a->tenant[t].n; r++)
			different += request_mismatches(&a->tenant[t].request[r],
							&b->tenant[t].request[r]);
	}
	return different;
}

struct latency_gather {
	double *ttft, *tbt;
	size_t n_ttft, n_tbt;
	double first_s, last_s;
};

static void request_gather(struct latency_gather *g, const struct mm_result_request *request)
{
	if (!request->n)
		return;
	g->ttft[g->n_ttft++] = request->time_s[0] - request->arrival_s;
	for (size_t i = 1; i < request->n; i++)
		g->tbt[g->n_tbt++] = request->time_s[i] - request->time_s[i - 1];
	g->first_s = fmin(g->first_s, request->arrival_s);
	g->last_s = fmax(g->last_s, request->time_s[request->n - 1]);
}

int mm_results_latency(const struct mm_results *results, struct mm_latency *ret_latency)
{
	mm_cleanup(mm_free_ptr) double *ttft = NULL, *tbt = NULL;
	struct latency_gather g = { .first_s = INFINITY, .last_s = -INFINITY };
	struct mm_latency latency = { 0 };

	for (size_t t = 0; t < results->n; t++) {
		for (size_t r = 0; r < results->tenant[t].n; r++) {
			latency.requests += results->tenant[t].request[r].n != 0;
			latency.tokens += results->tenant[t].request[r].n;
		}
	}
	g.ttft = ttft = calloc(latency.requests + 1, sizeof(*ttft));
	g.tbt = tbt = calloc(latency.tokens + 1, sizeof(*tbt));
	if (!ttft || !tbt)
		return -ENOMEM;
	for (size_t t = 0; t < results->n; t++) {
		for (size_t r = 0; r < results->tenant[t].n; r++)
			request_gather(&g, &results->tenant[t].request[r]);
	}
	if (g.last_s > g.first_s)
		latency.throughput_tok_s = (double)latency.tokens / (g.last_s - g.first_s);
	latency.ttft_p50_s = mm_percentile(ttft, g.n_ttft, 50);
	latency.ttft_p99_s = mm_percentile(ttft, g.n_ttft, 99);
	latency.tbt_p50_s = mm_percentile(tbt, g.n_tbt, 50);
	latency.tbt_p99_s = mm_percentile(tbt, g.n_tbt, 99);
	*ret_latency = latency;
	return 0;
}
