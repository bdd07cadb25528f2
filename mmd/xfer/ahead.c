/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/ahead.h"

#include "libclient/base/base.h"

static bool transfer_can_read_ahead(const struct mm_xtransfer *transfer)
{
	return mm_xtransfer_on_disk(transfer) && transfer->staged_bytes < transfer->bytes;
}

static uint64_t transfer_bytes_not_issued(const struct mm_xtransfer *transfer)
{
	return transfer->staged_bytes > transfer->issued_bytes
		       ? transfer->staged_bytes - transfer->issued_bytes
		       : 0;
}

/*
 * The first transfer of @flow that has bytes to request; @ret_bytes: the bytes that @flow will have
 * been served when all that it has requested is issued.
 */
static struct mm_xtransfer *flow_first_to_read(struct mm_xflow *flow, uint64_t *ret_bytes)
{
	struct mm_xtransfer *transfer, *first = NULL;

	*ret_bytes = flow->served_bytes[MM_XLANE_IN];
	TAILQ_FOREACH(transfer, &flow->queue[MM_XLANE_IN], entry)
	{
		*ret_bytes += transfer_bytes_not_issued(transfer) / flow->weight;
		if (!first && transfer_can_read_ahead(transfer))
			first = transfer;
	}
	return first;
}

void mm_xlink_read_ahead(struct mm_xlink *link)
{
	struct mm_xstage *stage = link->stores->stage;

	while (mm_xstage_room(stage)) {
		struct mm_xtransfer *transfer, *best = NULL;
		uint64_t served, least = 0, bytes;
		struct mm_xflow *flow;

		TAILQ_FOREACH(flow, &link->flows, entry)
		{
			transfer = flow_first_to_read(flow, &served);
			if (transfer && (!best || served < least)) {
				best = transfer;
				least = served;
			}
		}
		if (!best)
			break;
		bytes = MM_MIN(link->chunk_bytes, best->bytes - best->staged_bytes);
		mm_xstage_read(stage, &best->staged, best->store,
			       best->store_offset + best->staged_bytes, bytes, best->staged_bytes);
		best->staged_bytes += bytes;
	}
	mm_xreads_submit(&stage->reads);
}
