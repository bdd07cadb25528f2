/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/kcore.h"

#include <stdio.h>
#include <sys/wait.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/keeper/children.h"
#include "mmd/keeper/instance.h"
#include "mmd/keeper/spawn.h"

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
}

/* The packet has the claim, then the file, as far as there are any. */
static void device_lock_hold(struct mm_keeper *k, struct mm_kpacket *packet)
{
	struct mm_keeper_xfer *x = mm_children_xfer(k, &packet->msg);
	size_t n = packet->n_fds;

	mm_devlock_close(&x->lock);
	if (n > 0 && packet->msg.result)
		x->lock.file_fd = mm_kpacket_take(packet, --n);
	if (n > 0)
		x->lock.claim_fd = mm_kpacket_take(packet, 0);
	snprintf(x->lock.uuid, sizeof(x->lock.uuid), "%.32s", packet->msg.text);
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
	case MM_K_READY:
		core_on_ready(k, msg);
		break;
	case MM_K_STOP:
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

static void kcore_on_socket(struct mm_loop_source *source, uint32_t events)
{
	struct mm_keeper *k = mm_loop_source_owner(source, struct mm_keeper, core_source);
	int r = core_receive(k, MM_LOOP_BATCH);

	(void)events;
	if (r < 0 && r != -EAGAIN) {
		/* core is dead, dying or broken; its death is handled on SIGCHLD. */
		mm_loop_del(&k->loop, &k->core_source);
		if (!k->stopping)
			mm_keeper_child_kill(k->core_pid);
		return;
	}
	mm_kchan_flush(&k->core);
}

void mm_kcore_gone(struct mm_keeper *k, int status)
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
	mm_hold_hang_up(&k->hold);
	mm_children_kill(k);
}

int mm_kcore_init(struct mm_keeper *k)
{
	int r = mm_region_create(sizeof(struct mm_beat), MM_REGION_SHARED, "mm-beat", &k->beat);

	if (r < 0)
		return r;
	r = mm_hold_put(&k->hold, (struct mm_held_name){ .kind = MM_HELD_BEAT }, k->beat.fd);
	k->beat.fd = -1;
	return r;
}

void mm_kcore_service(struct mm_keeper *k)
{
	struct mm_kmsg end = { .op = MM_K_END, .id = k->generation };

	if (!k->inventory || mm_hold_inventory_send(&k->hold, &k->core) != 1)
		return;
	k->inventory = false;
	mm_instance_send(&k->core, &end, NULL, 0);
}

int mm_kcore_start(struct mm_keeper *k)
{
	mm_cleanup(mm_close_fd) int child = -1;
	int pair[2], r;

	r = mm_sock_pair(pair);
	if (r < 0)
		return r;
	mm_kchan_init(&k->core, pair[0]);
	child = pair[1];
	k->generation++;
	k->inventory = true;
	mm_hold_inventory_begin(&k->hold);
	return mm_spawn(k->config, MM_ROLE_CORE, &child, 1, &k->core_pid);
}

int mm_kcore_listen(struct mm_keeper *k)
{
	return mm_loop_add(&k->loop, &k->core_source, k->core.fd, EPOLLIN, kcore_on_socket);
}
