/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world - everything around the core, small enough to be checked after every step
 *
 * Concept:    One shell, one xfer, up to W_PROCS tenant processes and a device whose pages hold
 *             symbolic bytes ("layer 3's second page of store 2"), all driven by hand or by a
 *             seeded generator, in virtual time. The world knows what the core cannot: who really
 *             maps a page and what is written in it. It panics when the core lets anybody see what
 *             is not theirs, run a layer on wrong bytes, or touch a page that somebody uses.
 * Ownership:  the caller owns struct world; w_done() gives back the core.
 * Threading:  one thread.
 */
#pragma once

#include "libclient/protocol/cycle.h"
#include "libclient/protocol/steps.h"
#include "libclient/base/base.h"
#include "mmd/core/core.h"

#define W_PROCS    8
#define W_PAGES    256
#define W_GROUPS   17
#define W_ENTRIES  96  /* of a model */
#define W_KV       256 /* KV entries */
#define W_INBOX    4096
#define W_JOBS     1024
#define W_ACCOUNTS 4

enum w_kind { W_GARBAGE, W_ZERO, W_LAYER, W_KVDATA };

struct w_bytes {
	enum w_kind kind;
	uint64_t owner; /* store, or tenant id */
	uint32_t entry; /* W_LAYER */
};

struct w_page {
	bool exists;
	struct w_bytes bytes;
	uint32_t domains;       /* whose processes were given this handle, a bit each */
	uint32_t holders;       /* processes that may map it, a bit each */
	uint64_t leak_until_ns; /* a forked child holds it */
};

enum w_item_kind { W_ITEM_FDS, W_ITEM_MAP, W_ITEM_EVENT };

struct w_item {
	enum w_item_kind kind;
	uint32_t entry, page;
	struct mm_msg msg;
};

/* Of a slot: it outlives xfer. */
struct w_cursor {
	uint64_t epoch;
	uint32_t state, pos;
};

/* Into a slot, as xfer keeps it from its MM_CYCLE_NEW on. */
struct w_copy {
	bool set_up, written; /* half of it */
	uint32_t page[W_ENTRIES];
};

#define W_THREADS 4

/* What a thread has decided to say, and was held up with. */
struct w_messages {
	struct mm_msg msg[MM_STEPS_WORDS_MAX];
	uint32_t next, n;
	uint64_t decided; /* grows */
	bool service;     /* it is the one that takes in what mmd says */
};

struct w_proc {
	bool used; /* from its join until the core forgets it */
	bool alive, connected, hostile, frozen, forks;
	uint32_t tenant, account;
	uint32_t head, tail; /* of the inbox */

	/* the model */
	uint64_t store;
	uint32_t n_groups, entries;
	bool states_compute;
	struct mm_core_group group[W_GROUPS];
	uint32_t entry[W_GROUPS + 1]; /* first of each group */
	bool model_asked, model_ready;
	int model_result;
	uint32_t view[W_ENTRIES]; /* the table as it arrived */
	uint32_t map[W_ENTRIES];  /* what is mapped since the last SWITCH */
	uint64_t gate[W_GROUPS];
	struct mm_steps machine; /* libclient's: plans, steps, turns */
	struct w_messages held_up[W_THREADS];
	/* So long its changes would have taken, at one each change_ns: from when on. */
	uint64_t changes_ns;
	uint64_t mapping;      /* of the SWITCH whose mapping is under way while steps go on */
	uint64_t mapping_full; /* the same in full: no step goes on */
	uint32_t map_old[W_ENTRIES], mapped_groups;
	uint32_t layer; /* of the step that is open */
	uint64_t steps, waited;

	/* KV */
	bool kv_declared;
	uint32_t chunk_pages, chunks_max, share, want, used_chunks;
	uint32_t range_pages; /* of a chunk */
	uint32_t kv_view[W_KV];
	bool chunk[W_KV];
	uint32_t held, denials, grants;
	uint32_t reclaim;  /* owed: asked back, less what it has released since */
	uint64_t releases; /* requests */
	int denied;

	/* swap: lists under way; what their pieces add up to, what jobs have copied */
	uint64_t swap_bytes;
	bool lot[MM_SWAP_LOTS];
	uint64_t lot_bytes[MM_SWAP_LOTS], lot_copied[MM_SWAP_LOTS];
	uint64_t lot_chunks[MM_SWAP_LOTS][W_KV / 64]; /* named by it */
	uint32_t swapped;
	int swap_result; /* of the last list */

	/* what core and xfer share */
	struct mm_core_plan region;
	uint32_t region_page[MM_SLOTS_MAX][W_ENTRIES];
	struct w_cursor cursor[MM_SLOTS_MAX];
	uint64_t open; /* MM_XPLAN_OPEN() */

	/* xfer's side */
	struct mm_core_plan plan; /* the region, once xfer took it up */
	uint32_t plan_page[MM_SLOTS_MAX][W_ENTRIES];
	struct mm_cycles cycles;
	struct w_copy copy[MM_SLOTS_MAX];
	uint64_t streamed[MM_SLOTS_MAX]; /* layers, of all plans */

	struct w_item inbox[W_INBOX]; /* last: what is not between head and tail is not cleared */
};

/* What the core is about to be told. */
enum w_event {
	W_EVENT_REQUEST,
	W_EVENT_JOB_DONE,
	W_EVENT_DISCONNECT,
	W_EVENT_DEAD,
	W_EVENT_XFER_UP,
	W_EVENT_XFER_DOWN,
	W_EVENT_XFER_FAULT,
};

struct world;
/*
 * @tenant, @msg, @result: of a request, an end or a job, as far as it has them. It looks, and
 * changes nothing.
 */
typedef void w_watch_fn(struct world *w, enum w_event event, uint32_t tenant,
			const struct mm_msg *msg, int result);

struct world {
	struct mm_core *core;
	w_watch_fn *watch; /* NULL: nobody does */
	void *watcher;
	struct mm_core_opts opts;
	uint64_t account_max[W_ACCOUNTS];
	bool quotas, named[W_ACCOUNTS];
	uint64_t held[W_ACCOUNTS];   /* pages of its tenants, when last looked at */
	uint32_t domain[W_ACCOUNTS]; /* whose domain it is in */
	uint64_t now_ns;
	uint64_t rng;
	struct w_page page[W_PAGES];
	struct w_proc proc[W_PROCS];
	struct mm_msg job[W_JOBS];
	uint32_t jobs;
	bool xfer_up;
	uint64_t xfer_epoch;
	uint64_t xfer_deaths, xfer_faults;
	uint32_t kick[W_PROCS * 4], kicks; /* deferred until the queue is empty */
	uint32_t kill[W_PROCS * 4], kills;
	bool check_each;        /* mm_core_check() after each event */
	uint32_t late_permille; /* so many threads are held up between deciding and saying */

	bool replanning; /* a REPLAN is being worked on */
	bool by_acts; /* xfer may be killed between any two acts on slots, not only between jobs */
	uint64_t cut_rng, cut_each;        /* after so many acts, on average */
	uint64_t cut_in;                   /* from now; 0: never */
	uint64_t cuts[MM_CYCLE_COUNT + 1]; /* by the act that came next */

	uint64_t actions_hash; /* of all actions of the core, in their order: fields, not padding */

	/* what happened, for who wants to know whether enough did */
	uint64_t acts_of[MM_ACT_FORGET + 1], jobs_of[MM_XOP_COUNT], events_of[MM_EV_COUNT];
	uint64_t refused, switched_partly, steps, crossed;
	uint64_t held_by_mapping;                    /* steps that would have begun */
	uint64_t decided, held_up;                   /* what machines wanted said */
	uint64_t overtook[MM_OP_COUNT][MM_OP_COUNT]; /* [by][of], of these */
	uint64_t plans[MM_SLOTS_MAX + 1];            /* entered, by their slots */
};

#define W_FOREACH(w, p) for (struct w_proc *p = (w)->proc; p < (w)->proc + W_PROCS; p++)

static inline void w_event_note(struct world *w, enum w_event event, uint32_t tenant,
				const struct mm_msg *msg, int result)
{
	if (w->watch)
		w->watch(w, event, tenant, msg, result);
}

static inline uint64_t w_random(struct world *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return w->rng * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

static inline uint32_t w_below(struct world *w, uint32_t n)
{
	return (uint32_t)(w_random(w) % n);
}

/* ---- the shell and xfer (world.c) ---- */

void w_init(struct world *w, const struct mm_core_opts *opts, uint64_t seed);
void w_done(struct world *w);
/*
 * Performs what the core wants done, then checks. Every function here that reports to it calls
 * this.
 */
void w_drain(struct world *w);
void w_tick(struct world *w, uint64_t ns);
void w_xfer_up(struct world *w);
void w_xfer_kill(struct world *w, bool fault);
/* The device had a memory error and contained it. */
void w_memory_error(struct world *w);
/* One of the oldest jobs ends (@result 0: as the device decides). False: there is none. */
bool w_xfer_work(struct world *w, uint32_t among, int result);
/* xfer looks at one tenant's gates and moves its stream on. */
void w_xfer_stream(struct world *w, struct w_proc *p);
/* All jobs, events and streams until nothing moves. */
void w_run(struct world *w);
void w_check(struct world *w);

/* ---- xfer's slots (slots.c): what jobs do to them; xfer is dead ---- */

void w_slots_activate(struct world *w, struct w_proc *p, uint64_t epoch);
void w_slots_replan(struct world *w, struct w_proc *p, uint64_t epoch);
void w_slots_quiesce(struct world *w, struct w_proc *p);
void w_slots_drop(struct w_proc *p);
/* From now on, every @acts acts on average, drawn apart from everything else; not any more. */
void w_cuts_begin(struct world *w, uint64_t seed, uint64_t acts);
void w_cuts_end(struct world *w);

/* ---- tenant processes (proc.c; their KV and swap: proc_kv.c) ---- */

/* Its bit in struct w_page's masks of processes. */
static inline uint32_t w_bit_of(const struct world *w, const struct w_proc *p)
{
	return 1u << (p - w->proc);
}

/* It has said PARKED, and runs no step until the next plan is in force. */
static inline bool w_is_parked(const struct w_proc *p)
{
	return p->machine.state == MM_STEPS_PARKED || p->machine.state == MM_STEPS_MAP;
}

struct w_proc *w_join(struct world *w, uint32_t account, uint64_t features);
void w_disconnect(struct world *w, struct w_proc *p);
void w_die(struct world *w, struct w_proc *p);
int w_send(struct world *w, struct w_proc *p, const struct mm_msg *msg);
/* Layers of @layer_pages pages each, less a bit; group 0 has @resident_pages. */
void w_model(struct world *w, struct w_proc *p, uint64_t store, uint32_t layers,
	     uint32_t layer_pages, uint32_t resident_pages);
/* Groups of @pages[] pages: the resident one, then @layers more. */
void w_model_of(struct world *w, struct w_proc *p, uint64_t store, const uint32_t *pages,
		uint32_t layers);
void w_kv_declare(struct world *w, struct w_proc *p, uint32_t range_pages, uint32_t ranges,
		  uint32_t chunks_max, uint32_t share);
void w_kv_want(struct world *w, struct w_proc *p, uint32_t chunks);
bool w_kv_release(struct world *w, struct w_proc *p); /* any that may go; false: there is none */
void w_kv_release_chunk(struct world *w, struct w_proc *p, uint32_t chunk);
/* It takes in a KV_GRANT of @chunk, and writes to the pages. */
void w_kv_granted(struct world *w, struct w_proc *p, uint32_t chunk);
/* Nobody else may have written what this tenant keeps in its chunks. */
void w_kv_verify(const struct world *w, const struct w_proc *p);
/* 0, or why not. */
int w_swap_open(struct world *w, struct w_proc *p, uint64_t bytes);
/* A list in the first free lot. False: none is free. */
bool w_swap(struct world *w, struct w_proc *p, bool in, const struct mm_swap_piece *pieces,
	    uint32_t n);
/* What a SWAPPED says is true: all of it was copied, nothing twice but for what died with xfer. */
void w_swapped(const struct world *w, struct w_proc *p, const struct mm_msg *msg);
/* A piece at random, in a chunk that it holds. False: it holds none, or has no swap space. */
bool w_swap_piece(struct world *w, struct w_proc *p, struct mm_swap_piece *ret_piece);
void w_bye(struct world *w, struct w_proc *p);
/* A step breaks off: the one that is open, or one that begins. */
void w_resync(struct world *w, struct w_proc *p);
/* Takes the next event from the inbox and answers it. False: there is none. */
bool w_proc_event(struct world *w, struct w_proc *p);
/* A thread that was held up says its next word. False: there is none. */
bool w_proc_send_late(struct world *w, struct w_proc *p);
/* Maps what a SWITCH said that let steps go on. False: there is none. */
bool w_proc_map(struct world *w, struct w_proc *p);
/* What it has begun to map cannot be. */
void w_proc_map_fail(struct world *w, struct w_proc *p);
/* A layer of a step, or its begin or end. False: it cannot move. */
/* It takes steps in turn, from now on; asks for the turn; gives it back. */
void w_turn_join(struct world *w, struct w_proc *p, enum mm_turn_mode mode, uint64_t quantum_ns,
		 uint32_t priority);
void w_turn_want(struct world *w, struct w_proc *p);
void w_turn_done(struct world *w, struct w_proc *p);
bool w_proc_step(struct world *w, struct w_proc *p);
void w_stats(struct world *w, struct w_proc *p, uint32_t running);
void w_deliver(struct world *w, const struct mm_action *a);
struct w_proc *w_proc_of(struct world *w, uint32_t tenant);
/* The operator names an account, or changes its quota. */
void w_account_add(struct world *w, uint32_t account, uint32_t domain,
		   const struct mm_core_quota *quota);
enum mm_quota_outcome w_quota_set(struct world *w, uint32_t account,
				  const struct mm_core_quota *quota);
/* Free pages and its account have room for a chunk of its. */
bool w_could_have(struct world *w, const struct w_proc *p);
bool w_bytes_are(const struct world *w, uint32_t page, const struct w_proc *p, uint32_t entry);
