/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_core - everything that mmd decides, and nothing that it does
 *
 * Concept:   One object holds the ledger of a pool, the accounts, the tenants with their plans, KV
 *            wishes and pending plan changes, and the controller. The shell tells it what happened
 *            (mm_core_on_*), and takes out what to do (mm_core_next). Given the same calls with the
 *            same times it produces the same actions: the daemon, the simulator and the fuzzers
 *            drive this very code.
 * Ownership: the core owns all pages' states; a page is named by its id, a tenant by its index
 *            (reused only after its pages are proven free) with the core's tag and a generation.
 * Threading: one thread. No locks, system calls, clock, allocation after create, logging, floats.
 * Errors:    mm_core_on_*: 0, or a positive enum mm_outcome when the *peer* did what it must not:
 *            the shell then kicks that peer. Nothing here fails for want of memory after create.
 * Queue:     it is empty, by mm_core_next(), before each mm_core_on_*, mm_core_plan_set(),
 *            mm_core_account_add() and mm_core_quota_set(), but for those that say otherwise:
 *            asserted.
 * Order:     actions are to be performed in the order given. Those for one tenant's connection
 *            (FDS, MAP, EVENT) form one FIFO: an event goes out after the fds before it were
 *            acknowledged.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"

#define MM_TENANTS_DEFAULT  64
#define MM_TENANTS_LIMIT    1024
#define MM_ACCOUNTS_DEFAULT 128
#define MM_ACCOUNTS_LIMIT   1024
#define MM_TAGS_MAX         64
#define MM_NO_PAGE          UINT32_MAX
#define MM_LAYER_WORDS      16 /* a bit per layer */
#define MM_NO_TENANT        UINT32_MAX

#define MM_WEIGHT_DEFAULT 100
#define MM_WEIGHT_MAX     10000
#define MM_PRIORITY_MAX   1000
#define MM_KILLS_MAX      64

#define MM_TURN_QUANTUM_BOUND_NS UINT64_C(2000000000)  /* of an account, by default */
#define MM_TURN_QUANTUM_LIMIT_NS UINT64_C(60000000000) /* the most that an operator may grant */

/* A tenant's id: its index, which the shell may use for tables; the core's tag; a generation. */
#define MM_TENANT_INDEX(tenant)    ((tenant) & (MM_TENANTS_LIMIT - 1))
#define MM_TENANT_TAG_SHIFT        10
#define MM_TENANT_GENERATION_SHIFT 16

struct mm_core;

/* What happens to a process that does not give back what was asked back in time. */
enum mm_on_timeout { MM_ON_TIMEOUT_KILL, MM_ON_TIMEOUT_QUARANTINE, MM_ON_TIMEOUTS };

enum mm_lend_order { MM_LEND_MRU = 1, MM_LEND_LRU };
enum mm_switch { MM_SWITCH_ON = 1, MM_SWITCH_OFF };

#define MM_CHANGES_AT_ONCE 16 /* of a tenant's plan, when it has not changed for 16 * change_ns */

struct mm_core_opts {
	uint32_t pages; /* of the pool */
	uint64_t page_bytes;
	enum mm_policy policy;
	uint32_t tenants_max;  /* at once; 0 = MM_TENANTS_DEFAULT */
	uint32_t accounts_max; /* entries, those kept free for newcomers included; 0 = default */
	uint64_t account_max_pages; /* default max of an account; 0 = the pool */
	uint32_t jobs_max;          /* xfer jobs outstanding at once; 0 = 256 */
	uint8_t tag; /* of this core among several, below MM_TAGS_MAX: part of its tenants' ids */
	uint32_t slots;                /* of a plan: 1 or 2; 0 = whichever makes the shorter step */
	enum mm_on_timeout on_timeout; /* default of an account */
	uint64_t turn_quantum_max_ns;  /* the same; up to MM_TURN_QUANTUM_LIMIT_NS; 0 = a default */
	uint32_t turn_priority_max;    /* the same; up to MM_TURN_PRIORITY_MAX */
	uint64_t swap_max_bytes;       /* of all tenants' swap spaces; 0 = none may have one */
	uint64_t swap_account_max_bytes; /* of one account's; 0 = as all */
	bool full_drain; /* no step runs while a plan changes, whatever a tenant can do */
	/* controller's knobs: knobs.h; 0 = the default there. Times before time_scale */
	uint32_t lend_order;        /* enum mm_lend_order */
	uint32_t reversion;         /* enum mm_switch */
	uint32_t lend_max_permille; /* of an idle model's layers that may be away */
	uint32_t link_permille;     /* of the link's time that streaming may take */
	uint32_t slow_permille;     /* by which streaming may make an active model's steps longer */
	uint32_t wake_permille;     /* the same, those of an idle one if it ran */
	uint32_t turn_rotate;       /* enum mm_switch */
	uint32_t turn_prefetch;     /* enum mm_switch */
	uint32_t turn_parts;        /* enum mm_switch */
	uint32_t turn_cost_permille; /* of a turn that bringing its holder's layers home may take */
	uint64_t idle_ns;            /* without an open step and without work = idle */
	uint64_t dwell_ns;           /* least time between a take and the giving back */
	uint64_t change_ns;          /* between a tenant's plan changes on average, at least */
	uint32_t recall;     /* enum mm_switch: KV in use, for who stalls most of the time */
	uint32_t forecast;   /* enum mm_switch */
	uint64_t ahead_ns;   /* of demand's slope that is taken ahead */
	uint64_t reclaim_ns; /* deadline that a KV_RECLAIM carries */
	uint32_t time_scale; /* all times of the controller, and turns', times this */
	/* ladder; 0 = the default that tune.h states */
	uint64_t revoke_ns; /* from the end of a connection to on_timeout */
	uint64_t ask_ns;    /* from asking for what an account must give to on_timeout */
	uint64_t stop_ns;   /* more, for a process that is stopped, traced or frozen */
	uint64_t kill_window_ns;
	uint32_t kill_max; /* kills within the window; up to MM_KILLS_MAX */
};

/* ---- actions ---- */

enum mm_action_kind {
	MM_ACT_NONE,
	MM_ACT_JOB,   /* msg: push to xfer (opcode MM_XOP_*, user_data = job id) */
	MM_ACT_FDS,   /* page: queue its fd for tenant; page_count pages in page[] */
	MM_ACT_MAP,   /* map table: entry = page + 1, or 0 where page is MM_NO_PAGE */
	MM_ACT_EVENT, /* msg: push to tenant */
	MM_ACT_GATE, /* gate[layer] = word (xfer is quiescent on tenant, tenant is parked or new) */
	MM_ACT_PLAN, /* write the xplan region from mm_core_plan(), and unless entry != 0 (xfer serves on,
		      * a REPLAN follows) the cursors */
	MM_ACT_OPEN, /* entry layers of the plan of epoch word are mapped now: into the xplan region */
	MM_ACT_ABORT,      /* set MM_GATE_ABORT in every gate of tenant */
	MM_ACT_KICK,       /* close the connection; reason; its pages wait for proof */
	MM_ACT_KILL,       /* SIGKILL by pidfd; reason */
	MM_ACT_JUDGE,      /* look whether it is stopped, then mm_core_on_judged() */
	MM_ACT_ALARM,      /* tell the operator; reason */
	MM_ACT_MODEL_DROP, /* tenant's reference to its store ends */
	MM_ACT_FORGET, /* tenant: all pages proven free, index may be reused; drop shell state */
};

struct mm_action {
	enum mm_action_kind kind;
	uint32_t tenant;
	uint32_t page;
	uint32_t entry; /* MM_ACT_MAP: index in the map table; MM_ACT_GATE: layer */
	uint64_t word;  /* MM_ACT_GATE */
	struct mm_msg msg;
	const char *reason; /* static string */
};

/* ---- life ---- */

/**
 * mm_core_create() - a core over a pool whose pages do not exist yet
 * @opts:     copied
 * @ret_core: written only on success; give back with mm_core_destroy()
 *
 * The only call that allocates. Return: 0; -ENOMEM; -EINVAL.
 */
int mm_core_create(const struct mm_core_opts *opts, struct mm_core **ret_core);
struct mm_core *mm_core_destroy(struct mm_core *core);

/**
 * mm_core_next() - take out the next thing to do
 * @core:       any
 * @ret_action: written when true
 *
 * Return: false when there is nothing to do until the next event.
 */
bool mm_core_next(struct mm_core *core, struct mm_action *ret_action);

/**
 * mm_core_deadline() - when mm_core_on_tick() is due at the latest
 * @core: any
 *
 * Return: CLOCK_MONOTONIC ns; UINT64_MAX never.
 */
uint64_t mm_core_deadline(const struct mm_core *core);

/* ---- what happened: time ---- */

void mm_core_on_tick(struct mm_core *core, uint64_t now_ns);

/* ---- what happened: xfer ---- */

/*
 * xfer stands (first or again). First: pages are created by jobs. Again: running jobs are reissued.
 */
void mm_core_on_xfer_up(struct mm_core *core, uint64_t now_ns, uint64_t xfer_epoch);
/* May come while the queue is being emptied. */
void mm_core_on_xfer_down(struct mm_core *core, uint64_t now_ns);
/*
 * The one that is down ended by its own fault: a crash, an error, a lie, silence; not a SIGKILL
 * from outside. Its oldest job is the suspect, and is given up at the second such end.
 */
void mm_core_on_xfer_fault(struct mm_core *core, uint64_t now_ns);
/* A completion. MM_E_PROTOCOL: no such job. */
int mm_core_on_job_done(struct mm_core *core, uint64_t now_ns, uint64_t job, int result);

/*
 * The device had a memory error that it contained. Whose memory is not told: pages that are in use
 * are quarantined when they come free, and created anew; those of tenants that go on computing are
 * not.
 */
void mm_core_on_memory_error(struct mm_core *core, uint64_t now_ns);

/* ---- what happened: tenants ---- */

struct mm_core_join {
	uint64_t account; /* key, e.g. uid */
	uint64_t features;
	uint64_t account_max_pages; /* of an account that the operator did not name; 0 = default */
};

/* MM_E_FULL: too many tenants or accounts. */
int mm_core_on_join(struct mm_core *core, uint64_t now_ns, const struct mm_core_join *join,
		    uint32_t *ret_tenant);
/* Its connection ended or broke; the process may live on: pages wait for death, then SIGKILL. */
void mm_core_on_disconnect(struct mm_core *core, uint64_t now_ns, uint32_t tenant);
/* Its process is dead (pidfd) and its connection closed. */
void mm_core_on_dead(struct mm_core *core, uint64_t now_ns, uint32_t tenant);
/*
 * The shell looked at it: @stopped by a signal, traced or frozen. May come while the queue is being
 * emptied.
 */
void mm_core_on_judged(struct mm_core *core, uint64_t now_ns, uint32_t tenant, bool stopped);
/* Whether the kill-rate breaker is open, and how many kills it allows within its window. */
void mm_core_kills(const struct mm_core *core, bool *ret_open, uint32_t *ret_max);
/* A request from its ring (not MODEL_OPEN and FDS_ACK: the shell's). MM_E_PROTOCOL: kick it. */
int mm_core_on_request(struct mm_core *core, uint64_t now_ns, uint32_t tenant,
		       const struct mm_msg *msg);
/* Its statistics, a private copy, whenever the shell looks (at ticks). Claims. */
void mm_core_on_stats(struct mm_core *core, uint64_t now_ns, uint32_t tenant,
		      const struct mm_tenant_stats *stats);

/*
 * It asks for a swap space: 0: granted and charged, the shell makes it; -EDQUOT; -EEXIST; -EINVAL:
 * it has no arena. Where the shell cannot make it, mm_core_on_swap_failed() takes the charge back.
 */
int mm_core_on_swap_open(struct mm_core *core, uint64_t now_ns, uint32_t tenant, uint64_t bytes);
void mm_core_on_swap_failed(struct mm_core *core, uint32_t tenant);
/* MM_OP_SWAP, with a private copy of its msg->arg[1] pieces, at most MM_SWAP_PIECES. */
int mm_core_on_swap(struct mm_core *core, uint64_t now_ns, uint32_t tenant,
		    const struct mm_msg *msg, const struct mm_swap_piece *pieces);

struct mm_core_group {
	uint64_t store_offset;
	uint64_t bytes;
};

/*
 * Before its model is read: can one of so many pages ever be granted to it, with nobody else on the
 * pool? A model is granted all of its pages before layers may cycle. MM_REFUSED_NO: it can.
 * MM_REFUSED_DEVICE, MM_REFUSED_QUOTA: not on this pool, in its account; *ret_max_pages is the most
 * that can be.
 */
enum mm_refusal mm_core_model_fits(const struct mm_core *core, uint32_t tenant, uint64_t pages,
				   uint64_t *ret_max_pages);

/*
 * Its model stands in the host store: grant its pages, copy, SWITCH, MODEL_READY. The groups were
 * validated by the shell against the store's size. Refusals go to the tenant as MODEL_READY < 0.
 */
int mm_core_on_model(struct mm_core *core, uint64_t now_ns, uint32_t tenant, uint64_t store,
		     uint64_t store_bytes, const struct mm_core_group *groups, uint32_t n_groups);
/* What xfer measured while streaming a layer (T_T of the planner). */
void mm_core_on_streamed(struct mm_core *core, uint32_t tenant, uint64_t layer_ns);

/* ---- what the operator asks ---- */

/* By hand: alpha layers of the tenant's model away, through @slots slots (0 = automatic), until the
 * next mm_core_plan_set(alpha -1 = automatic).
 * 0; MM_E_RANGE: not possible for this model, *ret_max says what is; MM_E_STALE: no model. */
int mm_core_plan_set(struct mm_core *core, uint64_t now_ns, uint32_t tenant, int32_t alpha,
		     uint32_t slots, uint32_t *ret_max);

/* What an account may have: the operator's word. */
struct mm_core_quota {
	uint64_t min_pages; /* kept for it: nobody else is granted them */
	uint64_t max_pages; /* 0, or more than the pool has = the pool */
	uint32_t weight;    /* 1 to MM_WEIGHT_MAX; 0 = MM_WEIGHT_DEFAULT */
	uint32_t priority;  /* up to MM_PRIORITY_MAX; the higher gets first and gives last */
	enum mm_on_timeout on_timeout;
	uint64_t
		turn_quantum_max_ns; /* what a tenant may ask for; 0 = the default of all accounts */
	uint32_t turn_priority_max;  /* what it may ask for, up to MM_TURN_PRIORITY_MAX; 0 is 0 */
};

/*
 * An account by name, before anybody of it joins: it stays. @domain: the key of an account that
 * stays and whose domain it joins; its own key: none. 0; MM_E_FULL; MM_E_QUOTA:
 * mm_core_quota_check() says why; MM_E_STALE: no such domain, or the account exists.
 */
int mm_core_account_add(struct mm_core *core, uint64_t account, uint64_t domain,
			const struct mm_core_quota *quota);

enum mm_quota_outcome {
	MM_QUOTA_APPLIED,  /* in force */
	MM_QUOTA_DEFERRED, /* more is used than it allows, or its min is not free yet: asked back */
	MM_QUOTA_STALE,    /* @revision is not the present one: nothing was changed */
	MM_QUOTA_CONFLICT, /* contradicts itself, the pool or the other accounts' mins: nothing was changed */
	MM_QUOTA_OUTCOMES
};

/* NULL: @account may have @quota; else what contradicts, a static string. */
const char *mm_core_quota_check(const struct mm_core *core, uint64_t account,
				const struct mm_core_quota *quota);
/*
 * Changes a quota; an account without entry gets one that stays. @revision: what the caller
 * believes to be the present one, 0: does not matter.
 */
enum mm_quota_outcome mm_core_quota_set(struct mm_core *core, uint64_t now_ns, uint64_t account,
					uint64_t revision, const struct mm_core_quota *quota);

struct mm_core_account {
	uint64_t account; /* key */
	uint64_t domain;  /* key of the account whose domain it is in */
	struct mm_core_quota quota;
	uint64_t revision; /* of the last change; counts over all accounts, never repeats */
	uint32_t charged, quarantined, tenants;
	bool stays;
	bool pending;           /* its last change is not in force yet */
	uint32_t overdue_pages; /* asked back in vain: charged, as quarantined ones are */
};

/* No account has this index or a higher one. */
uint32_t mm_core_accounts_end(const struct mm_core *core);
/* By index; false: no account there. */
bool mm_core_account(const struct mm_core *core, uint32_t index, struct mm_core_account *ret);
/* By key. */
bool mm_core_account_find(const struct mm_core *core, uint64_t account,
			  struct mm_core_account *ret);
/* What an account has that the operator did not name. */
void mm_core_quota_default(const struct mm_core *core, struct mm_core_quota *ret_quota);

/* ---- looking in (status, plan region, tests) ---- */

enum mm_page_state {
	MM_PAGE_NONE, /* not created yet */
	MM_PAGE_FREE,
	MM_PAGE_DIRTY,
	MM_PAGE_SCRUBBING,
	MM_PAGE_PARAM,
	MM_PAGE_SLOT,
	MM_PAGE_KV,
	MM_PAGE_REVOKING,
	MM_PAGE_QUARANTINE,
	MM_PAGE_STATES
};

struct mm_core_stats {
	uint64_t pages[MM_PAGE_STATES];
	uint64_t grants, takes, returns, plan_changes, denials, reclaims, kicks, kills;
	/* so often a tenant's plan had been changed as often as it may be: the next change waits */
	uint64_t plan_changes_limited;
	/* the ladder: overdue and not killed; of those, by the breaker; our own lateness */
	uint64_t overdue, kills_withheld, deadlines_restarted;
	uint32_t tenants;
	uint64_t memory_errors;
	uint64_t suspects; /* pages marked by them now */
	uint64_t suspects_quarantined;
	uint64_t turns, turns_overdue; /* begun; taken away from who did not give them back */
	uint32_t turn_holder;          /* tenant; MM_NO_TENANT: nobody */
	uint32_t alpha_sum;            /* layers remapped now, all tenants */
	uint32_t alpha_sum_max;
};

enum mm_plan_phase {
	MM_PLAN_STEADY,
	MM_PLAN_PRELOAD,
	MM_PLAN_PREPARED,
	MM_PLAN_QUIESCING,
	MM_PLAN_SWITCHED
};

struct mm_core_slot {
	uint32_t n_layers;
	uint32_t n_pages;
	bool in_place; /* a new one, layer[0] is in it already: cursor HELD, else COPYING */
	uint16_t layer[MM_LAYERS_MAX + 1];
};

struct mm_core_plan {
	uint64_t epoch;
	uint32_t alpha, beta, m, n_layers;
	int32_t alpha_by_hand;  /* -1 = automatic */
	uint32_t slots_by_hand; /* 0 = automatic */
	uint64_t store;
	uint64_t closed[MM_LAYER_WORDS]; /* layers that stay so until the tenant has mapped them */
	struct mm_core_slot slot[2];
};

struct mm_core_tenant {
	uint32_t tenant;
	uint64_t account;
	uint32_t pages_param, pages_slot, pages_kv, pages_revoking;
	uint32_t kv_chunks, kv_wanted, kv_chunks_max;
	uint64_t swap_bytes; /* of host memory that it may swap KV to */
	bool idle, model_ready;
	bool attached; /* xfer serves it, or may: DETACH is not done */
	enum mm_turn_mode turn_mode;
	bool turn_waits; /* it has work, and it is not its turn */
	uint64_t turns, turns_overdue;
};

void mm_core_stats(const struct mm_core *core, struct mm_core_stats *ret_stats);
/* false: no such tenant. */
bool mm_core_tenant(const struct mm_core *core, uint32_t tenant, struct mm_core_tenant *ret_tenant);
/* The plan that is in force, or that is being switched to (for MM_ACT_PLAN). NULL: no model. */
const struct mm_core_plan *mm_core_plan(const struct mm_core *core, uint32_t tenant);
/* Of the change under way, in few words. */
enum mm_plan_phase mm_core_plan_phase(const struct mm_core *core, uint32_t tenant);
/* Pages of a slot, n_pages of them. */
uint32_t mm_core_slot_page(const struct mm_core *core, uint32_t tenant, uint32_t slot, uint32_t i);
enum mm_page_state mm_core_page(const struct mm_core *core, uint32_t page, uint32_t *ret_tenant);

/*
 * Panics where an invariant that the core can see is broken: every page is in one state and the
 * counts sum up; accounts' charges equal their pages and are within max; every map entry that the
 * core gave out names a page of that tenant; no page serves two purposes.
 */
void mm_core_check(const struct mm_core *core);
