/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph - an engine whose steps are CUDA graphs, captured once
 *
 * graph MODEL_DIR STEPS: each step reads one tensor of each layer of a Llama model, as a graph, and
 * compares it with the host's copy. The same two graphs stay correct under every plan of mmd.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mm/client.h>
#include <mm/gpu.h>

struct engine {
	struct mm_client *client;
	const struct mm_gpu_api *gpu;
	struct mm_model *model;
	struct mm_model_info info;
	struct mm_gate_times *times;
	CUgraphExec graph[2]; /* without and with events around the gates */
	CUstream stream;
	char *out; /* pinned: a graph copies to it */
	unsigned int captures, gated, timed;
};

static void check(const struct engine *e, int r)
{
	if (r < 0)
		errx(1, "%s", mm_client_error(e->client));
}

static void check_gpu(const struct engine *e, CUresult r)
{
	const char *name = "";

	if (r && !e->gpu->cuGetErrorName(r, &name))
		errx(1, "the driver: %s", name);
}

static struct mm_tensor tensor_of(const struct engine *e, uint32_t layer)
{
	char name[MM_TENSOR_NAME_BYTES];
	struct mm_tensor t = { .size = sizeof(t) };

	snprintf(name, sizeof(name), "model.layers.%u.mlp.down_proj.weight", layer);
	check(e, mm_model_tensor(e->model, name, &t));
	return t;
}

/* [capture] */
/* Called in an open step. None of the work runs before the graph is launched. */
static void capture(struct engine *e, bool timed)
{
	CUgraph graph;

	check(e, mm_step_capture(e->client, timed ? e->times : NULL));
	check_gpu(e, e->gpu->cuStreamBeginCapture(e->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (uint32_t layer = 0; layer < e->info.n_layers; layer++) {
		const struct mm_tensor t = tensor_of(e, layer);

		check(e, mm_layer_begin(e->model, layer, e->stream)); /* a node that waits */
		check_gpu(e, e->gpu->cuMemcpyDtoHAsync(e->out + layer * t.bytes, t.va, t.bytes,
						       e->stream));
		check(e, mm_layer_end(e->model, layer, e->stream)); /* a node that marks */
	}
	check_gpu(e, e->gpu->cuStreamEndCapture(e->stream, &graph));
	check_gpu(e, e->gpu->cuGraphInstantiateWithFlags(&e->graph[timed], graph, 0));
	check_gpu(e, e->gpu->cuGraphDestroy(graph));
	e->captures++;
}
/* [step] */
static int step(struct engine *e)
{
	struct mm_step_info info = { .size = sizeof(info) };
	bool timed;
	int r;

	check(e, mm_step_begin(e->client));
	timed = mm_step_wants_times(e->client); /* true now and then while layers cycle */
	if (!e->graph[timed])
		capture(e, timed);
	check(e, mm_step_replay(e->client, timed ? e->times : NULL));
	check_gpu(e, e->gpu->cuGraphLaunch(e->graph[timed], e->stream));
	r = mm_step_end(e->client, e->stream, &info); /* -ECANCELED: results are void, repeat it */
	if (r == 0) {
		e->gated += info.gated > 0;
		e->timed += info.gated && info.timed; /* info.stall_ns: time of the waits */
	}
	return r;
}
/* [end] */

static int wrong_layers(const struct engine *e)
{
	int wrong = 0;

	for (uint32_t layer = 0; layer < e->info.n_layers; layer++) {
		char name[MM_TENSOR_NAME_BYTES];
		const void *host;
		uint64_t bytes;

		snprintf(name, sizeof(name), "model.layers.%u.mlp.down_proj.weight", layer);
		host = mm_model_store(e->model, name, &bytes);
		if (!host)
			errx(1,
			     "mmd keeps the weights on a disk: there is nothing to compare with");
		wrong += memcmp(e->out + layer * bytes, host, bytes) != 0;
	}
	return wrong;
}

static void open_engine(struct engine *e, const char *model)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .name = "graph" };
	CUcontext context;
	char why[256];

	if (mm_client_open(&opts, &e->client, why, sizeof(why)) < 0)
		errx(3, "%s", why);
	check(e, mm_model_load(e->client, model, NULL, &e->model));
	e->info.size = sizeof(e->info);
	check(e, mm_model_info(e->model, &e->info));
	check(e, mm_gate_times_open(e->model, &e->times)); /* for all graphs of the engine */
	e->gpu = mm_client_gpu(e->client);
	check_gpu(e, e->gpu->cuDevicePrimaryCtxRetain(&context, 0));
	check_gpu(e, e->gpu->cuCtxSetCurrent(context));
	check_gpu(e, e->gpu->cuStreamCreate(&e->stream, CU_STREAM_NON_BLOCKING));
	check_gpu(e, e->gpu->cuMemHostAlloc((void **)&e->out,
					    e->info.n_layers * e->info.layer_bytes, 0));
}

int main(int argc, char **argv)
{
	struct engine e = { 0 };
	int wrong = 0, steps;

	if (argc != 3)
		errx(2, "usage: graph MODEL_DIR STEPS");
	open_engine(&e, argv[1]);
	steps = atoi(argv[2]);
	for (int r; steps > 0; steps -= r == 0) {
		check(&e, (r = step(&e)) == -ECANCELED ? 0 : r);
		if (r == 0)
			wrong += wrong_layers(&e);
	}
	for (int i = 0; i < 2; i++)
		if (e.graph[i])
			e.gpu->cuGraphExecDestroy(e.graph[i]);
	e.gpu->cuStreamDestroy(e.stream);
	e.gpu->cuMemFreeHost(e.out);
	mm_client_close(e.client);
	printf("%d layers were wrong, %u captures, %u steps with layers cycling, %u of them "
	       "timed\n",
	       wrong, e.captures, e.gated, e.timed);
	return wrong > 0;
}
