/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/shell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/shell/kept_layout.h"
#include "mmd/shell/recover.h"
#include "mmd/shell/rights.h"

#define FDS_FLYING_MAX       1024
#define ITERATION_ROUNDS_MAX 16

/* ---- keeper ---- */

static void keeper_lost(struct mm_shell *shell)
{
	mm_log(MM_LOG_ERROR, "keeper.lost", "pid=%d", (int)getppid());
	shell->gives_way = shell->stopping = true;
}

static void keeper_send(struct mm_shell *shell, const struct mm_kmsg *msg)
{
	if (mm_kchan_send(&shell->keeper, msg, NULL, 0) < 0)
		keeper_lost(shell);
}

void mm_shell_send_keeper(struct mm_shell *shell, enum mm_kop op, enum mm_role role, uint64_t id)
{
	struct mm_kmsg msg = { .op = op, .role = role, .id = id };

	keeper_send(shell, &msg);
}

static void keeper_send_xfer(struct mm_pool *pool, enum mm_kop op, uint32_t flags)
{
	struct mm_kmsg msg = { .op = op,
			       .role = MM_ROLE_XFER,
			       .device = pool->index,
			       .id = pool->worker.kept->epoch,
			       .flags = flags };

	keeper_send(pool->shell, &msg);
}

void mm_shell_send_keeper_xfer(struct mm_pool *pool, enum mm_kop op)
{
	keeper_send_xfer(pool, op, 0);
}

void mm_shell_kill_xfer(struct mm_pool *pool)
{
	keeper_send_xfer(pool, MM_K_KILL, MM_K_F_EXCUSED);
}

void mm_shell_send_keeper_lock(struct mm_pool *pool, const int *fds, size_t n_fds, bool has_file)
{
	const uint8_t *uuid = pool->worker.device.uuid;
	struct mm_kmsg msg = {
		.op = MM_K_LOCK, .role = MM_ROLE_XFER, .device = pool->index, .result = has_file
	};

	for (size_t i = 0; i < sizeof(pool->worker.device.uuid); i++)
		snprintf(msg.text + 2 * i, 3, "%02x", uuid[i]);
	if (mm_kchan_send(&pool->shell->keeper, &msg, fds, n_fds) < 0)
		keeper_lost(pool->shell);
}

void mm_shell_fail(struct mm_shell *shell, const char *fmt, ...)
{
	struct mm_kmsg msg = { .op = MM_K_STOP, .result = -EIO };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg.text, sizeof(msg.text), fmt, ap);
	va_end(ap);
	if (!shell->failed)
		keeper_send(shell, &msg);
	shell->failed = true;
}

static struct mm_pool *pool_named(struct mm_shell *shell, const struct mm_kmsg *msg)
{
	mm_assert(msg->device < shell->n_pools);
	return &shell->pool[msg->device];
}

static void shell_on_started(struct mm_shell *shell, struct mm_kpacket *packet)
{
	const struct mm_kmsg *msg = &packet->msg;
	int fd = mm_kpacket_take(packet, 0), theirs = mm_kpacket_take(packet, 1);

	mm_builds_add(&shell->builds, (enum mm_role)msg->role, msg->device, msg->id, msg->text);
	if (msg->role == MM_ROLE_XFER)
		mm_worker_started(pool_named(shell, msg), msg->id, msg->pid, fd);
	else if (msg->role == MM_ROLE_LOAD)
		mm_load_started(shell, msg->id, fd, theirs);
	else if (msg->role == MM_ROLE_SPOOL)
		mm_spool_started(shell, msg->id, fd);
}

static void keeper_message(struct mm_shell *shell, struct mm_kpacket *packet)
{
	const struct mm_kmsg *msg = &packet->msg;

	switch (msg->op) {
	case MM_K_TENANT:
		mm_session_accept(shell, mm_kpacket_take(packet, 0), msg->id);
		break;
	case MM_K_ADMIN:
		mm_admin_accept(shell, mm_kpacket_take(packet, 0), 0);
		break;
	case MM_K_VIEW:
		mm_admin_accept(shell, mm_kpacket_take(packet, 0), msg->id);
		break;
	case MM_K_STARTED:
		shell_on_started(shell, packet);
		break;
	case MM_K_DROPPED:
		mm_held_on_dropped(&shell->held, msg);
		break;
	case MM_K_GONE:
		mm_builds_remove(&shell->builds, (enum mm_role)msg->role, msg->device, msg->id);
		if (msg->role == MM_ROLE_XFER)
			mm_worker_gone(pool_named(shell, msg), msg->id, msg->result);
		else if (msg->role == MM_ROLE_LOAD)
			mm_load_gone(shell, msg->id, msg->result);
		else if (msg->role == MM_ROLE_SPOOL)
			mm_spool_gone(shell, msg->id, msg->result);
		break;
	case MM_K_DOWN:
		mm_pool_down(pool_named(shell, msg));
		break;
	case MM_K_UPGRADE:
		mm_upgrade_on_answer(shell, msg);
		break;
	case MM_K_BUILD:
		mm_upgrade_on_build(shell, msg);
		break;
	case MM_K_RELOAD:
		mm_settings_on_keeper(shell, packet);
		break;
	case MM_K_STOP:
		shell->stopping = true;
		break;
	default:
		mm_log(MM_LOG_ERROR, "keeper.unknown_op", "op=%u", msg->op);
	}
}

/* There were no fds left for what keeper sent. A connection that was lost so is dropped. */
static void packet_report_lost(struct mm_shell *shell, const struct mm_kpacket *packet)
{
	const struct mm_held_name conn = { .kind = MM_HELD_CONN, .id = packet->msg.id };
	const struct mm_held_name pidfd = { .kind = MM_HELD_PIDFD, .id = packet->msg.id };
	const struct mm_held_name view = { .kind = MM_HELD_VIEW, .id = packet->msg.id };

	mm_log(MM_LOG_ERROR, "keeper.fds_lost", "op=%u", packet->msg.op);
	if (packet->msg.op == MM_K_VIEW)
		mm_held_drop(&shell->held, view, true);
	if (packet->msg.op != MM_K_TENANT)
		return;
	mm_held_drop(&shell->held, conn, true);
	mm_held_drop(&shell->held, pidfd, false);
}

static void shell_on_keeper(struct mm_loop_source *source, uint32_t events)
{
	struct mm_shell *shell = mm_loop_source_owner(source, struct mm_shell, keeper_source);
	struct mm_kpacket packet;
	int r = 0;

	(void)events;
	for (int i = 0; i < MM_LOOP_BATCH && !shell->stopping; i++) {
		r = mm_kchan_recv(&shell->keeper, &packet);
		if (r == -EMFILE)
			packet_report_lost(shell, &packet);
		if (r < 0 && r != -EMFILE)
			break;
		keeper_message(shell, &packet);
		mm_kpacket_done(&packet);
	}
	if (r == 0 || r == -EAGAIN || r == -EMFILE)
		r = mm_kchan_flush(&shell->keeper);
	if (r < 0)
		keeper_lost(shell);
}

/* ---- iterations of the loop ---- */

static void shell_check_ready(struct mm_shell *shell)
{
	/* From here on a successor can go on. */
	const struct mm_kmsg ready = { .op = MM_K_READY,
				       .role = MM_ROLE_CORE,
				       .flags = MM_K_F_RESUMABLE };
	uint64_t pages = 0, quarantined = 0;

	bool all = true;

	for (uint32_t i = 0; i < shell->n_pools && !shell->failed; i++) {
		all &= mm_pool_check_ready(&shell->pool[i]);
		pages += shell->pool[i].worker.device.pages;
		quarantined += shell->pool[i].quarantined;
	}
	if (!all || shell->ready || shell->failed)
		return;
	shell->ready = true;
	mm_kept_publish(&shell->kept.front->head.ready, 1u);
	mm_log(MM_LOG_INFO, "mmd.ready",
	       "devices=%u pages=%" PRIu64 " quarantined=%" PRIu64 " policy=%s dir=%s",
	       shell->n_pools, pages, quarantined,
	       mm_policy_name((enum mm_policy)shell->config->policy), shell->config->dir);
	keeper_send(shell, &ready);
}

static void shell_tick(struct mm_shell *shell, uint64_t now_ns)
{
	if (now_ns >= shell->sample_at_ns) {
		mm_sessions_sample(shell, now_ns);
		shell->sample_at_ns = now_ns + MM_SAMPLE_NS;
	}
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_pool_tick(&shell->pool[i], now_ns);
}

static void workers_service(struct mm_shell *shell, uint64_t now_ns)
{
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_worker_service(&shell->pool[i], now_ns);
}

static void shell_iterate(struct mm_shell *shell)
{
	uint64_t now = mm_now_ns();
	bool again = true;

	mm_held_beat(&shell->held, now, false);
	shell_tick(shell, now);
	mm_admin_service(shell, now);
	for (int i = 0; i < ITERATION_ROUNDS_MAX && again; i++) {
		workers_service(shell, now);
		again = mm_sessions_service(shell, now);
		again |= mm_groups_settle(shell, now);
	}
	workers_service(shell, now);
	shell_check_ready(shell);
	mm_leave_service(shell, now);
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_worker_ring(&shell->pool[i]);
	mm_sessions_ring(shell);
	mm_held_flush(&shell->held);
	if (shell->held.failed)
		shell->gives_way = shell->stopping = true;
	if (mm_kchan_service(&shell->keeper, now) < 0)
		keeper_lost(shell);
	mm_peerlog_tick(&shell->peerlog, now);
	mm_trail_service(shell, now);
	mm_log_catch_up();
	mm_loop_want(&shell->loop, &shell->keeper_source, mm_kchan_events(&shell->keeper));
}

static uint64_t shell_deadline(const struct mm_shell *shell)
{
	uint64_t at = MM_MIN(mm_sessions_deadline(shell), mm_kchan_deadline(&shell->keeper));

	at = MM_MIN(at, MM_MIN(mm_peerlog_deadline(&shell->peerlog), mm_trail_deadline(shell)));
	at = MM_MIN(at, MM_MIN(mm_leave_deadline(shell), mm_admin_deadline(shell)));
	if (shell->groups.again)
		return 0;
	for (uint32_t i = 0; i < shell->n_pools; i++)
		at = MM_MIN(at, mm_pool_deadline(&shell->pool[i]));
	return at;
}

/* ---- beginning and end ---- */

/* Has keeper hold a book that is complete. */
static int book_hold(struct mm_shell *shell)
{
	mm_kept_publish(&shell->kept.front->head.state, MM_BOOK_RUNNING);
	mm_held_put(&shell->held, (struct mm_held_name){ .kind = MM_HELD_BOOK }, shell->kept.fd);
	return mm_held_sync(&shell->held) ? 0 : -EIO;
}

/* Makes a book of that of a build in which its structs are laid out differently. */
static int book_convert(struct mm_shell *shell, int fd)
{
	char why[MM_TEXT_BYTES];
	int r = mm_kept_convert(fd, shell->n_pools, shell->n_sessions, &shell->kept, why,
				sizeof(why));

	if (r < 0) {
		mm_shell_fail(shell, "what the core before knew cannot be read: %s", why);
		return r;
	}
	mm_log(MM_LOG_INFO, "book.converted", "bytes=%zu", shell->kept.bytes);
	return book_hold(shell);
}

/* Takes over the book of a core that has ended. */
static int book_resume(struct mm_shell *shell, int fd)
{
	struct mm_book_head head;
	int r = mm_kept_head(fd, shell->n_pools, shell->n_sessions, &head);

	if (r == -ESTALE) {
		r = book_convert(shell, fd);
		mm_close_fd(&fd);
		return r;
	}
	r = mm_kept_open(fd, shell->n_pools, shell->n_sessions, &shell->kept);
	if (r < 0)
		mm_shell_fail(shell, "core died, and what it knew cannot be read: %s",
			      strerror(-r));
	return r;
}

/* Makes the book, and has keeper hold it; or takes over that of a core that has died. */
static int book_begin(struct mm_shell *shell)
{
	int r, fd = mm_held_take(&shell->held, (struct mm_held_name){ .kind = MM_HELD_BOOK });

	shell->n_pools = mm_config_devices(shell->config);
	shell->n_sessions = shell->n_pools * MM_DEVICE_TENANTS_MAX + MM_HELLOS_MAX;
	shell->resumes = fd >= 0;
	if (shell->resumes)
		return book_resume(shell, fd);
	r = mm_kept_create(shell->n_pools, shell->n_sessions, &shell->kept);
	if (r < 0) {
		mm_shell_fail(shell,
			      "no address space for what core must remember: %s; raise its limit "
			      "(LimitAS=, ulimit -v)",
			      strerror(-r));
		return r;
	}
	shell->kept.front->head.started_ns = shell->started_ns;
	return book_hold(shell);
}

static int shell_init(struct mm_shell *shell, int fd, const struct mm_config *config)
{
	struct rlimit files;
	int r;

	*shell = (struct mm_shell){
		.config = config,
		.loop = MM_LOOP_NULL,
		.keeper_source = MM_LOOP_SOURCE_NULL,
		.kept = MM_KEPT_NULL,
		.started_ns = mm_now_ns(),
		.owner = geteuid(),
	};
	mm_build_exe(shell->exe, sizeof(shell->exe));
	mm_kchan_init(&shell->keeper, fd);
	mm_held_init(&shell->held, &shell->keeper);
	mm_spools_init(shell);
	mm_admin_init(shell);
	mm_peerlog_init(&shell->peerlog);
	r = mm_held_receive(&shell->held);
	mm_builds_init(&shell->builds, &shell->held);
	if (r == 0)
		r = mm_trail_begin(shell);
	if (r == 0)
		r = book_begin(shell);
	if (r < 0)
		return r;
	mm_settings_init(shell);
	mm_stores_init(shell);
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_pool_init(&shell->pool[i], shell, i);
	mm_sessions_init(shell);
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return -errno;
	shell->fds_max = files.rlim_cur;
	r = mm_shell_rights_drop(&shell->rights);
	if (r < 0)
		return r;
	shell->fd_budget.max = (uint32_t)MM_MIN(shell->fds_max / 4, (uint64_t)FDS_FLYING_MAX);
	r = mm_loop_init(&shell->loop);
	if (r == 0)
		r = mm_loop_add(&shell->loop, &shell->keeper_source, fd, EPOLLIN, shell_on_keeper);
	shell->stopping |= shell->held.stop_came;
	return r;
}

static void shell_done(struct mm_shell *shell)
{
	/*
	 * Connections end before the pages are given up, so that no tenant computes on lost memory.
	 */
	mm_trail_sessions(shell);
	mm_sessions_done(shell);
	mm_admin_done(shell);
	mm_settings_done(shell);
	mm_stores_done(shell);
	mm_spools_done(shell);
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_pool_done(&shell->pool[i]);
	mm_loop_del(&shell->loop, &shell->keeper_source);
	mm_held_flush(&shell->held);
	mm_held_done(&shell->held);
	mm_kchan_done(&shell->keeper);
	mm_kept_done(&shell->kept);
	mm_trail_done(shell);
	mm_loop_done(&shell->loop);
}

int mm_shell_main(int fd, const struct mm_config *config)
{
	static struct mm_shell shell;
	int r = shell_init(&shell, fd, config);

	if (r == 0 && shell.resumes)
		r = mm_recover(&shell);
	for (uint32_t i = 0; r == 0 && !shell.resumes && i < shell.n_pools; i++)
		mm_worker_start(&shell.pool[i]);
	while (r == 0 && !shell.stopping) {
		mm_held_beat(&shell.held, mm_now_ns(), true);
		r = mm_loop_run_once(&shell.loop, shell_deadline(&shell));
		shell_iterate(&shell);
	}
	if (r < 0)
		mm_log(MM_LOG_ERROR, "core.failed", "error=%d", r);
	/* A successor needs what keeper holds; if there will be none, keeper hangs up. */
	if (r < 0 || shell.gives_way)
		return 1;
	if (shell.upgrade.state == MM_SHELL_UPGRADE_LEAVING)
		return mm_upgrade_leave(&shell);
	shell_done(&shell);
	return shell.failed ? 1 : 0;
}
