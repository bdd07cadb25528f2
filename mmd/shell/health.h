/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health - what a device's errors mean, and what is done about them
 *
 * Concept:   xfer passes on what NVML tells: Xids, ECC errors, looks at memory and repairs. An
 *            error is of one of three kinds. NOTE: it is logged and counted. MEMORY: bad memory,
 *            and whoever ran into it has lost its work; the core quarantines what was in use. LOST:
 *            nothing computes on the device until it is reset; it goes down as after its xfer's
 *            repeated death. A GPU that NVML does not reach any more is LOST as well, whether or
 *            not an Xid said so.
 * Xids:      as NVIDIA's "Xid Errors" and "GPU Memory Error Management" describe them for GPUs that
 *            contain errors (A100, H100 and later). A double-bit error (48) is told for contained
 *            and uncontained ones alike; it is 95 that says uncontained.
 * Threading: core's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/common/proto.h"

struct mm_pool;

enum mm_health_kind { MM_HEALTH_NOTE, MM_HEALTH_MEMORY, MM_HEALTH_LOST };

struct mm_health {
	struct mm_xhealth look; /* the last; flags 0: none yet, or NVML shows nothing */
	uint64_t xids, memory_errors, lost;
	uint64_t single_bit, double_bit; /* events, not errors */
	uint64_t last_xid;               /* 0: none */
	uint64_t noted_ns;               /* when a note was last logged; 0: never */
};

/* What an Xid is, and means: *ret_text is a static string. */
enum mm_health_kind mm_health_of_xid(uint64_t xid, const char **ret_text);

/* From xfer. Return: 0; -EPROTO: it is none. */
int mm_health_message(struct mm_pool *pool, struct mm_xmsg *msg);

/*
 * "; others hold 3.0 GiB: pid 12 (python) 3072 MiB, …" behind @text; nothing where it is not known.
 */
void mm_health_explain(const struct mm_pool *pool, char *text, size_t bytes);

/* Is this process mmd's own, or one of its tenants? */
bool mm_health_ours(const struct mm_pool *pool, uint32_t pid);
