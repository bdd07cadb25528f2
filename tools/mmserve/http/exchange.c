/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/exchange.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/number.h"

#define BODIES_BYTES_MAX  (64u << 20) /* of all connections together */
#define COMPLETION_TOKENS 16u /* of a completion that gives no max_tokens, as OpenAI has it */
#define OUT_BYTES_MAX     (64u << 10) /* events that are written ahead of a slow client */

typedef enum MHD_Result route_fn(struct mm_exchange *x);

struct mm_route {
	const char *method, *url;
	route_fn *run;
	enum mm_ask_kind kind; /* of a POST */
	bool open;             /* without a key */
};

static route_fn run_health, run_models, run_metrics, run_generate, run_tokenize, run_detokenize;

static const struct mm_route routes[] = {
	{ "GET", "/health", run_health, 0, true },
	{ "GET", "/v1/models", run_models, 0, false },
	{ "GET", "/metrics", run_metrics, 0, false },
	{ "POST", "/v1/completions", run_generate, MM_ASK_COMPLETION, false },
	{ "POST", "/v1/chat/completions", run_generate, MM_ASK_CHAT, false },
	{ "POST", "/tokenize", run_tokenize, MM_ASK_TOKENIZE, false },
	{ "POST", "/detokenize", run_detokenize, MM_ASK_DETOKENIZE, false },
};

/* ---- answers ---- */

static enum MHD_Result queue_response(struct mm_exchange *x, int status,
				      struct MHD_Response *response, const char *type)
{
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
		MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	if (status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	r = MHD_queue_response(x->mhd, (unsigned int)status, response);
	MHD_destroy_response(response);
	x->answered = true;
	x->http->counts.answers[status / 100]++;
	return r;
}

/* Sends a text, which it takes. */
static enum MHD_Result answer_text(struct mm_exchange *x, int status, struct mm_buffer *b,
				   const char *type)
{
	struct MHD_Response *response = NULL;

	if (!b->failed)
		response = MHD_create_response_from_buffer(b->n, b->text ? b->text : (char *)"",
							   b->text ? MHD_RESPMEM_MUST_FREE
								   : MHD_RESPMEM_PERSISTENT);
	if (!response)
		mm_buffer_done(b);
	*b = (struct mm_buffer){ 0 };
	x->connection->deadline_ns = mm_now_ns() + x->http->opts.timeout_ns;
	return queue_response(x, status, response, type);
}

static enum MHD_Result answer_json(struct mm_exchange *x, int status, struct mm_buffer *b)
{
	return answer_text(x, status, b, "application/json");
}

static enum MHD_Result answer_refusal(struct mm_exchange *x, const struct mm_refusal *refusal)
{
	struct mm_buffer b = { 0 };

	mm_reply_refusal(&b, refusal);
	return answer_json(x, refusal->status, &b);
}

static enum MHD_Result MM_PRINTF(4, 5)
	answer_refuse(struct mm_exchange *x, int status, const char *param, const char *format, ...)
{
	struct mm_refusal refusal;
	char message[sizeof(refusal.message)];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	mm_ask_refuse(&refusal, status, param, "%s", message);
	return answer_refusal(x, &refusal);
}

/* ---- jobs ---- */

void mm_exchange_count(struct mm_http *h, const struct mm_job *job)
{
	const struct mm_request *q = &job->request;
	const uint32_t n = q->n_output;

	h->counts.ended[job->stopped ? MM_JOB_STOP : mm_job_end(job)]++;
	h->counts.prompt_tokens += q->n_prompt;
	if (!n)
		return;
	mm_latency_add(&h->counts.ttft, q->times[0] - q->arrival_s);
	mm_latency_add(&h->counts.whole, q->times[n - 1] - q->arrival_s);
	if (n > 1)
		mm_latency_add(&h->counts.tpot, (q->times[n - 1] - q->times[0]) / (n - 1));
}

void mm_exchange_free_job(struct mm_http *h, struct mm_job *job)
{
	h->open_jobs--;
	free(job->request.ids);
	free(job->request.times);
	free(job->logprobs);
	free(job);
}

static struct mm_job *job_make(const struct mm_exchange *x, const uint32_t *ids, size_t n,
			       uint32_t max_tokens)
{
	struct mm_job *job = calloc(1, sizeof(*job));
	struct mm_request *q = job ? &job->request : NULL;

	if (!job)
		return NULL;
	q->n_prompt = (uint32_t)n;
	q->max_tokens = max_tokens;
	q->ids = calloc(n + max_tokens, sizeof(*q->ids));
	q->times = calloc(max_tokens, sizeof(*q->times));
	job->sampling = x->ask.sampling;
	if (job->sampling.logprobs)
		job->logprobs = calloc(max_tokens, sizeof(*job->logprobs));
	if (!q->ids || !q->times || (job->sampling.logprobs && !job->logprobs)) {
		free(q->ids);
		free(q->times);
		free(job->logprobs);
		free(job);
		return NULL;
	}
	memcpy(q->ids, ids, n * sizeof(*ids));
	snprintf(q->id, sizeof(q->id), "%s", x->reply.id);
	for (uint32_t i = 0; i < x->http->opts.n_ends && !x->ask.ignore_eos; i++)
		job->ends[job->n_ends++] = x->http->opts.ends[i];
	for (uint32_t i = 0; i < x->ask.n_stop_ids; i++)
		job->ends[job->n_ends++] = x->ask.stop_ids[i];
	if (!x->ask.seeded)
		(void)!getrandom(&job->sampling.seed, sizeof(job->sampling.seed), 0);
	return job;
}

static void exchange_wait(struct mm_exchange *x)
{
	struct mm_http *h = x->http;

	x->before = NULL;
	x->next = h->waiting;
	if (h->waiting)
		h->waiting->before = x;
	h->waiting = x;
	h->open_jobs++;
	x->connection->deadline_ns = 0;
	x->job->arrival_ns = mm_now_ns();
	mm_inbox_push(h->opts.inbox, x->job);
}

static void exchange_unlink(struct mm_exchange *x)
{
	if (x->next)
		x->next->before = x->before;
	if (x->before)
		x->before->next = x->next;
	else
		x->http->waiting = x->next;
}

static void exchange_suspend(struct mm_exchange *x)
{
	x->suspended = true;
	MHD_suspend_connection(x->mhd);
}

/* Notes that the engine has given the job back, once. */
static void job_look(struct mm_exchange *x)
{
	if (x->job_over || mm_job_end(x->job) == MM_JOB_OPEN)
		return;
	x->job_over = true;
	mm_exchange_count(x->http, x->job);
	/* The rest of the answer is to be taken within this time. */
	x->connection->deadline_ns = mm_now_ns() + x->http->opts.timeout_ns;
}

/* Whether there are tokens that must be looked at now: to be sent, or for a stop string in them. */
static bool has_news(const struct mm_exchange *x)
{
	return (x->ask.stream || x->ask.n_stops) && mm_job_published(x->job) != x->taken;
}

void mm_exchange_advance(struct mm_exchange *x)
{
	job_look(x);
	if (x->connection->hung && !x->job_over && !x->job->cancelled)
		mm_inbox_cancel(x->http->opts.inbox, x->job);
	if (!x->suspended || (!x->job_over && !x->connection->hung && !has_news(x)))
		return;
	x->suspended = false;
	MHD_resume_connection(x->mhd);
}

/* ---- tokens to text ---- */

/* The token that ended the output is no text. */
static bool is_end_token(const struct mm_job *job, uint32_t id)
{
	for (uint32_t i = 0; i < job->n_ends; i++)
		if (job->ends[i] == id)
			return true;
	return false;
}

/* Makes text of the tokens that were published. A stop string cancels the rest. */
static void exchange_take(struct mm_exchange *x)
{
	const uint32_t n = mm_job_published(x->job);
	const uint32_t *ids = x->job->request.ids + x->job->request.n_prompt;

	for (; x->taken < n && !x->stopped; x->taken++) {
		if (!is_end_token(x->job, ids[x->taken]))
			mm_output_add(&x->output, ids[x->taken]);
		x->stopped = x->output.stopped;
	}
	if (x->stopped && !x->job->stopped) {
		x->job->stopped = true;
		if (!x->job_over)
			mm_inbox_cancel(x->http->opts.inbox, x->job);
	}
	if (x->job_over && !x->stopped)
		mm_output_end(&x->output);
}

static bool exchange_is_over(const struct mm_exchange *x)
{
	return x->job_over || x->stopped;
}

/* Return: true if the job ended otherwise than by its tokens; the refusal is written. */
static bool exchange_failed(const struct mm_exchange *x, struct mm_refusal *refusal)
{
	const enum mm_job_end end = x->stopped ? MM_JOB_STOP : mm_job_end(x->job);

	if (end == MM_JOB_REFUSED)
		mm_ask_refuse(refusal, 400, "max_tokens", "%s", x->job->request.error);
	else if (end == MM_JOB_STARVED)
		mm_ask_refuse(refusal, 503, NULL, "%s", x->job->request.error);
	else if (end == MM_JOB_ABORTED || end == MM_JOB_CANCELLED)
		mm_ask_refuse(refusal, 503, NULL, "the server is shutting down");
	else
		return false;
	return true;
}

static const char *finish_reason(const struct mm_exchange *x)
{
	if (!exchange_is_over(x))
		return NULL;
	return x->stopped || mm_job_end(x->job) == MM_JOB_STOP ? "stop" : "length";
}

static struct mm_part exchange_part(const struct mm_exchange *x)
{
	return (struct mm_part){ .text = x->output.text.text ? x->output.text.text : "",
				 .bytes = x->output.ready,
				 .from = x->written,
				 .to = x->taken,
				 .offset = x->characters,
				 .finish = finish_reason(x),
				 .usage = x->ask.each_usage };
}

static void events_end(struct mm_exchange *x)
{
	struct mm_refusal refusal;

	x->finished = true;
	if (exchange_failed(x, &refusal))
		mm_reply_broken(&x->out, &refusal);
	else if (x->ask.include_usage)
		mm_reply_usage(&x->out, &x->reply, x->taken);
	mm_reply_end(&x->out);
}

/* Writes events of the tokens that there are. */
static void events_write(struct mm_exchange *x)
{
	struct mm_refusal refusal;
	struct mm_part part;

	job_look(x);
	exchange_take(x);
	part = exchange_part(x);
	if ((part.to > part.from || part.finish) &&
	    !(part.finish && exchange_failed(x, &refusal))) {
		mm_reply_event(&x->out, &x->reply, &part, !x->began);
		x->began = true;
		x->written = part.to;
		x->characters += mm_reply_characters(part.text, part.bytes);
		mm_output_taken(&x->output);
	}
	if (exchange_is_over(x))
		events_end(x);
}

/* libmicrohttpd's callback: the next bytes of a stream. */
static ssize_t stream_read(void *context, uint64_t at, char *out, size_t room)
{
	struct mm_exchange *x = context;
	size_t n;

	(void)at;
	if (x->connection->hung)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (!x->finished && x->out.n < OUT_BYTES_MAX)
		events_write(x);
	if (x->out.failed)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	n = MM_MIN(x->out.n, room);
	if (n) {
		memcpy(out, x->out.text, n);
		mm_buffer_drop(&x->out, n);
		return (ssize_t)n;
	}
	if (x->finished)
		return MHD_CONTENT_READER_END_OF_STREAM;
	exchange_suspend(x);
	return 0;
}

static enum MHD_Result stream_begin(struct mm_exchange *x)
{
	struct MHD_Response *response =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, stream_read, x, NULL);

	if (response)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
	return queue_response(x, 200, response, "text/event-stream; charset=utf-8");
}

/* A request that is not a stream was resumed. */
static enum MHD_Result whole_continue(struct mm_exchange *x)
{
	struct mm_buffer b = { 0 };
	struct mm_refusal refusal;
	struct mm_part part;

	job_look(x);
	if (x->connection->hung)
		return MHD_NO;
	exchange_take(x);
	if (!exchange_is_over(x)) {
		exchange_suspend(x);
		return MHD_YES;
	}
	if (exchange_failed(x, &refusal))
		return answer_refusal(x, &refusal);
	part = exchange_part(x);
	mm_reply_whole(&b, &x->reply, &part);
	return answer_json(x, 200, &b);
}

/* ---- routes ---- */

static enum MHD_Result run_health(struct mm_exchange *x)
{
	struct mm_buffer b = { 0 };

	mm_buffer_puts(&b, "{\"status\":\"ok\"}\n");
	return answer_json(x, 200, &b);
}

static enum MHD_Result run_models(struct mm_exchange *x)
{
	struct mm_buffer b = { 0 };

	mm_reply_models(&b, x->http->opts.model, x->http->created, x->http->opts.inbox->tokens_max);
	return answer_json(x, 200, &b);
}

static enum MHD_Result run_metrics(struct mm_exchange *x)
{
	struct mm_buffer b = { 0 };

	mm_metrics_write(&b, &x->http->counts, &x->http->opts.inbox->stats, x->http->n_connections);
	return answer_text(x, 200, &b, "text/plain; version=0.0.4; charset=utf-8");
}

/* Reads the body. Return: whether it can be used; else it is answered, by *@ret. */
static bool body_read(struct mm_exchange *x, enum MHD_Result *ret)
{
	const struct mm_http_opts *o = &x->http->opts;
	const struct mm_ask_limits limits = { o->model, o->inbox->vocab, o->inbox->tokens_max };
	struct mm_refusal refusal;
	const int r = mm_ask_read(x->route->kind, x->body.text ? x->body.text : "", x->body.n,
				  &limits, &x->ask, &refusal);

	x->http->bodies_bytes -= x->body.n;
	mm_buffer_done(&x->body);
	if (!r)
		return true;
	*ret = r < 0 ? answer_refuse(x, 503, NULL, "out of memory") : answer_refusal(x, &refusal);
	return false;
}

/* Makes token ids of a text. Return: as body_read(). */
static bool text_encode(struct mm_exchange *x, enum MHD_Result *ret)
{
	const struct mm_http_opts *o = &x->http->opts;
	const char *field = x->ask.kind == MM_ASK_CHAT ? "messages" : "prompt";
	char err[MM_VOCAB_ERROR_BYTES];

	if (!x->ask.text)
		return true;
	if (!o->vocab) {
		*ret = answer_refuse(x, 400, field, "%s", o->no_text);
		return false;
	}
	if (!mm_vocab_encode(o->vocab, x->ask.text, x->ask.special, &x->ask.ids, &x->ask.n_ids,
			     err))
		return true;
	*ret = answer_refuse(x, 400, field, "%s", err);
	return false;
}

/* Return: as body_read(). */
static bool lengths_check(struct mm_exchange *x, enum MHD_Result *ret)
{
	const uint32_t most = x->http->opts.inbox->tokens_max;
	const size_t n = x->ask.n_ids;

	if (!n)
		*ret = answer_refuse(x, 400, "prompt", "the prompt has no tokens");
	else if (n >= most)
		*ret = answer_refuse(x, 400, "prompt",
				     "the prompt has %zu tokens, the most of prompt and output "
				     "together are %u",
				     n, most);
	else if (x->ask.max_tokens > most - n)
		*ret = answer_refuse(x, 400, "max_tokens",
				     "prompt (%zu tokens) and max_tokens (%u) are more than %u", n,
				     x->ask.max_tokens, most);
	else
		return true;
	return false;
}

static void reply_prepare(struct mm_exchange *x)
{
	struct mm_http *h = x->http;
	const bool chat = x->ask.kind == MM_ASK_CHAT;

	x->reply = (struct mm_reply){ .kind = x->ask.kind,
				      .created = time(NULL),
				      .model = h->opts.model,
				      .ids = x->ask.return_ids,
				      .logprobs = x->ask.sampling.logprobs,
				      .vocab = h->opts.vocab };
	snprintf(x->reply.id, sizeof(x->reply.id), "%s-%016llx", chat ? "chatcmpl" : "cmpl",
		 (unsigned long long)mm_random_mix(h->id_salt + h->ids++));
	x->output = (struct mm_output){ .vocab = h->opts.vocab,
					.stops = x->ask.stops,
					.n_stops = x->ask.n_stops,
					.at_start = chat };
}

static enum MHD_Result run_generate(struct mm_exchange *x)
{
	struct mm_http *h = x->http;
	const bool chat = x->route->kind == MM_ASK_CHAT;
	enum MHD_Result r;
	uint32_t tokens;

	if (!body_read(x, &r))
		return r;
	if (chat && h->opts.no_chat)
		return answer_refuse(x, 400, "messages", "%s", h->opts.no_chat);
	if (!text_encode(x, &r) || !lengths_check(x, &r))
		return r;
	if (x->ask.n_stops && !h->opts.vocab)
		return answer_refuse(x, 400, "stop", "%s", h->opts.no_text);
	if (__atomic_load_n(&h->stop, __ATOMIC_ACQUIRE))
		return answer_refuse(x, 503, NULL, "the server is shutting down");
	if (h->open_jobs >= h->opts.inbox->jobs_max) {
		h->counts.full++;
		return answer_refuse(x, 429, NULL, "%u requests run or wait, which is the most",
				     h->open_jobs);
	}
	tokens = h->opts.inbox->tokens_max - (uint32_t)x->ask.n_ids;
	if (x->ask.max_tokens)
		tokens = x->ask.max_tokens;
	else if (!chat)
		tokens = MM_MIN(tokens, COMPLETION_TOKENS);
	reply_prepare(x);
	x->job = job_make(x, x->ask.ids, x->ask.n_ids, tokens);
	if (!x->job)
		return answer_refuse(x, 503, NULL, "out of memory");
	x->reply.job = x->job;
	exchange_wait(x);
	if (x->ask.stream)
		return stream_begin(x);
	exchange_suspend(x);
	return MHD_YES;
}

static enum MHD_Result run_tokenize(struct mm_exchange *x)
{
	struct mm_buffer b = { 0 };
	enum MHD_Result r;

	if (!body_read(x, &r) || !text_encode(x, &r))
		return r;
	mm_reply_tokens(&b, x->ask.ids, x->ask.n_ids, x->http->opts.inbox->tokens_max);
	return answer_json(x, 200, &b);
}

static enum MHD_Result run_detokenize(struct mm_exchange *x)
{
	struct mm_output output = { .vocab = x->http->opts.vocab, .at_start = true };
	struct mm_buffer b = { 0 };
	enum MHD_Result r;

	if (!body_read(x, &r))
		return r;
	if (!output.vocab)
		return answer_refuse(x, 400, "tokens", "%s", x->http->opts.no_text);
	for (size_t i = 0; i < x->ask.n_ids; i++)
		mm_output_add(&output, x->ask.ids[i]);
	mm_output_end(&output);
	mm_reply_text(&b, output.text.text ? output.text.text : "", output.ready);
	b.failed = b.failed || output.text.failed;
	mm_output_done(&output);
	return answer_json(x, 200, &b);
}

/* ---- requests, in parts ---- */

static const struct mm_route *find_route(const char *method, const char *url, bool *ret_known)
{
	const bool head = !strcmp(method, "HEAD");

	*ret_known = false;
	for (size_t i = 0; i < MM_ARRAY_SIZE(routes); i++) {
		if (strcmp(routes[i].url, url) != 0)
			continue;
		*ret_known = true;
		if (!strcmp(routes[i].method, head ? "GET" : method))
			return &routes[i];
	}
	return NULL;
}

static const char *find_header(const struct mm_exchange *x, const char *name)
{
	return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

static bool is_json(const char *type)
{
	static const char json[] = "application/json";

	if (!type || strncasecmp(type, json, sizeof(json) - 1) != 0)
		return false;
	return !type[sizeof(json) - 1] || strchr("; ", type[sizeof(json) - 1]);
}

/* Looks at the headers. Return: MHD_YES; what is wrong is answered. */
static enum MHD_Result headers_check(struct mm_exchange *x, const char *method, const char *url)
{
	const struct mm_http_opts *o = &x->http->opts;
	const char *length = find_header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
	uint64_t bytes = 0;
	bool known;

	x->route = find_route(method, url, &known);
	if (!(x->route && x->route->open) &&
	    !mm_keys_allow(o->keys, find_header(x, MHD_HTTP_HEADER_AUTHORIZATION)))
		return answer_refuse(x, 401, NULL, "the API key is missing or wrong");
	if (!known)
		return answer_refuse(x, 404, NULL, "there is no %.100s here", url);
	if (!x->route)
		return answer_refuse(x, 405, NULL, "%.20s is not for %.100s", method, url);
	if (length && mm_number_parse(length, &bytes))
		bytes = UINT64_MAX;
	if (bytes > o->body_max)
		return answer_refuse(x, 413, NULL, "the body is longer than %llu bytes",
				     (unsigned long long)o->body_max);
	if (!strcmp(x->route->method, "POST") &&
	    !is_json(find_header(x, MHD_HTTP_HEADER_CONTENT_TYPE)))
		return answer_refuse(x, 415, NULL, "the body must be of type application/json");
	return MHD_YES;
}

static enum MHD_Result exchange_begin(struct mm_http *h, struct MHD_Connection *mhd,
				      const char *method, const char *url, void **context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct mm_connection *connection = info ? info->socket_context : NULL;
	struct mm_exchange *x = connection ? calloc(1, sizeof(*x)) : NULL;

	if (!x)
		return MHD_NO;
	*x = (struct mm_exchange){ .http = h, .mhd = mhd, .connection = connection };
	connection->exchange = x;
	connection->deadline_ns = mm_now_ns() + h->opts.timeout_ns;
	*context = x;
	return headers_check(x, method, url);
}

/* Return: MHD_NO: the connection is to be closed. */
static enum MHD_Result body_add(struct mm_exchange *x, const char *data, size_t bytes)
{
	struct mm_http *h = x->http;

	if (x->answered)
		return MHD_YES;
	if (x->dropped || bytes > h->opts.body_max - x->body.n ||
	    h->bodies_bytes + bytes > BODIES_BYTES_MAX) {
		/* No answer can be queued before the end of the body. */
		x->dropped += bytes;
		return x->dropped > 4 * h->opts.body_max ? MHD_NO : MHD_YES;
	}
	mm_buffer_put(&x->body, data, bytes);
	if (x->body.failed)
		return MHD_NO;
	h->bodies_bytes += bytes;
	return MHD_YES;
}

enum MHD_Result mm_exchange_handle(void *http, struct MHD_Connection *mhd, const char *url,
				   const char *method, const char *version, const char *data,
				   size_t *data_bytes, void **context)
{
	struct mm_http *h = http;
	struct mm_exchange *x = *context;
	enum MHD_Result r;

	(void)version;
	if (!x)
		return exchange_begin(h, mhd, method, url, context);
	if (*data_bytes) {
		r = body_add(x, data, *data_bytes);
		*data_bytes = 0;
		return r;
	}
	if (x->answered)
		return MHD_YES;
	if (x->job)
		return whole_continue(x);
	if (x->dropped)
		return answer_refuse(x, 413, NULL, "the body is longer than %llu bytes",
				     (unsigned long long)h->opts.body_max);
	return x->route->run(x);
}

void mm_exchange_end(void *http, struct MHD_Connection *mhd, void **context,
		     enum MHD_RequestTerminationCode how)
{
	struct mm_http *h = http;
	struct mm_exchange *x = *context;

	(void)mhd;
	(void)how;
	if (!x)
		return;
	if (x->job) {
		job_look(x);
		exchange_unlink(x);
		if (x->job_over) {
			mm_exchange_free_job(h, x->job);
		} else {
			mm_inbox_cancel(h->opts.inbox, x->job);
			x->job->left = h->left;
			h->left = x->job;
		}
	}
	x->connection->exchange = NULL;
	x->connection->served = true;
	/* For the next request of this connection. */
	x->connection->deadline_ns = mm_now_ns() + h->opts.timeout_ns;
	h->bodies_bytes -= x->body.n;
	mm_buffer_done(&x->body);
	mm_buffer_done(&x->out);
	mm_output_done(&x->output);
	mm_ask_done(&x->ask);
	free(x);
	*context = NULL;
}
