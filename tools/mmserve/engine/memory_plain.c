/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's memory without mmd: allocated once, it never grows or shrinks. See memory.h. */
#include "tools/mmserve/engine/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/engine/plain_model.h"

#define PLAIN_PAGE_BYTES 65536u

struct plain_memory {
	struct mm_plain_model model;
	CUdeviceptr kv_va;
	uint32_t kv_chunks;
	char error[256];
};

static void plain_close(struct mm_memory *m)
{
	struct plain_memory *p = m->state;

	mm_plain_model_close(m->gpu, &p->model);
	if (p->kv_va)
		m->gpu->cuMemFree(p->kv_va);
	free(p);
}

static int plain_tensor(struct mm_memory *m, const char *name, struct mm_tensor *ret_tensor)
{
	const struct plain_memory *p = m->state;

	return mm_plain_model_tensor(&p->model, name, ret_tensor);
}

static const void *plain_store(struct mm_memory *m, const char *name, uint64_t *ret_bytes)
{
	const struct plain_memory *p = m->state;

	return mm_plain_model_store(&p->model, name, ret_bytes);
}

static int plain_kv_open(struct mm_memory *m, const struct mm_kv_opts *opts, CUdeviceptr *ret_va)
{
	struct plain_memory *p = m->state;
	const uint64_t range = opts->chunk_bytes * opts->share_chunks, bytes = range * opts->ranges;
	const CUresult r = m->gpu->cuMemAlloc(&p->kv_va, bytes);

	if (r) {
		snprintf(p->error, sizeof(p->error), "%llu bytes of KV: %s",
			 (unsigned long long)bytes, mm_gpu_strerror(m->gpu, r));
		return mm_gpu_errno(r);
	}
	p->kv_chunks = opts->share_chunks;
	for (uint32_t i = 0; i < opts->ranges; i++)
		ret_va[i] = p->kv_va + i * range;
	return 0;
}

static int plain_kv_want(struct mm_memory *m, uint32_t chunks_total, uint32_t first)
{
	const struct plain_memory *p = m->state;

	(void)first;
	return chunks_total <= p->kv_chunks ? 0 : -ENOSPC;
}

static void plain_kv_usable(struct mm_memory *m, uint64_t *ret_bitmap, size_t words)
{
	const struct plain_memory *p = m->state;

	memset(ret_bitmap, 0, words * sizeof(*ret_bitmap));
	for (uint32_t i = 0; i < p->kv_chunks; i++)
		ret_bitmap[i / 64] |= UINT64_C(1) << i % 64;
}

static int plain_kv_release(struct mm_memory *m, uint32_t chunk)
{
	(void)m;
	(void)chunk;
	return -ENOTSUP;
}

static int plain_event_fd(struct mm_memory *m)
{
	(void)m;
	return -1;
}

static uint64_t plain_plan_held_ns(struct mm_memory *m)
{
	(void)m;
	return 0;
}

static int plain_next_event(struct mm_memory *m, struct mm_event *ret_event)
{
	(void)m;
	(void)ret_event;
	return -EAGAIN;
}

static void plain_hint(struct mm_memory *m, const struct mm_load_hint *hint)
{
	(void)m;
	(void)hint;
}

static int plain_step_begin(struct mm_memory *m)
{
	(void)m;
	return 0;
}

static int plain_step_end(struct mm_memory *m, CUstream stream, struct mm_step_info *ret_info)
{
	struct plain_memory *p = m->state;
	const CUresult r = m->gpu->cuStreamSynchronize(stream);

	*ret_info = (struct mm_step_info){ .size = sizeof(*ret_info) };
	if (r)
		snprintf(p->error, sizeof(p->error), "the step failed: %s",
			 mm_gpu_strerror(m->gpu, r));
	return r ? -EIO : 0;
}

static int plain_step_abandon(struct mm_memory *m, CUstream stream)
{
	struct mm_step_info info = { .size = sizeof(info) };

	return plain_step_end(m, stream, &info);
}

static int plain_layer(struct mm_memory *m, uint32_t layer, CUstream stream)
{
	(void)m;
	(void)layer;
	(void)stream;
	return 0;
}

static bool plain_step_wants_times(struct mm_memory *m)
{
	(void)m;
	return false;
}

static int plain_step_graph(struct mm_memory *m, bool timed)
{
	(void)m;
	(void)timed;
	return 0;
}

static const char *plain_error(struct mm_memory *m)
{
	const struct plain_memory *p = m->state;

	return p->error;
}

static const struct mm_memory_ops plain_ops = {
	.tensor = plain_tensor,
	.store = plain_store,
	.kv_open = plain_kv_open,
	.kv_want = plain_kv_want,
	.kv_usable = plain_kv_usable,
	.kv_release = plain_kv_release,
	.event_fd = plain_event_fd,
	.next_event = plain_next_event,
	.plan_held_ns = plain_plan_held_ns,
	.hint = plain_hint,
	.turn_want = plain_step_begin,
	.turn_yield = plain_step_begin,
	.step_begin = plain_step_begin,
	.step_end = plain_step_end,
	.step_abandon = plain_step_abandon,
	.layer_begin = plain_layer,
	.layer_end = plain_layer,
	.step_wants_times = plain_step_wants_times,
	.step_capture = plain_step_graph,
	.step_replay = plain_step_graph,
	.error = plain_error,
	.close = plain_close,
};

int mm_memory_plain_open(const struct mm_gpu_api *gpu, const char *dir,
			 const struct mm_model_opts *model_opts, struct mm_memory *ret_memory,
			 char *err)
{
	mm_cleanup(mm_memory_close) struct mm_memory m = { .gpu = gpu };
	struct plain_memory *p = calloc(1, sizeof(*p));
	int r;

	snprintf(err, MM_SERVE_ERROR_BYTES, "out of memory");
	if (!p)
		return -ENOMEM;
	m.ops = &plain_ops;
	m.state = p;
	m.page_bytes = PLAIN_PAGE_BYTES;
	m.kv_pages_max = UINT32_MAX;
	m.fixed = true;
	r = mm_plain_model_open(gpu, dir, model_opts, &p->model, err);
	if (r)
		return r;
	*ret_memory = m;
	m = (struct mm_memory){ 0 };
	return 0;
}

void mm_memory_close(struct mm_memory *m)
{
	if (m->ops)
		m->ops->close(m);
	*m = (struct mm_memory){ 0 };
}
