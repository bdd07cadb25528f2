/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trail - what has happened of late: for observers, and for the audit log
 *
 * Concept:   A ring of records, one for each event that core logs, numbered from 1. `mmctl events`
 *            shows them; those that the table of lognames.h marks are written to the audit log
 *            (common/audit.h) as well, in their order, as fast as that takes them. What tenants are
 *            granted and give back comes too often for a line each: once a second each of whom it
 *            has changed gets one, with the sums of the core's tally since its last.
 * Restart:   the ring is a region of its own, which keeper holds, so a successor goes on where a
 *            core has died: records are numbered on, what was not written to the audit log yet is,
 *            and sums begin where the last one ended. What may be there twice is marked: the line
 *            that was perhaps written when core died, and the records that the successor makes
 *            while it finishes what that one had begun.
 * Order:     core may die between any two instructions. A record is published by the store of its
 *            number; a line counts as written once that stands behind its write.
 * Loss:      observers that come too late see by the numbers how many they have missed. When the
 *            ring has come round before the audit log has taken a record, it is lost, and counted:
 *            audit.dropped. Values are cut at MM_TRAIL_TEXT.
 * Threading: core's thread; its log has the tap of this.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/ipc/region.h"
#include "mmd/common/log.h"
#include "mmd/common/proto.h"

#define MM_TRAIL_RECORDS   2048
#define MM_TRAIL_NAME      32
#define MM_TRAIL_TEXT      448
#define MM_TRAIL_MEMORY_NS (1000 * MM_NS_PER_MS)

struct mm_shell;

struct mm_trail_record {
	uint64_t seq; /* its number; 0: it is being written. Stored last */
	uint64_t wall_ns;
	uint64_t audit; /* its number among those that are audited; 0: it is not */
	uint32_t level; /* enum mm_log_level */
	uint32_t again; /* made while a core finished what another one had begun */
	char name[MM_TRAIL_NAME];
	char text[MM_TRAIL_TEXT];
};
static_assert(sizeof(struct mm_trail_record) == 512, "no padding");

/* The core's tally of a tenant as it was when its last record was made. */
struct mm_trail_sums {
	uint32_t tenant, pool;
	uint64_t granted, released, lent, returned; /* chunks, and layers */
};

struct mm_trail_kept {
	uint32_t magic, bytes; /* of all: another build may have another layout */
	uint64_t born_ns;      /* wall clock: whose numbers these are */
	uint64_t next;         /* number of the next record */
	uint64_t audits;       /* records so far that are audited */
	uint64_t written;      /* of them, those that were written to the audit log, or lost */
	struct mm_trail_sums sums[MM_SESSIONS_MAX]; /* by place of the session */
	struct mm_trail_record record[MM_TRAIL_RECORDS];
};

struct mm_trail {
	struct mm_trail_kept *kept;
	struct mm_region region;
	uint64_t cursor;       /* number of the first record that may have to be written */
	uint64_t retry_ns;     /* when writing is tried again; UINT64_MAX: nothing is left */
	uint64_t memory_at_ns; /* when sums are looked at; UINT64_MAX: nothing has changed */
	uint64_t performed;    /* actions of all pools when they were looked at */
	bool resumed;          /* what is written next may have been written already */
	bool finishing;        /* core finishes what the last one had begun */
};

/* Makes the ring, or takes over that of the last core. Return: 0; negative errno. */
int mm_trail_begin(struct mm_shell *shell);
void mm_trail_done(struct mm_shell *shell);

/* Says that what the last core had begun is done, and what follows is new. */
void mm_trail_resumed(struct mm_shell *shell);

struct mm_session;
/* Makes the record of what a tenant got and gave now, since its connection ends. */
void mm_trail_session(const struct mm_session *session);

/* Makes such a record of each tenant, before mmd ends the connections of all. */
void mm_trail_sessions(struct mm_shell *shell);

/* Makes records of what tenants got and gave, and writes to the audit log, as far as it is due. */
void mm_trail_service(struct mm_shell *shell, uint64_t now_ns);
/* When mm_trail_service() has something to do; UINT64_MAX: nothing yet. */
uint64_t mm_trail_deadline(const struct mm_shell *shell);

/* The record of @seq as an object, a reference of the caller's; NULL: it is not there. */
json_t *mm_trail_json(const struct mm_trail *trail, uint64_t seq);

/* The number of the first record that is there, and of the next one that will be. */
uint64_t mm_trail_first(const struct mm_trail *trail);
uint64_t mm_trail_next(const struct mm_trail *trail);
