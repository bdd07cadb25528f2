/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/driver/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libclient/base/base.h"

#define PREFIX_BYTES  4 /* "GPU-", "MIG-" */
#define GPUS_MAX      64
#define INSTANCES_MAX 16
#define PROCESSES_MAX 64
#define BYTES_UNKNOWN (~0ULL)
#define NVML_LIBRARY  "libnvidia-ml.so.1"

static const struct nvml_entry {
	const char *name;
	size_t offset;
} nvml_entries[] = {
#define ENTRY(name, params) { #name, offsetof(struct mm_nvml, name) },
	MM_NVML_ENTRIES(ENTRY)
#undef ENTRY
};

/* The software GPU is its own management library: its file is opened a second time. */
static void *nvml_open_library(const struct mm_gpu_api *gpu)
{
	Dl_info info;

	if (!mm_gpu_is_software(gpu))
		return dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!dladdr((void *)(uintptr_t)gpu->cuInit, &info) || !info.dli_fname)
		return NULL;
	return dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL);
}

static void MM_PRINTF(3, 4) nvml_report(char *err, size_t err_bytes, const char *format, ...)
{
	va_list args;

	if (!err || !err_bytes)
		return;
	va_start(args, format);
	vsnprintf(err, err_bytes, format, args);
	va_end(args);
}

int mm_nvml_open(const struct mm_gpu_api *gpu, struct mm_nvml *ret_nvml, char *err,
		 size_t err_bytes)
{
	struct mm_nvml nvml = { .library = nvml_open_library(gpu) };
	int result;

	if (!nvml.library) {
		nvml_report(err, err_bytes, "%s", dlerror());
		return -ENOENT;
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(nvml_entries); i++) {
		void *fn = dlsym(nvml.library, nvml_entries[i].name);

		memcpy((char *)&nvml + nvml_entries[i].offset, &fn, sizeof(fn));
	}
	if (!nvml.nvmlInit_v2 || !nvml.nvmlShutdown) {
		nvml_report(err, err_bytes, NVML_LIBRARY " has no nvmlInit_v2");
		dlclose(nvml.library);
		return -ENOSYS;
	}
	result = nvml.nvmlInit_v2();
	if (result) {
		nvml_report(err, err_bytes, "nvmlInit_v2: result %d", result);
		dlclose(nvml.library);
		return -EIO;
	}
	*ret_nvml = nvml;
	return 0;
}

void mm_nvml_close(struct mm_nvml *nvml)
{
	if (nvml->library) {
		(void)nvml->nvmlShutdown();
		dlclose(nvml->library);
	}
	*nvml = (struct mm_nvml){ 0 };
}

/* ---- devices ---- */

/* Makes a text of the library one printable line: it goes into logs, terminals and JSON. */
static void text_make_printable(char *text, size_t bytes)
{
	text[bytes - 1] = '\0';
	for (; *text; text++)
		if (*text < ' ' || *text > '~' || *text == '"')
			*text = '?';
}

static bool facts_read(const struct mm_nvml *nvml, mm_nvml_dev device, struct mm_nvml_facts *ret)
{
	struct mm_nvml_memory memory = { .version = MM_NVML_MEMORY_VERSION };

	*ret = (struct mm_nvml_facts){ .device = device,
				       .instance = -1,
				       .gpu_instance = MM_NVML_NO_INSTANCE,
				       .compute_instance = MM_NVML_NO_INSTANCE };
	if (!nvml->nvmlDeviceGetUUID ||
	    nvml->nvmlDeviceGetUUID(device, ret->uuid, sizeof(ret->uuid)))
		return false;
	text_make_printable(ret->uuid, sizeof(ret->uuid));
	if (nvml->nvmlDeviceGetName &&
	    nvml->nvmlDeviceGetName(device, ret->name, sizeof(ret->name)))
		ret->name[0] = '\0';
	text_make_printable(ret->name, sizeof(ret->name));
	if (nvml->nvmlDeviceGetMemoryInfo_v2 &&
	    !nvml->nvmlDeviceGetMemoryInfo_v2(device, &memory)) {
		ret->has_memory = true;
		ret->total_bytes = memory.total;
		ret->free_bytes = memory.free;
		ret->reserved_bytes = memory.reserved;
	}
	return true;
}

static bool device_is_mig(const struct mm_nvml *nvml, mm_nvml_dev device)
{
	unsigned int now = 0, pending = 0;

	return nvml->nvmlDeviceGetMigMode && !nvml->nvmlDeviceGetMigMode(device, &now, &pending) &&
	       now;
}

static size_t instances_list(const struct mm_nvml *nvml, const struct mm_nvml_facts *gpu,
			     struct mm_nvml_facts *ret, size_t max)
{
	unsigned int count = 0;
	mm_nvml_dev device;
	size_t n = 0;

	if (!nvml->nvmlDeviceGetMaxMigDeviceCount || !nvml->nvmlDeviceGetMigDeviceHandleByIndex ||
	    nvml->nvmlDeviceGetMaxMigDeviceCount(gpu->device, &count))
		return 0;
	/* Some indices have no instance. */
	for (unsigned int i = 0; i < MM_MIN(count, (unsigned int)INSTANCES_MAX) && n < max; i++) {
		if (nvml->nvmlDeviceGetMigDeviceHandleByIndex(gpu->device, i, &device) ||
		    !facts_read(nvml, device, &ret[n]))
			continue;
		ret[n].gpu = gpu->gpu;
		ret[n].instance = (int)i;
		if (nvml->nvmlDeviceGetGpuInstanceId)
			(void)nvml->nvmlDeviceGetGpuInstanceId(device, &ret[n].gpu_instance);
		if (nvml->nvmlDeviceGetComputeInstanceId)
			(void)nvml->nvmlDeviceGetComputeInstanceId(device,
								   &ret[n].compute_instance);
		n++;
	}
	return n;
}

int mm_nvml_list(const struct mm_nvml *nvml, struct mm_nvml_facts *ret, size_t max)
{
	unsigned int count = 0;
	mm_nvml_dev device;
	size_t n = 0;

	if (!nvml->library || !nvml->nvmlDeviceGetCount_v2 || !nvml->nvmlDeviceGetHandleByIndex_v2)
		return -ENOSYS;
	if (nvml->nvmlDeviceGetCount_v2(&count))
		return -EIO;
	/* A device that is lost, or that may not be queried, is left out. */
	for (unsigned int i = 0; i < MM_MIN(count, (unsigned int)GPUS_MAX) && n < max; i++) {
		struct mm_nvml_facts *gpu = &ret[n];

		if (nvml->nvmlDeviceGetHandleByIndex_v2(i, &device) ||
		    !facts_read(nvml, device, gpu))
			continue;
		gpu->gpu = (int)i;
		gpu->mig = device_is_mig(nvml, device);
		n++;
		if (gpu->mig)
			n += instances_list(nvml, gpu, ret + n, max - n);
	}
	return (int)n;
}

static int uuid_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool mm_nvml_uuid_is(const char *text, const CUuuid *uuid)
{
	size_t n = 0;

	if (strncmp(text, "GPU-", PREFIX_BYTES) != 0 && strncmp(text, "MIG-", PREFIX_BYTES) != 0)
		return false;
	for (text += PREFIX_BYTES; *text; text++) {
		unsigned char byte;
		int digit = uuid_hex_digit(*text);

		if (*text == '-')
			continue;
		if (digit < 0 || n == 2 * sizeof(uuid->bytes))
			return false;
		byte = (unsigned char)uuid->bytes[n / 2];
		if (digit != (n % 2 ? byte & 15 : byte >> 4))
			return false;
		n++;
	}
	return n == 2 * sizeof(uuid->bytes);
}

#define LIST_MAX 128

int mm_nvml_find(const struct mm_nvml *nvml, const CUuuid *uuid, struct mm_nvml_facts *ret)
{
	struct mm_nvml_facts list[LIST_MAX];
	int n = mm_nvml_list(nvml, list, LIST_MAX);

	for (int i = 0; i < n; i++) {
		if (mm_nvml_uuid_is(list[i].uuid, uuid)) {
			*ret = list[i];
			return 0;
		}
	}
	return -ENOENT;
}

int mm_nvml_resolve(const struct mm_nvml *nvml, const char *word, struct mm_nvml_facts *ret)
{
	struct mm_nvml_facts list[LIST_MAX];
	int n = mm_nvml_list(nvml, list, LIST_MAX), found = -1;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		if (strncasecmp(list[i].uuid, word, strlen(word)) != 0)
			continue;
		if (found >= 0)
			return -ENOTUNIQ;
		found = i;
	}
	if (found < 0)
		return -ENOENT;
	*ret = list[found];
	return 0;
}

/* ---- health, memory ---- */

void mm_nvml_repairs(const struct mm_nvml *nvml, mm_nvml_dev device, bool *ret_pending,
		     bool *ret_failed)
{
	unsigned int corrected, uncorrected, pending = 0, failed = 0;

	if (!nvml->nvmlDeviceGetRemappedRows ||
	    nvml->nvmlDeviceGetRemappedRows(device, &corrected, &uncorrected, &pending, &failed))
		pending = failed = 0;
	*ret_failed = failed != 0;
	*ret_pending = pending != 0;
	/* Devices that retire pages instead of remapping rows. */
	if (nvml->nvmlDeviceGetRetiredPagesPendingStatus &&
	    !nvml->nvmlDeviceGetRetiredPagesPendingStatus(device, &pending))
		*ret_pending |= pending != 0;
}

static int process_compare_bytes(const void *a, const void *b)
{
	const struct mm_nvml_process *x = a, *y = b;

	return x->used_bytes < y->used_bytes ? 1 : x->used_bytes > y->used_bytes ? -1 : 0;
}

size_t mm_nvml_processes(const struct mm_nvml *nvml, mm_nvml_dev device,
			 struct mm_nvml_process *ret, size_t max)
{
	struct mm_nvml_process list[PROCESSES_MAX];
	unsigned int count = PROCESSES_MAX;

	if (!nvml->nvmlDeviceGetComputeRunningProcesses_v3 ||
	    nvml->nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list))
		return 0;
	count = MM_MIN(count, (unsigned int)PROCESSES_MAX);
	for (unsigned int i = 0; i < count; i++) {
		if (list[i].used_bytes == BYTES_UNKNOWN)
			list[i].used_bytes = 0;
	}
	qsort(list, count, sizeof(*list), process_compare_bytes);
	max = MM_MIN(max, (size_t)count);
	memcpy(ret, list, max * sizeof(*list));
	return max;
}
