/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/kcore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/keeper/children.h"
#include "mmd/keeper/instance.h"
#include "mmd/keeper/reexec.h"
#include "mmd/keeper/spawn.h"

#define BACKOFF_MAX_NS (5 * MM_NS_PER_S)
#define LOADS_WAIT_NS  (2 * MM_NS_PER_S)
/* So many checks in --core-timeout must find no beat: one proves nothing if keeper was stopped. */
#define CHECKS 4

void mm_kcore_stop(struct mm_keeper *k)
{
	struct mm_kmsg msg = { .op = MM_K_STOP };

	if (k->stopping)
		return;
	k->stopping = true;
	mm_notify_stopping(&k->notify);
	k->end_at_ns = mm_now_ns() + MM_KEEPER_STOP_NS;
	if (k->process.pid)
		mm_instance_send(&k->core, &msg, NULL, 0);
	else
		mm_kcore_end(k);
	/*
	 * Logged after the message was queued: a reader of the line can rely on core to stop, even
	 * if keeper dies now.
	 */
	mm_log(MM_LOG_INFO, "mmd.stopping", "pid=%d", (int)getpid());
}

static void core_on_ready(struct mm_keeper *k, const struct mm_kmsg *msg)
{
	if (msg->role == MM_ROLE_XFER) {
		struct mm_keeper_xfer *x = mm_children_xfer(k, msg);

		x->proven = true;
		x->down = false;
		x->failures = 0;
		return;
	}
	k->ready = true;
	mm_notify_ready(&k->notify, "serving");
	k->process.serves = true;
	k->process.resumable = msg->flags & MM_K_F_RESUMABLE;
}

static void core_on_resumed(struct mm_keeper *k)
{
	k->process.serves = true;
	k->process.failures = 0;
	mm_notify_status(&k->notify, "serving");
	mm_children_forget_ended(k);
}

/*
 * The packet has the claim, then the file, as far as there are any. keeper removes the file of the
 * UUID's name in the end, as root: a core that was taken over must not name another one.
 */
static void device_lock_hold(struct mm_keeper *k, struct mm_kpacket *packet)
{
	struct mm_keeper_xfer *x = mm_children_xfer(k, &packet->msg);
	size_t n = packet->n_fds;

	if (!mm_devlock_name(&x->lock, packet->msg.text)) {
		mm_log(MM_LOG_ERROR, "device.lock_unnamed", "device=%u", packet->msg.device);
		return;
	}
	mm_devlock_close(&x->lock);
	if (n > 0 && packet->msg.result)
		x->lock.file_fd = mm_kpacket_take(packet, --n);
	if (n > 0)
		x->lock.claim_fd = mm_kpacket_take(packet, 0);
	mm_devlock_adopt(&x->lock);
}

static void core_on_message(struct mm_keeper *k, struct mm_kpacket *packet)
{
	const struct mm_kmsg *msg = &packet->msg;

	switch (msg->op) {
	case MM_K_LOCK:
		device_lock_hold(k, packet);
		break;
	case MM_K_HOLD:
		mm_hold_on_hold(&k->hold, packet);
		break;
	case MM_K_DROP:
		mm_hold_on_drop(&k->hold, &k->core, packet);
		break;
	case MM_K_TAKEN:
		mm_hold_on_taken(&k->hold);
		break;
	case MM_K_DOWN:
		if (!k->stopping)
			mm_children_xfer_down(
				k, mm_children_xfer(k, msg),
				"the GPU is lost; see device.health above, and reset it");
		break;
	case MM_K_START:
		mm_children_on_start(k, msg);
		break;
	case MM_K_KILL:
		mm_children_on_kill(k, msg);
		break;
	case MM_K_KILL_TENANT:
		mm_hold_on_kill(&k->hold, msg->id);
		break;
	case MM_K_READY:
		core_on_ready(k, msg);
		break;
	case MM_K_RESUMED:
		core_on_resumed(k);
		break;
	case MM_K_UPGRADE:
		mm_upgrade_on_request(k, packet);
		break;
	case MM_K_STANDS:
		mm_upgrade_on_stands(k);
		break;
	case MM_K_RELOAD:
		mm_reload_on_message(k, msg);
		break;
	case MM_K_STOP:
		if (msg->result >= 0)
			mm_kcore_stop(k);
		/* A build that cannot go on is not the end of mmd: the one before can. */
		else if (k->upgrade.state == MM_UPGRADE_STARTED)
			mm_keeper_child_kill(k->process.pid);
		else
			mm_keeper_fail(k, msg->text);
		break;
	default:
		mm_log(MM_LOG_ERROR, "core.unknown_op", "op=%u", msg->op);
	}
}

/* Return: that of the last mm_kchan_recv(). */
static int core_receive(struct mm_keeper *k, unsigned int max)
{
	struct mm_kpacket packet;
	int r = 0;

	for (unsigned int i = 0; i < max; i++) {
		r = mm_kchan_recv(&k->core, &packet);
		if (r < 0 && r != -EMFILE)
			break;
		core_on_message(k, &packet);
		mm_kpacket_done(&packet);
	}
	return r;
}

/*
 * @why: logged; NULL: its end of the channel is closed. So it is dead already, or it will not live
 * without keeper; that is not held against one that was killed from outside.
 */
static void core_kill(struct mm_keeper *k, const char *why)
{
	if (why) {
		mm_log(MM_LOG_ERROR, "core.killed", "pid=%d reason=\"%s\"", (int)k->process.pid,
		       why);
		k->process.killed = true;
	}
	mm_keeper_child_kill(k->process.pid);
}

static void kcore_on_socket(struct mm_loop_source *source, uint32_t events)
{
	struct mm_keeper *k = mm_loop_source_owner(source, struct mm_keeper, core_source);
	int r = core_receive(k, MM_LOOP_BATCH);

	(void)events;
	if (r < 0 && r != -EAGAIN) {
		/* core is dead, dying or broken; its death is handled on SIGCHLD. */
		mm_loop_del(&k->loop, &k->core_source);
		if (!k->stopping)
			core_kill(k, r == -ECONNRESET ? NULL : "protocol violated");
		return;
	}
	mm_kchan_flush(&k->core);
}

/* ---- the end of a core, and its successor ---- */

/*
 * Notes an end of core that was its own fault: any but SIGKILL from outside, of which there may be
 * as many as somebody likes to send. Return: whether there were too many.
 */
static bool fault_is_one_too_many(struct mm_keeper *k, int status)
{
	struct mm_keeper_core *p = &k->process;
	const uint64_t now = mm_now_ns();
	uint64_t *at = &p->fault_at_ns[p->n_faults % MM_KEEPER_FAULTS_MAX];
	bool many;

	p->at_fault = !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL || p->killed;
	if (!p->at_fault)
		return false;
	many = p->n_faults >= MM_KEEPER_FAULTS_MAX && now - *at < MM_KEEPER_FAULTS_NS;
	*at = now;
	p->n_faults++;
	return many;
}

static bool core_may_restart(struct mm_keeper *k, int status)
{
	char text[120];

	if (k->stopping || k->failed || !k->process.resumable)
		return false;
	if (!fault_is_one_too_many(k, status))
		return true;
	snprintf(text, sizeof(text),
		 "core ended by its own fault %u times within a minute (last wait status %#x); "
		 "see its messages above",
		 MM_KEEPER_FAULTS_MAX + 1, (unsigned int)status);
	mm_keeper_fail(k, text);
	return false;
}

static void successor_schedule(struct mm_keeper *k)
{
	struct mm_keeper_core *p = &k->process;
	const uint64_t now = mm_now_ns();

	p->start_at_ns = now + mm_keeper_backoff_ns(p->failures++, BACKOFF_MAX_NS);
	p->loads_by_ns = now + LOADS_WAIT_NS;
	mm_children_kill_loads(k);
	mm_notify_status(&k->notify, "core has ended; another one goes on");
}

void mm_kcore_end(struct mm_keeper *k)
{
	if (!k->stopping)
		mm_notify_stopping(&k->notify);
	k->stopping = true;
	k->process.start_at_ns = UINT64_MAX;
	mm_hold_hang_up(&k->hold);
	mm_children_kill(k);
}

void mm_kcore_gone(struct mm_keeper *k, int status)
{
	bool orderly = k->stopping && WIFEXITED(status) &&
		       (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == MM_CORE_REPLACED);

	k->process.pid = 0;
	k->process.serves = false;
	/* Names that it put and dropped count, and its last message may say why it ended. */
	core_receive(k, UINT32_MAX);
	mm_loop_del(&k->loop, &k->core_source);
	if (!orderly && mm_upgrade_core_gone(k, status)) {
		k->process.at_fault = false;
		mm_kchan_close(&k->core);
		successor_schedule(k);
		return;
	}
	if (!orderly && !k->failed)
		mm_log(MM_LOG_ERROR, "core.died", "status=%#x generation=%" PRIu64,
		       (unsigned int)status, k->process.generation);
	if (!orderly && core_may_restart(k, status)) {
		mm_kchan_close(&k->core);
		successor_schedule(k);
		return;
	}
	if (!orderly)
		k->failed = true;
	mm_kcore_end(k);
}

/* ---- a core's start ---- */

int mm_kcore_init(struct mm_keeper *k)
{
	struct mm_region *beat = &k->process.beat;
	int r = mm_region_create(sizeof(struct mm_beat), MM_REGION_SHARED, "mm-beat", beat);

	if (r < 0)
		return r;
	r = mm_hold_put(&k->hold, (struct mm_held_name){ .kind = MM_HELD_BEAT }, beat->fd);
	beat->fd = -1;
	return r;
}

int mm_kcore_resume(struct mm_keeper *k)
{
	struct mm_region *beat = &k->process.beat;
	int fd = mm_fdtab_find(&k->hold.fds, (struct mm_held_name){ .kind = MM_HELD_BEAT });
	int r;

	fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	r = fd < 0 ? -EBADF
		   : mm_region_again(fd, sizeof(struct mm_beat), sizeof(struct mm_beat), beat);
	if (r == 0)
		mm_close_fd(&beat->fd);
	return r;
}

/* The time between two checks of the beat; UINT64_MAX: it is not checked. */
static uint64_t check_pause_ns(const struct mm_keeper *k)
{
	const uint64_t timeout_ms = k->config->core_timeout_ms;

	return timeout_ms ? MM_MAX(timeout_ms * MM_NS_PER_MS / CHECKS, MM_NS_PER_MS) : UINT64_MAX;
}

static void check_schedule(struct mm_keeper *k)
{
	const uint64_t pause = check_pause_ns(k);

	k->process.check_at_ns = pause == UINT64_MAX ? UINT64_MAX : mm_now_ns() + pause;
}

int mm_kcore_start(struct mm_keeper *k)
{
	struct mm_keeper_core *p = &k->process;
	mm_cleanup(mm_close_fd) int child = -1;
	int pair[2], r;

	r = mm_sock_pair(pair);
	if (r < 0)
		return r;
	mm_kchan_init(&k->core, pair[0]);
	child = pair[1];
	mm_upgrade_program(k);
	r = mm_spawn(k->config, MM_ROLE_CORE, &child, 1, &p->pid);
	mm_spawn_program(k->upgrade.program_fd);
	if (r < 0) {
		mm_kchan_close(&k->core);
		return r;
	}
	p->generation++;
	p->start_at_ns = UINT64_MAX;
	p->inventory = true;
	p->stopped = p->killed = false;
	p->late = 0;
	check_schedule(k);
	mm_hold_inventory_begin(&k->hold);
	return 0;
}

static void successor_start_due(struct mm_keeper *k)
{
	struct mm_keeper_core *p = &k->process;
	const uint64_t now = mm_now_ns();
	int r;

	if (now < p->start_at_ns || (!mm_children_loads_ended(k) && now < p->loads_by_ns))
		return;
	r = mm_kcore_start(k);
	if (r == 0) {
		r = mm_kcore_listen(k);
		if (r < 0)
			core_kill(k, "no memory to listen to it");
	}
	if (r == 0)
		return;
	mm_log(MM_LOG_ERROR, "role.start_failed", "what=%u error=%d", MM_ROLE_CORE, r);
	if (!p->pid)
		successor_schedule(k);
}

/* A core waits for all of it: without memory for a part there must be another core. */
static void inventory_send(struct mm_keeper *k)
{
	struct mm_kmsg end = { .op = MM_K_END,
			       .id = k->process.generation,
			       .result = k->process.at_fault,
			       .flags = k->upgrade.flags };
	int r;

	if (!k->process.pid || !k->process.inventory)
		return;
	r = mm_hold_inventory_send(&k->hold, &k->core);
	if (r == 0)
		return;
	k->process.inventory = false;
	if (r == 1) {
		snprintf(end.text, sizeof(end.text), "%s", mm_build_name());
		mm_children_report(k);
		r = mm_kchan_send(&k->core, &end, NULL, 0);
	}
	if (r < 0 && r != -ECONNRESET)
		core_kill(k, "there is no memory to tell it what keeper holds");
}

/*
 * Ends a core that no longer works or was stopped, so that another one goes on. One that waits for
 * events has no beat.
 */
static void beat_check_due(struct mm_keeper *k)
{
	struct mm_keeper_core *p = &k->process;
	const struct mm_beat *beat = p->beat.base;
	uint64_t at_ns = __atomic_load_n(&beat->at_ns, __ATOMIC_RELAXED);
	bool asleep = __atomic_load_n(&beat->asleep, __ATOMIC_RELAXED);

	if (mm_now_ns() < p->check_at_ns)
		return;
	check_schedule(k);
	p->late = p->pid && at_ns == p->beat_ns && (!asleep || p->stopped) ? p->late + 1 : 0;
	p->beat_ns = at_ns;
	if (p->late < CHECKS || !p->resumable || k->stopping)
		return;
	p->late = 0;
	core_kill(k, p->stopped ? "it was stopped" : "it does not work");
}

void mm_kcore_service(struct mm_keeper *k)
{
	successor_start_due(k);
	inventory_send(k);
	beat_check_due(k);
	mm_upgrade_service(k);
	mm_reexec_service(k);
	mm_reload_service(k);
}

uint64_t mm_kcore_due_ns(const struct mm_keeper *k)
{
	const struct mm_keeper_core *p = &k->process;

	if (p->start_at_ns == UINT64_MAX)
		return MM_MIN(MM_MIN(p->check_at_ns, k->upgrade.due_ns),
			      k->upgrade.reexec_by_ns ? k->upgrade.reexec_by_ns : UINT64_MAX);
	/* The end of the last load wakes keeper as well. */
	return mm_children_loads_ended(k) ? p->start_at_ns : p->loads_by_ns;
}

int mm_kcore_listen(struct mm_keeper *k)
{
	return mm_loop_add(&k->loop, &k->core_source, k->core.fd, EPOLLIN, kcore_on_socket);
}
