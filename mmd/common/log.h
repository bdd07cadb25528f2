/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log - one line per event on stderr, as key=value
 *
 * Concept:    `ts=12.345678 time=2026-01-31T12:00:00.000000Z level=warn role=core
 *             event=tenant.kicked tenant=7 reason=…`: the monotonic and the wall clock (UTC). Event
 *             names are stable: operators match on them, and lognames.h has all of them. Lines that
 *             a peer can trigger go through mmd/shell/peerlog.h.
 * Journal:    where stderr is the journal's (JOURNAL_STREAM of systemd), each line begins with its
 *             priority, "<4>", which journald takes off.
 * Blocking:   in mmd's roles stderr is a pipe that does not block (keeper/relay.h). A line that
 *             finds no room is dropped and counted; the count goes out, as event=log.dropped,
 *             before the next line that finds some.
 * Threading:  any thread; a line is one write(2), so lines of several roles do not mix.
 * Invariants: errno is preserved. Values that come from peers are made printable.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/base/base.h"

#define MM_LOG_TIME_BYTES 56

enum mm_log_level { MM_LOG_ERROR, MM_LOG_WARN, MM_LOG_INFO, MM_LOG_DEBUG, MM_LOG_LEVELS };

/**
 * mm_log_init() - set the role and the level of all lines
 * @role:  static string, shown in each line
 * @level: lines above it are dropped
 */
void mm_log_init(const char *role, enum mm_log_level level);

/* As mm_log_init() has set it. */
const char *mm_log_role(void);

/* Finds out, in the first process of mmd, before mm_log_init(), whether stderr is the journal's. */
void mm_log_find_journal(void);

/* The priority that a line begins with, for lines that are not written by mm_log(); or "". */
const char *mm_log_prefix(enum mm_log_level level);

/* The word in lines: "warn". */
const char *mm_log_level_name(enum mm_log_level level);

/* Changes the level; the caller's process has one thread that logs. */
void mm_log_set_level(enum mm_log_level level);

/**
 * mm_log() - write one line
 * @level: of this line
 * @event: noun.verb, in the table of lognames.h
 * @fmt:   further key=value pairs, or ""
 */
void mm_log(enum mm_log_level level, const char *event, const char *fmt, ...) MM_PRINTF(3, 4);

/* Logs how many lines were dropped, if any were and there is room now. */
void mm_log_catch_up(void);

/* Gets each line of this process as it is made, whatever its level; @text: key=value pairs. */
typedef void mm_log_tap_fn(enum mm_log_level level, const char *event, const char *text);
/* Sets the one tap, or none with NULL; where there are threads, all of them call it. */
void mm_log_set_tap(mm_log_tap_fn *tap);

/* The wall clock, in nanoseconds since 1970. */
uint64_t mm_log_wall_ns(void);
/* Writes such a time as RFC 3339 has it, in UTC; @text has MM_LOG_TIME_BYTES. */
void mm_log_time(uint64_t wall_ns, char *text);
