/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/pool_kept.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/clock.h"
#include "mmd/core/image.h"
#include "mmd/shell/shell.h"

/* ---- writing ---- */

/*
 * The image counts from the moment when its half does. Records that it has already are passed over
 * by their numbers, if core dies before the journal is empty.
 */
void mm_pool_image_make(struct mm_pool *pool)
{
	struct mm_pool_kept *kept = pool->kept;
	uint32_t half = kept->image_valid == 1 ? 1 : 0;
	uint64_t began_ns = mm_now_ns();
	size_t bytes = 0;
	int r = mm_core_image_save(pool->core, mm_kept_image(&pool->shell->kept, pool->index, half),
				   MM_KEPT_IMAGE_BYTES, &bytes);

	mm_assert(r == 0);
	kept->image[half] = (struct mm_image_kept){ .bytes = bytes,
						    .performed = kept->performed,
						    .seq = kept->seq };
	mm_kept_publish(&kept->image_valid, half + 1);
	mm_journal_empty(&pool->journal);
	pool->replay_ns = 0;
	pool->image_ns = mm_now_ns() - began_ns;
}

int mm_pool_keep(struct mm_pool *pool)
{
	if (mm_core_image_room(pool->core) > MM_KEPT_IMAGE_BYTES)
		return -E2BIG;
	mm_journal_create(mm_kept_journal(&pool->shell->kept, pool->index), MM_KEPT_JOURNAL_BYTES,
			  &pool->journal);
	mm_pool_image_make(pool);
	return 0;
}

void mm_pool_record(struct mm_pool *pool, const struct mm_event *event,
		    const struct mm_event_source *source)
{
	struct mm_pool_kept *kept = pool->kept;
	struct mm_journal_record record = { .seq = kept->seq, .performed = kept->performed };

	if (!kept->image_valid)
		return; /* the core is being made */
	if (source) {
		record.place = source->place;
		record.position = source->position;
	}
	if (mm_journal_append(&pool->journal, &record, event) == MM_E_FULL) {
		mm_pool_image_make(pool);
		mm_assert(mm_journal_append(&pool->journal, &record, event) == 0);
	}
	mm_kept_publish(&kept->seq, record.seq + 1);
}

void mm_pool_keep_due(struct mm_pool *pool)
{
	uint64_t most_ns = MM_MIN(pool->image_ns * MM_POOL_IMAGE_PART, MM_POOL_REPLAY_MAX_NS);

	if (!pool->kept->image_valid)
		return;
	if (pool->replay_ns > MM_MAX(most_ns, MM_POOL_REPLAY_NS) ||
	    mm_journal_used(&pool->journal) > MM_KEPT_JOURNAL_BYTES / 2)
		mm_pool_image_make(pool);
}

/* ---- reading ---- */

static int journal_open(struct mm_pool *pool)
{
	return mm_journal_open(mm_kept_journal(&pool->shell->kept, pool->index),
			       MM_KEPT_JOURNAL_BYTES, &pool->journal);
}

void mm_pool_leave_out(struct mm_pool *pool)
{
	struct mm_book_head *head = &pool->shell->kept.front->head;
	struct mm_journal_record record = { 0 };
	struct mm_tenant_stats stats;
	struct mm_event event = { 0 };
	uint64_t at = 0;
	bool any = false;

	if (journal_open(pool) < 0)
		return;
	while (mm_journal_next(&pool->journal, &at, &record, &stats, &event) == 0)
		any = true;
	if (!any)
		return;
	mm_log(MM_LOG_ERROR, "event.left_out",
	       "device=%" PRIu64 " event=%s seq=%" PRIu64 " tenant=%u actions=%" PRIu64,
	       pool->ordinal, mm_event_name(event.kind), record.seq, event.tenant,
	       pool->kept->performed - record.performed);
	/* If a core dies here, the next ones may have to die of the event twice again. */
	if (mm_event_is_of_tenant(event.kind))
		mm_kept_publish(&head->unfit, event.tenant + 1);
	mm_kept_publish(&head->deaths, 0u);
	if (pool->kept->performed == record.performed)
		(void)mm_journal_skip(&pool->journal, record.seq);
	else
		pool->kept->performed++;
}

static int journal_repeat(struct mm_pool *pool, const struct mm_image_kept *image)
{
	struct mm_journal_replay *last = &pool->last;
	int r = journal_open(pool);

	if (r < 0)
		return r;
	*last = (struct mm_journal_replay){ .seq = image->seq,
					    .taken = image->performed,
					    .performed = pool->kept->performed };
	r = mm_journal_replay(&pool->journal, pool->core, last);
	/* The number of the last event may not have been stored any more. */
	if (r == 0)
		pool->kept->seq = last->seq;
	return r;
}

int mm_pool_restore(struct mm_pool *pool, const struct mm_core_opts *opts, char *err,
		    size_t err_bytes)
{
	const struct mm_pool_kept *kept = pool->kept;
	const struct mm_image_kept *image;
	int r;

	if (!kept->image_valid || kept->image_valid > MM_KEPT_IMAGES) {
		snprintf(err, err_bytes, "there is no image of its core");
		return -EBADMSG;
	}
	image = &kept->image[kept->image_valid - 1];
	r = image->bytes > MM_KEPT_IMAGE_BYTES ? -EBADMSG : 0;
	if (r == 0)
		r = mm_core_image_load(
			opts, mm_kept_image(&pool->shell->kept, pool->index, kept->image_valid - 1),
			image->bytes, &pool->core, err, err_bytes);
	if (r < 0)
		return r;
	r = journal_repeat(pool, image);
	if (r < 0) {
		snprintf(err, err_bytes, "its journal does not continue the image of its core");
		pool->core = mm_core_destroy(pool->core);
	}
	return r;
}
