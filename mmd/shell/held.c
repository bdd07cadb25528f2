/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/held.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/fault.h"
#include "mmd/common/log.h"

#define SYNC_NS (5 * MM_NS_PER_S)

void mm_held_init(struct mm_held *held, struct mm_kchan *chan)
{
	*held = (struct mm_held){ .chan = chan, .batch_serial = 1, .beat = MM_REGION_NULL };
	mm_fdtab_init(&held->inventory);
}

void mm_held_done(struct mm_held *held)
{
	mm_kpacket_done(&held->batch);
	mm_fdtab_done(&held->inventory);
	mm_region_done(&held->beat);
}

static void held_fail(struct mm_held *held, int error)
{
	if (!held->failed)
		mm_log(MM_LOG_ERROR, "held.failed", "error=%d", error);
	held->failed = true;
}

/* ---- putting and dropping ---- */

void mm_held_flush(struct mm_held *held)
{
	int r;

	if (!held->batch.msg.op)
		return;
	held->batch.msg.id = held->batch_serial++;
	r = mm_kchan_send_packet(held->chan, &held->batch); /* takes over the fds */
	held->batch.msg = (struct mm_kmsg){ 0 };
	held->batch.n_names = held->batch.n_fds = 0;
	if (r < 0)
		held_fail(held, r);
}

/* Begins another batch unless @op and @flags continue the one that is collected. */
static void batch_begin(struct mm_held *held, enum mm_kop op, uint32_t flags)
{
	const struct mm_kmsg *msg = &held->batch.msg;

	if (msg->op != op || msg->flags != flags || held->batch.n_names == MM_KCHAN_FDS)
		mm_held_flush(held);
	held->batch.msg.op = op;
	held->batch.msg.flags = flags;
}

void mm_held_put(struct mm_held *held, struct mm_held_name name, int fd)
{
	int copy = mm_fault("held.put") ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0) {
		held_fail(held, -errno);
		return;
	}
	batch_begin(held, MM_K_HOLD, 0);
	held->batch.name[held->batch.n_names++] = name;
	held->batch.fd[held->batch.n_fds++] = copy;
}

static void name_drop(struct mm_held *held, struct mm_held_name name, uint32_t flags)
{
	batch_begin(held, MM_K_DROP, flags);
	held->batch.name[held->batch.n_names++] = name;
}

void mm_held_drop(struct mm_held *held, struct mm_held_name name, bool slow)
{
	name_drop(held, name, slow ? MM_K_F_SLOW : 0);
}

uint64_t mm_held_drop_acked(struct mm_held *held, struct mm_held_name name)
{
	name_drop(held, name, MM_K_F_ACK);
	return held->batch_serial;
}

bool mm_held_is_dropped(const struct mm_held *held, uint64_t serial)
{
	return serial <= held->dropped_serial;
}

bool mm_held_is_waiting(const struct mm_held *held)
{
	return held->failed || held->batch.msg.op || mm_kchan_is_waiting(held->chan);
}

bool mm_held_sync(struct mm_held *held)
{
	const uint64_t until_ns = mm_now_ns() + SYNC_NS;

	mm_held_flush(held);
	while (mm_kchan_is_waiting(held->chan) && !held->failed && mm_now_ns() < until_ns) {
		if (mm_kchan_flush(held->chan) < 0)
			held_fail(held, -ECONNRESET);
		else if (mm_kchan_is_waiting(held->chan))
			poll(&(struct pollfd){ .fd = held->chan->fd, .events = POLLOUT }, 1, 1);
	}
	return !mm_held_is_waiting(held);
}

void mm_held_on_dropped(struct mm_held *held, const struct mm_kmsg *msg)
{
	held->dropped_serial = msg->id;
}

/* ---- the inventory ---- */

static void inventory_add(struct mm_held *held, struct mm_kpacket *packet)
{
	const struct mm_kmsg taken = { .op = MM_K_TAKEN };
	int old = -1, r = 0;

	for (uint32_t i = 0; i < packet->n_names && i < packet->n_fds && r == 0; i++) {
		r = mm_fdtab_put(&held->inventory, packet->name[i], mm_kpacket_take(packet, i),
				 &old);
		mm_close_fd(&old);
	}
	if (r == 0)
		r = mm_kchan_send(held->chan, &taken, NULL, 0);
	if (r < 0)
		held_fail(held, r);
}

static void child_add(struct mm_held *held, const struct mm_kmsg *msg)
{
	struct mm_held_child *child = &held->child[held->n_children];

	if (held->n_children == MM_HELD_CHILDREN_MAX) {
		held_fail(held, -ENOSPC);
		return;
	}
	held->n_children++;
	*child = (struct mm_held_child){
		.role = (enum mm_role)msg->role,
		.device = msg->device,
		.id = msg->id,
		.pid = msg->pid,
		.ended = msg->flags & MM_K_F_ENDED,
		.down = msg->flags & MM_K_F_DOWN,
		.status = msg->result,
	};
	snprintf(child->build, sizeof(child->build), "%.*s", MM_BUILD_BYTES - 1, msg->text);
}

/* Return: 0; 1: it was the end of the inventory; negative errno. */
static int inventory_message(struct mm_held *held, struct mm_kpacket *packet)
{
	switch (packet->msg.op) {
	case MM_K_INVENTORY:
		if (packet->n_fds < packet->n_names)
			mm_log(MM_LOG_ERROR, "held.lost", "fds=%u",
			       packet->n_names - packet->n_fds);
		inventory_add(held, packet);
		break;
	case MM_K_CHILD:
		child_add(held, &packet->msg);
		break;
	case MM_K_STOP:
		held->stop_came = true;
		break;
	case MM_K_END:
		held->generation = packet->msg.id;
		held->fault = packet->msg.result != 0;
		held->end_flags = packet->msg.flags;
		snprintf(held->keeper_build, sizeof(held->keeper_build), "%.*s", MM_BUILD_BYTES - 1,
			 packet->msg.text);
		return 1;
	default:
		return -EPROTO;
	}
	return held->failed ? -EIO : 0;
}

static int beat_open(struct mm_held *held)
{
	const struct mm_held_name name = { .kind = MM_HELD_BEAT };
	const struct mm_beat *beat;
	int fd = mm_held_take(held, name);
	int r = fd < 0 ? -EPROTO : mm_region_open(fd, sizeof(*beat), true, &held->beat);

	if (r < 0)
		return r;
	beat = held->beat.base;
	held->beat_ns = __atomic_load_n(&beat->at_ns, __ATOMIC_RELAXED);
	return 0;
}

int mm_held_receive(struct mm_held *held)
{
	struct mm_kpacket packet;
	int r = 0;

	while (r == 0) {
		short events = (short)(mm_kchan_is_waiting(held->chan) ? POLLIN | POLLOUT : POLLIN);

		r = mm_kchan_recv(held->chan, &packet);
		if (r == 0 || r == -EMFILE) {
			r = inventory_message(held, &packet);
			mm_kpacket_done(&packet);
		} else if (r == -EAGAIN) {
			r = mm_sock_wait(held->chan->fd, events, UINT64_MAX);
			if (r == 0)
				r = mm_kchan_flush(held->chan);
		}
	}
	return r < 0 ? r : beat_open(held);
}

int mm_held_take(struct mm_held *held, struct mm_held_name name)
{
	return mm_fdtab_take(&held->inventory, name);
}

const struct mm_fdtab_entry *mm_held_next(const struct mm_held *held, size_t *at)
{
	return mm_fdtab_next(&held->inventory, at);
}

const struct mm_held_child *mm_held_child(const struct mm_held *held, enum mm_role role,
					  uint32_t device, uint64_t id)
{
	for (uint32_t i = 0; i < held->n_children; i++) {
		const struct mm_held_child *c = &held->child[i];

		if (c->role == role && c->device == device && c->id == id)
			return c;
	}
	return NULL;
}

size_t mm_held_drop_rest(struct mm_held *held)
{
	const struct mm_fdtab_entry *entry;
	size_t at = 0, n = 0;

	/* Nobody drained these connections, so their close may sleep. */
	for (; (entry = mm_held_next(held, &at)); n++)
		mm_held_drop(held, entry->name,
			     entry->name.kind == MM_HELD_CONN || entry->name.kind == MM_HELD_VIEW);
	mm_fdtab_done(&held->inventory);
	return n;
}

void mm_held_beat(struct mm_held *held, uint64_t now_ns, bool asleep)
{
	struct mm_beat *beat = held->beat.base;

	__atomic_store_n(&beat->at_ns, now_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&beat->asleep, asleep, __ATOMIC_RELEASE);
}
