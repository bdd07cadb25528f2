/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML's entries that make and remove MIG instances.
 *
 * There is one profile, of which a GPU can have seven instances; each has MM_SOFTGPU_MEMORY, and
 * one compute instance. Handles stand for places, and are the same in every process.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "kernels/driver/nvml.h"
#include "kernels/softgpu/mig.h"
#include "kernels/softgpu/settings.h"

#define DECLARE(name, params) MM_EXPORT int name params;
MM_NVML_ENTRIES(DECLARE)
#undef DECLARE

#define PROFILE_ID 19 /* what drivers call 1g.… */

/* Handles of GPU instances, and of the one compute instance that each has, by place. */
static struct mm_nvml_gpu_instance_st {
	char unused;
} gpu_instances[SG_MIG_MAX];
static struct mm_nvml_compute_instance_st {
	char unused;
} compute_instances[SG_MIG_MAX];

/* Return: 0 and more: the place of @instance; -1 there is none. */
static int gi_place(mm_nvml_gi instance, struct sg_settings *ret_settings, char *ret_there)
{
	struct sg_mig mig;

	*ret_settings = (struct sg_settings){ 0 };
	for (int i = 0; i < SG_MIG_MAX; i++) {
		if (instance != &gpu_instances[i] || sg_settings_read(ret_settings))
			continue;
		sg_mig_read(ret_settings->instances, &mig);
		*ret_there = mig.place[i];
		return mig.place[i] == SG_MIG_NONE ? -1 : i;
	}
	return -1;
}

static int nvml_result(int err)
{
	switch (err) {
	case 0:
		return MM_NVML_SUCCESS;
	case -EBUSY:
		return MM_NVML_IN_USE;
	case -EEXIST:
		return MM_NVML_INSUFFICIENT_RESOURCES;
	case -EACCES:
	case -EPERM:
	case -EROFS:
		return MM_NVML_NO_PERMISSION;
	default:
		return MM_NVML_UNKNOWN;
	}
}

/* Checks a question about instances that @device could have: it must be in MIG mode. */
static int device_check_mig(mm_nvml_dev device, unsigned int profile_id, struct sg_settings *ret)
{
	unsigned int now = 0, pending;
	int result = nvmlDeviceGetMigMode(device, &now, &pending);

	*ret = (struct sg_settings){ 0 };
	if (result)
		return result;
	if (!now)
		return MM_NVML_NOT_SUPPORTED;
	if (sg_settings_read(ret) || profile_id != PROFILE_ID)
		return MM_NVML_INVALID_ARGUMENT;
	return MM_NVML_SUCCESS;
}

/* One profile: an instance has what MM_SOFTGPU_MEMORY says. */
int nvmlDeviceGetGpuInstanceProfileInfoV(mm_nvml_dev device, unsigned int profile,
					 struct mm_nvml_profile *info)
{
	struct sg_settings w;
	int result = device_check_mig(device, PROFILE_ID, &w);
	uint64_t bytes, mib;

	if (result || profile || !info)
		return result ? result : MM_NVML_INVALID_ARGUMENT;
	if (info->version != MM_NVML_PROFILE_VERSION)
		return MM_NVML_VERSION_MISMATCH;
	bytes = w.memory_bytes ? w.memory_bytes : sg_settings_memory(&w);
	mib = bytes >> 20;
	*info = (struct mm_nvml_profile){ .version = MM_NVML_PROFILE_VERSION,
					  .id = PROFILE_ID,
					  .slices = 1,
					  .instances = SG_MIG_MAX,
					  .multiprocessors = 1,
					  .memory_mib = mib };
	snprintf(info->name, sizeof(info->name), "MIG 1g.%" PRIu64 "%s",
		 mib % 1024 ? mib : mib / 1024, mib % 1024 ? "mb" : "gb");
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetGpuInstanceRemainingCapacity(mm_nvml_dev device, unsigned int profile_id,
					      unsigned int *count)
{
	struct sg_settings w;
	int result = device_check_mig(device, profile_id, &w);
	struct sg_mig mig;

	if (result || !count)
		return result ? result : MM_NVML_INVALID_ARGUMENT;
	sg_mig_read(w.instances, &mig);
	*count = 0;
	for (unsigned int i = 0; i < SG_MIG_MAX; i++)
		*count += mig.place[i] == SG_MIG_NONE;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceCreateGpuInstance(mm_nvml_dev device, unsigned int profile_id, mm_nvml_gi *instance)
{
	struct sg_settings w;
	int result = device_check_mig(device, profile_id, &w), r = -EEXIST;

	if (result || !instance)
		return result ? result : MM_NVML_INVALID_ARGUMENT;
	for (unsigned int i = 0; r == -EEXIST && i < SG_MIG_MAX; i++) {
		r = sg_mig_change(w.instances, i, SG_MIG_NONE, SG_MIG_EMPTY);
		*instance = &gpu_instances[i];
	}
	return nvml_result(r);
}

int nvmlDeviceGetGpuInstanceById(mm_nvml_dev device, unsigned int id, mm_nvml_gi *instance)
{
	struct sg_settings w;
	int result = device_check_mig(device, PROFILE_ID, &w);
	char there;

	if (result || !instance)
		return result ? result : MM_NVML_INVALID_ARGUMENT;
	if (!id || id > SG_MIG_MAX || gi_place(&gpu_instances[id - 1], &w, &there) < 0)
		return MM_NVML_NOT_FOUND;
	*instance = &gpu_instances[id - 1];
	return MM_NVML_SUCCESS;
}

int nvmlGpuInstanceGetInfo(mm_nvml_gi instance, struct mm_nvml_gi_info *info)
{
	struct sg_settings w;
	char there;
	int i = gi_place(instance, &w, &there);

	if (i < 0 || !info)
		return MM_NVML_INVALID_ARGUMENT;
	*info = (struct mm_nvml_gi_info){ .id = (unsigned int)i + 1,
					  .profile_id = PROFILE_ID,
					  .start = (unsigned int)i,
					  .size = 1 };
	return nvmlDeviceGetHandleByIndex_v2(0, &info->device);
}

int nvmlGpuInstanceDestroy(mm_nvml_gi instance)
{
	struct sg_settings w;
	char there;
	int i = gi_place(instance, &w, &there), r;

	if (i < 0)
		return MM_NVML_INVALID_ARGUMENT;
	if (there == SG_MIG_DEVICE)
		return MM_NVML_IN_USE; /* it has its compute instance */
	r = sg_mig_change(w.instances, (unsigned int)i, SG_MIG_EMPTY, SG_MIG_NONE);
	return r == -EEXIST ? MM_NVML_INVALID_ARGUMENT : nvml_result(r);
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(mm_nvml_gi instance, unsigned int profile,
						 unsigned int engines,
						 struct mm_nvml_ci_profile *info)
{
	struct sg_settings w;
	char there;

	if (gi_place(instance, &w, &there) < 0 || profile || engines || !info)
		return MM_NVML_INVALID_ARGUMENT;
	*info = (struct mm_nvml_ci_profile){ .slices = 1, .instances = 1, .multiprocessors = 1 };
	return MM_NVML_SUCCESS;
}

int nvmlGpuInstanceCreateComputeInstance(mm_nvml_gi instance, unsigned int profile_id,
					 mm_nvml_ci *compute)
{
	struct sg_settings w;
	char there;
	int i = gi_place(instance, &w, &there);

	if (i < 0 || profile_id || !compute)
		return MM_NVML_INVALID_ARGUMENT;
	*compute = &compute_instances[i];
	return nvml_result(
		sg_mig_change(w.instances, (unsigned int)i, SG_MIG_EMPTY, SG_MIG_DEVICE));
}

int nvmlGpuInstanceGetComputeInstanceById(mm_nvml_gi instance, unsigned int id, mm_nvml_ci *compute)
{
	struct sg_settings w;
	char there;
	int i = gi_place(instance, &w, &there);

	if (i < 0 || !compute)
		return MM_NVML_INVALID_ARGUMENT;
	if (id || there != SG_MIG_DEVICE)
		return MM_NVML_NOT_FOUND;
	*compute = &compute_instances[i];
	return MM_NVML_SUCCESS;
}

int nvmlComputeInstanceDestroy(mm_nvml_ci compute)
{
	struct sg_settings w;
	char there;

	for (unsigned int i = 0; i < SG_MIG_MAX; i++) {
		int r;

		if (compute != &compute_instances[i] || gi_place(&gpu_instances[i], &w, &there) < 0)
			continue;
		r = sg_mig_change(w.instances, i, SG_MIG_DEVICE, SG_MIG_EMPTY);
		return r == -EEXIST ? MM_NVML_INVALID_ARGUMENT : nvml_result(r);
	}
	return MM_NVML_INVALID_ARGUMENT;
}
