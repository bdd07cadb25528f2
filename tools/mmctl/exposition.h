/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exposition - mmd's numbers as the text that a monitoring system reads
 *
 * Concept:   The rows of metrics_table.h, filled from the answer of mmd to `metrics` and from what
 *            the exporter says of itself, as OpenMetrics 1.0 or as the text format 0.0.4 of
 *            Prometheus. Which one a client is sent follows from its Accept header.
 * Names:     Tenants choose their names, and could choose another one each time. Of each account so
 *            many names are shown as come first, for as long as the exporter runs; tenants with
 *            further ones are shown as "other". The label place keeps two tenants apart that have
 *            one name.
 * Ownership: the caller owns the names and the text.
 * Threading: one thread.
 * Trust:     none of the answer: members that are missing or of another type are left out, and
 *            texts are escaped.
 * Limits:    MMCTL_NAMES_EACH names of an account, MMCTL_NAMES_MAX of all.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "libclient/support/json.h"

#define MMCTL_NAMES_EACH     32
#define MMCTL_NAMES_MAX      1024
#define MMCTL_NAME_BYTES     64 /* longer than those of mmd */
#define MMCTL_EXPOSITION_OM  "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define MMCTL_EXPOSITION_TXT "text/plain; version=0.0.4; charset=utf-8"

/* The names that are shown. All 0 at first. */
struct mmctl_names {
	uint32_t n;
	struct {
		char account[MMCTL_NAME_BYTES];
		char tenant[MMCTL_NAME_BYTES];
	} name[MMCTL_NAMES_MAX];
};

/* Whether OpenMetrics is what @accept, an Accept header or NULL, prefers to plain text. */
bool mmctl_exposition_is_open(const char *accept);

/**
 * mmctl_exposition_write() - write all metrics
 * @to:     gets the text; the caller looks at ferror()
 * @open:   OpenMetrics
 * @own:    object with what the exporter says of itself
 * @answer: of mmd; NULL: it does not answer
 * @names:  remembers the names that were shown
 */
void mmctl_exposition_write(FILE *to, bool open, const json_t *own, const json_t *answer,
			    struct mmctl_names *names);
