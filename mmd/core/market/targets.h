/* SPDX-License-Identifier: Apache-2.0 */
/*
 * targets - what a decision wants each tenant to have
 *
 * Concept:   A target is a level, not a command: how many layers are to be away, how many chunks a
 *            tenant may hold at most, down to how many it is to release. reconcile.h makes the
 *            memory follow, one step at a time, as far as pages are there; nothing is taken from a
 *            tenant that no target says. A decision that is repeated changes nothing.
 * Earmarks:  Pages for layers that are to return are kept for them in the order of `first` from
 *            when they are asked for until the change begins or the target changes, whoever holds
 *            the turn meanwhile. Without that, pages that were freed for layers are granted as KV
 *            again, and asked back again (Documentation/market.md has the trace).
 * Ownership: the market owns one; no pointers.
 * Threading: core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/core.h"
#include "mmd/core/market/value.h"

/* Why a target is what it is, for the operator. mmd/explain has sentences for each. */
enum mm_target_why {
	MM_WHY_STAYS,       /* nobody lacks memory */
	MM_WHY_BY_HAND,     /* the operator has set it */
	MM_WHY_POLICY,      /* the policy lends no layers */
	MM_WHY_UNKNOWN,     /* its steps or the link were not measured yet */
	MM_WHY_WORTH,       /* further layers cost it and others more than their KV is worth */
	MM_WHY_CLAUSE,      /* further layers would cost it more than its own KV gains it */
	MM_WHY_CAP,         /* all that may be away are */
	MM_WHY_IDLE,        /* it is idle: lends what others need */
	MM_WHY_OFF_TURN,    /* it waits for its turn: lends all but what must stay */
	MM_WHY_NEXT,        /* it has the next turn: layers return into room that nobody needs */
	MM_WHY_HOLDER,      /* it has the turn */
	MM_WHY_HYSTERESIS,  /* a change would gain too little */
	MM_WHY_DWELL,       /* it was changed too recently */
	MM_WHY_OWES,        /* its account must give pages */
	MM_WHY_MODEL_WAITS, /* a model waits for pages */
	MM_WHY_COLD,        /* blocks of who lacks KV can become cold instead */
	MM_WHYS
};

/* Why a tenant may have as many cold blocks as it may, for the operator. */
enum mm_cool_why {
	MM_COOL_NONE,    /* it has declared none */
	MM_COOL_OFF,     /* the policy or the operator offers none */
	MM_COOL_BY_HAND, /* the operator has set the limit */
	MM_COOL_FLOOR,   /* no more than it may have anyway */
	MM_COOL_UNKNOWN, /* its steps or the link were not measured yet */
	MM_COOL_RESTS,   /* it does not compute now: keeps what it has */
	MM_COOL_ENOUGH,  /* it lacks no KV: keeps what it has */
	MM_COOL_WORTH,   /* further blocks would cost more than their KV is worth */
	MM_COOL_MOST,    /* all that it may have */
	MM_COOL_WAITED,  /* its steps waited for the link longer than predicted */
	MM_COOL_UNUSED,  /* more when it has made use of these */
	MM_COOL_BLOCKED, /* it has requests and runs none: it may lack its window's memory */
	MM_COOL_WHYS
};

/*
 * Pages go to the lowest first; of one tenant, to its layers before its KV. Layers are taken from
 * the highest first.
 */
enum mm_target_first {
	MM_FIRST_HOLDER,   /* who has the turn */
	MM_FIRST_ENTITLED, /* computes, and lacks layers, or KV of its share */
	MM_FIRST_COMPUTES, /* computes, and wants more than its share */
	MM_FIRST_NEXT,     /* waits for its turn */
	MM_FIRST_IDLE,     /* its layers return into pages that nobody needs; none are kept */
};

struct mm_target {
	uint32_t alpha;   /* layers that are to be away */
	uint32_t kv_most; /* chunks: it is granted none beyond */
	uint32_t kv_keep; /* chunks: what it holds beyond is reclaimed; UINT32_MAX: nothing is */
	enum mm_target_first first;
	enum mm_target_why why;
	uint32_t cold; /* entries that may be live */
	enum mm_cool_why cold_why;
	/* For the operator: the value of the choice and of one more layer, permille of ln(rate). */
	int32_t worth, worth_more;
	bool valued;           /* the layers were chosen by `value` */
	struct mm_value value; /* what the choice compared them by */
};

struct mm_targets {
	uint64_t decided_ns;
	uint64_t again_ns; /* when to decide again without an event; UINT64_MAX: never */
	/* Chunks are reclaimed only if layers of MM_FIRST_IDLE could not return. */
	bool chunks_for_layers;
	bool as_needed;     /* layers are taken only while pages are short, else at once */
	uint64_t keep_free; /* pages that layers which return leave free */
	bool beside;        /* all who have work compute at once, else in turns */
	uint32_t turn_of;   /* in turns: index of whom memory is for; MM_NO_TENANT: nobody */
	uint32_t memory_of; /* side by side: index of whom memory is for; MM_NO_TENANT: all */
	uint64_t turn_ns;   /* length of the holder's turn while others wait; 0: its own quantum */
	/* For the operator: what the choice of the mode compared, in pages. */
	uint64_t demand, supply;
	uint64_t missed_beside, missed_turns; /* weights of accounts whose goals each mode misses */
	struct mm_target *tenant;             /* one per index of the core */
};
