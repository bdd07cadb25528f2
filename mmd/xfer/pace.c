/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/pace.h"

#include <dlfcn.h>

#define LOOK_NS 12500u /* mean delay: half of the time between two looks */

static void *pace_symbol(const struct mm_gpu_api *gpu, const char *name)
{
	return gpu->library ? dlsym(gpu->library, name) : NULL;
}

void mm_xpace_open(struct mm_xpace *pace, const struct mm_gpu_api *gpu, int device)
{
	struct mm_softgpu_stats stats = { 0 };
	mm_softgpu_stats_fn *stats_of;

	*pace = (struct mm_xpace){ 0 };
	*(void **)&stats_of = pace_symbol(gpu, MM_SOFTGPU_STATS_SYMBOL);
	if (!stats_of || stats_of(device, &stats, sizeof(stats)) < 0 || !stats.timed)
		return;
	*(void **)&pace->written = pace_symbol(gpu, MM_SOFTGPU_WRITTEN_SYMBOL);
	*(void **)&pace->wrote = pace_symbol(gpu, MM_SOFTGPU_WROTE_SYMBOL);
	*(void **)&pace->act_at = pace_symbol(gpu, MM_SOFTGPU_ACT_SYMBOL);
	*(void **)&pace->event_ns = pace_symbol(gpu, MM_SOFTGPU_EVENT_SYMBOL);
	pace->device = device;
}

uint64_t mm_xpace_saw(const struct mm_xpace *pace, uint64_t inode, uint64_t offset, uint32_t value)
{
	uint64_t ns;

	if (!pace->written || pace->written(pace->device, inode, offset, value, &ns) < 0)
		return 0;
	return ns + LOOK_NS;
}

uint64_t mm_xpace_happened(const struct mm_xpace *pace, CUevent event)
{
	uint64_t ns;

	if (!pace->event_ns || pace->event_ns(event, &ns) < 0)
		return 0;
	return ns + LOOK_NS;
}

void mm_xpace_act(const struct mm_xpace *pace, uint64_t ns)
{
	if (pace->act_at)
		pace->act_at(ns);
}

void mm_xpace_write(const struct mm_xpace *pace, uint64_t inode, uint64_t offset, uint32_t value,
		    uint64_t ns)
{
	if (pace->wrote)
		(void)pace->wrote(pace->device, inode, offset, value, ns);
}
