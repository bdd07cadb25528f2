/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_graph - work that is kept, to be launched many times
 *
 * Concept:    a graph is nodes, made by a capture or one by one; each depends on nodes made before
 *             it, so the order in which they were made is an order in which they may run. A program
 *             is what a graph was when it was instantiated; launching an exec puts its program into
 *             one stream as one piece of work that takes as many steps as there are things to do,
 *             each with a number of the stream's. So branches do not run beside each other.
 * Work:       what a node does is constant once it is made, and shared by graph, programs and
 *             launches; a step is a copy of it. Changing a node of an exec replaces its work for
 *             later launches.
 * Ownership:  graphs, nodes and execs are handles (sg_object); a graph holds its nodes, an exec its
 *             program, a launch its program. Each may be destroyed while others are still used.
 * Threading:  graphs and nodes are guarded by one lock, sg_graph_lock(), which is that of captures
 *             too. An exec has a lock of its own. CUDA leaves it to the program to call for one
 *             graph from one thread at a time; here several may.
 */
#pragma once

#include <pthread.h>

#include "kernels/softgpu/op.h"
#include "kernels/softgpu/user.h"

struct sg_event;
struct sg_program;

struct sg_work {
	uint32_t refs; /* atomic */
	CUgraphNodeType type;
	size_t n_ops;
	struct sg_op *ops[];
};

struct sg_node {
	struct sg_object object;
	struct sg_graph *graph; /* guarded by the lock; NULL when that is gone */
	size_t index;           /* in it */
	bool captured;          /* by a stream, not added by the program */
	struct sg_work *work;   /* a reference */
	size_t n_deps;
	struct sg_node *deps[]; /* earlier ones of the same graph, which holds them */
};

struct sg_graph {
	struct sg_object object;
	struct sg_context *ctx; /* a reference */
	uint64_t id;
	bool capturing;         /* guarded by the lock, as all that follows */
	struct sg_node **nodes; /* references */
	size_t n_nodes, room;
	struct sg_users users;
};

/* One step of a launch, and which one it is. */
struct sg_step {
	size_t node, at, event;
	struct sg_op op; /* to be run, not destroyed: it borrows what it points to */
};

void sg_graph_lock(void);
void sg_graph_unlock(void);

CUgraphNodeType sg_graph_type_of(const struct sg_op *op);

/* Takes over @ops, also when it fails (NULL). */
struct sg_work *sg_work_create(CUgraphNodeType type, struct sg_op **ops, size_t n_ops);
void sg_work_put(struct sg_work *work);

/* @ctx: what the batch must name. */
CUresult sg_work_of_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, const struct sg_context *ctx,
			  struct sg_work **ret_work);

/* A published graph; its first reference is the registry's. */
CUresult sg_graph_create(struct sg_context *ctx, struct sg_graph **ret_graph);

/*
 * With the lock. Takes over @work, also when it fails. @deps are nodes of this graph, as handles.
 * @ret_node: borrowed from the graph.
 */
CUresult sg_graph_append(struct sg_graph *graph, struct sg_work *work, const CUgraphNode *deps,
			 size_t n_deps, bool captured, struct sg_node **ret_node);

/* Is everything that was captured a node of @ahead, or before one of them? With the lock. */
bool sg_graph_is_joined(const struct sg_graph *graph, const CUgraphNode *ahead, size_t n_ahead,
			bool *ret_joined);

/* Takes it out of the registry with all its nodes; false: it was not there. Without the lock. */
bool sg_graph_destroy(struct sg_graph *graph);

/* The next step; zeroed before the first. False: there is none. */
bool sg_launch_next(struct sg_launch *launch, struct sg_step *step);
void sg_launch_put(struct sg_launch *launch);
