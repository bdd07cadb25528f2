/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/decide_kept.h"

#include <errno.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "libclient/support/clock.h"
#include "mmd/core/image.h"

/* As in mmd: of the journal, and of the events that a successor would have to repeat. */
#define JOURNAL_BYTES (8u << 20)
#define REPLAY_NS     (20 * MM_NS_PER_MS)
#define IMAGE_PART    50 /* images take at most one part in so many of the time of events */

int mm_decide_kept_begin(struct mm_decide_kept *kept, const struct mm_core *core)
{
	*kept = (struct mm_decide_kept){ .room = mm_core_image_room(core) };
	kept->memory = malloc(JOURNAL_BYTES);
	kept->image = malloc(kept->room);
	if (!kept->memory || !kept->image)
		return -ENOMEM;
	mm_journal_create(kept->memory, JOURNAL_BYTES, &kept->journal);
	return 0;
}

void mm_decide_kept_done(struct mm_decide_kept *kept)
{
	free(kept->memory);
	free(kept->image);
	kept->memory = kept->image = NULL;
}

void mm_decide_kept_event(struct mm_decide_kept *kept, struct mm_core *core,
			  const struct mm_event *event)
{
	const struct mm_journal_record record = { .seq = kept->seq, .performed = kept->performed };
	struct mm_event_result result;

	mm_assert(mm_journal_append(&kept->journal, &record, event) == 0);
	kept->seq++;
	mm_core_event(core, event, &result);
}

void mm_decide_kept_image(struct mm_decide_kept *kept, const struct mm_core *core, uint64_t ns)
{
	const uint64_t each_ns = kept->images ? kept->image_ns / kept->images : 0;
	const uint64_t began = mm_now_ns();
	size_t bytes;

	kept->replay_ns += ns;
	if (kept->replay_ns < MM_MAX(REPLAY_NS, IMAGE_PART * each_ns) &&
	    mm_journal_used(&kept->journal) < JOURNAL_BYTES / 2)
		return;
	mm_assert(mm_core_image_save(core, kept->image, kept->room, &bytes) == 0);
	mm_journal_empty(&kept->journal);
	kept->image_ns += mm_now_ns() - began;
	kept->images++;
	kept->image_bytes = bytes;
	kept->replay_ns = 0;
}
