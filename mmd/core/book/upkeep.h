/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upkeep - jobs that pages need by themselves
 *
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Each goes on as far as there is room for jobs. */
void mm_c_scrub_all(struct mm_core *c);
void mm_c_create_all(struct mm_core *c);
void mm_c_retry_quarantine(struct mm_core *c);
