/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphs - decode steps that are captured once and replayed
 *
 * Concept:    a step whose rows are all decodes launches the same kernels with the same arguments
 *             each time that it has as many rows: what differs lies in the batch's arrays, which it
 *             copies itself. So it is captured, copies, gates and all, and from then on launched as
 *             one graph. Addresses are fixed and gates have constant values: neither a plan change,
 *             nor memory that comes and goes, nor a turn asks for another capture. Prompts, alone
 *             or mixed with decodes, are enqueued one by one: they differ each time, and kernels
 *             outweigh launches. The first step of a size is enqueued one by one too: sizes that
 *             come once are not captured, and libraries load code when it is first used, which a
 *             capture may refuse. Each size has two graphs, the second with events around the
 *             gates, captured when the memory first wants a step of that size to be timed.
 * Ownership:  the forward pass is borrowed; graphs are its own, at most so many sizes: the one not
 *             used for longest goes.
 * Threading:  the engine's thread. Capturing is of the thread alone: libclient's maps memory
 *             meanwhile.
 */
#pragma once

#include "tools/mmserve/engine/forward.h"

struct mm_graph { /* of a size */
	uint32_t tokens;
	uint32_t splits;
	uint64_t used;       /* the last time: mm_graphs.steps of then */
	CUgraphExec exec[2]; /* without and with events; NULL: not yet */
};

struct mm_graphs {
	struct mm_forward *forward;
	struct mm_graph *all;
	uint32_t n, max; /* max 0: no graphs */
	bool must;       /* what cannot be captured is an error, else enqueued one by one */
	uint64_t steps;  /* of sizes that had an entry or got one */
	uint64_t captures, launches;
};

/* Has the driver what it takes? */
bool mm_graphs_possible(const struct mm_gpu_api *gpu);

/**
 * mm_graphs_init() - no graph yet
 * @g:       any bytes; give back with mm_graphs_done()
 * @forward: borrowed
 * @max:     sizes that are kept; 0: none is captured
 * @must:    a step that cannot be captured fails; else there are no more graphs from then on
 *
 * Return: 0; -ENOMEM.
 */
int mm_graphs_init(struct mm_graphs *g, struct mm_forward *forward, uint32_t max, bool must);

/* No graph may be running. Accepts zeroed ones. */
void mm_graphs_done(struct mm_graphs *g);

/**
 * mm_graphs_step() - enqueue the step in the forward's batch, as a graph where it is one
 * @g: the memory's step is open
 *
 * Return: as mm_forward_step(); -ECANCELED: it could not be captured, abandon it and try again.
 */
int mm_graphs_step(struct mm_graphs *g);
