/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn - temporal sharing: who of those that want it that way computes now
 *
 * Concept:    A tenant may join the turns of its device. Of those that joined, one at a time holds
 *             the turn and runs steps; the others count as idle, so that their memory may be lent.
 *             A turn ends when its holder has nothing to do, when its quantum is over and somebody
 *             waits (MM_TURN_DRAIN: only when the holder has run dry, within MM_TURN_DRAIN_MAX_NS),
 *             or when somebody of higher priority waits. The holder is asked, ends its open step
 *             and gives the turn back; one that does not is passed over when its grace is over.
 * Order:      the highest priority first, and each MM_TURN_AGE_NS of waiting counts as one more:
 *             also against being interrupted by the next one of high priority. Who was interrupted
 *             goes on to age as if it had not had its turn. First of accounts, then of the tenants
 *             of one.
 * Shares:     accounts (by their weights) and the tenants of one are charged for the time that they
 *             hold the turn while others of their kind wait. Who was charged for MM_TURN_SLACK_NS
 *             more than one that waits comes after it, whatever its rank, and the other keeps the
 *             turn beyond its quantum until that is made up for. Nobody is charged for more than
 *             MM_TURN_AHEAD_NS beyond one that waits, so that a turn of a lighter account costs a
 *             heavier one some seconds at most, whatever the weights; and nobody is owed time in
 *             which it did not want the turn. Who has to be passed over is charged for more than it
 *             had.
 * Trust:      quantum and priority are a tenant's word, within what the operator grants its
 *             account. Without a ready model, or at least KV that it holds or wants, it has nothing
 *             to compute with, and no turn. One that runs on without its turn takes computing time,
 *             never memory; status shows how often its turn had to be taken away.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Of a tenant. */
struct mm_c_turn {
	enum mm_turn_mode mode;
	uint32_t priority;
	uint64_t quantum_ns;
	bool wants;
	bool interrupted;    /* its last turn ended for somebody of higher priority */
	uint64_t since_ns;   /* since when it wants */
	bool queued;         /* it holds the turn, or waits for it and can compute */
	uint64_t left_ns;    /* since when it is not */
	uint64_t charged_ns; /* for turns that others of its account waited for */
	uint32_t lapses;     /* turns taken away from it, less those that it gave back since */
	uint64_t turns, overdue;
};

/* Of the device. */
struct mm_c_turns {
	struct mm_c_tenant *holder; /* NULL: nobody computes in turn */
	uint64_t serial;            /* of the last turn that began */
	uint64_t begun_ns;
	uint64_t home_ns; /* when the holder's layers were home again; 0: they are not yet */
	uint64_t rank, account_rank; /* with which it began: the holder's, its account's */
	uint64_t looked_ns;          /* until when it was charged for */
	bool account_contended,
		device_contended; /* others of its account, of other accounts, waited then */
	uint64_t most_ns;      /* that an account may be charged for and still goes by its rank */
	bool return_requested; /* to give it back, until until_ns */
	uint64_t until_ns;
};

int mm_c_turn_join(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_turn_want(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_turn_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
void mm_c_turns(struct mm_core *c);
uint64_t mm_c_turn_deadline(const struct mm_core *c);
/* Who computes when the present turn ends; NULL: nobody waits. */
struct mm_c_tenant *mm_c_turn_next(const struct mm_core *c);
/* Does @a wait for its turn, and will it have it before @b? */
bool mm_c_turn_sooner(const struct mm_core *c, const struct mm_c_tenant *a,
		      const struct mm_c_tenant *b);
/* It shares in turns, and this is not its. */
bool mm_c_turn_waits(const struct mm_core *c, const struct mm_c_tenant *t);

/* And it waits for it: until then it needs neither its layers nor chunks. */
bool mm_c_turn_comes(const struct mm_core *c, const struct mm_c_tenant *t);
/* No open step and no work for idle_ns, or not its turn. */
bool mm_c_idle(const struct mm_core *c, const struct mm_c_tenant *t);
/* It lends and borrows with the others in turns. */
bool mm_c_rotates(const struct mm_core *c, const struct mm_c_tenant *t);
