/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's memory when mmd lends it: each function calls libclient. See memory.h. */
#include "tools/mmserve/engine/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/engine/plain_model.h"

struct mmd_memory {
	struct mm_client *client;
	struct mm_model *model;
	struct mm_kv *kv;
	struct mm_swap *swap;
	struct mm_cold *cold;
	struct mm_gate_times *times; /* for graphs that are timed; NULL: none was captured yet */
	const char *dir;             /* the model's folder; borrowed */
	/* If mmd keeps the model on disk, its files are opened when their bytes are needed. */
	struct mm_plain_model files;
	bool files_open;
};

static void mmd_memory_close(struct mm_memory *m)
{
	struct mmd_memory *s = m->state;

	mm_client_close(s->client);
	if (s->files_open)
		mm_plain_model_close(NULL, &s->files);
	free(s);
}

static int mmd_memory_tensor(struct mm_memory *m, const char *name, struct mm_tensor *ret_tensor)
{
	const struct mmd_memory *s = m->state;

	return mm_model_tensor(s->model, name, ret_tensor);
}

static const void *mmd_memory_store(struct mm_memory *m, const char *name, uint64_t *ret_bytes)
{
	struct mmd_memory *s = m->state;
	const void *bytes = mm_model_store(s->model, name, ret_bytes);
	char err[MM_SERVE_ERROR_BYTES];

	if (bytes)
		return bytes;
	if (!s->files_open)
		s->files_open = mm_plain_model_open(NULL, s->dir, NULL, &s->files, err) == 0;
	return s->files_open ? mm_plain_model_store(&s->files, name, ret_bytes) : NULL;
}

static int mmd_memory_kv_open(struct mm_memory *m, const struct mm_kv_opts *opts,
			      CUdeviceptr *ret_va)
{
	struct mmd_memory *s = m->state;
	const int r = mm_kv_open(s->client, opts, &s->kv);

	for (uint32_t i = 0; i < opts->ranges && !r; i++)
		ret_va[i] = mm_kv_range_va(s->kv, i);
	return r;
}

static int mmd_memory_kv_want(struct mm_memory *m, uint32_t chunks_total, uint32_t first)
{
	const struct mmd_memory *s = m->state;

	return s->cold ? mm_kv_want_from(s->kv, chunks_total, first, 0)
		       : mm_kv_want(s->kv, chunks_total, 0);
}

static void mmd_memory_kv_usable(struct mm_memory *m, uint64_t *ret_bitmap, size_t words)
{
	const struct mmd_memory *s = m->state;

	mm_kv_usable(s->kv, ret_bitmap, words);
}

static int mmd_memory_kv_release(struct mm_memory *m, uint32_t chunk)
{
	const struct mmd_memory *s = m->state;

	return mm_kv_release(s->kv, chunk);
}

static uint32_t mmd_memory_kv_owed(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;

	return mm_kv_owed(s->kv, NULL);
}

static int mmd_memory_swap_open(struct mm_memory *m, uint64_t bytes)
{
	struct mmd_memory *s = m->state;

	return mm_swap_open(s->client, bytes, &s->swap);
}

static int mmd_memory_swap(struct mm_memory *m, bool in, const struct mm_swap_piece *pieces,
			   uint32_t n, uint64_t user_data)
{
	const struct mmd_memory *s = m->state;

	return in ? mm_swap_in(s->swap, pieces, n, user_data)
		  : mm_swap_out(s->swap, pieces, n, user_data);
}

static int mmd_memory_swap_next(struct mm_memory *m, struct mm_swap_done *ret_done)
{
	const struct mmd_memory *s = m->state;

	return mm_swap_next(s->swap, ret_done);
}

static int mmd_memory_cold_open(struct mm_memory *m, const struct mm_cold_opts *opts,
				uint32_t *ret_classes)
{
	struct mmd_memory *s = m->state;
	const int r = mm_cold_open(s->client, opts, &s->cold);

	if (!r)
		*ret_classes = mm_cold_classes(s->cold);
	return r;
}

static int mmd_memory_cold_window(struct mm_memory *m, uint32_t first_chunk, uint32_t chunks)
{
	const struct mmd_memory *s = m->state;

	return mm_cold_window(s->cold, first_chunk, chunks);
}

static int mmd_memory_cold_set(struct mm_memory *m, uint32_t entry, bool live)
{
	const struct mmd_memory *s = m->state;

	return mm_cold_set(s->cold, entry, live);
}

static uint64_t mmd_memory_cold_commit(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;

	return mm_cold_commit(s->cold);
}

static int mmd_memory_cold_state(struct mm_memory *m, struct mm_cold_state *ret_state)
{
	const struct mmd_memory *s = m->state;

	return mm_cold_state(s->cold, ret_state);
}

static int mmd_memory_event_fd(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;

	return mm_client_event_fd(s->client);
}

static int mmd_memory_next_event(struct mm_memory *m, struct mm_event *ret_event)
{
	const struct mmd_memory *s = m->state;

	return mm_client_next_event(s->client, ret_event);
}

static void mmd_memory_hint(struct mm_memory *m, const struct mm_load_hint *hint)
{
	const struct mmd_memory *s = m->state;

	mm_client_hint(s->client, hint);
}

static int mmd_memory_turn_want(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;

	return mm_turn_want(s->client, 0);
}

static int mmd_memory_turn_yield(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;

	return mm_turn_yield(s->client);
}

static uint64_t mmd_memory_plan_held_ns(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;
	struct mm_client_info info = { .size = sizeof(info) };

	return mm_client_info(s->client, &info) ? 0 : info.plan_held_ns;
}

static int mmd_memory_step_begin(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;

	return mm_step_begin(s->client);
}

static int mmd_memory_step_end(struct mm_memory *m, CUstream stream, struct mm_step_info *ret_info)
{
	const struct mmd_memory *s = m->state;

	return mm_step_end(s->client, stream, ret_info);
}

static int mmd_memory_step_abandon(struct mm_memory *m, CUstream stream)
{
	const struct mmd_memory *s = m->state;

	return mm_step_abandon(s->client, stream);
}

static int mmd_memory_layer_begin(struct mm_memory *m, uint32_t layer, CUstream stream)
{
	const struct mmd_memory *s = m->state;

	return mm_layer_begin(s->model, layer, stream);
}

static int mmd_memory_layer_end(struct mm_memory *m, uint32_t layer, CUstream stream)
{
	const struct mmd_memory *s = m->state;

	return mm_layer_end(s->model, layer, stream);
}

static bool mmd_memory_step_wants_times(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;

	return mm_step_wants_times(s->client);
}

static int mmd_memory_step_capture(struct mm_memory *m, bool timed)
{
	struct mmd_memory *s = m->state;
	int r = timed && !s->times ? mm_gate_times_open(s->model, &s->times) : 0;

	return r ? r : mm_step_capture(s->client, timed ? s->times : NULL);
}

static int mmd_memory_step_replay(struct mm_memory *m, bool timed)
{
	const struct mmd_memory *s = m->state;

	return mm_step_replay(s->client, timed ? s->times : NULL);
}

static const char *mmd_memory_error(struct mm_memory *m)
{
	const struct mmd_memory *s = m->state;

	return mm_client_error(s->client);
}

static const struct mm_memory_ops mmd_memory_ops = {
	.tensor = mmd_memory_tensor,
	.store = mmd_memory_store,
	.kv_open = mmd_memory_kv_open,
	.kv_want = mmd_memory_kv_want,
	.kv_usable = mmd_memory_kv_usable,
	.kv_release = mmd_memory_kv_release,
	.kv_owed = mmd_memory_kv_owed,
	.swap_open = mmd_memory_swap_open,
	.swap = mmd_memory_swap,
	.swap_next = mmd_memory_swap_next,
	.cold_open = mmd_memory_cold_open,
	.cold_window = mmd_memory_cold_window,
	.cold_set = mmd_memory_cold_set,
	.cold_commit = mmd_memory_cold_commit,
	.cold_state = mmd_memory_cold_state,
	.event_fd = mmd_memory_event_fd,
	.next_event = mmd_memory_next_event,
	.plan_held_ns = mmd_memory_plan_held_ns,
	.hint = mmd_memory_hint,
	.turn_want = mmd_memory_turn_want,
	.turn_yield = mmd_memory_turn_yield,
	.step_begin = mmd_memory_step_begin,
	.step_end = mmd_memory_step_end,
	.step_abandon = mmd_memory_step_abandon,
	.layer_begin = mmd_memory_layer_begin,
	.layer_end = mmd_memory_layer_end,
	.step_wants_times = mmd_memory_step_wants_times,
	.step_capture = mmd_memory_step_capture,
	.step_replay = mmd_memory_step_replay,
	.error = mmd_memory_error,
	.close = mmd_memory_close,
};

/*
 * Return: the most pages of the pool that KV can have: all but those that the model never lends,
 * which are its resident group and a slot for the largest layer. How many layers are away, and what
 * other tenants hold, may change.
 */
static uint64_t kv_pages_most(const struct mm_client_info *info, const struct mm_model_info *model)
{
	uint64_t stays = mm_div_up(model->resident_bytes, info->page_bytes) +
			 mm_div_up(model->layer_bytes, info->page_bytes);

	return info->pool_pages - MM_MIN(stays, info->pool_pages);
}

static int mmd_memory_model_load(struct mm_memory *m, const char *dir,
				 const struct mm_model_opts *opts, char *err)
{
	struct mmd_memory *s = m->state;
	struct mm_client_info info = { .size = sizeof(info) };
	int r = mm_model_load(s->client, dir, opts, &s->model);

	if (!r)
		r = mm_client_info(s->client, &info);
	if (r) {
		const char *why = mm_client_error(s->client);

		snprintf(err, MM_SERVE_ERROR_BYTES, "%.2000s: %.2000s", dir,
			 *why ? why : strerror(-r));
		return r;
	}
	m->gpu = mm_client_gpu(s->client);
	m->page_bytes = info.page_bytes;
	m->model.size = sizeof(m->model);
	mm_model_info(s->model, &m->model);
	m->kv_pages_max = MM_MIN(kv_pages_most(&info, &m->model), MM_MAP_ENTRIES - MM_MAP_KV_BASE);
	m->swaps = info.features & MM_FEAT_KV_SWAP;
	m->fixed = info.features & MM_FEAT_KV_FIXED;
	return 0;
}

/* True if nobody let the engine in; else mmd did, and refused, or the driver failed. */
static bool mmd_is_unreachable(int error)
{
	switch (-error) {
	case ENOENT:
	case ENOTDIR:
	case ENOTSOCK:
	case EPROTOTYPE:
	case ENAMETOOLONG:
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
	case EACCES:
	case EPERM:
	case EAGAIN:
	case ETIMEDOUT:
		return true;
	default:
		return false;
	}
}

int mm_memory_mmd_open(const struct mm_client_opts *opts, const char *dir,
		       const struct mm_model_opts *model_opts, struct mm_memory *ret_memory,
		       bool *ret_reachable, char *err)
{
	mm_cleanup(mm_memory_close) struct mm_memory m = { 0 };
	struct mmd_memory *s = calloc(1, sizeof(*s));
	int r;

	*ret_reachable = true;
	snprintf(err, MM_SERVE_ERROR_BYTES, "out of memory");
	if (!s)
		return -ENOMEM;
	m.ops = &mmd_memory_ops;
	m.state = s;
	s->dir = dir;
	r = mm_client_open(opts, &s->client, err, MM_SERVE_ERROR_BYTES);
	if (r) {
		*ret_reachable = !mmd_is_unreachable(r);
		return r;
	}
	r = mmd_memory_model_load(&m, dir, model_opts, err);
	if (r)
		return r;
	*ret_memory = m;
	m = (struct mm_memory){ 0 };
	return 0;
}

int mm_memory_mmd_take_turns(struct mm_memory *m, const struct mm_turn_opts *turns, char *err)
{
	const struct mmd_memory *s = m->state;
	int r = mm_turn_join(s->client, turns);

	if (r)
		snprintf(err, MM_SERVE_ERROR_BYTES, "turns: %.2000s", mm_client_error(s->client));
	return r;
}
