/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history - one seeded run of the core in a world where everything happens at the worst moment
 *
 * Concept:    A seed makes a pool, a policy, knobs, accounts, and how often what kind of thing happens;
 *             then so many random events: bursts of KV wishes, steps, turns, swaps, idle times, xfer
 *             dying in the middle, processes dying, freezing, forking, quotas and plans changed by hand.
 *             The world checks everything after every one of them. Then the faults stop: what can be had
 *             must be had, and at the end every page must be free again. It panics where that is not so.
 * Ownership:  the caller owns the world; a run leaves nothing in it.
 * Threading:  one thread.
 */
#pragma once

#include "tests/sim/world.h"

/* What a history may contain; enough of them must contain each. */
#define H_KINDS(X)                          \
	X(JOINS, "joins")                   \
	X(BYES, "byes")                     \
	X(CROSSED, "words_behind_byes")     \
	X(DISCONNECTS, "disconnects")       \
	X(DEATHS, "deaths")                 \
	X(FREEZES, "freezes")               \
	X(FORKS, "forking_tenants")         \
	X(HOSTILE, "hostile_tenants")       \
	X(LIES, "hostile_messages")         \
	X(MODELS, "models_ready")           \
	X(REFUSALS, "models_refused")       \
	X(STEPS, "steps")                   \
	X(RESYNCS, "steps_broken_off")      \
	X(WISHES, "kv_wishes")              \
	X(BURSTS, "kv_bursts")              \
	X(GRANTS, "kv_grants")              \
	X(DENIALS, "kv_denials")            \
	X(RECLAIMS, "kv_reclaims")          \
	X(RELEASES, "kv_releases")          \
	X(IDLES, "idle_times")              \
	X(TAKES, "takes")                   \
	X(RETURNS, "returns")               \
	X(CHANGES, "plan_changes")          \
	X(PARTIAL, "partial_switches")      \
	X(BY_HAND, "plans_by_hand")         \
	X(ONE_SLOT, "plans_of_one_slot")    \
	X(TWO_SLOTS, "plans_of_two_slots")  \
	X(SWAPS, "swap_lists")              \
	X(TURNS, "turns")                   \
	X(TURNS_OVERDUE, "turns_overdue")   \
	X(QUOTAS, "quotas_applied")         \
	X(QUOTAS_LATER, "quotas_deferred")  \
	X(QUOTAS_NOT, "quotas_refused")     \
	X(MINS, "accounts_with_min")        \
	X(DOMAINS, "joint_domains")         \
	X(RECREATES, "pages_created_anew")  \
	X(QUARANTINES, "pages_quarantined") \
	X(JUDGED, "deadlines_passed")       \
	X(KICKS, "kicks")                   \
	X(KILLS, "kills")                   \
	X(XFER_DEATHS, "xfer_deaths")       \
	X(XFER_FAULTS, "xfer_faults")       \
	X(JOB_ERRORS, "job_errors")         \
	X(MEMORY_ERRORS, "memory_errors")

#define H_ENUM(name, text) H_##name,
enum h_kind { H_KINDS(H_ENUM) H_COUNT };
#undef H_ENUM

struct h_counts {
	uint64_t kind[H_COUNT];
	uint64_t policy[MM_POLICY_COUNT]; /* histories under it */
	uint64_t actions_hash;            /* of all that the core wanted done */
};

extern const char *const h_kind_name[H_COUNT];

/* Everybody does what is to be done, none asks for more, then @ns pass. */
void h_round(struct world *w, uint64_t ns);
/* The rest of a history, when nothing more goes wrong (after.c). */
void h_after(struct world *w);
/* Everybody goes, and every page is free. */
void h_end(struct world *w);

/* Panics where something is wrong. @ret: what was in it. */
void h_run(struct world *w, uint64_t seed, uint64_t steps, struct h_counts *ret);
