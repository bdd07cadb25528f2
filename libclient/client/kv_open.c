/* SPDX-License-Identifier: Apache-2.0 */
/* How the KV arena begins, with its addresses and mmd's consent, and how it ends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/client/internal.h"
#include "libclient/support/fault.h"

static uint32_t reservations_count(const struct mm_kv *kv)
{
	return kv->contiguous ? 1 : kv->ranges;
}

static uint64_t reservation_pages(const struct mm_kv *kv)
{
	return (uint64_t)kv->chunks_max * kv->pages_per_range * (kv->contiguous ? kv->ranges : 1);
}

void mm_kv_destroy(struct mm_kv *kv)
{
	struct mm_mapper *mapper;

	if (!kv)
		return;
	mapper = &kv->client->mapper;
	for (uint32_t i = 0; i < kv->chunks_max && kv->usable && kv->pending; i++)
		if (kv->backed || mm_kv_is_mapped(kv, i))
			mm_kv_chunks_map(kv, i, 1, NULL);
	for (uint32_t i = 0; i < reservations_count(kv) && kv->va; i++)
		if (kv->va[i])
			mm_mapper_unreserve(mapper, kv->va[i], reservation_pages(kv));
	free(kv->va);
	free(kv->usable);
	free(kv->pending);
	free(kv);
}

static void kv_unref(struct mm_kv **kv)
{
	struct mm_client *c = *kv ? (*kv)->client : NULL;
	uint64_t filler;

	if (!c)
		return;
	MM_CAPTURE_RELAXED(c);
	filler = (*kv)->filler_va;
	mm_map_lock_take(&c->map_lock);
	mm_kv_destroy(*kv);
	mm_map_lock_give(&c->map_lock);
	if (filler)
		mm_mem_free(c, filler);
}

static int kv_opts_check(struct mm_client *c, const struct mm_kv_opts *opts, struct mm_kv *ret_kv)
{
	uint64_t page_bytes = c->welcome.page_bytes;
	uint64_t pages, entries;

	if (opts->flags & ~(MM_KV_BACKED | MM_KV_CONTIGUOUS))
		return mm_fail(c, -EINVAL, "opts: flags that this library does not know");
	if (!opts->chunk_bytes || opts->chunk_bytes % page_bytes)
		return mm_fail(c, -EINVAL, "opts: chunk_bytes must be a multiple of %llu",
			       (unsigned long long)page_bytes);
	if (!opts->chunks_max)
		return mm_fail(c, -EINVAL, "opts: chunks_max is 0");
	pages = opts->chunk_bytes / page_bytes;
	ret_kv->ranges = opts->ranges ? opts->ranges : 1;
	if (__builtin_mul_overflow(pages, ret_kv->ranges, &entries) ||
	    __builtin_mul_overflow(entries, opts->chunks_max, &entries) ||
	    entries > MM_MAP_ENTRIES - MM_MAP_KV_BASE)
		return mm_fail(c, -E2BIG, "opts: more than %d pages in all; use larger pages",
			       MM_MAP_ENTRIES - MM_MAP_KV_BASE);
	ret_kv->chunk_bytes = opts->chunk_bytes;
	ret_kv->chunks_max = opts->chunks_max;
	ret_kv->pages_per_range = (uint32_t)pages;
	ret_kv->contiguous = opts->flags & MM_KV_CONTIGUOUS;
	return 0;
}

static int kv_reserve(struct mm_client *c, struct mm_kv *kv)
{
	int r = 0;

	kv->va = calloc(kv->ranges, sizeof(*kv->va));
	kv->usable = calloc(mm_kv_words(kv->chunks_max), sizeof(*kv->usable));
	kv->pending = calloc(mm_kv_words(kv->chunks_max), sizeof(*kv->pending));
	if (!kv->va || !kv->usable || !kv->pending || mm_fault("kv.reserve"))
		return -ENOMEM;
	MM_CAPTURE_RELAXED(c);
	mm_map_lock_take(&c->map_lock);
	for (uint32_t i = 0; i < reservations_count(kv) && !r; i++)
		r = mm_mapper_reserve(&c->mapper, reservation_pages(kv), &kv->va[i]);
	for (uint32_t i = 1; kv->contiguous && i < kv->ranges && !r; i++)
		kv->va[i] = kv->va[0] + i * kv->chunks_max * kv->chunk_bytes;
	mm_map_lock_give(&c->map_lock);
	return r;
}

/* The page of memory behind all that is not granted, mapped there. */
static int filler_map(struct mm_client *c, struct mm_kv *kv)
{
	int r;

	MM_CAPTURE_RELAXED(c);
	mm_map_lock_take(&c->map_lock);
	r = c->closing ? -ECONNRESET : mm_mem_page(c, kv->filler_va, &kv->filler);
	kv->backed = !r;
	if (!r)
		r = mm_kv_chunks_fill(kv, 0, kv->chunks_max);
	mm_map_lock_give(&c->map_lock);
	return r ? mm_fail(c, r == -ECONNRESET ? r : -EIO,
			   "the device does not map the arena's filler: %s", strerror(-r))
		 : 0;
}

/*
 * The arena is installed before it is declared: grants may arrive before the reply is handled.
 * Return: 0; -EEXIST; -E2BIG.
 */
static int kv_install(struct mm_client *c, struct mm_kv *kv)
{
	uint32_t entries = kv->chunks_max * kv->ranges * kv->pages_per_range;
	int r = 0;

	mm_client_lock_take(&c->lock);
	if (c->kv)
		r = mm_fail(c, -EEXIST, "this client has an arena already");
	else if (mm_mem_lowest(c) - MM_MAP_KV_BASE < entries)
		r = mm_fail(c, -E2BIG,
			    "opts: %u pages in all, and memory of mm_mem_alloc() leaves %u",
			    entries, mm_mem_lowest(c) - MM_MAP_KV_BASE);
	else
		c->kv = kv;
	mm_client_lock_give(&c->lock);
	return r;
}

static void kv_uninstall(struct mm_client *c)
{
	mm_client_lock_take(&c->lock);
	c->kv = NULL;
	mm_client_lock_give(&c->lock);
}

static int arena_declare(struct mm_client *c, const struct mm_kv *kv, uint32_t share_chunks)
{
	struct mm_msg msg = { .opcode = MM_OP_KV_DECLARE,
			      .arg = { kv->chunk_bytes, kv->ranges, kv->chunks_max,
				       share_chunks } };
	int r = mm_link_call(c, &msg);

	if (r)
		return mm_fail(c, r, "mmd did not answer: %s", strerror(-r));
	if (msg.result < 0)
		return mm_fail(c, msg.result, "mmd refused the arena: %s", strerror(-msg.result));
	return 0;
}

int mm_kv_open(struct mm_client *client, const struct mm_kv_opts *opts, struct mm_kv **ret_kv)
{
	mm_cleanup(kv_unref) struct mm_kv *kv = NULL;
	struct mm_kv_opts copy;
	int r = mm_enter(client);

	if (r)
		return r;
	if (mm_sized_read(opts, MM_V1_KV_OPTS, &copy, sizeof(copy)))
		return mm_fail(client, -EINVAL, "opts: " MM_SIZE_TEXT);
	kv = calloc(1, sizeof(*kv));
	if (!kv)
		return mm_fail(client, -ENOMEM, "out of memory");
	kv->client = client;
	r = kv_opts_check(client, &copy, kv);
	if (r)
		return r;
	if (kv_reserve(client, kv))
		return mm_fail(client, -ENOMEM, "no addresses for the arena");
	if (copy.flags & MM_KV_BACKED)
		r = mm_mem_alloc(client, client->welcome.page_bytes, 0, &kv->filler_va);
	if (r)
		return r;
	r = kv_install(client, kv);
	if (r)
		return r;
	r = kv->filler_va ? filler_map(client, kv) : 0;
	if (!r)
		r = arena_declare(client, kv, copy.share_chunks);
	if (r) {
		/*
		 * After -ETIMEDOUT grants may still arrive: the arena stays, unused, until the end.
		 */
		if (r == -ETIMEDOUT)
			kv = NULL;
		else
			kv_uninstall(client);
		return r;
	}
	*ret_kv = kv;
	kv = NULL;
	return 0;
}

uint64_t mm_kv_range_va(const struct mm_kv *kv, uint32_t range)
{
	return range < kv->ranges ? kv->va[range] : 0;
}
