/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world - everything around the core, small enough to be checked after every event
 *
 * Concept:    One shell, one xfer, up to W_PROCS tenant processes and a device whose pages hold
 *             symbolic bytes ("layer 3's second page of store 2"), driven by hand or by a seeded
 *             generator, in virtual time. The world knows what the core cannot: which process
 *             really maps a page, and what is written in it. It panics if the core lets a tenant
 *             see bytes of another domain, lets a layer run on wrong bytes, or changes a page in
 *             use.
 * Ownership:  The caller owns struct world; w_done() destroys the core.
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
#define W_ENTRIES  96  /* entries of a model */
#define W_KV       256 /* KV entries of a tenant */
#define W_MEM      64  /* entries of memory of the third kind, the last ones of the table */
#define W_INBOX    4096
#define W_JOBS     1024
#define W_ACCOUNTS 4

enum w_kind { W_GARBAGE, W_ZERO, W_LAYER, W_KVDATA, W_MEMDATA };

struct w_bytes {
	enum w_kind kind;
	uint64_t owner; /* store of a layer, or id of the tenant */
	uint32_t entry; /* map entry of the bytes, for W_LAYER */
};

struct w_page {
	bool exists;
	struct w_bytes bytes;
	uint32_t domains;       /* bit per domain whose processes got this handle */
	uint32_t holders;       /* bit per process that may map it */
	uint64_t leak_until_ns; /* until then a forked child holds it */
	bool unheld;            /* mmd has lost its descriptor */
};

enum w_item_kind { W_ITEM_FDS, W_ITEM_MAP, W_ITEM_EVENT };

struct w_item {
	enum w_item_kind kind;
	uint32_t entry, page;
	struct mm_msg msg;
};

/* The cursor of a slot or of a class; it outlives xfer. */
struct w_cursor {
	uint64_t epoch;
	uint32_t state, pos;
	uint64_t version; /* of a class */
};

#define W_COLD   8   /* entries that a process has */
#define W_UNITS  64  /* units of a window that they reach */
#define W_WINDOW 256 /* pages of a window */

/* The copy into a slot or a class, as xfer keeps it from MM_CYCLE_NEW on. */
struct w_copy {
	bool set_up, written; /* half of the bytes are written */
	uint32_t page[W_ENTRIES];
	/* of a class: the rows that were chosen, by their entry's generation; 0: none */
	bool chosen;
	uint64_t version, row[W_COLD];
	struct mm_core_cold window;
};

/* Bytes of one layer of an entry: they are of the entry's block of that generation. */
struct w_unit {
	uint32_t entry, layer;
	uint64_t generation; /* 0: bytes of nothing in particular */
};

#define W_THREADS 4

/* Messages that a thread has decided to send, but is held up before sending. */
struct w_messages {
	struct mm_msg msg[MM_STEPS_MESSAGES_MAX];
	uint32_t next, n;
	uint64_t decided; /* number of the decision; it grows */
	bool service;     /* it is the service thread, which handles the events of mmd */
};

/* Cold blocks of a process, as it sees them. */
struct w_cold {
	uint64_t unit_bytes;
	uint32_t classes, entries_max; /* classes 0: none are declared */
	uint32_t limit, limits;        /* the last one, and how many were told */
	uint64_t deadline_ns;          /* of that limit */
	uint32_t first, chunks;        /* the window in force */
	bool asked;                    /* another window was requested and is not answered */
	uint32_t next_first, next_chunks;
	uint32_t open_answers, window_answers;
	int open_result, window_result;
	uint64_t streamed; /* the limit in the plan region */

	/* the region that it shares with xfer */
	uint64_t version, acked;
	bool live[W_COLD];
	/* as both were before the last changes: xfer may have begun to read then */
	uint64_t version_before;
	uint32_t torn; /* so many reads began then */
	bool live_before[W_COLD];
	/* the blocks: in host memory, since when live, and from which version on no longer */
	uint64_t generation[W_COLD], since[W_COLD], cleared[W_COLD];
	uint64_t reading[W_COLD]; /* generation that the open step reads; 0: none */
	uint32_t reading_at;      /* from the window that begins with this chunk */
	bool falls;               /* a limit with a deadline was told since the last step began */
	uint32_t least;           /* the least of those, which may have counted meanwhile */
	struct w_unit unit[W_UNITS]; /* bytes of the window, from its begin on */
};

struct w_proc {
	bool used; /* from its join until the core frees the tenant */
	bool alive, connected, hostile, frozen, forks;
	bool refused; /* there was no descriptor of a page for it: it is being disconnected */
	uint32_t tenant, account;
	uint32_t head, tail; /* positions in the inbox */

	/* the model */
	uint64_t store;
	uint32_t n_groups, entries;
	bool states_compute;
	struct mm_core_group group[W_GROUPS];
	uint32_t entry[W_GROUPS + 1]; /* first entry of each group */
	bool model_asked, model_ready;
	int model_result;
	uint32_t view[W_ENTRIES]; /* the map table as it arrived */
	uint32_t map[W_ENTRIES];  /* what is mapped since the last SWITCH */
	uint64_t gate[W_GROUPS];
	struct mm_steps machine; /* libclient's state machine of plans, steps and turns */
	uint64_t turn;           /* serial of the turn that mmd gave it and that lasts; 0: none */
	uint64_t turn_until_ns;  /* when it must have given that back; 0: when it likes */
	struct w_messages held_up[W_THREADS];
	uint64_t changes_ns; /* when its changes are paid for, at one per change_ns */
	/* epoch of the SWITCH that is being mapped while steps go on; 0: none */
	uint64_t mapping;
	/* epoch of the SWITCH that is being mapped while no step runs; 0: none */
	uint64_t mapping_full;
	uint32_t map_old[W_ENTRIES], mapped_groups;
	uint32_t layer; /* next layer of the open step */
	uint64_t steps, waited;
	uint64_t reported, stepped_ns; /* steps at its last report, and when one was reported */
	uint32_t wakes;                /* times it stepped after it had been idle */

	/* KV */
	bool kv_declared;
	uint32_t chunk_pages, chunks_max, share, want, used_chunks;
	uint32_t range_pages; /* pages of a chunk in one range */
	uint32_t kv_view[W_KV];
	bool chunk[W_KV];
	uint32_t held, denials, grants;
	uint32_t reclaim;  /* chunks that it must still release of the last reclaim */
	uint64_t releases; /* number of release requests */
	int denied;

	/* memory of the third kind, by entry; the request that waits: 0 pages, none */
	uint32_t mem_view[W_MEM];
	bool mem[W_MEM];
	uint32_t mem_held, mem_first, mem_asked;
	int mem_result; /* of the last request, and how many pages there were */
	uint64_t mem_there;

	bool unloading;    /* it has sent UNLOAD, which is not answered */
	uint32_t unloads;  /* models that it has given back */
	uint32_t revoking; /* chunks that it was to give when the operator looked last */
	int unload_result; /* of the last answer to MM_OP_UNLOAD */

	int hold_result; /* of the last answer to MM_OP_HOLD */
	uint32_t hold_answers;

	/* swap: the lists that run; bytes of their pieces, and bytes that jobs have copied */
	uint64_t swap_bytes;
	bool lot[MM_SWAP_LOTS];
	uint64_t lot_bytes[MM_SWAP_LOTS], lot_copied[MM_SWAP_LOTS];
	uint64_t lot_chunks[MM_SWAP_LOTS][W_KV / 64]; /* bit per chunk that the list names */
	uint32_t swapped;
	int swap_result; /* result of the last list */

	struct w_cold cold;

	/* memory that core and xfer share */
	struct mm_core_plan region;
	uint32_t region_page[MM_SLOTS_MAX][W_ENTRIES], region_window[W_WINDOW];
	struct w_cursor cursor[MM_CYCLES_MAX];
	uint64_t open; /* MM_XPLAN_OPEN() */

	/* state of xfer */
	struct mm_core_plan plan; /* the region as it was when xfer began to serve it */
	uint32_t plan_page[MM_SLOTS_MAX][W_ENTRIES], plan_window[W_WINDOW];
	struct mm_cycles cycles;
	struct w_copy copy[MM_CYCLES_MAX];
	uint64_t streamed[MM_CYCLES_MAX]; /* layers streamed, under all plans */

	/*
	 * The last member: w_init() does not clear it, since only entries between head and tail are
	 * read.
	 */
	struct w_item inbox[W_INBOX];
};

/* Events that the core is about to get. */
enum w_event {
	W_EVENT_REQUEST,
	W_EVENT_JOB_DONE,
	W_EVENT_DISCONNECT,
	W_EVENT_DEAD,
	W_EVENT_XFER_UP,
	W_EVENT_XFER_DOWN,
	W_EVENT_XFER_FAULT,
};

/* A tenant's memory when no action was left, before the present event. */
struct w_seen {
	uint32_t tenant, held;
	uint32_t alpha; /* layers away, before or after the change under way */
};

struct world;
struct w_mortal;
/*
 * Called before each event. @tenant, @msg, @result: those of the request, end or job, if it has
 * them. It must not change anything.
 */
typedef void w_watch_fn(struct world *w, enum w_event event, uint32_t tenant,
			const struct mm_msg *msg, int result);

struct world {
	struct mm_core *core;
	w_watch_fn *watch; /* called before each event, or NULL */
	void *watcher;
	struct w_mortal *mortal; /* NULL: the core never dies (mortal.h) */
	struct mm_core_opts opts;
	uint64_t account_max[W_ACCOUNTS];
	bool quotas, named[W_ACCOUNTS];
	uint64_t held[W_ACCOUNTS];   /* pages of the tenants of each account, at the last check */
	uint32_t domain[W_ACCOUNTS]; /* domain of each account */
	uint64_t now_ns;
	uint64_t rng;
	struct w_page page[W_PAGES];
	struct w_proc proc[W_PROCS];
	struct w_seen seen[W_PROCS];
	struct mm_msg job[W_JOBS];
	uint32_t jobs;
	bool xfer_up;
	uint64_t xfer_epoch;
	uint64_t xfer_deaths, xfer_faults;
	uint32_t kick[W_PROCS * 4], kicks; /* tenants to disconnect when the queue is empty */
	uint32_t kill[W_PROCS * 4], kills;
	bool check_each; /* call mm_core_check() after each event */
	/* permille of decisions after which a thread is held up before it sends */
	uint32_t late_permille;

	bool replanning; /* xfer is performing a REPLAN */
	/* xfer may be killed between any two acts on slots, not only between jobs */
	bool by_acts;
	uint64_t cut_rng, cut_each;            /* xfer is killed after so many acts, on average */
	uint64_t cut_in;                       /* acts until the next kill; 0: never */
	uint64_t cuts[MM_CYCLE_GATES_ALL + 1]; /* kills, by the act that would have followed */

	/* hash of all actions of the core in their order: of their fields, not of padding */
	uint64_t actions_hash;

	/* Counters of what happened, for tests that require a minimum. */
	uint64_t acts_of[MM_ACT_TENANT_FREE + 1], jobs_of[MM_XOP_COUNT], events_of[MM_EV_COUNT];
	uint64_t refused, switched_partly, steps, crossed;
	uint64_t held_by_mapping; /* steps that waited for a mapping */
	uint64_t turn_serial;     /* of the last turn */
	bool turns_opened;        /* turns were open at some time since the last event */
	/* turns that began beside others; turns that were taken away while there were others */
	uint64_t turns_beside, turns_taken_beside;
	/* requests for memory of the third kind: granted, not answered at once, refused */
	uint64_t mem_grants, mem_waits, mem_quotas, mem_refusals;
	uint64_t unloads; /* models that were given back */
	/* rows of cold blocks: read by layers, kept over a change; steps that read any */
	uint64_t rows_read, rows_kept, steps_cold, overruns;
	/* decisions of machines to send; decisions that were held up */
	uint64_t decided, held_up;
	/* messages that overtook others: [overtaking][overtaken] */
	uint64_t overtook[MM_OP_COUNT][MM_OP_COUNT];
	/* plans that were put in force, by their number of slots */
	uint64_t plans[MM_SLOTS_MAX + 1];
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
 * Performs all actions of the core, then checks. Every function here that gives the core an event
 * calls this.
 */
void w_drain(struct world *w);
void w_tick(struct world *w, uint64_t ns);
void w_xfer_up(struct world *w);
void w_xfer_kill(struct world *w, bool fault);
/* Reports a memory error that the device contained. */
void w_memory_error(struct world *w);
/* mmd loses its descriptor of a page. Return: whether the page had memory. */
bool w_page_unheld(struct world *w, uint32_t page);
/*
 * Ends one of the @among oldest jobs with @result (0: the device decides). Returns false if there
 * is no job.
 */
bool w_xfer_work(struct world *w, uint32_t among, int result);
/* Lets xfer read the gates of a tenant and continue its stream. */
void w_xfer_stream(struct world *w, struct w_proc *p);
/* Runs all jobs, events and streams until nothing changes. */
void w_run(struct world *w);
void w_check(struct world *w);

/* ---- xfer's slots (slots.c): jobs that change them, and the death of xfer ---- */

void w_slots_activate(struct world *w, struct w_proc *p, uint64_t epoch);
void w_slots_replan(struct world *w, struct w_proc *p, uint64_t epoch);
void w_slots_quiesce(struct world *w, struct w_proc *p);
void w_slots_drop(struct w_proc *p);
/* Classes of cold blocks (classes.c): the plan in the region is another one. */
void w_classes_plan(struct world *w, struct w_proc *p, bool served);
struct mm_cycle_cold w_classes_view(const struct w_proc *p, const struct mm_core_plan *plan,
				    const uint32_t *page);
/* Chooses rows; then their version is written. */
void w_class_choose(struct w_proc *p, uint32_t cursor);
void w_class_note(struct w_proc *p, uint32_t cursor);
/* Writes the rows of the copy of @cursor, or @half of their bytes. */
void w_class_write(const struct world *w, struct w_proc *p, uint32_t cursor, bool half);
/*
 * From now on kills xfer every @acts acts on average, with random numbers of their own;
 * w_cuts_end() stops this.
 */
void w_cuts_begin(struct world *w, uint64_t seed, uint64_t acts);
void w_cuts_end(struct world *w);

/* ---- tenant processes (proc.c; their KV and swap: proc_kv.c) ---- */

/* Returns the bit of the process in the masks of struct w_page. */
static inline uint32_t w_bit_of(const struct world *w, const struct w_proc *p)
{
	return 1u << (p - w->proc);
}

/* True if it has sent PARKED, and runs no step until the next plan is in force. */
static inline bool w_is_parked(const struct w_proc *p)
{
	return p->machine.state == MM_STEPS_PARKED || p->machine.state == MM_STEPS_MAP;
}

struct w_proc *w_join(struct world *w, uint32_t account, uint64_t features);
void w_disconnect(struct world *w, struct w_proc *p);
void w_kill(struct world *w, struct w_proc *p);
int w_send(struct world *w, struct w_proc *p, const struct mm_msg *msg);
/* Offers a model: layers of @layer_pages pages each, less a bit; group 0 has @resident_pages. */
void w_model(struct world *w, struct w_proc *p, uint64_t store, uint32_t layers,
	     uint32_t layer_pages, uint32_t resident_pages);
/* Offers a model of groups of @pages[] pages: the resident group, then @layers layers. */
void w_model_of(struct world *w, struct w_proc *p, uint64_t store, const uint32_t *pages,
		uint32_t layers);
void w_kv_declare(struct world *w, struct w_proc *p, uint32_t range_pages, uint32_t ranges,
		  uint32_t chunks_max, uint32_t share);
void w_kv_want(struct world *w, struct w_proc *p, uint32_t chunks);
/* Releases any chunk that may be released. Returns false if there is none. */
bool w_kv_release(struct world *w, struct w_proc *p);
void w_kv_release_chunk(struct world *w, struct w_proc *p, uint32_t chunk);
/* Handles a KV_GRANT of @chunk, and writes to its pages. */
void w_kv_granted(struct world *w, struct w_proc *p, uint32_t chunk);
/* Checks that no other process has written what this tenant keeps in its chunks. */
void w_kv_verify(const struct world *w, const struct w_proc *p);
/* Requests @pages adjacent entries of the third kind. Returns false if it has no such entries. */
bool w_mem_alloc(struct world *w, struct w_proc *p, uint32_t pages);
/* Gives back up to @pages adjacent ones from the first that it holds. Returns how many. */
uint32_t w_mem_free(struct world *w, struct w_proc *p, uint32_t pages);
/* Handles the reply to w_mem_alloc(): all pages are there, or none is. */
void w_mem_replied(struct world *w, struct w_proc *p, const struct mm_msg *msg);
/* Checks that nobody else has written to them. */
void w_mem_verify(const struct world *w, const struct w_proc *p);
/* Gives the model back. Returns false if it cannot now. */
bool w_unload(struct world *w, struct w_proc *p);
/* Handles the reply to w_unload(): nothing of the model is left. */
void w_unloaded(struct world *w, struct w_proc *p, const struct mm_msg *msg);
/* Checks that nobody needs the store of a model that is given back, when the core drops it. */
void w_unload_check_drop(const struct world *w, const struct w_proc *p);
/* Declares cold blocks, requests a window: a request each, whatever it comes to. */
void w_cold_open(struct world *w, struct w_proc *p, uint64_t unit_bytes, uint32_t entries,
		 uint32_t floor);
void w_cold_window(struct world *w, struct w_proc *p, uint32_t first, uint32_t chunks);
/* Handles the replies to these, and a COLD_LIMIT. */
void w_cold_replied(struct w_proc *p, const struct mm_msg *msg);
void w_cold_limited(struct w_proc *p, const struct mm_msg *msg);
/* Entries change now, while xfer may be reading which are live. */
void w_cold_change(struct w_proc *p);
/* An entry gets a block, or loses it, between two steps. */
void w_cold_set(struct w_proc *p, uint32_t entry, bool live);
/* Does what the limit demands. No step may be open. */
void w_cold_obey(struct world *w, struct w_proc *p);
/* Returns how many entries have room in so many chunks. */
uint32_t w_cold_room(const struct world *w, const struct w_proc *p, uint32_t chunks);
/* A step begins: it reads what it may; a layer runs; the step ends. */
void w_cold_step_begin(struct world *w, struct w_proc *p);
void w_cold_layer_run(struct world *w, struct w_proc *p, uint32_t layer);
void w_cold_step_end(struct world *w, struct w_proc *p);
/* The limit that counts for xfer is written; the model is given back. */
void w_cold_streamed(struct world *w, struct w_proc *p, uint64_t limit);
void w_cold_end(struct w_proc *p);
/* True if the chunk is one of its window, or of the one that it has requested. */
bool w_cold_names(const struct w_proc *p, uint32_t chunk);
/* Returns 0, or the error of the core. */
int w_swap_open(struct world *w, struct w_proc *p, uint64_t bytes);
/* Sends a list in the first free lot. Returns false if none is free. */
bool w_swap(struct world *w, struct w_proc *p, bool in, const struct mm_swap_piece *pieces,
	    uint32_t n);
/*
 * Checks the result in a SWAPPED: all was copied, and nothing twice except for jobs that were lost
 * with xfer.
 */
void w_swapped(const struct world *w, struct w_proc *p, const struct mm_msg *msg);
/*
 * Makes a random piece in a chunk that it holds. Returns false if it holds none, or has no swap
 * space.
 */
bool w_swap_piece(struct world *w, struct w_proc *p, struct mm_swap_piece *ret_piece);
void w_bye(struct world *w, struct w_proc *p);
/* Breaks a step off: the one that is open, or one that begins. */
void w_resync(struct world *w, struct w_proc *p);
/* Takes the next event from the inbox and handles it. Returns false if there is none. */
bool w_proc_event(struct world *w, struct w_proc *p);
/* Lets a thread that was held up send its next message. Returns false if there is none. */
bool w_proc_send_late(struct world *w, struct w_proc *p);
/* Maps more of a SWITCH in part, while steps go on. Returns false if there is none. */
bool w_proc_map(struct world *w, struct w_proc *p);
/* Ends a mapping that has begun with an error. */
void w_proc_map_fail(struct world *w, struct w_proc *p);
/* Notes what an action or a request says about turns, and that no action is left (turns.c). */
void w_turns_note_action(struct world *w, struct w_proc *p, const struct mm_action *a);
void w_turns_note_request(struct w_proc *p, const struct mm_msg *msg);
void w_turns_note_drained(struct world *w);
/*
 * Has each decision of the core checked; checks an action of the market, and what it did until no
 * action is left (market.c).
 */
void w_market_begin(struct world *w);
void w_market_note_action(struct world *w, const struct mm_action *a);
void w_market_note_drained(struct world *w);
/* Checks that while turns close all holders have been told to give theirs back. No tick is due. */
void w_turns_check(struct world *w);
/* Joins the compute turns; requests the turn; gives it back. */
void w_turn_join(struct world *w, struct w_proc *p, enum mm_turn_mode mode, uint64_t quantum_ns,
		 uint32_t priority);
void w_turn_want(struct world *w, struct w_proc *p);
void w_turn_done(struct world *w, struct w_proc *p);
/* Runs the next layer of a step, or its begin or end. Returns false if it cannot go on. */
bool w_proc_step(struct world *w, struct w_proc *p);
void w_stats(struct world *w, struct w_proc *p, uint32_t running);
void w_deliver(struct world *w, const struct mm_action *a);
struct w_proc *w_proc_of(struct world *w, uint32_t tenant);
/* Adds an account of the operator, or changes its quota. */
void w_account_add(struct world *w, uint32_t account, uint32_t domain,
		   const struct mm_core_quota *quota);
enum mm_quota_outcome w_quota_set(struct world *w, uint32_t account,
				  const struct mm_core_quota *quota);
/* Changes knobs and times of the core, by @how; 0: back to what it began with. */
void w_tune(struct world *w, uint32_t how);
/* True if there are free pages for one of its chunks, and its account has room. */
bool w_could_have(struct world *w, const struct w_proc *p);
/* True if the page has the bytes of an entry of the process's model. */
bool w_bytes_are(const struct world *w, uint32_t page, const struct w_proc *p, uint32_t entry);
