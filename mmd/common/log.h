/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log - one line per event on stderr, as key=value
 *
 * Concept:    `ts=12.345678 level=warn role=core event=tenant.kicked tenant=7 reason=…`. Event
 *             names are stable: operators match on them. Lines that a peer can trigger go
 *             through mmd/shell/peerlog.h.
 * Blocking:   in mmd's roles stderr is a pipe that does not block (keeper/relay.h). A line that
 *             finds no room is dropped and counted; the count goes out, as event=log.dropped,
 *             before the next line that finds some.
 * Threading:  any thread; a line is one write(2), so lines of several roles do not mix.
 * Invariants: errno is preserved. Values that come from peers are made printable.
 */
#pragma once

#include <stdbool.h>

#include "libclient/base/base.h"

enum mm_log_level { MM_LOG_ERROR, MM_LOG_WARN, MM_LOG_INFO, MM_LOG_DEBUG, MM_LOG_LEVELS };

/**
 * mm_log_init() - set the role and the level of all lines
 * @role:  static string, shown in each line
 * @level: lines above it are dropped
 */
void mm_log_init(const char *role, enum mm_log_level level);

/**
 * mm_log() - write one line
 * @level: of this line
 * @event: noun.verb
 * @fmt:   further key=value pairs, or ""
 */
void mm_log(enum mm_log_level level, const char *event, const char *fmt, ...) MM_PRINTF(3, 4);

/* Logs how many lines were dropped, if any were and there is room now. */
void mm_log_catch_up(void);
