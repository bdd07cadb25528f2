/* SPDX-License-Identifier: Apache-2.0 */
/*
 * described - what keeper keeps when it becomes another build, field by field
 *
 * Concept:    The tables of struct mm_keeper, and of a held fd (mmd/fields). Numbers of fds and
 *             processes stay what they are, since the process does. What a keeper makes anew, or
 *             gets from its configuration, is named and not saved. Whoever adds a field to one of
 *             these structs adds it here, as MM_OPTIONAL() if it may be 0 in a keeper that was one
 *             of an older build.
 * Ownership:  constant data.
 * Threading:  any.
 */
#pragma once

#include "mmd/fields/fields.h"

extern const struct mm_fields mm_keeper_fields;
extern const struct mm_fields mm_fdtab_entry_fields;

/* All other tables, for tests. */
extern const struct mm_fields mm_held_name_fields;
extern const struct mm_fields mm_place_fields;
extern const struct mm_fields mm_relay_fields;
extern const struct mm_fields mm_keeper_kchan_fields;
extern const struct mm_fields mm_closer_fields;
extern const struct mm_fields mm_keeper_core_fields;
extern const struct mm_fields mm_upgrade_fields;
extern const struct mm_fields mm_devlock_fields;
extern const struct mm_fields mm_keeper_xfer_fields;
extern const struct mm_fields mm_keeper_helper_fields;
