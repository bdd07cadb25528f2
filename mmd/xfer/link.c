/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/link.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mmd/xfer/ahead.h"
#include "mmd/xfer/cold.h"

static int lane_init(struct mm_xlane *lane, const struct mm_xdev *dev, CUstream stream)
{
	lane->stream = stream;
	for (size_t i = 0; i < MM_XLINK_CHUNKS; i++) {
		int r = mm_xdev_result(
			dev, "cuEventCreate",
			dev->gpu.cuEventCreate(&lane->chunk[i].done, CU_EVENT_DISABLE_TIMING));

		if (r < 0)
			return r;
	}
	return 0;
}

int mm_xlink_init(struct mm_xlink *link, struct mm_xpool *pool, struct mm_xstores *stores,
		  uint64_t chunk_bytes)
{
	const struct mm_xdev *dev = pool->dev;
	int r;

	*link = (struct mm_xlink){ .pool = pool, .stores = stores, .chunk_bytes = chunk_bytes };
	TAILQ_INIT(&link->flows);
	r = lane_init(&link->lane[MM_XLANE_IN], dev, dev->copy);
	return r < 0 ? r : lane_init(&link->lane[MM_XLANE_OUT], dev, dev->copy_out);
}

static void lane_done(struct mm_xlane *lane, const struct mm_xdev *dev)
{
	for (size_t i = 0; i < MM_XLINK_CHUNKS; i++)
		if (lane->chunk[i].done)
			(void)dev->gpu.cuEventDestroy(lane->chunk[i].done);
}

void mm_xlink_done(struct mm_xlink *link)
{
	for (size_t i = 0; link->pool && i < MM_XLANES; i++)
		lane_done(&link->lane[i], link->pool->dev);
	*link = (struct mm_xlink){ 0 };
}

void mm_xlink_join(struct mm_xlink *link, struct mm_xflow *flow, uint64_t weight)
{
	flow->weight = weight;
	for (size_t i = 0; i < MM_XLANES; i++) {
		flow->served_bytes[i] = 0;
		TAILQ_INIT(&flow->queue[i]);
	}
	TAILQ_INSERT_TAIL(&link->flows, flow, entry);
}

void mm_xlink_leave(struct mm_xlink *link, struct mm_xflow *flow)
{
	for (size_t i = 0; i < MM_XLANES; i++)
		mm_assert(TAILQ_EMPTY(&flow->queue[i]));
	TAILQ_REMOVE(&link->flows, flow, entry);
}

static struct mm_xqueue *transfer_queue(const struct mm_xtransfer *transfer)
{
	return &transfer->flow->queue[mm_xtransfer_lane(transfer)];
}

/* From the end, where all that are due at once belong: core's jobs are many. */
static void transfer_enqueue(struct mm_xtransfer *transfer)
{
	struct mm_xqueue *queue = transfer_queue(transfer);
	struct mm_xtransfer *before;

	TAILQ_FOREACH_REVERSE(before, queue, mm_xqueue, entry)
	if (before->due <= transfer->due)
		break;
	if (before)
		TAILQ_INSERT_AFTER(queue, before, transfer, entry);
	else
		TAILQ_INSERT_HEAD(queue, transfer, entry);
}

void mm_xlink_start(struct mm_xlink *link, struct mm_xflow *flow, struct mm_xtransfer *transfer)
{
	const enum mm_xlane_id lane = mm_xtransfer_lane(transfer);

	/* A flow that was idle starts level with the flow that was served last. */
	if (TAILQ_EMPTY(&flow->queue[lane]))
		flow->served_bytes[lane] =
			MM_MAX(flow->served_bytes[lane], link->lane[lane].virtual_bytes);
	transfer->flow = flow;
	transfer->issued_bytes = 0;
	transfer->staged_bytes = 0;
	TAILQ_INIT(&transfer->staged);
	transfer->in_flight = 0;
	transfer->result = 0;
	transfer->queued = true;
	transfer_enqueue(transfer);
}

void mm_xtransfer_set_due(struct mm_xtransfer *transfer, uint64_t due)
{
	if (transfer->queued)
		TAILQ_REMOVE(transfer_queue(transfer), transfer, entry);
	transfer->due = due;
	if (transfer->queued)
		transfer_enqueue(transfer);
}

static void transfer_unqueue(struct mm_xlink *link, struct mm_xtransfer *transfer)
{
	mm_xstage_drop(link->stores->stage, &transfer->staged);
	if (transfer->queued)
		TAILQ_REMOVE(transfer_queue(transfer), transfer, entry);
	transfer->queued = false;
}

/* Calls landed() if nothing of @transfer is left to issue and nothing is on the device. */
static void link_settle(struct mm_xtransfer *transfer)
{
	if (!transfer->queued && transfer->in_flight == 0)
		transfer->landed(transfer, transfer->result);
}

void mm_xlink_cancel(struct mm_xlink *link, struct mm_xtransfer *transfer)
{
	transfer->result = -ECANCELED;
	transfer_unqueue(link, transfer);
	link_settle(transfer);
}

static const void *buffer_source(const struct mm_xbuf *buffer, uint64_t at, uint64_t *ret_bytes)
{
	uint64_t into = at - buffer->at;

	*ret_bytes = buffer->bytes - into;
	return buffer->base + buffer->skew + into;
}

/*
 * The address that byte @at of @transfer is read from; *ret_bytes: how many bytes from there are in
 * the same registration or buffer.
 */
static const void *transfer_source(struct mm_xlink *link, const struct mm_xtransfer *transfer,
				   const struct mm_xbuf *buffer, uint64_t at, uint64_t *ret_bytes)
{
	if (buffer)
		return buffer_source(buffer, at, ret_bytes);
	if (!transfer->host)
		return mm_xstore_at(link->stores, transfer->store, transfer->store_offset + at,
				    ret_bytes);
	*ret_bytes = transfer->bytes - at;
	return transfer->host + at;
}

/*
 * Makes one driver call for the bytes up to the end of the page, registration, chunk or transfer,
 * whichever comes first.
 */
static int transfer_issue_piece(struct mm_xlink *link, struct mm_xtransfer *transfer,
				const struct mm_xbuf *buffer, uint64_t bytes_max,
				uint64_t *ret_bytes)
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
	from = transfer_source(link, transfer, buffer, at, &readable);
	va = mm_xpool_va(pool, transfer->page[page_at / pool->page_bytes]) + in_page;
	bytes = MM_MIN(bytes, MM_MIN(readable, bytes_max));
	*ret_bytes = bytes;
	if (transfer->to_host)
		return mm_xdev_result(pool->dev, "cuMemcpyDtoHAsync",
				      gpu->cuMemcpyDtoHAsync(transfer->host + at, va, bytes,
							     pool->dev->copy_out));
	return mm_xdev_result(pool->dev, "cuMemcpyHtoDAsync",
			      gpu->cuMemcpyHtoDAsync(va, from, bytes, pool->dev->copy));
}

static int transfer_issue_tail(struct mm_xlink *link, const struct mm_xtransfer *transfer)
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

/* Issues a buffer's bytes as one chunk: mm_xlink_read_ahead() requests them in the same size. */
static int transfer_issue_chunk(struct mm_xlink *link, struct mm_xtransfer *transfer,
				const struct mm_xbuf *buffer, uint64_t *ret_bytes)
{
	const uint64_t chunk_bytes =
		transfer->rows ? mm_xrows_chunk_bytes(transfer->rows, link->chunk_bytes)
			       : link->chunk_bytes;
	uint64_t done = 0;

	*ret_bytes = 0;
	if (buffer && buffer->result < 0)
		return MM_XLINK_UNREADABLE;
	while (done < chunk_bytes && transfer->issued_bytes < transfer->bytes) {
		uint64_t bytes = 0;
		int r = transfer->rows ? mm_xrows_issue(transfer->rows, chunk_bytes - done, &bytes)
				       : transfer_issue_piece(link, transfer, buffer,
							      chunk_bytes - done, &bytes);

		if (r < 0)
			return r;
		done += bytes;
		transfer->issued_bytes += bytes;
		*ret_bytes = done;
	}
	if (transfer->issued_bytes < transfer->bytes)
		return 0;
	return transfer_issue_tail(link, transfer);
}

static void chunk_free_buffer(struct mm_xlink *link, struct mm_xchunk *chunk)
{
	if (chunk->buffer)
		mm_xstage_release(link->stores->stage, chunk->buffer);
	chunk->buffer = NULL;
}

/* Issues the next chunk of @transfer and marks its end with an event. */
static void link_advance(struct mm_xlink *link, struct mm_xtransfer *transfer)
{
	const enum mm_xlane_id at = mm_xtransfer_lane(transfer);
	struct mm_xlane *lane = &link->lane[at];
	struct mm_xchunk *chunk = &lane->chunk[lane->tail % MM_XLINK_CHUNKS];
	struct mm_xdev *dev = link->pool->dev;
	int r;

	chunk->transfer = transfer;
	chunk->buffer = TAILQ_EMPTY(&transfer->staged) ? NULL : mm_xstage_take(&transfer->staged);
	/* Bytes that were read from disk have no cause that has a device time. */
	mm_xpace_act(&dev->pace, chunk->buffer ? 0 : transfer->caused_ns);
	r = transfer_issue_chunk(link, transfer, chunk->buffer, &chunk->bytes);
	if (r < 0)
		transfer->result = r;
	if (r < 0 || transfer->issued_bytes == transfer->bytes)
		transfer_unqueue(link, transfer);
	/*
	 * Recorded after a failure, too: what was issued before must land before landed() is
	 * called.
	 */
	r = mm_xdev_result(dev, "cuEventRecord", dev->gpu.cuEventRecord(chunk->done, lane->stream));
	mm_xpace_act(&dev->pace, 0);
	transfer->flow->served_bytes[at] += MM_MAX(chunk->bytes / transfer->flow->weight, 1);
	if (r < 0) {
		mm_xdev_settle(dev, lane->stream);
		chunk_free_buffer(link, chunk);
		link_settle(transfer);
		return;
	}
	transfer->in_flight++;
	lane->tail++;
	lane->in_flight_bytes += chunk->bytes;
}

/*
 * The first transfer whose bytes are there: a slow disk delays only transfers that read from it.
 */
static struct mm_xtransfer *queue_first_ready(const struct mm_xqueue *queue)
{
	struct mm_xtransfer *transfer;

	TAILQ_FOREACH(transfer, queue, entry)
	if (mm_xtransfer_ready(transfer))
		break;
	return transfer;
}

/* The transfer to serve next: the first ready one of the flow that was served least. */
static struct mm_xtransfer *lane_pick_transfer(struct mm_xlink *link, enum mm_xlane_id lane)
{
	struct mm_xtransfer *transfer, *best = NULL;
	struct mm_xflow *flow;

	TAILQ_FOREACH(flow, &link->flows, entry)
	{
		if (best && flow->served_bytes[lane] >= best->flow->served_bytes[lane])
			continue;
		transfer = queue_first_ready(&flow->queue[lane]);
		best = transfer ? transfer : best;
	}
	if (best)
		link->lane[lane].virtual_bytes = best->flow->served_bytes[lane];
	return best;
}

static bool lane_reap(struct mm_xlink *link, struct mm_xlane *lane)
{
	bool any = false;

	while (lane->head != lane->tail) {
		struct mm_xchunk *chunk = &lane->chunk[lane->head % MM_XLINK_CHUNKS];
		struct mm_xtransfer *transfer = chunk->transfer;
		struct mm_xdev *dev = link->pool->dev;

		if (!mm_xdev_has_happened(dev, chunk->done, lane->stream))
			break;
		transfer->landed_ns = mm_xpace_happened(&dev->pace, chunk->done);
		lane->head++;
		lane->in_flight_bytes -= chunk->bytes;
		transfer->in_flight--;
		chunk_free_buffer(link, chunk);
		any = true;
		link_settle(transfer);
	}
	return any;
}

static void lane_fill(struct mm_xlink *link, enum mm_xlane_id id)
{
	const struct mm_xlane *lane = &link->lane[id];
	struct mm_xtransfer *transfer;

	while (lane->tail - lane->head < MM_XLINK_CHUNKS &&
	       lane->in_flight_bytes < MM_XLINK_DEPTH * link->chunk_bytes &&
	       (transfer = lane_pick_transfer(link, id)))
		link_advance(link, transfer);
}

bool mm_xlink_run(struct mm_xlink *link)
{
	bool any = lane_reap(link, &link->lane[MM_XLANE_IN]);

	any |= lane_reap(link, &link->lane[MM_XLANE_OUT]);
	if (mm_xstage_run(link->stores->stage))
		any = true;
	lane_fill(link, MM_XLANE_IN);
	lane_fill(link, MM_XLANE_OUT);
	mm_xlink_read_ahead(link);
	return any;
}
