/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
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
#include "mmd/common/audit.h"
#include "mmd/common/pidfd.h"
#include "mmd/common/rights.h"
#include "mmd/keeper/children.h"
#include "mmd/keeper/instance.h"
#include "mmd/keeper/kcore.h"
#include "mmd/keeper/reexec.h"
#include "mmd/keeper/spawn.h"

#define ACCEPTS_PER_WAKEUP 8
#define ACCEPT_BURST_NS    (256 * MM_PACE_CONN_NS)
#define ACCEPT_PAUSE_NS    MM_NS_PER_S
#define RELAY_PAUSE_NS     MM_NS_PER_S

/*
 * Sets what each source waits for, in each iteration, from the state alone; code that sends,
 * flushes or changes the state need not do it.
 */
static void sources_update(struct mm_keeper *k)
{
	bool accepts = k->process.serves && !k->stopping && !mm_kchan_is_waiting(&k->core) &&
		       !k->accept_at_ns;
	/* Only the operator can use the admin socket, and it adds nothing to the closer's work. */
	bool tenants = accepts && !mm_closer_is_full(&k->closer);

	mm_loop_want(&k->loop, &k->core_source, mm_kchan_events(&k->core));
	mm_loop_want(&k->loop, &k->tenant_source,
		     tenants && !k->tenant_door.open_at_ns ? EPOLLIN : 0);
	mm_loop_want(&k->loop, &k->admin_source, accepts ? EPOLLIN : 0);
	if (k->place.view_fd >= 0)
		mm_loop_want(&k->loop, &k->view_source,
			     tenants && !k->view_door.open_at_ns ? EPOLLIN : 0);
}

/* ---- accepting ---- */

/* Pauses accepting when no fd or memory is left; connections wait in the kernel meanwhile. */
static void accept_pause(struct mm_keeper *k, int error)
{
	k->accept_at_ns = mm_now_ns() + ACCEPT_PAUSE_NS;
	mm_log(MM_LOG_WARN, "accept.failed", "error=%d", error);
}

static void accept_resume(struct mm_keeper *k)
{
	uint64_t *const at_ns[] = { &k->accept_at_ns, &k->tenant_door.open_at_ns,
				    &k->view_door.open_at_ns };
	const uint64_t now_ns = mm_now_ns();

	for (size_t i = 0; i < MM_ARRAY_SIZE(at_ns); i++)
		if (now_ns >= *at_ns[i])
			*at_ns[i] = 0;
}

/*
 * Shuts a door at which more have come than are served, until some can be accepted at once. They
 * wait in the kernel in the order in which they came, and those that then find no place there wait
 * in connect().
 */
static bool door_is_shut(struct mm_keeper_door *door)
{
	const uint64_t due_ns = mm_pace_due(&door->pace, ACCEPT_BURST_NS, mm_now_ns());

	if (due_ns)
		door->open_at_ns = due_ns + (ACCEPTS_PER_WAKEUP - 1) * MM_PACE_CONN_NS;
	return door->open_at_ns;
}

/* Holds the process behind a connection; without it that process cannot be killed. */
static void tenant_hold_process(struct mm_keeper *k, int fd, uint64_t conn)
{
	int pidfd = -1;
	int r = mm_pidfd_of_peer(fd, &pidfd);

	if (r == 0)
		r = mm_hold_put(&k->hold, (struct mm_held_name){ MM_HELD_PIDFD, 0, conn }, pidfd);
	if (r < 0 && r != -ESRCH && r != -EINVAL)
		mm_log(MM_LOG_WARN, "hold.no_process", "connection=%" PRIu64 " error=%d", conn, r);
}

/*
 * Passes a connection of a tenant or an observer to core, and holds a copy until core drops it. Its
 * close may sleep, so what cannot be held goes to the closer.
 */
static void connection_pass(struct mm_keeper *k, int fd, enum mm_kop op)
{
	struct mm_kmsg msg = { .op = op, .id = ++k->conn_serial };
	const struct mm_held_name name = { op == MM_K_VIEW ? MM_HELD_VIEW : MM_HELD_CONN, 0,
					   msg.id };
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int r = copy < 0 ? -errno : mm_hold_put(&k->hold, name, copy);

	if (r < 0) {
		mm_closer_add(&k->closer, fd);
		accept_pause(k, -r);
		return;
	}
	if (op == MM_K_TENANT)
		tenant_hold_process(k, fd, msg.id);
	mm_instance_send(&k->core, &msg, &fd, 1);
}

/* core may also have died within this very batch of events. */
static bool accepts_no_more(const struct mm_keeper *k, struct mm_keeper_door *door)
{
	return !k->process.serves || mm_kchan_is_waiting(&k->core) || k->accept_at_ns ||
	       (door && door_is_shut(door));
}

/* @door: NULL: at the admin socket, which is the operator's. */
static void accept_some(struct mm_keeper *k, int listen_fd, enum mm_kop op,
			struct mm_keeper_door *door)
{
	struct mm_kmsg msg = { .op = op };
	int fd;

	for (int i = 0; i < ACCEPTS_PER_WAKEUP && !accepts_no_more(k, door); i++) {
		fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				accept_pause(k, errno);
			break;
		}
		if (door)
			mm_pace_charge(&door->pace, MM_PACE_CONN_NS, mm_now_ns());
		if (op == MM_K_ADMIN)
			mm_instance_send(&k->core, &msg, &fd, 1);
		else
			connection_pass(k, fd, op);
	}
}

static void keeper_on_tenant(struct mm_loop_source *source, uint32_t events)
{
	struct mm_keeper *k = mm_loop_source_owner(source, struct mm_keeper, tenant_source);

	(void)events;
	accept_some(k, k->place.tenant_fd, MM_K_TENANT, &k->tenant_door);
}

static void keeper_on_admin(struct mm_loop_source *source, uint32_t events)
{
	struct mm_keeper *k = mm_loop_source_owner(source, struct mm_keeper, admin_source);

	(void)events;
	accept_some(k, k->place.admin_fd, MM_K_ADMIN, NULL);
}

static void keeper_on_view(struct mm_loop_source *source, uint32_t events)
{
	struct mm_keeper *k = mm_loop_source_owner(source, struct mm_keeper, view_source);

	(void)events;
	accept_some(k, k->place.view_fd, MM_K_VIEW, &k->view_door);
}

/* ---- reaping ---- */

/* Lines that are logged until the next relay runs wait in its pipe. */
static void relay_gone(struct mm_keeper *k, int status)
{
	const bool asked = k->relay.reopens && WIFEXITED(status) && WEXITSTATUS(status) == 0;

	k->relay.pid = 0;
	k->relay.reopens = false;
	k->relay_at_ns = mm_now_ns() + (asked ? 0 : RELAY_PAUSE_NS);
	if (asked)
		return;
	mm_log(MM_LOG_WARN, "log.relay_died", "status=%#x", (unsigned int)status);
}

static void relay_start_due(struct mm_keeper *k)
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

static void children_reap(struct mm_keeper *k)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
		if (!WIFEXITED(status) && !WIFSIGNALED(status)) {
			if (pid == k->process.pid)
				k->process.stopped = WIFSTOPPED(status);
			continue;
		}
		if (mm_closer_reaped(&k->closer, pid) || mm_upgrade_reaped(k, pid, status))
			continue;
		if (pid == k->process.pid)
			mm_kcore_gone(k, status);
		else if (pid == k->relay.pid)
			relay_gone(k, status);
		else
			mm_children_reaped(k, pid, status);
	}
}

/* SIGTERM and the terminal's ^C and ^\ end mmd; SIGHUP, SIGUSR1 and SIGUSR2 do not. */
static bool signal_ends_mmd(uint32_t signal)
{
	return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT;
}

/* The audit log is opened anew, for whoever has moved its file, and the settings are read again. */
static void keeper_on_hangup(struct mm_keeper *k)
{
	if (*k->config->audit == '/')
		mm_relay_reopen(&k->relay, k->config);
	mm_reload_want(k);
}

static void keeper_on_signal(struct mm_loop_source *source, uint32_t events)
{
	struct mm_keeper *k = mm_loop_source_owner(source, struct mm_keeper, signal_source);
	struct signalfd_siginfo info;

	(void)events;
	while (read(k->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		if (signal_ends_mmd(info.ssi_signo))
			mm_kcore_stop(k);
		else if (info.ssi_signo == SIGHUP)
			keeper_on_hangup(k);
		else
			mm_log(MM_LOG_WARN, "signal.ignored", "signal=%s pid=%u uid=%u",
			       sigabbrev_np((int)info.ssi_signo), info.ssi_pid, info.ssi_uid);
	}
	children_reap(k);
}

/* ---- beginning and end ---- */

static int signals_init(struct mm_keeper *k)
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

static int sources_add(struct mm_keeper *k)
{
	int r = mm_loop_add(&k->loop, &k->signal_source, k->signal_fd, EPOLLIN, keeper_on_signal);

	if (r == 0)
		r = mm_kcore_listen(k);
	if (r == 0)
		r = mm_loop_add(&k->loop, &k->tenant_source, k->place.tenant_fd, 0,
				keeper_on_tenant);
	if (r == 0)
		r = mm_loop_add(&k->loop, &k->admin_source, k->place.admin_fd, 0, keeper_on_admin);
	if (r == 0 && k->place.view_fd >= 0)
		r = mm_loop_add(&k->loop, &k->view_source, k->place.view_fd, 0, keeper_on_view);
	return r;
}

static bool roles_all_reaped(const struct mm_keeper *k)
{
	return !k->process.pid && mm_children_all_reaped(k);
}

/*
 * Ends core by force when an orderly stop takes too long. Return: whether keeper must give up
 * waiting.
 */
static bool keeper_end_due(struct mm_keeper *k)
{
	if (mm_now_ns() < k->end_at_ns)
		return false;
	if (!k->process.pid)
		return true; /* a process hangs in the kernel in spite of SIGKILL */
	mm_log(MM_LOG_ERROR, "core.stop_timeout", "pid=%d", (int)k->process.pid);
	mm_keeper_child_kill(k->process.pid);
	mm_children_kill(k);
	return false;
}

/* @other_ns: 0: none. */
static uint64_t sooner_ns(uint64_t at_ns, uint64_t other_ns)
{
	return other_ns ? MM_MIN(at_ns, other_ns) : at_ns;
}

static uint64_t keeper_wake_ns(const struct mm_keeper *k)
{
	uint64_t at = MM_MIN(mm_children_start_at_ns(k), k->end_at_ns);

	at = MM_MIN(at, mm_closer_due_ns(&k->closer));
	at = MM_MIN(at, mm_kcore_due_ns(k));
	at = MM_MIN(at, MM_MIN(mm_notify_due_ns(&k->notify), mm_reload_due_ns(k)));
	at = MM_MIN(at, MM_MIN(mm_kchan_deadline(&k->core), k->relay_at_ns));
	at = sooner_ns(at, k->tenant_door.open_at_ns);
	at = sooner_ns(at, k->view_door.open_at_ns);
	return sooner_ns(at, k->accept_at_ns);
}

static int keeper_run(struct mm_keeper *k)
{
	int r = 0;

	while (r == 0 && !(k->stopping && roles_all_reaped(k))) {
		mm_kcore_service(k);
		sources_update(k);
		r = mm_loop_run_once(&k->loop, keeper_wake_ns(k));
		mm_children_start_due(k);
		accept_resume(k);
		mm_closer_service(&k->closer);
		mm_notify_service(k);
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

static void keeper_done(struct mm_keeper *k)
{
	mm_keeper_child_kill(k->process.pid);
	mm_keeper_child_kill(k->upgrade.pid);
	mm_children_kill(k);
	mm_notify_done(&k->notify);
	mm_reload_done(k);
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
	for (uint32_t i = 0; i < k->n_xfers && roles_all_reaped(k); i++)
		mm_devlock_leave(&k->xfer[i].lock);
}

/*
 * Keeps what it needs to kill tenants, and to start roles that become other users. As the other
 * roles begin as root, each begins with all capabilities again. There is no filter: it would hold
 * in the other roles, too.
 */
static int keeper_rights_drop(void)
{
	const uint64_t keep = UINT64_C(1) << CAP_KILL | UINT64_C(1) << CAP_SETUID |
			      UINT64_C(1) << CAP_SETGID | UINT64_C(1) << CAP_SYS_RESOURCE;
	int r = mm_rights_keep(keep);

	return r < 0 ? r : mm_rights_hide();
}

static void keeper_empty(struct mm_keeper *k, const struct mm_config *config)
{
	*k = (struct mm_keeper){
		.loop = MM_LOOP_NULL,
		.n_xfers = mm_config_devices(config),
		.core_source = MM_LOOP_SOURCE_NULL,
		.signal_source = MM_LOOP_SOURCE_NULL,
		.tenant_source = MM_LOOP_SOURCE_NULL,
		.admin_source = MM_LOOP_SOURCE_NULL,
		.view_source = MM_LOOP_SOURCE_NULL,
		.signal_fd = -1,
		.end_at_ns = UINT64_MAX,
		.process.beat = MM_REGION_NULL,
		.upgrade = MM_UPGRADE_INIT,
		.notify = MM_NOTIFY_NULL,
		.process.start_at_ns = UINT64_MAX,
		.closer.spared_fd = -1,
		.relay = MM_RELAY_NULL,
		.relay_at_ns = UINT64_MAX,
	};
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		k->xfer[i].start_at_ns = UINT64_MAX;
		k->xfer[i].lock = MM_DEVLOCK_NULL;
	}
	mm_reload_init(k, config);
	mm_kchan_init(&k->core, -1);
	mm_hold_init(&k->hold, &k->closer);
	k->place = MM_PLACE_NULL;
	snprintf(k->upgrade.build, sizeof(k->upgrade.build), "%s", mm_build_name());
}

static void keeper_audit_begin(const struct mm_config *config)
{
	mm_audit_init(mm_audit_sink(config->audit));
	mm_log_set_tap(mm_audit_tap);
}

static int keeper_init(struct mm_keeper *k, const struct mm_config *config, int argc, char **argv,
		       char *error)
{
	int r;

	keeper_empty(k, config);
	mm_reexec_reserve();
	mm_notify_init(&k->notify);
	r = signals_init(k);
	if (r == 0)
		r = mm_kcore_init(k);
	if (r == 0)
		r = mm_reload_hold(k, argc, argv);
	if (r == 0)
		r = mm_loop_init(&k->loop);
	if (r == 0) {
		r = mm_place_init(&k->place, config, error);
		if (r < 0)
			return r;
		r = mm_relay_check(config, error);
		if (r < 0)
			return r;
		r = mm_relay_init(&k->relay, config);
		keeper_audit_begin(config);
		k->closer.spared_fd = k->relay.stderr_fd;
	}
	if (r == 0)
		r = keeper_rights_drop();
	if (r == 0)
		r = mm_kcore_start(k);
	if (r == 0)
		r = sources_add(k);
	if (r < 0)
		snprintf(error, MM_CONFIG_ERROR_BYTES, "cannot start: %s", strerror(-r));
	return r;
}

static int keeper_finish(struct mm_keeper *k, int status)
{
	keeper_done(k);
	if (*k->why)
		fprintf(stderr, "%smmd: %s\n", mm_log_prefix(MM_LOG_ERROR), k->why);
	return status;
}

int mm_keeper_main(const struct mm_config *config, int argc, char **argv)
{
	static struct mm_keeper k;
	char error[MM_CONFIG_ERROR_BYTES];
	int status = 1;

	if (keeper_init(&k, config, argc, argv, error) < 0)
		fprintf(stderr, "%smmd: %s\n", mm_log_prefix(MM_LOG_ERROR), error);
	else
		status = keeper_run(&k);
	return keeper_finish(&k, status);
}

/* Makes all that may fail, and changes nothing that the other build needs. */
static int keeper_resume(struct mm_keeper *k, const struct mm_config *config, char *why)
{
	int r;

	keeper_empty(k, config);
	r = mm_reexec_load(MM_ROLE_FD, k, why, MM_TEXT_BYTES);
	if (r < 0)
		return r;
	snprintf(k->place.dir, sizeof(k->place.dir), "%s", config->dir);
	keeper_audit_begin(config);
	mm_notify_init(&k->notify);
	r = signals_init(k);
	if (r == 0)
		r = mm_kcore_resume(k);
	if (r == 0)
		r = mm_loop_init(&k->loop);
	if (r == 0)
		r = keeper_rights_drop();
	if (r == 0)
		r = sources_add(k);
	if (r < 0)
		snprintf(why, MM_TEXT_BYTES, "its keeper cannot start: %s", strerror(-r));
	return r;
}

int mm_keeper_again(const struct mm_config *config, char **argv)
{
	static struct mm_keeper k;
	char why[MM_TEXT_BYTES] = "";

	if (keeper_resume(&k, config, why) < 0) {
		mm_reexec_back(MM_ROLE_FD, argv, why);
		fprintf(stderr, "%smmd: %s\n", mm_log_prefix(MM_LOG_ERROR), why);
		return 1;
	}
	mm_reexec_done(MM_ROLE_FD, &k, why, sizeof(why));
	mm_spawn_spare(k.relay.stderr_fd);
	if (*why)
		mm_upgrade_keeper_stays(&k, why);
	else
		mm_upgrade_keeper_done(&k);
	children_reap(&k);
	return keeper_finish(&k, keeper_run(&k));
}
