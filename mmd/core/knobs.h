/* SPDX-License-Identifier: Apache-2.0 */
/*
 * knobs - the controller's knobs, by name
 *
 * Concept:    One table has each knob's name, its field of struct mm_core_opts, the unit in which
 *             its value is given, its range, its default and its help. mmd/config/tune.h reads
 *             KEY=VALUE,KEY=VALUE by this table; status and --help print it. A field that is 0 is
 *             not set. Each decision that goes beyond the papers has a knob that switches it off,
 *             so that its effect can be measured.
 * Ownership:  pure functions over the caller's storage.
 * Threading:  any.
 */
#pragma once

#include "mmd/core/core.h"

/* After so many times idle_ns without a step, a tenant's claims of work do not count. */
#define MM_SILENT_IDLES 20

/* Defaults. */
#define MM_TURN_COST_PERMILLE 25
#define MM_IDLE_NS            (100 * MM_NS_PER_MS)
#define MM_DWELL_NS           (200 * MM_NS_PER_MS)
#define MM_COLD_MAX_PERMILLE  4000
#define MM_CHANGE_NS          (50 * MM_NS_PER_MS)
#define MM_RECLAIM_NS         (200 * MM_NS_PER_MS)
#define MM_REVOKE_NS          (2 * MM_NS_PER_S)
#define MM_RECLAIM_TIMEOUT_NS (10 * MM_NS_PER_S)
#define MM_STOP_NS            (60 * MM_NS_PER_S)
#define MM_KILL_WINDOW_NS     (60 * MM_NS_PER_S)
#define MM_KILL_MAX           8

/* Properties of a device that nobody has measured (Documentation/controller.md, Knobs). */
#define MM_LINK_SLOWS_PERMILLE 160
#define MM_RHO_PERMILLE        500

#define MM_KNOBS_MAX 64

struct mm_knob {
	const char *name;
	const char *arg;          /* what --help calls the value */
	const char *help;         /* for --help, half a line */
	const char *const *names; /* of a choice, whose value is the index + 1; NULL: a number */
	size_t offset, bytes;     /* of the field: 4 or 8 bytes */
	uint64_t unit;            /* the field is the value times this */
	uint64_t min, max;        /* of the value */
	uint64_t fallback;        /* the value of a field that is not set */
	bool fixed;               /* it cannot change while the core lives (mm_core_tune()) */
};

/* Returns the knob of an index; NULL: there are no more. */
const struct mm_knob *mm_knob_at(uint32_t index);

/* Returns the value in @opts, in the knob's unit; of a choice: index + 1. 0: not set. */
uint64_t mm_knob_value(const struct mm_knob *knob, const struct mm_core_opts *opts);

/* Returns the name of the choice in @opts; NULL: not set, or the knob is a number. */
const char *mm_knob_choice(const struct mm_knob *knob, const struct mm_core_opts *opts);

/*
 * Sets the knob in @opts. @value: in the knob's unit and within its range; of a choice: index + 1.
 */
void mm_knob_set(const struct mm_knob *knob, uint64_t value, struct mm_core_opts *opts);

/* Sets the knobs that are not set to their defaults. */
void mm_knobs_set_defaults(struct mm_core_opts *opts);
