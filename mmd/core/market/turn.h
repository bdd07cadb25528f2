/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn - temporal sharing: which of the tenants that joined computes now
 *
 * Concept:    A tenant may join the turns of its device. Of those that joined, one at a time holds
 *             the turn and runs steps; the others count as idle, so that their memory may be lent.
 *             A turn ends when its holder has nothing to do, when its quantum is over and another
 *             tenant waits (MM_TURN_DRAIN: only when the holder has no work left, or after
 *             MM_TURN_DRAIN_MAX_NS), or when a tenant of higher priority waits. The holder gets a
 *             request, ends its open step and gives the turn back. If it does not, the turn is
 *             taken away after MM_TURN_GRACE_NS.
 * Modes:      Turns may be open: tenants compute side by side, so each that waits and can compute
 *             holds a turn at once, and a turn ends only when its holder has nothing to do. When
 *             turns close, all holders get the request, as above, and the next turn begins when
 *             none is left. One that holds alone when turns close goes on.
 * Order:      the highest priority first, where each MM_TURN_AGE_NS of waiting counts as one more,
 *             also when a later tenant of high priority would interrupt the turn. A tenant that was
 *             interrupted keeps its age as if it had not had its turn. Accounts are ordered first,
 *             then the tenants of an account.
 * Shares:     accounts (by their weights) and tenants of an account are charged for the time that
 *             they hold the turn while others of their kind wait. One that was charged for
 *             MM_TURN_SLACK_NS more than another one that waits comes after it, whatever its rank,
 *             and the other keeps the turn beyond its quantum until it has made up for that. The
 *             charge is at most MM_TURN_AHEAD_NS more than that of one that waits, so that a turn
 *             of a lighter account costs a heavier one some seconds at most, whatever the weights.
 *             Time without demand for the turn is not made up for. A holder whose turn is taken
 *             away is charged for more than it had. While several hold turns, nobody is charged.
 * Trust:      quantum and priority are a tenant's requests, within what the operator grants its
 *             account. A tenant gets no turn unless its model is ready, or it has no model here and
 *             holds or demands KV. One that runs steps without the turn takes computing time, never
 *             memory; status shows how often its turn was taken away.
 */
#pragma once

#include "mmd/core/book/book.h"

/* State of one tenant. */
struct mm_c_turn {
	enum mm_turn_mode mode;
	uint32_t priority;
	uint64_t quantum_ns;
	bool wants;              /* it has requested a turn that has not begun */
	bool interrupted;        /* its last turn ended for a tenant of higher priority */
	uint64_t since_ns;       /* since when it waits */
	bool queued;             /* it holds the turn, or waits for it and can compute */
	uint64_t left_ns;        /* since when it is not queued */
	uint64_t charged_ns;     /* for turns that others of its account waited for */
	uint32_t lapses;         /* turns taken away from it, less those that it gave back since */
	uint64_t turns, overdue; /* turns begun; turns taken away */
	bool holds;              /* it has a turn */
	uint64_t serial;         /* of its last turn; 0: it had none */
	/* The rest is about its last turn. */
	uint64_t begun_ns;
	uint64_t home_ns;            /* when its layers were resident again; 0: not yet */
	uint64_t rank, account_rank; /* at the begin, its own and its account's */
	bool return_requested;       /* it is to give the turn back until until_ns */
	uint64_t until_ns;
	bool alone;       /* turns were closed when it began */
	bool closing;     /* it is to be given back because turns closed, as all that were open */
	uint32_t kv_left; /* chunks that it held when the turn before ended */
	bool kv_awaited;  /* since the begin it holds fewer, and waits for chunks */
	uint32_t kv_back; /* the most that it has held since, while kv_awaited */
	uint64_t kv_ns;   /* when that last grew */
	/*
	 * The mean, over turns that began while turns were closed, of the time from the begin until
	 * its layers were resident and its KV was back, or no more came; 0: not measured.
	 */
	uint64_t home_ns_mean;
};

/* State of the device. */
struct mm_c_turns {
	bool beside;         /* turns are open */
	uint64_t quantum_ns; /* length of turns, as set; 0: by holders' quanta and layers */
	uint32_t holders;    /* tenants that hold a turn */
	/* the one that holds alone; NULL: none does, several do, or turns are open */
	struct mm_c_tenant *holder;
	uint64_t serial;        /* of the last turn that began */
	uint64_t begun_ns;      /* when it began */
	uint64_t looked_ns;     /* until when the holder was charged */
	bool account_contended; /* others of the holder's account waited at looked_ns */
	bool device_contended;  /* tenants of other accounts waited at looked_ns */
	uint64_t most_ns;       /* the most that an account may be charged for and go by its rank */
};

/* Requests of a tenant. Return: 0; MM_E_PROTOCOL. */
int mm_c_turn_join(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_turn_want(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_turn_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
/* Takes the turn from a tenant that ceases to be. */
void mm_c_turn_leave(struct mm_core *c, struct mm_c_tenant *t);
/*
 * Opens the turns, or closes them, from the next settling on, as far as the knob mode leaves it to
 * the core. @quantum_ns: the length of a turn when others wait, whatever quantum the holder
 * requested and its account may have (MM_TURN_DRAIN: the least length); 0: by the holder's quantum
 * and the return of its layers.
 */
void mm_c_turns_set(struct mm_core *c, bool beside, uint64_t quantum_ns);
/* Part of settling: ends turns that are over, and begins those that are next. */
void mm_c_turns(struct mm_core *c);
/* Part of settling, behind the controller's: notes what came back to holders. */
void mm_c_turns_measure(struct mm_core *c);
/* Returns when settling is due for the turn; UINT64_MAX: never. */
uint64_t mm_c_turn_deadline(const struct mm_core *c);
/* Returns the length of a turn that @t requests, within its account's bound. */
uint64_t mm_c_turn_quantum_ns(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns the tenant that is next; NULL: none waits. */
struct mm_c_tenant *mm_c_turn_next(const struct mm_core *c);
/* Returns whether @a waits for a turn that it will get before @b. */
bool mm_c_turn_before(const struct mm_core *c, const struct mm_c_tenant *a,
		      const struct mm_c_tenant *b);
/*
 * Returns whether @t waits for a turn that it will use: until then it needs neither its layers nor
 * more chunks.
 */
bool mm_c_turn_pending(const struct mm_core *c, const struct mm_c_tenant *t);
/*
 * Returns whether @t is idle: it had no open step and no work for idle_ns and has no unmet demand,
 * or it has joined the turns and holds none.
 */
bool mm_c_idle(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns the invariant of the turns that is broken; NULL: none is. */
const char *mm_c_turns_check(const struct mm_core *c);
