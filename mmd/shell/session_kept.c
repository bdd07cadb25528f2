/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/session_kept.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/ipc/sock.h"
#include "libclient/protocol/xplan.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/shell/handshake.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"

/* ---- names at keeper ---- */

struct mm_held_name mm_session_outfd(const struct mm_session *s, uint32_t kind)
{
	return (struct mm_held_name){ .kind = MM_HELD_OUTFD, .id = s->conn, .index = kind };
}

struct mm_held_name mm_session_region(const struct mm_session *s, enum mm_held_region region)
{
	return (struct mm_held_name){ .kind = MM_HELD_REGION, .id = s->conn, .index = region };
}

/* The regions that each session has. */
#define REGIONS 5

/* A session of an earlier build may have a region as short as that of the first version. */
struct region_of {
	struct mm_region *region;
	size_t least_bytes, bytes;
};

static struct region_of region_of(struct mm_session *s, uint32_t index)
{
	const struct region_of all[REGIONS] = {
		[MM_HELD_TENANT] = { &s->tenant_region, sizeof(struct mm_tenant_region),
				     sizeof(struct mm_tenant_region) },
		[MM_HELD_MMD] = { &s->mmd_region, sizeof(struct mm_mmd_region),
				  sizeof(struct mm_mmd_region) },
		[MM_HELD_GATE] = { &s->gate_region, MM_GATE_REGION_BYTES_MIN,
				   sizeof(struct mm_gate_region) },
		[MM_HELD_PLAN] = { &s->plan_region, MM_XPLAN_REGION_BYTES_MIN,
				   sizeof(struct mm_xplan_region) },
		[MM_HELD_CURSOR] = { &s->cursor_region, sizeof(struct mm_xcursor_region),
				     sizeof(struct mm_xcursor_region) },
	};

	return all[index];
}

int mm_session_hold(struct mm_session *s)
{
	struct mm_held *held = &s->shell->held;

	for (uint32_t i = 0; i < REGIONS; i++)
		mm_held_put(held, mm_session_region(s, i), region_of(s, i).region->fd);
	s->held = true;
	return mm_held_sync(held) ? 0 : -EIO;
}

void mm_session_unhold(struct mm_session *s)
{
	struct mm_held *held = &s->shell->held;

	if (!s->held)
		return;
	for (uint32_t i = 0; i < REGIONS; i++)
		mm_held_drop(held, mm_session_region(s, i), false);
	if (s->swap_bytes)
		mm_held_drop(held, mm_session_region(s, MM_HELD_SWAP), false);
	mm_held_drop(held, mm_session_outfd(s, MM_FD_STORE), false);
	mm_held_drop(held, mm_session_outfd(s, MM_FD_GROUP), false);
	s->held = false;
}

/* ---- the book ---- */

void mm_session_note(struct mm_session *s)
{
	struct mm_session_kept *kept = s->kept;

	memset(kept, 0, sizeof(*kept));
	kept->pool = s->pool->index;
	kept->conn = s->conn;
	kept->pid = s->pid;
	kept->uid = s->uid;
	kept->gid = s->gid;
	kept->account = s->account;
	kept->features = s->features;
	memcpy(kept->name, s->name, sizeof(kept->name));
	memcpy(kept->token, s->token, sizeof(kept->token));
	mm_kept_publish(&kept->state, MM_SESSION_JOINING);
}

void mm_session_set_state(struct mm_session *s, enum mm_session_state state)
{
	s->state = state;
	s->kept->tenant = s->tenant;
	mm_kept_publish(&s->kept->state, state);
}

static bool session_owns_page(const void *session, uint32_t page)
{
	const struct mm_session *s = session;
	uint32_t owner;

	mm_core_page(s->pool->core, page, &owner);
	return owner == s->tenant;
}

void mm_session_init_rings(struct mm_session *s, bool resumes)
{
	struct mm_outbox_kept *out =
		mm_kept_outbox(&s->shell->kept, (uint32_t)(s - s->shell->session));
	struct mm_tenant_region *theirs = s->tenant_region.base;
	struct mm_mmd_region *ours = s->mmd_region.base;

	__atomic_store_n(&ours->state.generation, s->shell->kept.front->head.generation,
			 __ATOMIC_RELAXED);
	mm_session_beat(s, mm_now_ns());
	mm_ring_init(&s->requests, theirs->sq, MM_SQ_SLOTS, &ours->sq_head, &theirs->sq_tail);
	mm_ring_init(&s->events, ours->cq, MM_CQ_SLOTS, &ours->cq_tail, &theirs->cq_head);
	mm_ring_keep(&s->requests, &s->kept->sq_head);
	if (resumes)
		mm_outbox_resume(&s->outbox, out, s->fd, &s->events, ours->map,
				 s->pool->worker.page_fd, &s->shell->fd_budget);
	else
		mm_outbox_init(&s->outbox, out, s->fd, &s->events, ours->map,
			       s->pool->worker.page_fd, &s->shell->fd_budget);
	s->outbox.owns_page = session_owns_page;
	s->outbox.owner = s;
}

/* ---- taking over ---- */

static struct mm_held_name pidfd_name(const struct mm_session *s)
{
	return (struct mm_held_name){ .kind = MM_HELD_PIDFD, .id = s->conn };
}

static void identity_resume(struct mm_session *s)
{
	const struct mm_session_kept *kept = s->kept;

	s->state = (enum mm_session_state)kept->state;
	s->pool = &s->shell->pool[kept->pool];
	s->tenant = kept->tenant;
	s->conn = kept->conn;
	s->pid = kept->pid;
	s->uid = kept->uid;
	s->gid = kept->gid;
	s->account = kept->account;
	s->features = kept->features;
	memcpy(s->name, kept->name, sizeof(s->name));
	memcpy(s->token, kept->token, sizeof(s->token));
	s->ending = kept->ending && kept->state == MM_SESSION_OPEN ? kept->end_reason : NULL;
	s->held = true;
	s->idle_by_ns = mm_quota_is_ours(s) || !s->shell->config->idle_ms
				? UINT64_MAX
				: mm_now_ns() + s->shell->config->idle_ms * MM_NS_PER_MS;
	/* The core may have asked; an answer that it has not asked for does nothing. */
	s->stopped_check_due = true;
}

static int regions_resume(struct mm_session *s)
{
	for (uint32_t i = 0; i < REGIONS; i++) {
		struct region_of want = region_of(s, i);
		int fd = mm_held_take(&s->shell->held, mm_session_region(s, i));
		int r = fd < 0 ? -ENOENT
			       : mm_region_again(fd, want.least_bytes, want.bytes, want.region);

		if (r < 0)
			return r;
	}
	if (s->kept->swap_bytes) {
		s->swap_region.fd =
			mm_held_take(&s->shell->held, mm_session_region(s, MM_HELD_SWAP));
		s->swap_bytes = s->kept->swap_bytes;
	}
	return 0;
}

/* Totals of which only the growth counts: what grew while no core was there is left out. */
static void totals_resume(struct mm_session *s)
{
	const struct mm_xcursor_region *c = s->cursor_region.base;

	s->layers_seen = __atomic_load_n(&c->layers_streamed, __ATOMIC_ACQUIRE);
	s->copy_seen_ns = __atomic_load_n(&c->copy_ns, __ATOMIC_RELAXED);
}

static int connection_resume(struct mm_session *s)
{
	struct mm_held *held = &s->shell->held;
	const struct mm_held_name conn = { .kind = MM_HELD_CONN, .id = s->conn };

	s->fd = mm_held_take(held, conn);
	if (s->fd < 0)
		return -ECONNRESET;
	s->fds_may_come = !mm_sock_refuses_fds(s->fd);
	mm_session_init_rings(s, true);
	for (uint32_t kind = MM_FD_STORE; kind < MM_OUTBOX_FDS; kind++)
		s->outbox.fd[kind] = mm_held_take(held, mm_session_outfd(s, kind));
	if ((s->outbox.maybe_sent || !s->kept->welcomed) && !(s->features & MM_FEAT_RESUME))
		mm_session_end(s, "mmd was restarted, and its client cannot go on after that");
	else if (!s->kept->welcomed && mm_handshake_resume(s) < 0)
		mm_session_end(s, "handshake failed");
	mm_close_fd(&s->tenant_region.fd);
	mm_close_fd(&s->mmd_region.fd);
	s->busy = true;
	return 0;
}

/*
 * keeper may not have been told that the connection is closed. It must not begin anew: its end
 * would drop what keeper holds of this session, which has the same number.
 */
static void connection_leave(struct mm_session *s)
{
	s->fd = mm_held_take(&s->shell->held,
			     (struct mm_held_name){ .kind = MM_HELD_CONN, .id = s->conn });
	mm_session_hang_up(s);
}

int mm_session_resume(struct mm_session *s)
{
	int r;

	identity_resume(s);
	s->pidfd = mm_held_take(&s->shell->held, pidfd_name(s));
	r = s->pidfd < 0 ? -ENOENT : regions_resume(s);
	if (r < 0)
		return r;
	totals_resume(s);
	if (s->state == MM_SESSION_CLOSED)
		connection_leave(s);
	else if (connection_resume(s) < 0)
		mm_session_set_state(s, MM_SESSION_CLOSED);
	return mm_session_watch(s);
}

void mm_session_forget(struct mm_session *s, const char *reason)
{
	struct mm_held *held = &s->shell->held;
	int pidfd;

	s->conn = s->kept->conn;
	pidfd = mm_held_take(held, pidfd_name(s));
	mm_close_fd(&pidfd);
	mm_held_drop(held, pidfd_name(s), false);
	s->fd = mm_held_take(held, (struct mm_held_name){ .kind = MM_HELD_CONN, .id = s->conn });
	s->state = MM_SESSION_OPEN;
	s->features = s->kept->features;
	if (s->fd >= 0)
		mm_session_tell_end(s, reason);
	/* The book comes first, as for any session that ends. */
	mm_kept_publish(&s->kept->state, MM_SESSION_FREE);
	if (s->fd >= 0)
		mm_session_hang_up(s);
	s->state = MM_SESSION_FREE;
}
