/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/protocol/xplan.h"
#include "mmd/shell/check.h"
#include "mmd/shell/handshake.h"
#include "mmd/shell/peer.h"
#include "mmd/shell/session_kept.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"
#include "mmd/shell/swap.h"

#define DOORBELLS_PER_WAKEUP   64
#define REQUESTS_PER_ITERATION 64

static void session_clear(struct mm_shell *shell, struct mm_session *s)
{
	struct mm_session_kept *kept = &shell->kept.front->session[s - shell->session];

	*s = (struct mm_session){
		.shell = shell,
		.kept = kept,
		.fd = -1,
		.pidfd = -1,
		.source = MM_LOOP_SOURCE_NULL,
		.pid_source = MM_LOOP_SOURCE_NULL,
		.tenant_region = MM_REGION_NULL,
		.mmd_region = MM_REGION_NULL,
		.gate_region = MM_REGION_NULL,
		.plan_region = MM_REGION_NULL,
		.cursor_region = MM_REGION_NULL,
		.swap_region = MM_REGION_NULL,
	};
	mm_outbox_init(&s->outbox, NULL, -1, NULL, NULL, NULL, &shell->fd_budget);
}

void mm_sessions_init(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s)
		session_clear(shell, s);
}

int mm_session_recv(const struct mm_session *s, void *buf, size_t cap, size_t *ret_len)
{
	return s->fds_may_come ? mm_sock_recv_clean(s->fd, buf, cap, ret_len)
			       : mm_sock_recv_nofds(s->fd, buf, cap, ret_len);
}

/*
 * File descriptors that a peer passed and mmd did not receive are closed with the socket; that
 * close may sleep. Ours is not the last one, because keeper holds a copy until it reads the drop.
 * The socket is drained in any case: with unread bytes in it the peer would get a reset before it
 * could read why its connection ends. It ends here, and not by the close, for the same reason.
 */
static void connection_close(struct mm_shell *shell, int *fd, uint64_t conn)
{
	const struct mm_held_name name = { .kind = MM_HELD_CONN, .id = conn };
	bool slow;

	if (*fd < 0)
		return;
	slow = mm_sock_drain(*fd) < 0;
	mm_close_fd(fd);
	mm_held_drop(&shell->held, name, slow);
}

void mm_session_hang_up(struct mm_session *s)
{
	connection_close(s->shell, &s->fd, s->conn);
}

/*
 * keeper need not kill the process behind this connection any more; while mmd is ending it may have
 * to, because the process may have the device open.
 */
static void process_drop(struct mm_shell *shell, uint64_t conn)
{
	const struct mm_held_name name = { .kind = MM_HELD_PIDFD, .id = conn };

	if (conn && !mm_leave_is_on(shell))
		mm_held_drop(&shell->held, name, false);
}

/*
 * Closes the connection; pages and events that are on their way to the tenant are dropped with it.
 */
static void session_disconnect(struct mm_session *s)
{
	mm_loop_del(&s->shell->loop, &s->source);
	mm_session_hang_up(s);
	mm_outbox_done(&s->outbox);
}

void mm_session_tell_end(struct mm_session *s, const char *reason)
{
	struct mm_end end = { .magic = MM_ABI_MAGIC, .kind = MM_END_KIND };

	if (s->state != MM_SESSION_OPEN || !(s->features & MM_FEAT_REASON))
		return;
	snprintf(end.reason, sizeof(end.reason), "%s", reason);
	mm_sock_send(s->fd, &end, sizeof(end), NULL, 0);
}

static void session_free(struct mm_session *s)
{
	const struct mm_xcursor_region *cursors = s->cursor_region.base;

	if (cursors) {
		s->pool->kept->bytes_streamed_gone = s->pool->bytes_streamed_gone +=
			cursors->bytes_streamed;
		s->pool->kept->cold_streamed_gone = s->pool->cold_streamed_gone +=
			cursors->cold_bytes;
	}
	session_disconnect(s);
	mm_load_leave(s);
	mm_loop_del(&s->shell->loop, &s->pid_source);
	mm_close_fd(&s->pidfd);
	/* The book comes first: a successor drops what keeper holds of a session that is gone. */
	mm_kept_publish(&s->kept->state, MM_SESSION_FREE);
	mm_session_unhold(s);
	process_drop(s->shell, s->conn);
	mm_region_done(&s->tenant_region);
	mm_region_done(&s->mmd_region);
	mm_region_done(&s->gate_region);
	mm_region_done(&s->plan_region);
	mm_region_done(&s->cursor_region);
	mm_region_done(&s->swap_region);
	session_clear(s->shell, s);
}

void mm_sessions_done(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s) {
		mm_session_tell_end(s, "mmd is ending");
		session_free(s);
	}
}

struct mm_session *mm_session_find(struct mm_shell *shell, uint32_t tenant)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state >= MM_SESSION_OPEN && s->tenant == tenant)
			return s;
	}
	return NULL;
}

struct mm_session *mm_session_lookup(struct mm_shell *shell, const struct mm_pool *pool,
				     const char *word, unsigned int *ret_many)
{
	struct mm_session *found = NULL;
	unsigned int many = 0;
	char id[16];

	MM_FOREACH_SESSION(shell, s) {
		if (s->state != MM_SESSION_OPEN || (pool && s->pool != pool))
			continue;
		snprintf(id, sizeof(id), "%u", s->tenant);
		if (strcmp(id, word) == 0) {
			*ret_many = 1;
			return s;
		}
		if (strcmp(s->name, word) == 0) {
			found = s;
			many++;
		}
	}
	*ret_many = many;
	return many == 1 ? found : NULL;
}

void mm_session_end(struct mm_session *s, const char *reason)
{
	if (s->fd < 0 || s->ending)
		return;
	snprintf(s->kept->end_reason, sizeof(s->kept->end_reason), "%s", reason);
	mm_kept_publish(&s->kept->ending, 1u);
	s->ending = s->kept->end_reason;
}

bool mm_session_may_log(struct mm_session *s)
{
	uint64_t key = s->state >= MM_SESSION_OPEN ? s->account : MM_PEERLOG_UID(s->uid);

	return mm_peerlog_allows(&s->shell->peerlog, key, mm_now_ns());
}

void mm_sessions_end(struct mm_pool *pool, const char *reason)
{
	MM_FOREACH_SESSION(pool->shell, s) {
		if (s->state == MM_SESSION_OPEN && s->pool == pool)
			mm_session_end(s, reason);
	}
}

/* ---- requests ---- */

static void model_open(struct mm_session *s, const struct mm_msg *msg)
{
	int r = mm_load_open(s, msg);

	if (r < 0)
		mm_session_reply(s, msg->user_data, MM_OP_MODEL_OPEN, r);
}

static int session_core_request(struct mm_session *s, uint64_t now_ns, const struct mm_msg *msg)
{
	const struct mm_event event = {
		.kind = MM_EVENT_REQUEST, .tenant = s->tenant, .now_ns = now_ns, .msg = *msg
	};
	const struct mm_event_source source = mm_session_source(s);
	struct mm_event_result result;

	mm_pool_event(s->pool, &event, &source, &result);
	return result.r;
}

static void request_handle(struct mm_session *s, const struct mm_msg *msg)
{
	uint64_t now = mm_now_ns();
	int r = 0;

	if (msg->opcode == MM_OP_BYE)
		mm_session_group_leave(s, false);
	switch (msg->opcode) {
	case MM_OP_NOP:
		break;
	case MM_OP_MODEL_OPEN:
		model_open(s, msg);
		break;
	case MM_OP_FDS_ACK:
		r = mm_outbox_ack(&s->outbox, msg->arg[0], msg->result, now);
		break;
	case MM_OP_SWAP_OPEN:
	case MM_OP_SWAP:
		r = mm_session_swap_request(s, now, msg);
		break;
	case MM_OP_GROUP_JOIN:
	case MM_OP_GROUP_MAPPED:
		r = mm_session_group_request(s, msg);
		break;
	default:
		r = session_core_request(s, now, msg);
	}
	if (r != 0) {
		mm_session_log(s, MM_LOG_WARN, "tenant.protocol", "tenant=%u op=%u", s->tenant,
			       msg->opcode);
		mm_session_end(s, "a request that the protocol forbids");
	}
}

/* Whether a request waits, because the tenant has made too many that achieve nothing. */
static bool request_waits(struct mm_session *s, const struct mm_msg *msg)
{
	s->asks_at_ns =
		mm_pace_spend(&s->asks, mm_pace_price(msg->opcode), MM_PACE_BURST_NS, mm_now_ns());
	return s->asks_at_ns;
}

/* Notes that core was woken for nothing. Its socket is read later if that is too often. */
static void bell_note(struct mm_session *s)
{
	if (s->belled)
		s->socket_at_ns =
			mm_pace_spend(&s->bells, MM_PACE_BELL_NS, MM_PACE_BURST_NS, mm_now_ns());
	s->belled = false;
}

/* Handles @max requests; none waits for its turn where all that the ring holds are wanted. */
static void requests_handle(struct mm_session *s, unsigned int max)
{
	struct mm_msg msg;
	const char *wrong;
	int r = 0;

	s->busy = false;
	for (unsigned int i = 0; i < max && s->state == MM_SESSION_OPEN && !s->ending; i++) {
		uint32_t position = s->requests.mine;

		r = mm_ring_peek(&s->requests, &msg);
		if (r == MM_E_EMPTY) {
			bell_note(s);
			return;
		}
		wrong = r ? "impossible ring cursor" : mm_request_check(&msg);
		if (wrong) {
			mm_session_end(s, wrong);
			return;
		}
		if (max != MM_SQ_SLOTS && request_waits(s, &msg)) {
			bell_note(s);
			return;
		}
		s->belled = false;
		mm_session_request_begin(s, position);
		request_handle(s, &msg);
		mm_session_request_end(s);
		/* One that is an event was taken with it; the session may be gone by now. */
		if (s->state != MM_SESSION_FREE && s->requests.mine == position)
			mm_ring_drop(&s->requests);
	}
	s->busy = s->state == MM_SESSION_OPEN && !s->ending;
}

/* ---- from the tenant's socket ---- */

/* Handles the requests that the tenant pushed before its socket ended, then ends the session. */
static void session_drain_and_end(struct mm_session *s, const char *reason)
{
	if (s->state == MM_SESSION_OPEN)
		requests_handle(s, MM_SQ_SLOTS);
	mm_session_end(s, reason);
}

void mm_session_beat(struct mm_session *s, uint64_t now_ns)
{
	struct mm_mmd_region *ours = s->mmd_region.base;

	__atomic_store_n(&ours->state.beat_ns, now_ns, __ATOMIC_RELAXED);
}

static void doorbells_take(struct mm_session *s)
{
	char byte;
	size_t len;
	int r = 0;

	for (int i = 0; i < DOORBELLS_PER_WAKEUP; i++) {
		r = mm_session_recv(s, &byte, sizeof(byte), &len);
		if (r < 0)
			break;
	}
	if (r == -EPERM)
		mm_session_end(s, "it passed file descriptors, which mmd never takes");
	else if (r == -EMSGSIZE)
		mm_session_end(s, "a message where only doorbells belong");
	else if (r < 0 && r != -EAGAIN)
		session_drain_and_end(s, "connection closed");
	else
		s->busy = s->belled = true;
}

static int session_handshake(struct mm_session *s)
{
	int r = mm_handshake(s);

	if (s->state == MM_SESSION_OPEN)
		mm_pace_charge(mm_pace_of_user(&s->shell->hellos, s->uid, mm_now_ns()),
			       MM_PACE_JOIN_NS, mm_now_ns());
	return r;
}

/* Whether a hello is read later, because its user has sent too many. */
static bool hello_waits(struct mm_session *s)
{
	const uint64_t now_ns = mm_now_ns();

	s->socket_at_ns = mm_pace_spend(mm_pace_of_user(&s->shell->hellos, s->uid, now_ns),
					MM_PACE_HELLO_NS, 10 * MM_PACE_BURST_NS, now_ns);
	if (s->socket_at_ns)
		mm_loop_want(&s->shell->loop, &s->source, 0);
	return s->socket_at_ns;
}

static void session_on_socket(struct mm_loop_source *source, uint32_t events)
{
	struct mm_session *s = mm_loop_source_owner(source, struct mm_session, source);
	int r;

	if (s->state != MM_SESSION_HELLO) {
		if (events & ~(uint32_t)EPOLLOUT)
			doorbells_take(s);
		return;
	}
	if (s->ending)
		return;
	if (hello_waits(s)) {
		/* This is reported whatever is waited for. */
		if (events & (EPOLLHUP | EPOLLERR))
			mm_session_end(s, "connection closed");
		return;
	}
	r = session_handshake(s);
	if (r < 0 && r != -EAGAIN)
		mm_session_end(s, "handshake failed");
}

static void session_on_exit(struct mm_loop_source *source, uint32_t events)
{
	struct mm_session *s = mm_loop_source_owner(source, struct mm_session, pid_source);

	(void)events;
	mm_loop_del(&s->shell->loop, &s->pid_source);
	if (s->fd >= 0)
		session_drain_and_end(s, "process died");
	s->dead = s->state != MM_SESSION_FREE;
}

/* ---- beginning and end ---- */

static bool session_awaits_hello(const struct mm_session *s, const uid_t *uid)
{
	return s->state == MM_SESSION_HELLO && (!uid || s->uid == *uid);
}

/*
 * Keeps at most @max connections that have sent no hello: of the user @uid, or of all users if it
 * is NULL. Beyond that the oldest of them is read once more, unless its user has sent too many,
 * and closed if no hello is there. A newcomer is never refused for it: else idle connections in
 * numbers would keep everybody out.
 */
static void hello_evict_oldest(struct mm_shell *shell, const uid_t *uid, unsigned int max)
{
	struct mm_session *oldest = NULL;
	unsigned int hellos = 0;
	int r;

	MM_FOREACH_SESSION(shell, s) {
		if (!session_awaits_hello(s, uid))
			continue;
		hellos++;
		if (!oldest || s->hello_by_ns < oldest->hello_by_ns)
			oldest = s;
	}
	if (hellos <= max)
		return;
	r = oldest->socket_at_ns ? 0 : session_handshake(oldest);
	if (oldest->state == MM_SESSION_HELLO)
		session_free(oldest);
	else if (r < 0)
		mm_session_end(oldest, "handshake failed");
}

static struct mm_session *session_new(struct mm_shell *shell)
{
	hello_evict_oldest(shell, NULL, MM_HELLOS_MAX - 1);
	MM_FOREACH_SESSION(shell, s) {
		if (s->state == MM_SESSION_FREE)
			return s;
	}
	return NULL;
}

int mm_session_watch(struct mm_session *s)
{
	struct mm_loop *loop = &s->shell->loop;
	int r = 0;

	if (s->pidfd >= 0)
		r = mm_loop_add(loop, &s->pid_source, s->pidfd, EPOLLIN, session_on_exit);
	if (r == 0 && s->fd >= 0)
		r = mm_loop_add(loop, &s->source, s->fd, EPOLLIN, session_on_socket);
	return r;
}

void mm_session_accept(struct mm_shell *shell, int fd, uint64_t conn)
{
	struct mm_session *s = shell->ready ? session_new(shell) : NULL;
	int r;

	if (!s) {
		connection_close(shell, &fd, conn);
		process_drop(shell, conn);
		return;
	}
	s->state = MM_SESSION_HELLO;
	s->fd = fd;
	s->conn = conn;
	s->fds_may_come = !mm_sock_refuses_fds(fd);
	s->hello_by_ns = mm_now_ns() + MM_HELLO_NS;
	r = mm_handshake_peer(s);
	if (r == 0 || r == -EPERM) {
		hello_evict_oldest(shell, &s->uid, MM_HELLOS_UID_MAX);
		r = mm_session_watch(s);
	}
	if (r < 0)
		session_free(s);
}

void mm_session_release(struct mm_session *s)
{
	if (s->state == MM_SESSION_OPEN) {
		/* The tenant sent BYE; its receipt is the last event that it gets. */
		mm_outbox_flush(&s->outbox, mm_now_ns());
		mm_sock_doorbell(s->fd);
	}
	mm_session_log(s, MM_LOG_INFO, "tenant.gone", "tenant=%u name=%s", s->tenant, s->name);
	session_free(s);
}

static void session_close(struct mm_session *s)
{
	uint32_t tenant = s->tenant;

	if (s->state == MM_SESSION_HELLO) {
		session_free(s);
		return;
	}
	mm_trail_session(s);
	mm_session_log(s, MM_LOG_INFO, "tenant.closed", "tenant=%u name=%s reason=\"%s\"", tenant,
		       s->name, s->ending);
	mm_session_tell_end(s, s->ending);
	session_disconnect(s);
	mm_session_set_state(s, MM_SESSION_CLOSED);
	s->ending = NULL;
	s->busy = false;
	mm_session_group_leave(s, true);
	mm_pool_event_now(s->pool, MM_EVENT_DISCONNECT, tenant);
}

static void session_report_dead(struct mm_session *s)
{
	s->dead = false;
	mm_pool_event_now(s->pool, MM_EVENT_DEAD, s->tenant);
}

/* ---- service in each iteration ---- */

static bool sessions_close_ended(struct mm_shell *shell)
{
	bool any = false;

	MM_FOREACH_SESSION(shell, s) {
		if (s->ending) {
			session_close(s);
			any = true;
		}
		if (s->dead && s->state == MM_SESSION_CLOSED) {
			session_report_dead(s);
			any = true;
		}
	}
	return any;
}

static void session_flush(struct mm_session *s, uint64_t now_ns)
{
	int r = mm_outbox_flush(&s->outbox, now_ns);

	mm_session_fds_drop(s);
	if (r > 0)
		mm_session_end(s, "impossible ring cursor");
	else if (r == -ECONNRESET)
		session_drain_and_end(s, "connection closed");
	else if (r < 0) {
		mm_session_log(s, MM_LOG_ERROR, "tenant.send_failed", "tenant=%u error=%d",
			       s->tenant, r);
		mm_session_end(s, "nothing can be sent to it");
	}
}

/* Runs after all requests in the ring were handled: later ones do not postpone the check. */
static void session_check_stopped(struct mm_session *s)
{
	enum mm_peer_state state = mm_peer_state(s->pid, s->pidfd);
	const struct mm_event event = {
		.kind = MM_EVENT_STOPPED_CHECKED,
		.tenant = s->tenant,
		.now_ns = mm_now_ns(),
		.stopped = state == MM_PEER_STOPPED || state == MM_PEER_FROZEN,
	};

	s->stopped_check_due = false;
	mm_pool_event(s->pool, &event, NULL, NULL);
}

void mm_sessions_requests(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state == MM_SESSION_OPEN && !s->ending)
			requests_handle(s, REQUESTS_PER_ITERATION);
	}
}

/* Lets a peer go on that had to wait. */
static void session_unpace(struct mm_session *s, uint64_t now_ns)
{
	if (s->socket_at_ns && now_ns >= s->socket_at_ns) {
		s->socket_at_ns = 0;
		if (s->state == MM_SESSION_HELLO)
			mm_loop_want(&s->shell->loop, &s->source, EPOLLIN);
	}
	if (s->asks_at_ns && now_ns >= s->asks_at_ns) {
		s->asks_at_ns = 0;
		s->busy = s->state == MM_SESSION_OPEN && !s->ending;
	}
}

bool mm_sessions_service(struct mm_shell *shell, uint64_t now_ns)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state == MM_SESSION_HELLO && now_ns >= s->hello_by_ns)
			mm_session_end(s, "no hello came");
		session_unpace(s, now_ns);
		if (s->busy)
			mm_session_beat(s, now_ns);
		if (s->busy)
			requests_handle(s, s->stopped_check_due ? MM_SQ_SLOTS
								: REQUESTS_PER_ITERATION);
		if (s->stopped_check_due)
			session_check_stopped(s);
		if (s->state == MM_SESSION_OPEN && !s->ending)
			session_flush(s, now_ns);
	}
	return sessions_close_ended(shell);
}

void mm_sessions_ring(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state != MM_SESSION_OPEN)
			continue;
		if (s->outbox.bell)
			mm_sock_doorbell(s->fd);
		s->outbox.bell = false;
		mm_loop_want(&shell->loop, &s->source,
			     (s->socket_at_ns ? 0 : (uint32_t)EPOLLIN) |
				     (s->outbox.want_write ? (uint32_t)EPOLLOUT : 0));
	}
}

uint64_t mm_sessions_deadline(const struct mm_shell *shell)
{
	uint64_t deadline = UINT64_MAX;

	MM_FOREACH_SESSION(shell, s) {
		if (s->busy || s->stopped_check_due || s->ending ||
		    (s->dead && s->state == MM_SESSION_CLOSED))
			return 0;
		if (s->state == MM_SESSION_HELLO)
			deadline = MM_MIN(deadline, s->hello_by_ns);
		if (s->socket_at_ns)
			deadline = MM_MIN(deadline, s->socket_at_ns);
		if (s->asks_at_ns)
			deadline = MM_MIN(deadline, s->asks_at_ns);
		if (s->state == MM_SESSION_OPEN)
			deadline =
				MM_MIN(deadline, MM_MIN(shell->sample_at_ns, s->outbox.retry_ns));
	}
	return deadline;
}

/* ---- sampling ---- */

static void sample_stats(struct mm_session *s, uint64_t now_ns)
{
	const struct mm_tenant_region *theirs = s->tenant_region.base;
	const uint64_t *from = (const uint64_t *)&theirs->stats;
	struct mm_tenant_stats stats = { 0 };
	uint64_t *to = (uint64_t *)&stats;
	const struct mm_event event = {
		.kind = MM_EVENT_STATS, .tenant = s->tenant, .now_ns = now_ns, .stats = &stats
	};

	for (size_t i = 0; i < offsetof(struct mm_tenant_stats, reserved) / sizeof(*to); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
	mm_pool_event(s->pool, &event, NULL, NULL);
}

/* The bits are a claim of the tenant, as its statistics are; xfer has bounds of its own. */
static void sample_cold(struct mm_session *s)
{
	const struct mm_gate_region *gates = s->gate_region.base;
	struct mm_event event = { .kind = MM_EVENT_COLD_LIVE, .tenant = s->tenant };
	struct mm_core_tenant t;

	if (!(s->features & MM_FEAT_COLD) || s->gate_region.size_bytes < sizeof(*gates) ||
	    !mm_core_tenant(s->pool->core, s->tenant, &t) || !t.cold_entries_max) {
		s->cold_live_told = 0;
		return;
	}
	for (uint32_t i = 0; i < mm_div_up(t.cold_entries_max, 64); i++)
		event.cold_live += (uint32_t)__builtin_popcountll(
			__atomic_load_n(&gates->cold.live[i], __ATOMIC_RELAXED));
	if (event.cold_live + 1 == s->cold_live_told)
		return;
	s->cold_live_told = event.cold_live + 1;
	mm_pool_event(s->pool, &event, NULL, NULL);
}

static void sample_cursor(struct mm_session *s)
{
	const struct mm_xcursor_region *c = s->cursor_region.base;
	uint64_t layers = __atomic_load_n(&c->layers_streamed, __ATOMIC_ACQUIRE);
	uint64_t copy_ns = __atomic_load_n(&c->copy_ns, __ATOMIC_RELAXED);
	uint64_t layers_new = layers - s->layers_seen, ns_new = copy_ns - s->copy_seen_ns;
	struct mm_event event = { .kind = MM_EVENT_STREAMED, .tenant = s->tenant };

	if (!layers_new)
		return;
	s->layers_seen = layers;
	s->copy_seen_ns = copy_ns;
	event.layer_ns = ns_new / layers_new;
	mm_pool_event(s->pool, &event, NULL, NULL);
}

/* Ends a tenant that holds a place and serves nothing; once it has begun, it may stay idle. */
static void sample_idle(struct mm_session *s, uint64_t now_ns)
{
	uint64_t idle_ns = s->shell->config->idle_ms * MM_NS_PER_MS;
	struct mm_core_tenant t = { 0 };

	if (s->idle_by_ns == UINT64_MAX)
		return;
	if (s->store || (mm_core_tenant(s->pool->core, s->tenant, &t) && t.kv_chunks_max))
		s->idle_by_ns = UINT64_MAX;
	else if (s->kept->model.load)
		s->idle_by_ns = now_ns + idle_ns;
	else if (now_ns >= s->idle_by_ns)
		mm_session_end(
			s,
			"it neither loaded a model nor declared KV memory within --idle-timeout");
}

void mm_sessions_sample(struct mm_shell *shell, uint64_t now_ns)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state == MM_SESSION_OPEN && !s->ending)
			sample_stats(s, now_ns);
		if (s->state == MM_SESSION_OPEN && !s->ending)
			sample_cursor(s);
		sample_cold(s);
		if (s->state == MM_SESSION_OPEN && !s->ending)
			sample_idle(s, now_ns);
	}
}
