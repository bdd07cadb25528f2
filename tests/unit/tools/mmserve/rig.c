/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "kernels/host/checksum.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tests/unit/tools/mmserve/rig.h"
#include "tests/unit/tools/mmserve/rig_cold.h"
#include "tools/lab/mkmodel/config.h"
#include "tools/mmserve/engine/packs.h"

struct lender { /* the state of a memory that lends */
	struct mm_memory plain;
	struct mm_engine *engine;
	struct rig_run *run;
	struct rig_result *results;
	const CUdeviceptr *kv_va; /* the engine's, by range */
	uint64_t chunk_bytes;
	uint32_t ranges;
	uint32_t chunks, share, wanted, first, n_usable, owed;
	bool *usable;
	uint64_t rng, steps;
	bool in_step;
	struct mm_swap_list { /* under way */
		bool used, in;
		uint32_t n;
		uint64_t user_data;
		struct mm_swap_piece pieces[MM_SWAP_PIECES];
	} lists[MM_SWAP_LOTS];
	uint8_t *space;
	uint64_t space_bytes;
	int ready_fd;
	struct rig_cold cold;
};

static uint32_t lender_draw(struct lender *l, uint32_t below)
{
	return (uint32_t)mm_random_below(&l->rng, below);
}

static void lender_poison(struct lender *l, uint32_t chunk)
{
	const struct mm_gpu_api *gpu = l->plain.gpu;

	for (uint32_t i = 0; i < l->ranges; i++)
		assert_int_equal(gpu->cuMemsetD8Async(l->kv_va[i] + chunk * l->chunk_bytes, 0xff,
						      l->chunk_bytes, NULL),
				 0);
	assert_int_equal(gpu->cuCtxSynchronize(), 0);
}

static int lender_tensor(struct mm_memory *m, const char *name, struct mm_tensor *ret_tensor)
{
	struct lender *l = m->state;

	return l->plain.ops->tensor(&l->plain, name, ret_tensor);
}

static const void *lender_store(struct mm_memory *m, const char *name, uint64_t *ret_bytes)
{
	struct lender *l = m->state;

	return l->plain.ops->store(&l->plain, name, ret_bytes);
}

static int lender_kv_open(struct mm_memory *m, const struct mm_kv_opts *opts, CUdeviceptr *ret_va)
{
	struct lender *l = m->state;
	struct mm_kv_opts all = *opts;
	int r;

	l->share = opts->share_chunks;
	all.share_chunks = l->run->lend || l->run->cold ? opts->chunks_max : opts->share_chunks;
	r = l->plain.ops->kv_open(&l->plain, &all, ret_va);
	assert_int_equal(r, 0);
	l->kv_va = ret_va;
	l->ranges = opts->ranges;
	l->chunk_bytes = opts->chunk_bytes;
	l->cold.gpu = l->plain.gpu;
	l->cold.arena = ret_va[0];
	l->cold.chunk_bytes = opts->chunk_bytes;
	l->chunks = all.share_chunks;
	l->usable = calloc(l->chunks, sizeof(*l->usable));
	assert_non_null(l->usable);
	for (uint32_t i = 0; i < l->chunks; i++) {
		l->usable[i] = !l->run->lend && !l->run->cold;
		lender_poison(l, i);
	}
	return 0;
}

/* Grants a chunk: the lowest one from l->first on, or any if there is none. */
static void lender_grant(struct lender *l)
{
	uint32_t chunk = l->first;

	while (chunk < l->chunks && l->usable[chunk])
		chunk++;
	if (!l->first || chunk == l->chunks)
		chunk = lender_draw(l, l->chunks);
	while (l->usable[chunk])
		chunk = (chunk + 1) % l->chunks;
	l->usable[chunk] = true;
	l->n_usable++;
}

static int lender_kv_want(struct mm_memory *m, uint32_t chunks_total, uint32_t first)
{
	struct lender *l = m->state;

	l->first = first;
	if (!l->run->lend && !l->run->cold)
		return chunks_total <= l->chunks ? 0 : -ENOSPC;
	if (!l->run->lend) {
		while (l->n_usable < MM_MIN(chunks_total, l->share))
			lender_grant(l);
		return chunks_total <= l->share ? 0 : -ENOSPC;
	}
	assert_true(chunks_total <= l->chunks);
	l->wanted = chunks_total;
	return chunks_total <= l->n_usable ? 0 : lender_draw(l, 4) ? -EAGAIN : -ENOSPC;
}

static void lender_kv_usable(struct mm_memory *m, uint64_t *ret_bitmap, size_t words)
{
	struct lender *l = m->state;

	memset(ret_bitmap, 0, words * sizeof(*ret_bitmap));
	for (uint32_t i = 0; i < MM_MIN(l->chunks, words * 64); i++)
		if (l->usable[i])
			ret_bitmap[i / 64] |= UINT64_C(1) << i % 64;
}

static int lender_kv_release(struct mm_memory *m, uint32_t chunk)
{
	struct lender *l = m->state;

	assert_true(l->run->lend && chunk < l->chunks && l->usable[chunk] && !l->in_step);
	assert_false(rig_cold_names(&l->cold, chunk));
	l->run->window_given += l->cold.lowest && chunk >= l->cold.lowest;
	l->usable[chunk] = false;
	l->n_usable--;
	l->owed -= l->owed != 0;
	lender_poison(l, chunk);
	return 0;
}

static uint32_t lender_kv_owed(struct mm_memory *m)
{
	const struct lender *l = m->state;

	return MM_MIN(l->owed, l->n_usable);
}

static int lender_swap_open(struct mm_memory *m, uint64_t bytes)
{
	struct lender *l = m->state;

	assert_true(bytes <= l->run->swap_bytes);
	l->space_bytes = bytes;
	l->space = calloc(1, bytes);
	assert_non_null(l->space);
	l->cold.space = l->space;
	return 0;
}

static int lender_swap(struct mm_memory *m, bool in, const struct mm_swap_piece *pieces, uint32_t n,
		       uint64_t user_data)
{
	struct lender *l = m->state;
	uint32_t i = 0;

	assert_false(l->in_step);
	while (i < MM_SWAP_LOTS && l->lists[i].used)
		i++;
	if (i == MM_SWAP_LOTS)
		return -EAGAIN;
	l->lists[i].used = true;
	l->lists[i].in = in;
	l->lists[i].n = n;
	l->lists[i].user_data = user_data;
	memcpy(l->lists[i].pieces, pieces, n * sizeof(*pieces));
	return 0;
}

/* The copy returns when it has read the bytes, the engine's stream does not wait for it. */
static void bytes_write(struct lender *l, CUdeviceptr va, const void *from, size_t bytes)
{
	assert_int_equal(l->plain.gpu->cuMemcpyHtoD(va, from, bytes), 0);
	assert_int_equal(l->plain.gpu->cuStreamSynchronize(NULL), 0);
}

static void swap_copy(struct lender *l, bool in, const struct mm_swap_piece *p)
{
	const struct mm_gpu_api *gpu = l->plain.gpu;
	const CUdeviceptr va = l->kv_va[p->range] + p->arena_offset;

	assert_true(p->range < l->ranges && p->swap_offset + p->bytes <= l->space_bytes);
	assert_true(l->usable[p->arena_offset / l->chunk_bytes]);
	assert_false(rig_cold_names(&l->cold, (uint32_t)(p->arena_offset / l->chunk_bytes)));
	if (in)
		bytes_write(l, va, l->space + p->swap_offset, p->bytes);
	else
		assert_int_equal(gpu->cuMemcpyDtoH(l->space + p->swap_offset, va, p->bytes), 0);
}

/* Lists are done late, in any order, and some of them fail. */
static int lender_swap_next(struct mm_memory *m, struct mm_swap_done *ret_done)
{
	struct lender *l = m->state;
	struct mm_swap_list *list = &l->lists[lender_draw(l, MM_SWAP_LOTS)];

	if (!list->used)
		return -EAGAIN;
	list->used = false;
	*ret_done = (struct mm_swap_done){ .size = sizeof(*ret_done),
					   .user_data = list->user_data,
					   .error = lender_draw(l, 4) ? 0 : -EIO };
	for (uint32_t i = 0; i < list->n && !ret_done->error; i++)
		swap_copy(l, list->in, &list->pieces[i]);
	return 0;
}

/* The fd is always readable, so that the engine never sleeps. */
static int lender_event_fd(struct mm_memory *m)
{
	const struct lender *l = m->state;

	return l->run->lend || l->run->swap_bytes ? l->ready_fd : -1;
}

/* The answer to a window, or another limit, at random. */
static bool lender_cools(struct lender *l)
{
	struct rig_cold *c = &l->cold;

	if (!c->opts.size || lender_draw(l, 4))
		return false;
	if (c->state.pending && lender_draw(l, 4) == 0) {
		rig_cold_answer(c);
		return true;
	}
	if (!l->run->lend || lender_draw(l, c->state.pending ? 4 : 30))
		return false;
	c->state.limit =
		lender_draw(l, 3) ? c->opts.entries_max : lender_draw(l, c->opts.entries_max + 1);
	return true;
}

static int lender_granted(struct lender *l, struct mm_event *ret_event)
{
	lender_grant(l);
	*ret_event = (struct mm_event){ .size = sizeof(*ret_event),
					.kind = MM_EVENT_KV_GRANTED,
					.count = 1 };
	return 0;
}

static int lender_next_event(struct mm_memory *m, struct mm_event *ret_event)
{
	struct lender *l = m->state;

	if (lender_cools(l)) {
		*ret_event = (struct mm_event){ .size = sizeof(*ret_event), .kind = MM_EVENT_COLD };
		return 0;
	}
	if (!l->run->lend)
		return -EAGAIN;
	if (l->n_usable < l->wanted && lender_draw(l, 8) == 0)
		return lender_granted(l, ret_event);
	if (l->n_usable < l->wanted && lender_draw(l, 30) == 0) {
		*ret_event = (struct mm_event){ .size = sizeof(*ret_event),
						.kind = MM_EVENT_KV_DENIED,
						.error = -ENOSPC };
		return 0;
	}
	if (l->n_usable && lender_draw(l, 40) == 0) {
		l->owed = 1 + lender_draw(l, 2);
		*ret_event = (struct mm_event){ .size = sizeof(*ret_event),
						.kind = MM_EVENT_KV_RECLAIM,
						.count = l->owed };
		if (l->run->patient)
			ret_event->deadline_ns = mm_now_ns() + lender_draw(l, 40) * MM_NS_PER_MS;
		return 0;
	}
	return -EAGAIN;
}

static void lender_hint(struct mm_memory *m, const struct mm_load_hint *hint)
{
	(void)m;
	assert_true(hint->running <= 1u << 16);
}

static void lender_corrupt(struct lender *l)
{
	const struct mm_bound *t = mm_weights_at(l->engine->weights, 1, MM_W_UP);
	uint8_t byte;

	assert_int_equal(l->plain.gpu->cuMemcpyDtoH(&byte, t->va + t->bytes / 2, 1), 0);
	byte ^= 0x10;
	bytes_write(l, t->va + t->bytes / 2, &byte, 1);
}

static int lender_turn_want(struct mm_memory *m)
{
	struct lender *l = m->state;

	return l->plain.ops->turn_want(&l->plain);
}

static int lender_turn_yield(struct mm_memory *m)
{
	struct lender *l = m->state;

	assert_false(l->in_step);
	return l->plain.ops->turn_yield(&l->plain);
}

static int lender_step_begin(struct mm_memory *m)
{
	struct lender *l = m->state;

	assert_false(l->in_step);
	if (l->cold.state.pending && lender_draw(l, 8) == 0)
		rig_cold_answer(&l->cold);
	assert_int_equal(l->plain.gpu->cuCtxSynchronize(), 0);
	if (l->run->lend && l->cold.window_chunks && lender_draw(l, 16) == 0 &&
	    rig_cold_cut(&l->cold, lender_draw(l, l->cold.opts.entries_max + 1)))
		return -ESTALE;
	l->in_step = true;
	if (++l->steps == l->run->corrupt)
		lender_corrupt(l);
	return 0;
}

/* Keeps a checksum of each sampled token's logits. */
static void keep_logits(struct lender *l)
{
	const struct mm_engine *e = l->engine;
	const struct mm_sched_plan *plan = &e->sched.plan;
	const size_t row = (size_t)e->weights->arch.vocab * sizeof(float);
	uint32_t sample = 0;
	void *logits = malloc(row);

	assert_non_null(logits);
	for (uint32_t i = 0; i < plan->n_items; i++) {
		const uint64_t user = e->sched.seqs[plan->items[i].seq].user;
		const uint32_t n = e->requests->all[user].n_output;

		if (!plan->items[i].samples)
			continue;
		assert_int_equal(l->plain.gpu->cuMemcpyDtoH(
					 logits, e->forward.w.logits + sample++ * row, row),
				 0);
		assert_true(n < RIG_OUTPUT_MAX);
		l->results[user].logits[n] = mm_checksum_bytes(logits, row);
		if (l->run->on_logits)
			l->run->on_logits(l->run->context, user, n, logits);
	}
	free(logits);
}

static int lender_step_end(struct mm_memory *m, CUstream stream, struct mm_step_info *ret_info)
{
	struct lender *l = m->state;
	const int r = l->plain.ops->step_end(&l->plain, stream, ret_info);

	l->in_step = false;
	rig_cold_restart(&l->cold);
	if (!r && l->run->lend && lender_draw(l, 20) == 0)
		return -ECANCELED;
	if (!r)
		keep_logits(l);
	return r;
}

static int lender_step_abandon(struct mm_memory *m, CUstream stream)
{
	struct lender *l = m->state;
	const int r = l->plain.ops->step_abandon(&l->plain, stream);

	l->in_step = false;
	rig_cold_restart(&l->cold);
	return r;
}

static int lender_layer(struct mm_memory *m, uint32_t layer, CUstream stream)
{
	(void)m;
	(void)layer;
	(void)stream;
	return 0;
}

static int lender_layer_end(struct mm_memory *m, uint32_t layer, CUstream stream)
{
	struct lender *l = m->state;

	rig_cold_layer_end(&l->cold, layer, stream);
	return 0;
}

static int lender_cold_open(struct mm_memory *m, const struct mm_cold_opts *opts,
			    uint32_t *ret_classes)
{
	struct lender *l = m->state;

	return rig_cold_open(&l->cold, opts, ret_classes);
}

static int lender_cold_window(struct mm_memory *m, uint32_t first_chunk, uint32_t chunks)
{
	struct lender *l = m->state;

	assert_false(l->in_step);
	for (uint32_t i = first_chunk; i < first_chunk + chunks; i++)
		assert_true(i < l->chunks && l->usable[i]);
	return rig_cold_window(&l->cold, first_chunk, chunks);
}

static int lender_cold_set(struct mm_memory *m, uint32_t entry, bool live)
{
	struct lender *l = m->state;

	return rig_cold_set(&l->cold, entry, live);
}

static uint64_t lender_cold_commit(struct mm_memory *m)
{
	struct lender *l = m->state;

	return rig_cold_commit(&l->cold);
}

static int lender_cold_state(struct mm_memory *m, struct mm_cold_state *ret_state)
{
	struct lender *l = m->state;

	return rig_cold_state(&l->cold, ret_state);
}

static bool lender_step_wants_times(struct mm_memory *m)
{
	return lender_draw(m->state, 2) == 0;
}

static int lender_step_graph(struct mm_memory *m, bool timed)
{
	const struct lender *l = m->state;

	(void)timed;
	assert_true(l->in_step);
	return 0;
}

static const char *lender_error(struct mm_memory *m)
{
	struct lender *l = m->state;

	return l->plain.ops->error(&l->plain);
}

static void lender_close(struct mm_memory *m)
{
	struct lender *l = m->state;

	mm_memory_close(&l->plain);
	free(l->usable);
	free(l->space);
}

static uint64_t lender_plan_held_ns(struct mm_memory *m)
{
	(void)m;
	return 0;
}

static const struct mm_memory_ops lender_ops = {
	.tensor = lender_tensor,
	.store = lender_store,
	.kv_open = lender_kv_open,
	.kv_want = lender_kv_want,
	.kv_usable = lender_kv_usable,
	.kv_release = lender_kv_release,
	.kv_owed = lender_kv_owed,
	.swap_open = lender_swap_open,
	.swap = lender_swap,
	.swap_next = lender_swap_next,
	.cold_open = lender_cold_open,
	.cold_window = lender_cold_window,
	.cold_set = lender_cold_set,
	.cold_commit = lender_cold_commit,
	.cold_state = lender_cold_state,
	.event_fd = lender_event_fd,
	.next_event = lender_next_event,
	.plan_held_ns = lender_plan_held_ns,
	.hint = lender_hint,
	.turn_want = lender_turn_want,
	.turn_yield = lender_turn_yield,
	.step_begin = lender_step_begin,
	.step_end = lender_step_end,
	.step_abandon = lender_step_abandon,
	.layer_begin = lender_layer,
	.layer_end = lender_layer_end,
	.step_wants_times = lender_step_wants_times,
	.step_capture = lender_step_graph,
	.step_replay = lender_step_graph,
	.error = lender_error,
	.close = lender_close,
};

struct mk_random rig_random(const struct mm_arch *arch, uint64_t seed)
{
	struct mk_random random = { *arch, seed };
	char err[MK_ERROR_BYTES];

	mm_arch_fill(&random.arch);
	if (mk_arch_check(&random.arch, err))
		fail_msg("%s", err);
	return random;
}

void rig_model(const struct mk_source *source, const struct mk_format *format, char *ret_dir,
	       size_t dir_bytes)
{

	const char *tmp = getenv("TMPDIR");
	char err[MK_ERROR_BYTES];

	snprintf(ret_dir, dir_bytes, "%s/mm-rig.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(ret_dir));
	if (mk_write(source, ret_dir, format, err))
		fail_msg("%s", err);
}

void rig_remove(const char *dir)
{
	const struct dirent *entry;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((entry = readdir(d)))
		unlinkat(dirfd(d), entry->d_name, 0); /* fails for . and .. */
	closedir(d);
	assert_int_equal(rmdir(dir), 0);
}

static void make_request(struct mm_request *q, uint32_t n_prompt, uint32_t max_tokens)
{
	*q = (struct mm_request){ .n_prompt = n_prompt, .max_tokens = max_tokens };
	q->ids = calloc(n_prompt + max_tokens, sizeof(*q->ids));
	q->times = calloc(max_tokens, sizeof(*q->times));
	assert_true(q->ids && q->times);
}

void rig_requests(struct mm_requests *requests, size_t n, uint32_t vocab, uint64_t seed)
{
	struct lender l = { .rng = seed };

	*requests = (struct mm_requests){ calloc(n, sizeof(*requests->all)), n };
	assert_non_null(requests->all);
	for (size_t i = 0; i < n; i++) {
		struct mm_request *q = &requests->all[i];
		const uint32_t n_prompt = 1 + lender_draw(&l, i % 3 ? 12 : 70);

		/* Drawn one after the other: compilers differ in the order of arguments. */
		make_request(q, n_prompt, 1 + lender_draw(&l, 40));
		for (uint32_t k = 0; k < q->n_prompt; k++)
			q->ids[k] = lender_draw(&l, vocab);
	}
}

static void copy_requests(struct mm_requests *to, const struct mm_requests *from)
{
	*to = (struct mm_requests){ calloc(from->n, sizeof(*to->all)), from->n };
	assert_non_null(to->all);
	for (size_t i = 0; i < from->n; i++) {
		const struct mm_request *q = &from->all[i];

		make_request(&to->all[i], q->n_prompt, q->max_tokens);
		memcpy(to->all[i].ids, q->ids, q->n_prompt * sizeof(*q->ids));
	}
}

static void keep_results(const struct mm_requests *requests, struct rig_result *results)
{
	for (size_t i = 0; i < requests->n; i++) {
		const struct mm_request *q = &requests->all[i];

		results[i].n = q->n_output;
		memcpy(results[i].ids, q->ids + q->n_prompt, q->n_output * sizeof(*q->ids));
		memcpy(results[i].times, q->times, q->n_output * sizeof(*q->times));
		results[i].finish_s = q->finish_s;
		memcpy(results[i].error, q->error, sizeof(results[i].error));
	}
}

static void open_gpu(struct mm_gpu_api *gpu, CUdevice *ret_device)
{
	CUcontext context;
	char err[256];

	if (mm_gpu_open("software", gpu, err, sizeof(err)))
		fail_msg("%s", err);
	assert_int_equal(gpu->cuInit(0), 0);
	assert_int_equal(gpu->cuDeviceGet(ret_device, 0), 0);
	assert_int_equal(gpu->cuDevicePrimaryCtxRetain(&context, *ret_device), 0);
	assert_int_equal(gpu->cuCtxSetCurrent(context), 0);
}

static void lender_serve(struct lender *l, const struct mm_arch *arch, struct mm_requests *requests)
{
	const struct rig_run *run = l->run;
	const struct mm_engine_opts opts = {
		.module = run->module ? run->module : getenv("MM_KERNELS"),
		.block_tokens = run->block_tokens,
		.max_batch = run->max_batch,
		.max_batched_tokens = run->max_batched_tokens,
		.kv_order = run->kv_order,
		.kv_dtype = run->kv_dtype ? run->kv_dtype : MM_DTYPE_F32,
		.admit = run->admit,
		.kv_share_bytes = run->kv_share_bytes,
		.swap_bytes = run->swap_bytes,
		.cold = run->cold,
		.kv_idle_ns = 3 * MM_NS_PER_MS,
		.kv_timeout_ns = 1800 * MM_NS_PER_S,
		.time_scale = run->time_scale > 0 ? run->time_scale : 1,
		.device_times = run->device_times,
		.verify = run->verify,
		.gemm = run->gemm,
		.fast = run->fast,
		.graphs_max = run->graphs_max,
		.graphs_must = !run->graphs_fail
	};
	struct mm_memory memory = {
		.ops = &lender_ops,
		.gpu = l->plain.gpu,
		.state = l,
		.page_bytes = 4096,
		.kv_pages_max = run->lend ? (run->lend_pages ? run->lend_pages : 40) : 1u << 20,
		.fixed = !run->lend
	};
	char err[MM_SERVE_ERROR_BYTES] = "";
	struct mm_weights weights;
	struct mm_engine e;

	assert_non_null(opts.module);
	if (mm_weights_bind(&memory, arch, run->verify, &weights, err) ||
	    (run->fused && mm_weights_fuse(&weights, err)))
		fail_msg("%s", err);
	l->engine = &e;
	if (mm_engine_init(&e, &opts, &memory, &weights, requests, err) || mm_engine_run(&e, 0))
		fail_msg("%s", err);
	assert_null(mm_sched_check(&e.sched));
	l->run->stats = e.stats;
	l->run->stats.stalls_s.all = l->run->stats.gaps_s.all = NULL;
	mm_engine_done(&e);
	mm_weights_done(&weights);
	mm_memory_close(&memory);
}

/* ---- graphs: as many live as are wanted, and none is left behind ---- */

static struct {
	const struct mm_gpu_api *gpu; /* the driver's own */
	uint32_t live, max;
} execs;

static CUresult CUDAAPI graph_instantiate(CUgraphExec *exec, CUgraph graph,
					  unsigned long long flags)
{
	CUresult res = execs.gpu->cuGraphInstantiateWithFlags(exec, graph, flags);

	execs.live += !res;
	assert_in_range(execs.live, 0, execs.max);
	return res;
}

static CUresult CUDAAPI graph_destroy(CUgraphExec exec)
{
	CUresult res = execs.gpu->cuGraphExecDestroy(exec);

	assert_int_equal(res, 0);
	assert_int_not_equal(execs.live, 0);
	execs.live--;
	return res;
}

static CUresult instantiate_nothing(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	(void)exec;
	(void)graph;
	(void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}

void rig_serve(const char *dir, const struct mm_requests *requests, struct rig_run *run,
	       struct rig_result *ret_results)
{
	struct lender l = { .run = run,
			    .results = ret_results,
			    .rng = run->lend,
			    .ready_fd = eventfd(1, EFD_CLOEXEC) };
	struct mm_serve_packs packs;
	struct mm_requests copy;
	struct mm_gpu_api own, gpu;
	struct mm_arch arch;
	char err[MM_SERVE_ERROR_BYTES];
	CUdevice device;

	memset(ret_results, 0, requests->n * sizeof(*ret_results));
	open_gpu(&own, &device);
	gpu = own;
	execs.gpu = &own;
	execs.live = 0;
	execs.max = 2 * run->graphs_max;
	gpu.cuGraphInstantiateWithFlags =
		run->graphs_fail ? instantiate_nothing : graph_instantiate;
	gpu.cuGraphExecDestroy = graph_destroy;
	if (mm_config_load(dir, &arch, err))
		fail_msg("%s", err);
	mm_serve_packs_make(&arch, &packs);
	if (mm_memory_plain_open(&gpu, dir, run->fused ? &packs.opts : NULL, &l.plain, err))
		fail_msg("%s", err);
	copy_requests(&copy, requests);
	lender_serve(&l, &arch, &copy);
	keep_results(&copy, ret_results);
	mm_requests_done(&copy);
	mm_close_fd(&l.ready_fd);
	assert_int_equal(execs.live, 0);
	assert_int_equal(own.cuDevicePrimaryCtxRelease(device), 0);
	mm_gpu_close(&own);
}

void rig_compare(const char *what, const struct mm_requests *requests,
		 const struct rig_result *results, const struct rig_result *want)
{
	for (size_t i = 0; i < requests->n; i++) {
		if (results[i].error[0])
			fail_msg("%s: request %zu: %s", what, i, results[i].error);
		assert_int_equal(results[i].n, requests->all[i].max_tokens);
		if (memcmp(results[i].ids, want[i].ids, sizeof(want[i].ids)))
			fail_msg("%s: request %zu has other ids", what, i);
		if (memcmp(results[i].logits, want[i].logits, sizeof(want[i].logits)))
			fail_msg("%s: request %zu has other logits", what, i);
	}
}
