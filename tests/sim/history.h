/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history - one seeded run of the core in a world where everything happens at the worst moment
 *
 * Concept:    A seed makes a pool, a policy, knobs, accounts, and how often what kind of thing
 *             happens; then so many random events: bursts of KV wishes, steps, turns, swaps, idle
 *             times, xfer dying in the middle, processes dying, freezing, forking, quotas and plans
 *             changed by hand. In another kind of histories plans change all the time (plans.c).
 *             The world checks everything after every one of them. Then the faults stop: what can
 *             be had must be had, and at the end every page must be free again. It panics where
 *             that is not so.
 * Ownership:  the caller owns the world; a run leaves nothing in it.
 * Threading:  one thread.
 */
#pragma once

#include "tests/sim/cover.h"
#include "tests/sim/world.h"

/* Histories of a kind have draws of their own: those of one stay when another changes. */
enum h_history {
	H_ORDINARY, /* all that may happen to a core */
	H_PLANS,    /* plans change all the time, and little else happens */
	H_ACTS,     /* one or the other, and xfer is killed between any two acts on its slots */
	H_LATE,     /* as either of these, and what a thread says is overtaken by another's words */
	H_HISTORIES
};

#define H_ONLY_ORDINARY (1u << H_ORDINARY)
#define H_ONLY_PLANS    (1u << H_PLANS)
#define H_ONLY_ACTS     (1u << H_ACTS)
#define H_ONLY_LATE     (1u << H_LATE)
#define H_BOTH          (H_ONLY_ORDINARY | H_ONLY_PLANS)

/* What a history may contain; enough histories of the kinds named must contain each. */
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
	X(HELD_UP, "threads_held_up", H_ONLY_LATE)                         \
	X(LATE_RESYNC, "parked_before_its_resync", H_ONLY_LATE)            \
	X(LATE_PARKED, "parked_overtaken", H_ONLY_LATE)                    \
	X(LATE_TURN, "turn_done_overtaken", H_ONLY_LATE)                   \
	X(LATE_MAP, "steps_held_by_mapping", H_ONLY_LATE)

#define H_ENUM(name, text, of) H_##name,
enum h_kind { H_KINDS(H_ENUM) H_COUNT };
#undef H_ENUM

struct h_counts {
	uint64_t kind[H_COUNT];
	uint64_t policy[MM_POLICY_COUNT]; /* histories under it */
	uint64_t actions_hash;            /* of all that the core wanted done */
	struct cover_counts cover;
};

extern const char *const h_kind_name[H_COUNT];
extern const char *const h_history_name[H_HISTORIES];

/* Must enough histories of this kind contain some of @kind? */
bool h_demanded(enum h_history history, enum h_kind kind);

/* Everybody does what is to be done, none asks for more, then @ns pass. */
void h_round(struct world *w, uint64_t ns);
/* The rest of a history, when nothing more goes wrong (after.c). */
void h_after(struct world *w);
/* Everybody goes, and every page is free. */
void h_end(struct world *w);

/* Panics where something is wrong. @ret: what was in it. */
void h_run(struct world *w, enum h_history history, uint64_t seed, uint64_t steps,
	   struct h_counts *ret);

/* ---- what histories of several kinds share ---- */

/* Where threads are held up, now and then one of them goes on. */
void h_send_late(struct world *w);
/* In the history that runs. */
void h_count(enum h_kind kind, uint64_t n);
struct mm_core_opts h_opts(struct world *w);
/* An empty world, whose events are counted. */
void h_begin(struct world *w, const struct mm_core_opts *opts, uint64_t seed);
void h_engine(struct world *w, struct w_proc *p);
void h_resync(struct world *w, struct w_proc *p);
void h_kill(struct world *w, struct w_proc *p);
void h_disconnect(struct world *w, struct w_proc *p);
/* The faults stop: what they left is cleared away, and plans are the controller's. */
void h_calm(struct world *w);
/* Steps go on, plan changes end; who computes in turn gets its turn. */
void h_assert_moving(struct world *w);
/*
 * Rounds of 8 ms: one that had too much of the turn waits 10 s and a turn for each of the others.
 */
#define H_MOVE_ROUNDS (W_PROCS * 1500)

/* A history of that kind, up to its last checks (plans.c). */
void h_plans(struct world *w, uint64_t seed, uint64_t steps);
