/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/lender.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/mmserve/engine/engine.h"

int mm_lender_fail(struct mm_engine *e, int error, const char *what)
{
	const char *why = e->memory->ops->error(e->memory);

	snprintf(e->err, MM_SERVE_ERROR_BYTES, "%s: %.1000s", what,
		 why && *why ? why : strerror(-error));
	return error;
}

int mm_lender_fail_gpu(struct mm_engine *e, CUresult r, const char *what)
{
	snprintf(e->err, MM_SERVE_ERROR_BYTES, "%s: %s", what, mm_gpu_strerror(e->memory->gpu, r));
	return mm_gpu_errno(r);
}

static int kvman_want(void *context, uint32_t chunks_total)
{
	struct mm_engine *e = context;
	const int r = mm_cooler_want(e, chunks_total);

	return r && r != -EAGAIN && r != -ENOSPC && r != -EDQUOT
		       ? mm_lender_fail(e, r, "cannot ask for KV memory")
		       : r;
}

static void kvman_usable(void *context, uint64_t *ret_bitmap, size_t words)
{
	const struct mm_engine *e = context;

	e->memory->ops->kv_usable(e->memory, ret_bitmap, words);
}

static int kvman_release(void *context, uint32_t chunk)
{
	struct mm_engine *e = context;
	const int r = e->memory->ops->kv_release(e->memory, chunk);

	return r ? mm_lender_fail(e, r, "cannot give a KV chunk back") : 0;
}

static uint32_t kvman_owed(void *context)
{
	struct mm_engine *e = context;

	return e->memory->ops->kv_owed ? mm_cooler_owed(e) : 0;
}

static int kvman_move(void *context, const struct mm_sched_move *moves, uint32_t n)
{
	struct mm_engine *e = context;
	int r = 0;

	for (uint32_t i = 0; i < n && !r; i++)
		r = mm_forward_move_block(&e->forward, moves[i].from, moves[i].to);
	return r ? mm_lender_fail(e, r, "cannot move KV blocks") : 0;
}

static int kvman_mark(void *context)
{
	struct mm_engine *e = context;
	const CUresult r = e->memory->gpu->cuEventRecord(e->retired_done, e->forward.stream);

	return r ? mm_lender_fail_gpu(e, r, "cannot move KV blocks") : 0;
}

static int kvman_is_marked(void *context)
{
	struct mm_engine *e = context;
	const CUresult r = e->memory->gpu->cuEventQuery(e->retired_done);

	if (r == CUDA_ERROR_NOT_READY)
		return -EAGAIN;
	return r ? mm_lender_fail_gpu(e, r, "cannot move KV blocks") : 0;
}

static void kvman_report_load(void *context, const struct mm_kvman_load *load)
{
	const struct mm_engine *e = context;
	const struct mm_load_hint hint = { .size = sizeof(hint),
					   .kv_chunks_used = load->chunks_used + e->cooler.held,
					   .waiting = load->waiting,
					   .running = load->running,
					   .kv_chunks_queued = load->chunks_queued,
					   .requests_done = e->stats.requests_done,
					   .requests_late = e->stats.requests_late };

	e->memory->ops->hint(e->memory, &hint);
}

static int kvman_cool(void *context, const struct mm_sched_swap *swaps, uint32_t n)
{
	return mm_cooler_begin(context, swaps, n);
}

const struct mm_kvman_ops mm_lender_ops = {
	.want = kvman_want,
	.usable = kvman_usable,
	.owed = kvman_owed,
	.release = kvman_release,
	.move = kvman_move,
	.mark = kvman_mark,
	.marked = kvman_is_marked,
	.load = kvman_report_load,
	.cool = kvman_cool,
};
