/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/swap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mmd/common/log.h"

enum part_state { PART_NEW, PART_REGISTERED, PART_REFUSED };

static void swap_free(struct mm_xswap *swap)
{
	mm_region_done(&swap->region);
	free(swap->part);
	free(swap);
}

int mm_xswap_add(struct mm_xswap **list, struct mm_xlink *link, uint64_t tenant, uint64_t bytes,
		 int fd)
{
	struct mm_xswap *swap = mm_xswap_find(*list, tenant) ? NULL : calloc(1, sizeof(*swap));
	int r;

	if (!swap) {
		close(fd);
		return mm_xswap_find(*list, tenant) ? -EEXIST : -ENOMEM;
	}
	*swap = (struct mm_xswap){
		.tenant = tenant, .bytes = bytes, .region = MM_REGION_NULL, .link = link
	};
	r = mm_region_open(fd, bytes, true, &swap->region);
	if (r == 0 && mm_fault("xfer.swap"))
		r = -ENOMEM;
	if (r == 0) {
		swap->part = calloc(mm_div_up(bytes, MM_SWAP_PART_BYTES), sizeof(*swap->part));
		r = swap->part ? 0 : -ENOMEM;
	}
	if (r < 0) {
		swap_free(swap);
		return r;
	}
	mm_xlink_join(link, &swap->flow, MM_XLINK_WEIGHT);
	swap->next = *list;
	*list = swap;
	return 0;
}

struct mm_xswap *mm_xswap_find(struct mm_xswap *list, uint64_t tenant)
{
	while (list && list->tenant != tenant)
		list = list->next;
	return list;
}

static void *part_base(const struct mm_xswap *swap, uint64_t part)
{
	return (char *)swap->region.base + part * MM_SWAP_PART_BYTES;
}

void mm_xswap_drop(struct mm_xswap **list, struct mm_xswap *swap)
{
	struct mm_xdev *dev;

	if (!swap)
		return;
	dev = swap->link->pool->dev;
	while (*list != swap)
		list = &(*list)->next;
	*list = swap->next;
	mm_xlink_leave(swap->link, &swap->flow);
	for (uint64_t i = 0; i < mm_div_up(swap->bytes, MM_SWAP_PART_BYTES); i++)
		if (swap->part[i] == PART_REGISTERED)
			(void)mm_xdev_result(dev, "cuMemHostUnregister",
					     dev->gpu.cuMemHostUnregister(part_base(swap, i)));
	swap_free(swap);
}

static void part_register(struct mm_xswap *swap, uint64_t part)
{
	struct mm_xdev *dev = swap->link->pool->dev;
	uint64_t bytes = MM_MIN(swap->bytes - part * MM_SWAP_PART_BYTES, MM_SWAP_PART_BYTES);
	CUresult result =
		mm_fault("xfer.swap_register")
			? CUDA_ERROR_OUT_OF_MEMORY
			: dev->gpu.cuMemHostRegister(part_base(swap, part),
						     mm_round_up(bytes, MM_ABI_PAGE_BYTES),
						     CU_MEMHOSTREGISTER_PORTABLE);

	swap->part[part] = result == CUDA_SUCCESS ? PART_REGISTERED : PART_REFUSED;
	if (mm_xdev_optional(dev, "cuMemHostRegister", result) < 0)
		mm_log(MM_LOG_WARN, "xfer.swap_unregistered",
		       "tenant=%" PRIu64 " part=%" PRIu64 " copies=slow", swap->tenant, part);
}

void *mm_xswap_at(struct mm_xswap *swap, uint64_t offset, uint64_t *ret_bytes)
{
	uint64_t part = offset / MM_SWAP_PART_BYTES;

	if (swap->part[part] == PART_NEW)
		part_register(swap, part);
	*ret_bytes = MM_MIN(swap->bytes, (part + 1) * MM_SWAP_PART_BYTES) - offset;
	return (char *)swap->region.base + offset;
}

int mm_xswap_copy(struct mm_xswap *swap, struct mm_xtransfer *transfer, uint64_t swap_offset)
{
	uint64_t in_part;

	if (transfer->bytes == 0 || swap_offset > swap->bytes ||
	    transfer->bytes > swap->bytes - swap_offset ||
	    transfer->bytes > MM_SWAP_PART_BYTES - swap_offset % MM_SWAP_PART_BYTES)
		return -EINVAL;
	transfer->host = mm_xswap_at(swap, swap_offset, &in_part);
	mm_xlink_start(swap->link, &swap->flow, transfer);
	return 0;
}
