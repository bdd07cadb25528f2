/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounds - every number of a core that is an index or a count is within its table
 *
 * Concept:    A core that was loaded from an image may have any numbers. What follows an index is
 *             safe only after this, mm_core_check_sentence() included; whether the numbers agree
 *             with each other is the matter of that function.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/core.h"

/* Returns the bound that is exceeded; NULL: none is. Of tenants, only tables are attached yet. */
const char *mm_core_bounds(const struct mm_core *core);
