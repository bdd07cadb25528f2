/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builds - which build of mmd each of its processes runs
 *
 * Concept:   After an upgrade processes of the build before go on until they end. keeper says of
 *            each what it was started from, and core remembers that for operators.
 * Limits:    MM_HELD_CHILDREN_MAX processes; the builds of more are not known.
 * Threading: core's thread.
 */
#pragma once

#include <jansson.h>

#include "mmd/common/build.h"
#include "mmd/shell/held.h"

struct mm_builds {
	char keeper[MM_BUILD_BYTES];
	struct mm_builds_role {
		enum mm_role role; /* 0: free */
		uint32_t device;
		uint64_t id;
		char build[MM_BUILD_BYTES];
	} role[MM_HELD_CHILDREN_MAX];
};

/* From the inventory. */
void mm_builds_init(struct mm_builds *builds, const struct mm_held *held);

void mm_builds_keeper(struct mm_builds *builds, const char *build);

/* keeper has started a process, or reaped it. */
void mm_builds_add(struct mm_builds *builds, enum mm_role role, uint32_t device, uint64_t id,
		   const char *build);
void mm_builds_remove(struct mm_builds *builds, enum mm_role role, uint32_t device, uint64_t id);

/* Keeper, core, then the others: role, build, and device or store where it has one. */
json_t *mm_builds_json(const struct mm_builds *builds);
