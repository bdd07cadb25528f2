/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphs - decode steps that are captured once and replayed
 *
 * Concept:    all steps with the same number of rows whose rows are all decodes launch the same
 *             kernels with the same arguments: they differ only in the contents of the batch's
 *             arrays, which the step copies itself. So such a step is captured once, with its
 *             copies and gates, and then launched as one graph. Addresses are fixed and gates have
 *             constant values, so no plan change, grant, release or turn requires another capture.
 *             Steps with prompts are enqueued kernel by kernel: they differ each time, and their
 *             kernels take much longer than the launches. The first step of a size is enqueued
 *             kernel by kernel, too: a size that occurs once is not captured, and libraries load
 *             code on first use, which may fail during a capture. Each size has two graphs; the
 *             second has events around the gates, and is captured when the memory first wants a
 *             step of that size to be timed.
 * Ownership:  the forward pass is borrowed; the graphs are owned. When there is no room for another
 *             size, the least recently used one is dropped.
 * Threading:  the engine's thread. A capture is limited to that thread, as libclient's thread may
 *             map memory meanwhile.
 */
#pragma once

#include "tools/mmserve/engine/forward.h"

struct mm_graph { /* the graphs of steps of one size */
	uint32_t tokens;
	uint32_t splits;
	uint64_t used;       /* mm_graphs.steps at the last use */
	CUgraphExec exec[2]; /* without and with events; NULL: not captured yet */
};

struct mm_graphs {
	struct mm_forward *forward;
	struct mm_graph *all;
	uint32_t n, max; /* max 0: no graphs */
	bool must;       /* a step that cannot be captured fails, else it runs without a graph */
	uint64_t steps;  /* steps of sizes that had an entry or got one */
	uint64_t captures, launches;
};

/* Return: true if the driver can capture and launch graphs. */
bool mm_graphs_possible(const struct mm_gpu_api *gpu);

/**
 * mm_graphs_init() - set up without graphs
 * @g:       any bytes; give back with mm_graphs_done()
 * @forward: borrowed
 * @max:     sizes that are kept; 0: none is captured
 * @must:    a step that cannot be captured fails; otherwise no graph is used from then on
 *
 * Return: 0; -ENOMEM.
 */
int mm_graphs_init(struct mm_graphs *g, struct mm_forward *forward, uint32_t max, bool must);

/* Frees the graphs, none of which may be running. Accepts zeroed ones. */
void mm_graphs_done(struct mm_graphs *g);

/**
 * mm_graphs_step() - enqueue the step in the forward's batch, as a graph if it has one
 * @g: the memory's step is open
 *
 * Return: as mm_forward_step(); -ECANCELED: the step could not be captured, and is to be abandoned
 * and tried again.
 */
int mm_graphs_step(struct mm_graphs *g);
