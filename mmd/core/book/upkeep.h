/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upkeep - jobs that pages need without any request: create, scrub, retry
 *
 * Concept:    Each function issues jobs as far as there is room for them.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Scrubs all pages that have lost their owner; quarantines those that are unfit. */
void mm_c_scrub_all(struct mm_core *c);
/* Creates pages that do not exist yet, in batches. */
void mm_c_create_all(struct mm_core *c);
/* Retries quarantined pages, a batch at a time. */
void mm_c_retry_quarantine(struct mm_core *c);
