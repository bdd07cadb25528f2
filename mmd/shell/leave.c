/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/leave.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>

#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"

#define WITHIN_MAX_S 86400
/* Time for a process without a connection to end, then for one that was killed. */
#define KILL_AFTER_NS (2 * MM_NS_PER_S)
#define STOP_AFTER_NS (10 * MM_NS_PER_S)
#define LOOK_NS       (20 * MM_NS_PER_MS)

static uint64_t leave_by_ns(const struct mm_shell *shell)
{
	return shell->kept.front ? shell->kept.front->head.leave_by_ns : 0;
}

bool mm_leave_is_on(const struct mm_shell *shell)
{
	return leave_by_ns(shell) != 0;
}

static void leaving_tell(struct mm_shell *shell, uint64_t by_ns)
{
	const struct mm_msg msg = { .opcode = MM_EV_LEAVE, .arg = { by_ns } };

	MM_FOREACH_SESSION(shell, s) {
		if (s->state == MM_SESSION_OPEN && s->features & MM_FEAT_LEAVE)
			mm_session_event(s, &msg);
	}
	shell->leave.told = true;
}

/* How many tenants are still there, or hold pages. */
static uint32_t leaving_count(const struct mm_shell *shell)
{
	uint32_t n = 0;

	MM_FOREACH_SESSION(shell, s)
		n += s->state >= MM_SESSION_OPEN;
	return n;
}

/* Ends the connections of those that are late, and remembers their processes. */
static void leaving_end(struct mm_shell *shell)
{
	struct mm_leave *leave = &shell->leave;
	struct mm_leave_late *late;

	MM_FOREACH_SESSION(shell, s) {
		if (s->state != MM_SESSION_OPEN || s->ending || leave->n_late == MM_SESSIONS_MAX)
			continue;
		late = &leave->late[leave->n_late];
		late->conn = s->conn;
		late->pidfd = fcntl(s->pidfd, F_DUPFD_CLOEXEC, 0);
		leave->n_late += late->pidfd >= 0;
		mm_session_end(s, "mmd is shutting down");
	}
}

static bool process_is_alive(int pidfd)
{
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };

	return poll(&ended, 1, 0) == 0;
}

/* How many of the late processes live. */
static uint32_t late_count(const struct mm_shell *shell)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < shell->leave.n_late; i++)
		n += process_is_alive(shell->leave.late[i].pidfd);
	return n;
}

static void late_kill(struct mm_shell *shell)
{
	for (uint32_t i = 0; i < shell->leave.n_late; i++) {
		const struct mm_leave_late *late = &shell->leave.late[i];

		if (!process_is_alive(late->pidfd))
			continue;
		mm_log(MM_LOG_WARN, "mmd.leave_killed", "connection=%" PRIu64, late->conn);
		mm_shell_send_keeper(shell, MM_K_KILL_TENANT, 0, late->conn);
	}
	shell->leave.killed = true;
}

static void mmd_stop(struct mm_shell *shell, uint32_t n)
{
	mm_log(n ? MM_LOG_WARN : MM_LOG_INFO, "mmd.left", "tenants_left=%u", n);
	mm_shell_send_keeper(shell, MM_K_STOP, MM_ROLE_CORE, 0);
	shell->leave.stopped = true;
}

void mm_leave_service(struct mm_shell *shell, uint64_t now_ns)
{
	const uint64_t by_ns = leave_by_ns(shell);
	uint32_t n;

	if (!by_ns || !shell->ready || shell->leave.stopped)
		return;
	if (!shell->leave.told)
		leaving_tell(shell, by_ns);
	if (now_ns >= by_ns)
		leaving_end(shell);
	if (now_ns >= by_ns + KILL_AFTER_NS && !shell->leave.killed)
		late_kill(shell);
	n = MM_MAX(leaving_count(shell), late_count(shell));
	if (!n || now_ns >= by_ns + STOP_AFTER_NS)
		mmd_stop(shell, n);
}

uint64_t mm_leave_deadline(const struct mm_shell *shell)
{
	const uint64_t by_ns = leave_by_ns(shell), now_ns = mm_now_ns();

	if (!by_ns || shell->leave.stopped)
		return UINT64_MAX;
	if (!shell->leave.told)
		return 0;
	if (now_ns < by_ns)
		return by_ns;
	if (shell->leave.n_late) /* their ends do not wake core once their sessions are free */
		return now_ns + LOOK_NS;
	return shell->leave.killed ? by_ns + STOP_AFTER_NS : by_ns + KILL_AFTER_NS;
}

/* ---- the method ---- */

static json_t *leaving_json(const struct mm_session *s)
{
	struct mm_core_tenant t = { 0 };
	json_t *json = json_object();

	mm_core_tenant(s->pool->core, s->tenant, &t);
	mm_json_put_u64(json, "tenant", s->tenant);
	mm_json_put_text(json, "name", s->name);
	mm_json_put_u64(json, "pid", (uint64_t)s->pid);
	mm_json_put_u64(json, "device", s->pool->ordinal);
	mm_json_put(json, "told",
		    json_boolean(s->state == MM_SESSION_OPEN && s->features & MM_FEAT_LEAVE));
	return json;
}

json_t *mm_leave_method(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	const bool dry_run = json_is_true(json_object_get(params, "dry_run"));
	json_t *result, *tenants;
	uint64_t within_s;

	if (!mm_json_is_whole(json_object_get(params, "within_s"), 0, WITHIN_MAX_S, &within_s))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "within_s: want 0 to %d", WITHIN_MAX_S);
	result = json_object();
	tenants = json_array();
	MM_FOREACH_SESSION(shell, s) {
		if (s->state >= MM_SESSION_OPEN)
			json_array_append_new(tenants, leaving_json(s));
	}
	mm_json_put_u64(result, "schema", 1);
	mm_json_put(result, "dry_run", json_boolean(dry_run));
	mm_json_put_u64(result, "within_s", within_s);
	mm_json_put(result, "tenants", tenants);
	if (dry_run)
		return result;
	mm_log(MM_LOG_INFO, "mmd.leaving", "within_s=%" PRIu64 " tenants=%u", within_s,
	       leaving_count(shell));
	shell->kept.front->head.leave_by_ns = mm_deadline_ns(within_s * MM_NS_PER_S);
	shell->leave.told = false;
	return result;
}
