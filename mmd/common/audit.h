/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit - lines of the audit log
 *
 * Concept:   Who did what to whom, and how much, for whoever has to account for it: the events that
 *            the table of lognames.h marks, each as a JSON object on a line. A role writes it to
 *            stderr like a line of the log; the relay (keeper/relay.h) moves it to the file that
 *            --audit names, if it names one.
 * Blocking:  none: what finds no room is not written, which the caller learns.
 * Trust:     a line that begins like one of these is moved whatever it says. Lines of the log begin
 *            otherwise, and values in them have no line breaks.
 * Threading: any, if mm_audit_init() comes first; mm_audit_tap() is for one thread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mmd/common/log.h"

/* The beginning of each line; its number is the schema's. */
#define MM_AUDIT_BEGIN "{\"audit\":1,"

enum mm_audit_sink { MM_AUDIT_OFF, MM_AUDIT_STDERR, MM_AUDIT_FILE };

struct mm_audit_line {
	const char *role; /* that writes it */
	uint64_t n;   /* its number among the lines of this role: one that is missing was lost */
	uint64_t seq; /* of core's event, as in `mmctl events`; 0: it is none of core's */
	uint64_t wall_ns;
	enum mm_log_level level;
	const char *event, *text; /* as of mm_log() */
	/* It, or the same under another number, may have been written by a core that has died. */
	bool again;
};

/* "off", "stderr" or the path of a file. */
enum mm_audit_sink mm_audit_sink(const char *option);

void mm_audit_init(enum mm_audit_sink sink);
bool mm_audit_is_on(void);

/* Makes an object of key=value pairs; values may be numbers. Return: NULL: no memory. */
json_t *mm_audit_fields(const char *text);

/* Return: 0; -EAGAIN there is no room now; another negative errno: it cannot be written. */
int mm_audit_write(const struct mm_audit_line *line);

/*
 * A tap (mm_log_set_tap()) for a role that keeps nothing: writes what is to be audited at once.
 * What finds no room is counted, and the count written before the next line, as audit.dropped.
 */
void mm_audit_tap(enum mm_log_level level, const char *event, const char *text);
