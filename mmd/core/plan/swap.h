/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap - lists of pieces on their way between a tenant's chunks and its swap space
 *
 * Concept:    a list waits or runs until its last job is done; jobs that die with xfer are issued
 *             again (neither side may touch the pieces meanwhile, so a copy is as good twice as
 *             once).
 * Ownership:  a tenant's lists; their pieces lie in the core's table, copied and checked.
 * Threading:  core thread only.
 * Invariants: every chunk that a list in use names is held; jobs are the sum of the lists'.
 * Limits:     MM_SWAP_LOTS lists of MM_SWAP_PIECES pieces a tenant.
 */
#pragma once

#include "mmd/core/book/book.h"

struct mm_c_swap_list {
	bool used, in;
	uint64_t user_data;
	uint32_t n;    /* pieces */
	uint32_t at;   /* the piece that jobs are being made of; n: none any more */
	uint64_t done; /* bytes of it that jobs were made of */
	uint32_t jobs; /* running */
	int error;     /* the first */
};

struct mm_c_swap {
	uint64_t bytes;    /* 0: none */
	uint32_t jobs;     /* of all lists */
	uint32_t next_lot; /* the list that goes on first */
	struct mm_c_swap_list list[MM_SWAP_LOTS];
};

/* 0; -EDQUOT; -EEXIST. */
int mm_c_swap_open(const struct mm_core *c, struct mm_c_tenant *t, uint64_t bytes);
/* A list comes: 0, and the tenant is told when it is done; MM_E_PROTOCOL. */
int mm_c_swap_list(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg,
		   const struct mm_swap_piece *pieces);
/* Goes on with the tenant's lists as far as there is room for jobs. */
void mm_c_swap_settle(struct mm_core *c, struct mm_c_tenant *t);
/* Does a list that is not done name it? Then it cannot be released. */
bool mm_c_swap_names(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t chunk);
void mm_c_swap_job_done(struct mm_core *c, const struct mm_msg *job, struct mm_c_tenant *t,
			int result);
/* The tenant ends: nothing more is issued; its pages wait for the jobs that run. */
void mm_c_swap_end(struct mm_c_tenant *t);
