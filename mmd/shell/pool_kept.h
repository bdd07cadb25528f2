/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_kept - how a pool's core outlives the process
 *
 * Concept:   An image of the core, and a journal of the events since: whoever loads the one and
 *            repeats the other has the same core (mmd/core/image.h, mmd/journal). An event is
 *            written down before it happens. How many actions were performed is counted, so that
 *            those that the repetition takes out again are dropped up to there. The next one may
 *            have been performed, or not, and is done again.
 * Images:    There are two halves, of which one counts. Another image is made, into the other half,
 *            when the journal is half full or repeating it would take MM_POOL_REPLAY_NS.
 * Threading: core's thread.
 */
#pragma once

#include "mmd/shell/actions.h"

struct mm_pool;

/*
 * A repetition must not take longer; tenants wait for it. Where images are large it may take up to
 * the second time, so that making them takes one part of MM_POOL_IMAGE_PART of core's work.
 */
#define MM_POOL_REPLAY_NS     (20 * MM_NS_PER_MS)
#define MM_POOL_REPLAY_MAX_NS (100 * MM_NS_PER_MS)
#define MM_POOL_IMAGE_PART    50

/* Makes the first image of a core that was created. Return: 0; -E2BIG it may grow too large. */
int mm_pool_keep(struct mm_pool *pool);

/* Makes an image of the core as it is between two events: nothing has to be repeated after it. */
void mm_pool_image_make(struct mm_pool *pool);

/* Writes an event down; the core's queue is empty. */
void mm_pool_record(struct mm_pool *pool, const struct mm_event *event,
		    const struct mm_event_source *source);

/* Makes another image when it is due; all that the last event was to cause has been done. */
void mm_pool_keep_due(struct mm_pool *pool);

/*
 * Leaves out what a core has died of: the last event in the journal, if none of its actions was
 * performed, else the action that was being performed. The head of the book has the tenant that is
 * concerned then, if there is one.
 */
void mm_pool_leave_out(struct mm_pool *pool);

/**
 * mm_pool_restore() - make the core that a process which died has left
 * @pool:      without a core; its device is known
 * @opts:      as for mm_core_create()
 * @err:       written on failure: a sentence
 * @err_bytes: of @err
 *
 * Actions that were not performed are left in the core's queue. Return: 0; negative errno.
 */
int mm_pool_restore(struct mm_pool *pool, const struct mm_core_opts *opts, char *err,
		    size_t err_bytes);
