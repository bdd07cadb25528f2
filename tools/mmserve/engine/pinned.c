/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/pinned.h"

#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"

#define PAGE_BYTES 4096u

static CUresult alloc_registered(const struct mm_gpu_api *gpu, uint64_t bytes, void **ret)
{
	void *at = aligned_alloc(PAGE_BYTES, bytes);
	CUresult r = at ? gpu->cuMemHostRegister(at, bytes, 0) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r)
		free(at);
	else
		*ret = at;
	return r;
}

CUresult mm_pinned_alloc(const struct mm_gpu_api *gpu, uint64_t bytes, struct mm_pinned *ret)
{
	struct mm_pinned p = { .registered = !gpu->cuMemHostAlloc || !gpu->cuMemFreeHost };
	CUresult r;

	bytes = mm_round_up(bytes, PAGE_BYTES);
	r = p.registered ? alloc_registered(gpu, bytes, &p.at)
			 : gpu->cuMemHostAlloc(&p.at, bytes, 0);
	if (r)
		return r;
	memset(p.at, 0, bytes);
	*ret = p;
	return CUDA_SUCCESS;
}

void mm_pinned_free(const struct mm_gpu_api *gpu, struct mm_pinned *p)
{
	if (!p->at)
		return;
	if (p->registered) {
		gpu->cuMemHostUnregister(p->at);
		free(p->at);
	} else {
		gpu->cuMemFreeHost(p->at);
	}
	*p = (struct mm_pinned){ 0 };
}
