/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups - the acts by what they are about, each a table that ends with a name of NULL
 *
 * Concept:   One file each. A new act is a row in one of them, and a function where no other does
 *            it with another number or request.
 * Threading: constants.
 */
#pragma once

#include "tools/lab/hostile/act.h"

extern const struct mm_act mm_acts_rings[];     /* cursors, entries, regions */
extern const struct mm_act mm_acts_requests[];  /* each field of each request; foreign ids */
extern const struct mm_act mm_acts_hellos[];    /* before the welcome */
extern const struct mm_act mm_acts_memory[];    /* pages, acknowledgements, turns */
extern const struct mm_act mm_acts_fds[];       /* passed file descriptors */
extern const struct mm_act mm_acts_floods[];    /* as much as can be of what is allowed */
extern const struct mm_act mm_acts_loads[];     /* the channel to load */
extern const struct mm_act mm_acts_processes[]; /* stopped, traced, frozen, forked */
