/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/actions.h"

#include <string.h>
#include <sys/syscall.h>

#include "libclient/protocol/xplan.h"
#include "libclient/support/clock.h"
#include "mmd/shell/pool_kept.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"

/* Serials of items that are put for an action: one for each item. */
#define SERIAL_SHIFT 8

static void action_gate_write(struct mm_session *s, const struct mm_action *a)
{
	struct mm_gate_region *gates = s->gate_region.base;

	mm_assert(a->entry < MM_LAYERS_MAX);
	__atomic_store_n(&gates->gate[a->entry].word, a->word, __ATOMIC_SEQ_CST);
}

/* Sets only the high half: xfer or the tenant may be writing the low one. */
static void gates_abort(struct mm_session *s)
{
	struct mm_gate_region *gates = s->gate_region.base;

	for (size_t i = 0; i < MM_LAYERS_MAX; i++)
		__atomic_or_fetch(&gates->gate[i].high, (uint32_t)(MM_GATE_ABORT >> 32),
				  __ATOMIC_SEQ_CST);
}

static void plan_slot_write(const struct mm_session *s, uint32_t index,
			    const struct mm_core_slot *from)
{
	struct mm_xplan_region *plan = s->plan_region.base;
	struct mm_xplan_slot *slot = &plan->slot[index];

	mm_assert(from->n_pages <= MM_SLOT_PAGES_MAX && from->n_layers <= MM_LAYERS_MAX);
	slot->n_layers = from->n_layers;
	slot->n_pages = from->n_pages;
	for (uint32_t i = 0; i < from->n_pages; i++)
		slot->page[i] = mm_core_slot_page(s->pool->core, s->tenant, index, i);
	memcpy(slot->layer, from->layer, from->n_layers * sizeof(slot->layer[0]));
	slot->in_place = from->in_place;
}

/* A region that an earlier build made may have no room for it; then no plan has any. */
static bool plan_has_cold(const struct mm_session *s)
{
	return s->plan_region.size_bytes >= sizeof(struct mm_xplan_region);
}

static void plan_cold_write(const struct mm_session *s, const struct mm_core_plan *from)
{
	struct mm_xplan_region *plan = s->plan_region.base;
	struct mm_xplan_cold *cold = &plan->cold;
	uint32_t page;

	if (!plan_has_cold(s)) {
		mm_assert(!from->cold.classes);
		return;
	}
	cold->classes = from->cold.classes;
	cold->entries = from->cold.entries;
	cold->unit_bytes = from->cold.unit_bytes;
	cold->n_pages = 0;
	while ((page = mm_core_cold_page(s->pool->core, s->tenant, cold->n_pages)) != MM_NO_PAGE) {
		mm_assert(cold->n_pages < MM_SLOT_PAGES_MAX);
		cold->page[cold->n_pages++] = page;
	}
}

/* xfer is quiescent for this tenant, so nobody else writes the cursors. */
static void cursors_write(const struct mm_session *s, const struct mm_core_plan *from)
{
	struct mm_xcursor_region *cursors = s->cursor_region.base;

	for (uint32_t i = 0; i < from->beta; i++)
		cursors->slot[i] = (struct mm_xcursor){
			.epoch = from->epoch,
			.state = from->slot[i].in_place ? MM_CUR_HELD : MM_CUR_COPYING,
		};
	for (uint32_t i = 0; i < from->cold.classes; i++)
		cursors->cold[i] =
			(struct mm_xcursor){ .epoch = from->epoch, .state = MM_CUR_COPYING };
}

/* xfer reads the region only on an ACTIVATE or REPLAN, and neither is on its way. */
static void plan_write(struct mm_session *s, bool served)
{
	const struct mm_core_plan *from = mm_core_plan(s->pool->core, s->tenant);
	struct mm_xplan_region *plan = s->plan_region.base;

	mm_assert(from && s->store && from->beta <= MM_SLOTS_MAX);
	plan->epoch = from->epoch;
	plan->store_id = s->store->id;
	plan->n_layers = s->store->n_groups - 1;
	plan->n_slots = from->m ? from->beta : 0;
	for (uint32_t i = 0; i < plan->n_layers; i++) {
		plan->layer[i].store_offset = s->store->groups[i + 1].store_offset;
		plan->layer[i].bytes = s->store->groups[i + 1].bytes;
	}
	for (uint32_t i = 0; i < plan->n_slots; i++)
		plan_slot_write(s, i, &from->slot[i]);
	static_assert(sizeof(plan->closed) == sizeof(from->closed), "a bit per layer");
	memcpy(plan->closed, from->closed, sizeof(plan->closed));
	plan_cold_write(s, from);
	if (!served)
		cursors_write(s, from);
}

static void plan_open(struct mm_session *s, uint64_t epoch, uint32_t layers)
{
	struct mm_xplan_region *plan = s->plan_region.base;

	__atomic_store_n(&plan->open, MM_XPLAN_OPEN(epoch, layers), __ATOMIC_RELEASE);
}

static void plan_cold_limit(struct mm_session *s, uint64_t entries)
{
	struct mm_xplan_region *plan = s->plan_region.base;

	mm_assert(plan_has_cold(s));
	__atomic_store_n(&plan->cold_limit, entries, __ATOMIC_RELEASE);
}

static void process_kill(struct mm_session *s, const char *reason)
{
	char account[MM_ACCOUNT_NAME_BYTES];
	struct mm_core_tenant t = { 0 };

	(void)mm_core_tenant(s->pool->core, s->tenant, &t);
	mm_log(MM_LOG_WARN, "tenant.killed",
	       "tenant=%u name=%s account=%s uid=%u pid=%d held_pages=%u reason=\"%s\"", s->tenant,
	       s->name, mm_quota_name(s->shell, s->account, account), s->uid, (int)s->pid,
	       t.pages_param + t.pages_slot + t.pages_kv + t.pages_mem + t.pages_revoking, reason);
	mm_shell_send_keeper(s->shell, MM_K_KILL_TENANT, 0, s->conn);
	/* The action counts as performed, so the message must not be lost with core. */
	(void)mm_held_sync(&s->shell->held);
}

/* Performs actions that need the connection; once it is closed they have no meaning. */
static void action_perform_connected(struct mm_session *s, const struct mm_action *a)
{
	uint32_t value = a->page == MM_NO_PAGE ? 0 : a->page + 1;

	if (s->state != MM_SESSION_OPEN || s->ending)
		return;
	if (a->kind == MM_ACT_FDS) {
		mm_session_page(s, a->page, a->msg.epoch);
	} else if (a->kind == MM_ACT_MAP) {
		mm_assert(a->entry < MM_MAP_ENTRIES);
		mm_session_map(s, a->entry, value);
	} else if (a->kind == MM_ACT_EVENT) {
		mm_session_event(s, &a->msg);
	} else if (a->kind == MM_ACT_KICK) {
		mm_session_log(s, MM_LOG_WARN, "tenant.kicked", "tenant=%u name=%s reason=\"%s\"",
			       s->tenant, s->name, a->reason);
		mm_session_end(s, a->reason);
	}
}

static void action_perform(struct mm_pool *pool, const struct mm_action *a)
{
	struct mm_session *s;

	if (a->kind == MM_ACT_JOB) {
		mm_worker_job(pool, &a->msg);
		return;
	}
	s = mm_session_find(pool->shell, a->tenant);
	if (!s)
		return;
	switch (a->kind) {
	case MM_ACT_GATE:
		action_gate_write(s, a);
		break;
	case MM_ACT_PLAN:
		plan_write(s, a->entry != 0);
		break;
	case MM_ACT_OPEN:
		plan_open(s, a->word, a->entry);
		break;
	case MM_ACT_COLD_LIMIT:
		plan_cold_limit(s, a->word);
		break;
	case MM_ACT_ABORT:
		gates_abort(s);
		break;
	case MM_ACT_KILL:
		process_kill(s, a->reason);
		break;
	case MM_ACT_CHECK_STOPPED:
		s->stopped_check_due = true;
		s->busy |= s->state == MM_SESSION_OPEN; /* its answer may be in the ring already */
		break;
	case MM_ACT_ALARM:
		mm_log(MM_LOG_ERROR, "tenant.overdue", "tenant=%u name=%s pid=%d reason=\"%s\"",
		       s->tenant, s->name, (int)s->pid, a->reason);
		break;
	case MM_ACT_MODEL_DROP:
		mm_load_leave(s);
		break;
	case MM_ACT_TENANT_FREE:
		mm_session_release(s);
		break;
	default:
		action_perform_connected(s, a);
	}
}

static void actions_perform(struct mm_pool *pool)
{
	struct mm_pool_kept *kept = pool->kept;
	uint64_t serial = pool->shell->serial;
	struct mm_action action;

	while (mm_core_next(pool->core, &action)) {
		pool->shell->serial = (kept->performed + 1) << SERIAL_SHIFT;
		action_perform(pool, &action);
		mm_kept_publish(&kept->performed, kept->performed + 1);
	}
	pool->shell->serial = serial;
}

void mm_pool_actions_finish(struct mm_pool *pool)
{
	actions_perform(pool);
}

/* The request is taken from its ring when it cannot be lost any more. A hello is in none. */
static void source_take(struct mm_shell *shell, const struct mm_event *event,
			const struct mm_event_source *source)
{
	if (source && source->place && event->kind != MM_EVENT_JOIN)
		mm_ring_drop(&shell->session[source->place - 1].requests);
}

void mm_pool_event(struct mm_pool *pool, const struct mm_event *event,
		   const struct mm_event_source *source, struct mm_event_result *ret_result)
{
	struct mm_book_head *head = &pool->shell->kept.front->head;
	struct mm_event_result result;
	uint64_t began_ns;

	/*
	 * Not behind the event: what its caller does next, a successor finds due only as long as
	 * the event is in the journal.
	 */
	mm_pool_keep_due(pool);
	began_ns = mm_now_ns();
	mm_kept_publish(&head->busy, pool->index + 1);
	mm_pool_record(pool, event, source);
	source_take(pool->shell, event, source);
	mm_core_event(pool->core, event, &result);
	actions_perform(pool);
	mm_kept_publish(&head->busy, 0u);
	pool->replay_ns += mm_now_ns() - began_ns;
	if (ret_result)
		*ret_result = result;
}

void mm_pool_event_now(struct mm_pool *pool, enum mm_event_kind kind, uint32_t tenant)
{
	const struct mm_event event = { .kind = kind, .tenant = tenant, .now_ns = mm_now_ns() };

	mm_pool_event(pool, &event, NULL, NULL);
}
