/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state - what is inside struct mm_core; for the files of this folder only
 *
 * Concept:    The core is one struct of plain parts: ledger, accounts, jobs, tenants, a queue of
 *             actions. Its files split by what happens to a tenant: life.c (joins, ends), kv.c (chunks),
 *             change.c (model load and plan changes: the table in change.h), jobs.c (xfer), controller.c
 *             (when, whose, how many), settle.c (what every event ends with), check.c (invariants).
 * Settling:   an event changes state, then mm_c_settle() does everything that has become possible. It is
 *             idempotent: settling twice without an event between does nothing the second time.
 */
#pragma once

#include "libclient/protocol/xplan.h"
#include "mmd/core/account.h"
#include "mmd/core/change.h"
#include "mmd/core/core.h"
#include "mmd/core/jobs.h"
#include "mmd/core/layers.h"
#include "mmd/core/ledger.h"
#include "mmd/core/load.h"
#include "mmd/core/plan.h"
#include "mmd/core/queue.h"

#define MM_KV_ENTRIES (MM_MAP_ENTRIES - MM_MAP_KV_BASE)

#define MM_MODEL_WAIT_NS  (30 * MM_NS_PER_S)   /* for pages, before a model is refused */
#define MM_CHANGE_SLOW_NS (250 * MM_NS_PER_MS) /* a change that takes longer is not counted on */
#define MM_DENY_NS        (20 * MM_NS_PER_MS)  /* least time between denials to one tenant */
#define MM_RETRY_NS       MM_NS_PER_S          /* of quarantined pages and of pages not created */
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
enum mm_model_state {
	MM_MODEL_NONE,
	MM_MODEL_WAITING,
	MM_MODEL_LOADING,
	MM_MODEL_SWITCHED,
	MM_MODEL_READY
};

struct mm_c_group {
	uint64_t store_offset;
	uint64_t bytes;
	uint32_t entry; /* first, in the map table */
	uint32_t pages;
};

/* Pages that are being filled for a tenant before its next SWITCH. */
struct mm_c_preload {
	uint32_t n, issued, done;
	uint32_t *entry; /* MM_NO_PAGE: for a slot, to be filled by streaming */
	uint32_t *page;
	int error; /* the first one that a copy reported */
	bool sent; /* the tenant has them: they come back by proof only */
};

/* KV memory that it holds. */
struct mm_c_kv {
	bool declared;
	uint32_t chunk_pages; /* all ranges */
	uint32_t ranges;
	uint32_t chunks_max;
	uint32_t share;
	uint32_t held;
	uint64_t releases; /* requests that it has made so far */
	uint64_t held_map[MM_KV_ENTRIES / 64];
};

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
	uint64_t bytes; /* 0: none */
	uint32_t jobs;  /* of all lists */
	uint32_t turn;  /* the list that goes on first */
	struct mm_c_swap_list list[MM_SWAP_LOTS];
};

#define MM_C_WEIGHT_BITS 16 /* after the point of a layer's weight */

/* Sets that were chosen already, from the plan that is in force: choosing is asked for often. */
#define MM_C_SETS 32 /* what one bisection over alpha asks for, with one slot and with two */
struct mm_c_sets {
	bool valid;
	uint64_t epoch, t_c_ns, t_t_ns; /* that they were chosen for */
	uint64_t times_ns;              /* when those times were taken up */
	uint32_t next;                  /* to be overwritten */
	struct mm_c_chosen {
		uint32_t alpha, beta; /* beta 0: nothing here */
		bool nested;
		uint64_t copies; /* pages to preload */
		struct mm_plan_set set;
	} chosen[MM_C_SETS];
};

struct mm_wish;
struct mm_c_lends;
struct mm_c_turn;

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
	enum mm_model_state model;
	uint64_t model_since_ns;
	bool has_store;
	uint32_t n_layers, entries;
	uint64_t layer_bytes_max;
	uint32_t alpha_max, alpha_max_two;    /* with one slot, with two */
	bool uneven;                          /* its layers differ: layers.h, not plan.h */
	uint32_t c_weight[MM_LAYERS_MAX + 1]; /* a layer's computation: of the mean's */
	uint32_t t_weight[MM_LAYERS_MAX + 1]; /* its transfer: of the largest one's */
	struct mm_c_group group[MM_LAYERS_MAX + 1];
	uint32_t layer_pages[MM_LAYERS_MAX + 1];
	uint32_t *own;                /* page of each model entry that has its own */
	uint32_t *map;                /* the table as given out: page + 1 */
	uint32_t map_end, kv_map_end; /* no entry of the model, of KV was used at or above it */
	uint32_t slot_page[MM_SLOTS_MAX][MM_SLOT_PAGES_MAX];

	/* plan */
	struct mm_core_plan plan;
	struct mm_plan_set set, next_set;
	uint32_t next_alpha;
	struct mm_c_preload pre;
	uint64_t change_ns;   /* when the change under way began */
	uint64_t spent_ns;    /* its changes so far last until then, at one each opts.change_ns */
	uint64_t change_gain; /* pages that it sets free */
	struct mm_change change;
	uint32_t target;        /* alpha that the controller wants */
	uint64_t retry_ns;      /* no change before; after one failed */
	struct mm_c_sets *sets; /* a cache: no state */
	uint64_t claims;        /* how often its layers were weighed anew */

	struct mm_c_kv kv;
	struct mm_wish *wish;
	struct mm_c_lends *lends;
	struct mm_c_swap swap;
	struct mm_c_load load;
	struct mm_c_turn *turn;
};

/* What is unused of the mins, and of which pages and quotas that was worked out. */
struct mm_c_mins {
	uint64_t changes, revision;
	uint64_t all;
	uint64_t shortfall;                 /* of pages of no domain that they need */
	uint64_t unused[MM_ACCOUNTS_LIMIT]; /* by domain */
};

struct mm_market;

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
	bool mins_stand; /* what is unused of the mins is free, and nobody can hold it */

	struct mm_queue queue;
	struct mm_jobs jobs; /* jobs_max for bulk, then one per tenant for control */
	bool xfer_up;
	uint32_t create_next;
	uint64_t create_retry_ns, quarantine_retry_ns;
	uint32_t quarantine_retries; /* left of this round */

	struct mm_c_tenant *tenant;
	struct mm_c_sets *sets; /* one per tenant */
	uint32_t tenants_end;   /* no index in use at or above it */
	uint16_t generation[MM_TENANTS_LIMIT];
	uint32_t entries_max;

	struct mm_market *market;
	struct mm_c_copies copies;

	struct mm_core_stats stats;
	uint32_t *scratch; /* of mm_core_check(), one per page */
	uint32_t *spill;   /* of one change: pages that found no place yet, room for all */
	uint32_t n_spill;
	uint32_t copy_turn;                /* which tenant's copies are issued first */
	uint32_t *storage;                 /* the tenants' tables */
	struct mm_swap_piece *swap_pieces; /* [tenants_max][MM_SWAP_LOTS][MM_SWAP_PIECES] */
};

#define MM_FOREACH_TENANT(c, t)                                                            \
	for (struct mm_c_tenant *t = (c)->tenant; t < (c)->tenant + (c)->tenants_end; t++) \
		if (t->life != MM_LIFE_NONE)

/* A time of the controller's, as it passes here. */
static inline uint64_t mm_c_time(const struct mm_core *c, uint64_t ns)
{
	return ns * c->opts.time_scale;
}

/* What tenants wait for, or whether they count as idle, has changed. */
static inline void mm_c_sum_anew(struct mm_core *c)
{
	c->waiting++;
}

/* What is on its way has changed, or time has passed. */
static inline void mm_c_expect_anew(struct mm_core *c)
{
	c->coming++;
}

static inline uint32_t mm_c_index(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return (uint32_t)(t - c->tenant);
}

/* pages.c: the ledger and the accounts together */
bool mm_c_reservable(const struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages);
uint32_t mm_c_reserve(struct mm_core *c, struct mm_c_tenant *t);
void mm_c_drop(struct mm_core *c, uint32_t page);
void mm_c_scrubbed(struct mm_core *c, uint32_t page);
void mm_c_quarantine(struct mm_core *c, uint32_t page, bool poisoned);
bool mm_c_job_on_page(struct mm_core *c, enum mm_xop op, uint32_t page, uint32_t *ret_job);
void mm_c_scrub_all(struct mm_core *c);
void mm_c_create_all(struct mm_core *c);
void mm_c_retry_quarantine(struct mm_core *c);

/* health.c */
/* Whatever is in use now. */
void mm_c_suspect(struct mm_core *c);
/* It has done so many steps. */
void mm_c_acquit(struct mm_core *c, struct mm_c_tenant *t, uint64_t steps);
void mm_c_quarantine_suspect(struct mm_core *c, uint32_t page);

/* quota.c */
/* Pages that an account must give. */
uint64_t mm_c_over(const struct mm_core *c, uint32_t account);
/* A new entry of that key; NULL: full. */
struct mm_account *mm_c_account_named(struct mm_core *c, uint64_t account);
/* The operator's word, which was checked. */
void mm_c_quota_put(struct mm_core *c, struct mm_account *a, const struct mm_core_quota *quota);
/* It is not in force yet. */
bool mm_c_quota_is_pending(const struct mm_core *c, const struct mm_account *a);
/* The entry that a newcomer's account has from now on; NULL: full. */
struct mm_account *mm_c_account_of(struct mm_core *c, const struct mm_core_join *join);
/* Free pages that @account may be granted as they are, others' mins being kept. */
uint64_t mm_c_grantable(const struct mm_core *c, uint32_t account);
/* Of the pages that its domain may have as they are, what is kept for others. */
uint64_t mm_c_kept_from(const struct mm_core *c, uint32_t account);
/* Makes free pages of other domains grantable for @account, so that @pages will be. */
void mm_c_convert(struct mm_core *c, uint32_t account, uint64_t pages);
/* What is unused of all mins. */
uint64_t mm_c_unused_mins(const struct mm_core *c);
/* Pages that may be taken from @account for others: what it has beyond its min. */
uint64_t mm_c_excess(const struct mm_core *c, uint32_t account);
/* Creates pages anew that the mins need. */
void mm_c_guard(struct mm_core *c);
/* Pages that come back are to be created anew, not only scrubbed: a min needs them. */
bool mm_c_scrub_recreates(const struct mm_core *c);
void mm_c_recycle(struct mm_core *c);
/* Pages of no domain that the mins lack and that are not on their way. */
uint64_t mm_c_mins_missing(const struct mm_core *c);
/* kv.c */
/* 0; or why not: -EEXIST, -EINVAL, -E2BIG. */
int mm_c_kv_declare(const struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
uint32_t mm_c_kv_chunk_page(const struct mm_c_tenant *t, uint32_t chunk, uint32_t i);
bool mm_c_kv_holds(const struct mm_c_tenant *t, uint32_t chunk);
/* Gives it one chunk more; the caller knows that its pages can be reserved. */
void mm_c_kv_give(struct mm_core *c, struct mm_c_tenant *t);
/* It gave @chunk back, which it held. */
void mm_c_kv_drop(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunk);

/* sets.c: which layers, for this tenant's model. alpha counts mean layers' worth of pages. */
/* A model was laid out that may cycle. */
void mm_c_sets_init(struct mm_c_tenant *t);
/* What it says about its layers' computation has changed. */
void mm_c_sets_claim(struct mm_c_tenant *t);
/* What was measured is the mean of the layers that cycle. Returns what its largest layer would take. */
uint64_t mm_c_sets_largest_ns(const struct mm_c_tenant *t, uint64_t mean_ns);
/* Pages of a layer, on average. */
uint64_t mm_c_layer_pages(const struct mm_c_tenant *t);
/* Can @alpha be away with @beta slots? */
bool mm_c_alpha_possible(const struct mm_c_tenant *t, uint32_t alpha, uint32_t beta);
/* Pages that @alpha sets free, at least. */
uint64_t mm_c_away_pages(const struct mm_c_tenant *t, uint32_t alpha);
uint64_t mm_c_slots_pages(const struct mm_c_tenant *t, const struct mm_plan_set *set);
/* Pages for slots beyond those of the old slots and of the layers that leave. */
uint64_t mm_c_blank_pages(const struct mm_c_tenant *t, const struct mm_plan_set *next);
/*
 * The set, slots included, that @alpha would mean. @slots: how many it is to have where neither the model nor the
 * operator says it; 0: whichever makes the shorter step. Return: pages that it needs.
 */
uint64_t mm_c_change_set(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha,
			 uint32_t slots, uint64_t budget_pages, struct mm_plan_set *ret_set);
/* By what was measured: a step with this set; does streaming make no step longer. */
/* With other times of a mean layer's computation and a largest one's transfer. */
uint64_t mm_c_set_step_at(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			  uint64_t t_c_ns, uint64_t t_t_ns);
/* Its transfers in a step. */
uint64_t mm_c_set_stream_ns(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			    uint64_t t_t_ns);
uint64_t mm_c_set_step_ns(const struct mm_core *c, const struct mm_c_tenant *t,
			  const struct mm_plan_set *set);
bool mm_c_set_hidden(const struct mm_core *c, const struct mm_c_tenant *t,
		     const struct mm_plan_set *set);
