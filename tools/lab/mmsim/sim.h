/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim - devices, mmd, and engines in virtual time
 *
 * Concept:    The core of mmd and the engine's scheduler are the code of mmd and of mmserve itself.
 *             Everything between them is simulated by events: the shell (shell.c) performs the
 *             core's actions, xfer (xfer.c) does its jobs over a link (link.c) and a scrubber,
 *             libclient (client.c) maps, parks, commits, takes turns and runs steps, and the engine
 *             (engine.c) decides between them. Computation is fluid: tenants that compute at the
 *             same time advance one layer each in the time that all their layers take together. A
 *             step in which no layer cycles is one event; otherwise each part of the step ends
 *             where a cycling layer leaves its slot to the next one.
 * Ownership:  ms_sim_run() allocates, ms_sim_destroy() frees everything.
 * Threading:  one thread; no function reads a clock or a random source of the system.
 * Invariants: check.c checks them after events of a core.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/timing/profile.h"
#include "libclient/protocol/cycle.h"
#include "libclient/protocol/steps.h"
#include "mm/client.h"
#include "mmd/core/core.h"
#include "mmd/common/proto.h"
#include "libclient/base/base.h"
#include "tools/mmserve/sched/kvarena.h"
#include "tools/mmserve/sched/kvman.h"
#include "tools/mmserve/sched/sched.h"
#include "tools/lab/mmsim/queue.h"
#include "tools/lab/stepcost/stepcost.h"
#include "tools/lab/workload/case.h"
#include "tools/lab/workload/record.h"
#include "tools/lab/workload/sizes.h"

#define MS_TENANTS_MAX MM_WL_TENANTS_MAX
#define MS_ERROR_BYTES 512
#define MS_EXPLAIN_MAX 64

struct ms_sim;
struct ms_device;
struct ms_tenant;

enum ms_event_kind {
	MS_REQUEST,    /* the core receives a tenant's oldest request */
	MS_ACK,        /* the core receives the acknowledgement of descriptors */
	MS_DELIVER,    /* an item reaches a tenant's service thread */
	MS_SERVICE,    /* the service thread has handled an item */
	MS_JOB,        /* a job reaches xfer */
	MS_JOB_DONE,   /* the core receives the end of a job */
	MS_LOOK,       /* xfer reads a tenant's gates */
	MS_LANDED,     /* xfer sees that the copy of a cursor has landed; arg: cursor */
	MS_ENGINE,     /* an engine continues */
	MS_STEP_BEGIN, /* the engine has done its part of a step */
	MS_STEP_END,   /* the engine sees that the device has completed a step */
	MS_SAMPLE,     /* mmd samples statistics */
};

/* ---- device ---- */

struct ms_transfer {
	struct ms_transfer *next;
	double left; /* bytes, when it was served last */
	bool to_host;
	uint64_t due; /* the least goes first */
	uint64_t job; /* id of a COPY or SWAP; 0: the transfer of a layer */
	struct ms_tenant *tenant;
	uint32_t cursor; /* for a layer: where it goes to */
};

struct ms_flow {                  /* in one lane */
	struct ms_transfer *head; /* by due, then by age */
	struct ms_transfer *on;   /* the one that is served; NULL: there is none */
	double end, stop; /* when it ends, and when another may go before it, as ms_lane.served */
	uint64_t stop_ns;
};

enum ms_lane_id { MS_LANE_IN, MS_LANE_OUT, MS_LANES }; /* to the device; from it */

struct ms_lane {
	struct ms_flow *flows; /* copies; then for each tenant its layers, and its swaps */
	uint32_t busy;         /* flows */
	double weights;        /* of these, in all */
	double served;         /* bytes to each busy flow of weight 1 until now */
	double rate;           /* bytes per ns to each busy flow of weight 1 */
	uint64_t busy_ns;
};

struct ms_link {
	struct ms_lane lane[MS_LANES];
	uint32_t n_flows; /* of each lane */
	uint64_t at_ns, next_ns;
	struct ms_transfer *spare;
};

struct ms_compute {
	struct ms_tenant *on[MS_TENANTS_MAX];
	uint32_t n;
	double slow; /* factor of the speed; below 1 while the link streams in */
	uint64_t at_ns, next_ns, busy_ns;
};

struct ms_device {
	struct ms_sim *sim;
	uint32_t index;
	struct mm_profile profile;
	struct mm_core *core;
	struct mm_core_opts opts;
	uint64_t deadline_ns;
	struct ms_fifo jobs, jobs_done;
	uint64_t driver_free_ns, xfer_free_ns, scrub_free_ns;
	struct ms_link link;
	struct ms_compute compute;
	uint16_t *holder;       /* per page: index + 1 of the tenant that maps it; 0: none */
	uint16_t *holder_count; /* per page: at how many places it is mapped */
	double copied_bytes, swapped_bytes;
};

/* ---- tenants ---- */

enum ms_gate { MS_GATE_RESIDENT, MS_GATE_READY, MS_GATE_DONE, MS_GATE_EMPTY };

struct ms_item { /* a message in an outbox, or on its way */
	enum mm_action_kind kind;
	uint32_t entry, page; /* of descriptors on their way, page is the number */
	struct mm_msg msg;
};

struct ms_cycle { /* state of a slot beside its machine in libclient/protocol/cycle.h */
	uint64_t since_ns;
	struct ms_transfer *transfer;
};

struct ms_xplan { /* a plan as in xfer's regions */
	struct mm_core_plan core;
	uint32_t page[MM_SLOTS_MAX][MM_SLOT_PAGES_MAX];
	uint32_t window[MM_SLOT_PAGES_MAX]; /* pages of the window of cold blocks */
	uint32_t n_window;
};

struct ms_class {         /* the cursor of a class of cold blocks */
	uint64_t version; /* of the live entries that its layer is streamed with */
	uint64_t rows;    /* how many these are */
	/* Only of Pie: rows that are in the window, and go back before others come; they do now. */
	uint64_t held;
	bool returns;
	uint64_t due; /* of the layer whose rows come then */
};

struct ms_xfer {
	struct ms_xplan plan, region;              /* plan in service; plan that the core wrote */
	enum mm_cursor_state cursor[MM_SLOTS_MAX]; /* of region, at the slot's first layer */
	struct mm_cycles cycles;
	struct ms_cycle cycle[MM_CYCLES_MAX];
	uint64_t open;
	struct mm_msg waiting; /* a QUIESCE or REPLAN that waits for copies to land */
	struct ms_class class[MM_COLD_CLASSES_MAX];
	uint64_t cold_limit; /* live entries that are streamed, at most; the core writes it */
	uint64_t cold_acked; /* the gate region's */
	uint64_t cold_bytes, cold_rows, returned_bytes;
	uint64_t bytes_streamed, layers_streamed, copy_ns;
	uint64_t layers_seen, copy_seen_ns; /* counts when mmd last sampled them */
};

struct ms_client {
	uint32_t *view, *map; /* pages of the model, by entry; MM_NO_PAGE: none */
	uint32_t *kv_view;
	struct ms_fifo inbox;   /* items on their way */
	struct ms_fifo arrived; /* items that the service thread has yet to handle */
	bool busy;              /* the service thread handles @at */
	struct ms_item at;
	uint32_t mapping; /* groups that a plan change has mapped */
	bool model_ready;
	/* plans, steps, turns */
	struct mm_steps steps;
	bool mapping_partly, wants_begin;
	uint64_t parked_ns, held_ns, step_seq;
	/* KV */
	bool kv_declared, kv_open;
	uint64_t *usable; /* a bit per chunk */
	uint32_t n_usable, wanted;
	uint64_t released;
	struct { /* mmd's last reclaim */
		uint32_t chunks;
		uint64_t deadline_ns, known;
	} ask;
	struct mm_tenant_stats stats;
	struct ms_fifo events; /* struct mm_event */
};

struct ms_step { /* on the device */
	struct mm_step_ns cost;
	uint64_t before_ns; /* work before the first layer that is yet to begin */
	uint64_t begins;    /* steps that have begun */
	uint64_t begin_ns, stall_ns, stalled_since_ns;
	uint32_t layer; /* the next layer */
	uint32_t end;   /* end of the part under way */
	bool cycles;    /* the part ends with a layer that cycles */
	bool last;      /* the part under way is the last one */
	bool stalled;   /* the step waits at a gate */
	/* steps that break off (--broken-steps) */
	uint64_t rng;
	bool breaks;    /* the step will break off */
	bool abandons;  /* it broke off, and waits until the plan is mapped */
	uint32_t until; /* it breaks off before this layer; else the model's number of layers */
	/* computing */
	double left_ns, rate;
	uint64_t end_ns;
};

/* Cold blocks of an engine, see cold.h. The window lies behind the chunks that kvman has. */
struct ms_cold {
	uint32_t entries_max;  /* 0: the engine has none */
	uint32_t window_max;   /* chunks of the largest window */
	uint32_t window;       /* chunks of the window in force; 0: there is none */
	uint32_t requested;    /* those of the window that is requested */
	bool pending;          /* it is not answered yet */
	bool open_sent, open;  /* the declaration is sent; it is answered */
	uint64_t busy_ns;      /* when the engine last had something to do */
	uint32_t limit;        /* entries that may be live */
	uint64_t deadline_ns;  /* until when no more are; 0: the limit fell without one, or rose */
	uint32_t first;        /* chunk at which the largest window begins */
	uint64_t lacks_ns;     /* from when on kvman gives chunks that the window lacks; 0: none */
	uint64_t gives_at;     /* number of released chunks until which kvman gives some for it */
	uint32_t chunks_hot;   /* the last demand of kvman */
	uint32_t chunks_asked; /* the last demand in all */
	uint64_t *live;        /* a bit per entry */
	uint32_t n_live;
	uint64_t version; /* of the live entries */
	uint64_t used;    /* the version up to which entries are in block tables */
	uint64_t *seen;   /* with every check: [classes] the bits that its layer is streamed with */
	uint32_t n[MM_SWAP_LOTS], entry[MM_SWAP_LOTS][MM_KVMAN_COOLS]; /* lists under way */
	uint32_t flying;
	struct ms_fifo landed; /* lots whose copies are done */
	uint64_t cooled;       /* blocks */
};

struct ms_engine {
	struct mm_sched sched;
	struct mm_kvman kvman;
	uint64_t *finished; /* [max_batch] */
	bool fixed, swaps, swap_open;
	uint32_t next_arrival;
	uint64_t wake_ns;      /* next time to run; UINT64_MAX: only an event wakes it */
	uint64_t moved_ns;     /* when the device has copied all blocks that were moved */
	uint64_t calls_end_ns; /* end of driver calls that the next step waits for */
	bool running;          /* a step runs */
	uint64_t step_ns;      /* when the step began */
	const struct mm_sched_plan *plan;
	/* swapping, between plan and step */
	bool suspending, lot_used[MM_SWAP_LOTS];
	uint32_t swap_next, swaps_flying;
	struct mm_swap_piece (*pieces)[MM_SWAP_PIECES]; /* [MM_SWAP_LOTS] */
	struct ms_cold cold;
};

struct ms_pie {                      /* pie.h */
	uint32_t m, before;          /* layers that are away; those before */
	uint32_t m_max, left;        /* steps until another setting is tried, after one was left */
	uint32_t steps, idle, waits; /* of the setting; of these the last ones in a row */
	uint64_t tokens, since_ns, busy_ns;
	double rate, rate_before; /* tokens/ns over a setting's first steps; 0: not known */
};

struct ms_stats { /* statistics of a tenant */
	uint64_t steps, step_ns, stall_ns;
	uint64_t steps_broken;
	uint64_t tokens;          /* output tokens */
	uint64_t computed_tokens; /* all tokens that were computed */
	uint64_t needed_tokens;   /* as many as if no token had been computed twice */
	uint64_t plan_changes;
	uint32_t batch_max, alpha_max;
	uint64_t swapped_bytes;
	/* sums of samples: layers away, chunks held, blocks used, entries live */
	double alpha_sum, chunks_sum, blocks_sum, cold_sum;
	uint64_t samples;
};

struct ms_tenant {
	struct ms_sim *sim;
	struct ms_device *dev;
	uint32_t index, id; /* id: the core's */
	const char *name;
	const struct mm_arch *arch;
	const struct mm_wl_tenant_sizes *sizes;
	struct mm_step_model cost;
	struct mm_core_group group[MM_LAYERS_MAX + 1];
	uint32_t first[MM_LAYERS_MAX + 2]; /* first entry of each group */
	uint32_t n_layers, entries;
	uint32_t model_pages, kv_pages; /* mapped now, each counted once */
	uint8_t gate[MM_LAYERS_MAX];
	uint64_t gated[MM_LAYER_WORDS]; /* a bit per layer that is not resident */
	uint64_t plan_pages, plan_pages_epoch;
	struct mm_kv_arena kv;
	uint32_t chunk_pages, chunks_max, chunks_share;
	/* the shell's side */
	struct ms_fifo outbox, requests;
	bool unacked;
	struct ms_xfer x;
	struct ms_client c;
	struct ms_step step;
	struct ms_engine e;
	struct ms_pie pie;
	struct ms_stats s;
	const struct mm_wl_stream *stream;
};

/* ---- the whole ---- */

struct ms_plan {        /* of a tenant, by hand */
	uint32_t alpha; /* layers that are away all the time */
	uint32_t slots; /* slots that these layers share; 0: mmd decides */
};

struct ms_explain { /* moments at which decisions are explained, and what was so then */
	double at_s[MS_EXPLAIN_MAX]; /* virtual seconds since requests begin, ascending */
	uint32_t n;
	json_t *list;
};

struct ms_opts {
	const struct mm_wl_opts *wl;
	const struct mm_wl_sizes *sizes;
	const struct mm_wl_case *c;
	struct mm_wl_record *record; /* record of the case, which the run fills in */
	struct mm_profile profile;
	struct mm_core_opts core; /* from the command line; the run sets pages and policy */
	const struct mm_wl_policy *policy;
	const struct ms_plan *plans; /* of each tenant, by hand; NULL: mmd decides */
	uint64_t step_ns;            /* time of the engine's thread for each step */
	enum mm_admit admit;
	uint32_t slice_tokens;    /* for mm_sched_config */
	uint32_t broken_permille; /* share of steps that break off, each before some layer */
	bool cold_full; /* all entries of the limit are streamed, whether they are live or not */
	uint32_t pie_layers; /* that are away under Pie; 0: chosen */
	uint32_t check;      /* events of a core from one check of all invariants to the next */
	FILE *trace; /* gets a line for each tenant with each sample of statistics; NULL: none */
	struct ms_explain *explain; /* NULL: none */
};

struct ms_sim {
	uint64_t now_ns, joined_ns, start_ns, end_ns;
	struct ms_opts opts;
	struct ms_heap heap;
	struct ms_device *devices;
	uint32_t n_devices;
	struct ms_tenant *tenants;
	uint32_t n_tenants;
	uint64_t events, checks;
	uint64_t ticked_ns, ticks_here;
	uint32_t explained; /* moments of opts.explain that are over */
	bool joined, started, failed;
	char err[MS_ERROR_BYTES];
};

/**
 * ms_sim_run() - simulate a case under one policy, from beginning to end
 * @opts:    borrowed, with all that they point to
 * @ret_sim: the simulation at its end, written only on success; free it with ms_sim_destroy()
 * @err:     MS_ERROR_BYTES
 *
 * Return: 0; -ENOSPC the case is refused; -ENOMEM; -EIO an invariant does not hold, or mmd closed
 * a tenant's connection.
 */
int ms_sim_run(const struct ms_opts *opts, struct ms_sim **ret_sim, char *err);
struct ms_sim *ms_sim_destroy(struct ms_sim *sim);
/* Finds a tenant by the core's id; NULL: there is none. */
struct ms_tenant *ms_tenant_of(struct ms_device *dev, uint32_t id);
void ms_fail(struct ms_sim *sim, const char *format, ...) MM_PRINTF(2, 3);
