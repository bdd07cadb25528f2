/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lognames - all events that mmd logs, with what they mean
 *
 * Concept:   One table. Documentation/events.md is made from it, and a test compares both with each
 *            call of mm_log() in the tree: names, levels and keys. Who adds a call adds a row, and
 *            runs tests/unit/mmd/common/lognames.py --write.
 * Ownership: constant.
 * Threading: any.
 */
#pragma once

#include <stdbool.h>

struct mm_logname {
	const char *name;    /* noun.verb; NULL ends the table, which is sorted by it */
	const char *levels;  /* those with which it is logged */
	const char *keys;    /* all that a line of it may have; NULL: none */
	const char *meaning; /* what has happened: a sentence without its full stop */
	bool audited;        /* it goes into the audit log as well (mmd/shell/trail.h) */
};

extern const struct mm_logname mm_lognames[];

/* The row of a name; NULL: there is none. */
const struct mm_logname *mm_lognames_find(const char *name);
