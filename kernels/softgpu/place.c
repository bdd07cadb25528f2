/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softgpu/place.h"

#include "kernels/softgpu/host.h"
#include "kernels/softgpu/vm.h"

enum sg_place sg_place_of(uint64_t va, size_t bytes)
{
	struct sg_host_info host = sg_host_describe(va);
	struct sg_vm_info info;

	if (host.known && bytes <= host.end - va)
		return host.flags & CU_MEMHOSTREGISTER_READ_ONLY && !host.allocated
			       ? SG_PINNED_READ_ONLY
			       : SG_PINNED;
	info = sg_vm_describe(va);
	return info.reserved && bytes <= info.range_end - va ? SG_DEVICE : SG_PAGEABLE;
}
