/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/keeper.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "mmd/common/devlock.h"
#include "mmd/common/kchan.h"
#include "mmd/keeper/closer.h"
#include "mmd/keeper/instance.h"
#include "mmd/keeper/listen.h"
#include "mmd/keeper/relay.h"
#include "mmd/keeper/spawn.h"
#include "mmd/common/loop.h"

#define ACCEPTS_PER_WAKEUP 8
/* Time for core to end in order, and then for SIGKILL to take effect. */
#define STOP_NS          (30 * MM_NS_PER_S)
#define ACCEPT_PAUSE_NS  MM_NS_PER_S
#define RELAY_PAUSE_NS   MM_NS_PER_S
#define BACKOFF_FIRST_NS (50 * MM_NS_PER_MS)
#define BACKOFF_MAX_NS   (5 * MM_NS_PER_S)
#define BACKOFF_DOWN_NS  (10 * MM_NS_PER_S)
#define BACKOFF_QUICK_NS (250 * MM_NS_PER_MS)
/* An xfer that dies sooner after its start counts as a quick death. */
#define QUICK_NS (5 * MM_NS_PER_S)
/* After so many failures of one xfer in a row, none proven in between, its device is down. */
#define FAILURES_MAX 6

struct keeper_helper { /* a load, or the spool of a store */
	enum mm_role role;
	uint64_t id;
	pid_t pid; /* 0 = free */
};

struct keeper_xfer { /* one per device */
	uint64_t epoch;
	pid_t pid;
	uint64_t start_at_ns;  /* UINT64_MAX = no start is due */
	uint64_t started_ns;   /* when the running xfer was started */
	unsigned int failures; /* deaths in a row before the xfer was proven */
	unsigned int quick;    /* deaths in a row soon after the start */
	bool proven;           /* core has reported that it works (worker.h) */
	bool down;
	struct mm_devlock lock; /* lock of its device, held until mmd ends */
};

struct keeper {
	const struct mm_config *config;
	struct mm_loop loop;
	struct mm_place place;
	struct mm_relay relay;
	uint64_t relay_at_ns; /* when the relay is started again; UINT64_MAX: it is not due */
	struct mm_kchan core;
	struct mm_closer closer;
	pid_t core_pid;
	struct keeper_xfer xfer[MM_DEVICES_MAX];
	uint32_t n_xfers;
	struct keeper_helper helpers[MM_KEEPER_HELPERS_MAX];
	struct mm_loop_source core_source, signal_source, tenant_source, admin_source;
	int signal_fd;
	bool ready, stopping, failed;
	char why[MM_TEXT_BYTES]; /* why mmd failed, if stderr did not take it */
	uint64_t accept_at_ns;   /* no connection is accepted before; 0: accepting is not paused */
	uint64_t end_at_ns;      /* end of the time for an orderly stop, then for killed roles */
};

/*
 * Sets what each source waits for, in each iteration, from the state alone; code that sends,
 * flushes or changes the state need not do it.
 */
static void sources_update(struct keeper *k)
{
	bool accepts =
		k->ready && !k->stopping && !mm_kchan_is_waiting(&k->core) && !k->accept_at_ns;
	/* Only the operator can use the admin socket, and it adds nothing to the closer's work. */
	bool tenants = accepts && !mm_closer_is_full(&k->closer);

	mm_loop_want(&k->loop, &k->core_source, mm_kchan_events(&k->core));
	mm_loop_want(&k->loop, &k->tenant_source, tenants ? EPOLLIN : 0);
	mm_loop_want(&k->loop, &k->admin_source, accepts ? EPOLLIN : 0);
}

static void child_kill(pid_t pid)
{
	if (pid > 0)
		kill(pid, SIGKILL);
}

/* ---- accepting ---- */

/* Pauses accepting when no fd or memory is left; connections wait in the kernel meanwhile. */
static void accept_pause(struct keeper *k, int error)
{
	k->accept_at_ns = mm_now_ns() + ACCEPT_PAUSE_NS;
	mm_log(MM_LOG_WARN, "accept.failed", "error=%d", error);
}

static void accept_resume(struct keeper *k)
{
	if (mm_now_ns() >= k->accept_at_ns)
		k->accept_at_ns = 0;
}

static void accept_some(struct keeper *k, int listen_fd, enum mm_kop op)
{
	struct mm_kmsg msg = { .op = op };
	int fd;

	for (int i = 0; i < ACCEPTS_PER_WAKEUP && !mm_kchan_is_waiting(&k->core); i++) {
		fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				accept_pause(k, errno);
			break;
		}
		mm_instance_send(&k->core, &msg, &fd, 1);
	}
}

static void keeper_on_tenant(struct mm_loop_source *source, uint32_t events)
{
	struct keeper *k = mm_loop_source_owner(source, struct keeper, tenant_source);

	(void)events;
	accept_some(k, k->place.tenant_fd, MM_K_TENANT);
}

static void keeper_on_admin(struct mm_loop_source *source, uint32_t events)
{
	struct keeper *k = mm_loop_source_owner(source, struct keeper, admin_source);

	(void)events;
	accept_some(k, k->place.admin_fd, MM_K_ADMIN);
}

/* ---- starting ---- */

static void keeper_fail(struct keeper *k, const char *text)
{
	if (fprintf(stderr, "mmd: %s\n", text) < 0)
		snprintf(k->why, sizeof(k->why), "%s", text);
	k->failed = true;
	child_kill(k->core_pid);
}

static struct keeper_xfer *xfer_named(struct keeper *k, const struct mm_kmsg *msg)
{
	mm_assert(msg->device < k->n_xfers);
	return &k->xfer[msg->device];
}

/* The device's number for the operator and the driver. */
static uint64_t xfer_ordinal(const struct keeper *k, const struct keeper_xfer *x)
{
	return mm_config_at(&k->config->device, (uint32_t)(x - k->xfer));
}

static uint64_t backoff_growing_ns(unsigned int times, uint64_t max_ns)
{
	if (times < 2)
		return 0;
	return MM_MIN(BACKOFF_FIRST_NS << MM_MIN(times - 2, 10u), max_ns);
}

/*
 * An xfer that works a little and dies has not failed to start, but repeated quick deaths are
 * delayed as well.
 */
static uint64_t xfer_backoff_ns(const struct keeper_xfer *x)
{
	if (x->down)
		return BACKOFF_DOWN_NS;
	return MM_MAX(backoff_growing_ns(x->failures, BACKOFF_MAX_NS),
		      backoff_growing_ns(x->quick, BACKOFF_QUICK_NS));
}

static void xfer_request(struct keeper *k, const struct mm_kmsg *msg)
{
	struct keeper_xfer *x = xfer_named(k, msg);
	uint64_t wait_ns = xfer_backoff_ns(x);

	if (x->pid || x->start_at_ns != UINT64_MAX) {
		mm_log(MM_LOG_ERROR, "xfer.start_refused",
		       "device=%" PRIu64 " epoch=%" PRIu64 " pid=%d", xfer_ordinal(k, x), msg->id,
		       (int)x->pid);
		return;
	}
	if (wait_ns)
		mm_log(MM_LOG_WARN, "xfer.backoff",
		       "device=%" PRIu64 " failures=%u short_lives=%u wait_ms=%" PRIu64,
		       xfer_ordinal(k, x), x->failures, x->quick, wait_ns / MM_NS_PER_MS);
	x->epoch = msg->id;
	x->start_at_ns = mm_now_ns() + wait_ns;
}

static void xfer_gone(struct keeper *k, struct keeper_xfer *x, int status);

/*
 * An xfer that cannot be started (no fds, no processes left) counts as failed, as if it had died,
 * so that retries end.
 */
static void xfers_start_due(struct keeper *k)
{
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		struct keeper_xfer *x = &k->xfer[i];

		if (x->start_at_ns > mm_now_ns())
			continue;
		x->start_at_ns = UINT64_MAX;
		x->started_ns = mm_now_ns();
		x->proven = false;
		if (!mm_instance_start(&k->core, k->config,
				       &(struct mm_instance){ MM_ROLE_XFER, i, x->epoch }, &x->pid))
			xfer_gone(k, x, W_EXITCODE(1, 0));
	}
}

static uint64_t xfers_start_at_ns(const struct keeper *k)
{
	uint64_t at = UINT64_MAX;

	for (uint32_t i = 0; i < k->n_xfers; i++)
		at = MM_MIN(at, k->xfer[i].start_at_ns);
	return at;
}

static struct keeper_helper *helper_find(struct keeper *k, enum mm_role role, uint64_t id)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		struct keeper_helper *h = &k->helpers[i];

		if (h->pid && h->role == role && h->id == id)
			return h;
	}
	return NULL;
}

static void helper_request(struct keeper *k, enum mm_role role, uint64_t id)
{
	struct mm_instance instance = { .role = role, .id = id };

	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (!k->helpers[i].pid) {
			k->helpers[i].role = role;
			k->helpers[i].id = id;
			if (!mm_instance_start(&k->core, k->config, &instance, &k->helpers[i].pid))
				break;
			return;
		}
	}
	mm_instance_gone(&k->core, &instance, W_EXITCODE(1, 0));
}

/* ---- messages of core ---- */

static void core_on_kill(struct keeper *k, const struct mm_kmsg *msg)
{
	struct keeper_helper *helper = helper_find(k, (enum mm_role)msg->role, msg->id);

	if (helper)
		child_kill(helper->pid);
	else if (msg->role == MM_ROLE_XFER && msg->id == xfer_named(k, msg)->epoch)
		child_kill(xfer_named(k, msg)->pid);
}

static void core_on_ready(struct keeper *k, const struct mm_kmsg *msg)
{
	if (msg->role == MM_ROLE_XFER) {
		struct keeper_xfer *x = xfer_named(k, msg);

		x->proven = true;
		x->down = false;
		x->failures = 0;
		return;
	}
	k->ready = true;
}

static void xfer_down(struct keeper *k, struct keeper_xfer *x, const char *why);

/* Takes over @fds: first the claim, then the file, as far as there are any. */
static void device_lock_hold(struct keeper *k, const struct mm_kmsg *msg, int *fds)
{
	struct keeper_xfer *x = xfer_named(k, msg);
	size_t n = 0;

	while (n < MM_KCHAN_FDS && fds[n] >= 0)
		n++;
	mm_devlock_close(&x->lock);
	if (n > 0 && msg->result) {
		x->lock.file_fd = fds[--n];
		fds[n] = -1;
	}
	if (n > 0) {
		x->lock.claim_fd = fds[0];
		fds[0] = -1;
	}
	snprintf(x->lock.uuid, sizeof(x->lock.uuid), "%.32s", msg->text);
	mm_devlock_adopt(&x->lock);
}

static void core_on_message(struct keeper *k, const struct mm_kmsg *msg, int *fds)
{
	switch (msg->op) {
	case MM_K_LOCK:
		device_lock_hold(k, msg, fds);
		break;
	case MM_K_CLOSE:
		mm_closer_add(&k->closer, fds[0]);
		fds[0] = -1;
		break;
	case MM_K_CLOSED:
		mm_closer_release(&k->closer);
		break;
	case MM_K_DOWN:
		if (!k->stopping)
			xfer_down(k, xfer_named(k, msg),
				  "the GPU is lost; see device.health above, and reset it");
		break;
	case MM_K_START:
		if (k->stopping)
			break;
		if (msg->role == MM_ROLE_XFER)
			xfer_request(k, msg);
		else if (msg->role == MM_ROLE_LOAD || msg->role == MM_ROLE_SPOOL)
			helper_request(k, (enum mm_role)msg->role, msg->id);
		break;
	case MM_K_KILL:
		core_on_kill(k, msg);
		break;
	case MM_K_READY:
		core_on_ready(k, msg);
		break;
	case MM_K_STOP:
		keeper_fail(k, msg->text);
		break;
	default:
		mm_log(MM_LOG_ERROR, "core.unknown_op", "op=%u", msg->op);
	}
}

/* Return: that of the last mm_kchan_recv(). */
static int core_receive(struct keeper *k, unsigned int max)
{
	struct mm_kmsg msg;
	int fds[MM_KCHAN_FDS];
	int r = 0;

	for (unsigned int i = 0; i < max; i++) {
		r = mm_kchan_recv(&k->core, &msg, fds);
		if (r < 0)
			break;
		core_on_message(k, &msg, fds);
		for (size_t f = 0; f < MM_KCHAN_FDS; f++)
			mm_close_fd(&fds[f]);
	}
	return r;
}

static void keeper_on_core(struct mm_loop_source *source, uint32_t events)
{
	struct keeper *k = mm_loop_source_owner(source, struct keeper, core_source);
	int r = core_receive(k, MM_LOOP_BATCH);

	(void)events;
	if (r < 0 && r != -EAGAIN) {
		/* core is dead, dying or broken; its death is handled on SIGCHLD. */
		mm_loop_del(&k->loop, &k->core_source);
		if (!k->stopping)
			child_kill(k->core_pid);
		return;
	}
	mm_kchan_flush(&k->core);
}

/* ---- reaping ---- */

static void children_kill(struct keeper *k)
{
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		child_kill(k->xfer[i].pid);
		k->xfer[i].start_at_ns = UINT64_MAX;
	}
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++)
		child_kill(k->helpers[i].pid);
	k->end_at_ns = mm_now_ns() + STOP_NS;
}

static void core_gone(struct keeper *k, int status)
{
	bool orderly = k->stopping && WIFEXITED(status) && WEXITSTATUS(status) == 0;

	k->core_pid = 0;
	core_receive(k, UINT32_MAX); /* its last message may say why it ended */
	if (!orderly && !k->failed)
		mm_log(MM_LOG_ERROR, "core.died", "status=%#x", (unsigned int)status);
	if (!orderly)
		k->failed = true;
	k->stopping = true;
	mm_loop_del(&k->loop, &k->core_source);
	children_kill(k);
}

/*
 * Marks the device of an xfer that failed repeatedly as down; keeper goes on starting that xfer.
 * While mmd starts, or when no device is left, mmd ends.
 */
static void xfer_down(struct keeper *k, struct keeper_xfer *x, const char *why)
{
	struct mm_kmsg msg = { .op = MM_K_DOWN,
			       .role = MM_ROLE_XFER,
			       .device = (uint32_t)(x - k->xfer),
			       .id = x->epoch };
	char text[160];
	bool any = false;

	x->down = true;
	for (uint32_t i = 0; i < k->n_xfers; i++)
		any |= !k->xfer[i].down;
	if (k->ready && any) {
		mm_instance_send(&k->core, &msg, NULL, 0);
		return;
	}
	snprintf(text, sizeof(text), "device %" PRIu64 ": %s", xfer_ordinal(k, x), why);
	keeper_fail(k, text);
}

static void xfer_gone(struct keeper *k, struct keeper_xfer *x, int status)
{
	char why[120];

	x->pid = 0;
	if (!x->proven && !x->down)
		x->failures++;
	x->quick = mm_now_ns() - x->started_ns < QUICK_NS ? x->quick + 1 : 0;
	if (!k->stopping)
		mm_log(MM_LOG_WARN, "xfer.died", "device=%" PRIu64 " epoch=%" PRIu64 " status=%#x",
		       xfer_ordinal(k, x), x->epoch, (unsigned int)status);
	snprintf(why, sizeof(why),
		 "xfer failed %u times in a row (last wait status %#x); see its messages above",
		 x->failures, (unsigned int)status);
	if (x->failures >= FAILURES_MAX && !x->down && !k->stopping)
		xfer_down(k, x, why);
	mm_instance_gone(&k->core,
			 &(struct mm_instance){ MM_ROLE_XFER, (uint32_t)(x - k->xfer), x->epoch },
			 status);
}

static bool xfer_reaped(struct keeper *k, pid_t pid, int status)
{
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		if (k->xfer[i].pid == pid) {
			xfer_gone(k, &k->xfer[i], status);
			return true;
		}
	}
	return false;
}

static void helper_reaped(struct keeper *k, pid_t pid, int status)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (k->helpers[i].pid == pid) {
			k->helpers[i].pid = 0;
			mm_instance_gone(&k->core,
					 &(struct mm_instance){ .role = k->helpers[i].role,
								.id = k->helpers[i].id },
					 status);
		}
	}
}

/* Lines that are logged until the next relay runs wait in its pipe. */
static void relay_gone(struct keeper *k, int status)
{
	k->relay.pid = 0;
	k->relay_at_ns = mm_now_ns() + RELAY_PAUSE_NS;
	mm_log(MM_LOG_WARN, "log.relay_died", "status=%#x", (unsigned int)status);
}

static void relay_start_due(struct keeper *k)
{
	int r;

	if (mm_now_ns() < k->relay_at_ns)
		return;
	k->relay_at_ns = UINT64_MAX;
	r = mm_relay_restart(&k->relay, k->config);
	if (r < 0) {
		mm_log(MM_LOG_ERROR, "role.start_failed", "what=%u error=%d", MM_ROLE_LOG, r);
		k->relay_at_ns = mm_now_ns() + RELAY_PAUSE_NS;
	}
}

static void children_reap(struct keeper *k)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (mm_closer_reaped(&k->closer, pid))
			continue;
		if (pid == k->core_pid)
			core_gone(k, status);
		else if (pid == k->relay.pid)
			relay_gone(k, status);
		else if (!xfer_reaped(k, pid, status))
			helper_reaped(k, pid, status);
	}
}

static void keeper_stop(struct keeper *k)
{
	struct mm_kmsg msg = { .op = MM_K_STOP };

	if (k->stopping)
		return;
	k->stopping = true;
	k->end_at_ns = mm_now_ns() + STOP_NS;
	mm_instance_send(&k->core, &msg, NULL, 0);
	/*
	 * Logged after the message was queued: a reader of the line can rely on core to stop, even
	 * if keeper dies now.
	 */
	mm_log(MM_LOG_INFO, "mmd.stopping", "pid=%d", (int)getpid());
}

/* SIGTERM and the terminal's ^C and ^\ end mmd. SIGHUP, SIGUSR1 and SIGUSR2 do not. */
static bool signal_ends_mmd(uint32_t signal)
{
	return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT;
}

static void keeper_on_signal(struct mm_loop_source *source, uint32_t events)
{
	struct keeper *k = mm_loop_source_owner(source, struct keeper, signal_source);
	struct signalfd_siginfo info;

	(void)events;
	while (read(k->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		if (signal_ends_mmd(info.ssi_signo))
			keeper_stop(k);
		else
			mm_log(MM_LOG_WARN, "signal.ignored", "signal=%s pid=%u uid=%u",
			       sigabbrev_np((int)info.ssi_signo), info.ssi_pid, info.ssi_uid);
	}
	children_reap(k);
}

/* ---- beginning and end ---- */

static int signals_init(struct keeper *k)
{
	static const int taken[] = { SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 };
	sigset_t set;

	/* If mmd was started with SIGCHLD ignored, the kernel would reap the children itself. */
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&set);
	for (size_t i = 0; i < MM_ARRAY_SIZE(taken); i++)
		sigaddset(&set, taken[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return k->signal_fd < 0 ? -errno : 0;
}

static int core_start(struct keeper *k)
{
	mm_cleanup(mm_close_fd) int child = -1;
	int pair[2], r;

	r = mm_sock_pair(pair);
	if (r < 0)
		return r;
	mm_kchan_init(&k->core, pair[0]);
	child = pair[1];
	return mm_spawn(k->config, MM_ROLE_CORE, &child, 1, &k->core_pid);
}

static int sources_add(struct keeper *k)
{
	int r = mm_loop_add(&k->loop, &k->signal_source, k->signal_fd, EPOLLIN, keeper_on_signal);

	if (r == 0)
		r = mm_loop_add(&k->loop, &k->core_source, k->core.fd, EPOLLIN, keeper_on_core);
	if (r == 0)
		r = mm_loop_add(&k->loop, &k->tenant_source, k->place.tenant_fd, 0,
				keeper_on_tenant);
	if (r == 0)
		r = mm_loop_add(&k->loop, &k->admin_source, k->place.admin_fd, 0, keeper_on_admin);
	return r;
}

static bool children_all_reaped(const struct keeper *k)
{
	for (size_t i = 0; i < MM_KEEPER_HELPERS_MAX; i++) {
		if (k->helpers[i].pid)
			return false;
	}
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		if (k->xfer[i].pid)
			return false;
	}
	return !k->core_pid;
}

/*
 * Ends core by force when an orderly stop takes too long. Return: whether keeper must give up
 * waiting.
 */
static bool keeper_end_due(struct keeper *k)
{
	if (mm_now_ns() < k->end_at_ns)
		return false;
	if (!k->core_pid)
		return true; /* a process hangs in the kernel in spite of SIGKILL */
	mm_log(MM_LOG_ERROR, "core.stop_timeout", "pid=%d", (int)k->core_pid);
	child_kill(k->core_pid);
	children_kill(k);
	return false;
}

static uint64_t keeper_wake_ns(const struct keeper *k)
{
	uint64_t at = MM_MIN(xfers_start_at_ns(k), k->end_at_ns);

	at = MM_MIN(at, mm_closer_due_ns(&k->closer));
	at = MM_MIN(at, MM_MIN(mm_kchan_deadline(&k->core), k->relay_at_ns));
	return k->accept_at_ns ? MM_MIN(at, k->accept_at_ns) : at;
}

static int keeper_run(struct keeper *k)
{
	int r = 0;

	while (r == 0 && !(k->stopping && children_all_reaped(k))) {
		sources_update(k);
		r = mm_loop_run_once(&k->loop, keeper_wake_ns(k));
		xfers_start_due(k);
		accept_resume(k);
		mm_closer_service(&k->closer);
		relay_start_due(k);
		mm_log_catch_up();
		mm_kchan_service(&k->core, mm_now_ns());
		if (keeper_end_due(k))
			break;
	}
	if (r < 0)
		mm_log(MM_LOG_ERROR, "loop.failed", "error=%d", r);
	return r < 0 || k->failed ? 1 : 0;
}

static void keeper_done(struct keeper *k)
{
	child_kill(k->core_pid);
	children_kill(k);
	mm_place_done(&k->place);
	mm_kchan_done(&k->core);
	mm_close_fd(&k->signal_fd);
	mm_loop_done(&k->loop);
	mm_log_catch_up();
	/* Lines that a dead relay left are still in the pipe. */
	if (!k->relay.pid && k->relay.pipe_fd >= 0)
		mm_relay_restart(&k->relay, k->config);
	mm_relay_end(&k->relay);
	/* A process that hangs in the kernel still uses its device, so the lock's file stays. */
	for (uint32_t i = 0; i < k->n_xfers && children_all_reaped(k); i++)
		mm_devlock_leave(&k->xfer[i].lock);
}

static int keeper_init(struct keeper *k, const struct mm_config *config, char *error)
{
	int r;

	*k = (struct keeper){
		.config = config,
		.loop = MM_LOOP_NULL,
		.n_xfers = mm_config_devices(config),
		.core_source = MM_LOOP_SOURCE_NULL,
		.signal_source = MM_LOOP_SOURCE_NULL,
		.tenant_source = MM_LOOP_SOURCE_NULL,
		.admin_source = MM_LOOP_SOURCE_NULL,
		.signal_fd = -1,
		.end_at_ns = UINT64_MAX,
		.relay = MM_RELAY_NULL,
		.relay_at_ns = UINT64_MAX,
	};
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		k->xfer[i].start_at_ns = UINT64_MAX;
		k->xfer[i].lock = MM_DEVLOCK_NULL;
	}
	mm_kchan_init(&k->core, -1);
	k->place = MM_PLACE_NULL;
	r = signals_init(k);
	if (r == 0)
		r = mm_loop_init(&k->loop);
	if (r == 0) {
		r = mm_place_init(&k->place, config->dir, !config->discard_fds, error);
		if (r < 0)
			return r;
		r = mm_relay_init(&k->relay, config);
	}
	if (r == 0)
		r = core_start(k);
	if (r == 0)
		r = sources_add(k);
	if (r < 0)
		snprintf(error, MM_CONFIG_ERROR_BYTES, "cannot start: %s", strerror(-r));
	return r;
}

int mm_keeper_main(const struct mm_config *config)
{
	static struct keeper k;
	char error[MM_CONFIG_ERROR_BYTES];
	int status = 1;

	if (keeper_init(&k, config, error) < 0)
		fprintf(stderr, "mmd: %s\n", error);
	else
		status = keeper_run(&k);
	keeper_done(&k);
	if (*k.why)
		fprintf(stderr, "mmd: %s\n", k.why);
	return status;
}
