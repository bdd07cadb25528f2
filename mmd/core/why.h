/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why - why memory is where it is: the last decision, with what it was made from
 *
 * Concept:   A copy of plain numbers, of the device and of each tenant: what a tenant has now; what
 *            it bids for; what it offers and at which price; what the last decision compared, what
 *            it chose, and why. mmd/explain makes sentences of it.
 * Units:     bytes, for what the core counts in pages and chunks; gains and costs in millionths of
 *            ln(rate), summed over all tenants that compute: 10000 is one percent of the tokens of
 *            one of them, more or fewer.
 * Age:       What a tenant has is of now, the rest of the last decision. One is made when the
 *            situation changes, and every 50 ms while somebody has work, so an old one still holds.
 * Ownership: the caller owns the copies; they hold no pointers.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/core.h"
#include "mmd/core/market/targets.h"

/* The reasons for which tenants compute side by side or in turns. */
enum mm_why_mode {
	MM_WHY_MODE_POLICY,  /* the policy decides nothing about turns */
	MM_WHY_MODE_NOBODY,  /* no tenant has joined turns */
	MM_WHY_MODE_MEMORY,  /* the same, and memory goes to one after the other */
	MM_WHY_MODE_SET,     /* the operator has set it */
	MM_WHY_MODE_ALONE,   /* fewer than two of those that joined have work */
	MM_WHY_MODE_GOALS,   /* the other mode would miss more goals */
	MM_WHY_MODE_FITS,    /* what all want fits */
	MM_WHY_MODE_EXCEEDS, /* what all want does not fit */
	MM_WHY_MODES
};

struct mm_core_why_device {
	bool decided;    /* there was a decision */
	uint64_t age_ns; /* of the decision */
	enum mm_policy policy;
	uint64_t page_bytes;
	uint64_t pool_bytes, free_bytes, coming_bytes; /* free and coming: when it was decided */
	uint64_t big_bytes; /* that models which wait, or the operator's plans, need */
	bool beside;
	enum mm_why_mode mode_why;
	bool mode_changes; /* the demand speaks for the other mode, but not for long enough yet */
	uint64_t demand_bytes, supply_bytes;
	uint32_t from_permille, below_permille;       /* of the supply: where the modes change */
	uint32_t joined, working, computing, waiting; /* tenants */
	uint64_t turn_ns, turn_home_ns; /* length of a turn, of bringing its memory home; or 0 */
	/* The worth of one GiB of KV more to those that lack it; has_bid: it is known. */
	bool has_bid, bid_met; /* bid_met: they get all that they want by this decision */
	int64_t bid;
};

/* A number of layers that was considered, with what it costs and gains beside none away. */
struct mm_core_why_point {
	uint32_t alpha;
	bool known;             /* what it costs was measured */
	bool allowed;           /* by the clause */
	uint32_t slow_permille; /* by which the tenant's steps are longer */
	uint32_t link_permille; /* of the link's time */
	int64_t gain, cost;     /* cost: of the longer steps and of the link's traffic, to all */
};

enum mm_why_role {
	MM_WHY_COMPUTES, /* it has work, and needs no turn */
	MM_WHY_HOLDS,    /* it has work and a turn */
	MM_WHY_WAITS,    /* for its turn */
	MM_WHY_PAUSES,   /* for memory, which goes to one after the other */
	MM_WHY_NO_WORK,
	MM_WHY_ROLES
};

/* The tenant's cold blocks now; all but `why` is 0 if it has declared none. */
struct mm_core_why_cold {
	uint32_t most, floor; /* entries that may be live: as it declared, as it asked for */
	uint32_t limit;       /* in force */
	uint32_t live;        /* as it said last */
	uint32_t streamed;    /* above the limit where one has fallen: those that are live stay, */
	bool falls;           /* or only for a while: the tenant has a deadline */
	uint32_t entries; /* that have room in its window; 0: it has none, nothing is streamed */
	uint64_t block_bytes, window_bytes;
	/* Price of the live ones: transfers over a step's time; by how much steps are longer. */
	bool priced;
	uint32_t load_permille, slow_permille;
	bool gives;           /* it must give chunks of its window: no entry may be live */
	enum mm_cool_why why; /* the limit is what it is, or would be if it gave nothing */
};

struct mm_core_why {
	uint32_t tenant;
	uint64_t account; /* key */

	/* The tenant has this now. */
	bool model_ready;
	uint32_t layers, alpha;
	bool by_hand;        /* the operator has set how many are away */
	bool held;           /* its engine holds them at home, whatever the operator has set */
	bool pinned;         /* the operator has pinned them at home, whatever else was set */
	bool activates;      /* the operator has them come home now */
	bool drains;         /* the operator drains it: it is granted nothing more */
	uint32_t revoking;   /* chunks that it is to give, because the operator revokes them */
	bool changing;       /* a change of its layers is under way */
	uint32_t alpha_next; /* layers away after it; else the same */
	uint64_t layer_bytes;
	uint64_t chunk_bytes; /* 0: it has no KV arena */
	uint32_t kv_held, kv_used, kv_wanted, kv_share;
	struct mm_core_why_cold cold;

	/* The rest is of the last decision; without one about it, it is 0. */
	bool decided;
	enum mm_why_role role;
	uint32_t place; /* of who waits: 0 has the next turn */
	uint32_t queued, hungry_permille;
	uint32_t late_permille; /* of its requests, of late; 0 without goals */
	uint64_t step_ns;
	uint64_t return_ns; /* that all its layers at target take to return; 0: not known */

	/* The decision chose this. */
	enum mm_target_why why;
	enum mm_target_first first;
	uint32_t alpha_target, alpha_most;
	uint32_t kv_most; /* it is granted no more chunks; UINT32_MAX: no bound */
	uint32_t kv_keep; /* beyond it is to release; UINT32_MAX: nothing */

	/* The decision compared this; valued: there was a choice among numbers of layers. */
	bool valued;
	uint32_t clause_permille; /* by which its steps may be longer; UINT32_MAX: any */
	bool has_less, has_more;  /* one layer less, or more, is possible */
	struct mm_core_why_point less, chosen, more; /* chosen: the target */
	uint32_t points;
	struct mm_core_why_point point[MM_VIEW_POINTS];
};

/* Gets the device's part of the last decision. */
void mm_core_why_device(const struct mm_core *core, struct mm_core_why_device *ret_why);
/* Gets what the last decision said of a tenant; false: no such tenant. */
bool mm_core_why(const struct mm_core *core, uint32_t tenant, struct mm_core_why *ret_why);
