/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/graphs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "libclient/base/base.h"

bool mm_graphs_possible(const struct mm_gpu_api *gpu)
{
	return gpu->cuStreamBeginCapture && gpu->cuStreamEndCapture && gpu->cuGraphDestroy &&
	       gpu->cuGraphInstantiateWithFlags && gpu->cuGraphLaunch && gpu->cuGraphExecDestroy;
}

int mm_graphs_init(struct mm_graphs *g, struct mm_forward *forward, uint32_t max, bool must)
{
	*g = (struct mm_graphs){ .forward = forward, .max = max, .must = must };
	g->all = max ? calloc(max, sizeof(*g->all)) : NULL;
	return max && !g->all ? -ENOMEM : 0;
}

static void graph_drop(const struct mm_graphs *g, struct mm_graph *graph)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(graph->exec); i++)
		if (graph->exec[i])
			g->forward->gpu->cuGraphExecDestroy(graph->exec[i]);
	*graph = (struct mm_graph){ 0 };
}

void mm_graphs_done(struct mm_graphs *g)
{
	for (uint32_t i = 0; i < g->n; i++)
		graph_drop(g, &g->all[i]);
	free(g->all);
	*g = (struct mm_graphs){ 0 };
}

/* Return: an entry for a new size: a free one, or else the least recently used one, dropped. */
static struct mm_graph *graphs_make_room(struct mm_graphs *g)
{
	struct mm_graph *oldest = g->all;

	if (g->n < g->max)
		return &g->all[g->n++];
	for (uint32_t i = 1; i < g->n; i++)
		if (g->all[i].used < oldest->used)
			oldest = &g->all[i];
	graph_drop(g, oldest);
	return oldest;
}

/*
 * Return: the entry of the batch's size. NULL if the batch is not all decodes, or is the first of
 * its size, for which an entry is added.
 */
static struct mm_graph *find_or_add(struct mm_graphs *g)
{
	const struct mm_batch *b = &g->forward->batch;
	struct mm_graph *graph, *end;

	if (!g->max || !b->decodes)
		return NULL;
	graph = g->all;
	end = g->all + g->n;
	while (graph < end && (graph->tokens != b->n_tokens || graph->splits != b->splits))
		graph++;
	if (graph < end) {
		graph->used = ++g->steps;
		return graph;
	}
	*graphs_make_room(g) =
		(struct mm_graph){ .tokens = b->n_tokens, .splits = b->splits, .used = ++g->steps };
	return NULL;
}

/* A capture failed on the device: graphs are not used any more, or, with must, the step fails. */
static int graphs_give_up(struct mm_graphs *g, CUresult r)
{
	fprintf(stderr, "mmserve: a step cannot be captured as a graph%s: %s\n",
		g->must ? "" : ", steps are enqueued one by one",
		mm_gpu_strerror(g->forward->gpu, r));
	if (g->must)
		return mm_gpu_errno(r);
	g->max = 0;
	return -ECANCELED;
}

/* Ends the capture, even after an error; makes a graph of it if @wanted. */
static CUresult end_capture(struct mm_graphs *g, bool wanted, CUgraphExec *ret_exec)
{
	const struct mm_gpu_api *gpu = g->forward->gpu;
	CUgraph graph = NULL;
	CUresult r = gpu->cuStreamEndCapture(g->forward->stream, &graph);

	if (!r && wanted)
		r = gpu->cuGraphInstantiateWithFlags(ret_exec, graph, 0);
	if (graph)
		gpu->cuGraphDestroy(graph);
	return r;
}

static int graph_record(struct mm_graphs *g, struct mm_graph *graph, bool timed)
{
	struct mm_forward *f = g->forward;
	int r = f->memory->ops->step_capture(f->memory, timed);
	CUresult res;

	if (r)
		return r;
	res = f->gpu->cuStreamBeginCapture(f->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (res)
		return graphs_give_up(g, res);
	r = mm_forward_step(f);
	res = end_capture(g, !r, &graph->exec[timed]);
	if (r == -EINTR)
		return r;
	if (f->error || res)
		return graphs_give_up(g, f->error ? f->error : res);
	g->captures += !r;
	return r;
}

int mm_graphs_step(struct mm_graphs *g)
{
	struct mm_forward *f = g->forward;
	struct mm_graph *graph = find_or_add(g);
	bool timed;
	int r = 0;

	if (!graph)
		return mm_forward_step(f);
	timed = f->memory->ops->step_wants_times(f->memory);
	/* A graph cannot break off between two layers. */
	if (graph->exec[timed] && f->break_at < f->weights->arch.layers)
		return mm_forward_step(f);
	if (!graph->exec[timed])
		r = graph_record(g, graph, timed);
	if (!r)
		r = f->memory->ops->step_replay(f->memory, timed);
	if (r)
		return r;
	g->launches++;
	f->error = f->gpu->cuGraphLaunch(graph->exec[timed], f->stream);
	return mm_gpu_errno(f->error);
}
