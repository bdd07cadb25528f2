/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/spools.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "mmd/shell/shell.h"

#define SPOOL_FDS 2 /* to write, to read */

/* Closing our end does not end it: keeper has a copy, for a successor of core. */
static void spool_hang_up(int *fd)
{
	if (*fd >= 0)
		shutdown(*fd, SHUT_RDWR);
	mm_close_fd(fd);
}

static void spool_release(struct mm_spool *spool)
{
	struct mm_shell *shell = spool->shell;

	mm_loop_del(&shell->loop, &spool->source);
	spool_hang_up(&spool->fd);
	*spool = (struct mm_spool){ .shell = shell, .fd = -1, .source = MM_LOOP_SOURCE_NULL };
}

void mm_spools_init(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_SPOOLS_MAX; i++)
		shell->spools.spool[i] = (struct mm_spool){ .shell = shell,
							    .fd = -1,
							    .source = MM_LOOP_SOURCE_NULL };
}

void mm_spools_done(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_SPOOLS_MAX; i++)
		spool_release(&shell->spools.spool[i]);
}

static struct mm_spool *spool_find(struct mm_shell *shell, uint64_t store)
{
	for (size_t i = 0; i < MM_SPOOLS_MAX; i++) {
		struct mm_spool *spool = &shell->spools.spool[i];

		if (spool->state != MM_SPOOL_FREE && spool->store == store)
			return spool;
	}
	return NULL;
}

/*
 * Reports that a spool cannot do what was requested. Its entry is freed first, because the report
 * may end the store that it belongs to.
 */
static void spool_fail(struct mm_spool *spool, int result, const char *text)
{
	const struct mm_spool was = *spool;

	if (was.state == MM_SPOOL_OPEN)
		mm_log(MM_LOG_WARN, "spool.lost", "store=%" PRIu64 " reason=\"%s\"", was.store,
		       text);
	spool_release(spool);
	if (was.state == MM_SPOOL_STARTING || was.state == MM_SPOOL_OPENING)
		mm_load_on_spooled(was.shell, was.store, result, text, NULL);
	else if (was.state == MM_SPOOL_SEALING)
		mm_load_on_sealed(was.shell, was.store, result, text);
}

/* ---- to the spool ---- */

static void spool_send(struct mm_spool *spool, enum mm_sop op)
{
	const struct mm_smsg msg = { .magic = MM_PROTO_MAGIC, .op = op, .bytes = spool->bytes };

	/* A spool reads at once or is dead; keeper reports its death. */
	if (mm_sock_send(spool->fd, &msg, sizeof(msg), NULL, 0) < 0)
		mm_log(MM_LOG_WARN, "spool.unreachable", "store=%" PRIu64, spool->store);
}

/* NULL: there is none. */
static struct mm_spool *spool_place(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_SPOOLS_MAX; i++)
		if (shell->spools.spool[i].state == MM_SPOOL_FREE)
			return &shell->spools.spool[i];
	return NULL;
}

int mm_spool_open(struct mm_shell *shell, uint64_t store, uint64_t bytes)
{
	struct mm_spool *spool = spool_place(shell);

	if (!spool)
		return -EAGAIN;
	spool->state = MM_SPOOL_STARTING;
	spool->store = store;
	spool->bytes = bytes;
	mm_shell_send_keeper(shell, MM_K_START, MM_ROLE_SPOOL, store);
	return 0;
}

void mm_spool_seal(struct mm_shell *shell, uint64_t store)
{
	struct mm_spool *spool = spool_find(shell, store);

	if (!spool) {
		mm_load_on_sealed(shell, store, -EIO, "the process that holds it died");
		return;
	}
	spool->state = MM_SPOOL_SEALING;
	spool_send(spool, MM_S_SEAL);
}

void mm_spool_release(struct mm_shell *shell, uint64_t store, unsigned int drops)
{
	struct mm_spool *spool = spool_find(shell, store);

	if (!spool)
		return;
	spool->state = MM_SPOOL_LEAVING;
	spool->drops = drops;
	if (!drops)
		spool_release(spool);
}

void mm_spool_dropped(struct mm_shell *shell, uint64_t store)
{
	struct mm_spool *spool = spool_find(shell, store);

	if (spool && spool->state == MM_SPOOL_LEAVING && --spool->drops == 0)
		spool_release(spool);
}

void mm_spools_xfer_gone(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_SPOOLS_MAX; i++) {
		if (shell->spools.spool[i].state == MM_SPOOL_LEAVING)
			spool_release(&shell->spools.spool[i]);
	}
}

/* ---- from the spool ---- */

static int spool_on_message(struct mm_spool *spool, struct mm_smsg *msg, int *fds, size_t n_fds)
{
	if (msg->magic != MM_PROTO_MAGIC || msg->result > 0)
		return -EPROTO;
	msg->text[sizeof(msg->text) - 1] = 0;
	if (msg->op == MM_S_OPENED && spool->state == MM_SPOOL_OPENING &&
	    n_fds == (msg->result ? 0 : SPOOL_FDS)) {
		if (msg->result) {
			spool_fail(spool, msg->result, msg->text);
			return 0;
		}
		spool->state = MM_SPOOL_OPEN;
		mm_load_on_spooled(spool->shell, spool->store, 0, "", fds);
		return 0;
	}
	if (msg->op == MM_S_SEALED && spool->state == MM_SPOOL_SEALING && n_fds == 0) {
		spool->state = MM_SPOOL_OPEN;
		mm_load_on_sealed(spool->shell, spool->store, msg->result, msg->text);
		return 0;
	}
	return spool->state == MM_SPOOL_LEAVING ? 0 : -EPROTO;
}

static void spool_on_socket(struct mm_loop_source *source, uint32_t events)
{
	struct mm_spool *spool = mm_loop_source_owner(source, struct mm_spool, source);
	int fds[SPOOL_FDS] = { -1, -1 };
	size_t n_fds = 0, len = 0;
	struct mm_smsg msg;
	int r;

	(void)events;
	r = mm_sock_recv(spool->fd, &msg, sizeof(msg), fds, SPOOL_FDS, &n_fds, &len);
	if (r == -EAGAIN)
		return;
	if (r == 0)
		r = len == sizeof(msg) ? spool_on_message(spool, &msg, fds, n_fds) : -EPROTO;
	for (size_t i = 0; i < n_fds; i++)
		mm_close_fd(&fds[i]);
	/* The end of the process is reported by keeper, not by the socket. */
	if (r == -ECONNRESET) {
		mm_loop_del(&spool->shell->loop, &spool->source);
	} else if (r < 0) {
		mm_shell_send_keeper(spool->shell, MM_K_KILL, MM_ROLE_SPOOL, spool->store);
		spool_fail(spool, r, "the process that holds it broke the protocol");
	}
}

void mm_spool_started(struct mm_shell *shell, uint64_t store, int fd)
{
	struct mm_spool *spool = spool_find(shell, store);

	if (fd < 0)
		mm_shell_send_keeper(shell, MM_K_KILL, MM_ROLE_SPOOL, store);
	/* Its store is gone meanwhile: the spool ends when its socket is closed. */
	if (!spool || spool->state != MM_SPOOL_STARTING) {
		spool_hang_up(&fd);
		return;
	}
	spool->fd = fd;
	spool->state = MM_SPOOL_OPENING;
	if (mm_loop_add(&shell->loop, &spool->source, fd, EPOLLIN, spool_on_socket) < 0) {
		spool_fail(spool, -EMFILE, "too many open files");
		return;
	}
	spool_send(spool, MM_S_OPEN);
}

void mm_spool_gone(struct mm_shell *shell, uint64_t store, int status)
{
	struct mm_spool *spool = spool_find(shell, store);

	if (!spool)
		return;
	/* Messages that it sent before its death may still be in the socket. */
	if (spool->source.fd >= 0)
		spool_on_socket(&spool->source, EPOLLIN);
	if (spool->store != store || spool->state == MM_SPOOL_FREE)
		return;
	mm_log(MM_LOG_WARN, "spool.died", "store=%" PRIu64 " status=%#x", store,
	       (unsigned int)status);
	spool_fail(spool, -EIO, "the process that holds it died");
}

/* ---- taking over ---- */

/* How many xfers have the store. */
static unsigned int store_xfers(const struct mm_shell *shell, uint64_t store)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < shell->n_pools; i++) {
		const struct mm_worker_kept *kept = shell->pool[i].worker.kept;

		n += kept->state != MM_WORKER_DOWN &&
		     mm_told_has(&kept->told, MM_TOLD_STORE, store);
	}
	return n;
}

/* Return: whether it goes on. */
static bool spool_resume(struct mm_shell *shell, const struct mm_held_child *child)
{
	const struct mm_held_name name = { .kind = MM_HELD_PEER,
					   .index = mm_held_peer(MM_ROLE_SPOOL, 0),
					   .id = child->id };
	const struct mm_store *store = mm_store_find(shell, child->id);
	unsigned int users = store_xfers(shell, child->id);
	struct mm_spool *spool = spool_place(shell);

	if (!spool || (!store && !users))
		return false;
	spool->fd = mm_held_take(&shell->held, name);
	if (spool->fd < 0)
		return false;
	spool->store = child->id;
	spool->bytes = store ? store->bytes : 0;
	spool->drops = users;
	spool->state = store ? MM_SPOOL_OPEN : MM_SPOOL_LEAVING;
	if (mm_loop_add(&shell->loop, &spool->source, spool->fd, EPOLLIN, spool_on_socket) == 0)
		return true;
	spool_release(spool);
	return false;
}

void mm_spools_resume(struct mm_shell *shell)
{
	for (uint32_t i = 0; i < shell->held.n_children; i++) {
		const struct mm_held_child *child = &shell->held.child[i];

		if (child->role != MM_ROLE_SPOOL)
			continue;
		if (child->ended && mm_store_find(shell, child->id))
			mm_log(MM_LOG_WARN, "spool.died", "store=%" PRIu64 " status=%#x", child->id,
			       (unsigned int)child->status);
		else if (!child->ended && !spool_resume(shell, child))
			mm_shell_send_keeper(shell, MM_K_KILL, MM_ROLE_SPOOL, child->id);
	}
}
