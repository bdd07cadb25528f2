/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gates between the nodes of a graph. ggml's scheduler asks before each node whether it shall stop
 * after it; nodes up to the next stop are computed together, without being asked again. A node that
 * reads a layer other than the last one's needs the nodes before it done, so that the stop must be
 * at the node before it, which is known only when this one is asked for. So a graph that is new is
 * stopped at each node, and the names of those before a change of layers are kept: they are the
 * stops from then on. Each node is looked at in every step. Where one changes the layer and the
 * stop before it is missing, the graph is another one: the step is computed again, node by node.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/ggml/internal.h"

#define STOPS_MAX 4096
#define TRIES_MAX 1000

struct mm_ggml_run {
	struct mm_ggml *g;
	CUdevice device;
	CUcontext driver; /* the device's primary context */
	CUstream stream;
	struct mm_ggml_stats stats;

	/* Names of nodes after which the scheduler stops, sorted. */
	char (*stops)[GGML_MAX_NAME];
	size_t n_stops;
	bool learning; /* every node is a stop */
	char last[GGML_MAX_NAME];

	/* The call of llama_decode() in progress. */
	bool open;    /* a step is open */
	bool pending; /* nodes that read the layer were asked for and are not computed */
	bool lost;    /* a stop was missing: what is computed is void */
	bool voided;  /* a step was void */
	int layer;    /* begun and not ended, or MM_GGML_NO_LAYER */
	int error;
};

/* ---- stops ---- */

static int stop_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

static bool stop_is(const struct mm_ggml_run *run, const char *name)
{
	return run->n_stops &&
	       bsearch(name, run->stops, run->n_stops, sizeof(run->stops[0]), stop_compare);
}

static void stop_add(struct mm_ggml_run *run, const char *name)
{
	if (!name[0] || run->n_stops == STOPS_MAX || stop_is(run, name))
		return; /* if it is missing later, the step is computed node by node */
	memcpy(run->stops[run->n_stops++], name, GGML_MAX_NAME);
	qsort(run->stops, run->n_stops, sizeof(run->stops[0]), stop_compare);
}

/* ---- steps and gates ---- */

static int run_fail(struct mm_ggml_run *run, int r, const char *what)
{
	if (!run->error)
		run->error =
			mm_ggml_fail(run->g, r, "%s: %s", what, mm_client_error(run->g->client));
	return r;
}

/*
 * In the middle of a batch the graph goes on whatever this returns, and reads the weights: there it
 * waits for as long as mmd changes the plan.
 */
static int step_open(struct mm_ggml_run *run, bool first)
{
	int r;

	do
		r = mm_step_begin(run->g->client);
	while (r == -ETIMEDOUT && !first);
	if (r)
		return run_fail(run, r, "the step");
	run->open = true;
	run->layer = MM_GGML_NO_LAYER;
	return 0;
}

static int layer_end(struct mm_ggml_run *run)
{
	int r;

	if (run->layer == MM_GGML_NO_LAYER)
		return 0;
	r = mm_layer_end(run->g->model, (uint32_t)run->layer, run->stream);
	run->layer = MM_GGML_NO_LAYER;
	return r ? run_fail(run, r, "the end of a layer") : 0;
}

static void step_close(struct mm_ggml_run *run)
{
	struct mm_step_info info = { .size = sizeof(info) };
	int r;

	if (!run->open)
		return;
	run->open = false;
	if (run->lost || run->error || layer_end(run)) {
		r = mm_step_abandon(run->g->client, run->stream);
		if (r)
			run_fail(run, r, "the step");
		return;
	}
	r = mm_step_end(run->g->client, run->stream, &info);
	if (r == -ECANCELED) {
		run->voided = true;
		return;
	}
	if (r) {
		run_fail(run, r, "the step");
		return;
	}
	run->stats.steps++;
	run->stats.gated += info.gated > 0;
	run->stats.stall_ns += info.stall_ns;
}

/* Waits until the layer is there: the CPU backend computes without the stream. */
static void layer_begin(struct mm_ggml_run *run, int layer)
{
	int r = mm_layer_begin(run->g->model, (uint32_t)layer, run->stream);

	if (r) {
		run_fail(run, r, "the begin of a layer");
		return;
	}
	run->layer = layer;
	if (run->g->gpu->cuStreamSynchronize(run->stream))
		run_fail(run, -EIO, "the wait for a layer");
}

/* ---- the scheduler's callback ---- */

/* The layer that the node reads, MM_GGML_NO_LAYER, or -EMLINK. */
static int node_layer(const struct mm_ggml *g, const struct ggml_tensor *node)
{
	int layer = MM_GGML_NO_LAYER;

	for (int i = 0; i < GGML_MAX_SRC && node->src[i]; i++) {
		const struct ggml_tensor *t = node->src[i];
		int have;

		if (t->view_src)
			t = t->view_src;
		have = mm_ggml_owns(g, t) ? mm_ggml_layer(t->name) : MM_GGML_NO_LAYER;
		if (have == MM_GGML_NO_LAYER || have == layer)
			continue;
		if (layer != MM_GGML_NO_LAYER)
			return -EMLINK;
		layer = have;
	}
	return layer;
}

/* All nodes before this one that read a layer are computed. */
static void layer_change(struct mm_ggml_run *run, int layer)
{
	int last = run->layer;

	if (run->learning)
		stop_add(run, run->last);
	if (layer_end(run))
		return;
	if (layer < last) { /* the next part of the batch */
		step_close(run);
		if (run->error || step_open(run, false))
			return;
	}
	layer_begin(run, layer);
}

static bool node_ask(struct mm_ggml_run *run, const struct ggml_tensor *node)
{
	int layer = node_layer(run->g, node);

	if (layer == -EMLINK)
		run->error = mm_ggml_fail(run->g, -ENOTSUP, "%s reads several layers at once",
					  node->name);
	if (run->error || run->lost)
		return false;
	if (layer != MM_GGML_NO_LAYER && layer != run->layer) {
		if (run->pending) {
			run->lost = true;
			return false;
		}
		layer_change(run, layer);
	}
	run->pending |= layer != MM_GGML_NO_LAYER;
	memcpy(run->last, node->name, sizeof(run->last));
	return run->learning || stop_is(run, node->name);
}

static bool node_eval(struct ggml_tensor *node, bool ask, void *user)
{
	struct mm_ggml_run *run = user;

	if (ask)
		return node_ask(run, node);
	run->pending = false;
	return true;
}

/* ---- runs ---- */

/* The client's device, which its UUID tells; its primary context lives as long as the client. */
static int device_find(const struct mm_ggml *g, CUdevice *ret_device)
{
	struct mm_client_info info = { .size = sizeof(info) };
	int n = 0, r = mm_client_info(g->client, &info);

	if (r || g->gpu->cuDeviceGetCount(&n))
		return r ? r : -EIO;
	for (int i = 0; i < n; i++) {
		CUuuid uuid;

		if (!g->gpu->cuDeviceGet(ret_device, i) &&
		    !g->gpu->cuDeviceGetUuid(&uuid, *ret_device) &&
		    !memcmp(&uuid, info.device_uuid, sizeof(uuid)))
			return 0;
	}
	return -ENODEV;
}

/* The context, which decoding makes current for its thread, and the stream of the gates. */
static int stream_create(struct mm_ggml_run *run)
{
	const struct mm_gpu_api *gpu = run->g->gpu;
	int r = device_find(run->g, &run->device);

	if (r)
		return r;
	if (gpu->cuDevicePrimaryCtxRetain(&run->driver, run->device)) {
		run->driver = NULL;
		return -EIO;
	}
	if (gpu->cuCtxPushCurrent(run->driver))
		return -EIO;
	if (gpu->cuStreamCreate(&run->stream, CU_STREAM_NON_BLOCKING)) {
		run->stream = NULL;
		r = -EIO;
	}
	gpu->cuCtxPopCurrent(&(CUcontext){ NULL });
	return r;
}

static void stream_destroy(struct mm_ggml_run *run)
{
	const struct mm_gpu_api *gpu = run->g->gpu;

	if (!run->driver)
		return;
	if (run->stream && !gpu->cuCtxPushCurrent(run->driver)) {
		gpu->cuStreamDestroy(run->stream);
		gpu->cuCtxPopCurrent(&(CUcontext){ NULL });
	}
	gpu->cuDevicePrimaryCtxRelease(run->device);
}

int mm_ggml_run_open(struct mm_ggml *ggml, struct llama_context_params *params,
		     struct mm_ggml_run **ret_run)
{
	struct mm_ggml_run *run;
	int r;

	if (params->cb_eval)
		return mm_ggml_fail(ggml, -EBUSY, "the context has a callback of its own");
	run = calloc(1, sizeof(*run));
	if (!run)
		return mm_ggml_fail(ggml, -ENOMEM, "out of memory");
	run->g = ggml;
	run->stops = calloc(STOPS_MAX, sizeof(run->stops[0]));
	if (!run->stops) {
		mm_ggml_run_close(run);
		return mm_ggml_fail(ggml, -ENOMEM, "out of memory");
	}
	run->learning = true;
	r = stream_create(run);
	if (r) {
		mm_ggml_run_close(run);
		return mm_ggml_fail(ggml, r, "the driver makes no stream: %s", strerror(-r));
	}
	params->cb_eval = node_eval;
	params->cb_eval_user_data = run;
	*ret_run = run;
	return 0;
}

struct mm_ggml_run *mm_ggml_run_close(struct mm_ggml_run *run)
{
	if (!run)
		return NULL;
	stream_destroy(run);
	free(run->stops);
	free(run);
	return NULL;
}

int mm_ggml_run_stats(const struct mm_ggml_run *run, struct mm_ggml_stats *ret_stats)
{
	if (ret_stats->size != sizeof(*ret_stats))
		return -EINVAL;
	*ret_stats = run->stats;
	ret_stats->size = sizeof(*ret_stats);
	return 0;
}

/* ---- decoding ---- */

/* The first position that the batch adds to each sequence of the context's memory. */
struct undo {
	llama_seq_id n;
	llama_pos *first; /* -1: the batch adds nothing to the sequence */
	uint32_t busy;    /* sequences that it adds to */
};

static llama_pos token_pos(const struct llama_batch *b, int32_t i, llama_pos next)
{
	return b->pos ? b->pos[i] : next;
}

static int undo_note(struct undo *undo, struct llama_context *context, const struct llama_batch *b)
{
	undo->n = (llama_seq_id)llama_n_seq_max(context);
	undo->first = malloc((size_t)undo->n * sizeof(undo->first[0]));
	if (!undo->first)
		return -ENOMEM;
	for (llama_seq_id s = 0; s < undo->n; s++)
		undo->first[s] = -1;
	for (int32_t i = 0; i < b->n_tokens; i++) {
		int32_t n = b->n_seq_id ? b->n_seq_id[i] : 1;

		for (int32_t k = 0; k < n; k++) {
			llama_seq_id s = b->seq_id ? b->seq_id[i][k] : 0;
			llama_pos pos;

			if (s < 0 || s >= undo->n)
				continue; /* llama_decode() refuses it */
			pos = token_pos(b, i,
					llama_memory_seq_pos_max(llama_get_memory(context), s) + 1);
			undo->busy += undo->first[s] < 0;
			if (undo->first[s] < 0 || pos < undo->first[s])
				undo->first[s] = pos;
		}
	}
	return 0;
}

/* Takes out what a void step has added. */
static int undo_apply(const struct undo *undo, struct mm_ggml_run *run,
		      struct llama_context *context)
{
	for (llama_seq_id s = 0; s < undo->n; s++)
		if (undo->first[s] >= 0 &&
		    !llama_memory_seq_rm(llama_get_memory(context), s, undo->first[s], -1))
			return mm_ggml_fail(run->g, -ENOTRECOVERABLE,
					    "a step was void, and the context's memory cannot give "
					    "back what was computed");
	return 0;
}

/* One try. -EAGAIN: it was void. */
static int decode_once(struct mm_ggml_run *run, struct llama_context *context,
		       struct llama_batch batch)
{
	int32_t done;

	run->pending = run->lost = run->voided = false;
	run->error = 0;
	run->last[0] = '\0';
	if (step_open(run, true))
		return run->error;
	done = llama_decode(context, batch);
	llama_synchronize(context);
	if (done && !run->error) {
		run->error = done < 0 ? mm_ggml_fail(run->g, -EIO, "llama_decode: %d", done) : done;
		step_close(run);
		return run->error;
	}
	step_close(run);
	if (run->error)
		return run->error;
	if (run->lost) {
		run->learning = true;
		run->stats.relearnt++;
		return -EAGAIN;
	}
	if (run->voided) {
		run->stats.voided++;
		return -EAGAIN;
	}
	run->learning = false;
	return 0;
}

/* The batch counts as one request for each sequence that it adds to. */
static void load_report(struct mm_ggml_run *run, uint32_t running)
{
	struct mm_load_hint hint = { .size = sizeof(hint), .running = running };

	mm_client_hint(run->g->client, &hint);
}

void mm_ggml_idle(struct mm_ggml_run *run)
{
	load_report(run, 0);
}

int mm_ggml_decode(struct mm_ggml_run *run, struct llama_context *context, struct llama_batch batch)
{
	struct undo undo = { 0 };
	int r;

	run->g->error[0] = '\0';
	r = undo_note(&undo, context, &batch);
	if (r)
		return mm_ggml_fail(run->g, r, "out of memory");
	if (run->g->gpu->cuCtxPushCurrent(run->driver)) {
		free(undo.first);
		return mm_ggml_fail(run->g, -EIO, "the driver has no context any more");
	}
	load_report(run, undo.busy);
	for (int tries = 0;; tries++) {
		r = decode_once(run, context, batch);
		if (r != -EAGAIN)
			break;
		r = undo_apply(&undo, run, context);
		if (r)
			break;
		if (tries == TRIES_MAX) {
			r = mm_ggml_fail(run->g, -EIO, "%d steps were void, one after the other",
					 TRIES_MAX);
			break;
		}
	}
	run->g->gpu->cuCtxPopCurrent(&(CUcontext){ NULL });
	free(undo.first);
	return r;
}
