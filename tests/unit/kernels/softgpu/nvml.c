/* SPDX-License-Identifier: Apache-2.0 */
/* NVML as the software GPU has it: what mm_nvml_*() finds, MIG instances, events. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/driver/nvml.h"
#include "libclient/base/base.h"

#define GPU_0 "GPU-00112233-4455-6677-8899-aabbccddee00"
#define GPU_1 "GPU-00112233-4455-6677-8899-aabbccddee01"
#define MIG_0 "MIG-00112233-4455-6677-8899-aabbccddee10"
#define MIG_1 "MIG-00112233-4455-6677-8899-aabbccddee11"

static char dir[] = "/dev/shm/mm-nvml-XXXXXX";
static struct mm_gpu_api gpu;
static struct mm_nvml nvml;

static int set_up(void **state)
{
	char err[256] = "";

	(void)state;
	assert_non_null(mkdtemp(dir));
	setenv("MM_SOFTGPU_DIR", dir, 1);
	setenv("MM_SOFTGPU_DEVICES", "2", 1);
	setenv("MM_SOFTGPU_MIG", "2", 1);
	setenv("MM_SOFTGPU_MEMORY", "8M", 1);
	setenv("MM_SOFTGPU_UUID", &GPU_0[4], 1);
	if (mm_gpu_open("software", &gpu, err, sizeof(err)) < 0 ||
	    mm_nvml_open(&gpu, &nvml, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	return 0;
}

static int tear_down(void **state)
{
	char path[64];

	(void)state;
	mm_nvml_close(&nvml);
	assert_null(nvml.nvmlInit_v2);
	mm_nvml_close(&nvml);
	mm_gpu_close(&gpu);
	snprintf(path, sizeof(path), "%s/events", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/mig", dir);
	unlink(path);
	return rmdir(dir);
}

static void test_all_entries(void **state)
{
	(void)state;
#define THERE(name, params) assert_non_null(nvml.name);
	MM_NVML_ENTRIES(THERE)
#undef THERE
}

/* Each GPU, its instances behind it; nobody made a device by looking. */
static void test_list(void **state)
{
	static const struct {
		const char *uuid;
		int gpu, instance;
		bool mig;
		uint64_t bytes;
	} want[] = {
		{ GPU_0, 0, -1, true, 16 << 20 },
		{ MIG_0, 0, 0, false, 8 << 20 },
		{ MIG_1, 0, 1, false, 8 << 20 },
		{ GPU_1, 1, -1, false, 8 << 20 },
	};
	struct mm_nvml_facts list[8];

	(void)state;
	assert_int_equal(mm_nvml_list(&nvml, list, 8), 4);
	for (size_t i = 0; i < MM_ARRAY_SIZE(want); i++) {
		assert_string_equal(list[i].uuid, want[i].uuid);
		assert_int_equal(list[i].gpu, want[i].gpu);
		assert_int_equal(list[i].instance, want[i].instance);
		assert_int_equal(list[i].mig, want[i].mig);
		assert_true(list[i].has_memory);
		assert_int_equal(list[i].total_bytes, want[i].bytes);
		assert_int_equal(list[i].free_bytes, want[i].bytes);
	}
	assert_int_equal(list[2].gpu_instance, 2);
	assert_int_equal(list[3].gpu_instance, MM_NVML_NO_INSTANCE);
	assert_int_equal(mm_nvml_list(&nvml, list, 2), 2);
}

static void test_resolve(void **state)
{
	static const struct {
		const char *word;
		int want;
		const char *uuid;
	} cases[] = {
		{ MIG_1, 0, MIG_1 },
		{ "mig-00112233-4455-6677-8899-AABBCCDDEE11", 0, MIG_1 },
		{ "GPU-00112233", -ENOTUNIQ, NULL },
		{ GPU_1, 0, GPU_1 },
		{ "GPU-ff", -ENOENT, NULL },
		{ GPU_1 "0", -ENOENT, NULL },
	};
	struct mm_nvml_facts facts;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		assert_int_equal(mm_nvml_resolve(&nvml, cases[i].word, &facts), cases[i].want);
		if (cases[i].uuid)
			assert_string_equal(facts.uuid, cases[i].uuid);
	}
}

static void test_uuid_is(void **state)
{
	CUuuid uuid = { { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, (char)0x88, (char)0x99,
			  (char)0xaa, (char)0xbb, (char)0xcc, (char)0xdd, (char)0xee, 0x11 } };
	struct mm_nvml_facts facts;

	(void)state;
	assert_true(mm_nvml_uuid_is(MIG_1, &uuid));
	assert_true(mm_nvml_uuid_is("GPU-00112233445566778899AABBCCDDEE11", &uuid));
	assert_false(mm_nvml_uuid_is(MIG_0, &uuid));
	assert_false(mm_nvml_uuid_is("00112233445566778899aabbccddee11", &uuid));
	assert_false(mm_nvml_uuid_is("GPU-00112233445566778899aabbccddee1", &uuid));
	assert_false(mm_nvml_uuid_is(MIG_1 "1", &uuid));
	assert_false(mm_nvml_uuid_is("GPU-", &uuid));
	assert_int_equal(mm_nvml_find(&nvml, &uuid, &facts), 0);
	assert_int_equal(facts.instance, 1);
	uuid.bytes[0] = 1;
	assert_int_equal(mm_nvml_find(&nvml, &uuid, &facts), -ENOENT);
}

/* Makes a MIG device in the first free place, as mmctl does. Return: the GPU instance. */
static mm_nvml_gi instance_make(mm_nvml_dev device)
{
	struct mm_nvml_profile profile = { .version = MM_NVML_PROFILE_VERSION };
	struct mm_nvml_ci_profile compute;
	mm_nvml_gi instance;
	mm_nvml_ci ci;

	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceProfileInfoV(device, 0, &profile), 0);
	assert_string_equal(profile.name, "MIG 1g.8mb");
	assert_int_equal(profile.memory_mib, 8);
	assert_int_equal(nvml.nvmlDeviceCreateGpuInstance(device, profile.id, &instance), 0);
	assert_int_equal(
		nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 0, 0, &compute), 0);
	assert_int_equal(compute.slices, profile.slices);
	assert_int_equal(nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0, &ci),
			 MM_NVML_NOT_FOUND);
	assert_int_equal(nvml.nvmlGpuInstanceCreateComputeInstance(instance, compute.id, &ci), 0);
	assert_int_equal(nvml.nvmlGpuInstanceCreateComputeInstance(instance, compute.id, &ci),
			 MM_NVML_INSUFFICIENT_RESOURCES);
	return instance;
}

static void instance_end(mm_nvml_gi instance)
{
	mm_nvml_ci ci;

	assert_int_equal(nvml.nvmlGpuInstanceDestroy(instance), MM_NVML_IN_USE);
	assert_int_equal(nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0, &ci), 0);
	assert_int_equal(nvml.nvmlComputeInstanceDestroy(ci), 0);
	assert_int_equal(nvml.nvmlComputeInstanceDestroy(ci), MM_NVML_INVALID_ARGUMENT);
	assert_int_equal(nvml.nvmlGpuInstanceDestroy(instance), 0);
	assert_int_equal(nvml.nvmlGpuInstanceDestroy(instance), MM_NVML_INVALID_ARGUMENT);
}

static unsigned int profile_room(mm_nvml_dev device, unsigned int profile)
{
	unsigned int n = 99;

	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device, profile, &n), 0);
	return n;
}

/*
 * Seven instances fit. Handles of the others stay theirs when one goes, and the free place is the
 * next one's.
 */
static void test_make_instances(void **state)
{
	struct mm_nvml_profile profile = { .version = MM_NVML_PROFILE_VERSION };
	struct mm_nvml_gi_info info;
	struct mm_nvml_facts facts, list[16];
	mm_nvml_gi made[5], first, other;
	mm_nvml_dev device, second;
	char text[MM_NVML_TEXT_BYTES];

	(void)state;
	assert_int_equal(nvml.nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceProfileInfoV(device, 0, &profile), 0);
	for (unsigned int i = 0; i < MM_ARRAY_SIZE(made); i++) {
		assert_int_equal(profile_room(device, profile.id), 5 - i);
		made[i] = instance_make(device);
		assert_int_equal(nvml.nvmlGpuInstanceGetInfo(made[i], &info), 0);
		assert_int_equal(info.id, 3 + i);
		assert_int_equal(info.profile_id, profile.id);
		assert_ptr_equal(info.device, device);
	}
	assert_int_equal(nvml.nvmlDeviceCreateGpuInstance(device, profile.id, &other),
			 MM_NVML_INSUFFICIENT_RESOURCES);
	assert_int_equal(mm_nvml_list(&nvml, list, MM_ARRAY_SIZE(list)), 9);
	assert_int_equal(mm_nvml_resolve(&nvml, MIG_1, &facts), 0);
	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceById(device, 1, &first), 0);
	instance_end(first);
	assert_int_equal(mm_nvml_resolve(&nvml, MIG_0, &facts), -ENOENT);
	assert_int_equal(nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0, &second),
			 MM_NVML_NOT_FOUND);
	assert_int_equal(nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 1, &second), 0);
	assert_int_equal(nvml.nvmlDeviceGetUUID(second, text, sizeof(text)), 0);
	assert_string_equal(text, MIG_1);
	assert_ptr_equal(instance_make(device), first);
	assert_int_equal(mm_nvml_resolve(&nvml, MIG_0, &facts), 0);
	for (unsigned int i = 0; i < MM_ARRAY_SIZE(made); i++)
		instance_end(made[i]);
	assert_int_equal(mm_nvml_list(&nvml, list, MM_ARRAY_SIZE(list)), 4);
}

/* Devices not in MIG mode, no profile, no instance; a file that says nothing it should. */
static void test_make_refused(void **state)
{
	struct mm_nvml_profile profile = { .version = MM_NVML_PROFILE_VERSION + 1 };
	struct mm_nvml_gi_info info;
	struct mm_nvml_facts list[16];
	mm_nvml_gi instance;
	mm_nvml_dev device;
	unsigned int n;
	char path[64];
	FILE *mig;

	(void)state;
	assert_int_equal(nvml.nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceProfileInfoV(device, 0, &profile),
			 MM_NVML_VERSION_MISMATCH);
	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceProfileInfoV(device, 1, &profile),
			 MM_NVML_INVALID_ARGUMENT);
	assert_int_equal(nvml.nvmlDeviceCreateGpuInstance(device, 0, &instance),
			 MM_NVML_INVALID_ARGUMENT);
	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceById(device, 7, &instance),
			 MM_NVML_NOT_FOUND);
	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceById(device, 0, &instance),
			 MM_NVML_NOT_FOUND);
	assert_int_equal(nvml.nvmlGpuInstanceGetInfo(NULL, &info), MM_NVML_INVALID_ARGUMENT);
	assert_int_equal(nvml.nvmlComputeInstanceDestroy(NULL), MM_NVML_INVALID_ARGUMENT);
	assert_int_equal(nvml.nvmlDeviceGetHandleByIndex_v2(1, &device), 0);
	assert_int_equal(nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device, 19, &n),
			 MM_NVML_NOT_SUPPORTED);
	snprintf(path, sizeof(path), "%s/mig", dir);
	mig = fopen(path, "w");
	assert_non_null(mig);
	fputs("x1\n1?1g", mig);
	fclose(mig);
	assert_int_equal(mm_nvml_list(&nvml, list, MM_ARRAY_SIZE(list)), 5);
	unlink(path);
	assert_int_equal(mm_nvml_list(&nvml, list, MM_ARRAY_SIZE(list)), 4);
}

/* One of another version would have other fields. */
static void test_memory_version(void **state)
{
	struct mm_nvml_memory memory = { .version = MM_NVML_MEMORY_VERSION + 1 };
	mm_nvml_dev device;

	(void)state;
	assert_int_equal(nvml.nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
	assert_int_equal(nvml.nvmlDeviceGetMemoryInfo_v2(device, &memory),
			 MM_NVML_INVALID_ARGUMENT);
	assert_int_equal(nvml.nvmlDeviceGetHandleByIndex_v2(2, &device), MM_NVML_INVALID_ARGUMENT);
}

static void tell(const char *text)
{
	char path[64];
	FILE *events;

	snprintf(path, sizeof(path), "%s/events", dir);
	events = fopen(path, "a");
	assert_non_null(events);
	fputs(text, events);
	fclose(events);
}

/* Earlier events, half a line, and types that the set does not have are no events. */
static void test_events(void **state)
{
	struct mm_nvml_event event;
	bool pending, failed;
	mm_nvml_dev device;
	mm_nvml_set set;

	(void)state;
	tell("xid 79\n");
	assert_int_equal(nvml.nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
	assert_int_equal(nvml.nvmlEventSetCreate(&set), 0);
	assert_int_equal(nvml.nvmlDeviceRegisterEvents(
				 device, MM_NVML_EVENT_XID | MM_NVML_EVENT_DOUBLE_BIT, set),
			 0);
	assert_int_equal(nvml.nvmlEventSetWait_v2(set, &event, 0), MM_NVML_TIMEOUT);
	tell("sbe\nrubbish\nxid 94 gi 2\ndbe\nxid 6");
	assert_int_equal(nvml.nvmlEventSetWait_v2(set, &event, 1), 0);
	assert_int_equal(event.type, MM_NVML_EVENT_XID);
	assert_int_equal(event.data, 94);
	assert_int_equal(event.gpu_instance, 2);
	assert_ptr_equal(event.device, device);
	assert_int_equal(nvml.nvmlEventSetWait_v2(set, &event, 1), 0);
	assert_int_equal(event.type, MM_NVML_EVENT_DOUBLE_BIT);
	assert_int_equal(event.gpu_instance, MM_NVML_NO_INSTANCE);
	assert_int_equal(nvml.nvmlEventSetWait_v2(set, &event, 1), MM_NVML_TIMEOUT);
	tell("3\n");
	assert_int_equal(nvml.nvmlEventSetWait_v2(set, &event, 1), 0);
	assert_int_equal(event.data, 63);
	tell("a line that is longer than any event would ever be, and that has nothing to "
	     "say\ndbe\n");
	assert_int_equal(nvml.nvmlEventSetWait_v2(set, &event, 1), 0);
	assert_int_equal(event.type, MM_NVML_EVENT_DOUBLE_BIT);
	mm_nvml_repairs(&nvml, device, &pending, &failed);
	assert_false(pending || failed);
	tell("remap pending\n");
	mm_nvml_repairs(&nvml, device, &pending, &failed);
	assert_true(pending);
	assert_false(failed);
	assert_int_equal(nvml.nvmlEventSetFree(set), 0);
}

/* ---- a library that answers, and says nothing that is true ---- */

static int many(unsigned int *count)
{
	*count = UINT32_MAX;
	return 0;
}

static int none(unsigned int *count)
{
	*count = 1;
	return MM_NVML_UNKNOWN;
}

static int any(unsigned int index, mm_nvml_dev *device)
{
	(void)index;
	*device = NULL;
	return 0;
}

static int rubbish(mm_nvml_dev device, char *text, unsigned int length)
{
	(void)device;
	memset(text, 0x9b, length);
	text[1] = '\n';
	text[2] = '"';
	return 0;
}

static int crowd(mm_nvml_dev device, unsigned int *count, struct mm_nvml_process *processes)
{
	(void)device;
	for (unsigned int i = 0; i < *count; i++)
		processes[i] = (struct mm_nvml_process){ .pid = i, .used_bytes = ~0ull - i % 2 };
	*count = UINT32_MAX;
	return 0;
}

static void test_rubbish(void **state)
{
	struct mm_nvml liar = { .library = &gpu,
				.nvmlDeviceGetCount_v2 = many,
				.nvmlDeviceGetHandleByIndex_v2 = any,
				.nvmlDeviceGetName = rubbish,
				.nvmlDeviceGetUUID = rubbish,
				.nvmlDeviceGetComputeRunningProcesses_v3 = crowd };
	struct mm_nvml_process process[3];
	struct mm_nvml_facts list[100];
	int n = mm_nvml_list(&liar, list, MM_ARRAY_SIZE(list));

	(void)state;
	assert_true(n > 0 && n <= (int)MM_ARRAY_SIZE(list));
	for (int i = 0; i < n; i++) {
		assert_int_equal(strlen(list[i].uuid), MM_NVML_TEXT_BYTES - 1);
		assert_int_equal(strspn(list[i].uuid, "?"), MM_NVML_TEXT_BYTES - 1);
		assert_int_equal(strspn(list[i].name, "?"), MM_NVML_TEXT_BYTES - 1);
	}
	assert_int_equal(mm_nvml_resolve(&liar, "GPU-", &list[0]), -ENOENT);
	assert_int_equal(mm_nvml_resolve(&liar, "?", &list[0]), -ENOTUNIQ);
	assert_int_equal(mm_nvml_processes(&liar, NULL, process, 3), 3);
	assert_true(process[0].used_bytes == ~0ull - 1 && process[2].used_bytes == ~0ull - 1);
	liar.nvmlDeviceGetCount_v2 = none;
	assert_int_equal(mm_nvml_resolve(&liar, "?", &list[0]), -EIO);
	liar.nvmlDeviceGetCount_v2 = NULL;
	assert_int_equal(mm_nvml_resolve(&liar, "?", &list[0]), -ENOSYS);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_entries),    cmocka_unit_test(test_list),
		cmocka_unit_test(test_resolve),        cmocka_unit_test(test_uuid_is),
		cmocka_unit_test(test_memory_version), cmocka_unit_test(test_events),
		cmocka_unit_test(test_rubbish),        cmocka_unit_test(test_make_instances),
		cmocka_unit_test(test_make_refused),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
