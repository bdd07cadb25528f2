/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health - what was in use when the device had a memory error
 *
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Whatever is in use now. */
void mm_c_suspect(struct mm_core *c);
/* It has done so many steps. */
void mm_c_acquit(struct mm_core *c, struct mm_c_tenant *t, uint64_t steps);
void mm_c_quarantine_suspect(struct mm_core *c, uint32_t page);
