/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/bare_scrub.h"

#include <errno.h>
#include <stdio.h>

#include "libclient/base/base.h"
#include "libclient/support/clock.h"

static int scrub_result(struct mm_bare_scrub *s, const char *call, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return 0;
	snprintf(s->err, sizeof(s->err), "%s: error %d of the driver", call, (int)result);
	return -EIO;
}

static int context_take(struct mm_bare_scrub *s)
{
	CUcontext context = NULL;
	int r = scrub_result(s, "cuDevicePrimaryCtxRetain",
			     s->gpu.cuDevicePrimaryCtxRetain(&context, 0));

	return r ? r : scrub_result(s, "cuCtxSetCurrent", s->gpu.cuCtxSetCurrent(context));
}

static int page_make(struct mm_bare_scrub *s, CUdeviceptr va)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle;
	int r = scrub_result(s, "cuMemCreate",
			     s->gpu.cuMemCreate(&handle, s->page_bytes, &prop, 0));

	if (!r)
		r = scrub_result(s, "cuMemMap", s->gpu.cuMemMap(va, s->page_bytes, 0, handle, 0));
	return r;
}

int mm_bare_scrub_init(struct mm_bare_scrub *s, uint64_t pages, uint64_t page_bytes)
{
	const CUmemAccessDesc desc = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	int r;

	*s = (struct mm_bare_scrub){ .pages = pages, .page_bytes = page_bytes };
	r = mm_gpu_open("software", &s->gpu, s->err, sizeof(s->err));
	if (!r)
		r = mm_gpu_init(&s->gpu, s->err, sizeof(s->err));
	if (!r)
		r = context_take(s);
	if (!r)
		r = scrub_result(
			s, "cuMemAddressReserve",
			s->gpu.cuMemAddressReserve(&s->va, pages * page_bytes, page_bytes, 0, 0));
	for (uint64_t i = 0; !r && i < pages; i++)
		r = page_make(s, s->va + i * page_bytes);
	if (!r)
		r = scrub_result(s, "cuMemSetAccess",
				 s->gpu.cuMemSetAccess(s->va, pages * page_bytes, &desc, 1));
	return r;
}

int mm_bare_scrub_run(struct mm_bare_scrub *s, double *ret_ms)
{
	const uint64_t began_ns = mm_now_ns();
	int r = scrub_result(s, "cuMemsetD32Async",
			     s->gpu.cuMemsetD32Async(s->va, 0, s->pages * s->page_bytes / 4, NULL));

	if (!r)
		r = scrub_result(s, "cuStreamSynchronize", s->gpu.cuStreamSynchronize(NULL));
	*ret_ms = (double)(mm_now_ns() - began_ns) / 1e6;
	return r;
}
