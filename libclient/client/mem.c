/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is neither weights nor KV: pages that stay until the engine frees them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/client/internal.h"
#include "libclient/support/fault.h"
#include "libclient/support/size.h"

/* The list is in order of entries, the highest first: they are given from the table's end on. */
struct mm_mem {
	struct mm_mem *next;
	CUdeviceptr va;
	uint32_t entry, pages;
	bool usable; /* it is mapped, and no call is freeing it */
};

/* ---- entries of the map table ---- */

uint32_t mm_mem_lowest(const struct mm_client *c)
{
	uint32_t lowest = MM_MAP_ENTRIES;

	for (const struct mm_mem *mem = c->mem; mem; mem = mem->next)
		lowest = mem->entry;
	return lowest;
}

static uint32_t arena_end(const struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	const struct mm_kv *kv = c->kv;

	return MM_MAP_KV_BASE + (kv ? kv->chunks_max * kv->ranges * kv->pages_per_range : 0);
}

/* Gives @mem the highest entries that are free, and lists it. */
static bool entries_take(struct mm_client *c, struct mm_mem *mem) MM_REQUIRES(mm_client_lock)
{
	struct mm_mem **at = &c->mem;
	uint32_t end = MM_MAP_ENTRIES;

	while (*at && end - (*at)->entry - (*at)->pages < mem->pages) {
		end = (*at)->entry;
		at = &(*at)->next;
	}
	if (!*at && end - arena_end(c) < mem->pages)
		return false;
	mem->entry = end - mem->pages;
	mem->next = *at;
	*at = mem;
	return true;
}

static void entries_give_back(struct mm_client *c, struct mm_mem *mem) MM_REQUIRES(mm_client_lock)
{
	struct mm_mem **at = &c->mem;

	while (*at && *at != mem)
		at = &(*at)->next;
	if (*at) /* not while closing */
		*at = mem->next;
	free(mem);
}

static void mem_drop(struct mm_client *c, struct mm_mem *mem)
{
	mm_client_lock_take(&c->lock);
	entries_give_back(c, mem);
	mm_client_lock_give(&c->lock);
}

/* ---- mapping ---- */

static int mem_apply(struct mm_client *c, const struct mm_mem *mem, const uint32_t *table)
	MM_REQUIRES(mm_map_lock)
{
	const struct mm_span span = {
		.va = mem->va,
		.entry = mem->entry,
		.n_pages = mem->pages,
		.writable = true,
		.whole = true,
	};

	return mm_mapper_apply(&c->mapper, &span, 1, table);
}

static void mem_unreserve(struct mm_client *c, struct mm_mem *mem) MM_REQUIRES(mm_map_lock)
{
	if (mem->va)
		mm_mapper_unreserve(&c->mapper, mem->va, mem->pages);
	mem->va = 0;
}

/* Return: 0, or an error, and then nothing is mapped. */
static int mem_map(struct mm_client *c, struct mm_mem *mem)
{
	int r;

	MM_CAPTURE_RELAXED(c);
	mm_map_lock_take(&c->map_lock);
	r = c->closing ? -ECONNRESET : mm_mapper_reserve(&c->mapper, mem->pages, &mem->va);
	if (!r)
		r = mem_apply(c, mem, c->mmd->map);
	if (r && mem->va) {
		mem_apply(c, mem, NULL);
		mem_unreserve(c, mem);
	}
	mm_map_lock_give(&c->map_lock);
	return r;
}

static int mem_unmap(struct mm_client *c, struct mm_mem *mem)
{
	int r;

	MM_CAPTURE_RELAXED(c);
	mm_map_lock_take(&c->map_lock);
	r = mem_apply(c, mem, NULL);
	if (!r)
		mem_unreserve(c, mem);
	mm_map_lock_give(&c->map_lock);
	return r;
}

void mm_mem_destroy_all(struct mm_client *c)
{
	struct mm_mem *mem;

	mm_client_lock_take(&c->lock);
	mem = c->mem;
	c->mem = NULL;
	mm_client_lock_give(&c->lock);
	while (mem) {
		struct mm_mem *next = mem->next;

		if (mem->va)
			mem_apply(c, mem, NULL);
		mem_unreserve(c, mem);
		free(mem);
		mem = next;
	}
}

/* ---- requests ---- */

/* mmd answers one request after the other: the next one waits here. */
static int turn_take(struct mm_client *c, struct mm_mem *mem)
{
	struct mm_patience patience = mm_patience_of(c->timeout_ns);
	int r = 0;

	mm_client_lock_take(&c->lock);
	while (!r && c->mem_asking)
		r = mm_link_wait_for_mmd(c, &patience);
	if (!r && !entries_take(c, mem))
		r = -E2BIG;
	if (!r)
		c->mem_asking = true;
	mm_client_lock_give(&c->lock);
	return r;
}

static void turn_give(struct mm_client *c)
{
	mm_client_lock_take(&c->lock);
	c->mem_asking = false;
	pthread_cond_broadcast(&c->changed);
	mm_client_lock_give(&c->lock);
}

static int alloc_refuse(const struct mm_client *c, const struct mm_msg *reply, uint64_t bytes)
{
	char want[MM_SIZE_TEXT_BYTES], there[MM_SIZE_TEXT_BYTES];

	mm_size_print(bytes, want);
	mm_size_print(reply->arg[1] * c->welcome.page_bytes, there);
	if (reply->result == -EDQUOT)
		return mm_fail(c, -EDQUOT,
			       "%s of memory: this tenant's share of the pool leaves %s", want,
			       there);
	return mm_fail(c, reply->result,
		       "%s of memory: mmd has %s free, and takes none from others for it", want,
		       there);
}

static int send_free(struct mm_client *c, const struct mm_mem *mem)
{
	const struct mm_msg msg = { .opcode = MM_OP_MEM_FREE, .arg = { mem->entry, mem->pages } };

	return mm_link_push(c, &msg);
}

/* Requests the pages of @mem. Return: 0: it has them; otherwise it is not usable any more. */
static int mem_request(struct mm_client *c, struct mm_mem *mem, uint64_t bytes)
{
	struct mm_msg msg = { .opcode = MM_OP_MEM_ALLOC, .arg = { mem->entry, mem->pages } };
	int r = mm_link_call(c, &msg);

	/* mmd may count the entries as used: they are not given again. */
	if (r)
		return mm_fail(c, r, "mmd did not answer: %s", strerror(-r));
	if (msg.result < 0) {
		mem_drop(c, mem);
		return alloc_refuse(c, &msg, bytes);
	}
	r = mem_map(c, mem);
	if (!r)
		return 0;
	r = send_free(c, mem) ? -ECONNRESET : r;
	mem_drop(c, mem);
	return mm_fail(c, r == -EPROTO || r == -ENOENT ? -EPROTO : r,
		       "the device does not map the memory: %s", strerror(-r));
}

/* Return: how many pages @bytes are; 0: more than can be. */
static uint32_t pages_of(const struct mm_client *c, uint64_t bytes)
{
	uint64_t pages = bytes / c->welcome.page_bytes + (bytes % c->welcome.page_bytes != 0);

	return pages > MM_MAP_ENTRIES - MM_MAP_KV_BASE ? 0 : (uint32_t)pages;
}

static int alloc_check(struct mm_client *c, uint64_t bytes, uint32_t flags)
{
	int r = mm_enter(c);

	if (r)
		return r;
	if (flags)
		return mm_fail(c, -EINVAL, "flags that this library does not know");
	if (!bytes)
		return mm_fail(c, -EINVAL, "0 bytes of memory");
	if (!(c->welcome.features & MM_FEAT_MEM))
		return mm_fail(c, -EOPNOTSUPP, "this mmd lends memory for weights and KV only");
	if (!pages_of(c, bytes))
		return mm_fail(c, -E2BIG, "more than %d pages", MM_MAP_ENTRIES - MM_MAP_KV_BASE);
	return 0;
}

int mm_mem_alloc(struct mm_client *client, uint64_t bytes, uint32_t flags, uint64_t *ret_va)
{
	struct mm_mem *mem;
	int r = alloc_check(client, bytes, flags);

	if (r)
		return r;
	mem = mm_fault("mem.alloc") ? NULL : calloc(1, sizeof(*mem));
	if (!mem)
		return mm_fail(client, -ENOMEM, "out of memory");
	mem->pages = pages_of(client, bytes);
	r = turn_take(client, mem);
	if (r) {
		free(mem);
		return mm_fail(client, r, "%u pages: %s", pages_of(client, bytes),
			       r == -E2BIG ? "the map table has no room" : strerror(-r));
	}
	r = mem_request(client, mem, bytes);
	if (!r) {
		mm_client_lock_take(&client->lock);
		mem->usable = true;
		*ret_va = mem->va;
		mm_client_lock_give(&client->lock);
	}
	turn_give(client);
	return r;
}

/* Finds what begins at @va, and keeps other calls from freeing it. */
static struct mm_mem *mem_claim(struct mm_client *c, uint64_t va)
{
	struct mm_mem *mem;

	mm_client_lock_take(&c->lock);
	for (mem = c->mem; mem && (!mem->usable || mem->va != va); mem = mem->next)
		;
	if (mem)
		mem->usable = false;
	mm_client_lock_give(&c->lock);
	return mem;
}

int mm_mem_page(struct mm_client *client, uint64_t va, uint32_t *ret_page)
{
	const struct mm_mem *mem;
	uint32_t entry = 0;

	mm_client_lock_take(&client->lock);
	for (mem = client->mem; mem && mem->va != va; mem = mem->next)
		;
	if (mem)
		entry = mem->entry;
	mm_client_lock_give(&client->lock);
	return mem ? mm_mapper_page(&client->mapper, entry, ret_page) : -ENOENT;
}

int mm_mem_free(struct mm_client *client, uint64_t va)
{
	struct mm_mem *mem;
	int r = mm_enter(client);

	if (r)
		return r;
	mem = mem_claim(client, va);
	if (!mem)
		return mm_fail(client, -ENOENT, "no memory of mm_mem_alloc() begins at %#llx",
			       (unsigned long long)va);
	if (mem_unmap(client, mem))
		return mm_fail(client, -EIO, "the device does not unmap the memory");
	r = send_free(client, mem);
	if (r)
		return mm_fail(client, r, "mmd takes no requests: %s", strerror(-r));
	mem_drop(client, mem);
	return 0;
}
