/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peerlog - how much of the log a peer may cause
 *
 * Concept:    One bucket of lines per account, or per user while no account is known: a burst of
 *             MM_PEERLOG_BURST lines, then one per MM_PEERLOG_LINE_NS. Lines beyond that are
 *             counted, and the count is logged once in MM_PEERLOG_REPORT_NS. So a peer that
 *             connects, breaks a rule and leaves in a loop fills neither the log nor the disk under
 *             it, and takes no line from other accounts.
 * Ownership:  struct mm_shell has one; plain memory.
 * Threading:  core's thread.
 * Limits:     MM_PEERLOG_BUCKETS accounts at a time. A bucket that was unused until it was full
 *             again is given to another account; accounts that find none, as many users of one
 *             person may, share a last one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MM_PEERLOG_BUCKETS   256
#define MM_PEERLOG_BURST     100
#define MM_PEERLOG_LINE_NS   UINT64_C(200000000)
#define MM_PEERLOG_REPORT_NS UINT64_C(10000000000)

#define MM_PEERLOG_UID(uid) (UINT64_C(1) << 63 | (uid)) /* key while no account is known */
/* Key of the last bucket, which no account has for itself. */
#define MM_PEERLOG_SHARED (UINT64_C(1) << 62)

struct mm_peerlog_bucket {
	uint64_t key;
	uint64_t paid_ns;      /* the time up to which its lines are paid for */
	uint64_t suppressed;   /* lines that were not reported yet */
	uint64_t report_at_ns; /* when they are reported; UINT64_MAX = nothing to report */
	uint64_t used_ns;      /* 0 = free */
};

struct mm_peerlog {
	struct mm_peerlog_bucket bucket[MM_PEERLOG_BUCKETS + 1]; /* the last one is shared */
};

void mm_peerlog_init(struct mm_peerlog *log);

/* Whether a line of @key may be written now; one that may not is counted. */
bool mm_peerlog_allows(struct mm_peerlog *log, uint64_t key, uint64_t now_ns);

/* Logs the counts of suppressed lines that are due. */
void mm_peerlog_tick(struct mm_peerlog *log, uint64_t now_ns);

/* When mm_peerlog_tick() has something to do; UINT64_MAX: never. */
uint64_t mm_peerlog_deadline(const struct mm_peerlog *log);
