/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/recover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/shell/pool_kept.h"
#include "mmd/shell/session_kept.h"
#include "mmd/shell/shell.h"

#define DEATHS_MAX 2 /* of cores, at the same place of the same event */

/* ---- what was under way ---- */

static struct mm_session_kept *source_place(struct mm_shell *shell, const struct mm_pool *pool)
{
	uint32_t place = pool->last.record.place;

	if (!pool->last.any || !place || place > shell->n_sessions)
		return NULL;
	return &shell->kept.front->session[place - 1];
}

/* The session that was joining is open, if the core was told of it; else it never was. */
static void joining_settle(struct mm_shell *shell)
{
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		const struct mm_pool *pool = &shell->pool[i];
		struct mm_session_kept *kept = source_place(shell, pool);

		if (!kept || kept->state != MM_SESSION_JOINING || kept->pool != i ||
		    pool->last.kind != MM_EVENT_JOIN || pool->last.result.r != 0)
			continue;
		kept->tenant = pool->last.result.tenant;
		mm_kept_publish(&kept->state, MM_SESSION_OPEN);
	}
	for (uint32_t i = 0; i < shell->n_sessions; i++) {
		struct mm_session_kept *kept = &shell->kept.front->session[i];

		if (kept->state == MM_SESSION_JOINING)
			mm_kept_publish(&kept->state, MM_SESSION_FREE);
	}
}

static bool event_is_request(enum mm_event_kind kind)
{
	return kind == MM_EVENT_REQUEST || kind == MM_EVENT_SWAP;
}

/* A request that is in the journal was taken, also if its ring does not say so yet. */
static void requests_take(struct mm_shell *shell)
{
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		const struct mm_pool *pool = &shell->pool[i];
		struct mm_session_kept *kept = source_place(shell, pool);

		if (kept && kept->state == MM_SESSION_OPEN && kept->pool == i &&
		    event_is_request(pool->last.kind) &&
		    kept->sq_head == pool->last.record.position)
			kept->sq_head++;
	}
}

/* Performs the actions that are left, and does what the last event's caller had left to do. */
static void events_finish(struct mm_shell *shell)
{
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		struct mm_pool *pool = &shell->pool[i];
		const struct mm_session_kept *kept = source_place(shell, pool);

		mm_pool_actions_finish(pool);
		if (kept && event_is_request(pool->last.kind) && pool->last.result.r != 0 &&
		    kept->state == MM_SESSION_OPEN && kept->pool == i)
			mm_session_end(&shell->session[pool->last.record.place - 1],
				       "a request that the protocol forbids");
	}
}

/* ---- sessions ---- */

static int sessions_resume(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s) {
		int r = s->kept->state == MM_SESSION_FREE ? 0 : mm_session_resume(s);

		if (r < 0) {
			mm_shell_fail(shell, "core died, and a tenant cannot go on: %s",
				      strerror(-r));
			return r;
		}
	}
	return 0;
}

#define RENEWED "what mmd knew of its device was damaged"

/* Sessions that were in a group with one that is forgotten end, and the group with them. */
static void group_forget(struct mm_shell *shell, uint32_t group)
{
	if (!group || group > MM_GROUPS_MAX)
		return;
	for (uint32_t i = 0; i < shell->n_sessions; i++) {
		struct mm_session_kept *kept = &shell->kept.front->session[i];

		if (kept->state == MM_SESSION_FREE || kept->group != group)
			continue;
		kept->group = 0;
		if (kept->state == MM_SESSION_OPEN && !shell->pool[kept->pool].renewed) {
			snprintf(kept->end_reason, sizeof(kept->end_reason), "%s",
				 "a rank of its group has ended");
			mm_kept_publish(&kept->ending, 1u);
		}
	}
	mm_kept_publish(&shell->kept.front->group[group - 1].used, 0u);
}

/*
 * Ends the tenants of pools that were renewed. Nobody knows which pages they have, so none of these
 * pages is used again. Return: how many there were.
 */
static size_t sessions_forget(struct mm_shell *shell)
{
	size_t n = 0;

	MM_FOREACH_SESSION(shell, s) {
		if (s->kept->state == MM_SESSION_FREE || !shell->pool[s->kept->pool].renewed)
			continue;
		group_forget(shell, s->kept->group);
		mm_session_forget(s, RENEWED);
		n++;
	}
	return n;
}

/* The core may not have been told that the connections of these are closed. */
static void closed_report(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state != MM_SESSION_CLOSED)
			continue;
		mm_session_group_leave(s, true);
		mm_pool_event_now(s->pool, MM_EVENT_DISCONNECT, s->tenant);
	}
}

/* keeper goes on holding the pidfd of the process, too. */
static void connection_begin_anew(struct mm_shell *shell, struct mm_held_name conn)
{
	const struct mm_held_name process = { .kind = MM_HELD_PIDFD, .id = conn.id };
	int fd = mm_held_take(&shell->held, conn), pidfd = mm_held_take(&shell->held, process);

	mm_close_fd(&pidfd);
	mm_session_accept(shell, fd, conn.id);
}

/* Connections that no session in the book has: they were accepted, and begin anew. */
static void connections_accept(struct mm_shell *shell)
{
	const struct mm_fdtab_entry *entry;
	size_t at = 0;

	while ((entry = mm_held_next(&shell->held, &at))) {
		const struct mm_held_name name = entry->name;

		if (name.kind != MM_HELD_CONN)
			continue;
		connection_begin_anew(shell, name);
		at = 0; /* taking changes the table */
	}
}

/* ---- faults ---- */

/*
 * Counts the deaths at one place of one event, and has what core died of twice left out. The count
 * stands in the book before that event is repeated.
 */
static void faults_count(struct mm_shell *shell)
{
	struct mm_book_head *head = &shell->kept.front->head;
	const uint32_t index = head->busy - 1;
	const struct mm_pool_kept *pool;

	if (!shell->held.fault || !head->busy || index >= shell->n_pools)
		return;
	pool = shell->pool[index].kept;
	if (head->death_pool == index && head->death_seq == pool->seq &&
	    head->death_done == pool->performed) {
		head->deaths++;
	} else {
		head->death_pool = index;
		head->death_seq = pool->seq;
		head->death_done = pool->performed;
		head->deaths = 1;
	}
	if (head->deaths >= DEATHS_MAX)
		mm_pool_leave_out(&shell->pool[index]);
}

/* Ends the tenant of an event that was left out, unless a core before has ended it. */
static void unfit_end(struct mm_shell *shell)
{
	struct mm_book_head *head = &shell->kept.front->head;
	struct mm_session *s = head->unfit ? mm_session_find(shell, head->unfit - 1) : NULL;

	if (s && s->state == MM_SESSION_OPEN)
		mm_session_end(s, "mmd has died twice of something that it asked for");
	else
		mm_kept_publish(&head->unfit, 0u);
}

/*
 * Drops what nobody has taken, but for connections and their processes. This comes before they are
 * accepted: a hello that is answered at once puts regions by the names that its connection had.
 */
static size_t names_drop(struct mm_shell *shell)
{
	const struct mm_fdtab_entry *entry;
	size_t at = 0, n = 0;

	while ((entry = mm_held_next(&shell->held, &at))) {
		const struct mm_held_name name = entry->name;
		int fd;

		if (name.kind == MM_HELD_CONN || name.kind == MM_HELD_PIDFD ||
		    name.kind == MM_HELD_VIEW)
			continue;
		fd = mm_held_take(&shell->held, name);
		mm_close_fd(&fd);
		mm_held_drop(&shell->held, name, false);
		at = 0; /* taking changes the table */
		n++;
	}
	return n;
}

/* ---- all of it ---- */

static int pools_resume(struct mm_shell *shell)
{
	int r = 0;

	for (uint32_t i = 0; i < shell->n_pools && r == 0; i++)
		r = mm_pool_resume(&shell->pool[i]);
	return r;
}

static int workers_resume(struct mm_shell *shell)
{
	int r = 0;

	for (uint32_t i = 0; i < shell->n_pools && r == 0; i++)
		if (!shell->pool[i].renewed)
			r = mm_worker_resume(&shell->pool[i]);
	return r;
}

int mm_recover(struct mm_shell *shell)
{
	struct mm_book_head *head = &shell->kept.front->head;
	uint64_t began_ns = mm_now_ns();
	size_t dropped, forgotten;
	int r;

	faults_count(shell);
	head->generation++;
	shell->ready = head->ready;
	shell->started_ns = head->started_ns;
	r = pools_resume(shell);
	if (r < 0)
		return r;
	mm_upgrade_stands(shell, shell->held.end_flags);
	joining_settle(shell);
	requests_take(shell);
	forgotten = sessions_forget(shell);
	mm_stores_resume(shell);
	r = sessions_resume(shell);
	if (r == 0)
		r = workers_resume(shell);
	if (r < 0)
		return r;
	unfit_end(shell);
	events_finish(shell);
	mm_kept_publish(&head->busy, 0u);
	r = mm_groups_resume(shell);
	if (r < 0)
		return r;
	/* One of them may have been handled in part; what was put for it must still be there. */
	mm_sessions_requests(shell);
	closed_report(shell);
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_pool_event_now(&shell->pool[i], MM_EVENT_RESTARTED, 0);
	mm_stores_resume_end(shell);
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_worker_resume_end(&shell->pool[i]);
	dropped = names_drop(shell);
	connections_accept(shell);
	dropped += mm_held_drop_rest(&shell->held);
	mm_trail_resumed(shell);
	mm_shell_send_keeper(shell, MM_K_RESUMED, MM_ROLE_CORE, 0);
	mm_log(MM_LOG_INFO, "core.resumed",
	       "generation=%u away_us=%" PRIu64 " took_us=%" PRIu64 " dropped=%zu forgotten=%zu",
	       head->generation, (mm_now_ns() - shell->held.beat_ns) / MM_NS_PER_US,
	       (mm_now_ns() - began_ns) / MM_NS_PER_US, dropped, forgotten);
	return 0;
}
