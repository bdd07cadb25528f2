/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/health.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/driver/nvml.h"
#include "libclient/support/clock.h"
#include "mmd/shell/shell.h"

static const struct known_xid {
	uint64_t xid;
	enum mm_health_kind kind;
	const char *text;
} known_xids[] = {
	{ 13, MM_HEALTH_NOTE, "a kernel failed; mostly the program's fault" },
	{ 31, MM_HEALTH_NOTE, "a program touched memory that it has not; its context is lost" },
	{ 43, MM_HEALTH_NOTE, "a program's channel was reset" },
	{ 45, MM_HEALTH_NOTE, "a program's channels were cleaned up after an error" },
	{ 48, MM_HEALTH_MEMORY, "memory error that ECC cannot correct" },
	{ 63, MM_HEALTH_MEMORY, "a row of memory is to be remapped, or a page retired" },
	{ 64, MM_HEALTH_MEMORY, "a row could not be remapped; the GPU needs a reset, or repair" },
	{ 74, MM_HEALTH_NOTE, "NVLink error" },
	{ 79, MM_HEALTH_LOST, "the GPU has fallen off the bus" },
	{ 92, MM_HEALTH_NOTE, "many memory errors that ECC corrected" },
	{ 94, MM_HEALTH_MEMORY, "contained memory error: who ran into it has lost its work" },
	{ 95, MM_HEALTH_LOST, "uncontained memory error: everybody's work is lost" },
	{ 119, MM_HEALTH_LOST, "the GPU's own processor does not answer" },
	{ 120, MM_HEALTH_LOST, "the GPU's own processor failed" },
	{ 140, MM_HEALTH_LOST, "memory error that the GPU did not recover from" },
};

enum mm_health_kind mm_health_of_xid(uint64_t xid, const char **ret_text)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(known_xids); i++) {
		if (known_xids[i].xid == xid) {
			*ret_text = known_xids[i].text;
			return known_xids[i].kind;
		}
	}
	*ret_text = "see NVIDIA's list of Xid errors, and the kernel's log";
	return MM_HEALTH_NOTE;
}

static void health_on_memory_error(struct mm_pool *pool)
{
	pool->health.memory_errors++;
	if (!pool->core)
		return;
	mm_pool_event_now(pool, MM_EVENT_MEMORY_ERROR, 0);
}

static void health_act(struct mm_pool *pool, enum mm_health_kind kind)
{
	if (kind == MM_HEALTH_MEMORY) {
		health_on_memory_error(pool);
	} else if (kind == MM_HEALTH_LOST) {
		pool->health.lost++;
		mm_worker_lost(pool);
	}
}

/* Programs can cause notes at will, and so can memory that wears out: one a second is logged. */
static bool health_is_logged(struct mm_health *h, enum mm_health_kind kind)
{
	const uint64_t now_ns = mm_now_ns();

	if (kind != MM_HEALTH_NOTE)
		return true;
	if (h->noted_ns && now_ns - h->noted_ns < MM_NS_PER_S)
		return false;
	h->noted_ns = now_ns;
	return true;
}

static int health_on_event(struct mm_pool *pool, const struct mm_xmsg *msg)
{
	static const char *const kinds[] = { "note", "memory", "lost" };
	enum mm_health_kind kind = MM_HEALTH_NOTE;
	struct mm_health *h = &pool->health;
	const char *text = "memory errors that ECC corrected";

	if (msg->bytes == MM_NVML_EVENT_XID) {
		kind = mm_health_of_xid(msg->pages, &text);
		h->xids++;
		h->last_xid = msg->pages;
	} else if (msg->bytes == MM_NVML_EVENT_DOUBLE_BIT) {
		kind = mm_health_of_xid(48, &text);
		h->double_bit++;
	} else if (msg->bytes == MM_NVML_EVENT_SINGLE_BIT) {
		h->single_bit++;
	} else {
		return -EPROTO;
	}
	if (health_is_logged(h, kind))
		mm_log(kind == MM_HEALTH_NOTE ? MM_LOG_WARN : MM_LOG_ERROR, "device.health",
		       "device=%" PRIu64 " xid=%" PRIu64 " kind=%s meaning=\"%s\"", pool->ordinal,
		       msg->pages, kinds[kind], text);
	health_act(pool, kind);
	return 0;
}

/* When NVML does not reach the GPU, Xids of it cannot arrive either. */
static void health_on_gone(struct mm_pool *pool, const struct mm_xmsg *msg)
{
	mm_log(MM_LOG_ERROR, "device.health", "device=%" PRIu64 " nvml=%d kind=lost meaning=\"%s\"",
	       pool->ordinal, msg->result,
	       msg->result == MM_NVML_RESET_REQUIRED ? "the GPU needs a reset"
						     : "NVML does not reach the GPU any more");
	health_act(pool, MM_HEALTH_LOST);
}

/* A state is logged when it changes, since a repair stays pending until the GPU is reset. */
static void health_on_sample(struct mm_pool *pool, struct mm_xhealth *seen)
{
	struct mm_xhealth *last = &pool->health.sample;
	uint32_t more = seen->flags & ~last->flags;

	seen->n_holders = MM_MIN(seen->n_holders, (uint32_t)MM_XHOLDERS);
	for (uint32_t i = 0; i < seen->n_holders; i++)
		seen->holder[i].name[sizeof(seen->holder[i].name) - 1] = '\0';
	if (more & MM_XHEALTH_REPAIR_PENDING)
		mm_log(MM_LOG_WARN, "device.repair_pending",
		       "device=%" PRIu64 " meaning=\"rows of memory are remapped "
		       "at the next reset of the GPU; it can be used till then\"",
		       pool->ordinal);
	if (more & MM_XHEALTH_REPAIR_FAILED)
		mm_log(MM_LOG_ERROR, "device.repair_failed",
		       "device=%" PRIu64 " meaning=\"a row of memory could not be remapped; "
		       "the GPU should be tested, and replaced\"",
		       pool->ordinal);
	*last = *seen;
}

int mm_health_message(struct mm_pool *pool, struct mm_xmsg *msg)
{
	if (msg->id == MM_XHEALTH_EVENT)
		return health_on_event(pool, msg);
	if (msg->id == MM_XHEALTH_SAMPLE)
		health_on_sample(pool, &msg->health);
	else if (msg->id == MM_XHEALTH_GONE)
		health_on_gone(pool, msg);
	else
		return -EPROTO;
	return 0;
}

/* ---- holders of memory ---- */

bool mm_health_is_ours(const struct mm_pool *pool, uint32_t pid)
{
	const struct mm_shell *shell = pool->shell;

	if (pid == (uint32_t)getpid())
		return true;
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		if ((int64_t)pid == shell->pool[i].worker.kept->pid)
			return true;
	}
	MM_FOREACH_SESSION(shell, s) {
		if (s->state >= MM_SESSION_OPEN && (int64_t)pid == (int64_t)s->pid)
			return true;
	}
	return false;
}

void mm_health_explain(const struct mm_pool *pool, char *text, size_t bytes)
{
	const struct mm_xhealth *seen = &pool->health.sample;
	size_t at = strlen(text);
	bool any = false;

	for (uint32_t i = 0; i < seen->n_holders && at < bytes; i++) {
		const struct mm_xholder *holder = &seen->holder[i];

		if (mm_health_is_ours(pool, holder->pid))
			continue;
		at += (size_t)snprintf(text + at, bytes - at, "%spid %u (%s) %" PRIu64 " MiB",
				       any ? ", " : "; others hold memory: ", holder->pid,
				       holder->name, holder->bytes >> 20);
		any = true;
	}
}
