/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/stamps.h"

#include "libclient/support/clock.h"
#include "libclient/base/base.h"

#define ANCHOR_TRIES 16 /* the host may be interrupted between two readings of its clock */

CUresult mm_stamps_init(struct mm_stamps *s, const struct mm_gpu_api *gpu, bool device,
			double scale)
{
	CUresult r;

	*s = (struct mm_stamps){ .gpu = gpu, .device = device, .scale = scale };
	if (!device)
		return CUDA_SUCCESS;
	r = gpu->cuEventCreate(&s->begin, CU_EVENT_DEFAULT);
	if (!r)
		r = gpu->cuEventCreate(&s->end, CU_EVENT_DEFAULT);
	if (!r)
		r = gpu->cuEventCreate(&s->last, CU_EVENT_DEFAULT);
	return r;
}

void mm_stamps_done(struct mm_stamps *s)
{
	CUevent *const events[] = { &s->begin, &s->end, &s->last };

	for (size_t i = 0; i < MM_ARRAY_SIZE(events); i++)
		if (*events[i])
			s->gpu->cuEventDestroy(*events[i]);
	*s = (struct mm_stamps){ 0 };
}

double mm_stamps_at(const struct mm_stamps *s, uint64_t host_ns)
{
	return (double)(int64_t)(host_ns - s->start_ns) / s->scale / 1e9;
}

CUresult mm_stamps_start(struct mm_stamps *s, CUstream stream, uint64_t start_ns)
{
	uint64_t best_ns = UINT64_MAX;
	CUresult r = CUDA_SUCCESS;
	CUevent swap;

	s->start_ns = start_ns;
	for (uint32_t i = 0; s->device && i < ANCHOR_TRIES && !r; i++) {
		const uint64_t before_ns = mm_now_ns();
		uint64_t taken_ns;

		r = s->gpu->cuEventRecord(s->end, stream);
		if (!r)
			r = s->gpu->cuEventSynchronize(s->end);
		taken_ns = mm_now_ns() - before_ns;
		if (r || taken_ns >= best_ns)
			continue;
		best_ns = taken_ns;
		s->last_s = mm_stamps_at(s, before_ns + taken_ns / 2);
		swap = s->last;
		s->last = s->end;
		s->end = swap;
	}
	return r;
}

CUresult mm_stamps_begin(struct mm_stamps *s, CUstream stream)
{
	s->begin_ns = mm_now_ns();
	return s->device ? s->gpu->cuEventRecord(s->begin, stream) : CUDA_SUCCESS;
}

CUresult mm_stamps_end(struct mm_stamps *s, CUstream stream)
{
	return s->device ? s->gpu->cuEventRecord(s->end, stream) : CUDA_SUCCESS;
}

CUresult mm_stamps_read(struct mm_stamps *s, double *ret_begin_s, double *ret_end_s)
{
	const CUevent last = s->last;
	float gap_ms, step_ms;
	CUresult r;

	if (!s->device) {
		*ret_begin_s = mm_stamps_at(s, s->begin_ns);
		*ret_end_s = mm_stamps_at(s, mm_now_ns());
		return CUDA_SUCCESS;
	}
	r = s->gpu->cuEventElapsedTime(&gap_ms, s->last, s->begin);
	if (!r)
		r = s->gpu->cuEventElapsedTime(&step_ms, s->begin, s->end);
	if (r)
		return r;
	*ret_begin_s = s->last_s + (double)gap_ms / 1e3;
	*ret_end_s = *ret_begin_s + (double)step_ms / 1e3;
	s->last_s = *ret_end_s;
	s->last = s->end;
	s->end = last;
	return CUDA_SUCCESS;
}
