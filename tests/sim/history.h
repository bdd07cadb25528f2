/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history - one seeded run of the core in a world where everything happens at the worst moment
 *
 * Concept:    A seed determines a pool, a policy, knobs, accounts, and how often each kind of event
 *             happens. A number of random events follow: bursts of KV demands, steps, turns, swaps,
 *             idle times, xfer dying in the middle of a job, processes dying, freezing and forking,
 *             quotas and plans that the operator changes. In another kind of history plans change
 *             all the time (plans.c). The world checks everything after every event. Then the
 *             faults stop: everything that can be granted must be granted, and at the end every
 *             page must be free again. A history that finds an error panics.
 * Ownership:  The caller owns the world; a run leaves nothing in it.
 * Threading:  one thread.
 */
#pragma once

#include "tests/sim/cover.h"
#include "tests/sim/mortal.h"
#include "tests/sim/world.h"

/*
 * Kinds of histories. Each draws its own random numbers: a change of one kind leaves the others as
 * they are.
 */
enum h_history {
	H_ORDINARY, /* everything that may happen to a core */
	H_PLANS,    /* plans change all the time, and little else happens */
	H_ACTS,     /* either of these, and xfer is killed between any two acts on its slots */
	H_LATE,     /* either of the first two, and messages of threads overtake each other */
	H_MODES,    /* turns open and close all the time */
	H_STILL,    /* claims stand still for a while: memory must, too */
	H_MEM,      /* as ordinary, and tenants have memory of the third kind */
	H_UNLOAD,   /* as ordinary, and tenants give models back and load others */
	H_STEER,    /* as ordinary, and the operator revokes, drains, pins and has models home */
	H_COOL,     /* cold blocks are streamed, and xfer is killed as in H_ACTS */
	H_HISTORIES
};

#define H_ONLY_ORDINARY (1u << H_ORDINARY)
#define H_ONLY_PLANS    (1u << H_PLANS)
#define H_ONLY_ACTS     (1u << H_ACTS)
#define H_ONLY_LATE     (1u << H_LATE)
#define H_ONLY_MODES    (1u << H_MODES)
#define H_ONLY_STILL    (1u << H_STILL)
#define H_ONLY_MEM      (1u << H_MEM)
#define H_ONLY_UNLOAD   (1u << H_UNLOAD)
#define H_ONLY_STEER    (1u << H_STEER)
#define H_ONLY_COOL     (1u << H_COOL)
#define H_BOTH          (H_ONLY_ORDINARY | H_ONLY_PLANS)

/* Kinds of events in a history. Over enough histories of the named kinds, each must happen. */
#define H_KINDS(X)                                                         \
	X(JOINS, "joins", H_BOTH)                                          \
	X(BYES, "byes", H_ONLY_ORDINARY)                                   \
	X(CROSSED, "words_behind_byes", H_ONLY_ORDINARY)                   \
	X(DISCONNECTS, "disconnects", H_BOTH)                              \
	X(DEATHS, "deaths", H_BOTH)                                        \
	X(FREEZES, "freezes", H_ONLY_ORDINARY)                             \
	X(FORKS, "forking_tenants", H_ONLY_ORDINARY)                       \
	X(HOSTILE, "hostile_tenants", H_ONLY_ORDINARY)                     \
	X(HOSTILE_MESSAGES, "hostile_messages", H_ONLY_ORDINARY)           \
	X(MODELS, "models_ready", H_BOTH)                                  \
	X(REFUSALS, "models_refused", H_ONLY_ORDINARY)                     \
	X(STEPS, "steps", H_BOTH)                                          \
	X(RESYNCS, "steps_broken_off", H_BOTH)                             \
	X(DEMANDS, "kv_wishes", H_ONLY_ORDINARY)                           \
	X(BURSTS, "kv_bursts", H_ONLY_ORDINARY)                            \
	X(GRANTS, "kv_grants", H_ONLY_ORDINARY)                            \
	X(DENIALS, "kv_denials", H_ONLY_ORDINARY)                          \
	X(RECLAIMS, "kv_reclaims", H_ONLY_ORDINARY)                        \
	X(RELEASES, "kv_releases", H_ONLY_ORDINARY)                        \
	X(IDLES, "idle_times", H_ONLY_ORDINARY)                            \
	X(TAKES, "takes", H_ONLY_ORDINARY)                                 \
	X(RETURNS, "returns", H_ONLY_ORDINARY)                             \
	X(CHANGES, "plan_changes", H_BOTH)                                 \
	X(PARTIAL, "partial_switches", H_BOTH)                             \
	X(BY_HAND, "plans_by_hand", H_BOTH)                                \
	X(ONE_SLOT, "plans_of_one_slot", H_BOTH)                           \
	X(TWO_SLOTS, "plans_of_two_slots", H_BOTH)                         \
	X(SWAPS, "swap_lists", H_ONLY_ORDINARY)                            \
	X(TURNS, "turns", H_ONLY_ORDINARY)                                 \
	X(TURNS_OVERDUE, "turns_overdue", H_ONLY_ORDINARY)                 \
	X(QUOTAS, "quotas_applied", H_ONLY_ORDINARY)                       \
	X(QUOTAS_LATER, "quotas_deferred", H_ONLY_ORDINARY)                \
	X(QUOTAS_NOT, "quotas_refused", H_ONLY_ORDINARY)                   \
	X(MINS, "accounts_with_min", H_ONLY_ORDINARY)                      \
	X(DOMAINS, "joint_domains", H_ONLY_ORDINARY)                       \
	X(RECREATES, "pages_created_anew", H_ONLY_ORDINARY)                \
	X(QUARANTINES, "pages_quarantined", H_ONLY_ORDINARY)               \
	X(STOPPED_CHECKS, "deadlines_passed", H_ONLY_ORDINARY)             \
	X(KICKS, "kicks", H_BOTH)                                          \
	X(KILLS, "kills", H_ONLY_ORDINARY)                                 \
	X(XFER_DEATHS, "xfer_deaths", H_BOTH)                              \
	X(XFER_FAULTS, "xfer_faults", H_BOTH)                              \
	X(JOB_ERRORS, "job_errors", H_BOTH)                                \
	X(MEMORY_ERRORS, "memory_errors", H_ONLY_ORDINARY)                 \
	X(UNHELD, "pages_unheld", H_ONLY_ORDINARY)                         \
	X(REPLANS, "replans", H_ONLY_PLANS | H_ONLY_ACTS)                  \
	X(NULL_CHANGES, "null_changes", H_ONLY_PLANS)                      \
	X(LATE_RESYNCS, "late_resyncs", H_ONLY_PLANS)                      \
	X(DEATH_REPLAN, "xfer_deaths_in_replan", H_ONLY_PLANS)             \
	X(DEATH_QUIESCE, "xfer_deaths_in_quiesce_in_part", H_ONLY_PLANS)   \
	X(DEATH_WINDOW, "xfer_deaths_in_window", H_ONLY_PLANS)             \
	X(PARKED_DOWN, "parked_in_part_without_xfer", H_ONLY_PLANS)        \
	X(RESYNC_SWITCH, "resync_before_switch", H_ONLY_PLANS)             \
	X(RESYNC_REPLAN, "resync_in_replan", H_ONLY_PLANS)                 \
	X(RESYNC_QUIESCE, "resync_in_quiesce", H_ONLY_PLANS)               \
	X(RESYNC_WINDOW, "resync_in_window", H_ONLY_PLANS)                 \
	X(KICK_CONTROL, "kicks_with_control_job", H_ONLY_PLANS)            \
	X(REPLAN_FAILED, "replans_failed", H_ONLY_PLANS)                   \
	X(ACTIVATE_FAILED, "activates_failed", H_ONLY_PLANS)               \
	X(ACTIVATE_SWITCH, "activates_failed_before_switch", H_ONLY_PLANS) \
	X(ACTIVATE_WINDOW, "activates_failed_in_window", H_ONLY_PLANS)     \
	X(PRELOAD_FAILED, "preloads_failed", H_ONLY_PLANS)                 \
	X(COMMIT_FAILED, "commits_failed", H_ONLY_PLANS)                   \
	X(CYCLES, "plans_cycled_through", H_ONLY_PLANS)                    \
	X(CUT_NEW, "xfer_deaths_before_new", H_ONLY_ACTS)                  \
	X(CUT_CURSOR, "xfer_deaths_before_cursor", H_ONLY_ACTS)            \
	X(CUT_EPOCH, "xfer_deaths_before_epoch", H_ONLY_ACTS)              \
	X(CUT_GATE, "xfer_deaths_before_gate", H_ONLY_ACTS)                \
	X(CUT_GATES, "xfer_deaths_before_gates", H_ONLY_ACTS)              \
	X(CUT_COPY, "xfer_deaths_before_copy", H_ONLY_ACTS)                \
	X(CUT_CANCEL, "xfer_deaths_before_cancel", H_ONLY_ACTS)            \
	X(CUT_COUNT, "xfer_deaths_before_count", H_ONLY_ACTS)              \
	X(CUT_KEEP, "xfer_deaths_before_keep", H_ONLY_COOL)                \
	X(CUT_ALL, "xfer_deaths_before_gates_of_all", H_ONLY_COOL)         \
	X(HELD_UP, "threads_held_up", H_ONLY_LATE)                         \
	X(LATE_RESYNC, "parked_before_its_resync", H_ONLY_LATE)            \
	X(LATE_PARKED, "parked_overtaken", H_ONLY_LATE)                    \
	X(LATE_TURN, "turn_done_overtaken", H_ONLY_LATE)                   \
	X(LATE_MAP, "steps_held_by_mapping", H_ONLY_LATE)                  \
	X(OPENINGS, "turns_opened", H_ONLY_MODES)                          \
	X(CLOSINGS, "turns_closed", H_ONLY_MODES)                          \
	X(TURNS_BESIDE, "turns_beside", H_ONLY_MODES)                      \
	X(TURNS_LEFT, "turns_left", H_ONLY_MODES)                          \
	X(TAKEN_BESIDE, "turns_overdue_beside", H_ONLY_MODES)              \
	X(MEM_GRANTS, "mem_grants", H_ONLY_MEM)                            \
	X(MEM_WAITS, "mem_requests_that_waited", H_ONLY_MEM)               \
	X(MEM_QUOTAS, "mem_refused_by_share", H_ONLY_MEM)                  \
	X(MEM_REFUSALS, "mem_refused_for_space", H_ONLY_MEM)               \
	X(MEM_FREES, "mem_frees", H_ONLY_MEM)                              \
	X(UNLOADS, "models_given_back", H_ONLY_UNLOAD)                     \
	X(UNLOADS_CYCLING, "unloads_while_layers_cycle", H_ONLY_UNLOAD)    \
	X(UNLOADS_CHANGING, "unloads_in_a_plan_change", H_ONLY_UNLOAD)     \
	X(UNLOADS_DOWN, "unloads_without_xfer", H_ONLY_UNLOAD)             \
	X(UNLOADS_ENDED, "ends_in_an_unload", H_ONLY_UNLOAD)               \
	X(UNLOADS_AGAIN, "models_loaded_after_another", H_ONLY_UNLOAD)     \
	X(REVOKES, "revokes", H_ONLY_STEER)                                \
	X(REVOKES_DONE, "revokes_that_were_given", H_ONLY_STEER)           \
	X(DRAINS, "drains", H_ONLY_STEER)                                  \
	X(DRAINS_ENDED, "drains_without_time", H_ONLY_STEER)               \
	X(DRAINS_CANCELLED, "drains_cancelled", H_ONLY_STEER)              \
	X(ACTIVATES, "activations", H_ONLY_STEER)                          \
	X(ACTIVATES_DONE, "activations_with_layers_away", H_ONLY_STEER)    \
	X(PINS, "pins", H_ONLY_STEER)                                      \
	X(PINS_AWAY, "pins_with_layers_away", H_ONLY_STEER)                \
	X(HOMES_REFUSED, "pins_and_activations_refused", H_ONLY_STEER)     \
	X(COLD_WINDOWS, "windows_requested", H_ONLY_COOL)                  \
	X(COLD_STEPS, "steps_that_read_cold", H_ONLY_COOL)                 \
	X(COLD_ROWS, "rows_read", H_ONLY_COOL)                             \
	X(COLD_KEPT, "rows_kept_over_a_change", H_ONLY_COOL)               \
	X(COLD_OVERRUNS, "limits_that_were_passed", H_ONLY_COOL)           \
	X(COLD_RELEASES, "window_chunks_released_in_vain", H_ONLY_COOL)    \
	X(COLD_REVOKES, "revokes_beside_a_window", H_ONLY_COOL)

#define H_ENUM(name, text, of) H_##name,
enum h_kind { H_KINDS(H_ENUM) H_COUNT };
#undef H_ENUM

struct h_counts {
	uint64_t kind[H_COUNT];
	uint64_t policy[MM_POLICY_COUNT]; /* histories under each policy */
	uint64_t actions_hash;            /* hash of all actions of the core */
	struct cover_counts cover;
	struct w_mortality mortality;
};

extern const char *const h_kind_name[H_COUNT];

/* True if @kind must happen in enough histories of this kind. */
bool h_demanded(enum h_history history, enum h_kind kind);

/* Every process and xfer do what is due, and demand nothing more; then @ns pass. */
void h_round(struct world *w, uint64_t ns);
/* Runs the rest of a history, in which nothing more goes wrong (after.c). */
void h_after(struct world *w);
/* Ends all processes, and checks that every page is free. */
void h_end(struct world *w);

/* Sets how often the core of each history dies from now on (mortal.h). */
void h_let_die(const struct w_odds *odds);
/* Runs a history, and panics at the first error. @ret: counts of its events. */
void h_run(struct world *w, enum h_history history, uint64_t seed, uint64_t steps,
	   struct h_counts *ret);

/* ---- what histories of several kinds share ---- */

/* Lets a thread that is held up continue now and then. */
void h_send_late(struct world *w);
/* Counts events of the history that runs. */
void h_count(enum h_kind kind, uint64_t n);
/* Draws random options of a core. */
struct mm_core_opts h_opts(struct world *w);
/* Makes an empty world, whose events are counted. */
void h_begin(struct world *w, const struct mm_core_opts *opts, uint64_t seed);
/* Draws something that an engine does by itself. */
void h_engine(struct world *w, struct w_proc *p);
/* Each of these counts, then does it. */
void h_resync(struct world *w, struct w_proc *p);
void h_kill(struct world *w, struct w_proc *p);
void h_disconnect(struct world *w, struct w_proc *p);
/* Stops the faults, repairs what they left, and returns plans to the controller. */
void h_calm(struct world *w);
/*
 * Checks that steps go on, plan changes end, and every process that computes in turns gets its
 * turn.
 */
void h_assert_moving(struct world *w);
/*
 * In rounds of 8 ms: a process that had too much of the turn waits while each of the others of its
 * account has it for 10 s. An account of weight 50 beside three of 200 has a 13th of the time.
 */
#define H_MOVE_ROUNDS (W_PROCS * 1250 * 13)

/* The operator steers a tenant now and then (steer.c). */
void h_steer_event(struct world *w, struct w_proc *p);
/* Ends what the operator has tenants do. */
void h_steer_end(struct world *w);
/* Runs a history of kind H_PLANS, up to its last checks (plans.c). */
void h_plans(struct world *w, uint64_t seed, uint64_t steps);
/* Runs a history of kind H_COOL, up to its last checks (cool.c). */
void h_cool(struct world *w, uint64_t seed, uint64_t steps);
/* Runs a history of kind H_STILL, up to its last checks (still.c). */
void h_still(struct world *w, uint64_t seed);
