/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ladder - what becomes of those that do not give back what they must
 *
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Asks for what accounts have beyond what they may, and acts on deadlines that passed. */
void mm_c_ladder(struct mm_core *c);
uint64_t mm_c_ladder_deadline(const struct mm_core *c);
/* All deadlines start again: it was us. */
void mm_c_ladder_restart(struct mm_core *c);
