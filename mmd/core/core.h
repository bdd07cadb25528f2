/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_core - everything that mmd decides, and nothing that it does
 *
 * Concept:   One object holds the ledger of a pool, the accounts, the tenants with their plans, KV
 *            demands and pending plan changes, and the controller. The shell reports events to it
 *            (mm_core_on_*) and takes out the actions to perform (mm_core_next). The same calls
 *            with the same times produce the same actions: the daemon, the simulator and the
 *            fuzzers drive the same code.
 * Ownership: the core owns all pages' states; a page is named by its id, a tenant by its index
 *            (reused only after its pages are proven free) with the core's tag and a generation.
 * Threading: one thread. No locks, system calls, clock, allocation after create, logging, floats.
 * Errors:    mm_core_on_*: 0, or a positive enum mm_outcome when the *peer* did what it must not:
 *            the shell then kicks that peer. No call fails for want of memory after create.
 * Queue:     the caller empties the queue by mm_core_next() before each mm_core_on_*,
 *            mm_core_plan_set(), mm_core_account_add(), mm_core_quota_set() and mm_core_tune(),
 *            which assert that it is empty. Functions that allow actions in the queue are marked.
 * Order:     actions are to be performed in the order given. Those for one tenant's connection
 *            (FDS, MAP, EVENT) form one FIFO: an event is sent after the fds before it were
 *            acknowledged.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"

#define MM_CORE_TENANTS_DEFAULT  64
#define MM_CORE_TENANTS_MAX      1024
#define MM_CORE_ACCOUNTS_DEFAULT 128
#define MM_CORE_ACCOUNTS_MAX     1024
#define MM_TAGS_MAX              64
#define MM_NO_PAGE               UINT32_MAX
#define MM_LAYER_WORDS           16 /* a bit per layer */
#define MM_NO_TENANT             UINT32_MAX
#define MM_NO_CHUNK              UINT32_MAX

#define MM_WEIGHT_DEFAULT 100
#define MM_WEIGHT_MAX     10000
#define MM_PRIORITY_MAX   1000
#define MM_KILLS_MAX      64

#define MM_TURN_QUANTUM_BOUND_NS UINT64_C(2000000000)    /* of an account, by default */
#define MM_GOAL_NS_MAX           UINT64_C(3600000000000) /* longest goal of an account */
#define MM_TURN_QUANTUM_LIMIT_NS UINT64_C(60000000000)   /* the most that an operator may grant */

/* A tenant's id: its index, which the shell may use for tables; the core's tag; a generation. */
#define MM_TENANT_INDEX(tenant)    ((tenant) & (MM_CORE_TENANTS_MAX - 1))
#define MM_TENANT_TAG_SHIFT        10
#define MM_TENANT_GENERATION_SHIFT 16

struct mm_core;

/* How memory is lent: the choices of --policy. */
enum mm_policy {
	MM_POLICY_RECOMPUTE,
	MM_POLICY_ELASTIC,
	MM_POLICY_REMAP,
	MM_POLICY_SWAP,
	MM_POLICY_NAIVE,         /* Mirage's Algorithm 1 as published, for comparison */
	MM_POLICY_NAIVE_BOUNDED, /* the same with its bound on the layers that are away */
	MM_POLICY_COUNT
};

/* Measures against a tenant that does not give back in time what it must. */
enum mm_on_timeout { MM_ON_TIMEOUT_KILL, MM_ON_TIMEOUT_QUARANTINE, MM_ON_TIMEOUTS };

enum mm_switch { MM_SWITCH_ON = 1, MM_SWITCH_OFF };
/* How tenants that joined turns share a device: as the core decides, side by side, in turns. */
enum mm_sharing { MM_SHARING_AUTO = 1, MM_SHARING_BESIDE, MM_SHARING_TURNS };

/* Changes of a tenant's plan that may follow at once after 16 * change_ns without any. */
#define MM_CHANGES_AT_ONCE 16

struct mm_core_opts {
	uint32_t pages; /* of the pool */
	uint64_t page_bytes;
	enum mm_policy policy;
	uint32_t tenants_max;  /* at once; 0 = MM_CORE_TENANTS_DEFAULT */
	uint32_t accounts_max; /* entries, with those kept free for new accounts; 0 = default */
	uint64_t account_max_pages; /* default max of an account; 0 = the pool */
	uint32_t jobs_max;          /* xfer jobs outstanding at once; 0 = 256 */
	uint8_t tag; /* of this core among several, below MM_TAGS_MAX: part of its tenants' ids */
	uint32_t slots;                /* of a plan: 1 or 2; 0 = the number with the shorter step */
	enum mm_on_timeout on_timeout; /* default of an account */
	/* Default of an account; 0 = MM_TURN_QUANTUM_BOUND_NS; at most MM_TURN_QUANTUM_LIMIT_NS. */
	uint64_t turn_quantum_max_ns;
	uint32_t turn_priority_max; /* default of an account; up to MM_TURN_PRIORITY_MAX */
	uint64_t swap_max_bytes;    /* of all tenants' swap spaces; 0 = no tenant may have one */
	uint64_t swap_account_max_bytes; /* of one account's swap spaces; 0 = swap_max_bytes */
	bool full_drain; /* no step runs while a plan changes, whatever a tenant can do */
	/* The controller's knobs; 0 = the default in knobs.h. Times are given before time_scale. */
	uint32_t reversion; /* enum mm_switch */
	uint32_t sharing;   /* enum mm_sharing */
	/* Part of a turn that may pass until its holder's layers are home. */
	uint32_t turn_cost_permille;
	uint64_t idle_ns;   /* without an open step and without work, after which a model is idle */
	uint64_t dwell_ns;  /* least time between taking layers and their return */
	uint64_t change_ns; /* least time between a tenant's plan changes, on average */
	uint64_t reclaim_ns;          /* deadline that a KV_RECLAIM carries */
	uint32_t link_slows_permille; /* by which kernels are longer while the link is busy */
	uint32_t rho_permille;      /* part of one tenant's stalls that others do not make use of */
	uint32_t cold;              /* enum mm_switch: the market offers cold blocks */
	uint32_t cold_max_permille; /* of a tenant's share: the most cold KV that is offered */
	uint32_t time_scale;        /* factor of all times of the controller and of turns */
	/* The ladder; 0 = the default in knobs.h. */
	uint64_t revoke_ns; /* from the end of a connection until on_timeout applies */
	/* time that a tenant has to give what its account must give, until on_timeout applies */
	uint64_t reclaim_timeout_ns;
	uint64_t stop_ns; /* further time for a process that is stopped, traced or frozen */
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
	/* Write the xplan region from mm_core_plan(). The cursors are written, too, if entry is 0;
	 * otherwise xfer keeps serving, and a REPLAN follows. */
	MM_ACT_PLAN,
	/* Write into the xplan region that entry layers of epoch word are mapped now. */
	MM_ACT_OPEN,
	/* Write into the xplan region that the word lowest live entries are streamed. */
	MM_ACT_COLD_LIMIT,
	MM_ACT_ABORT, /* set MM_GATE_ABORT in every gate of tenant */
	MM_ACT_KICK,  /* close the connection; reason; its pages wait for proof */
	MM_ACT_KILL,  /* SIGKILL by pidfd; reason */
	/* Check whether the process is stopped, then call mm_core_on_stopped_checked(). */
	MM_ACT_CHECK_STOPPED,
	MM_ACT_ALARM,      /* report reason to the operator */
	MM_ACT_MODEL_DROP, /* drop tenant's reference to its store */
	/* All pages of tenant are proven free: drop the shell's state, its index may be reused. */
	MM_ACT_TENANT_FREE,
};

struct mm_action {
	enum mm_action_kind kind;
	uint32_t tenant;
	uint32_t page;
	/* MM_ACT_MAP: index in the map table; MM_ACT_GATE: layer; MM_ACT_PLAN, _OPEN: see there. */
	uint32_t entry;
	/* MM_ACT_GATE: value of the gate; MM_ACT_OPEN: epoch; MM_ACT_COLD_LIMIT: entries. */
	uint64_t word;
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
 * mm_core_next() - take out the next action
 * @core:       any
 * @ret_action: written when true
 *
 * Return: false when no action is left until the next event.
 */
bool mm_core_next(struct mm_core *core, struct mm_action *ret_action);

/**
 * mm_core_deadline() - when mm_core_on_tick() is due at the latest
 * @core: any
 *
 * Return: CLOCK_MONOTONIC ns; UINT64_MAX never.
 */
uint64_t mm_core_deadline(const struct mm_core *core);

/* ---- events: time ---- */

void mm_core_on_tick(struct mm_core *core, uint64_t now_ns);

/* ---- events: xfer ---- */

/*
 * xfer has started, for the first time or again. The first time, pages are created by jobs. After
 * that, jobs that were running are issued again.
 */
void mm_core_on_xfer_up(struct mm_core *core, uint64_t now_ns, uint64_t xfer_epoch);
/* xfer has ended. Allowed while the queue is being emptied. */
void mm_core_on_xfer_down(struct mm_core *core, uint64_t now_ns);
/*
 * The xfer that is down ended by its own fault: it crashed, failed, sent an invalid message or did
 * not answer; it was not killed from outside. The oldest job is assumed to be the cause, and is
 * given up when xfer has ended twice while it was the oldest.
 */
void mm_core_on_xfer_fault(struct mm_core *core, uint64_t now_ns);
/* The shell was away, and is there again: all deadlines of tenants begin anew. */
void mm_core_on_restarted(struct mm_core *core, uint64_t now_ns);
/* A job has completed with @result. MM_E_PROTOCOL: no such job. */
int mm_core_on_job_done(struct mm_core *core, uint64_t now_ns, uint64_t job, int result);

/*
 * The device had a memory error that it contained. Which memory is concerned is not known: pages
 * that are in use now are quarantined and created anew when they come free, except those of tenants
 * that go on computing.
 */
void mm_core_on_memory_error(struct mm_core *core, uint64_t now_ns);
/*
 * The shell has lost its descriptor of a page of which mm_core_page_is_made() is true. Who has the
 * page can go on using it, but it can be given to nobody any more: it is quarantined and created
 * anew, at once or when it comes free.
 */
void mm_core_on_page_unheld(struct mm_core *core, uint64_t now_ns, uint32_t page);

/* ---- events: tenants ---- */

struct mm_core_join {
	uint64_t account; /* key, e.g. uid */
	uint64_t features;
	uint64_t account_max_pages; /* for an account that the operator did not name; 0 = default */
};

/* MM_E_FULL: too many tenants or accounts. */
int mm_core_on_join(struct mm_core *core, uint64_t now_ns, const struct mm_core_join *join,
		    uint32_t *ret_tenant);
/*
 * The tenant's connection ended or broke. Its process may still run: its pages stay revoked until
 * it is dead, and it may be killed after revoke_ns.
 */
void mm_core_on_disconnect(struct mm_core *core, uint64_t now_ns, uint32_t tenant);
/* The tenant's process is dead (pidfd) and its connection is closed. */
void mm_core_on_dead(struct mm_core *core, uint64_t now_ns, uint32_t tenant);
/*
 * Result of MM_ACT_CHECK_STOPPED: whether the tenant's process is @stopped by a signal, traced or
 * frozen. Allowed while the queue is being emptied.
 */
void mm_core_on_stopped_checked(struct mm_core *core, uint64_t now_ns, uint32_t tenant,
				bool stopped);
/* Gets whether the kill-rate breaker is open, and how many kills it allows within its window. */
void mm_core_kills(const struct mm_core *core, bool *ret_open, uint32_t *ret_max);
/*
 * The tenant's ring has a request other than MODEL_OPEN and FDS_ACK, which the shell handles.
 * MM_E_PROTOCOL: kick the tenant.
 */
int mm_core_on_request(struct mm_core *core, uint64_t now_ns, uint32_t tenant,
		       const struct mm_msg *msg);
/* The tenant's statistics, a private copy, at each tick. They are claims of the tenant. */
void mm_core_on_stats(struct mm_core *core, uint64_t now_ns, uint32_t tenant,
		      const struct mm_tenant_stats *stats);

/*
 * The tenant requests a swap space. 0: it is charged, and the shell creates it; -EDQUOT; -EEXIST;
 * -EINVAL: the tenant has no arena, or @bytes is 0. If the shell cannot create the space,
 * mm_core_on_swap_failed() takes the charge back.
 */
int mm_core_on_swap_open(struct mm_core *core, uint64_t now_ns, uint32_t tenant, uint64_t bytes);
void mm_core_on_swap_failed(struct mm_core *core, uint32_t tenant);
/* A request MM_OP_SWAP, with a private copy of its msg->arg[1] pieces, at most MM_SWAP_PIECES. */
int mm_core_on_swap(struct mm_core *core, uint64_t now_ns, uint32_t tenant,
		    const struct mm_msg *msg, const struct mm_swap_piece *pieces);

struct mm_core_group {
	uint64_t store_offset;
	uint64_t bytes;
};

/*
 * Returns whether a model of @pages could ever be granted to the tenant if it had the pool to
 * itself; the shell checks that before it reads the model. A model is granted all of its pages
 * before layers may cycle. MM_REFUSED_NO: it could. MM_REFUSED_DEVICE, MM_REFUSED_QUOTA: it is too
 * large for this pool, for the tenant's account; *ret_max_pages is the most that is possible.
 */
enum mm_refusal mm_core_model_fits(const struct mm_core *core, uint32_t tenant, uint64_t pages,
				   uint64_t *ret_max_pages);

/*
 * The tenant's model is complete in the host store: the core grants its pages, copies, and sends
 * SWITCH and MODEL_READY. The shell has validated the groups against the store's size. A refusal is
 * sent to the tenant as MODEL_READY < 0.
 */
int mm_core_on_model(struct mm_core *core, uint64_t now_ns, uint32_t tenant, uint64_t store,
		     uint64_t store_bytes, const struct mm_core_group *groups, uint32_t n_groups);
/* xfer has measured how long the transfer of a layer takes (the planner's T_T). */
void mm_core_on_streamed(struct mm_core *core, uint32_t tenant, uint64_t layer_ns);
/* So many cold entries of the tenant are live, as it claims. */
void mm_core_on_cold_live(struct mm_core *core, uint32_t tenant, uint32_t live);

/* ---- ranks of a group (group.h) ---- */

/*
 * The tenant becomes a rank of a group: from now on it is granted only chunks that the group
 * offers. 0; -EBUSY: it has declared its arena, or joined the turns; -EINVAL: no such tenant.
 */
int mm_core_rank_begin(struct mm_core *core, uint32_t tenant);

/* The orders of a group for the arena of one of its ranks. */
struct mm_core_rank {
	uint32_t offer;   /* the only chunk that it may be granted now; MM_NO_CHUNK: none */
	uint32_t most;    /* chunks that are of use to it; UINT32_MAX: all that it wants */
	uint32_t wanted;  /* its demand */
	bool wants_anew;  /* that is a new demand, which has not been denied */
	int deny;         /* 0, or the error with which its demand is to be denied */
	uint32_t reclaim; /* chunks to be reclaimed from it until reclaim_until_ns; 0: no change */
	uint64_t reclaim_until_ns;
};
void mm_core_rank_order(struct mm_core *core, uint64_t now_ns, uint32_t tenant,
			const struct mm_core_rank *order);

/* The arena of a tenant. */
struct mm_core_kv {
	uint32_t chunks_max; /* 0: not declared */
	uint32_t held, wanted;
	uint32_t demands;  /* number of demands that it has sent so far */
	uint32_t reclaims; /* number of reclaims of the core so far, without those of the group */
	uint32_t reclaim;  /* chunks of the last one that were not released yet */
	uint64_t reclaim_until_ns;
	uint64_t releases;   /* number of releases so far */
	int denied;          /* 0, or the error with which this demand was denied */
	const uint64_t *map; /* a bit per chunk that it holds; valid until the next event */
};
/* False: no such tenant, or it is ending. */
bool mm_core_kv(const struct mm_core *core, uint32_t tenant, struct mm_core_kv *ret_kv);

/* ---- requests of the operator ---- */

/*
 * Keeps @alpha layers of the tenant's model away, through @slots slots (0 = automatic), until the
 * next call; @alpha -1 = automatic. 0; MM_E_RANGE: not possible for this model, *ret_max is the
 * most that is; MM_E_STALE: no model.
 */
int mm_core_plan_set(struct mm_core *core, uint64_t now_ns, uint32_t tenant, int32_t alpha,
		     uint32_t slots, uint32_t *ret_max);

/*
 * Limits the tenant's live cold entries to @limit, until its declaration ends or the next call;
 * -1 = automatic. 0; MM_E_RANGE: it has declared *ret_max entries; MM_E_STALE: it has declared
 * none.
 */
int mm_core_cold_set(struct mm_core *core, uint64_t now_ns, uint32_t tenant, int32_t limit,
		     uint32_t *ret_max);

/* Orders of the operator for one tenant, besides plans and quotas. */
enum mm_steer {
	/* Give back the KV that it holds beyond its share and its account's min, by the ladder. */
	MM_STEER_REVOKE,
	MM_STEER_DRAIN,    /* it is granted nothing more, and told to leave */
	MM_STEER_UNDRAIN,  /* end that */
	MM_STEER_ACTIVATE, /* its layers come home; then the controller decides, not a plan */
	MM_STEER_PIN,      /* they come home and stay there, before all plans but its own hold */
	MM_STEER_UNPIN,    /* end that */
	MM_STEERS
};

/*
 * Steers a tenant. @until_ns: MM_STEER_DRAIN: when its connection is closed, or UINT64_MAX; else
 * not used. *ret_pages: MM_STEER_REVOKE: pages that it is to give; _ACTIVATE, _PIN: pages that its
 * layers need to return. 0: it is under way or done; MM_E_STALE: no such tenant, it ends, or it has
 * no model that is ready; MM_E_QUOTA: its account has no room for layers that are away; MM_E_FULL:
 * the pool has none, and nobody lends or can give any; nothing was changed then.
 */
int mm_core_steer(struct mm_core *core, uint64_t now_ns, uint32_t tenant, enum mm_steer steer,
		  uint64_t until_ns, uint64_t *ret_pages);
/* Returns the pages that a revoke would take of the tenant now; *ret_chunks may be NULL. */
uint64_t mm_core_revocable(const struct mm_core *core, uint32_t tenant, uint32_t *ret_chunks);

/* The operator's limits for an account. */
struct mm_core_quota {
	uint64_t min_pages; /* kept for it: no other account is granted them */
	uint64_t max_pages; /* 0, or more than the pool has = the pool */
	uint32_t weight;    /* 1 to MM_WEIGHT_MAX; 0 = MM_WEIGHT_DEFAULT */
	uint32_t priority;  /* up to MM_PRIORITY_MAX; a higher one is served first and lends last */
	enum mm_on_timeout on_timeout;
	/* The most that a tenant may request; 0: the default of all accounts. */
	uint64_t turn_quantum_max_ns;
	/* The most that a tenant may request, up to MM_TURN_PRIORITY_MAX; 0 is 0. */
	uint32_t turn_priority_max;
	/* Goals for the requests of its tenants, up to MM_GOAL_NS_MAX; 0: none. */
	uint64_t goal_ttft_ns; /* from arrival to the first token */
	uint64_t goal_tpot_ns; /* for each further token */
};

/*
 * Adds an account that the operator names, before a tenant of it joins; it stays. @domain: the key
 * of an account that stays and whose domain it joins; @account: it has a domain of its own. 0;
 * MM_E_FULL; MM_E_QUOTA: mm_core_quota_check() returns why; MM_E_STALE: no such domain, or the
 * account exists.
 */
int mm_core_account_add(struct mm_core *core, uint64_t account, uint64_t domain,
			const struct mm_core_quota *quota);

/*
 * Changes what may change while the core lives: defaults of accounts, which count for those that
 * join from then on; the ladder's times and its breaker; the controller's knobs that are not fixed.
 * @opts: as of mm_core_create(); all other fields are ignored. 0; MM_E_RANGE: a value is out of
 * range, and nothing was changed.
 */
int mm_core_tune(struct mm_core *core, uint64_t now_ns, const struct mm_core_opts *opts);

enum mm_quota_outcome {
	MM_QUOTA_APPLIED, /* in force */
	/* More is used than it allows, or its min is not free yet: pages are being reclaimed. */
	MM_QUOTA_DEFERRED,
	MM_QUOTA_STALE, /* @revision is not the present one: nothing was changed */
	/* It contradicts itself, the pool or the other accounts' mins: nothing was changed. */
	MM_QUOTA_CONFLICT,
	MM_QUOTA_OUTCOMES
};

/* Returns NULL if @account may have @quota, else what contradicts it, a static string. */
const char *mm_core_quota_check(const struct mm_core *core, uint64_t account,
				const struct mm_core_quota *quota);
/*
 * Changes a quota; an account without entry gets one that stays. @revision: the quota is changed
 * only if this is the present revision; 0: any.
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
	uint32_t overdue_pages; /* reclaimed, and not given in time; still charged */
};

/* Returns an index such that no account has it or a higher one. */
uint32_t mm_core_accounts_end(const struct mm_core *core);
/* Gets the account of an index; false: no account there. */
bool mm_core_account(const struct mm_core *core, uint32_t index, struct mm_core_account *ret);
/* Gets the account of a key; false: no such account. */
bool mm_core_account_find(const struct mm_core *core, uint64_t account,
			  struct mm_core_account *ret);
/* Gets the quota of an account that the operator did not name. */
void mm_core_quota_default(const struct mm_core *core, struct mm_core_quota *ret_quota);

/* ---- state, for status, the plan region and tests ---- */

enum mm_page_state {
	MM_PAGE_NONE, /* not created yet */
	MM_PAGE_FREE,
	MM_PAGE_DIRTY,
	MM_PAGE_SCRUBBING,
	MM_PAGE_PARAM,
	MM_PAGE_SLOT,
	MM_PAGE_KV,
	MM_PAGE_MEM,
	MM_PAGE_REVOKING,
	MM_PAGE_QUARANTINE,
	MM_PAGE_STATES
};

struct mm_core_stats {
	uint64_t pages[MM_PAGE_STATES];
	uint64_t grants, takes, returns, plan_changes, denials, reclaims, kicks, kills;
	/* Times that a change waited because the tenant's plan had changed as often as it may. */
	uint64_t plan_changes_limited;
	/*
	 * The ladder: tenants that were overdue and not killed, kills that the breaker prevented,
	 * and deadlines that began again because the core was late.
	 */
	uint64_t overdue, kills_withheld, deadlines_restarted;
	uint32_t tenants;
	uint64_t memory_errors;
	uint64_t suspects; /* pages that memory errors have marked and that are marked now */
	uint64_t suspects_quarantined;
	uint64_t turns;         /* begun */
	uint64_t turns_overdue; /* taken away, since they were not given back in time */
	uint32_t turn_holder;   /* tenant; MM_NO_TENANT: none or several */
	bool turns_beside;      /* tenants that joined the turns compute side by side now */
	uint32_t alpha_sum;     /* layers away now, of all tenants */
	uint32_t alpha_sum_max;
};

/* How often times were within each of mm_core_tally_bound_ns(); the last: beyond all. */
#define MM_TALLY_BOUNDS 16
struct mm_core_times {
	uint64_t count[MM_TALLY_BOUNDS + 1];
	uint64_t sum_ns;
};

/* Counts of what happens to a tenant, to an account or in the pool; they only rise. */
struct mm_core_tally {
	uint64_t joins;                     /* tenants that joined */
	uint64_t grants, denials, reclaims; /* chunks; demands; requests to give chunks back */
	uint64_t released;                  /* chunks that came back, reclaimed or not */
	uint64_t takes, returns;            /* layers */
	uint64_t plan_changes;
	uint64_t swapped_out_bytes, swapped_in_bytes;
	uint64_t kicks, kills;
	uint64_t steps, stall_ns;                /* as tenants claim, within the time that passed */
	struct mm_core_times grant, step, stall; /* grant: from a demand to its grant */
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
	bool in_place; /* a new slot has layer[0] in it already: its cursor is HELD, else COPYING */
	uint16_t layer[MM_LAYERS_MAX + 1];
};

/* Cold blocks that are streamed under a plan (plan/cold.h). */
struct mm_core_cold {
	uint32_t classes;       /* 0: none are */
	uint32_t entries;       /* that have room in the window */
	uint32_t first, chunks; /* of the arena: the window */
	uint64_t unit_bytes;    /* of a block in one layer */
};

struct mm_core_plan {
	uint64_t epoch;
	uint32_t alpha, beta, m, n_layers;
	int32_t alpha_by_hand;  /* -1 = automatic */
	uint32_t slots_by_hand; /* 0 = automatic */
	uint64_t store;
	/* Layers that get no READY before the tenant has mapped them. */
	uint64_t closed[MM_LAYER_WORDS];
	struct mm_core_slot slot[2];
	struct mm_core_cold cold;
};

/* Whether layers cycle: m of them, or, where cold blocks are streamed, all. */
static inline bool mm_core_plan_cycles(const struct mm_core_plan *plan)
{
	return plan->m || plan->cold.classes;
}

struct mm_core_tenant {
	uint32_t tenant;
	uint64_t account;
	uint32_t pages_param, pages_slot, pages_kv, pages_mem, pages_revoking;
	uint32_t kv_chunks, kv_wanted, kv_chunks_max, kv_chunk_pages;
	uint32_t kv_used;        /* chunks with live blocks: a claim, at most kv_chunks */
	uint64_t stall_permille; /* waits at gates over computing time: a claim, smoothed */
	uint64_t step_ns;        /* mean computing time of a step: a claim; 0: not known */
	uint64_t swap_bytes;     /* of the host memory that it may swap KV to */
	bool idle, model_ready;
	bool has_model;       /* it was told of a model that is not dropped yet */
	bool model_held;      /* its layers are to stay at home, whatever the operator's plan is */
	bool model_pinned;    /* the same, by the operator (MM_STEER_PIN) */
	bool model_activates; /* its layers are coming home (MM_STEER_ACTIVATE) */
	bool drains;          /* it is granted nothing more (MM_STEER_DRAIN) */
	uint64_t drain_until_ns;  /* then its connection is closed; UINT64_MAX: never */
	uint32_t revoking_chunks; /* that it still is to give (MM_STEER_REVOKE) */
	bool attached;            /* xfer serves it or may serve it: DETACH has not completed */
	enum mm_turn_mode turn_mode;
	bool turn_wanted; /* it has requested a turn that has not begun */
	uint64_t turns, turns_overdue;
	/* mean time from a begin of its turn until its layers and KV are home; 0: not measured */
	uint64_t turn_home_ns;
	uint32_t cold_entries_max; /* that it has declared; 0: it has declared none */
	uint32_t cold_limit;       /* entries that may be live, as it was told */
	int32_t cold_by_hand;      /* the operator's limit; -1 = automatic */
	bool cold_window_pending;  /* it has requested a window, which is not answered */
};

void mm_core_stats(const struct mm_core *core, struct mm_core_stats *ret_stats);
/* Gets the state of a tenant; false: no such tenant. */
bool mm_core_tenant(const struct mm_core *core, uint32_t tenant, struct mm_core_tenant *ret_tenant);
/* Gets what was counted of the pool since the core was made. */
void mm_core_tally(const struct mm_core *core, struct mm_core_tally *ret_tally);
/* Returns bound @i, below MM_TALLY_BOUNDS, of the classes of times. */
uint64_t mm_core_tally_bound_ns(uint32_t i);
/* Gets what was counted of a tenant, or of the account of a key; false: there is none. */
bool mm_core_tally_tenant(const struct mm_core *core, uint32_t tenant,
			  struct mm_core_tally *ret_tally);
bool mm_core_tally_account(const struct mm_core *core, uint64_t account,
			   struct mm_core_tally *ret_tally);
/*
 * Returns the plan in force, or the one of the SWITCH under way (for MM_ACT_PLAN). NULL: no model.
 */
const struct mm_core_plan *mm_core_plan(const struct mm_core *core, uint32_t tenant);
/* Returns the phase of the change under way. */
enum mm_plan_phase mm_core_plan_phase(const struct mm_core *core, uint32_t tenant);
/* Returns page @i of a slot's n_pages; MM_NO_PAGE: none. */
uint32_t mm_core_slot_page(const struct mm_core *core, uint32_t tenant, uint32_t slot, uint32_t i);
/* Returns page @i of the window of the plan's cold blocks; MM_NO_PAGE: it has no more. */
uint32_t mm_core_cold_page(const struct mm_core *core, uint32_t tenant, uint32_t i);
/* Returns the features that follow from the policy: MM_FEAT_KV_*. */
uint64_t mm_core_features(const struct mm_core *core);
/* Returns a page's state. *ret_tenant: its owner's id, or MM_NO_OWNER; may be NULL. */
enum mm_page_state mm_core_page(const struct mm_core *core, uint32_t page, uint32_t *ret_tenant);

/* Whether the page has memory, and no job that gives it other memory. */
bool mm_core_page_is_made(const struct mm_core *core, uint32_t page);

/* Whether the core takes xfer for up: the jobs that there are were issued to it. */
bool mm_core_xfer_is_up(const struct mm_core *core);
/* Whether a job with this id was issued and is not done. */
bool mm_core_has_job(const struct mm_core *core, uint64_t job);
/*
 * The next job that is not done, in order of issue, with its id in user_data. *at begins with 0.
 * False: there is none left. No event may come between two calls.
 */
bool mm_core_next_job(const struct mm_core *core, uint32_t *at, struct mm_msg *ret_msg);

/*
 * Panics if an invariant that the core can see is broken: every page is in one state and the counts
 * sum up; accounts' charges equal their pages and are within max; every map entry that the core
 * gave out names a page of that tenant; no page serves two purposes.
 */
void mm_core_check(const struct mm_core *core);
/* Returns the invariant that is broken, where mm_core_check() panics; NULL: none is. */
const char *mm_core_check_sentence(const struct mm_core *core);
