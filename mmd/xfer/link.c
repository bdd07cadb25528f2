/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/link.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"

int mm_xlink_init(struct mm_xlink *link, struct mm_xpool *pool, struct mm_xstores *stores,
		  uint64_t chunk_bytes)
{
	const struct mm_gpu_api *gpu = &pool->dev->gpu;

	*link = (struct mm_xlink){ .pool = pool, .stores = stores, .chunk_bytes = chunk_bytes };
	TAILQ_INIT(&link->flows);
	for (size_t i = 0; i < MM_XLINK_CHUNKS; i++) {
		int rc = mm_xdev_result(
			pool->dev, "cuEventCreate",
			gpu->cuEventCreate(&link->chunk[i].done, CU_EVENT_DISABLE_TIMING));

		if (rc < 0)
			return rc;
	}
	return 0;
}

void mm_xlink_done(struct mm_xlink *link)
{
	for (size_t i = 0; i < MM_XLINK_CHUNKS; i++)
		if (link->chunk[i].done)
			(void)link->pool->dev->gpu.cuEventDestroy(link->chunk[i].done);
	*link = (struct mm_xlink){ 0 };
}

void mm_xlink_join(struct mm_xlink *link, struct mm_xflow *flow)
{
	flow->served_bytes = 0;
	TAILQ_INIT(&flow->queue);
	TAILQ_INSERT_TAIL(&link->flows, flow, entry);
}

void mm_xlink_leave(struct mm_xlink *link, struct mm_xflow *flow)
{
	mm_assert(TAILQ_EMPTY(&flow->queue));
	TAILQ_REMOVE(&link->flows, flow, entry);
}

void mm_xlink_start(struct mm_xlink *link, struct mm_xflow *flow, struct mm_xtransfer *transfer)
{
	/* Idle until now: level with whoever is served at present. */
	if (TAILQ_EMPTY(&flow->queue))
		flow->served_bytes = MM_MAX(flow->served_bytes, link->virtual_bytes);
	transfer->flow = flow;
	transfer->issued_bytes = 0;
	transfer->staged_bytes = 0;
	TAILQ_INIT(&transfer->staged);
	transfer->in_flight = 0;
	transfer->result = 0;
	transfer->queued = true;
	TAILQ_INSERT_TAIL(&flow->queue, transfer, entry);
}

static void unqueue(struct mm_xlink *link, struct mm_xtransfer *transfer)
{
	mm_xstage_drop(link->stores->stage, &transfer->staged);
	if (transfer->queued)
		TAILQ_REMOVE(&transfer->flow->queue, transfer, entry);
	transfer->queued = false;
}

/* Nothing more to issue and nothing on the device: the transfer is over. */
static void settle(struct mm_xtransfer *transfer)
{
	if (!transfer->queued && transfer->in_flight == 0)
		transfer->landed(transfer, transfer->result);
}

void mm_xlink_cancel(struct mm_xlink *link, struct mm_xtransfer *transfer)
{
	transfer->result = -ECANCELED;
	unqueue(link, transfer);
	settle(transfer);
}

static const void *source_in(const struct mm_xbuf *buffer, uint64_t at, uint64_t *ret_bytes)
{
	uint64_t into = at - buffer->at;

	*ret_bytes = buffer->bytes - into;
	return buffer->base + buffer->skew + into;
}

/*
 * Where the transfer's byte @at is read from; *ret_bytes: how many more in the same registration.
 */
static const void *source(struct mm_xlink *link, const struct mm_xtransfer *transfer,
			  const struct mm_xbuf *buffer, uint64_t at, uint64_t *ret_bytes)
{
	if (buffer)
		return source_in(buffer, at, ret_bytes);
	if (!transfer->host)
		return mm_xstore_at(link->stores, transfer->store, transfer->store_offset + at,
				    ret_bytes);
	*ret_bytes = transfer->bytes - at;
	return transfer->host + at;
}

/* One driver call: up to the end of a page, of a registration, of the chunk, of the transfer. */
static int issue_piece(struct mm_xlink *link, struct mm_xtransfer *transfer,
		       const struct mm_xbuf *buffer, uint64_t bytes_max, uint64_t *ret_bytes)
{
	const struct mm_xpool *pool = link->pool;
	const struct mm_gpu_api *gpu = &pool->dev->gpu;
	uint64_t at = transfer->issued_bytes, page_at = transfer->page_offset + at;
	uint64_t in_page = page_at % pool->page_bytes;
	uint64_t bytes = MM_MIN(transfer->bytes - at, pool->page_bytes - in_page);
	CUdeviceptr va;
	uint64_t readable;
	const void *from;

	if (mm_fault("xfer.copy"))
		return -EIO;
	from = source(link, transfer, buffer, at, &readable);
	va = mm_xpool_va(pool, transfer->page[page_at / pool->page_bytes]) + in_page;
	bytes = MM_MIN(bytes, MM_MIN(readable, bytes_max));
	*ret_bytes = bytes;
	if (transfer->to_host)
		return mm_xdev_result(
			pool->dev, "cuMemcpyDtoHAsync",
			gpu->cuMemcpyDtoHAsync(transfer->host + at, va, bytes, pool->dev->copy));
	return mm_xdev_result(pool->dev, "cuMemcpyHtoDAsync",
			      gpu->cuMemcpyHtoDAsync(va, from, bytes, pool->dev->copy));
}

static int issue_tail(struct mm_xlink *link, const struct mm_xtransfer *transfer)
{
	const struct mm_xpool *pool = link->pool;
	uint64_t used = transfer->bytes % pool->page_bytes;
	uint64_t page = transfer->bytes / pool->page_bytes;

	if (!transfer->zero_tail || (used == 0 && transfer->bytes != 0))
		return 0;
	if (mm_fault("xfer.tail"))
		return -EIO;
	return mm_xdev_result(
		pool->dev, "cuMemsetD8Async",
		pool->dev->gpu.cuMemsetD8Async(mm_xpool_va(pool, transfer->page[page]) + used, 0,
					       pool->page_bytes - used, pool->dev->copy));
}

/* A buffer's bytes are a chunk: mm_xlink_read_ahead() asks for them by the same measure. */
static int issue_chunk(struct mm_xlink *link, struct mm_xtransfer *transfer,
		       const struct mm_xbuf *buffer, uint64_t *ret_bytes)
{
	uint64_t done = 0;

	*ret_bytes = 0;
	if (buffer && buffer->result < 0)
		return MM_XLINK_UNREADABLE;
	while (done < link->chunk_bytes && transfer->issued_bytes < transfer->bytes) {
		uint64_t bytes = 0;
		int rc = issue_piece(link, transfer, buffer, link->chunk_bytes - done, &bytes);

		if (rc < 0)
			return rc;
		done += bytes;
		transfer->issued_bytes += bytes;
		*ret_bytes = done;
	}
	if (transfer->issued_bytes < transfer->bytes)
		return 0;
	return issue_tail(link, transfer);
}

static void free_buffer(struct mm_xlink *link, struct mm_xchunk *chunk)
{
	if (chunk->buffer)
		mm_xstage_release(link->stores->stage, chunk->buffer);
	chunk->buffer = NULL;
}

/* Issue the next chunk of @transfer and mark its end with an event. */
static void advance(struct mm_xlink *link, struct mm_xtransfer *transfer)
{
	struct mm_xchunk *chunk = &link->chunk[link->tail % MM_XLINK_CHUNKS];
	struct mm_xdev *dev = link->pool->dev;
	int rc;

	chunk->transfer = transfer;
	chunk->buffer = TAILQ_EMPTY(&transfer->staged) ? NULL : mm_xstage_take(&transfer->staged);
	/* From a disk, and the zeros behind: when they are here. */
	mm_xpace_act(&dev->pace, chunk->buffer ? 0 : transfer->caused_ns);
	rc = issue_chunk(link, transfer, chunk->buffer, &chunk->bytes);
	if (rc < 0)
		transfer->result = rc;
	if (rc < 0 || transfer->issued_bytes == transfer->bytes)
		unqueue(link, transfer);
	/* Also after a failure: what was issued before it must land before anybody is told. */
	rc = mm_xdev_result(dev, "cuEventRecord", dev->gpu.cuEventRecord(chunk->done, dev->copy));
	mm_xpace_act(&dev->pace, 0);
	if (rc < 0) {
		transfer->result = rc;
		(void)dev->gpu.cuStreamSynchronize(dev->copy);
		free_buffer(link, chunk);
		unqueue(link, transfer);
		settle(transfer);
		return;
	}
	transfer->in_flight++;
	link->tail++;
	link->in_flight_bytes += chunk->bytes;
	transfer->flow->served_bytes += MM_MAX(chunk->bytes, 1);
}

/* The oldest whose bytes are there: a slow disk holds up nothing but what lies on it. */
static struct mm_xtransfer *oldest_ready(struct mm_xflow *flow)
{
	struct mm_xtransfer *transfer;

	TAILQ_FOREACH(transfer, &flow->queue, entry)
	if (mm_xtransfer_ready(transfer))
		break;
	return transfer;
}

/* The oldest transfer of the flow that was served least. */
static struct mm_xtransfer *pick(struct mm_xlink *link)
{
	struct mm_xtransfer *transfer, *best = NULL;
	struct mm_xflow *flow;

	TAILQ_FOREACH(flow, &link->flows, entry)
	{
		if (best && flow->served_bytes >= best->flow->served_bytes)
			continue;
		transfer = oldest_ready(flow);
		best = transfer ? transfer : best;
	}
	if (best)
		link->virtual_bytes = best->flow->served_bytes;
	return best;
}

static bool reap(struct mm_xlink *link)
{
	bool any = false;

	while (link->head != link->tail) {
		struct mm_xchunk *chunk = &link->chunk[link->head % MM_XLINK_CHUNKS];
		struct mm_xtransfer *transfer = chunk->transfer;
		int rc = mm_xdev_event(link->pool->dev, chunk->done);

		if (rc == -EBUSY)
			break;
		if (rc < 0 && !transfer->result)
			transfer->result = rc;
		transfer->landed_ns = mm_xpace_happened(&link->pool->dev->pace, chunk->done);
		link->head++;
		link->in_flight_bytes -= chunk->bytes;
		transfer->in_flight--;
		free_buffer(link, chunk);
		any = true;
		settle(transfer);
	}
	return any;
}

bool mm_xlink_run(struct mm_xlink *link)
{
	struct mm_xtransfer *transfer;
	bool any = reap(link);

	if (mm_xstage_run(link->stores->stage))
		any = true;
	while (link->tail - link->head < MM_XLINK_CHUNKS &&
	       link->in_flight_bytes < MM_XLINK_DEPTH * link->chunk_bytes &&
	       (transfer = pick(link)))
		advance(link, transfer);
	mm_xlink_read_ahead(link);
	return any;
}
