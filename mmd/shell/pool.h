/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool - one device that mmd owns: its core, its xfer, and how it is
 *
 * Concept:   mmd may own several devices. Each has a core of its own (ledger, accounts, controller)
 *            and an xfer of its own; nothing that happens on one is known to the other's core. What
 *            is one per node, not per device: keeper, sessions, host copies of models, the budget
 *            of fds in flight, the operator's socket. A tenant lives on one pool, from its hello
 *            on.
 * Ids:       the pool's index is part of its tenants' ids (MM_TENANT_INDEX), so an id names one
 *            tenant of all pools.
 * Start:     all or nothing: mmd is ready when the pages of every pool stand and are clean, and
 *            ends when a pool cannot be made or none of its pages can be cleared. Single pages that
 *            cannot are in quarantine.
 * Down:      an xfer that keeps failing later on takes only its own pool down: the pool's tenants
 *            are ended, new ones refused, until an xfer is up again and has proven itself
 *            (worker.h). With every pool down mmd ends.
 * Ownership: struct mm_shell owns the pools; a pool owns its core and its worker.
 * Threading: core's thread.
 */
#pragma once

#include <stdbool.h>

#include "mmd/core/core.h"
#include "mmd/shell/health.h"
#include "mmd/shell/worker.h"

struct mm_config;
struct mm_shell;

struct mm_pool {
	struct mm_shell *shell;
	uint32_t index;       /* in shell->pool[] and in the configuration's lists */
	uint64_t ordinal;     /* that the driver knows the device by, in mmd's environment */
	struct mm_core *core; /* NULL until the device is known */
	struct mm_worker worker;
	uint64_t bytes_streamed_gone; /* by tenants that are forgotten */
	struct mm_health health;
	bool ready;           /* all pages were created, and those that can be had are clean */
	uint32_t quarantined; /* that could not be had when it became ready */
	bool down;            /* its xfer keeps failing */
};

void mm_pool_init(struct mm_pool *pool, struct mm_shell *shell, uint32_t index);
void mm_pool_done(struct mm_pool *pool);

/* The controller's knobs as the operator set them, else their defaults. */
void mm_pool_tune(const struct mm_config *config, struct mm_core_opts *opts);

/* The device is known: make the core. Return: 0 or negative errno, then mmd ends. */
int mm_pool_device(struct mm_pool *pool);

/* Performs all that the core wants done. Call after every mm_core_on_*(). */
void mm_pool_settle(struct mm_pool *pool);

/* Keeper: its xfer has failed too often in a row. */
void mm_pool_down(struct mm_pool *pool);
/* It has an xfer that is proven. */
void mm_pool_up(struct mm_pool *pool);

/* By a hello's UUID; NULL when there is none. All zero: the only one, or NULL. */
struct mm_pool *mm_pool_by_uuid(struct mm_shell *shell, const uint8_t *uuid);

/* Looks whether all its pages stand by now, and can be granted; ends mmd where none can. */
bool mm_pool_ready(struct mm_pool *pool);

/* What is due by the clock, and when something will be. */
void mm_pool_tick(struct mm_pool *pool, uint64_t now_ns);
uint64_t mm_pool_deadline(const struct mm_pool *pool);
