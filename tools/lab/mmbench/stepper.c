/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/stepper.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/common/procs.h"

#define BLOCK_TOKENS 16u
#define KV_WAIT_NS   (120 * MM_NS_PER_S)
#define KV_POLL_MS   20
#define VOID_MAX     8u /* a plan change voids a step at most once */

static int stepper_fail(char *err, int error, const char *what, const char *why)
{
	snprintf(err, MM_SERVE_ERROR_BYTES, "%.200s: %.4000s", what, why);
	return error;
}

static int fail_device(const struct mm_stepper *s, CUresult r, const char *what, char *err)
{
	return stepper_fail(err, mm_gpu_errno(r), what, mm_gpu_strerror(&s->gpu, r));
}

static int open_device(struct mm_stepper *s, char *err)
{
	CUcontext context;
	CUresult r;

	if (mm_gpu_open("software", &s->gpu, err, MM_SERVE_ERROR_BYTES))
		return -ENODEV;
	r = s->gpu.cuInit(0);
	if (!r)
		r = s->gpu.cuDeviceGet(&s->device, 0);
	if (!r)
		r = s->gpu.cuDevicePrimaryCtxRetain(&context, s->device);
	if (!r) {
		s->retained = true;
		r = s->gpu.cuCtxSetCurrent(context);
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(s->ends) && !r; i++)
		r = s->gpu.cuEventCreate(&s->ends[i], CU_EVENT_DEFAULT);
	return r ? fail_device(s, r, "cannot use the device", err) : 0;
}

static int stepper_open_model(struct mm_stepper *s, const struct mm_stepper_opts *o, char *err)
{
	const struct mm_client_opts client = { .size = sizeof(client),
					       .socket_path = o->socket,
					       .name = "steps",
					       .gpu = &s->gpu,
					       .device = s->device };
	bool connected;
	int r = mm_config_load(o->model, &s->arch, err);

	if (!r && o->context > s->arch.max_position)
		return stepper_fail(err, -ERANGE, "--context",
				    "is more than the model's max_position");
	if (!r)
		r = mm_memory_mmd_open(&client, o->model, NULL, &s->memory, &connected, err);
	return r ? r : mm_weights_bind(&s->memory, &s->arch, false, &s->weights, err);
}

static uint32_t chunks_of(const struct mm_stepper *s, uint32_t blocks)
{
	return (uint32_t)mm_div_up(blocks, s->kv.blocks_per_chunk);
}

static uint32_t blocks_each(const struct mm_stepper_opts *o)
{
	return (uint32_t)mm_div_up(o->context, BLOCK_TOKENS);
}

/* Waits until mmd has granted all chunks. */
static int wait_kv(struct mm_stepper *s, uint32_t chunks, uint64_t *usable, size_t words, char *err)
{
	const uint64_t deadline_ns = mm_now_ns() + KV_WAIT_NS;

	for (;;) {
		int r = s->memory.ops->kv_want(&s->memory, chunks, 0);
		uint32_t there = 0;

		if (r && r != -EAGAIN)
			return stepper_fail(err, r, "cannot get the KV memory of the batch",
					    s->memory.ops->error(&s->memory));
		s->memory.ops->kv_usable(&s->memory, usable, words);
		for (size_t i = 0; i < words; i++)
			there += (uint32_t)__builtin_popcountll(usable[i]);
		if (there >= chunks)
			return 0;
		if (mm_now_ns() > deadline_ns)
			return stepper_fail(
				err, -ETIMEDOUT, "the KV memory of the batch",
				"mmd does not grant it in time; take a smaller --batch or "
				"--context");
		poll(NULL, 0, KV_POLL_MS);
	}
}

/* ---- cold blocks ---- */

static uint32_t stepper_window_chunks(const struct mm_stepper *s, uint32_t entries)
{
	const uint32_t layers = s->arch.layers;

	if (!entries)
		return 0;
	return (uint32_t)mm_div_up(mm_cold_window_bytes(mm_cold_layer_classes(layers), layers,
							s->kv.block_bytes / layers, entries),
				   s->kv.chunk_bytes);
}

static int stepper_cold_fail(struct mm_stepper *s, int error, const char *what, char *err)
{
	return stepper_fail(err, error, what, s->memory.ops->error(&s->memory));
}

/* Waits until the limit is known, or the window is in force. */
static int cold_wait(struct mm_stepper *s, bool window, char *err)
{
	const uint64_t deadline_ns = mm_now_ns() + KV_WAIT_NS;
	struct mm_cold_state state = { .size = sizeof(state) };
	struct mm_event event = { .size = sizeof(event) };

	for (;;) {
		int r;

		while (!s->memory.ops->next_event(&s->memory, &event))
			;
		r = s->memory.ops->cold_state(&s->memory, &state);
		if (r || (window && state.error))
			return stepper_cold_fail(s, r ? r : state.error, "cold blocks", err);
		if (window ? !state.pending && state.window_chunks : state.limit >= s->cold)
			return 0;
		if (mm_now_ns() > deadline_ns)
			return stepper_fail(err, -ETIMEDOUT, "cold blocks",
					    "mmd does not allow them in time");
		poll(NULL, 0, KV_POLL_MS);
	}
}

/* Declares cold blocks, and has the last chunks of the arena as their window. */
static int open_cold(struct mm_stepper *s, const struct mm_stepper_opts *o, char *err)
{
	const uint32_t chunks = stepper_window_chunks(s, o->cold);
	const struct mm_cold_opts opts = { .size = sizeof(opts),
					   .unit_bytes = s->kv.block_bytes / s->arch.layers,
					   .layers = s->arch.layers,
					   .entries_max = o->cold,
					   .floor = o->cold };
	const struct mm_memory_ops *ops = s->memory.ops;
	uint32_t classes;
	int r;

	if (!o->cold)
		return 0;
	s->cold = o->cold;
	r = ops->swap_open(&s->memory, o->cold * s->kv.block_bytes);
	if (r)
		return stepper_cold_fail(s, r, "the swap space of cold blocks", err);
	r = ops->cold_open(&s->memory, &opts, &classes);
	if (r)
		return stepper_cold_fail(s, r, "cold blocks", err);
	r = cold_wait(s, false, err);
	if (r)
		return r;
	r = ops->cold_window(&s->memory, chunks_of(s, o->batch * blocks_each(o)), chunks);
	return r ? stepper_cold_fail(s, r, "the window of cold blocks", err)
		 : cold_wait(s, true, err);
}

int mm_stepper_stream(struct mm_stepper *s, uint32_t entries, char *err)
{
	mm_assert(entries <= s->cold);
	for (uint32_t e = 0; e < s->cold; e++) {
		const int r = s->memory.ops->cold_set(&s->memory, e, e < entries);

		if (r)
			return stepper_cold_fail(s, r, "a cold block", err);
	}
	if (s->cold && !s->memory.ops->cold_commit(&s->memory))
		return stepper_cold_fail(s, -EPROTO, "cold blocks", err);
	return 0;
}

/* Returns the @n-th usable block; each sequence has blocks of its own. */
static uint32_t table_entry(const struct mm_stepper *s, uint32_t n)
{
	return (uint32_t)(mm_kv_arena_offset(&s->kv, n) / MM_KV_UNIT_BYTES);
}

static int open_kv(struct mm_stepper *s, const struct mm_stepper_opts *o, char *err)
{
	mm_cleanup(mm_free_ptr) uint64_t *usable = NULL;
	struct mm_kv_opts kv = { .size = sizeof(kv) };
	size_t words;
	int r = mm_kv_arena_init(&s->kv, MM_KV_BLOCK_MAJOR, s->arch.layers,
				 mm_forward_part_bytes(&s->arch, BLOCK_TOKENS, MM_DTYPE_F16),
				 s->memory.page_bytes);

	if (r)
		return stepper_fail(err, r, "KV memory", strerror(-r));
	kv.chunk_bytes = s->kv.chunk_bytes;
	kv.ranges = s->kv.ranges;
	kv.chunks_max = chunks_of(s, o->batch * blocks_each(o)) + stepper_window_chunks(s, o->cold);
	kv.share_chunks = kv.chunks_max;
	words = mm_div_up(kv.chunks_max, 64);
	usable = calloc(words, sizeof(*usable));
	if (!usable)
		return stepper_fail(err, -ENOMEM, "KV memory", "out of memory");
	r = s->memory.ops->kv_open(&s->memory, &kv, s->kv.va);
	if (r)
		return stepper_fail(err, r, "cannot open the KV arena",
				    s->memory.ops->error(&s->memory));
	return wait_kv(s, kv.chunks_max, usable, words, err);
}

static int open_forward(struct mm_stepper *s, const struct mm_stepper_opts *o, char *err)
{
	const struct mm_forward_opts opts = { .module = o->kernels,
					      .max_tokens = o->batch,
					      .max_rows = o->batch,
					      .table_stride = blocks_each(o),
					      .block_tokens = BLOCK_TOKENS,
					      .kv_dtype = MM_DTYPE_F16 };
	struct mm_batch *b = &s->forward.batch;
	int r = mm_forward_init(&s->forward, &s->memory, &s->weights, &opts, err);

	if (r)
		return r;
	s->forward.kv = &s->kv;
	s->forward.break_at = UINT32_MAX;
	b->n_tokens = b->n_samples = o->batch;
	for (uint32_t i = 0; i < o->batch; i++) {
		b->ids[i] = i % s->arch.vocab;
		b->positions[i] = o->context - 1;
		b->rows[i] = b->samples[i] = i;
	}
	for (uint32_t i = 0; i < o->batch * opts.table_stride; i++)
		b->tables[i] = table_entry(s, i);
	mm_forward_derive(&s->forward);
	return 0;
}

int mm_stepper_open(struct mm_stepper *s, const struct mm_stepper_opts *o, char *err)
{
	int r = open_device(s, err);

	if (!r)
		r = stepper_open_model(s, o, err);
	if (!r)
		r = open_kv(s, o, err);
	if (!r)
		r = open_cold(s, o, err);
	return r ? r : open_forward(s, o, err);
}

/* Computes one step. Return: as mm_step_end(); -ECANCELED: the step must be run again. */
static int stepper_compute(struct mm_stepper *s, CUevent end)
{
	const struct mm_memory_ops *ops = s->memory.ops;
	struct mm_step_info info = { .size = sizeof(info) };
	int r = ops->step_begin(&s->memory);

	if (r)
		return r;
	r = mm_forward_step(&s->forward);
	if (!r)
		r = mm_gpu_errno(s->gpu.cuEventRecord(end, s->forward.stream));
	if (!r)
		return ops->step_end(&s->memory, s->forward.stream, &info);
	ops->step_abandon(&s->memory, s->forward.stream);
	return r;
}

int mm_stepper_step(struct mm_stepper *s, uint64_t *ret_ns, char *err)
{
	const CUevent end = s->ends[s->steps % 2], before = s->ends[(s->steps + 1) % 2];
	uint32_t tries = 0;
	float ms = 0;
	CUresult res;
	int r;

	do
		r = stepper_compute(s, end);
	while (r == -ECANCELED && ++tries < VOID_MAX);
	if (r)
		return stepper_fail(err, r, "a step failed", s->memory.ops->error(&s->memory));
	res = s->steps++ ? s->gpu.cuEventElapsedTime(&ms, before, end) : CUDA_SUCCESS;
	if (res)
		return fail_device(s, res, "the time of a step", err);
	*ret_ns = (uint64_t)((double)ms * (double)MM_NS_PER_MS);
	return 0;
}

void mm_stepper_close(struct mm_stepper *s)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(s->ends); i++)
		if (s->ends[i])
			s->gpu.cuEventDestroy(s->ends[i]);
	if (s->forward.gpu)
		mm_forward_done(&s->forward);
	mm_kv_arena_done(&s->kv);
	mm_weights_done(&s->weights);
	mm_memory_close(&s->memory);
	if (s->retained)
		s->gpu.cuDevicePrimaryCtxRelease(s->device);
	if (s->gpu.library)
		mm_gpu_close(&s->gpu);
	*s = (struct mm_stepper){ 0 };
}
