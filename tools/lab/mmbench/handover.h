/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover - the bare cost of giving all descriptors of a core to another process
 *
 * Concept:   A process that has as many descriptors as keeper holds starts another one, sends them
 *            all in batches with a bounded number unread, and waits until the other has mapped the
 *            regions among them and said so. Nothing else is done: no state is read or restored.
 * Threading: one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mm_handover {
	int *fd;
	size_t n, regions; /* the first so many are regions of REGION_BYTES */
};

/* Opens @pages descriptors and what @tenants need. Return: 0; negative errno. */
int mm_handover_init(struct mm_handover *handover, uint64_t pages, uint32_t tenants);
/* Accepts a zeroed one. */
void mm_handover_done(struct mm_handover *handover);

/* Does it once. Return: 0; negative errno. */
int mm_handover_run(const struct mm_handover *handover, double *ret_ms);
