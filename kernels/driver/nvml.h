/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml - properties of devices from the management library: MIG, memory, health
 *
 * Concept:   a table of NVML's own functions, filled by dlopen() of libnvidia-ml.so.1, or, where
 *            the driver is the software GPU, of that library, which exports the same names. Every
 *            entry may be NULL: without NVML mmd runs and reports less. The functions below the
 *            table make the queries that mmd needs and accept that entries are missing.
 * Types:     declared here, from NVIDIA's NVML API Reference Guide
 *            (docs.nvidia.com/deploy/nvml-api: "Event Handling Methods", "Event Types", "Device
 *            Structs", "Multi Instance GPU Management") and the layouts of the public nvml.h of
 *            R515 and later. mm_nvml_memory is nvmlMemory_v2_t, whose version is its size | 2 <<
 *            24; mm_nvml_process is nvmlProcessInfo_v2_t, which
 *            nvmlDeviceGetComputeRunningProcesses_v3 fills.
 * MIG:       an instance is a device too, with a handle of its own, which is found by its parent.
 *            Events come from the parent, and name the GPU instance that they concern, if any.
 * Threading: NVML is thread-safe; a filled table is read-only.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/gpu.h"

typedef struct mm_nvml_device_st *mm_nvml_dev;
typedef struct mm_nvml_event_set_st *mm_nvml_set;
typedef struct mm_nvml_gpu_instance_st *mm_nvml_gi;
typedef struct mm_nvml_compute_instance_st *mm_nvml_ci;

enum mm_nvml_result { /* nvmlReturn_t, as far as we look */
		      MM_NVML_SUCCESS = 0,
		      MM_NVML_UNINITIALIZED = 1,
		      MM_NVML_INVALID_ARGUMENT = 2,
		      MM_NVML_NOT_SUPPORTED = 3,
		      MM_NVML_NO_PERMISSION = 4,
		      MM_NVML_NOT_FOUND = 6,
		      MM_NVML_INSUFFICIENT_SIZE = 7,
		      MM_NVML_TIMEOUT = 10,
		      MM_NVML_GPU_IS_LOST = 15,
		      MM_NVML_RESET_REQUIRED = 16,
		      MM_NVML_IN_USE = 19,
		      MM_NVML_INSUFFICIENT_RESOURCES = 23,
		      MM_NVML_VERSION_MISMATCH = 25,
		      MM_NVML_UNKNOWN = 999,
};

#define MM_NVML_EVENT_SINGLE_BIT UINT64_C(0x1)
#define MM_NVML_EVENT_DOUBLE_BIT UINT64_C(0x2)
#define MM_NVML_EVENT_XID        UINT64_C(0x8)
#define MM_NVML_NO_INSTANCE      UINT32_MAX /* of an event or a process: none, or unknown */
#define MM_NVML_TEXT_BYTES       96

struct mm_nvml_event { /* nvmlEventData_t */
	mm_nvml_dev device;
	unsigned long long type;
	unsigned long long data; /* the Xid */
	unsigned int gpu_instance;
	unsigned int compute_instance;
};
static_assert(sizeof(struct mm_nvml_event) == 32, "NVML ABI");

struct mm_nvml_memory { /* nvmlMemory_v2_t */
	unsigned int version;
	unsigned long long total;
	unsigned long long reserved; /* by driver and firmware */
	unsigned long long free;
	unsigned long long used;
};
static_assert(sizeof(struct mm_nvml_memory) == 40, "NVML ABI");
#define MM_NVML_MEMORY_VERSION ((unsigned int)(sizeof(struct mm_nvml_memory) | 2u << 24))

struct mm_nvml_process { /* nvmlProcessInfo_v2_t */
	unsigned int pid;
	unsigned long long used_bytes; /* all ones: unknown */
	unsigned int gpu_instance;
	unsigned int compute_instance;
};
static_assert(sizeof(struct mm_nvml_process) == 24, "NVML ABI");

struct mm_nvml_profile { /* nvmlGpuInstanceProfileInfo_v2_t */
	unsigned int version;
	unsigned int id;
	unsigned int p2p;
	unsigned int slices;
	unsigned int instances; /* how many a GPU can have */
	unsigned int multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
	unsigned long long memory_mib;
	char name[MM_NVML_TEXT_BYTES];
};
static_assert(sizeof(struct mm_nvml_profile) == 152, "NVML ABI");
static_assert(offsetof(struct mm_nvml_profile, memory_mib) == 48, "NVML ABI");
#define MM_NVML_PROFILE_VERSION ((unsigned int)(sizeof(struct mm_nvml_profile) | 2u << 24))

struct mm_nvml_gi_info { /* nvmlGpuInstanceInfo_t */
	mm_nvml_dev device;
	unsigned int id;
	unsigned int profile_id;
	unsigned int start, size; /* its slices of memory */
};
static_assert(sizeof(struct mm_nvml_gi_info) == 24, "NVML ABI");

struct mm_nvml_ci_profile { /* nvmlComputeInstanceProfileInfo_t */
	unsigned int id;
	unsigned int slices;
	unsigned int instances;
	unsigned int multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
};
static_assert(sizeof(struct mm_nvml_ci_profile) == 36, "NVML ABI");

/* X(name, parameters); all return an nvmlReturn_t */
#define MM_NVML_ENTRIES(X)                                                                     \
	X(nvmlInit_v2, (void))                                                                 \
	X(nvmlShutdown, (void))                                                                \
	X(nvmlDeviceGetCount_v2, (unsigned int *count))                                        \
	X(nvmlDeviceGetHandleByIndex_v2, (unsigned int index, mm_nvml_dev *device))            \
	X(nvmlDeviceGetHandleByUUID, (const char *uuid, mm_nvml_dev *device))                  \
	X(nvmlDeviceGetName, (mm_nvml_dev device, char *name, unsigned int length))            \
	X(nvmlDeviceGetUUID, (mm_nvml_dev device, char *uuid, unsigned int length))            \
	X(nvmlDeviceGetMemoryInfo_v2, (mm_nvml_dev device, struct mm_nvml_memory * memory))    \
	X(nvmlDeviceGetComputeRunningProcesses_v3,                                             \
	  (mm_nvml_dev device, unsigned int *count, struct mm_nvml_process *processes))        \
	X(nvmlDeviceGetMigMode,                                                                \
	  (mm_nvml_dev device, unsigned int *current, unsigned int *pending))                  \
	X(nvmlDeviceGetMaxMigDeviceCount, (mm_nvml_dev device, unsigned int *count))           \
	X(nvmlDeviceGetMigDeviceHandleByIndex,                                                 \
	  (mm_nvml_dev device, unsigned int index, mm_nvml_dev *instance))                     \
	X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle,                                        \
	  (mm_nvml_dev instance, mm_nvml_dev * device))                                        \
	X(nvmlDeviceGetGpuInstanceId, (mm_nvml_dev instance, unsigned int *id))                \
	X(nvmlDeviceGetComputeInstanceId, (mm_nvml_dev instance, unsigned int *id))            \
	X(nvmlDeviceGetGpuInstanceProfileInfoV,                                                \
	  (mm_nvml_dev device, unsigned int profile, struct mm_nvml_profile *info))            \
	X(nvmlDeviceGetGpuInstanceRemainingCapacity,                                           \
	  (mm_nvml_dev device, unsigned int profile_id, unsigned int *count))                  \
	X(nvmlDeviceCreateGpuInstance,                                                         \
	  (mm_nvml_dev device, unsigned int profile_id, mm_nvml_gi *instance))                 \
	X(nvmlDeviceGetGpuInstanceById,                                                        \
	  (mm_nvml_dev device, unsigned int id, mm_nvml_gi *instance))                         \
	X(nvmlGpuInstanceGetInfo, (mm_nvml_gi instance, struct mm_nvml_gi_info * info))        \
	X(nvmlGpuInstanceDestroy, (mm_nvml_gi instance))                                       \
	X(nvmlGpuInstanceGetComputeInstanceProfileInfo,                                        \
	  (mm_nvml_gi instance, unsigned int profile, unsigned int engines,                    \
	   struct mm_nvml_ci_profile *info))                                                   \
	X(nvmlGpuInstanceCreateComputeInstance,                                                \
	  (mm_nvml_gi instance, unsigned int profile_id, mm_nvml_ci *compute))                 \
	X(nvmlGpuInstanceGetComputeInstanceById,                                               \
	  (mm_nvml_gi instance, unsigned int id, mm_nvml_ci *compute))                         \
	X(nvmlComputeInstanceDestroy, (mm_nvml_ci compute))                                    \
	X(nvmlDeviceGetRemappedRows,                                                           \
	  (mm_nvml_dev device, unsigned int *corrected, unsigned int *uncorrected,             \
	   unsigned int *pending, unsigned int *failed))                                       \
	X(nvmlDeviceGetRetiredPagesPendingStatus, (mm_nvml_dev device, unsigned int *pending)) \
	X(nvmlEventSetCreate, (mm_nvml_set * set))                                             \
	X(nvmlEventSetFree, (mm_nvml_set set))                                                 \
	X(nvmlDeviceRegisterEvents,                                                            \
	  (mm_nvml_dev device, unsigned long long types, mm_nvml_set set))                     \
	X(nvmlDeviceGetSupportedEventTypes, (mm_nvml_dev device, unsigned long long *types))   \
	X(nvmlEventSetWait_v2,                                                                 \
	  (mm_nvml_set set, struct mm_nvml_event * event, unsigned int timeout_ms))

struct mm_nvml {
	void *library; /* NULL: NVML is not there */
#define MM_NVML_MEMBER(name, params) int(*name) params;
	MM_NVML_ENTRIES(MM_NVML_MEMBER)
#undef MM_NVML_MEMBER
};

/**
 * mm_nvml_open() - load and start the library that belongs to a driver
 * @gpu:       filled by mm_gpu_open(); need not be initialised
 * @ret_nvml:  written only on success; give back with mm_nvml_close()
 * @err:       receives one line on failure; may be NULL
 * @err_bytes: size of @err
 *
 * Return: 0; -ENOENT no such library; -ENOSYS it is not NVML; -EIO it does not start.
 */
int mm_nvml_open(const struct mm_gpu_api *gpu, struct mm_nvml *ret_nvml, char *err,
		 size_t err_bytes);
/* Accepts a zeroed table. No thread may be waiting for events. */
void mm_nvml_close(struct mm_nvml *nvml);

/* A GPU or a MIG instance. */
struct mm_nvml_facts {
	mm_nvml_dev device;
	/* Both texts are made printable; the UUID begins with GPU- or MIG-. */
	char uuid[MM_NVML_TEXT_BYTES];
	char name[MM_NVML_TEXT_BYTES];
	int gpu;      /* NVML's index of the GPU, or of the instance's parent */
	int instance; /* index among the parent's MIG devices; -1: no instance */
	bool mig;     /* the GPU is in MIG mode: only its instances are devices */
	uint32_t gpu_instance, compute_instance;
	bool has_memory;
	uint64_t total_bytes, free_bytes, reserved_bytes;
};

/**
 * mm_nvml_list() - list every GPU, each followed by its MIG instances
 * @nvml: filled
 * @ret:  at most @max entries
 *
 * Return: the number of entries in @ret; -ENOSYS or -EIO: NVML cannot list them.
 */
int mm_nvml_list(const struct mm_nvml *nvml, struct mm_nvml_facts *ret, size_t max);

/* Finds the entry of a device by its UUID in CUDA. Return: 0; -ENOENT. */
int mm_nvml_find(const struct mm_nvml *nvml, const CUuuid *uuid, struct mm_nvml_facts *ret);

/**
 * mm_nvml_resolve() - find a device by its UUID or an unambiguous beginning of it
 * @nvml: filled
 * @word: GPU-… or MIG-…
 * @ret:  written only on success
 *
 * Return: 0; -ENOENT none; -ENOTUNIQ several; -EIO, -ENOSYS NVML cannot list devices.
 */
int mm_nvml_resolve(const struct mm_nvml *nvml, const char *word, struct mm_nvml_facts *ret);

/*
 * Whether rows or pages are to be remapped or retired at the next reset, and whether a remapping
 * has failed.
 */
void mm_nvml_repairs(const struct mm_nvml *nvml, mm_nvml_dev device, bool *ret_pending,
		     bool *ret_failed);

/*
 * Lists the processes that have memory of the device, those with most first. Return: the number of
 * them, at most @max; 0 also if it is unknown.
 */
size_t mm_nvml_processes(const struct mm_nvml *nvml, mm_nvml_dev device,
			 struct mm_nvml_process *ret, size_t max);

/*
 * Whether @text and @uuid are of the same bytes: "GPU-8932f937-d72c-…" has 32 digits, dashes
 * ignored, after a prefix of four letters.
 */
bool mm_nvml_uuid_is(const char *text, const CUuuid *uuid);
