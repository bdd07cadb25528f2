/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/metrics.h"

#define NS_PER_S 1e9

/* Bounds are 1, 2.5, 5, 10, 25, ... ms. */
static double bound_next(double bound, uint32_t i)
{
	return bound * (i % 3 == 0 ? 2.5 : 2);
}

void mm_latency_add(struct mm_latency *l, double seconds)
{
	double bound = 0.001;
	uint32_t i = 0;

	for (; i < MM_LATENCY_BUCKETS && seconds > bound; i++)
		bound = bound_next(bound, i);
	l->buckets[i]++;
	l->n++;
	l->sum += seconds;
}

static void metric_head(struct mm_buffer *b, const char *name, const char *type, const char *help)
{
	mm_buffer_printf(b, "# HELP mmserve_%s %s\n# TYPE mmserve_%s %s\n", name, help, name, type);
}

static void metric_one(struct mm_buffer *b, const char *name, const char *type, const char *help,
		       double value)
{
	metric_head(b, name, type, help);
	mm_buffer_printf(b, "mmserve_%s %.17g\n", name, value);
}

static void metric_latency(struct mm_buffer *b, const char *name, const char *help,
			   const struct mm_latency *l)
{
	double bound = 0.001;
	uint64_t below = 0;

	metric_head(b, name, "histogram", help);
	for (uint32_t i = 0; i < MM_LATENCY_BUCKETS; i++) {
		below += l->buckets[i];
		mm_buffer_printf(b, "mmserve_%s_bucket{le=\"%g\"} %llu\n", name, bound,
				 (unsigned long long)below);
		bound = bound_next(bound, i);
	}
	mm_buffer_printf(b,
			 "mmserve_%s_bucket{le=\"+Inf\"} %llu\nmmserve_%s_sum %.9g\n"
			 "mmserve_%s_count %llu\n",
			 name, (unsigned long long)l->n, name, l->sum, name,
			 (unsigned long long)l->n);
}

static uint64_t stat_get(const uint64_t *stat)
{
	return __atomic_load_n(stat, __ATOMIC_RELAXED);
}

static void metric_steps(struct mm_buffer *b, const struct mm_inbox_stats *s)
{
	uint64_t below = 0;

	metric_head(b, "step_seconds", "histogram", "Time of a step of the engine.");
	for (uint32_t i = 0; i + 1 < MM_STEP_BUCKETS; i++) {
		below += stat_get(&s->step_buckets[i]);
		mm_buffer_printf(b, "mmserve_step_seconds_bucket{le=\"%g\"} %llu\n",
				 (double)(MM_STEP_BUCKET_NS << i) / NS_PER_S,
				 (unsigned long long)below);
	}
	below += stat_get(&s->step_buckets[MM_STEP_BUCKETS - 1]);
	mm_buffer_printf(b,
			 "mmserve_step_seconds_bucket{le=\"+Inf\"} %llu\n"
			 "mmserve_step_seconds_sum %.9g\nmmserve_step_seconds_count %llu\n",
			 (unsigned long long)below, (double)stat_get(&s->step_ns) / NS_PER_S,
			 (unsigned long long)below);
}

static void metric_ends(struct mm_buffer *b, const struct mm_http_counts *c)
{
	static const char *const ends[] = { NULL,       "length",    "stop",    "cancelled",
					    "too_long", "no_memory", "shutdown" };

	metric_head(b, "requests_total", "counter", "Requests that the engine had, by their end.");
	for (uint32_t i = 1; i < MM_ARRAY_SIZE(ends); i++)
		mm_buffer_printf(b, "mmserve_requests_total{end=\"%s\"} %llu\n", ends[i],
				 (unsigned long long)c->ended[i]);
	metric_head(b, "answers_total", "counter", "Answers of HTTP, by the class of the status.");
	for (uint32_t i = 2; i < MM_ARRAY_SIZE(c->answers); i++)
		mm_buffer_printf(b, "mmserve_answers_total{status=\"%uxx\"} %llu\n", i,
				 (unsigned long long)c->answers[i]);
}

static void metric_engine(struct mm_buffer *b, const struct mm_inbox_stats *s)
{
	const struct {
		const char *name, *type, *help;
		const uint64_t *value;
	} all[] = {
		{ "requests_running", "gauge", "Requests in the batch.", &s->running },
		{ "requests_waiting", "gauge", "Requests that wait for memory or a place.",
		  &s->waiting },
		{ "output_tokens_total", "counter", "Tokens generated.", &s->tokens },
		{ "preemptions_total", "counter", "Times that a request lost its KV memory.",
		  &s->preemptions },
		{ "steps_void_total", "counter", "Steps that were computed again.",
		  &s->steps_void },
		{ "kv_chunks", "gauge", "Chunks of KV memory that are held.", &s->kv_chunks },
		{ "kv_blocks_free", "gauge", "Blocks of them that are free.", &s->kv_blocks_free },
		{ "cold_entries", "gauge", "Blocks in host memory that mmd streams.",
		  &s->cold_entries },
		{ "cold_blocks", "gauge", "Those that running requests read there.",
		  &s->cold_blocks },
		{ "cold_out_bytes_total", "counter", "Bytes of blocks copied to be streamed.",
		  &s->cold_out_bytes },
		{ "layers_away", "gauge", "Layers that mmd has lent to others.", &s->layers_away },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(all); i++)
		metric_one(b, all[i].name, all[i].type, all[i].help,
			   (double)stat_get(all[i].value));
}

void mm_metrics_write(struct mm_buffer *b, const struct mm_http_counts *c,
		      const struct mm_inbox_stats *engine, uint32_t connections)
{
	metric_ends(b, c);
	metric_one(b, "connections", "gauge", "Connections that are open.", connections);
	metric_one(b, "connections_total", "counter", "Connections that were let in.",
		   (double)c->connections);
	metric_one(b, "connections_refused_total", "counter", "Connections beyond the most.",
		   (double)c->refused);
	metric_one(b, "connections_slow_total", "counter",
		   "Connections closed for taking too long.", (double)c->slow);
	metric_one(b, "requests_refused_full_total", "counter",
		   "Requests refused because too many were open.", (double)c->full);
	metric_one(b, "prompt_tokens_total", "counter", "Tokens of the prompts that ended.",
		   (double)c->prompt_tokens);
	metric_latency(b, "time_to_first_token_seconds", "From arrival to the first token.",
		       &c->ttft);
	metric_latency(b, "time_per_output_token_seconds", "Mean time of a request's next tokens.",
		       &c->tpot);
	metric_latency(b, "request_seconds", "From arrival to the last token.", &c->whole);
	metric_steps(b, engine);
	metric_engine(b, engine);
}
