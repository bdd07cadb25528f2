/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/socket.h>

#include "libclient/support/cleanup.h"
#include "mmd/common/log.h"
#include "mmd/common/pidfd.h"

void mm_hold_init(struct mm_hold *hold, struct mm_closer *closer)
{
	*hold = (struct mm_hold){ .closer = closer };
	mm_fdtab_init(&hold->fds);
}

/* Whether the last close of such a file may free so much memory that it takes long. */
static bool name_is_large(const struct mm_held_name *name)
{
	return name->kind == MM_HELD_STORE ||
	       (name->kind == MM_HELD_REGION && name->index == MM_HELD_SWAP);
}

static void held_close(struct mm_hold *hold, const struct mm_held_name *name, int fd, bool slow)
{
	if (slow || name_is_large(name))
		mm_closer_add(hold->closer, fd);
	else
		mm_close_fd(&fd);
}

int mm_hold_put(struct mm_hold *hold, struct mm_held_name name, int fd)
{
	int old = -1;
	int r = mm_fdtab_put(&hold->fds, name, fd, &old);

	if (r < 0)
		mm_log(MM_LOG_ERROR, "hold.failed", "kind=%u error=%d", name.kind, r);
	held_close(hold, &name, old, false);
	return r;
}

void mm_hold_drop(struct mm_hold *hold, struct mm_held_name name)
{
	held_close(hold, &name, mm_fdtab_take(&hold->fds, name), false);
}

/* With a pidfd of its choice core could have any process killed. */
static bool name_is_ours(const struct mm_held_name *name)
{
	return name->kind == 0 || name->kind == MM_HELD_PIDFD || name->kind == MM_HELD_CONFIG;
}

void mm_hold_on_kill(const struct mm_hold *hold, uint64_t conn)
{
	int fd = mm_fdtab_find(&hold->fds, (struct mm_held_name){ MM_HELD_PIDFD, 0, conn });
	int r = fd < 0 ? fd : mm_pidfd_kill(fd);

	if (r < 0)
		mm_log(MM_LOG_ERROR, "tenant.kill_failed", "connection=%" PRIu64 " error=%d", conn,
		       fd < 0 ? -ENOENT : r);
}

void mm_hold_on_hold(struct mm_hold *hold, struct mm_kpacket *packet)
{
	if (packet->n_fds != packet->n_names)
		mm_log(MM_LOG_ERROR, "hold.lost", "names=%u fds=%u", packet->n_names,
		       packet->n_fds);
	for (uint32_t i = 0; i < packet->n_names && i < packet->n_fds; i++) {
		if (!name_is_ours(&packet->name[i]))
			mm_hold_put(hold, packet->name[i], mm_kpacket_take(packet, i));
	}
}

void mm_hold_on_drop(struct mm_hold *hold, struct mm_kchan *core, const struct mm_kpacket *packet)
{
	const struct mm_kmsg dropped = { .op = MM_K_DROPPED, .id = packet->msg.id };

	for (uint32_t i = 0; i < packet->n_names; i++) {
		const struct mm_held_name *name = &packet->name[i];

		/* A core that has no use for it must not take it from its successors. */
		if (name->kind == MM_HELD_CONFIG)
			continue;
		held_close(hold, name, mm_fdtab_take(&hold->fds, *name),
			   packet->msg.flags & MM_K_F_SLOW);
	}
	if (packet->msg.flags & MM_K_F_ACK)
		mm_kchan_send(core, &dropped, NULL, 0);
}

void mm_hold_hang_up(struct mm_hold *hold)
{
	const struct mm_fdtab_entry *entry;
	size_t at = 0;

	while ((entry = mm_fdtab_next(&hold->fds, &at))) {
		if (entry->name.kind == MM_HELD_CONN || entry->name.kind == MM_HELD_VIEW)
			shutdown(entry->fd, SHUT_RDWR);
	}
}

/* ---- inventory ---- */

void mm_hold_inventory_begin(struct mm_hold *hold)
{
	hold->at = 0;
	hold->unread = 0;
}

void mm_hold_on_taken(struct mm_hold *hold)
{
	if (hold->unread)
		hold->unread--;
}

int mm_hold_inventory_send(struct mm_hold *hold, struct mm_kchan *core)
{
	const struct mm_fdtab_entry *entry;
	int r = 0;

	while (r == 0 && hold->unread < MM_HOLD_UNREAD) {
		struct mm_kpacket packet = { .msg.op = MM_K_INVENTORY };

		while (packet.n_fds < MM_KCHAN_FDS &&
		       (entry = mm_fdtab_next(&hold->fds, &hold->at))) {
			int fd = fcntl(entry->fd, F_DUPFD_CLOEXEC, 0);

			if (fd < 0) {
				mm_log(MM_LOG_ERROR, "hold.lost", "kind=%u error=%d",
				       entry->name.kind, errno);
				continue;
			}
			packet.name[packet.n_names++] = entry->name;
			packet.fd[packet.n_fds++] = fd;
		}
		if (!packet.n_fds)
			return hold->unread == 0;
		hold->unread++;
		r = mm_kchan_send_packet(core, &packet);
	}
	return r;
}
