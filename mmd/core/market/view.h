/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view - everything that a decision of the market depends on, as plain numbers
 *
 * Concept:   market_look() (look.h) copies the facts of the book and the plans, and the tenants'
 *            claims as load.h has bounded them, into one struct mm_view. mm_market_decide()
 *            (decide.h) reads it and nothing else, so a decision can be repeated, tested on a
 *            struct of the test's own, explained, and reported from a running daemon. The design is
 *            in Documentation/market.md.
 * Units:     pages of the pool; chunks of the tenant; times in ns; parts in permille.
 * Trust:     Fields under "claims" are what a tenant says of itself. A claim only changes what is
 *            lent by the tenant itself, or how much it gets beyond what others are entitled to;
 *            Documentation/market.md bounds what each lie is worth.
 * Ownership: the market owns one view; its arrays are of the core's size and hold no pointers into
 *            other rooms.
 * Threading: core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/core.h"

#define MM_VIEW_POINTS 24 /* numbers of layers whose cost is known, for each tenant */
#define MM_VIEW_LOADS  17 /* transfers in each step whose cost is known: eighths of its time */

/* The cost of streaming with so many layers away, on a link that nobody else uses. */
struct mm_view_point {
	uint32_t alpha;         /* layers away; points are ascending, and the first has 0 */
	uint32_t slow_permille; /* by which its steps are longer; UINT32_MAX: not known yet */
	uint32_t link_permille; /* of the link's time that transfers of those longer steps take */
};

enum mm_view_turn {
	MM_VIEW_NO_TURNS, /* it has not joined the turns of its device */
	MM_VIEW_AWAY,     /* it has joined, and needs no turn now */
	MM_VIEW_WAITS,    /* it waits for a turn that it will use */
	MM_VIEW_HOLDS,    /* it computes */
};

struct mm_view_tenant {
	uint32_t index, account;   /* index of the tenant and of its account in the core */
	uint32_t weight, priority; /* of its account */

	/* Its layers. */
	bool lends;              /* its model is complete, and its layers are not set by hand */
	bool changing;           /* a change of its plan is under way */
	uint32_t layers;         /* 0: it has no model here */
	uint32_t layer_pages;    /* of the mean layer; what one layer away sets free */
	uint64_t fixed_pages;    /* of its model besides its layers: embeddings, head */
	uint32_t slot_pages;     /* pages that the return of all layers needs beyond theirs */
	uint32_t alpha_max;      /* the most layers that may be away; 0 if not lends */
	uint32_t alpha;          /* away now */
	uint32_t alpha_next;     /* away after the change under way; else the same */
	uint64_t change_pages;   /* that the change under way sets free; 0 if it is too slow */
	uint32_t alpha_two;      /* the most that may be away through two slots */
	uint32_t cycling;        /* layers that are streamed now */
	uint64_t taken_ns;       /* when layers of it were last taken; 0: never */
	uint64_t change_from_ns; /* no change can begin before; 0: one may begin now */
	uint64_t transfer_ns; /* of the mean layer while nobody else uses the link; 0: not known */
	uint64_t big_pages;   /* that its waiting model, or the operator's plan for it, needs */

	/* Its KV cache. */
	uint32_t chunk_pages; /* 0: it has declared no arena */
	uint32_t kv_held;     /* chunks */
	uint32_t kv_share;    /* declared at join; within its account's max */
	uint32_t kv_limit;    /* the most that it may hold by its own declaration and the policy */
	bool gives;           /* it takes part in reclaims, and answered the last one */
	bool reclaims;        /* it takes part in reclaims */
	bool asked;           /* the time to answer the last reclaim is not over */
	uint64_t swap_bytes;  /* of its swap space; 0: what it evicts must be computed again */

	/* Its cold blocks. */
	uint32_t cold_most;  /* that it may have by its declaration; 0: it has no cold blocks */
	uint32_t cold_floor; /* that it may have whatever is decided */
	uint32_t cold_limit; /* in force */
	bool cold_by_hand;   /* the operator has set the limit */
	uint32_t cold_classes;
	uint64_t cold_unit_bytes; /* of a block in a layer */
	uint64_t cold_entry_ns; /* of the link for a block in a step, if nobody else uses it; 0: not
				   known */

	/* Claims. */
	uint32_t cold_live;      /* entries that are streamed; cold_limit if it does not say */
	uint32_t stall_permille; /* waits at gates over computing time, of late */
	/*
	 * By how many permille steps are longer if as many eighths of the mean step's time are
	 * transferred in each of them; the last is UINT32_MAX or 0: not known yet.
	 */
	uint32_t load_slow[MM_VIEW_LOADS];
	uint32_t kv_used;   /* chunks in use; kv_held while it has said nothing */
	uint32_t kv_wanted; /* chunks in all, for requests that run or come next */
	uint32_t kv_queued; /* further chunks that its queue would use; 0 if it does not say */
	uint32_t running, waiting; /* requests */
	uint32_t late_permille;    /* of late requests, smoothed; 0 without a goal */
	uint64_t step_ns;          /* mean computing time of its steps; 0: not measured */
	uint64_t longest_ns;       /* the longest of late */
	uint64_t layer_ns;         /* computing time of the mean layer, of its last steps */
	uint64_t largest_ns;       /* transfer time of the largest layer, of its last steps */
	uint32_t kappa_permille; /* d ln(step) / d ln(KV in use), at least 1; 0: not measured yet */

	/* Its activity and its turn. */
	bool active;              /* it has work, or had some within the knob idle-ms */
	uint32_t hungry_permille; /* part of late time in which it lacked KV */
	uint64_t active_ns;       /* when it was last active */
	uint64_t stepped_ns;      /* when it was last seen to run steps */
	uint64_t home_mean_ns; /* mean time until its memory was there at the begin of its turns */
	enum mm_view_turn turn;
	bool turn_ends;         /* it computed side by side, and is to end that: turns closed */
	uint32_t place;         /* of those that wait: 0 has the next turn */
	uint64_t turn_since_ns; /* when the turn that it holds began */
	uint64_t quantum_ns;    /* length of a turn that it asks for, within its account's bound */

	/* Goals of its account; 0: it has none. */
	uint64_t goal_ttft_ns, goal_tpot_ns;

	uint32_t points; /* entries of point[]; at least 1 if lends */
	struct mm_view_point point[MM_VIEW_POINTS];
};

/* Returns whether @t needs neither its layers nor more chunks before something happens. */
static inline bool mm_view_is_idle(const struct mm_view_tenant *t)
{
	return !t->active || t->turn == MM_VIEW_AWAY || t->turn == MM_VIEW_WAITS;
}

struct mm_view_account {
	uint64_t min_pages, max_pages;
	uint64_t charged; /* pages */
	/* Pages that it must give, without those that are coming: it is above its max, or another
	 * min lacks them. */
	uint64_t owes;
	/* Pages that its tenants want and that only its own tenants can give, without those that
	 * are coming. */
	uint64_t lacks;
	/* Its tenants may give to others as many pages as it has beyond its min and they were not
	 * asked for (UINT64_MAX: it has no min), and as many as they want themselves. */
	uint64_t spare, wants;
};

struct mm_view {
	uint64_t now_ns;
	enum mm_policy policy;
	bool cold;            /* cold blocks are offered */
	uint64_t page_bytes;  /* of a page */
	uint64_t pages;       /* of the pool, without those that are out of use */
	uint64_t free;        /* pages that may be granted at once */
	uint64_t coming;      /* pages that are scrubbed or on their way from tenants */
	uint64_t unused_mins; /* pages that are kept for mins of accounts */
	uint64_t big_pages;   /* pages that waiting models and the operator's plans need in all */
	uint64_t needed;      /* pages that demands lack: those for models, plans and KV */
	uint64_t short_pages; /* of these, what is neither free nor coming */
	uint64_t surplus;     /* pages that are free and that nobody needs or may need soon */
	bool reversion;       /* layers return when nobody needs their pages */
	uint32_t link_slows_permille; /* by which kernels are longer while the link is busy */
	uint32_t rho_permille; /* part of one tenant's stalls that others do not make use of */
	uint64_t dwell_ns;     /* least time between a take and the way back */
	uint32_t turn_cost_permille; /* part of a turn that may pass until memory is home */
	bool may_beside, may_turns;  /* what the operator allows; both: the decision chooses */
	uint32_t joined;             /* tenants that have joined the turns */
	uint32_t n_tenants, n_accounts;
	struct mm_view_tenant *tenant;   /* n_tenants entries, ascending by index */
	struct mm_view_account *account; /* by index in the core */
};
