/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health - what a device's errors mean, and what is done about them
 *
 * Concept:   xfer passes on what NVML reports: Xids, ECC errors, samples of memory use and repairs.
 *            An error is of one of three kinds. NOTE: it is logged and counted. MEMORY: memory is
 *            bad, and a program that ran into it has lost its work; the core quarantines what was
 *            in use. LOST: nothing computes on the device until it is reset; the device goes down
 *            as if its xfer had failed repeatedly. A GPU that NVML cannot reach any more is LOST as
 *            well, with or without an Xid.
 * Xids:      as NVIDIA's "Xid Errors" and "GPU Memory Error Management" describe them for GPUs that
 *            contain errors (A100, H100 and later). A double-bit error (48) is reported for
 *            contained and uncontained ones alike; 95 marks the uncontained one.
 * Threading: core's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/common/proto.h"

struct mm_pool;

enum mm_health_kind { MM_HEALTH_NOTE, MM_HEALTH_MEMORY, MM_HEALTH_LOST };

struct mm_health {
	/* The last sample; flags 0: none yet, or NVML does not show the device. */
	struct mm_xhealth sample;
	uint64_t xids, memory_errors, lost;
	/* Counts of NVML's events, each of which may stand for several errors. */
	uint64_t single_bit, double_bit;
	uint64_t last_xid; /* 0: there was none */
	uint64_t noted_ns; /* when a note was last logged; 0: never */
};

/* The kind and the meaning of an Xid; *ret_text is a static string. */
enum mm_health_kind mm_health_of_xid(uint64_t xid, const char **ret_text);

/* Handles a HEALTH message of xfer. Return: 0; -EPROTO: the message is not valid. */
int mm_health_message(struct mm_pool *pool, struct mm_xmsg *msg);

/*
 * Appends to @text other processes that hold memory of the device, if NVML names some: "; others
 * hold memory: pid 12 (python) 3072 MiB, pid 13 …".
 */
void mm_health_explain(const struct mm_pool *pool, char *text, size_t bytes);

/* Whether the process is one of mmd's or one of its tenants. */
bool mm_health_is_ours(const struct mm_pool *pool, uint32_t pid);
