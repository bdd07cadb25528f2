/* SPDX-License-Identifier: Apache-2.0 */
/*
 * book - the facts: pages, accounts, tenants, and jobs that xfer has not done
 *
 * Concept:    struct mm_core is the book. It has one pointer for each room above it: what a plan
 *             or the market keeps of the core or of a tenant is declared there, and is opaque here.
 *             The rooms above see changes in return values, or in two counters: one counts
 *             changes of the pages that are on their way, the other changes of what tenants wait
 *             for.
 * Rooms:      front (the files of mmd/core itself) over market over plan over book over out. Each
 *             uses only those below it; tests/rooms.py checks this.
 * Ownership:  The core owns everything; the parts of a tenant belong to its index.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/account.h"
#include "mmd/core/core.h"
#include "mmd/core/out/jobs.h"
#include "mmd/core/book/kv.h"
#include "mmd/core/book/ledger.h"
#include "mmd/core/book/load.h"
#include "mmd/core/book/mem.h"
#include "mmd/core/out/queue.h"
#include "mmd/core/book/tally.h"
#include "libclient/base/base.h"
#include "libclient/protocol/xplan.h"

/* longest wait of a model for pages, before it is refused */
#define MM_MODEL_WAIT_NS  (30 * MM_NS_PER_S)
#define MM_CHANGE_SLOW_NS (250 * MM_NS_PER_MS) /* a slower change is not counted on */
#define MM_DENY_NS        (20 * MM_NS_PER_MS)  /* least time between denials to one tenant */
/* time between retries of pages that are quarantined or could not be created */
#define MM_PAGE_RETRY_NS MM_NS_PER_S
/* after so long a wait for KV, chunks are kept back for the tenant, for as long */
#define MM_KV_KEEP_NS (MM_NS_PER_S / 2)
/* a turn may be extended to this if its layers take long to return home; their pages are kept */
#define MM_TURN_STRETCH_NS (2 * MM_NS_PER_S)
/* after so long a wait, weights of accounts no longer count */
#define MM_STARVED_NS (2 * MM_NS_PER_S)
/* least time between two searches for sets because claims have changed */
#define MM_CLAIM_NS       MM_NS_PER_S
#define MM_CREATE_BATCH   MM_FD_BATCH_MAX
#define MM_RETRY_BATCH    16
#define MM_ACCOUNTS_SPARE 16 /* entries that are kept free for new accounts */

enum mm_life { MM_LIFE_NONE, MM_LIFE_LIVE, MM_LIFE_ENDING, MM_LIFE_PROVEN };
enum mm_suspect { MM_SUSPECT_NOT, MM_SUSPECT, MM_SUSPECT_SEEN };
enum mm_c_model_state {
	MM_C_MODEL_NONE,
	MM_C_MODEL_WAITING,
	MM_C_MODEL_LOADING,
	MM_C_MODEL_SWITCHED,
	MM_C_MODEL_READY,
	MM_C_MODEL_LEAVING /* nothing of it is in the map table, and the tenant unmaps it */
};

struct mm_c_group {
	uint64_t store_offset;
	uint64_t bytes;
	uint32_t entry; /* first entry in the map table */
	uint32_t pages;
};

/* State of the rooms above: only their files see its members. */
struct mm_change;
struct mm_c_sets;
struct mm_c_swap;
struct mm_plans;
struct mm_demand;
struct mm_c_lends;
struct mm_c_turn;
struct mm_market;

/* The tenant holds its model: its layers are to be at home, and to stay (plan/hold.h). */
struct mm_c_hold {
	bool on;
	bool due;           /* the answer: it is sent when all layers are at home */
	bool checked;       /* whether the account has room, at a time without a plan change */
	struct mm_msg asks; /* the request */
};

/* Orders of the operator for the tenant (steer.h). */
struct mm_c_steer {
	uint64_t drain_until_ns;    /* while it drains: then it is kicked; UINT64_MAX: never */
	uint64_t activate_until_ns; /* then its layers are given up */
	uint32_t revoke_keep;       /* chunks that a revoke leaves it */
	bool pinned, activates, drains, revokes;
};

/* The tenant's cold blocks (plan/cold.h). */
struct mm_c_cold {
	uint32_t classes; /* of its layers; 0: it has declared no cold blocks */
	uint32_t entries_max, floor;
	uint64_t unit_bytes;
	uint32_t by_hand; /* the operator's limit + 1; 0: automatic */
	uint32_t offered; /* limit of the last decision */
	uint32_t live;    /* entries that the tenant last said are live */
	/* entries that may be live, as the tenant was told, and as xfer streams them */
	uint32_t limit, streamed;
	bool limit_due;                 /* the tenant has not been told any yet */
	uint64_t cut_ns;                /* xfer gets a limit that fell after it; 0: it has it */
	bool window_due;                /* a window was requested, and is not answered */
	uint64_t window_asks;           /* user_data of that request */
	uint32_t first, chunks;         /* the window that was requested */
	uint32_t was_first, was_chunks; /* of the plan before, until the change is done */
};

/* The tenant gives its model back (plan/unload.h). */
struct mm_c_unload {
	bool due;           /* requested, and not answered */
	struct mm_msg asks; /* the request */
};

struct mm_c_tenant {
	enum mm_life life;
	uint32_t id; /* index, tag and generation: see core.h */
	uint32_t account;
	uint64_t features;
	bool connected, bye, dead, kicked, killed;
	uint64_t revoke_at_ns;
	/* deadline to give what its account must give; 0: nothing is due */
	uint64_t reclaim_deadline_ns;
	uint64_t stopped_ns;    /* when it was found to be stopped; 0: it runs */
	bool stopped_check_due; /* the shell is checking whether it is stopped */
	bool overdue;           /* its deadline has passed and it is alive */
	/* set at a memory error; SEEN: it has reported suspect_steps since */
	enum mm_suspect suspect;
	uint64_t suspect_steps;

	/* xfer */
	bool attached;   /* from its join until DETACH is done */
	uint32_t ctl;    /* slot + 1 of its control job; 0: none runs */
	uint32_t copies; /* COPY jobs that run */

	/* model */
	enum mm_c_model_state model;
	uint64_t model_since_ns;
	bool has_store;
	uint32_t n_layers, entries;
	uint64_t layer_bytes_max;
	struct mm_c_group group[MM_LAYERS_MAX + 1];
	uint32_t layer_pages[MM_LAYERS_MAX + 1];
	uint32_t *own; /* page of each model entry that has a page of its own */
	uint32_t *map; /* map table as it was given out: page + 1; 0: none */
	/* entries of the model, and of KV, at or above it were never used */
	uint32_t map_end, kv_map_end;
	uint32_t slot_page[MM_SLOTS_MAX][MM_SLOT_PAGES_MAX];

	/* plan */
	struct mm_core_plan plan;
	struct mm_c_hold hold;
	struct mm_c_steer steer;
	struct mm_c_unload unload;
	struct mm_c_cold cold;
	struct mm_change *change;
	struct mm_c_sets *sets;
	struct mm_c_swap *swap;
	struct mm_c_kv kv;
	struct mm_c_mem mem;
	struct mm_c_load load;
	struct mm_c_tally tally;

	/* market */
	struct mm_demand *demand;
	struct mm_c_lends *lends;
	struct mm_c_turn *turn;
};

/*
 * Returns how many layers are to be away by the operator's word, or 0 while the tenant holds its
 * model or the operator has it at home, which come first; -1: the controller decides.
 */
static inline int32_t mm_c_alpha_by_hand(const struct mm_c_tenant *t)
{
	return t->hold.on || t->steer.pinned || t->steer.activates ? 0 : t->plan.alpha_by_hand;
}

/* Returns the chunks of @t's window, in force or requested: it cannot give them at once. */
static inline uint32_t mm_c_window_chunks(const struct mm_c_tenant *t)
{
	const uint32_t next = t->cold.window_due ? t->cold.chunks : 0;

	return MM_MIN(MM_MAX(t->plan.cold.chunks, next), t->kv.held);
}

/* Returns the chunks that @t is to give because the operator revokes them. */
static inline uint32_t mm_c_revoking(const struct mm_c_tenant *t)
{
	return t->steer.revokes && t->kv.held > t->steer.revoke_keep
		       ? t->kv.held - t->steer.revoke_keep
		       : 0;
}

struct mm_core {
	struct mm_core_opts opts;
	uint64_t now_ns;
	uint64_t settled_ns; /* when the core settled last */
	struct mm_ledger ledger;
	struct mm_account *account;
	uint32_t accounts_end; /* indices at or above it are not in use */
	struct mm_c_mins *mins;
	/* counts changes of the pages that are on their way, and calls for a full recomputation */
	uint64_t coming;
	/* counts changes of what tenants wait for, and of whether they are idle */
	uint64_t waiting;
	uint64_t min_sum;        /* sum of the mins of all accounts */
	uint64_t quota_revision; /* revision of the last change of a quota */
	/* highest virtual service time of an account that was granted a chunk (fair queueing) */
	uint64_t served;
	uint64_t departures;
	uint64_t kill_ns[MM_KILLS_MAX]; /* times of the last kills; 0: never */
	uint32_t lost;                  /* pages that are out of use and charged to no account */
	bool mins_covered; /* free pages cover all unused mins, and no tenant can hold them */

	struct mm_queue queue;
	/* jobs_max slots for bulk, then one per tenant for its control job */
	struct mm_jobs jobs;
	bool xfer_up;
	uint32_t create_next;
	uint64_t create_retry_ns, quarantine_retry_ns;
	uint32_t quarantine_retries; /* retries left in this round */

	struct mm_c_tenant *tenant;
	uint32_t tenants_end; /* indices at or above it are not in use */
	uint16_t generation[MM_CORE_TENANTS_MAX];
	uint32_t entries_max;

	struct mm_plans *plans;
	struct mm_market *market;
	struct mm_c_copies copies;

	struct mm_core_stats stats;
	struct mm_core_tally tally;
	uint32_t *scratch;  /* scratch space of mm_core_check(), one entry per page */
	uint32_t copy_next; /* index of the tenant whose copies are issued first */
	uint32_t *storage;  /* tables of all tenants */
};

#define MM_FOREACH_TENANT(c, t)                                                            \
	for (struct mm_c_tenant *t = (c)->tenant; t < (c)->tenant + (c)->tenants_end; t++) \
		if (t->life != MM_LIFE_NONE)

/* Converts a time of the controller to the scale of this clock. */
static inline uint64_t mm_c_time(const struct mm_core *c, uint64_t ns)
{
	return ns * c->opts.time_scale;
}

/* Call this when what tenants wait for, or whether they are idle, has changed. */
static inline void mm_c_demand_changed(struct mm_core *c)
{
	c->waiting++;
}

/* Call this when other pages are on their way than before, or time has passed. */
static inline void mm_c_supply_changed(struct mm_core *c)
{
	c->coming++;
}

static inline uint32_t mm_c_index(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return (uint32_t)(t - c->tenant);
}
