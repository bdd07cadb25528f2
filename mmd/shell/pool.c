/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "mmd/shell/pool_kept.h"
#include "mmd/shell/shell.h"

/*
 * For sessions, stores, loads, spools, admin clients and one batch in flight; keeper needs as many.
 */
#define FDS_BESIDES_PAGES 2048

void mm_pool_init(struct mm_pool *pool, struct mm_shell *shell, uint32_t index)
{
	*pool = (struct mm_pool){
		.shell = shell,
		.kept = &shell->kept.front->pool[index],
		.index = index,
		.ordinal = mm_config_at(&shell->config->device, index),
	};
	mm_worker_init(pool);
}

void mm_pool_done(struct mm_pool *pool)
{
	mm_worker_done(pool);
	pool->core = mm_core_destroy(pool->core);
}

/* ---- the device ---- */

static int pool_fds_check(struct mm_pool *pool)
{
	struct mm_shell *shell = pool->shell;
	uint64_t pages = pool->worker.device.pages;

	for (uint32_t i = 0; i < shell->n_pools; i++) {
		if (shell->pool[i].core)
			pages += shell->pool[i].worker.device.pages;
	}
	if (pages + FDS_BESIDES_PAGES <= shell->fds_max)
		return 0;
	mm_shell_fail(shell,
		      "a pool of %" PRIu64 " pages needs %" PRIu64
		      " open files, the limit is %" PRIu64
		      "; raise it (LimitNOFILE=, ulimit -Hn) or use a larger --page",
		      pages, pages + FDS_BESIDES_PAGES, shell->fds_max);
	return -EMFILE;
}

void mm_pool_tune(const struct mm_config *config, struct mm_core_opts *opts)
{
	char error[MM_TUNE_ERROR_BYTES];

	if (*config->controller)
		mm_assert(mm_tune_parse(config->controller, opts, error) == 0);
	mm_knobs_set_defaults(opts);
}

void mm_pool_opts(const struct mm_pool *pool, const struct mm_config *c,
		  struct mm_core_opts *ret_opts)
{
	const struct mm_device *d = &pool->worker.device;

	*ret_opts = (struct mm_core_opts){
		.pages = d->pages,
		.page_bytes = d->page_bytes,
		.policy = (enum mm_policy)c->policy,
		.account_max_pages = c->account_max_bytes / d->page_bytes,
		.swap_max_bytes = c->swap_max_bytes,
		.swap_account_max_bytes = c->swap_account_max_bytes,
		.on_timeout = (enum mm_on_timeout)c->on_timeout,
		.turn_quantum_max_ns = c->turn_quantum_max_ms * MM_NS_PER_MS,
		.turn_priority_max = (uint32_t)c->turn_priority_max,
		.reclaim_timeout_ns = c->reclaim_timeout_ms * MM_NS_PER_MS,
		.stop_ns = c->stop_ms * MM_NS_PER_MS,
		.kill_max = (uint32_t)c->kill_max,
		.kill_window_ns = c->kill_window_ms * MM_NS_PER_MS,
		.slots = (uint32_t)c->slots,
		.full_drain = c->full_drain != 0,
		.tag = (uint8_t)pool->index,
		.tenants_max = MM_DEVICE_TENANTS_MAX,
	};

	mm_pool_tune(c, ret_opts);
}

static int page_fds_alloc(struct mm_pool *pool)
{
	size_t bytes = pool->worker.device.pages * sizeof(int);

	pool->worker.page_fd = malloc(bytes);
	if (!pool->worker.page_fd)
		return -ENOMEM;
	memset(pool->worker.page_fd, 0xff, bytes);
	return 0;
}

int mm_pool_device(struct mm_pool *pool)
{
	const struct mm_config *c = pool->shell->config;
	const struct mm_device *d = &pool->worker.device;
	struct mm_core_opts opts;
	int r = pool_fds_check(pool);

	if (r < 0)
		return r;
	mm_pool_opts(pool, c, &opts);
	if (c->account_max_bytes && !opts.account_max_pages) {
		mm_shell_fail(pool->shell, "--account-max: less than one page of %" PRIu64 " bytes",
			      d->page_bytes);
		return -EINVAL;
	}
	r = page_fds_alloc(pool);
	if (r < 0)
		return r;
	r = mm_core_create(&opts, &pool->core);
	if (r < 0)
		mm_shell_fail(pool->shell, "cannot keep account of %u pages: %s", d->pages,
			      strerror(-r));
	if (r == 0)
		r = mm_quota_setup(pool);
	if (r == 0)
		r = mm_pool_keep(pool);
	return r;
}

/* Makes a core that knows nothing but the device. A crash in between begins it again. */
static int pool_renew(struct mm_pool *pool, const struct mm_core_opts *opts)
{
	struct mm_pool_kept *kept = pool->kept;
	int r;

	mm_kept_publish(&kept->image_valid, 0u);
	kept->ready = kept->quarantined = 0;
	pool->ready = false;
	pool->quarantined = 0;
	pool->renewed = true;
	r = mm_core_create(opts, &pool->core);
	if (r == 0)
		r = mm_quota_setup(pool);
	return r < 0 ? r : mm_pool_keep(pool);
}

int mm_pool_resume(struct mm_pool *pool)
{
	const struct mm_pool_kept *kept = pool->kept;
	struct mm_core_opts opts;
	char why[MM_TEXT_BYTES] = "";
	int r;

	pool->worker.device = pool->worker.kept->device;
	mm_pool_opts(pool, pool->shell->config, &opts);
	pool->ready = kept->ready;
	pool->down = kept->down;
	pool->quarantined = kept->quarantined;
	pool->bytes_streamed_gone = kept->bytes_streamed_gone;
	pool->cold_streamed_gone = kept->cold_streamed_gone;
	r = page_fds_alloc(pool);
	if (r == 0)
		r = mm_pool_restore(pool, &opts, why, sizeof(why));
	/* If it was left to another build, the one before can go on. */
	if (r < 0 && r != -ENOMEM && !pool->shell->kept.left) {
		mm_log(MM_LOG_ERROR, "pool.renewed", "device=%" PRIu64 " reason=\"%s\"",
		       pool->ordinal, why);
		r = pool_renew(pool, &opts);
	}
	if (r < 0)
		mm_shell_fail(pool->shell, "core died, and device %" PRIu64 " cannot go on: %s",
			      pool->ordinal, *why ? why : strerror(-r));
	return r;
}

struct mm_pool *mm_pool_by_uuid(struct mm_shell *shell, const uint8_t *uuid)
{
	static const uint8_t any[sizeof(shell->pool[0].worker.device.uuid)];

	if (memcmp(uuid, any, sizeof(any)) == 0)
		return shell->n_pools == 1 ? &shell->pool[0] : NULL;
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		if (memcmp(shell->pool[i].worker.device.uuid, uuid, sizeof(any)) == 0)
			return &shell->pool[i];
	}
	return NULL;
}

/* Ends mmd: all pages were created, but none could be scrubbed and granted. */
static void pool_fail_uncleared(struct mm_pool *pool)
{
	const struct mm_device *d = &pool->worker.device;
	int error = pool->worker.kept->scrub_error;

	mm_shell_fail(pool->shell,
		      "not one of the %u pages of %" PRIu64 " bytes of device %" PRIu64
		      " (%s) can be cleared: %s; see the messages of its xfer above%s",
		      d->pages, d->page_bytes, pool->ordinal, d->name,
		      error ? strerror(-error) : "xfer died of it",
		      error == -ENOMEM ? ", and limits such as ulimit -v" : "");
}

bool mm_pool_check_ready(struct mm_pool *pool)
{
	const struct mm_device *d = &pool->worker.device;
	struct mm_core_stats stats;

	if (pool->ready || !pool->core)
		return pool->ready;
	mm_core_stats(pool->core, &stats);
	if (stats.pages[MM_PAGE_NONE] || stats.pages[MM_PAGE_DIRTY] ||
	    stats.pages[MM_PAGE_SCRUBBING])
		return false;
	pool->quarantined = (uint32_t)stats.pages[MM_PAGE_QUARANTINE];
	if (pool->quarantined == d->pages) {
		pool_fail_uncleared(pool);
		return false;
	}
	pool->ready = true;
	pool->kept->quarantined = pool->quarantined;
	mm_kept_publish(&pool->kept->ready, 1u);
	mm_log(pool->quarantined ? MM_LOG_WARN : MM_LOG_INFO, "pool.ready",
	       "device=%" PRIu64 " name=\"%s\" pages=%u page_bytes=%" PRIu64 " quarantined=%u",
	       pool->ordinal, d->name, d->pages, d->page_bytes, pool->quarantined);
	return true;
}

/* ---- down and up ---- */

void mm_pool_down(struct mm_pool *pool)
{
	if (pool->down)
		return;
	pool->down = true;
	mm_kept_publish(&pool->kept->down, 1u);
	mm_log(MM_LOG_ERROR, "pool.down", "device=%" PRIu64 " name=\"%s\"", pool->ordinal,
	       pool->worker.device.name);
	mm_sessions_end(pool, "its device is down");
}

void mm_pool_up(struct mm_pool *pool)
{
	if (!pool->down)
		return;
	pool->down = false;
	mm_kept_publish(&pool->kept->down, 0u);
	mm_log(MM_LOG_INFO, "pool.up", "device=%" PRIu64 " name=\"%s\"", pool->ordinal,
	       pool->worker.device.name);
}

/*
 * While a device is down its core gets no ticks: no deadline of a tenant passes, since nobody could
 * use the memory.
 */
static bool pool_is_ticking(const struct mm_pool *pool)
{
	return pool->core && !pool->down;
}

void mm_pool_tick(struct mm_pool *pool, uint64_t now_ns)
{
	const struct mm_event tick = { .kind = MM_EVENT_TICK, .now_ns = now_ns };

	if (pool_is_ticking(pool) && now_ns >= mm_core_deadline(pool->core))
		mm_pool_event(pool, &tick, NULL, NULL);
}

uint64_t mm_pool_deadline(const struct mm_pool *pool)
{
	uint64_t at = mm_worker_deadline(&pool->worker);

	return pool_is_ticking(pool) ? MM_MIN(at, mm_core_deadline(pool->core)) : at;
}

/* ---- what it has ---- */

static const char *const page_state_names[MM_PAGE_STATES] = {
	[MM_PAGE_NONE] = "not_created",
	[MM_PAGE_FREE] = "free",
	[MM_PAGE_DIRTY] = "dirty",
	[MM_PAGE_SCRUBBING] = "scrubbing",
	[MM_PAGE_PARAM] = "param",
	[MM_PAGE_SLOT] = "slot",
	[MM_PAGE_KV] = "kv",
	[MM_PAGE_MEM] = "mem",
	[MM_PAGE_REVOKING] = "revoking",
	[MM_PAGE_QUARANTINE] = "quarantine",
};

const char *mm_page_state_name(enum mm_page_state state)
{
	return page_state_names[state];
}

/* Returns the sum of a counter over the tenants that are here. @at: its offset in their cursors. */
static uint64_t streamed_sum(const struct mm_pool *pool, size_t at)
{
	uint64_t sum = 0;

	MM_FOREACH_SESSION(pool->shell, s) {
		const uint8_t *cursors = s->cursor_region.base;

		if (cursors && s->pool == pool)
			sum += __atomic_load_n((const uint64_t *)(const void *)(cursors + at),
					       __ATOMIC_RELAXED);
	}
	return sum;
}

uint64_t mm_pool_bytes_streamed(const struct mm_pool *pool)
{
	return pool->bytes_streamed_gone +
	       streamed_sum(pool, offsetof(struct mm_xcursor_region, bytes_streamed));
}

uint64_t mm_pool_cold_streamed(const struct mm_pool *pool)
{
	return pool->cold_streamed_gone +
	       streamed_sum(pool, offsetof(struct mm_xcursor_region, cold_bytes));
}
