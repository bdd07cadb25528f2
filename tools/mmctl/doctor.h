/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor - the findings of `mmctl doctor`
 *
 * Concept:   What mmd finds in itself (its method "doctor"), what its processes look like from
 *            outside, and what this host has. A finding is printed when it is made, or collected
 *            for --json.
 * Ownership: struct mmctl_doctor owns the list; texts are borrowed for a call.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"

enum mmctl_result {
	MMCTL_OK,
	MMCTL_NOTE, /* nothing is wrong, but something is not enforced or not known here */
	MMCTL_WARN,
	MMCTL_FAIL,
	MMCTL_RESULTS
};

struct mmctl_doctor {
	bool json;
	json_t *checks;
	unsigned int n[MMCTL_RESULTS];
};

/* Adds a finding. @advice: what to do, or "". */
void mmctl_doctor_add(struct mmctl_doctor *d, const char *name, enum mmctl_result result,
		      const char *advice, const char *fmt, ...) MM_PRINTF(5, 6);

/* The kernel, the limits and the file systems of this host, as this process sees them. */
void mmctl_doctor_host(struct mmctl_doctor *d);

/* The processes of an mmd: @answer is that of its method "doctor". */
void mmctl_doctor_roles(struct mmctl_doctor *d, const json_t *answer);
