/* SPDX-License-Identifier: Apache-2.0 */
/* What the link asks of the disk, and in which order. */

#include "libclient/base/base.h"
#include "mmd/xfer/link.h"

static bool wants(const struct mm_xtransfer *transfer)
{
	return mm_xtransfer_on_disk(transfer) && transfer->staged_bytes < transfer->bytes;
}

static uint64_t not_issued(const struct mm_xtransfer *transfer)
{
	return transfer->staged_bytes > transfer->issued_bytes
		       ? transfer->staged_bytes - transfer->issued_bytes
		       : 0;
}

/*
 * The first of @flow that has bytes to ask for; @ret_bytes: what @flow will have been served when
 * all that it asked for so far is issued.
 */
static struct mm_xtransfer *first_wanting(struct mm_xflow *flow, uint64_t *ret_bytes)
{
	struct mm_xtransfer *transfer, *first = NULL;

	*ret_bytes = flow->served_bytes;
	TAILQ_FOREACH(transfer, &flow->queue, entry)
	{
		*ret_bytes += not_issued(transfer);
		if (!first && wants(transfer))
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
			transfer = first_wanting(flow, &served);
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
