/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide_kept - a journal and images beside the core that mmbench decide times
 *
 * Concept:    As mmd's shell keeps them (mmd/journal, mmd/core/image.h): each event is written down
 *             before it happens, each action is counted, and an image is made when repeating the
 *             events would take long. Images are timed by themselves.
 * Ownership:  mm_decide_kept_begin() allocates, mm_decide_kept_done() frees.
 * Threading:  one thread.
 */
#pragma once

#include "mmd/journal/journal.h"

struct mm_decide_kept {
	struct mm_journal journal;
	void *memory, *image;
	size_t room;
	uint64_t seq, performed;
	uint64_t replay_ns;        /* how long the events in the journal took */
	uint64_t images, image_ns; /* made so far, and how long they took in all */
	uint64_t image_bytes;      /* of the last one */
};

/* Return: 0; -ENOMEM. */
int mm_decide_kept_begin(struct mm_decide_kept *kept, const struct mm_core *core);
void mm_decide_kept_done(struct mm_decide_kept *kept);
/* Writes an event down, and lets it happen. */
void mm_decide_kept_event(struct mm_decide_kept *kept, struct mm_core *core,
			  const struct mm_event *event);
/* Makes an image if one is due, after an event that took @ns; no action is left. */
void mm_decide_kept_image(struct mm_decide_kept *kept, const struct mm_core *core, uint64_t ns);
