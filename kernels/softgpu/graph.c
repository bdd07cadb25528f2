/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softgpu/graph.h"

#include <stdlib.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/value.h"
#include "libclient/base/base.h"

struct mm_lock sg_graph_mutex = MM_LOCK_INIT;
static uint64_t last_graph_id MM_GUARDED_BY(sg_graph_mutex);

void sg_graph_lock(void)
{
	mm_lock_take(&sg_graph_mutex);
}

void sg_graph_unlock(void)
{
	mm_lock_give(&sg_graph_mutex);
}

/* ---- Work ---- */

CUgraphNodeType sg_graph_type_of(const struct sg_op *op)
{
	switch (op->kind) {
	case SG_OP_LAUNCH:
		return CU_GRAPH_NODE_TYPE_KERNEL;
	case SG_OP_COPY:
	case SG_OP_FAULT: /* most likely the fault of a copy */
		return CU_GRAPH_NODE_TYPE_MEMCPY;
	case SG_OP_FILL:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	case SG_OP_HOST:
		return CU_GRAPH_NODE_TYPE_HOST;
	case SG_OP_WAIT_VALUE:
	case SG_OP_WRITE_VALUE:
		return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	case SG_OP_RECORD:
		return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	case SG_OP_WAIT_EVENT:
		return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
	default:
		return CU_GRAPH_NODE_TYPE_EMPTY;
	}
}

struct sg_work *sg_work_create(CUgraphNodeType type, struct sg_op **ops, size_t n_ops)
{
	struct sg_work *work = malloc(sizeof(*work) + n_ops * sizeof(struct sg_op *));

	if (!work) {
		sg_ops_destroy(ops, n_ops);
		return NULL;
	}
	work->refs = 1;
	work->type = type;
	work->n_ops = n_ops;
	for (size_t i = 0; i < n_ops; i++)
		work->ops[i] = ops[i];
	return work;
}

void sg_work_put(struct sg_work *work)
{
	if (__atomic_sub_fetch(&work->refs, 1, __ATOMIC_ACQ_REL))
		return;
	sg_ops_destroy(work->ops, work->n_ops);
	free(work);
}

/* ---- Graphs and nodes ---- */

static void destroy_node(struct sg_object *object)
{
	struct sg_node *node = (struct sg_node *)object;

	sg_work_put(node->work);
	free(node);
}

/* Not analysed: no other thread has the graph any more. */
static void destroy_graph(struct sg_object *object) MM_NO_THREAD_SAFETY_ANALYSIS
{
	struct sg_graph *graph = (struct sg_graph *)object;

	for (size_t i = 0; i < graph->n_nodes; i++)
		sg_object_put(&graph->nodes[i]->object);
	free(graph->nodes);
	sg_users_done(&graph->users);
	sg_object_put(&graph->ctx->object);
	free(graph);
}

CUresult sg_graph_create(struct sg_context *ctx, struct sg_graph **ret_graph)
{
	struct sg_graph *graph = calloc(1, sizeof(*graph));

	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_init(&graph->object, SG_GRAPH, destroy_graph);
	sg_object_ref(&ctx->object);
	graph->ctx = ctx;
	sg_graph_lock();
	graph->id = ++last_graph_id;
	sg_graph_unlock();
	sg_object_publish(&graph->object);
	*ret_graph = graph;
	return CUDA_SUCCESS;
}

bool sg_graph_destroy(struct sg_graph *graph)
{
	if (!sg_object_retract(graph, SG_GRAPH))
		return false;
	sg_graph_lock();
	for (size_t i = 0; i < graph->n_nodes; i++) {
		sg_object_retract(graph->nodes[i], SG_NODE);
		graph->nodes[i]->graph = NULL;
	}
	sg_graph_unlock();
	sg_object_put(&graph->object);
	return true;
}

static bool graph_make_room(struct sg_graph *graph) MM_REQUIRES(sg_graph_mutex)
{
	size_t room = graph->room ? graph->room * 2 : 16;
	struct sg_node **grown;

	if (graph->n_nodes < graph->room)
		return true;
	grown = realloc(graph->nodes, room * sizeof(*grown));
	if (!grown)
		return false;
	graph->nodes = grown;
	graph->room = room;
	return true;
}

CUresult sg_graph_append(struct sg_graph *graph, struct sg_work *work, const CUgraphNode *deps,
			 size_t n_deps, bool captured, struct sg_node **ret_node)
{
	struct sg_node *node = NULL;

	if (graph_make_room(graph))
		node = calloc(1, sizeof(*node) + n_deps * sizeof(struct sg_node *));
	if (!node) {
		sg_work_put(work);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sg_object_init(&node->object, SG_NODE, destroy_node);
	node->graph = graph;
	node->index = graph->n_nodes;
	node->captured = captured;
	node->work = work;
	node->n_deps = n_deps;
	for (size_t i = 0; i < n_deps; i++)
		node->deps[i] = (struct sg_node *)deps[i];
	graph->nodes[graph->n_nodes++] = node;
	sg_object_publish(&node->object);
	*ret_node = node;
	return CUDA_SUCCESS;
}

bool sg_graph_is_joined(const struct sg_graph *graph, const CUgraphNode *ahead, size_t n_ahead,
			bool *ret_joined)
{
	bool *reached = calloc(graph->n_nodes + 1, sizeof(*reached));

	if (!reached)
		return false;
	for (size_t i = 0; i < n_ahead; i++)
		reached[((const struct sg_node *)ahead[i])->index] = true;
	*ret_joined = true;
	/* From the last node to the first: a node's dependencies are before it. */
	for (size_t i = graph->n_nodes; i-- > 0;) {
		const struct sg_node *node = graph->nodes[i];

		if (!reached[i]) {
			*ret_joined &= !node->captured;
			continue;
		}
		for (size_t k = 0; k < node->n_deps; k++)
			reached[node->deps[k]->index] = true;
	}
	free(reached);
	return true;
}

CUresult CUDAAPI cuGraphCreate(CUgraph *ret, unsigned int flags)
{
	struct sg_context *ctx;
	struct sg_graph *graph;

	SG_ENTER();
	SG_TRY(sg_context_current(&ctx));
	if (!ret || flags)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_graph_create(ctx, &graph));
	*ret = (CUgraph)graph;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle)
{
	struct sg_graph *graph;
	bool capturing;
	CUresult res;

	SG_ENTER();
	graph = sg_object_get(handle, SG_GRAPH);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	sg_graph_lock();
	capturing = graph->capturing;
	sg_graph_unlock();
	res = !capturing && sg_graph_destroy(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	sg_object_put(&graph->object);
	return res;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *n)
{
	struct sg_graph *graph;
	size_t room;

	SG_ENTER();
	if (!n)
		return CUDA_ERROR_INVALID_VALUE;
	graph = sg_object_get(handle, SG_GRAPH);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	room = *n;
	sg_graph_lock();
	*n = nodes ? MM_MIN(room, graph->n_nodes) : graph->n_nodes;
	for (size_t i = 0; nodes && i < room; i++)
		nodes[i] = i < *n ? (CUgraphNode)graph->nodes[i] : NULL;
	sg_graph_unlock();
	sg_object_put(&graph->object);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	struct sg_node *node;

	SG_ENTER();
	if (!type)
		return CUDA_ERROR_INVALID_VALUE;
	node = sg_object_get(handle, SG_NODE);
	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->work->type;
	sg_object_put(&node->object);
	return CUDA_SUCCESS;
}

/* ---- Batches of memory operations as nodes ---- */

CUresult sg_work_of_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, const struct sg_context *ctx,
			  struct sg_work **ret_work)
{
	struct sg_op *ops[SG_BATCH_MAX];
	struct sg_work *work;
	size_t n;

	if (!params || params->flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->ctx != (CUcontext)ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	SG_TRY(sg_value_ops(params->paramArray, params->count, ops, &n));
	work = sg_work_create(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, ops, n);
	if (!work)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_work = work;
	return CUDA_SUCCESS;
}

/* Return: whether all @nodes are nodes of the graph, and none is there twice. */
static bool graph_has_nodes(const struct sg_graph *graph, const CUgraphNode *nodes, size_t n)
	MM_REQUIRES(sg_graph_mutex)
{
	struct sg_node *node;
	bool fine = true;

	for (size_t i = 0; i < n && fine; i++) {
		node = sg_object_get(nodes[i], SG_NODE);
		fine = node && node->graph == graph;
		for (size_t k = 0; k < i && fine; k++)
			fine = nodes[k] != nodes[i];
		if (node)
			sg_object_put(&node->object);
	}
	return fine;
}

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode *ret, CUgraph handle, const CUgraphNode *deps,
					  size_t n_deps,
					  const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct sg_graph *graph;
	struct sg_node *node;
	struct sg_work *work;
	CUresult res;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!ret || (n_deps && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	graph = sg_object_get(handle, SG_GRAPH);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	res = sg_work_of_batch(params, graph->ctx, &work);
	if (!res) {
		sg_graph_lock();
		if (graph_has_nodes(graph, deps, n_deps)) {
			res = sg_graph_append(graph, work, deps, n_deps, false, &node);
			if (!res)
				*ret = (CUgraphNode)node;
		} else {
			res = CUDA_ERROR_INVALID_VALUE;
			sg_work_put(work);
		}
		sg_graph_unlock();
	}
	sg_object_put(&graph->object);
	return res;
}
