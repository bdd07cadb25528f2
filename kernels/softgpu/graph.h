/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_graph - work that is kept, to be launched many times
 *
 * Concept:    a graph consists of nodes, made by a capture or one by one; each depends on nodes
 *             made before it, so the order in which they were made is an order in which they may
 *             run. A program is a copy of a graph from when it was instantiated. Launching an exec
 *             puts its program into one stream as one piece of work with as many steps as there are
 *             operations, each with a number of the stream's. So branches do not run in parallel.
 * Work:       the work of a node is constant once it is made, and shared by graph, programs and
 *             launches; a step is a copy of it. Changing a node of an exec replaces its work for
 *             later launches.
 * Ownership:  graphs, nodes and execs are handles (sg_object); a graph holds its nodes, an exec its
 *             program, a launch its program. Each may be destroyed while others are still used.
 * Threading:  graphs and nodes are guarded by one lock, sg_graph_lock(), which is that of captures
 *             too. An exec has a lock of its own. CUDA requires that a program uses one graph in
 *             one thread at a time; here several threads may.
 */
#pragma once

#include <pthread.h>

#include "kernels/softgpu/op.h"
#include "kernels/softgpu/user.h"
#include "libclient/support/lock.h"

struct sg_event;
struct sg_program;

extern struct mm_lock sg_graph_mutex; /* "the lock" of this file and of sg_capture */

struct sg_work {
	uint32_t refs; /* atomic */
	CUgraphNodeType type;
	size_t n_ops;
	struct sg_op *ops[];
};

struct sg_node {
	struct sg_object object;
	struct sg_graph *graph MM_GUARDED_BY(sg_graph_mutex); /* NULL once that is destroyed */
	size_t index;                                         /* index in the graph */
	bool captured;        /* made by a capture, not added by the program */
	struct sg_work *work; /* a reference */
	size_t n_deps;
	struct sg_node *deps[]; /* earlier nodes of the same graph, which holds them */
};

struct sg_graph {
	struct sg_object object;
	struct sg_context *ctx; /* a reference */
	uint64_t id;
	bool capturing MM_GUARDED_BY(sg_graph_mutex);
	struct sg_node **nodes MM_GUARDED_BY(sg_graph_mutex); /* references */
	size_t n_nodes MM_GUARDED_BY(sg_graph_mutex), room MM_GUARDED_BY(sg_graph_mutex);
	struct sg_users users MM_GUARDED_BY(sg_graph_mutex);
};

/* One step of a launch, and its position. */
struct sg_step {
	size_t node, at, event;
	struct sg_op op; /* a copy that must not be destroyed: it borrows what it points to */
};

void sg_graph_lock(void) MM_ACQUIRE(sg_graph_mutex);
void sg_graph_unlock(void) MM_RELEASE(sg_graph_mutex);

CUgraphNodeType sg_graph_type_of(const struct sg_op *op);

/* Takes over @ops, also when it fails. Return: NULL, out of memory. */
struct sg_work *sg_work_create(CUgraphNodeType type, struct sg_op **ops, size_t n_ops);
void sg_work_put(struct sg_work *work);

/* @ctx: the context that the batch must name. */
CUresult sg_work_of_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, const struct sg_context *ctx,
			  struct sg_work **ret_work);

/* Creates a published graph; its first reference belongs to the registry. */
CUresult sg_graph_create(struct sg_context *ctx, struct sg_graph **ret_graph);

/*
 * Takes over @work, also when it fails. @deps: nodes of this graph, as handles.
 * @ret_node: borrowed from the graph.
 */
CUresult sg_graph_append(struct sg_graph *graph, struct sg_work *work, const CUgraphNode *deps,
			 size_t n_deps, bool captured, struct sg_node **ret_node)
	MM_REQUIRES(sg_graph_mutex);

/*
 * Return: whether every captured node is one of @ahead, or is before one of them.
 */
bool sg_graph_is_joined(const struct sg_graph *graph, const CUgraphNode *ahead, size_t n_ahead,
			bool *ret_joined) MM_REQUIRES(sg_graph_mutex);

/*
 * Takes the graph and all its nodes out of the registry. Return: false, it
 * was not there.
 */
bool sg_graph_destroy(struct sg_graph *graph) MM_EXCLUDES(sg_graph_mutex);

/* Goes on to the next step; @step is zeroed before the first. Return: false, there is none. */
bool sg_launch_next(struct sg_launch *launch, struct sg_step *step);
void sg_launch_put(struct sg_launch *launch);
