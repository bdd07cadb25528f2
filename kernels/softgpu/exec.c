/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs, their programs and their launches. */
#include <stdlib.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/event.h"
#include "kernels/softgpu/graph.h"
#include "kernels/softgpu/value.h"
#include "libclient/base/base.h"
#include "libclient/support/lock.h"
#include "libclient/support/cleanup.h"

#define INSTANTIATE_FLAGS                                  \
	(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | \
	 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

struct sg_program {
	uint32_t refs; /* atomic; while only the exec holds it, it may be changed */
	uint64_t graph_id;
	size_t n_works, n_steps, n_events;
	struct sg_users users;
	struct sg_work *works[]; /* references, in the order of the graph's nodes */
};

MM_LOCK_KIND(sg_exec_mutex);

struct sg_exec {
	struct sg_object object;
	struct sg_context *ctx; /* a reference */
	struct sg_exec_mutex mtx;
	struct sg_program *program MM_GUARDED_BY(sg_exec_mutex); /* a reference */
	/* The stream of the last launch, a reference, or NULL; and its number there. */
	struct sg_stream *stream MM_GUARDED_BY(sg_exec_mutex);
	uint64_t number MM_GUARDED_BY(sg_exec_mutex);
};

/* A recording of an event, or the point that a wait for an event waits for, in one launch. */
struct moment {
	uint64_t generation;
	struct sg_stream *stream; /* a reference; NULL: there is nothing to wait for */
	uint64_t number;
};

struct sg_launch {
	uint32_t refs;              /* atomic */
	struct sg_program *program; /* a reference */
	struct moment moments[]; /* one for each op of the program that names an event, in order */
};

/* ---- Programs ---- */

static void put_program(struct sg_program *p)
{
	if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (size_t i = 0; i < p->n_works; i++)
		sg_work_put(p->works[i]);
	sg_users_done(&p->users);
	free(p);
}

static struct sg_program *create_program(uint64_t graph_id, size_t n_works,
					 const struct sg_users *users)
{
	struct sg_program *p = calloc(1, sizeof(*p) + n_works * sizeof(struct sg_work *));

	if (!p)
		return NULL;
	p->refs = 1;
	p->graph_id = graph_id;
	if (sg_users_copy(users, &p->users) < 0)
		mm_free_ptr(&p);
	return p;
}

static bool op_is_event(const struct sg_op *op)
{
	return op->kind == SG_OP_RECORD || op->kind == SG_OP_WAIT_EVENT;
}

static void work_count_steps(struct sg_program *p, const struct sg_work *work)
{
	p->n_steps += work->n_ops;
	for (size_t i = 0; i < work->n_ops; i++)
		p->n_events += op_is_event(work->ops[i]);
}

static void program_append_work(struct sg_program *p, struct sg_work *work)
{
	__atomic_fetch_add(&work->refs, 1, __ATOMIC_RELAXED);
	p->works[p->n_works++] = work;
	work_count_steps(p, work);
}

/* ---- Launches ---- */

void sg_launch_put(struct sg_launch *launch)
{
	if (__atomic_sub_fetch(&launch->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (size_t i = 0; i < launch->program->n_events; i++)
		if (launch->moments[i].stream)
			sg_stream_put(launch->moments[i].stream);
	put_program(launch->program);
	free(launch);
}

bool sg_launch_next(struct sg_launch *launch, struct sg_step *step)
{
	const struct sg_program *p = launch->program;
	const struct moment *moment;
	const struct sg_work *work;

	while (step->node < p->n_works && step->at == p->works[step->node]->n_ops) {
		step->node++;
		step->at = 0;
	}
	if (step->node == p->n_works)
		return false;
	work = p->works[step->node];
	step->op = *work->ops[step->at++];
	if (!op_is_event(&step->op))
		return true;
	moment = &launch->moments[step->event++];
	if (step->op.kind == SG_OP_RECORD) {
		step->op.record.generation = moment->generation;
	} else if (moment->stream) {
		step->op.kind = SG_OP_WAIT_STREAM;
		step->op.wait.stream = moment->stream;
		step->op.wait.number = moment->number;
	}
	return true;
}

/* Calls @fn for each op that names an event, with its moment and its number in @stream. */
static void for_each_event(struct sg_launch *launch,
			   void (*fn)(const struct sg_op *op, struct moment *moment,
				      struct sg_stream *stream, uint64_t number),
			   struct sg_stream *stream, uint64_t first)
{
	const struct sg_program *p = launch->program;
	size_t n = 0, step = 0;

	for (size_t i = 0; i < p->n_works && n < p->n_events; i++)
		for (size_t k = 0; k < p->works[i]->n_ops; k++, step++)
			if (op_is_event(p->works[i]->ops[k]))
				fn(p->works[i]->ops[k], &launch->moments[n++], stream,
				   first + step);
}

/*
 * A launch takes the generations of its recordings, and the points of its waits, when it is
 * submitted, as cuEventRecord() and cuStreamWaitEvent() do.
 */
static void before_launch(const struct sg_op *op, struct moment *moment, struct sg_stream *stream,
			  uint64_t number)
{
	(void)stream;
	(void)number;
	if (op->kind == SG_OP_RECORD)
		moment->generation = sg_event_begin(op->record.event);
	else
		moment->stream = sg_event_point(op->record.event, &moment->number);
}

static void after_launch(const struct sg_op *op, struct moment *moment, struct sg_stream *stream,
			 uint64_t number)
{
	if (op->kind == SG_OP_RECORD)
		sg_event_put_in(op->record.event, moment->generation, stream, number);
}

static CUresult create_launch(struct sg_exec *exec, struct sg_op **ret_op)
	MM_REQUIRES(sg_exec_mutex)
{
	struct sg_program *p = exec->program;
	struct sg_launch *launch = calloc(1, sizeof(*launch) + p->n_events * sizeof(struct moment));
	struct sg_op *op = sg_op_create(SG_OP_GRAPH);

	if (!launch || !op) {
		free(launch);
		free(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	__atomic_fetch_add(&p->refs, 1, __ATOMIC_RELAXED);
	launch->refs = 1;
	launch->program = p;
	op->graph.launch = launch;
	op->steps = (uint32_t)MM_MAX(p->n_steps, 1);
	*ret_op = op;
	return CUDA_SUCCESS;
}

/*
 * Makes @stream wait for the exec's last launch where that is in another
 * stream.
 */
static CUresult exec_order_after(const struct sg_exec *exec, struct sg_stream *stream)
	MM_REQUIRES(sg_exec_mutex)
{
	struct sg_op *op;

	if (!exec->stream || exec->stream == stream ||
	    sg_stream_is_done(exec->stream, exec->number))
		return CUDA_SUCCESS;
	op = sg_op_create(SG_OP_WAIT_STREAM);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_ref(&exec->stream->object);
	op->wait.stream = exec->stream;
	op->wait.number = exec->number;
	return sg_stream_submit(stream, op, NULL);
}

static CUresult exec_launch(struct sg_exec *exec, struct sg_stream *stream)
	MM_REQUIRES(sg_exec_mutex)
{
	struct sg_launch *launched;
	struct sg_op *op;
	uint64_t number;
	CUresult res;

	SG_TRY(exec_order_after(exec, stream));
	SG_TRY(create_launch(exec, &op));
	/* The launch may have run, and been freed, before its events are updated. */
	launched = op->graph.launch;
	__atomic_fetch_add(&launched->refs, 1, __ATOMIC_RELAXED);
	for_each_event(launched, before_launch, NULL, 0);
	res = sg_stream_submit(stream, op, &number);
	if (!res) {
		for_each_event(launched, after_launch, stream,
			       number - MM_MAX(exec->program->n_steps, 1) + 1);
		sg_object_ref(&stream->object);
		if (exec->stream)
			sg_stream_put(exec->stream);
		exec->stream = stream;
		exec->number = number;
	}
	sg_launch_put(launched);
	return res;
}

/* Returns references to an exec and to the stream that it is to be launched in. */
static CUresult exec_and_stream_get(CUgraphExec handle, CUstream stream_handle,
				    struct sg_exec **ret_exec, struct sg_stream **ret_stream)
{
	struct sg_exec *exec = sg_object_get(handle, SG_EXEC);
	struct sg_stream *stream;
	CUresult res;

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	res = sg_stream_get(stream_handle, &stream);
	if (!res) {
		/* Launches of graphs cannot be captured here. */
		res = sg_capture_refuse(stream);
		if (!res && stream->ctx != exec->ctx)
			res = CUDA_ERROR_INVALID_CONTEXT;
		if (res)
			sg_stream_put(stream);
	}
	if (res) {
		sg_object_put(&exec->object);
		return res;
	}
	*ret_exec = exec;
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
	struct sg_stream *stream;
	struct sg_exec *exec;
	CUresult res;

	SG_ENTER();
	SG_TRY(exec_and_stream_get(handle, stream_handle, &exec, &stream));
	sg_exec_mutex_take(&exec->mtx);
	res = exec_launch(exec, stream);
	sg_exec_mutex_give(&exec->mtx);
	sg_stream_put(stream);
	sg_object_put(&exec->object);
	return res;
}

/* There is nothing to upload: an exec runs from host memory. */
CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
	struct sg_stream *stream;
	struct sg_exec *exec;

	SG_ENTER();
	SG_TRY(exec_and_stream_get(handle, stream_handle, &exec, &stream));
	sg_stream_put(stream);
	sg_object_put(&exec->object);
	return CUDA_SUCCESS;
}

/* ---- Execs ---- */

/* Not analysed: no other thread has the exec any more. */
static void destroy_exec(struct sg_object *object) MM_NO_THREAD_SAFETY_ANALYSIS
{
	struct sg_exec *exec = (struct sg_exec *)object;

	put_program(exec->program);
	if (exec->stream)
		sg_stream_put(exec->stream);
	sg_object_put(&exec->ctx->object);
	sg_exec_mutex_destroy(&exec->mtx);
	free(exec);
}

static struct sg_program *program_of(const struct sg_graph *graph)
{
	struct sg_program *p;

	sg_graph_lock();
	p = create_program(graph->id, graph->n_nodes, &graph->users);
	for (size_t i = 0; p && i < graph->n_nodes; i++)
		program_append_work(p, graph->nodes[i]->work);
	sg_graph_unlock();
	return p;
}

/* Not analysed: no other thread has the exec yet. */
static CUresult exec_instantiate(const struct sg_graph *graph,
				 struct sg_exec **ret_exec) MM_NO_THREAD_SAFETY_ANALYSIS
{
	struct sg_exec *exec = calloc(1, sizeof(*exec));
	struct sg_program *p = program_of(graph);

	if (!exec || !p || p->n_steps > UINT32_MAX) {
		free(exec);
		if (p)
			put_program(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sg_object_init(&exec->object, SG_EXEC, destroy_exec);
	sg_object_ref(&graph->ctx->object);
	exec->ctx = graph->ctx;
	exec->program = p;
	sg_exec_mutex_init(&exec->mtx);
	sg_object_publish(&exec->object);
	*ret_exec = exec;
	return CUDA_SUCCESS;
}

static CUresult exec_instantiate_with(CUgraphExec *ret, CUgraph handle, unsigned long long flags)
{
	struct sg_graph *graph;
	struct sg_exec *exec;
	CUresult res;

	SG_TRY(sg_enter_context());
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!ret || (flags & ~(unsigned long long)INSTANTIATE_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	graph = sg_object_get(handle, SG_GRAPH);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	res = exec_instantiate(graph, &exec);
	if (!res)
		*ret = (CUgraphExec)exec;
	sg_object_put(&graph->object);
	return res;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph handle,
					     unsigned long long flags)
{
	SG_ENTER();
	return exec_instantiate_with(ret, handle, flags);
}

/* There is nothing to upload: the stream for it must be valid, and is not used. */
static CUresult upload_check(const CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	struct sg_stream *stream;

	if (!(params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
		return CUDA_SUCCESS;
	SG_TRY(sg_stream_get(params->hUploadStream, &stream));
	sg_stream_put(stream);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *ret, CUgraph handle,
					      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	CUresult res;

	SG_ENTER();
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	res = upload_check(params);
	if (!res)
		res = exec_instantiate_with(
			ret, handle,
			params->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
	params->hErrNode_out = NULL;
	params->result_out = res ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return res;
}

/* Launches that are queued or running keep their program. */
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle)
{
	struct sg_exec *exec;

	SG_ENTER();
	exec = sg_object_retract(handle, SG_EXEC);
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	sg_object_put(&exec->object);
	return CUDA_SUCCESS;
}

/*
 * Replaces the program by a copy where launches hold it too, so that it
 * can be changed.
 */
static CUresult exec_own_program(struct sg_exec *exec) MM_REQUIRES(sg_exec_mutex)
{
	struct sg_program *old = exec->program, *p;

	if (__atomic_load_n(&old->refs, __ATOMIC_ACQUIRE) == 1)
		return CUDA_SUCCESS;
	p = create_program(old->graph_id, old->n_works, &old->users);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < old->n_works; i++)
		program_append_work(p, old->works[i]);
	exec->program = p;
	put_program(old);
	return CUDA_SUCCESS;
}

/*
 * Return: whether @b has as many operations as @a, each of the same kind; a forbidden write counts
 * as a write.
 */
static bool works_are_alike(const struct sg_work *a, const struct sg_work *b)
{
	bool alike = a->type == b->type && a->n_ops == b->n_ops;

	for (size_t i = 0; i < a->n_ops && alike; i++)
		alike = a->ops[i]->value.is_64 == b->ops[i]->value.is_64 &&
			(a->ops[i]->kind == SG_OP_WAIT_VALUE) ==
				(b->ops[i]->kind == SG_OP_WAIT_VALUE);
	return alike;
}

/* Takes over @work. */
static CUresult program_replace_work(struct sg_exec *exec, size_t index, struct sg_work *work)
	MM_REQUIRES(sg_exec_mutex)
{
	struct sg_work **place;
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	if (works_are_alike(exec->program->works[index], work))
		res = exec_own_program(exec);
	if (res) {
		sg_work_put(work);
		return res;
	}
	place = &exec->program->works[index];
	sg_work_put(*place);
	*place = work;
	return CUDA_SUCCESS;
}

/* Finds the work that the program has for @handle, a batch of memory operations of its graph. */
static bool program_find_node(CUgraphNode handle, const struct sg_program *p, size_t *ret_index)
{
	struct sg_node *node = sg_object_get(handle, SG_NODE);
	bool found;

	if (!node)
		return false;
	sg_graph_lock();
	found = node->graph && node->graph->id == p->graph_id && node->index < p->n_works &&
		node->work->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	*ret_index = node->index;
	sg_graph_unlock();
	sg_object_put(&node->object);
	return found;
}

/* Only addresses, values and flags may change, as on hardware. */
CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec handle, CUgraphNode node,
						    const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct sg_exec *exec;
	struct sg_work *work;
	CUresult res;
	size_t index;

	SG_ENTER();
	exec = sg_object_get(handle, SG_EXEC);
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	res = sg_context_error(exec->ctx);
	if (!res)
		res = sg_work_of_batch(params, exec->ctx, &work);
	if (!res) {
		sg_exec_mutex_take(&exec->mtx);
		if (program_find_node(node, exec->program, &index)) {
			res = program_replace_work(exec, index, work);
		} else {
			res = CUDA_ERROR_INVALID_VALUE;
			sg_work_put(work);
		}
		sg_exec_mutex_give(&exec->mtx);
	}
	sg_object_put(&exec->object);
	return res;
}
