/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>

#include "libclient/ipc/clock.h"

#define FDS_BESIDES_PAGES 1024 /* sessions, stores, loads, admin clients, one batch in flight */
#define FDS_FLYING_MAX    1024
#define TURN_ROUNDS_MAX   16

/* ---- keeper ---- */

static void keeper_lost(struct mm_shell *shell)
{
	mm_log(MM_LOG_ERROR, "keeper.lost", "pid=%d", (int)getppid());
	shell->failed = shell->stopping = true;
}

static void keeper_send(struct mm_shell *shell, const struct mm_kmsg *msg)
{
	if (mm_kchan_send(&shell->keeper, msg, NULL, 0) < 0)
		keeper_lost(shell);
}

void mm_shell_tell(struct mm_shell *shell, enum mm_kop op, enum mm_role role, uint64_t id)
{
	struct mm_kmsg msg = { .op = op, .role = role, .id = id };

	keeper_send(shell, &msg);
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

static void started(struct mm_shell *shell, const struct mm_kmsg *msg, int *fds)
{
	if (msg->role == MM_ROLE_XFER) {
		mm_worker_started(shell, msg->id, msg->pid, fds[0]);
		fds[0] = -1;
	} else if (msg->role == MM_ROLE_LOAD) {
		mm_load_started(shell, msg->id, fds[0], fds[1]);
		fds[0] = fds[1] = -1;
	}
}

static void keeper_message(struct mm_shell *shell, const struct mm_kmsg *msg, int *fds)
{
	switch (msg->op) {
	case MM_K_TENANT:
		mm_session_accept(shell, fds[0]);
		fds[0] = -1;
		break;
	case MM_K_ADMIN:
		mm_admin_accept(shell, fds[0]);
		fds[0] = -1;
		break;
	case MM_K_STARTED:
		started(shell, msg, fds);
		break;
	case MM_K_GONE:
		if (msg->role == MM_ROLE_XFER)
			mm_worker_gone(shell, msg->id, msg->result);
		else if (msg->role == MM_ROLE_LOAD)
			mm_load_gone(shell, msg->id, msg->result);
		break;
	case MM_K_STOP:
		shell->stopping = true;
		break;
	default:
		mm_log(MM_LOG_ERROR, "keeper.unknown_op", "op=%u", msg->op);
	}
}

static void on_keeper(struct mm_source *source, uint32_t events)
{
	struct mm_shell *shell = mm_source_owner(source, struct mm_shell, keeper_source);
	int fds[MM_KCHAN_FDS], r = 0;
	struct mm_kmsg msg;

	(void)events;
	for (int i = 0; i < MM_LOOP_BATCH && !shell->stopping; i++) {
		r = mm_kchan_recv(&shell->keeper, &msg, fds);
		if (r < 0)
			break;
		keeper_message(shell, &msg, fds);
		for (size_t f = 0; f < MM_KCHAN_FDS; f++)
			mm_close_fd(&fds[f]);
	}
	if (r == 0 || r == -EAGAIN || r == -EMFILE)
		r = mm_kchan_flush(&shell->keeper);
	if (r < 0)
		keeper_lost(shell);
}

/* ---- the core ---- */

static int fds_check(struct mm_shell *shell)
{
	const struct mm_device *d = &shell->worker.device;

	if (d->pages + (uint64_t)FDS_BESIDES_PAGES <= shell->fds_max)
		return 0;
	mm_shell_fail(shell,
		      "a pool of %u pages needs %u open files, the limit is %" PRIu64
		      "; raise it (LimitNOFILE=, ulimit -Hn) or use a larger --page",
		      d->pages, d->pages + FDS_BESIDES_PAGES, shell->fds_max);
	return -EMFILE;
}

int mm_shell_device(struct mm_shell *shell)
{
	const struct mm_config *c = shell->config;
	const struct mm_device *d = &shell->worker.device;
	struct mm_core_opts opts = {
		.pages = d->pages,
		.page_bytes = d->page_bytes,
		.policy = (enum mm_policy)c->policy,
		.account_max_pages = c->account_max_bytes / d->page_bytes,
		.lend_max_permille = (uint32_t)c->lend_max_permille,
	};
	int r = fds_check(shell);

	if (r < 0)
		return r;
	if (c->account_max_bytes && !opts.account_max_pages) {
		mm_shell_fail(shell, "--account-max: less than one page of %" PRIu64 " bytes",
			      d->page_bytes);
		return -EINVAL;
	}
	shell->worker.page_fd = malloc(d->pages * sizeof(int));
	if (!shell->worker.page_fd)
		return -ENOMEM;
	memset(shell->worker.page_fd, 0xff, d->pages * sizeof(int));
	r = mm_core_create(&opts, &shell->core);
	if (r < 0)
		mm_shell_fail(shell, "cannot keep account of %u pages: %s", d->pages, strerror(-r));
	return r;
}

static void ready_check(struct mm_shell *shell)
{
	const struct mm_device *d = &shell->worker.device;
	struct mm_core_stats stats;

	if (shell->ready || !shell->core)
		return;
	mm_core_stats(shell->core, &stats);
	if (stats.pages[MM_PAGE_NONE] > 0)
		return;
	shell->ready = true;
	mm_log(MM_LOG_INFO, "mmd.ready",
	       "device=\"%s\" pages=%u page_bytes=%" PRIu64 " policy=%s dir=%s", d->name, d->pages,
	       d->page_bytes, mm_policy_name((enum mm_policy)shell->config->policy),
	       shell->config->dir);
	mm_shell_tell(shell, MM_K_READY, MM_ROLE_CORE, 0);
}

/* ---- turns ---- */

static void tick(struct mm_shell *shell, uint64_t now_ns)
{
	if (!shell->core)
		return;
	if (now_ns >= shell->sample_at_ns) {
		mm_sessions_sample(shell, now_ns);
		shell->sample_at_ns = now_ns + MM_SAMPLE_NS;
	}
	if (now_ns >= mm_core_deadline(shell->core)) {
		mm_core_on_tick(shell->core, now_ns);
		mm_shell_settle(shell);
	}
}

static void turn(struct mm_shell *shell)
{
	uint64_t now = mm_now_ns();
	bool again = true;

	tick(shell, now);
	for (int i = 0; i < TURN_ROUNDS_MAX && again; i++) {
		mm_worker_turn(shell, now);
		again = mm_sessions_turn(shell, now);
	}
	mm_worker_turn(shell, now);
	ready_check(shell);
	mm_worker_ring(shell);
	mm_sessions_ring(shell);
	mm_loop_want(&shell->loop, &shell->keeper_source,
		     EPOLLIN | (mm_kchan_waiting(&shell->keeper) ? (uint32_t)EPOLLOUT : 0));
}

static uint64_t deadline(const struct mm_shell *shell)
{
	uint64_t at = MM_MIN(mm_worker_deadline(shell), mm_sessions_deadline(shell));

	return shell->core ? MM_MIN(at, mm_core_deadline(shell->core)) : at;
}

/* ---- life ---- */

static int shell_init(struct mm_shell *shell, int fd, const struct mm_config *config)
{
	struct rlimit files;
	int r;

	*shell = (struct mm_shell){
		.config = config,
		.loop = MM_LOOP_NULL,
		.keeper_source = MM_SOURCE_NULL,
		.started_ns = mm_now_ns(),
	};
	mm_kchan_init(&shell->keeper, fd);
	mm_worker_init(shell);
	mm_stores_init(shell);
	mm_sessions_init(shell);
	mm_admin_init(shell);
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return -errno;
	shell->fds_max = files.rlim_cur;
	shell->fd_budget.max = (uint32_t)MM_MIN(shell->fds_max / 4, (uint64_t)FDS_FLYING_MAX);
	r = mm_loop_init(&shell->loop);
	if (r == 0)
		r = mm_loop_add(&shell->loop, &shell->keeper_source, fd, EPOLLIN, on_keeper);
	return r;
}

static void shell_done(struct mm_shell *shell)
{
	/* Connections end before the pages are given up, so that nobody computes on lost memory. */
	mm_sessions_done(shell);
	mm_admin_done(shell);
	mm_stores_done(shell);
	mm_worker_done(shell);
	mm_core_destroy(shell->core);
	mm_loop_del(&shell->loop, &shell->keeper_source);
	mm_kchan_done(&shell->keeper);
	mm_loop_done(&shell->loop);
}

int mm_shell_main(int fd, const struct mm_config *config)
{
	static struct mm_shell shell;
	int r = shell_init(&shell, fd, config);

	if (r == 0)
		mm_worker_start(&shell);
	while (r == 0 && !shell.stopping) {
		r = mm_loop_run_once(&shell.loop, deadline(&shell));
		turn(&shell);
	}
	if (r < 0)
		mm_log(MM_LOG_ERROR, "core.failed", "error=%d", r);
	shell_done(&shell);
	return r < 0 || shell.failed ? 1 : 0;
}
