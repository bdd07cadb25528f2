/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/event.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/knobs.h"

static_assert(MM_SWAP_PIECES * sizeof(struct mm_swap_piece) <=
		      (MM_LAYERS_MAX + 1) * sizeof(struct mm_core_group),
	      "a list of pieces fits into MM_EVENT_BYTES_MAX");
static_assert(sizeof(struct mm_tenant_stats) <= (MM_LAYERS_MAX + 1) * sizeof(struct mm_core_group),
	      "statistics fit into MM_EVENT_BYTES_MAX");
static_assert(sizeof(struct mm_core_group) == 16, "no padding");

static const char *const event_names[MM_EVENT_KINDS] = {
	[MM_EVENT_NONE] = "none",
	[MM_EVENT_TICK] = "tick",
	[MM_EVENT_RESTARTED] = "restarted",
	[MM_EVENT_XFER_UP] = "xfer-up",
	[MM_EVENT_XFER_DOWN] = "xfer-down",
	[MM_EVENT_XFER_FAULT] = "xfer-fault",
	[MM_EVENT_JOB_DONE] = "job-done",
	[MM_EVENT_MEMORY_ERROR] = "memory-error",
	[MM_EVENT_JOIN] = "join",
	[MM_EVENT_DISCONNECT] = "disconnect",
	[MM_EVENT_DEAD] = "dead",
	[MM_EVENT_STOPPED_CHECKED] = "stopped-checked",
	[MM_EVENT_REQUEST] = "request",
	[MM_EVENT_STATS] = "stats",
	[MM_EVENT_SWAP_OPEN] = "swap-open",
	[MM_EVENT_SWAP_FAILED] = "swap-failed",
	[MM_EVENT_SWAP] = "swap",
	[MM_EVENT_MODEL] = "model",
	[MM_EVENT_STREAMED] = "streamed",
	[MM_EVENT_RANK_BEGIN] = "rank-begin",
	[MM_EVENT_RANK_ORDER] = "rank-order",
	[MM_EVENT_PLAN_SET] = "plan-set",
	[MM_EVENT_ACCOUNT_ADD] = "account-add",
	[MM_EVENT_QUOTA_SET] = "quota-set",
	[MM_EVENT_STEER] = "steer",
	[MM_EVENT_PAGE_UNHELD] = "page-unheld",
	[MM_EVENT_TUNE] = "tune",
	[MM_EVENT_COLD_SET] = "cold-set",
	[MM_EVENT_COLD_LIVE] = "cold-live",
};

const char *mm_event_name(enum mm_event_kind kind)
{
	return (uint32_t)kind < MM_EVENT_KINDS ? event_names[kind] : "?";
}

bool mm_event_is_of_tenant(enum mm_event_kind kind)
{
	switch (kind) {
	case MM_EVENT_NONE:
	case MM_EVENT_TICK:
	case MM_EVENT_RESTARTED:
	case MM_EVENT_XFER_UP:
	case MM_EVENT_XFER_DOWN:
	case MM_EVENT_XFER_FAULT:
	case MM_EVENT_JOB_DONE:
	case MM_EVENT_MEMORY_ERROR:
	case MM_EVENT_JOIN:
	case MM_EVENT_ACCOUNT_ADD:
	case MM_EVENT_QUOTA_SET:
	case MM_EVENT_PAGE_UNHELD:
		return false;
	default:
		return true;
	}
}

/* ---- the call ---- */

/* Calls the functions for xfer, the device, the operator, and time. */
static int event_call_other(struct mm_core *c, const struct mm_event *e,
			    struct mm_event_result *ret)
{
	switch (e->kind) {
	case MM_EVENT_TICK:
		mm_core_on_tick(c, e->now_ns);
		return 0;
	case MM_EVENT_RESTARTED:
		mm_core_on_restarted(c, e->now_ns);
		return 0;
	case MM_EVENT_XFER_UP:
		mm_core_on_xfer_up(c, e->now_ns, e->xfer_epoch);
		return 0;
	case MM_EVENT_XFER_DOWN:
		mm_core_on_xfer_down(c, e->now_ns);
		return 0;
	case MM_EVENT_XFER_FAULT:
		mm_core_on_xfer_fault(c, e->now_ns);
		return 0;
	case MM_EVENT_JOB_DONE:
		return mm_core_on_job_done(c, e->now_ns, e->job.id, e->job.result);
	case MM_EVENT_MEMORY_ERROR:
		mm_core_on_memory_error(c, e->now_ns);
		return 0;
	case MM_EVENT_PAGE_UNHELD:
		mm_core_on_page_unheld(c, e->now_ns, e->page);
		return 0;
	case MM_EVENT_JOIN:
		return mm_core_on_join(c, e->now_ns, &e->join, &ret->tenant);
	case MM_EVENT_PLAN_SET:
		return mm_core_plan_set(c, e->now_ns, e->tenant, e->plan.alpha, e->plan.slots,
					&ret->max);
	case MM_EVENT_ACCOUNT_ADD:
		return mm_core_account_add(c, e->quota.account, e->quota.domain, &e->quota.quota);
	case MM_EVENT_QUOTA_SET:
		return (int)mm_core_quota_set(c, e->now_ns, e->quota.account, e->quota.revision,
					      &e->quota.quota);
	case MM_EVENT_STEER:
		return mm_core_steer(c, e->now_ns, e->tenant, e->steer.how, e->steer.until_ns,
				     &ret->pages);
	case MM_EVENT_TUNE:
		return mm_core_tune(c, e->now_ns, &e->tune);
	case MM_EVENT_COLD_SET:
		return mm_core_cold_set(c, e->now_ns, e->tenant, e->cold_limit, &ret->max);
	default:
		mm_panic("an event of no kind", __FILE__, __LINE__);
	}
}

void mm_core_event(struct mm_core *c, const struct mm_event *e, struct mm_event_result *ret)
{
	*ret = (struct mm_event_result){ 0 };
	switch (e->kind) {
	case MM_EVENT_DISCONNECT:
		mm_core_on_disconnect(c, e->now_ns, e->tenant);
		break;
	case MM_EVENT_DEAD:
		mm_core_on_dead(c, e->now_ns, e->tenant);
		break;
	case MM_EVENT_STOPPED_CHECKED:
		mm_core_on_stopped_checked(c, e->now_ns, e->tenant, e->stopped);
		break;
	case MM_EVENT_REQUEST:
		ret->r = mm_core_on_request(c, e->now_ns, e->tenant, &e->msg);
		break;
	case MM_EVENT_STATS:
		mm_core_on_stats(c, e->now_ns, e->tenant, e->stats);
		break;
	case MM_EVENT_SWAP_OPEN:
		ret->r = mm_core_on_swap_open(c, e->now_ns, e->tenant, e->swap_bytes);
		break;
	case MM_EVENT_SWAP_FAILED:
		mm_core_on_swap_failed(c, e->tenant);
		break;
	case MM_EVENT_SWAP:
		ret->r = mm_core_on_swap(c, e->now_ns, e->tenant, &e->msg, e->pieces);
		break;
	case MM_EVENT_MODEL:
		ret->r = mm_core_on_model(c, e->now_ns, e->tenant, e->model.store,
					  e->model.store_bytes, e->groups, e->model.n_groups);
		break;
	case MM_EVENT_COLD_LIVE:
		mm_core_on_cold_live(c, e->tenant, e->cold_live);
		break;
	case MM_EVENT_STREAMED:
		mm_core_on_streamed(c, e->tenant, e->layer_ns);
		break;
	case MM_EVENT_RANK_BEGIN:
		ret->r = mm_core_rank_begin(c, e->tenant);
		break;
	case MM_EVENT_RANK_ORDER:
		mm_core_rank_order(c, e->now_ns, e->tenant, &e->rank);
		break;
	default:
		ret->r = event_call_other(c, e, ret);
	}
}

/* ---- packed ---- */

/* Each of the three modes has its own code, without questions about the mode. */
#define WALK inline __attribute__((always_inline))

/*
 * One walk over the fields of an event counts, writes or reads them. Everything is in words of 8
 * bytes, so that lists are aligned and no byte is left over.
 */
struct walk {
	enum { WALK_COUNTS, WALK_WRITES, WALK_READS } mode;
	uint64_t *to;         /* WALK_WRITES */
	const uint64_t *from; /* WALK_READS */
	size_t n, words;      /* words that were walked; WALK_READS: that there are */
	bool bad;
};

/* Returns the word as it was written, or @value: the one to be written. */
static WALK uint64_t walk_word(struct walk *w, uint64_t value)
{
	const size_t at = w->n++;

	if (w->mode == WALK_WRITES)
		w->to[at] = value;
	if (w->mode != WALK_READS)
		return value;
	if (at < w->words)
		return w->from[at];
	w->bad = true;
	return 0;
}

static WALK void walk_u64(struct walk *w, uint64_t *value)
{
	*value = walk_word(w, *value);
}

/* A word that is at most @max. */
static WALK uint64_t walk_bounded(struct walk *w, uint64_t value, uint64_t max)
{
	uint64_t got = walk_word(w, value);

	if (got <= max)
		return got;
	w->bad = true;
	return 0;
}

static WALK void walk_u32(struct walk *w, uint32_t *value)
{
	*value = (uint32_t)walk_bounded(w, *value, UINT32_MAX);
}

static WALK void walk_i32(struct walk *w, int32_t *value)
{
	*value = (int32_t)walk_bounded(w, (uint32_t)*value, UINT32_MAX);
}

static WALK void walk_bool(struct walk *w, bool *value)
{
	*value = walk_bounded(w, *value, 1) != 0;
}

/* Walks over @bytes, a multiple of 8. Returns where they are when they are read; else NULL. */
static WALK const void *walk_bytes(struct walk *w, const void *bytes_at, size_t bytes)
{
	const size_t at = w->n, words = bytes / 8;

	w->n += words;
	if (w->mode == WALK_WRITES)
		memcpy(w->to + at, bytes_at, bytes);
	if (w->mode != WALK_READS)
		return NULL;
	if (!w->bad && at <= w->words && words <= w->words - at)
		return w->from + at;
	w->bad = true;
	return NULL;
}

static WALK void walk_msg(struct walk *w, struct mm_msg *msg)
{
	const void *at = walk_bytes(w, msg, sizeof(*msg));

	if (at)
		memcpy(msg, at, sizeof(*msg));
}

static WALK void walk_quota(struct walk *w, struct mm_core_quota *q)
{
	walk_u64(w, &q->min_pages);
	walk_u64(w, &q->max_pages);
	walk_u32(w, &q->weight);
	walk_u32(w, &q->priority);
	q->on_timeout = (enum mm_on_timeout)walk_bounded(w, q->on_timeout, MM_ON_TIMEOUTS - 1);
	walk_u64(w, &q->turn_quantum_max_ns);
	walk_u32(w, &q->turn_priority_max);
	walk_u64(w, &q->goal_ttft_ns);
	walk_u64(w, &q->goal_tpot_ns);
}

/* Walks over the options that mm_core_tune() looks at. */
static WALK void walk_tune(struct walk *w, struct mm_core_opts *o)
{
	walk_u64(w, &o->account_max_pages);
	o->on_timeout = (enum mm_on_timeout)walk_bounded(w, o->on_timeout, MM_ON_TIMEOUTS - 1);
	walk_u64(w, &o->turn_quantum_max_ns);
	walk_u32(w, &o->turn_priority_max);
	walk_u32(w, &o->reversion);
	walk_u32(w, &o->sharing);
	walk_u32(w, &o->turn_cost_permille);
	walk_u64(w, &o->idle_ns);
	walk_u64(w, &o->dwell_ns);
	walk_u64(w, &o->change_ns);
	walk_u64(w, &o->reclaim_ns);
	walk_u32(w, &o->link_slows_permille);
	walk_u32(w, &o->rho_permille);
	walk_u64(w, &o->reclaim_timeout_ns);
	walk_u64(w, &o->stop_ns);
	walk_u64(w, &o->kill_window_ns);
	walk_u32(w, &o->kill_max);
	/* Builds before these knobs wrote neither, and read none: they are there if one is set. */
	if (w->mode == WALK_READS
		    ? w->n < w->words
		    : o->cold == MM_SWITCH_ON || (o->cold_max_permille &&
						  o->cold_max_permille != MM_COLD_MAX_PERMILLE)) {
		walk_u32(w, &o->cold);
		walk_u32(w, &o->cold_max_permille);
	}
}

static WALK void walk_rank(struct walk *w, struct mm_core_rank *rank)
{
	walk_u32(w, &rank->offer);
	walk_u32(w, &rank->most);
	walk_u32(w, &rank->wanted);
	walk_bool(w, &rank->wants_anew);
	walk_i32(w, &rank->deny);
	walk_u32(w, &rank->reclaim);
	walk_u64(w, &rank->reclaim_until_ns);
}

/* Returns how many words of compute[] are used; this is done for each report of each tenant. */
static uint32_t compute_words_used(const struct mm_tenant_stats *stats)
{
	uint32_t n = sizeof(stats->compute) / 8;
	uint64_t word = 0;

	for (; n; n--) {
		memcpy(&word, (const char *)stats->compute + (n - 1) * 8, 8);
		if (word)
			break;
	}
	return n;
}

/* Where statistics have their words, besides compute[] and what is reserved. */
static const uint16_t stats_words[] = {
	offsetof(struct mm_tenant_stats, step_seq),
	offsetof(struct mm_tenant_stats, steps),
	offsetof(struct mm_tenant_stats, samples),
	offsetof(struct mm_tenant_stats, step_ns),
	offsetof(struct mm_tenant_stats, stall_ns),
	offsetof(struct mm_tenant_stats, stall_total_ns),
	offsetof(struct mm_tenant_stats, kv_chunks_used),
	offsetof(struct mm_tenant_stats, waiting),
	offsetof(struct mm_tenant_stats, running),
	offsetof(struct mm_tenant_stats, kv_chunks_queued),
	offsetof(struct mm_tenant_stats, requests_done),
	offsetof(struct mm_tenant_stats, requests_late),
};
static_assert(sizeof(struct mm_tenant_stats) ==
		      8 * MM_ARRAY_SIZE(stats_words) + 2 * MM_COMPUTE_WEIGHTS + 8 * 244,
	      "these are all");

/* Statistics without the zeros behind the weights. */
static WALK void walk_stats(struct walk *w, const struct mm_tenant_stats *stats,
			    struct mm_tenant_stats *ret)
{
	const bool reads = w->mode == WALK_READS;
	uint64_t value = 0, used;
	const void *weights;

	if (reads)
		memset(ret, 0, sizeof(*ret));
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(stats_words); i++) {
		if (!reads)
			memcpy(&value, (const char *)stats + stats_words[i], 8);
		walk_u64(w, &value);
		if (reads)
			memcpy((char *)ret + stats_words[i], &value, 8);
	}
	used = walk_bounded(w, reads ? 0 : compute_words_used(stats), MM_COMPUTE_WEIGHTS / 4);
	weights = walk_bytes(w, reads ? NULL : stats->compute, used * 8);
	if (weights)
		memcpy(ret->compute, weights, used * 8);
}

/* The request and its list, which mm_c_request_handle() never sees. */
static WALK void walk_swap(struct walk *w, struct mm_event *e)
{
	const void *at;

	walk_msg(w, &e->msg);
	if (e->msg.arg[1] > MM_SWAP_PIECES) {
		w->bad = true;
		return;
	}
	at = walk_bytes(w, e->pieces, e->msg.arg[1] * sizeof(*e->pieces));
	if (w->mode == WALK_READS)
		e->pieces = at;
}

static WALK void walk_model(struct walk *w, struct mm_event *e)
{
	const void *at;

	walk_u64(w, &e->model.store);
	walk_u64(w, &e->model.store_bytes);
	e->model.n_groups = (uint32_t)walk_bounded(w, e->model.n_groups, MM_LAYERS_MAX + 1);
	at = walk_bytes(w, e->groups, e->model.n_groups * sizeof(*e->groups));
	if (w->mode == WALK_READS)
		e->groups = at;
}

/* Walks over the arguments of the event's kind. @stats: WALK_READS: room for statistics. */
static WALK void walk_arguments(struct walk *w, struct mm_event *e, struct mm_tenant_stats *stats)
{
	static_assert(offsetof(struct mm_event, xfer_epoch) ==
				      offsetof(struct mm_event, swap_bytes) &&
			      offsetof(struct mm_event, xfer_epoch) ==
				      offsetof(struct mm_event, layer_ns),
		      "one word");

	switch (e->kind) {
	case MM_EVENT_XFER_UP:
	case MM_EVENT_SWAP_OPEN:
	case MM_EVENT_STREAMED:
		walk_u64(w, &e->xfer_epoch);
		break;
	case MM_EVENT_JOB_DONE:
		walk_u64(w, &e->job.id);
		walk_i32(w, &e->job.result);
		break;
	case MM_EVENT_JOIN:
		walk_u64(w, &e->join.account);
		walk_u64(w, &e->join.features);
		walk_u64(w, &e->join.account_max_pages);
		break;
	case MM_EVENT_STOPPED_CHECKED:
		walk_bool(w, &e->stopped);
		break;
	case MM_EVENT_PAGE_UNHELD:
		walk_u32(w, &e->page);
		break;
	case MM_EVENT_REQUEST:
		walk_msg(w, &e->msg);
		break;
	case MM_EVENT_STATS:
		walk_stats(w, e->stats, stats);
		if (w->mode == WALK_READS)
			e->stats = stats;
		break;
	case MM_EVENT_SWAP:
		walk_swap(w, e);
		break;
	case MM_EVENT_MODEL:
		walk_model(w, e);
		break;
	case MM_EVENT_RANK_ORDER:
		walk_rank(w, &e->rank);
		break;
	case MM_EVENT_PLAN_SET:
		walk_i32(w, &e->plan.alpha);
		walk_u32(w, &e->plan.slots);
		break;
	case MM_EVENT_STEER:
		e->steer.how = (enum mm_steer)walk_bounded(w, e->steer.how, MM_STEERS - 1);
		walk_u64(w, &e->steer.until_ns);
		break;
	case MM_EVENT_ACCOUNT_ADD:
	case MM_EVENT_QUOTA_SET:
		walk_u64(w, &e->quota.account);
		walk_u64(w, &e->quota.domain);
		walk_u64(w, &e->quota.revision);
		walk_quota(w, &e->quota.quota);
		break;
	case MM_EVENT_TUNE:
		walk_tune(w, &e->tune);
		break;
	case MM_EVENT_COLD_SET:
		walk_i32(w, &e->cold_limit);
		break;
	case MM_EVENT_COLD_LIVE:
		walk_u32(w, &e->cold_live);
		break;
	default:
		break; /* no arguments */
	}
}

static WALK void walk_event(struct walk *w, struct mm_event *e, struct mm_tenant_stats *stats)
{
	e->kind = (enum mm_event_kind)walk_bounded(w, e->kind, MM_EVENT_KINDS - 1);
	walk_u32(w, &e->tenant);
	walk_u64(w, &e->now_ns);
	walk_arguments(w, e, stats);
}

size_t mm_event_bytes(const struct mm_event *event)
{
	struct walk w = { .mode = WALK_COUNTS };
	struct mm_event e = *event;

	walk_event(&w, &e, NULL);
	return w.n * 8;
}

size_t mm_event_pack(const struct mm_event *event, void *to)
{
	struct walk w = { .mode = WALK_WRITES, .to = to };
	struct mm_event e = *event;

	walk_event(&w, &e, NULL);
	mm_assert(!w.bad);
	return w.n * 8;
}

int mm_event_unpack(const void *from, size_t bytes, struct mm_tenant_stats *stats,
		    struct mm_event *ret_event)
{
	struct walk w = { .mode = WALK_READS, .from = from, .words = bytes / 8 };
	struct mm_event e;

	memset(&e, 0, sizeof(e));
	walk_event(&w, &e, stats);
	if (w.bad || e.kind == MM_EVENT_NONE || w.n != w.words || bytes % 8)
		return -EBADMSG;
	*ret_event = e;
	return 0;
}
