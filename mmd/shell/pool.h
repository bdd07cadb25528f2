/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool - one device that mmd owns: its core, its xfer and its state
 *
 * Concept:   mmd may own several devices. Each has a core of its own (ledger, accounts, controller)
 *            and an xfer of its own; no core knows what happens on another device. One per node,
 *            not per device, are: keeper, sessions, host copies of models, the budget of fds in
 *            flight, the operator's socket. A tenant lives on one pool, from its hello on.
 * Ids:       the pool's index is part of its tenants' ids (MM_TENANT_INDEX), so an id names one
 *            tenant of all pools.
 * Start:     all or nothing: mmd is ready when all pages of every pool are created and scrubbed,
 *            and ends when a pool cannot be created or none of its pages can be scrubbed. Single
 *            pages that cannot be scrubbed are quarantined.
 * Down:      an xfer that keeps failing later on takes only its own pool down: the pool's tenants
 *            are ended and new ones refused until an xfer is up again and proven (worker.h). With
 *            every pool down mmd ends.
 * Ownership: struct mm_shell owns the pools; a pool owns its core and its worker.
 * Threading: core's thread.
 */
#pragma once

#include <stdbool.h>

#include "mmd/core/core.h"
#include "mmd/journal/journal.h"
#include "mmd/shell/actions.h"
#include "mmd/shell/health.h"
#include "mmd/shell/worker.h"

struct mm_config;
struct mm_shell;

/* An image of the pool's core (pool_kept.h). */
struct mm_image_kept {
	uint64_t bytes;
	uint64_t performed; /* actions that had been performed when it was made */
	uint64_t seq;       /* number of the first event that it does not have */
};

/* The part of a pool that outlives core (kept.h). */
struct mm_pool_kept {
	uint64_t performed;   /* actions of its core that were performed, since it was created */
	uint32_t image_valid; /* the half that counts + 1; 0: none, the pool has no core yet */
	uint32_t ready, down; /* as in struct mm_pool */
	uint32_t quarantined;
	struct mm_image_kept image[2];
	uint64_t seq; /* number of the next event */
	uint64_t bytes_streamed_gone, cold_streamed_gone;
};

struct mm_pool {
	struct mm_shell *shell;
	struct mm_pool_kept *kept;
	uint32_t index;       /* in shell->pool[] and in the configuration's lists */
	uint64_t ordinal;     /* the driver's number for the device, in mmd's environment */
	struct mm_core *core; /* NULL until the device is known */
	struct mm_worker worker;
	/* bytes of layers, and of cold blocks, streamed for tenants that have left */
	uint64_t bytes_streamed_gone, cold_streamed_gone;
	struct mm_health health;
	bool ready;           /* all pages are created, and scrubbed or quarantined */
	uint32_t quarantined; /* pages that were quarantined when it became ready */
	bool down;            /* its xfer keeps failing */
	bool renewed;         /* what the last core knew of it could not be read */
	struct mm_journal journal;
	uint64_t replay_ns; /* how long it took to do what the journal has */
	uint64_t image_ns;  /* how long the last image took */
	/* The last event in the journal of a core that died, which may not have been finished. */
	struct mm_journal_replay last;
};

void mm_pool_init(struct mm_pool *pool, struct mm_shell *shell, uint32_t index);
void mm_pool_done(struct mm_pool *pool);

/* The controller's knobs as the operator set them, else their defaults. */
void mm_pool_tune(const struct mm_config *config, struct mm_core_opts *opts);

/* The options of the pool's core by these settings. */
void mm_pool_opts(const struct mm_pool *pool, const struct mm_config *config,
		  struct mm_core_opts *ret_opts);

/* Creates the core of a device that is known now. Return: 0 or negative errno, then mmd ends. */
int mm_pool_device(struct mm_pool *pool);

/*
 * Makes the core that a process which died has left; actions that it has not performed wait in its
 * queue. If that is damaged the pool is renewed: it has a new core without tenants, all of its
 * pages are to be created anew by another xfer, and those that the tenants have are theirs alone.
 * Return: 0; negative errno, then mmd ends.
 */
int mm_pool_resume(struct mm_pool *pool);

/* Takes the pool down: its xfer has failed too often in a row, or the device is lost. */
void mm_pool_down(struct mm_pool *pool);
/* Brings a pool that was down up again: its xfer is proven. */
void mm_pool_up(struct mm_pool *pool);

/* Finds a pool by a hello's UUID; all zero names the only pool. NULL: none, or several for zero. */
struct mm_pool *mm_pool_by_uuid(struct mm_shell *shell, const uint8_t *uuid);

/* Whether all pages are created and can be granted by now; ends mmd when none can be. */
bool mm_pool_check_ready(struct mm_pool *pool);

/* The state's name in answers to the operator. */
const char *mm_page_state_name(enum mm_page_state state);

/* Bytes of layers streamed since mmd started, for tenants that have left, too. */
uint64_t mm_pool_bytes_streamed(const struct mm_pool *pool);
/* As mm_pool_bytes_streamed(), of cold blocks. */
uint64_t mm_pool_cold_streamed(const struct mm_pool *pool);

/* Runs what is due in the core; mm_pool_deadline() is when something will be due. */
void mm_pool_tick(struct mm_pool *pool, uint64_t now_ns);
uint64_t mm_pool_deadline(const struct mm_pool *pool);
