/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points that describe the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "libclient/base/base.h"

#define PCI_BYTES 16
#define PCI_SLOT \
	0x1f /* devices are on a bus of their own, in a slot that a usual machine does not use */

static CUresult check_device(CUdevice device)
{
	return device >= 0 && (unsigned int)device < sg_device_count() ? CUDA_SUCCESS
								       : CUDA_ERROR_INVALID_DEVICE;
}

static const struct sg_device_info *device_info_of(CUdevice device)
{
	return sg_device_info((unsigned int)device);
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
	SG_ENTER();
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)sg_device_count();
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
	SG_ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(check_device(ordinal));
	*device = ordinal;
	return CUDA_SUCCESS;
}

static CUresult attribute_put_text(char *ret, int bytes, const char *text)
{
	if (!ret || bytes <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(ret, (size_t)bytes, "%s", text);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice device)
{
	SG_ENTER();
	SG_TRY(check_device(device));
	return attribute_put_text(name, len, device_info_of(device)->name);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	SG_ENTER();
	SG_TRY(check_device(device));
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	*uuid = device_info_of(device)->uuid;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	SG_ENTER();
	SG_TRY(check_device(device));
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = device_info_of(device)->capacity_bytes;
	return CUDA_SUCCESS;
}

static void pci_bus_id(CUdevice device, char text[PCI_BYTES])
{
	snprintf(text, PCI_BYTES, "0000:%02X:%02X.0", device_info_of(device)->number & 0xff,
		 PCI_SLOT);
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *id, int len, CUdevice device)
{
	char text[PCI_BYTES];

	SG_ENTER();
	SG_TRY(check_device(device));
	pci_bus_id(device, text);
	return attribute_put_text(id, len, text);
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	char text[PCI_BYTES];

	SG_ENTER();
	for (int i = 0; device && id && i < (int)sg_device_count(); i++) {
		pci_bus_id(i, text);
		if (strcasecmp(id, text) == 0) {
			*device = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	SG_ENTER();
	SG_TRY(check_device(device));
	SG_TRY(check_device(peer));
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	*can = 0; /* no device can access another, nor itself, as the driver has it */
	return CUDA_SUCCESS;
}

/*
 * Limits are those of compute capability 9.0. An attribute that is not listed is 0: the device does
 * not have it.
 */
static const struct {
	CUdevice_attribute attribute;
	int value;
} attributes[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, UINT16_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, UINT16_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10 },
	{ CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10 },
	{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
	{ CU_DEVICE_ATTRIBUTE_MAX_PITCH, SG_PITCH_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 64 << 10 },
	{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000 },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512 },
	{ CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1 },
	{ CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
	{ CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, PCI_SLOT },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000 },
	{ CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64 },
	{ CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20 },
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32 },
	{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0 },
	{ CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1 },
	{ CU_DEVICE_ATTRIBUTE_NUMA_ID, -1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0 },
};

/* MM_SOFTGPU_ATTRIBUTES, such as "122=0,113=0", replaces attributes of the device. */
static void attribute_from_environment(int attribute, int *ret_value)
{
	const char *at = secure_getenv("MM_SOFTGPU_ATTRIBUTES");

	while (at && *at) {
		int which, value;

		if (sscanf(at, "%d=%d", &which, &value) == 2 && which == attribute)
			*ret_value = value;
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
}

#define ATTRIBUTE_END 148 /* one past the last attribute that driver 13.0 knows */

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	SG_ENTER();
	SG_TRY(check_device(device));
	if (!value || (int)attribute <= 0 || (int)attribute >= ATTRIBUTE_END)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		*value = (int)device_info_of(device)->number;
	for (size_t i = 0; i < MM_ARRAY_SIZE(attributes); i++)
		if (attributes[i].attribute == attribute)
			*value = attributes[i].value;
	attribute_from_environment((int)attribute, value);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	SG_TRY(cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
	return cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}
