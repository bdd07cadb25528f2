/* SPDX-License-Identifier: Apache-2.0 */
/*
 * knobs - the controller's knobs, by name
 *
 * Concept:    One table: what a knob is called, which field of struct mm_core_opts it is, in which
 *             unit its value is given, its range, its default, what it does. mmd/config/tune.h
 *             reads KEY=VALUE,KEY=VALUE by this table; status shows it; --help prints it. A field
 *             that is 0 is not set. Each decision that goes beyond the papers has a knob that
 *             switches it off, so that its worth can be measured.
 * Ownership:  pure functions over the caller's storage.
 * Threading:  any.
 */
#pragma once

#include "mmd/core/core.h"

/* Defaults. */
#define MM_LEND_MAX_PERMILLE  700
#define MM_LINK_PERMILLE      900
#define MM_SLOW_PERMILLE      50
#define MM_WAKE_PERMILLE      1000
#define MM_TURN_COST_PERMILLE 100
#define MM_IDLE_NS            (100 * MM_NS_PER_MS)
#define MM_SILENT_IDLES       20 /* times idle_ns without a step: then claims of work do not count */
#define MM_DWELL_NS           (200 * MM_NS_PER_MS)
#define MM_CHANGE_NS          (50 * MM_NS_PER_MS)
#define MM_AHEAD_NS           (300 * MM_NS_PER_MS)
#define MM_RECLAIM_NS         (200 * MM_NS_PER_MS)
#define MM_REVOKE_NS          (2 * MM_NS_PER_S)
#define MM_ASK_NS             (10 * MM_NS_PER_S)
#define MM_STOP_NS            (60 * MM_NS_PER_S)
#define MM_KILL_WINDOW_NS     (60 * MM_NS_PER_S)
#define MM_KILL_MAX           8

#define MM_KNOBS_MAX 64

struct mm_knob {
	const char *name;
	const char *arg;          /* what --help calls the value */
	const char *help;         /* half a line */
	const char *const *names; /* of a choice; the value is the index + 1. NULL: a number */
	size_t offset, bytes;     /* of the field: 4 or 8 bytes */
	uint64_t unit;            /* the field counts so many per 1 that is said */
	uint64_t min, max;        /* of what is said */
	uint64_t fallback;        /* likewise: what holds when nothing is said */
};

/* By index; NULL: there are no more. */
const struct mm_knob *mm_knob_at(uint32_t index);

/* What @opts say, in the knob's unit; of a choice: index + 1. 0: not said. */
uint64_t mm_knob_value(const struct mm_knob *knob, const struct mm_core_opts *opts);

/* The name of the choice that @opts say; NULL: not said, or a number. */
const char *mm_knob_choice(const struct mm_knob *knob, const struct mm_core_opts *opts);

/* @value is in the knob's unit and within its range; of a choice: index + 1. */
void mm_knob_set(const struct mm_knob *knob, uint64_t value, struct mm_core_opts *opts);

/* Fields that were not said get their defaults. */
void mm_tune_defaults(struct mm_core_opts *opts);
