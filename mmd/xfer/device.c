/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/device.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/driver/nvml.h"
#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mmd/common/host.h"
#include "mmd/common/log.h"

int mm_xdev_result(const struct mm_xdev *dev, const char *what, CUresult result)
{
	int r = mm_gpu_errno(result);

	if (!r)
		return 0;
	/*
	 * The error is sticky: every later call fails too, and teardown in a broken context may
	 * hang.
	 */
	if (r == -EFAULT || r == -EIO) {
		mm_log(MM_LOG_ERROR, "xfer.device_lost", "call=%s result=%s", what,
		       mm_gpu_strerror(&dev->gpu, result));
		_exit(1);
	}
	mm_log(MM_LOG_WARN, "xfer.driver", "call=%s result=%s", what,
	       mm_gpu_strerror(&dev->gpu, result));
	return r;
}

int mm_xdev_optional(const struct mm_xdev *dev, const char *what, CUresult result)
{
	CUresult state;

	if (result == CUDA_SUCCESS)
		return 0;
	state = dev->gpu.cuStreamQuery(dev->copy);
	if (state != CUDA_ERROR_NOT_READY)
		(void)mm_xdev_result(dev, what, state);
	mm_log(MM_LOG_WARN, "xfer.driver", "call=%s result=%s", what,
	       mm_gpu_strerror(&dev->gpu, result));
	return mm_gpu_errno(result);
}

void mm_xdev_settle(const struct mm_xdev *dev, CUstream stream)
{
	CUresult result = dev->gpu.cuStreamSynchronize(stream);

	if (mm_xdev_result(dev, "cuStreamSynchronize", result) == 0)
		return;
	mm_log(MM_LOG_ERROR, "xfer.device_lost", "call=cuStreamSynchronize result=%s",
	       mm_gpu_strerror(&dev->gpu, result));
	_exit(1);
}

bool mm_xdev_has_happened(const struct mm_xdev *dev, CUevent event, CUstream stream)
{
	CUresult result = dev->gpu.cuEventQuery(event);

	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (mm_xdev_result(dev, "cuEventQuery", result) < 0)
		mm_xdev_settle(dev, stream);
	return true;
}

/* For failures while opening: the sentence goes to core, not to the log. */
static int xdev_open_check(const struct mm_xdev *dev, const char *what, CUresult result, char *err,
			   size_t err_bytes)
{
	if (result == CUDA_SUCCESS)
		return 0;
	snprintf(err, err_bytes, "%s: %s", what, mm_gpu_strerror(&dev->gpu, result));
	return mm_gpu_errno(result);
}

static int xdev_attribute(const struct mm_xdev *dev, CUdevice_attribute which)
{
	int value = 0;

	if (dev->gpu.cuDeviceGetAttribute(&value, which, dev->device) != CUDA_SUCCESS)
		return 0;
	return value;
}

/*
 * Drivers from 12.2 on report the node; for older ones it is that of the PCI bus. A node without
 * memory is not used.
 */
static int xdev_host_node(const struct mm_xdev *dev)
{
	char bus_id[32] = "";
	int node = -1;

	if (dev->gpu.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, dev->device) !=
	    CUDA_SUCCESS)
		node = -1;
	if (node < 0 && dev->gpu.cuDeviceGetPCIBusId &&
	    dev->gpu.cuDeviceGetPCIBusId(bus_id, (int)sizeof(bus_id) - 1, dev->device) ==
		    CUDA_SUCCESS)
		node = mm_host_pci_node(bus_id);
	return mm_host_node_usable(node) ? node : -1;
}

static int xdev_identify(struct mm_xdev *dev, int ordinal, char *err, size_t err_bytes)
{
	size_t total = 0;
	int count = 0;
	int r;

	r = mm_gpu_init(&dev->gpu, err, err_bytes);
	if (r < 0)
		return r;
	r = xdev_open_check(dev, "cuDeviceGetCount", dev->gpu.cuDeviceGetCount(&count), err,
			    err_bytes);
	if (r < 0)
		return r;
	if (ordinal < 0 || ordinal >= count) {
		snprintf(err, err_bytes, "no device %d: the driver shows %d", ordinal, count);
		return -ENODEV;
	}
	r = xdev_open_check(dev, "cuDeviceGet", dev->gpu.cuDeviceGet(&dev->device, ordinal), err,
			    err_bytes);
	if (r < 0)
		return r;
	r = xdev_open_check(dev, "cuDeviceGetUuid",
			    dev->gpu.cuDeviceGetUuid(&dev->uuid, dev->device), err, err_bytes);
	if (r < 0)
		return r;
	(void)dev->gpu.cuDeviceGetName(dev->name, (int)sizeof(dev->name), dev->device);
	r = xdev_open_check(dev, "cuDeviceTotalMem", dev->gpu.cuDeviceTotalMem(&total, dev->device),
			    err, err_bytes);
	dev->total_bytes = total;
	dev->numa_node = xdev_host_node(dev);
	return r;
}

/* Checks the attributes without which mmd cannot manage a device. */
static int xdev_require_attributes(const struct mm_xdev *dev, char *err, size_t err_bytes)
{
	static const struct {
		CUdevice_attribute xdev_attribute;
		const char *lacks;
	} required[] = {
		{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "has no unified addressing" },
		{ CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
		  "has no virtual memory management (cuMemCreate, cuMemMap)" },
		{ CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		  "cannot export memory as file descriptors" },
		{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
		  "has no 64-bit stream memory operations, which the gates of layers need" },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(required); i++) {
		if (xdev_attribute(dev, required[i].xdev_attribute))
			continue;
		snprintf(err, err_bytes, "device %s %s (attribute %d is 0): mmd cannot manage it",
			 dev->name, required[i].lacks, (int)required[i].xdev_attribute);
		return -EOPNOTSUPP;
	}
	return 0;
}

/* Reads the attributes that are of use, but not needed. */
static void xdev_read_attributes(struct mm_xdev *dev)
{
	static const struct {
		CUdevice_attribute xdev_attribute;
		uint32_t fact;
	} known[] = {
		{ CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, MM_XFACT_HOST_READ_ONLY },
		{ CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, MM_XFACT_GPUDIRECT },
		{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, MM_XFACT_WAIT_NOR },
		{ CU_DEVICE_ATTRIBUTE_MPS_ENABLED, MM_XFACT_MPS },
		{ CU_DEVICE_ATTRIBUTE_ECC_ENABLED, MM_XFACT_ECC },
		{ CU_DEVICE_ATTRIBUTE_INTEGRATED, MM_XFACT_INTEGRATED },
	};
	int version = 0;

	for (size_t i = 0; i < MM_ARRAY_SIZE(known); i++) {
		if (xdev_attribute(dev, known[i].xdev_attribute))
			dev->facts.attributes |= known[i].fact;
	}
	(void)dev->gpu.cuDriverGetVersion(&version);
	dev->facts.driver_version = (uint32_t)MM_MAX(version, 0);
	dev->facts.capability =
		(uint32_t)(xdev_attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
			   xdev_attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
#ifndef MM_REGIONS_FIRST /* as in mmd/shell/handshake.c */
	dev->facts.attributes |= MM_XFACT_COLD;
#endif
	dev->pitch_max_bytes =
		(uint64_t)MM_MAX(xdev_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_PITCH), 0);
	dev->host_read_only = dev->facts.attributes & MM_XFACT_HOST_READ_ONLY;
}

static const char *fact_text(const struct mm_xdev *dev, uint32_t fact)
{
	return dev->facts.attributes & fact ? "yes" : "no";
}

static void xdev_log_facts(const struct mm_xdev *dev)
{
	const uint32_t version = dev->facts.driver_version;

	mm_log(MM_LOG_INFO, "xfer.device",
	       "name=\"%s\" cuda=%u.%u capability=%u.%u bytes=%" PRIu64
	       " granularity=%zu host_read_only=%s gpudirect=%s wait_nor=%s mps=%s ecc=%s "
	       "integrated=%s",
	       dev->name, version / 1000, version % 1000 / 10, dev->facts.capability / 10,
	       dev->facts.capability % 10, dev->total_bytes, dev->granularity_bytes,
	       fact_text(dev, MM_XFACT_HOST_READ_ONLY), fact_text(dev, MM_XFACT_GPUDIRECT),
	       fact_text(dev, MM_XFACT_WAIT_NOR), fact_text(dev, MM_XFACT_MPS),
	       fact_text(dev, MM_XFACT_ECC), fact_text(dev, MM_XFACT_INTEGRATED));
}

/* Sets the properties of every page; the granularity must be queried with exactly these. */
static int xdev_choose_properties(struct mm_xdev *dev, char *err, size_t err_bytes)
{
	int r = xdev_require_attributes(dev, err, err_bytes);

	if (r < 0)
		return r;
	xdev_read_attributes(dev);
	dev->prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->device },
	};
	/*
	 * Network cards need this property later; it can be set at creation only, and costs
	 * nothing.
	 */
	if (dev->facts.attributes & MM_XFACT_GPUDIRECT)
		dev->prop.allocFlags.gpuDirectRDMACapable = 1;
	r = xdev_open_check(
		dev, "cuMemGetAllocationGranularity",
		dev->gpu.cuMemGetAllocationGranularity(&dev->granularity_bytes, &dev->prop,
						       CU_MEM_ALLOC_GRANULARITY_MINIMUM),
		err, err_bytes);
	if (r == 0)
		xdev_log_facts(dev);
	return r;
}

static int xdev_make_context(struct mm_xdev *dev, char *err, size_t err_bytes)
{
	CUstream *const streams[] = { &dev->copy, &dev->copy_out, &dev->scrub };
	int r;

	r = xdev_open_check(dev, "cuDevicePrimaryCtxRetain",
			    dev->gpu.cuDevicePrimaryCtxRetain(&dev->ctx, dev->device), err,
			    err_bytes);
	if (r < 0)
		return r;
	r = xdev_open_check(dev, "cuCtxSetCurrent", dev->gpu.cuCtxSetCurrent(dev->ctx), err,
			    err_bytes);
	if (r < 0)
		return r;
	for (size_t i = 0; i < MM_ARRAY_SIZE(streams); i++) {
		r = xdev_open_check(dev, "cuStreamCreate",
				    dev->gpu.cuStreamCreate(streams[i], CU_STREAM_NON_BLOCKING),
				    err, err_bytes);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Makes the device of UUID @word the only visible one. A MIG instance must be so, before the driver
 * starts. Where NVML is available, @word may be the beginning of the UUID.
 */
static int xdev_make_visible(const struct mm_xdev *dev, const char *word, char *err,
			     size_t err_bytes)
{
	const char *before = getenv("CUDA_VISIBLE_DEVICES");
	struct mm_nvml_facts facts = { .uuid = "" };
	struct mm_nvml nvml = { 0 };
	int r = 0;

	if (mm_nvml_open(&dev->gpu, &nvml, NULL, 0) == 0)
		r = mm_nvml_resolve(&nvml, word, &facts);
	mm_nvml_close(&nvml);
	if (r == -EIO || r == -ENOSYS) /* not an error: as if there were no NVML */
		r = 0;
	if (r == -ENOTUNIQ)
		snprintf(err, err_bytes, "several devices begin with %s: say more of the UUID",
			 word);
	else if (r < 0)
		snprintf(err, err_bytes, "no device %s here; mmctl devices lists them", word);
	else if (facts.mig)
		snprintf(err, err_bytes,
			 "%s is in MIG mode: name one of its instances; mmctl devices lists them",
			 word);
	if (r < 0 || facts.mig)
		return -ENODEV;
	if (before && strcmp(before, *facts.uuid ? facts.uuid : word) != 0)
		mm_log(MM_LOG_INFO, "xfer.visible", "uuid=%s instead_of=\"%s\"",
		       *facts.uuid ? facts.uuid : word, before);
	return setenv("CUDA_VISIBLE_DEVICES", *facts.uuid ? facts.uuid : word, 1) < 0 ? -ENOMEM : 0;
}

/*
 * Refuses a device whose UUID does not begin with @word: the visible devices were renumbered, and
 * it is not the one that was requested.
 */
static int xdev_check_uuid(const struct mm_xdev *dev, const char *word, char *err, size_t err_bytes)
{
	char hex[2 * sizeof(dev->uuid.bytes) + 1];
	size_t at = 0;

	for (size_t i = 0; i < sizeof(dev->uuid.bytes); i++)
		snprintf(hex + 2 * i, 3, "%02x", (unsigned char)dev->uuid.bytes[i]);
	for (const char *c = word + strlen("GPU-"); *c; c++) {
		if (*c == '-')
			continue;
		if (at == sizeof(hex) - 1 || (hex[at] | 0x20) != (*c | 0x20)) {
			snprintf(err, err_bytes, "the driver shows device %s instead of %s", hex,
				 word);
			return -ENODEV;
		}
		at++;
	}
	return 0;
}

int mm_xdev_open(struct mm_xdev *dev, const char *driver, int ordinal, const char *uuid, bool lock,
		 char *err, size_t err_bytes)
{
	int r;

	if (mm_fault("xfer.open")) {
		snprintf(err, err_bytes, "opening the driver: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	r = mm_gpu_open(driver[0] ? driver : NULL, &dev->gpu, err, err_bytes);
	if (r < 0)
		return r;
	/* Tenants choose their driver library by this. */
	dev->kind = mm_gpu_is_software(&dev->gpu) ? MM_DRIVER_SOFTWARE : MM_DRIVER_CUDA;
	if (*uuid) {
		ordinal = 0;
		r = xdev_make_visible(dev, uuid, err, err_bytes);
		if (r < 0)
			return r;
	}
	r = xdev_identify(dev, ordinal, err, err_bytes);
	if (r == 0 && *uuid)
		r = xdev_check_uuid(dev, uuid, err, err_bytes);
	if (r < 0)
		return r;
	mm_xpace_open(&dev->pace, &dev->gpu, ordinal);
	/* The lock is taken before any use of the device. */
	if (lock)
		r = mm_devlock_take(&dev->lock, (const uint8_t *)dev->uuid.bytes, (int)getppid(),
				    err, err_bytes);
	if (r < 0)
		return r;
	r = xdev_choose_properties(dev, err, err_bytes);
	if (r < 0)
		return r;
	return xdev_make_context(dev, err, err_bytes);
}

void mm_xdev_close(struct mm_xdev *dev)
{
	if (dev->scrub)
		(void)dev->gpu.cuStreamDestroy(dev->scrub);
	if (dev->copy_out)
		(void)dev->gpu.cuStreamDestroy(dev->copy_out);
	if (dev->copy)
		(void)dev->gpu.cuStreamDestroy(dev->copy);
	if (dev->ctx)
		(void)dev->gpu.cuDevicePrimaryCtxRelease(dev->device);
	mm_gpu_close(&dev->gpu);
	mm_devlock_close(&dev->lock);
	*dev = MM_XDEV_NULL;
}
