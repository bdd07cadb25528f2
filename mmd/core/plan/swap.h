/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap - lists of pieces that are copied between a tenant's chunks and its swap space
 *
 * Concept:    A list waits or runs until its last job is done. Jobs that are lost when xfer dies
 *             are issued again: neither side may touch the pieces meanwhile, so copying twice does
 *             no harm.
 * Ownership:  A tenant owns its lists; their pieces are checked copies in a table of the core.
 * Threading:  core thread only.
 * Invariants: The tenant holds every chunk that a list in use names; the number of jobs of a tenant
 *             is the sum over its lists.
 * Limits:     MM_SWAP_LOTS lists of MM_SWAP_PIECES pieces per tenant.
 */
#pragma once

#include "mmd/core/book/book.h"

struct mm_c_swap_list {
	bool used, in;
	uint64_t user_data;
	uint32_t n;    /* number of pieces */
	uint32_t at;   /* piece whose jobs are being issued; n: all were issued */
	uint64_t done; /* bytes of that piece for which jobs were issued */
	uint32_t jobs; /* jobs that run */
	int error;     /* the first error of a job */
};

struct mm_c_swap {
	uint64_t bytes;    /* size of the swap space; 0: it has none */
	uint32_t jobs;     /* jobs of all lists */
	uint32_t next_lot; /* list whose jobs are issued first */
	struct mm_c_swap_list list[MM_SWAP_LOTS];
};

/* Gives the tenant a swap space of @bytes. Returns 0, -EDQUOT or -EEXIST. */
int mm_c_swap_open(const struct mm_core *c, struct mm_c_tenant *t, uint64_t bytes);
/* Accepts a list; the tenant gets an event when it is done. Returns 0 or MM_E_PROTOCOL. */
int mm_c_swap_list(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg,
		   const struct mm_swap_piece *pieces);
/* Issues jobs of the tenant's lists, as far as there is room for them. */
void mm_c_swap_settle(struct mm_core *c, struct mm_c_tenant *t);
/*
 * True if a list that is not done names one of @chunks chunks, 1 or more, from @first on: they can
 * then be neither released nor made a window.
 */
bool mm_c_swap_uses_chunks(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t first,
			   uint32_t chunks);
/* Handles the end of a job of a list. */
void mm_c_swap_job_done(struct mm_core *c, const struct mm_msg *job, struct mm_c_tenant *t,
			int result);
/*
 * Ends the lists because the tenant ends: no more jobs are issued, but its pages wait for those
 * that run.
 */
void mm_c_swap_end(struct mm_c_tenant *t);
