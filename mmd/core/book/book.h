/* SPDX-License-Identifier: Apache-2.0 */
/*
 * book - what is so: pages, accounts, tenants, and what was asked of xfer
 *
 * Concept:    struct mm_core is the book, with one pointer for each floor above it: what a plan or
 *             the market keeps of the core or of a tenant is declared there, and cannot be looked
 *             into from here. Facts go up by return, or as two numbers: how often what is on its
 *             way has changed, and how often what tenants wait for has.
 * Floors:     front (core, events, reports, operator, requests, settle, life, ladder, check) over
 *             market over plan over book over out (queue, jobs). Each uses those below it;
 *             tests/rooms.py sees to it.
 * Ownership:  the core owns everything; a tenant's parts belong to its index.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/account.h"
#include "mmd/core/core.h"
#include "mmd/core/out/jobs.h"
#include "mmd/core/book/kv.h"
#include "mmd/core/book/ledger.h"
#include "mmd/core/book/load.h"
#include "mmd/core/out/queue.h"
#include "libclient/protocol/xplan.h"

#define MM_MODEL_WAIT_NS  (30 * MM_NS_PER_S)   /* for pages, before a model is refused */
#define MM_CHANGE_SLOW_NS (250 * MM_NS_PER_MS) /* a change that takes longer is not counted on */
#define MM_DENY_NS        (20 * MM_NS_PER_MS)  /* least time between denials to one tenant */
#define MM_PAGE_RETRY_NS  MM_NS_PER_S          /* of quarantined pages and of pages not created */
#define MM_TURN_NS        (MM_NS_PER_S / 2)    /* of waiting, then of keeping a chunk back for it */
#define MM_TURN_STRETCH_NS \
	(2 * MM_NS_PER_S) /* a turn may be for its layers, and pages kept for them */
#define MM_PATIENCE_NS    (2 * MM_NS_PER_S) /* of waiting, then accounts' weights do not count */
#define MM_CLAIM_NS       MM_NS_PER_S /* between two searches for sets because claims have changed */
#define MM_CREATE_BATCH   MM_FD_BATCH_MAX
#define MM_RETRY_BATCH    16
#define MM_ACCOUNTS_SPARE 16 /* entries that are kept free for newcomers */

enum mm_life { MM_LIFE_NONE, MM_LIFE_LIVE, MM_LIFE_ENDING, MM_LIFE_PROVEN };
enum mm_suspect { MM_SUSPECT_NOT, MM_SUSPECT, MM_SUSPECT_SEEN };
enum mm_c_model_state {
	MM_C_MODEL_NONE,
	MM_C_MODEL_WAITING,
	MM_C_MODEL_LOADING,
	MM_C_MODEL_SWITCHED,
	MM_C_MODEL_READY
};

struct mm_c_group {
	uint64_t store_offset;
	uint64_t bytes;
	uint32_t entry; /* first, in the map table */
	uint32_t pages;
};

/* These belong to the floors above: only their files can look into them. */
struct mm_change;
struct mm_c_sets;
struct mm_c_swap;
struct mm_plans;
struct mm_wish;
struct mm_c_lends;
struct mm_c_turn;
struct mm_market;

struct mm_c_tenant {
	enum mm_life life;
	uint32_t id; /* index, tag, generation: core.h */
	uint32_t account;
	uint64_t features;
	bool connected, bye, dead, kicked, killed;
	uint64_t revoke_at_ns;
	uint64_t ask_until_ns; /* by when it is to give what its account must; 0: nothing */
	uint64_t stopped_ns;   /* since when the ladder knows it stopped; 0: it runs */
	bool judging;          /* the shell looks at it */
	bool overdue;          /* its deadline passed and it lives */
	enum mm_suspect
		suspect; /* since a memory error; SEEN: it was at suspect_steps after that */
	uint64_t suspect_steps;

	/* xfer */
	bool attached;   /* since its join, until DETACH is done */
	uint32_t ctl;    /* slot + 1 of its one control job */
	uint32_t copies; /* COPY jobs under way */

	/* model */
	enum mm_c_model_state model;
	uint64_t model_since_ns;
	bool has_store;
	uint32_t n_layers, entries;
	uint64_t layer_bytes_max;
	struct mm_c_group group[MM_LAYERS_MAX + 1];
	uint32_t layer_pages[MM_LAYERS_MAX + 1];
	uint32_t *own;                /* page of each model entry that has its own */
	uint32_t *map;                /* the table as given out: page + 1 */
	uint32_t map_end, kv_map_end; /* no entry of the model, of KV was used at or above it */
	uint32_t slot_page[MM_SLOTS_MAX][MM_SLOT_PAGES_MAX];

	/* plan */
	struct mm_core_plan plan;
	struct mm_change *change;
	struct mm_c_sets *sets;
	struct mm_c_swap *swap;
	struct mm_c_kv kv;
	struct mm_c_load load;

	/* market */
	struct mm_wish *wish;
	struct mm_c_lends *lends;
	struct mm_c_turn *turn;
};

struct mm_core {
	struct mm_core_opts opts;
	uint64_t now_ns;
	uint64_t settled_ns; /* the last time */
	struct mm_ledger ledger;
	struct mm_account *account;
	uint32_t accounts_end; /* no index in use at or above it */
	struct mm_c_mins *mins;
	uint64_t coming; /* changes so far of what is on its way; when all is looked at anew, too */
	uint64_t
		waiting; /* changes so far of what tenants wait for, or whether they count as idle */
	uint64_t min_sum;        /* of all accounts */
	uint64_t quota_revision; /* of the last change of any */
	uint64_t served;         /* the most that an account was at when it was granted a chunk */
	uint64_t departures;
	uint64_t kill_ns[MM_KILLS_MAX]; /* when, the last ones; 0: never */
	uint32_t lost;                  /* pages out of use that nobody is charged for */
	bool mins_covered; /* what is unused of the mins is free, and nobody can hold it */

	struct mm_queue queue;
	struct mm_jobs jobs; /* jobs_max for bulk, then one per tenant for control */
	bool xfer_up;
	uint32_t create_next;
	uint64_t create_retry_ns, quarantine_retry_ns;
	uint32_t quarantine_retries; /* left of this round */

	struct mm_c_tenant *tenant;
	uint32_t tenants_end; /* no index in use at or above it */
	uint16_t generation[MM_TENANTS_LIMIT];
	uint32_t entries_max;

	struct mm_plans *plans;
	struct mm_market *market;
	struct mm_c_copies copies;

	struct mm_core_stats stats;
	uint32_t *scratch;  /* of mm_core_check(), one per page */
	uint32_t copy_turn; /* which tenant's copies are issued first */
	uint32_t *storage;  /* the tenants' tables */
};

#define MM_FOREACH_TENANT(c, t)                                                            \
	for (struct mm_c_tenant *t = (c)->tenant; t < (c)->tenant + (c)->tenants_end; t++) \
		if (t->life != MM_LIFE_NONE)

/* A time of the controller's, as it passes here. */
static inline uint64_t mm_c_time(const struct mm_core *c, uint64_t ns)
{
	return ns * c->opts.time_scale;
}

/* To be called when what tenants wait for, or whether they count as idle, has changed. */
static inline void mm_c_sum_anew(struct mm_core *c)
{
	c->waiting++;
}

/* To be called when other pages are on their way than before, or time has passed. */
static inline void mm_c_expect_anew(struct mm_core *c)
{
	c->coming++;
}

static inline uint32_t mm_c_index(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return (uint32_t)(t - c->tenant);
}
