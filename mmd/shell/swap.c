/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/swap.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "libclient/ipc/sock.h"
#include "mmd/shell/quota.h"
#include "mmd/shell/session_kept.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"

uint64_t mm_swap_used(struct mm_shell *shell)
{
	uint64_t sum = 0;

	MM_FOREACH_SESSION(shell, s)
		sum += s->swap_bytes;
	return sum;
}

/* The budget belongs to the node: it covers the tenants of all devices. */
static bool swap_has_room(struct mm_shell *shell, uint64_t bytes)
{
	uint64_t used = mm_swap_used(shell), max = shell->config->swap_max_bytes;

	return used <= max && bytes <= max - used;
}

/* Only the fd is kept: core never reads the bytes. */
static int space_create(struct mm_session *s, uint64_t bytes)
{
	int r = mm_region_create(bytes, MM_REGION_SHARED, "mm-swap", &s->swap_region);

	if (r < 0)
		return r;
	munmap(s->swap_region.base, s->swap_region.size_bytes);
	s->swap_region.base = NULL;
	mm_held_put(&s->shell->held, mm_session_region(s, MM_HELD_SWAP), s->swap_region.fd);
	if (!mm_held_sync(&s->shell->held)) {
		mm_region_done(&s->swap_region);
		return -EIO;
	}
	s->kept->swap_position = s->requests.mine;
	mm_kept_publish(&s->kept->swap_bytes, bytes);
	s->swap_bytes = bytes;
	mm_worker_swap(s->pool, s->tenant);
	mm_session_log(s, MM_LOG_INFO, "tenant.swap", "tenant=%u name=%s bytes=%" PRIu64, s->tenant,
		       s->name, bytes);
	return 0;
}

static bool swap_is_charged(const struct mm_session *s)
{
	struct mm_core_tenant t;

	return !s->swap_bytes && mm_core_tenant(s->pool->core, s->tenant, &t) && t.swap_bytes;
}

static int space_open(struct mm_session *s, uint64_t now_ns, uint64_t wanted)
{
	struct mm_event event = { .kind = MM_EVENT_SWAP_OPEN,
				  .tenant = s->tenant,
				  .now_ns = now_ns };
	struct mm_event_result result;
	uint64_t bytes;
	int r;

	/* A core that died may have opened it for this very request. */
	if (s->swap_bytes && s->kept->swap_position == s->requests.mine)
		return 0;
	if (wanted > s->shell->config->swap_max_bytes)
		return -EDQUOT;
	bytes = mm_round_up(wanted, MM_ABI_PAGE_BYTES);
	/* It may be charged already, by a core that died before the space was made. */
	if (!swap_is_charged(s)) {
		event.swap_bytes = bytes;
		mm_pool_event(s->pool, &event, NULL, &result);
		if (result.r < 0)
			return result.r;
	}
	r = -EDQUOT;
	if (swap_has_room(s->shell, bytes) && bytes <= mm_quota_host_room(s->shell, s->account))
		r = space_create(s, bytes);
	if (r < 0)
		mm_pool_event_now(s->pool, MM_EVENT_SWAP_FAILED, s->tenant);
	return r;
}

/*
 * Notes what a tenant was refused, until it gets a space: it asks for less, or goes without and
 * computes again what it evicts. Nobody has asked mmd for swapping if there is no budget.
 */
static void space_note(struct mm_session *s, uint64_t wanted, int result)
{
	uint64_t max = s->shell->config->swap_max_bytes;

	s->swap_refused_bytes = s->swap_bytes || result != -EDQUOT ? 0 : wanted;
	if (result == -EDQUOT && max)
		mm_session_log(s, MM_LOG_INFO, "tenant.swap_refused",
			       "tenant=%u name=%s bytes=%" PRIu64 " swap_bytes=%" PRIu64
			       " swap_max_bytes=%" PRIu64,
			       s->tenant, s->name, wanted, mm_swap_used(s->shell), max);
}

/* The tenant may write meanwhile: each word is read once, and only the copy is used. */
static void lot_copy(const struct mm_session *s, uint64_t lot, uint64_t n,
		     struct mm_swap_piece *ret)
{
	const struct mm_tenant_region *theirs = s->tenant_region.base;
	const uint64_t *from = (const uint64_t *)(const void *)theirs->swap[lot];
	uint64_t *to = (uint64_t *)(void *)ret;

	for (size_t i = 0; i < n * sizeof(*ret) / sizeof(*to); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

int mm_session_swap_request(struct mm_session *s, uint64_t now_ns, const struct mm_msg *msg)
{
	struct mm_swap_piece pieces[MM_SWAP_PIECES];
	const struct mm_event event = { .kind = MM_EVENT_SWAP,
					.tenant = s->tenant,
					.now_ns = now_ns,
					.msg = *msg,
					.pieces = pieces };
	const struct mm_event_source source = mm_session_source(s);
	struct mm_event_result result;
	int r;

	if (msg->opcode == MM_OP_SWAP_OPEN) {
		r = space_open(s, now_ns, msg->arg[0]);
		space_note(s, msg->arg[0], r);
		mm_session_reply(s, msg->user_data, MM_OP_SWAP_OPEN, r);
		return 0;
	}
	if (msg->arg[0] >= MM_SWAP_LOTS || msg->arg[1] > MM_SWAP_PIECES)
		return MM_E_PROTOCOL;
	lot_copy(s, msg->arg[0], msg->arg[1], pieces);
	mm_pool_event(s->pool, &event, &source, &result);
	return result.r;
}

int mm_session_swap_send(const struct mm_session *s, int sock)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
			       .kind = MM_X_SWAP,
			       .id = s->tenant,
			       .bytes = s->swap_bytes,
			       .count = 1 };
	struct mm_core_tenant tenant;

	if (!s->swap_bytes || !mm_core_tenant(s->pool->core, s->tenant, &tenant) ||
	    !tenant.attached)
		return 0;
	return mm_sock_send(sock, &msg, sizeof(msg), &s->swap_region.fd, 1);
}
