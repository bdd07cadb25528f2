/* SPDX-License-Identifier: Apache-2.0 */
/* The KV arena: chunks that mmd grants are mapped, chunks that are released are unmapped. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/client/internal.h"
#include "libclient/support/clock.h"
#include "libclient/support/fault.h"
#include "mm/client_cold.h"

#define WORD_BITS 64

static bool bit_get(const uint64_t *words, uint32_t i)
{
	return words[i / WORD_BITS] >> (i % WORD_BITS) & 1;
}

static void bit_flip(uint64_t *words, uint32_t i)
{
	words[i / WORD_BITS] ^= UINT64_C(1) << (i % WORD_BITS);
}

static void generation_count(struct mm_kv *kv) MM_REQUIRES(mm_client_lock)
{
	__atomic_store_n(&kv->generation, kv->generation + 1, __ATOMIC_RELEASE);
}

uint64_t mm_kv_generation(const struct mm_kv *kv)
{
	return __atomic_load_n(&kv->generation, __ATOMIC_ACQUIRE);
}

bool mm_kv_is_usable(const struct mm_kv *kv, uint32_t chunk)
{
	return chunk < kv->chunks_max && bit_get(kv->usable, chunk);
}

bool mm_kv_is_mapped(const struct mm_kv *kv, uint32_t chunk)
{
	return bit_get(kv->usable, chunk) || bit_get(kv->pending, chunk);
}

/*
 * The addresses of @n chunks in a range. A chunk is one span in each range; @n is above 1 only
 * where there is one range, in which neighbours form one span.
 */
static struct mm_span chunks_span(const struct mm_kv *kv, uint32_t range, uint32_t chunk,
				  uint32_t n)
{
	return (struct mm_span){
		.va = kv->va[range] + chunk * kv->chunk_bytes,
		.entry = MM_MAP_KV_BASE + (chunk * kv->ranges + range) * kv->pages_per_range,
		.n_pages = n * kv->pages_per_range,
		.writable = true,
		.whole = true,
	};
}

int mm_kv_chunks_fill(struct mm_kv *kv, uint32_t chunk, uint32_t n)
{
	uint32_t step = kv->ranges == 1 ? n : 1;
	int r = 0;

	for (uint32_t c = chunk; c < chunk + n && !r; c += step) {
		for (uint32_t i = 0; i < kv->ranges && !r; i++) {
			const struct mm_span span = chunks_span(kv, i, c, step);

			r = mm_mapper_fill(&kv->client->mapper, &span, 1, kv->filler);
		}
	}
	return r;
}

static void holes_fill(struct mm_kv *kv, uint32_t chunk, uint32_t n) MM_REQUIRES(mm_map_lock)
{
	if (!kv->backed)
		return;
	kv->holes = kv->holes ? mm_kv_chunks_fill(kv, 0, kv->chunks_max) != 0
			      : mm_kv_chunks_fill(kv, chunk, n) != 0;
}

int mm_kv_chunks_map(struct mm_kv *kv, uint32_t chunk, uint32_t n, const uint32_t *table)
{
	int result = 0;

	for (uint32_t i = 0; i < kv->ranges; i++) {
		const struct mm_span span = chunks_span(kv, i, chunk, n);
		int r = mm_mapper_apply(&kv->client->mapper, &span, 1, table);

		if (r)
			result = r;
		/* Unmapping continues after an error, so that as much as possible is released. */
		if (r && table)
			break;
	}
	if (result && table)
		mm_kv_chunks_map(kv, chunk, n, NULL);
	return result;
}

/* Maps or unmaps chunks; the filler takes the place of what is unmapped. */
static int chunks_apply(struct mm_kv *kv, uint32_t chunk, uint32_t n, const uint32_t *table)
	MM_REQUIRES(mm_map_lock)
{
	int r = mm_kv_chunks_map(kv, chunk, n, table);

	holes_fill(kv, chunk, n);
	return r;
}

static int chunk_apply(struct mm_kv *kv, uint32_t chunk, const uint32_t *table)
	MM_REQUIRES(mm_map_lock)
{
	return chunks_apply(kv, chunk, 1, table);
}

static int send_release(struct mm_client *c, uint32_t chunk)
{
	const struct mm_msg msg = { .opcode = MM_OP_KV_RELEASE, .arg = { chunk } };

	return mm_link_push(c, &msg);
}

static int send_want(struct mm_client *c, uint32_t chunks, uint32_t first)
{
	const struct mm_msg msg = { .opcode = MM_OP_KV_WANT, .arg = { chunks, first } };

	return mm_link_push(c, &msg);
}

/* ---- events of mmd ---- */

static void demand_denied(struct mm_client *c, uint32_t wanted, int error)
	MM_REQUIRES(mm_client_lock)
{
	c->kv->denied_wanted = wanted;
	c->kv->denied_error = error;
	mm_event_push(c, &(struct mm_event){ .kind = MM_EVENT_KV_DENIED, .error = error });
	pthread_cond_broadcast(&c->changed);
}

/* The arena, which map_lock keeps from being freed; NULL if @chunk cannot be granted in it. */
static struct mm_kv *grant_find(struct mm_client *c, uint64_t chunk) MM_REQUIRES(mm_map_lock)
{
	struct mm_kv *kv;

	mm_client_lock_take(&c->lock);
	kv = c->kv;
	if (kv && (chunk >= kv->chunks_max || mm_kv_is_mapped(kv, (uint32_t)chunk)))
		kv = NULL;
	mm_client_lock_give(&c->lock);
	return kv;
}

/* The engine learns of @n chunks whose bits were set. */
static void chunks_are_usable(struct mm_kv *kv, uint32_t n) MM_REQUIRES(mm_client_lock)
{
	struct mm_client *c = kv->client;

	kv->n_usable += n;
	kv->granted += n;
	generation_count(kv);
	mm_event_push(c, &(struct mm_event){ .kind = MM_EVENT_KV_GRANTED, .count = n });
	pthread_cond_broadcast(&c->changed);
}

static void grant_done(struct mm_client *c, struct mm_kv *kv, uint32_t chunk, uint32_t n,
		       int result) MM_REQUIRES(mm_map_lock)
{
	mm_client_lock_take(&c->lock);
	/* mmd grants no other in its place, so the whole demand cannot be met. */
	if (result)
		demand_denied(c, kv->wanted, -ENOSPC);
	for (uint32_t i = 0; !result && i < n; i++)
		bit_flip(mm_group_is_joined(c) ? kv->pending : kv->usable, chunk + i);
	if (!result && !mm_group_is_joined(c))
		chunks_are_usable(kv, n);
	mm_client_lock_give(&c->lock);
}

/* A rank says what it has mapped; the chunks are usable once all ranks have said so. */
static int mapped_send(struct mm_client *c, uint64_t chunk, uint32_t n, const char **ret_text)
{
	struct mm_msg msg = { .opcode = MM_OP_GROUP_MAPPED };
	int r = 0;

	*ret_text = "mmd takes no requests any more";
	for (uint32_t i = 0; i < n && !r && mm_group_is_joined(c); i++) {
		msg.arg[0] = chunk + i;
		r = mm_link_push(c, &msg);
	}
	return r;
}

static int grant_take(struct mm_client *c, uint64_t chunk, const char **ret_text)
	MM_REQUIRES(mm_map_lock)
{
	struct mm_kv *kv = grant_find(c, chunk);
	int r;

	*ret_text = "mmd granted a chunk that the arena cannot take";
	if (!kv)
		return -EPROTO;
	r = chunk_apply(kv, (uint32_t)chunk, c->mmd->map);
	*ret_text = "mmd granted a chunk of pages that it never sent";
	if (r == -EPROTO || r == -ENOENT)
		return -EPROTO;
	grant_done(c, kv, (uint32_t)chunk, 1, r);
	return r;
}

/* The arena, or NULL if the @n chunks from @first on cannot be mapped as one span. */
static struct mm_kv *run_find(struct mm_client *c, uint64_t first, uint32_t n)
	MM_REQUIRES(mm_map_lock)
{
	struct mm_kv *kv;

	mm_client_lock_take(&c->lock);
	kv = c->kv;
	if (kv && (kv->ranges != 1 || first >= kv->chunks_max || n > kv->chunks_max - first))
		kv = NULL;
	for (uint32_t i = 0; kv && i < n; i++)
		if (mm_kv_is_mapped(kv, (uint32_t)first + i))
			kv = NULL;
	mm_client_lock_give(&c->lock);
	return kv;
}

/*
 * Maps a run of chunks with one setting of access, which is the slow call. Return: false: nothing
 * was mapped, and the chunks are to be tried one by one, to find the one at fault.
 */
static bool grant_run(struct mm_client *c, uint64_t first, uint32_t n)
{
	struct mm_kv *kv;
	bool good;

	mm_map_lock_take(&c->map_lock);
	kv = c->closing ? NULL : run_find(c, first, n);
	good = kv && !chunks_apply(kv, (uint32_t)first, n, c->mmd->map);
	if (good)
		grant_done(c, kv, (uint32_t)first, n, 0);
	mm_map_lock_give(&c->map_lock);
	return good;
}

static int grant_one(struct mm_client *c, uint64_t chunk, const char **ret_text)
{
	int r;

	mm_map_lock_take(&c->map_lock);
	r = c->closing ? 0 : grant_take(c, chunk, ret_text);
	mm_map_lock_give(&c->map_lock);
	if (!r)
		return mapped_send(c, chunk, 1, ret_text);
	if (r == -EPROTO)
		return r;
	/* The device did not map it. No side broke the protocol; the chunk is released. */
	mm_client_lock_take(&c->lock);
	if (c->kv) /* not while closing */
		c->kv->released++;
	mm_client_lock_give(&c->lock);
	*ret_text = "mmd takes no requests any more";
	return send_release(c, (uint32_t)chunk);
}

int mm_kv_take_grants(struct mm_client *client, const char **ret_text)
{
	const uint64_t first = client->granted.first;
	const uint32_t n = client->granted.n;
	int r = 0;

	client->granted.n = 0;
	if (n > 1 && grant_run(client, first, n))
		return mapped_send(client, first, n, ret_text);
	for (uint32_t i = 0; !r && i < n; i++)
		r = grant_one(client, first + i, ret_text);
	return r;
}

int mm_kv_on_grant(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	int r = 0;

	if (client->granted.n && msg->arg[0] == client->granted.first + client->granted.n) {
		client->granted.n++;
		return 0;
	}
	r = mm_kv_take_grants(client, ret_text);
	client->granted.first = msg->arg[0];
	client->granted.n = 1;
	return r;
}

int mm_kv_on_denied(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	if (msg->result != -ENOSPC && msg->result != -EDQUOT) {
		*ret_text = "mmd denied memory for no known reason";
		return -EPROTO;
	}
	mm_client_lock_take(&client->lock);
	if (client->kv) /* not while closing */
		demand_denied(client, (uint32_t)MM_MIN(msg->arg[0], UINT32_MAX), msg->result);
	mm_client_lock_give(&client->lock);
	return 0;
}

uint32_t mm_kv_count_owed(const struct mm_kv *kv)
{
	uint64_t since;

	if (!kv || kv->client->dead)
		return 0;
	since = kv->released - MM_MIN(kv->reclaim.known, kv->released);
	return MM_MIN(kv->reclaim.chunks - (uint32_t)MM_MIN(since, kv->reclaim.chunks),
		      kv->n_usable);
}

/* Drops the event of a reclaim once nothing is owed. */
static void reclaim_settle(struct mm_kv *kv) MM_REQUIRES(mm_client_lock)
{
	if (!mm_kv_count_owed(kv))
		mm_event_drop(kv->client, MM_EVENT_KV_RECLAIM, 1);
}

/* Replaces the reclaim before. mmd did not know of releases that were under way. */
static void reclaim_set(struct mm_kv *kv, const struct mm_msg *msg) MM_REQUIRES(mm_client_lock)
{
	kv->reclaim.chunks = (uint32_t)MM_MIN(msg->arg[0], UINT32_MAX);
	kv->reclaim.deadline_ns = msg->arg[1];
	kv->reclaim.known = msg->arg[2] ? MM_MIN(msg->arg[2] - 1, kv->released) : kv->released;
	mm_event_push(kv->client, &(struct mm_event){ .kind = MM_EVENT_KV_RECLAIM,
						      .deadline_ns = msg->arg[1] });
	reclaim_settle(kv);
}

int mm_kv_on_reclaim(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	(void)ret_text;
	mm_client_lock_take(&client->lock);
	if (client->kv) /* not while closing */
		reclaim_set(client->kv, msg);
	mm_client_lock_give(&client->lock);
	return 0;
}

/* ---- events of a group ---- */

int mm_kv_on_usable(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	struct mm_kv *kv;
	bool known = true;

	mm_client_lock_take(&client->lock);
	kv = client->kv;
	if (kv)
		known = msg->arg[0] < kv->chunks_max;
	/* The engine may have heard of it from another rank, and have released it by now. */
	if (kv && known && bit_get(kv->pending, (uint32_t)msg->arg[0])) {
		bit_flip(kv->pending, (uint32_t)msg->arg[0]);
		bit_flip(kv->usable, (uint32_t)msg->arg[0]);
		chunks_are_usable(kv, 1);
	}
	mm_client_lock_give(&client->lock);
	*ret_text = "mmd named a chunk that the arena does not have";
	return known ? 0 : -EPROTO;
}

/* Releases a chunk that did not become usable: no engine knows of it. */
int mm_kv_on_drop(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	const uint32_t chunk = (uint32_t)MM_MIN(msg->arg[0], UINT32_MAX);
	struct mm_kv *kv;

	mm_map_lock_take(&client->map_lock);
	mm_client_lock_take(&client->lock);
	kv = client->kv;
	if (kv && (chunk >= kv->chunks_max || !bit_get(kv->pending, chunk)))
		kv = NULL;
	if (kv) {
		bit_flip(kv->pending, chunk);
		kv->released++;
		reclaim_settle(kv);
	}
	mm_client_lock_give(&client->lock);
	/* A chunk that the device does not unmap stays charged. */
	if (kv && chunk_apply(kv, chunk, NULL))
		kv = NULL;
	mm_map_lock_give(&client->map_lock);
	*ret_text = "mmd takes no requests any more";
	return kv ? send_release(client, chunk) : 0;
}

/* ---- growing and shrinking ---- */

/* @granted: chunks that were granted in all before the demand was set. */
static int demand_wait(struct mm_kv *kv, uint32_t chunks_total, uint64_t granted,
		       uint64_t deadline_ns)
{
	struct mm_client *c = kv->client;
	int r = 0;

	mm_client_lock_take(&c->lock);
	while (!r && kv->n_usable < chunks_total) {
		/* A step that another thread opens meanwhile may wait for pages of this tenant. */
		if (c->steps.open)
			r = -EAGAIN;
		else if (kv->denied_error && kv->denied_wanted == chunks_total)
			r = kv->denied_error;
		else if (c->group.left)
			r = -EPIPE;
		else
			r = mm_link_wait(c, deadline_ns);
	}
	/* The return reports it: the event of the same is dropped. */
	if (!r) {
		/* Another thread may have waited for the same chunks and reported them. */
		mm_event_drop(c, MM_EVENT_KV_GRANTED, kv->granted - MM_MAX(granted, kv->reported));
		kv->reported = kv->granted;
	} else if (r == kv->denied_error)
		mm_event_drop(c, MM_EVENT_KV_DENIED, 1);
	mm_client_lock_give(&c->lock);
	return r;
}

struct demand {
	bool is_met;        /* already */
	bool send, in_step; /* mmd does not know it; a step is open */
	uint64_t granted;   /* chunks, so far */
};

static struct demand demand_set(struct mm_kv *kv, uint32_t chunks_total, uint32_t first)
{
	struct mm_client *c = kv->client;
	struct demand demand;

	mm_client_lock_take(&c->lock);
	demand.is_met = kv->n_usable >= chunks_total;
	/* A demand that is met is sent only if mmd knows a higher one. */
	demand.send = !demand.is_met || kv->wanted > chunks_total;
	demand.in_step = c->steps.open > 0;
	demand.granted = kv->granted;
	kv->wanted = chunks_total;
	kv->wanted_first = first;
	kv->denied_error = 0;
	mm_client_lock_give(&c->lock);
	return demand;
}

/* mmd takes no request: the connection has ended, for the reason that mmd gave, or mmd is slow. */
static int push_failed(struct mm_client *c, int r)
{
	int dead = mm_enter(c);

	return dead ? dead : mm_fail(c, r, "mmd takes no requests: %s", strerror(-r));
}

static int demand_check(const struct mm_kv *kv, uint32_t chunks_total, uint32_t first)
{
	struct mm_client *c = kv->client;

	if (chunks_total > kv->chunks_max)
		return mm_fail(c, -EINVAL, "%u chunks: the arena has room for %u", chunks_total,
			       kv->chunks_max);
	if (first > kv->chunks_max)
		return mm_fail(c, -EINVAL, "from chunk %u on: the arena has %u", first,
			       kv->chunks_max);
	if (first && (!(c->welcome.features & MM_FEAT_COLD) || mm_group_is_joined(c)))
		return mm_fail(c, -EOPNOTSUPP, "no chunk comes first in a group, or with this mmd");
	return 0;
}

int mm_kv_want(struct mm_kv *kv, uint32_t chunks_total, uint64_t timeout_ns)
{
	return mm_kv_want_from(kv, chunks_total, 0, timeout_ns);
}

int mm_kv_want_from(struct mm_kv *kv, uint32_t chunks_total, uint32_t first, uint64_t timeout_ns)
{
	struct mm_client *c = kv->client;
	struct demand demand;
	int r = mm_enter(c);

	if (!r)
		r = demand_check(kv, chunks_total, first);
	if (r)
		return r;
	demand = demand_set(kv, chunks_total, first);
	r = demand.send ? send_want(c, chunks_total, first) : 0;
	if (r)
		return push_failed(c, r);
	if (demand.is_met)
		return 0;
	if (!timeout_ns || demand.in_step)
		return mm_fail(c, -EAGAIN, "asked for %u chunks; watch the events", chunks_total);
	r = demand_wait(kv, chunks_total, demand.granted, mm_deadline_ns(timeout_ns));
	return r ? mm_fail(c, r, "%u chunks: %s", chunks_total, strerror(-r)) : 0;
}

uint32_t mm_kv_usable(struct mm_kv *kv, uint64_t *ret_bitmap, size_t words)
{
	struct mm_client *c = kv->client;
	size_t have = mm_kv_words(kv->chunks_max);
	uint32_t n;

	mm_client_lock_take(&c->lock);
	n = kv->n_usable;
	for (size_t i = 0; ret_bitmap && i < words; i++)
		ret_bitmap[i] = i < have ? kv->usable[i] : 0;
	mm_client_lock_give(&c->lock);
	return n;
}

/* Marks @chunks as no longer usable, all or none. Return: 0; -ENOENT, -EBUSY with *ret_chunk. */
static int chunks_mark(struct mm_kv *kv, const uint32_t *chunks, uint32_t n, uint32_t *ret_chunk)
	MM_REQUIRES(mm_client_lock)
{
	uint32_t i;
	int r = 0;

	for (i = 0; i < n && !r; i++) {
		*ret_chunk = chunks[i];
		/* The engine heard of it from another rank, before mmd told this one. */
		if (chunks[i] < kv->chunks_max && bit_get(kv->pending, chunks[i])) {
			bit_flip(kv->pending, chunks[i]);
			bit_flip(kv->usable, chunks[i]);
			kv->n_usable++;
		}
		/* One that is named twice is not usable any more. */
		if (!mm_kv_is_usable(kv, chunks[i]))
			r = -ENOENT;
		else if (mm_swap_names(kv->client->swap, chunks[i]) ||
			 mm_cold_names(kv->client->cold, chunks[i]))
			r = -EBUSY;
		else
			bit_flip(kv->usable, chunks[i]);
	}
	while (r && --i)
		bit_flip(kv->usable, chunks[i - 1]);
	return r;
}

/* A demand that is to be sent before chunks are released; chunks 0: none is. */
struct lowered {
	uint32_t chunks, first;
};

/*
 * Begins the release of @chunks. mmd lowers the demand by one with each chunk that is released. A
 * demand above the chunks held must first be lowered to them, or the chunks would be granted again.
 */
static int release_mark(struct mm_kv *kv, const uint32_t *chunks, uint32_t n,
			struct lowered *ret_lowered, uint32_t *ret_chunk)
{
	struct mm_client *c = kv->client;
	int r;

	mm_client_lock_take(&c->lock);
	r = chunks_mark(kv, chunks, n, ret_chunk);
	if (!r) {
		*ret_lowered = (struct lowered){ 0 };
		/* The demand of a group is what its ranks have left. */
		if (kv->wanted > kv->n_usable && !mm_group_is_joined(c))
			*ret_lowered = (struct lowered){ kv->n_usable, kv->wanted_first };
		kv->n_usable -= n;
		kv->released += n;
		generation_count(kv);
		kv->wanted = MM_MIN(kv->wanted, kv->n_usable);
		reclaim_settle(kv);
	}
	mm_client_lock_give(&c->lock);
	return r;
}

/* Undoes the count of @n releases that failed: mmd counts the chunks as held. */
static void release_failed(struct mm_kv *kv, uint32_t n)
{
	struct mm_client *c = kv->client;

	mm_client_lock_take(&c->lock);
	kv->released -= n;
	if (mm_kv_count_owed(kv))
		mm_event_push(c, &(struct mm_event){ .kind = MM_EVENT_KV_RECLAIM,
						     .deadline_ns = kv->reclaim.deadline_ns });
	mm_client_lock_give(&c->lock);
}

static int chunk_unmap(struct mm_kv *kv, uint32_t chunk)
{
	struct mm_client *c = kv->client;
	int r;

	MM_CAPTURE_RELAXED(c);
	mm_map_lock_take(&c->map_lock);
	r = chunk_apply(kv, chunk, NULL);
	mm_map_lock_give(&c->map_lock);
	return r ? mm_fail(c, -EIO, "chunk %u: the device does not unmap it", chunk) : 0;
}

/*
 * Unmaps @chunks and sends their releases, behind the demand @lowered. Goes on after a chunk that
 * the device does not unmap. Return: the first error; *ret_released counts the others.
 */
static int release_chunks(struct mm_kv *kv, const uint32_t *chunks, uint32_t n,
			  struct lowered lowered, uint32_t *ret_released)
{
	struct mm_client *c = kv->client;
	int link = lowered.chunks ? send_want(c, lowered.chunks, lowered.first) : 0, first = 0;

	*ret_released = 0;
	for (uint32_t i = 0; i < n; i++) {
		int r = chunk_unmap(kv, chunks[i]);

		first = first ? first : r;
		if (r || link)
			continue;
		link = send_release(c, chunks[i]);
		*ret_released += !link;
	}
	return link ? push_failed(c, link) : first;
}

int mm_kv_release_many(struct mm_kv *kv, const uint32_t *chunks, uint32_t n)
{
	struct mm_client *c = kv->client;
	struct lowered lowered;
	uint32_t chunk = 0, released;
	int r = mm_enter(c);

	if (r)
		return r;
	r = release_mark(kv, chunks, n, &lowered, &chunk);
	if (r)
		return mm_fail(c, r, "chunk %u is %s", chunk,
			       r == -EBUSY ? "being swapped, or in the window of cold blocks"
					   : "not usable, or named twice");
	r = release_chunks(kv, chunks, n, lowered, &released);
	if (released < n)
		release_failed(kv, n - released);
	return r;
}

int mm_kv_release(struct mm_kv *kv, uint32_t chunk)
{
	return mm_kv_release_many(kv, &chunk, 1);
}

uint32_t mm_kv_owed(struct mm_kv *kv, uint64_t *ret_deadline_ns)
{
	struct mm_client *c = kv->client;
	uint32_t n;

	if (mm_fork_is_child(c))
		return 0;
	mm_client_lock_take(&c->lock);
	n = mm_kv_count_owed(kv);
	if (ret_deadline_ns)
		*ret_deadline_ns = n ? kv->reclaim.deadline_ns : 0;
	mm_client_lock_give(&c->lock);
	return n;
}
