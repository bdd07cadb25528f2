/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of NVML that mmd uses, over the same directories: devices and their MIG instances,
 * memory, the processes that hold it, and events that a test writes into the file "events" of a
 * GPU's directory; and a few more that other programs need to start.
 *
 * NVML reports all GPUs, whatever is visible to CUDA, and needs no cuInit(). A line of "events" is
 * "xid N", "xid N gi I" (of a GPU instance), "sbe", "dbe", "remap pending", "remap failed", "lost"
 * (waiting for events then fails because the GPU is lost) or "hang" (waiting for events then never
 * returns).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/driver/nvml.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/snapshot.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/lock.h"

#define SEEN_MAX       (SG_DEVICES_MAX + SG_MIG_MAX)
#define DRIVER_VERSION "580.00.00" /* the driver release of CUDA 13.0 */
#define NVML_VERSION   "13.580.00"
#define HOLDERS_MAX    64
#define EVENT_TYPES    (MM_NVML_EVENT_SINGLE_BIT | MM_NVML_EVENT_DOUBLE_BIT | MM_NVML_EVENT_XID)
#define PAUSE_MS       50
#define LINE_MAX_BYTES 64

#define DECLARE(name, params) MM_EXPORT int name params;
MM_NVML_ENTRIES(DECLARE)

struct memory_v1 { /* nvmlMemory_t */
	unsigned long long total, free, used;
};

/* mmd does not use these; pynvml and others call them when they start. */
#define OTHER_ENTRIES(X)                                                    \
	X(nvmlInit, (void))                                                 \
	X(nvmlInitWithFlags, (unsigned int flags))                          \
	X(nvmlSystemGetDriverVersion, (char *version, unsigned int length)) \
	X(nvmlSystemGetNVMLVersion, (char *version, unsigned int length))   \
	X(nvmlSystemGetCudaDriverVersion, (int *version))                   \
	X(nvmlSystemGetCudaDriverVersion_v2, (int *version))                \
	X(nvmlDeviceGetIndex, (mm_nvml_dev device, unsigned int *index))    \
	X(nvmlDeviceGetMemoryInfo, (mm_nvml_dev device, struct memory_v1 * memory))
OTHER_ENTRIES(DECLARE)
MM_EXPORT const char *nvmlErrorString(int result);
#undef DECLARE

/*
 * A handle stands for the number of a device, the same in every process of one environment, also
 * while MIG instances come and go.
 */
struct mm_nvml_device_st {
	unsigned int number;
};

struct mm_nvml_event_set_st {
	size_t n;
	bool lost;
	struct {
		mm_nvml_dev device;
		unsigned long long types;
		off_t at; /* offset in the file; earlier events are not reported */
		char *path;
	} watched[SEEN_MAX];
};

static struct mm_lock nvml_lock = MM_LOCK_INIT;
static unsigned int nvml_users MM_GUARDED_BY(nvml_lock);
static struct mm_nvml_device_st handles[SEEN_MAX];

int nvmlInit_v2(void)
{
	mm_lock_take(&nvml_lock);
	for (unsigned int i = 0; i < SEEN_MAX; i++)
		handles[i].number = i;
	nvml_users++;
	mm_lock_give(&nvml_lock);
	return MM_NVML_SUCCESS;
}

int nvmlInit(void)
{
	return nvmlInit_v2();
}

/* The flags permit to start without a GPU, or to attach to none: nothing to do for either. */
int nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return nvmlInit_v2();
}

int nvmlShutdown(void)
{
	int result = MM_NVML_UNINITIALIZED;

	mm_lock_take(&nvml_lock);
	if (nvml_users) {
		nvml_users--;
		result = MM_NVML_SUCCESS;
	}
	mm_lock_give(&nvml_lock);
	return result;
}

static int nvml_put_text(char *ret, unsigned int length, const char *text)
{
	if (!ret)
		return MM_NVML_INVALID_ARGUMENT;
	if ((unsigned int)snprintf(ret, length, "%s", text) >= length)
		return MM_NVML_INSUFFICIENT_SIZE;
	return MM_NVML_SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return nvml_put_text(version, length, DRIVER_VERSION);
}

int nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	return nvml_put_text(version, length, NVML_VERSION);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	if (!version)
		return MM_NVML_INVALID_ARGUMENT;
	*version = SG_DRIVER_VERSION;
	return MM_NVML_SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

const char *nvmlErrorString(int result)
{
	static const struct {
		int result;
		const char *text;
	} texts[] = {
		{ MM_NVML_SUCCESS, "Success" },
		{ MM_NVML_UNINITIALIZED, "Uninitialized" },
		{ MM_NVML_INVALID_ARGUMENT, "Invalid Argument" },
		{ MM_NVML_NOT_SUPPORTED, "Not Supported" },
		{ MM_NVML_NO_PERMISSION, "Insufficient Permissions" },
		{ MM_NVML_NOT_FOUND, "Not Found" },
		{ MM_NVML_INSUFFICIENT_SIZE, "Insufficient Size" },
		{ MM_NVML_TIMEOUT, "Timeout" },
		{ MM_NVML_GPU_IS_LOST, "GPU is lost" },
		{ MM_NVML_RESET_REQUIRED, "GPU requires reset" },
		{ MM_NVML_IN_USE, "In use by another client" },
		{ MM_NVML_INSUFFICIENT_RESOURCES, "Insufficient Resources" },
		{ MM_NVML_VERSION_MISMATCH, "Argument version mismatch" },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(texts); i++)
		if (texts[i].result == result)
			return texts[i].text;
	return "Unknown Error";
}

/* ---- devices ---- */

struct view {
	struct sg_snapshot *seen;
	unsigned int n, gpus, instances;
	bool mig; /* the first GPU is in MIG mode */
};

static void view_done(struct view *v)
{
	free(v->seen);
}

static bool view_take(struct view *v)
{
	*v = (struct view){ .seen = calloc(SEEN_MAX, sizeof(*v->seen)) };
	if (v->seen)
		v->n = sg_snapshots_take(v->seen, SEEN_MAX, &v->instances);
	v->gpus = v->n - MM_MIN(v->instances, v->n);
	v->mig = v->n && v->seen[0].mig;
	return v->n > 0;
}

/* Return: NULL, no such device. */
static const struct sg_snapshot *view_device(struct view *v, mm_nvml_dev device)
{
	if (!device || !view_take(v))
		return NULL;
	for (unsigned int i = 0; i < v->n; i++)
		if (v->seen[i].number == device->number)
			return &v->seen[i];
	return NULL;
}

static bool snapshot_is_instance(const struct sg_snapshot *seen)
{
	return seen->number >= SG_MIG_FIRST;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
	mm_cleanup(view_done) struct view v = { 0 };

	if (!view_take(&v))
		return MM_NVML_UNKNOWN;
	*count = v.gpus;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, mm_nvml_dev *device)
{
	mm_cleanup(view_done) struct view v = { 0 };

	if (!view_take(&v) || index >= v.gpus)
		return MM_NVML_INVALID_ARGUMENT;
	*device = &handles[index];
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetIndex(mm_nvml_dev device, unsigned int *index)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);

	if (!seen || !index || snapshot_is_instance(seen))
		return MM_NVML_INVALID_ARGUMENT;
	*index = device->number;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, mm_nvml_dev *device)
{
	mm_cleanup(view_done) struct view v = { 0 };
	char text[SG_UUID_TEXT];

	if (!uuid || !view_take(&v))
		return MM_NVML_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < v.n; i++) {
		sg_uuid_text(&v.seen[i], text);
		if (strcasecmp(uuid, text) == 0) {
			*device = &handles[v.seen[i].number];
			return MM_NVML_SUCCESS;
		}
	}
	return MM_NVML_NOT_FOUND;
}

int nvmlDeviceGetName(mm_nvml_dev device, char *name, unsigned int length)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);

	if (!seen || !name)
		return MM_NVML_INVALID_ARGUMENT;
	if ((unsigned int)snprintf(name, length, "%s%s", seen->info.name,
				   snapshot_is_instance(seen) ? " MIG" : "") >= length)
		return MM_NVML_INSUFFICIENT_SIZE;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetUUID(mm_nvml_dev device, char *uuid, unsigned int length)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);

	if (!seen || !uuid)
		return MM_NVML_INVALID_ARGUMENT;
	if (length < SG_UUID_TEXT)
		return MM_NVML_INSUFFICIENT_SIZE;
	sg_uuid_text(seen, uuid);
	return MM_NVML_SUCCESS;
}

/* ---- memory ---- */

struct holders {
	struct mm_nvml_process list[HOLDERS_MAX];
	unsigned int n;
	uint64_t bytes;
};

static void holder_add(struct holders *h, unsigned int pid, uint64_t bytes)
{
	unsigned int i = 0;

	while (i < h->n && h->list[i].pid != pid)
		i++;
	if (i == HOLDERS_MAX)
		return;
	if (i == h->n)
		h->list[h->n++] =
			(struct mm_nvml_process){ .pid = pid,
						  .gpu_instance = MM_NVML_NO_INSTANCE,
						  .compute_instance = MM_NVML_NO_INSTANCE };
	h->list[i].used_bytes += bytes;
}

/*
 * A page is a file under a lock that its maker took; /proc/locks names that process as long as any
 * process holds the page.
 */
static bool holders_find(const struct sg_snapshot *seen, struct holders *ret)
{
	mm_cleanup(mm_close_fd) int pages = -1;
	char path[sizeof(seen->path) + 8], line[160], name[24];
	struct stat st;
	FILE *locks;

	*ret = (struct holders){ 0 };
	snprintf(path, sizeof(path), "%s/pages", seen->path);
	pages = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (pages < 0)
		return errno == ENOENT; /* the device was not made yet */
	locks = fopen("/proc/locks", "re");
	if (!locks)
		return false;
	while (fgets(line, sizeof(line), locks)) {
		unsigned long long inode;
		unsigned int pid;

		if (sscanf(line, "%*u: FLOCK %*s READ %u %*x:%*x:%llu", &pid, &inode) != 2)
			continue;
		snprintf(name, sizeof(name), "%llx", inode);
		if (fstatat(pages, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino != inode)
			continue;
		ret->bytes += (uint64_t)st.st_size;
		if (kill((pid_t)pid, 0) == 0 || errno == EPERM)
			holder_add(ret, pid, (uint64_t)st.st_size);
	}
	fclose(locks);
	return true;
}

int nvmlDeviceGetMemoryInfo_v2(mm_nvml_dev device, struct mm_nvml_memory *memory)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);
	uint64_t used;

	if (!seen || !memory || memory->version != MM_NVML_MEMORY_VERSION)
		return MM_NVML_INVALID_ARGUMENT;
	used = seen->used_bytes;
	/* All memory of a GPU in MIG mode belongs to its instances. */
	for (unsigned int i = v.gpus; seen->number == 0 && i < v.n; i++)
		used += v.seen[i].used_bytes;
	memory->total =
		seen->info.capacity_bytes * (seen->number == 0 && v.instances ? v.instances : 1);
	memory->used = MM_MIN(used, (uint64_t)memory->total);
	memory->free = memory->total - memory->used;
	memory->reserved = 0;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo(mm_nvml_dev device, struct memory_v1 *memory)
{
	struct mm_nvml_memory v2 = { .version = MM_NVML_MEMORY_VERSION };
	int result = memory ? nvmlDeviceGetMemoryInfo_v2(device, &v2) : MM_NVML_INVALID_ARGUMENT;

	if (!result)
		*memory = (struct memory_v1){ v2.total, v2.free, v2.used };
	return result;
}

int nvmlDeviceGetComputeRunningProcesses_v3(mm_nvml_dev device, unsigned int *count,
					    struct mm_nvml_process *processes)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);
	struct holders holders;

	if (!seen || !count)
		return MM_NVML_INVALID_ARGUMENT;
	if (!holders_find(seen, &holders))
		return MM_NVML_NOT_SUPPORTED;
	if (*count < holders.n) {
		*count = holders.n;
		return MM_NVML_INSUFFICIENT_SIZE;
	}
	*count = holders.n;
	memcpy(processes, holders.list, holders.n * sizeof(*processes));
	return MM_NVML_SUCCESS;
}

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(mm_nvml_dev device, unsigned int *current, unsigned int *pending)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);

	if (!seen || snapshot_is_instance(seen))
		return MM_NVML_INVALID_ARGUMENT;
	*current = *pending = seen->number == 0 && v.mig;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(mm_nvml_dev device, unsigned int *count)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);

	if (!seen || !count)
		return MM_NVML_INVALID_ARGUMENT;
	*count = seen->number == 0 && v.mig ? SG_MIG_MAX : 0;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(mm_nvml_dev device, unsigned int index,
					mm_nvml_dev *instance)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);

	if (!seen || seen->number != 0)
		return MM_NVML_NOT_FOUND;
	for (unsigned int i = v.gpus; i < v.n; i++) {
		if (v.seen[i].number == SG_MIG_FIRST + index) {
			*instance = &handles[v.seen[i].number];
			return MM_NVML_SUCCESS;
		}
	}
	return MM_NVML_NOT_FOUND;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mm_nvml_dev instance, mm_nvml_dev *device)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, instance);

	if (!seen || !snapshot_is_instance(seen))
		return MM_NVML_INVALID_ARGUMENT;
	*device = &handles[0];
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(mm_nvml_dev instance, unsigned int *id)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, instance);

	if (!seen || !snapshot_is_instance(seen))
		return MM_NVML_NOT_SUPPORTED;
	*id = seen->number - SG_MIG_FIRST + 1;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(mm_nvml_dev instance, unsigned int *id)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, instance);

	if (!seen || !snapshot_is_instance(seen))
		return MM_NVML_NOT_SUPPORTED;
	*id = 0;
	return MM_NVML_SUCCESS;
}

/* ---- health ---- */

/*
 * Return: the path of the file "events", which the caller frees; NULL: no such device, or no
 * memory.
 */
static char *events_path(mm_nvml_dev device)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);
	char *path = NULL;

	return seen && asprintf(&path, "%s/events", seen->path) > 0 ? path : NULL;
}

static FILE *events_open(mm_nvml_dev device)
{
	mm_cleanup(mm_free_ptr) char *path = events_path(device);

	return path ? fopen(path, "re") : NULL;
}

int nvmlDeviceGetRemappedRows(mm_nvml_dev device, unsigned int *corrected,
			      unsigned int *uncorrected, unsigned int *pending,
			      unsigned int *failed)
{
	FILE *events = events_open(device);
	char line[LINE_MAX_BYTES];

	*corrected = *uncorrected = *pending = *failed = 0;
	while (events && fgets(line, sizeof(line), events)) {
		*pending |= strcmp(line, "remap pending\n") == 0;
		*failed |= strcmp(line, "remap failed\n") == 0;
	}
	*uncorrected = *pending;
	if (events)
		fclose(events);
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(mm_nvml_dev device, unsigned int *pending)
{
	(void)device;
	(void)pending;
	return MM_NVML_NOT_SUPPORTED; /* as for every GPU that remaps rows */
}

int nvmlEventSetCreate(mm_nvml_set *set)
{
	*set = calloc(1, sizeof(**set));
	return *set ? MM_NVML_SUCCESS : MM_NVML_UNKNOWN;
}

int nvmlEventSetFree(mm_nvml_set set)
{
	for (size_t i = 0; i < set->n; i++)
		free(set->watched[i].path);
	free(set);
	return MM_NVML_SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(mm_nvml_dev device, unsigned long long *types)
{
	(void)device;
	*types = EVENT_TYPES;
	return MM_NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(mm_nvml_dev device, unsigned long long types, mm_nvml_set set)
{
	mm_cleanup(view_done) struct view v = { 0 };
	const struct sg_snapshot *seen = view_device(&v, device);
	FILE *events;

	if (!seen || !set || set->n == SEEN_MAX)
		return MM_NVML_INVALID_ARGUMENT;
	if (snapshot_is_instance(seen) || (types & ~EVENT_TYPES))
		return MM_NVML_NOT_SUPPORTED;
	set->watched[set->n].device = device;
	set->watched[set->n].types = types;
	set->watched[set->n].at = 0;
	set->watched[set->n].path = events_path(device);
	if (!set->watched[set->n].path)
		return MM_NVML_UNKNOWN;
	events = fopen(set->watched[set->n].path, "re");
	if (events && fseeko(events, 0, SEEK_END) == 0)
		set->watched[set->n].at = ftello(events);
	if (events)
		fclose(events);
	set->n++;
	return MM_NVML_SUCCESS;
}

static bool event_parse(const char *line, struct mm_nvml_event *ret)
{
	unsigned int instance = MM_NVML_NO_INSTANCE, xid;

	*ret = (struct mm_nvml_event){ .compute_instance = MM_NVML_NO_INSTANCE };
	if (sscanf(line, "xid %u gi %u", &xid, &instance) >= 1) {
		ret->type = MM_NVML_EVENT_XID;
		ret->data = xid;
	} else if (strcmp(line, "sbe\n") == 0) {
		ret->type = MM_NVML_EVENT_SINGLE_BIT;
	} else if (strcmp(line, "dbe\n") == 0) {
		ret->type = MM_NVML_EVENT_DOUBLE_BIT;
	}
	ret->gpu_instance = instance;
	return ret->type != 0;
}

/*
 * Reads a whole line; an incomplete one is still being written, and stays for the next time. A line
 * that is too long is no event.
 */
static bool events_next_line(FILE *events, char *line, int bytes)
{
	return fgets(line, bytes, events) &&
	       (strchr(line, '\n') || strlen(line) == (size_t)bytes - 1);
}

/* Finds the next whole line of a device's file that is an event of a type in the set. */
static bool set_next_event(mm_nvml_set set, size_t i, struct mm_nvml_event *ret)
{
	FILE *events = fopen(set->watched[i].path, "re");
	char line[LINE_MAX_BYTES];
	bool found = false;

	if (!events)
		return false;
	if (fseeko(events, set->watched[i].at, SEEK_SET) == 0) {
		while (!found && events_next_line(events, line, sizeof(line))) {
			set->watched[i].at += (off_t)strlen(line);
			set->lost |= strcmp(line, "lost\n") == 0;
			while (strcmp(line, "hang\n") == 0)
				(void)pause();
			found = event_parse(line, ret) && (ret->type & set->watched[i].types);
		}
	}
	ret->device = set->watched[i].device;
	fclose(events);
	return found;
}

int nvmlEventSetWait_v2(mm_nvml_set set, struct mm_nvml_event *event, unsigned int timeout_ms)
{
	for (;;) {
		unsigned int pause_ms = MM_MIN(timeout_ms, (unsigned int)PAUSE_MS);

		for (size_t i = 0; i < set->n; i++)
			if (set_next_event(set, i, event))
				return MM_NVML_SUCCESS;
		if (set->lost)
			return MM_NVML_GPU_IS_LOST;
		if (!timeout_ms)
			return MM_NVML_TIMEOUT;
		nanosleep(&(struct timespec){ .tv_nsec = (long)pause_ms * 1000000 }, NULL);
		timeout_ms -= pause_ms;
	}
}
