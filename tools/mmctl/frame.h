/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame - what `mmctl top` shows, as lines of text
 *
 * Concept:   A pure function of two answers of mmd's method "status" and of what the operator has
 *            chosen: pools as bars, a sentence whether mmd helps, a row for each tenant. The screen
 *            (top.c) and --once print the same lines.
 * Trust:     names come from tenants: whatever is not printable ASCII is escaped, and no line is
 *            longer than the screen.
 * Ownership: lines lie in the frame; JSON is borrowed.
 * Threading: one thread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define MMCTL_FRAME_LINES   256
#define MMCTL_FRAME_COLUMNS 256
#define MMCTL_FILTER_BYTES  32

enum mmctl_sort {
	MMCTL_SORT_KV,
	MMCTL_SORT_NAME,
	MMCTL_SORT_AWAY,
	MMCTL_SORT_STEP,
	MMCTL_SORT_STALL,
	MMCTL_SORT_WEIGHTS,
	MMCTL_SORTS
};

enum mmctl_line { MMCTL_LINE_PLAIN, MMCTL_LINE_TITLE, MMCTL_LINE_HEAD, MMCTL_LINE_WARN };

struct mmctl_frame_opts {
	size_t columns, lines; /* of the screen; lines 0: as many as it takes */
	enum mmctl_sort sort;
	char filter[MMCTL_FILTER_BYTES]; /* only names that have this in them; "": all */
	size_t first;                    /* rows of tenants that are left out at the top */
};

struct mmctl_frame {
	size_t n;
	enum mmctl_line kind[MMCTL_FRAME_LINES];
	char line[MMCTL_FRAME_LINES][MMCTL_FRAME_COLUMNS + 1];
};

/*
 * Makes the lines of @now. @before: the answer @seconds earlier, for rates; NULL: there is none.
 */
void mmctl_frame_make(const json_t *now, const json_t *before, double seconds,
		      const struct mmctl_frame_opts *opts, struct mmctl_frame *ret_frame);
/* Returns what holds for a tenant of status besides its numbers, in a word. */
const char *mmctl_frame_state(const json_t *tenant);
/* Writes @name to @to, escaped and cut to @columns, with at least one byte. Returns @to. */
const char *mmctl_frame_name(const char *name, char *to, size_t columns);
