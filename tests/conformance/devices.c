/* SPDX-License-Identifier: Apache-2.0 */
/* Two devices in one process: each has its memory, its UUID and its contexts. */
#include "tests/conformance/conf.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define gpu (&conf.gpu)

static CUcontext context[2];

/* Two devices with their contexts, or the test is skipped. */
static void devices_begin(void)
{
	int count = 0;

	conf_context();
	ok(gpu->cuDeviceGetCount(&count));
	if (count < 2)
		conf_skip("one device");
	context[0] = conf.ctx;
	ok(gpu->cuDevicePrimaryCtxRetain(&context[1], 1));
	check(context[0] != context[1]);
}

static void devices_end(void)
{
	ok(gpu->cuDevicePrimaryCtxRelease(1));
	ok(gpu->cuDevicePrimaryCtxRelease(0));
}

static CUmemAllocationProp prop_of(int device)
{
	CUmemAllocationProp prop = conf.prop;

	prop.location.id = device;
	return prop;
}

static CUmemGenericAllocationHandle create_on(int device, size_t bytes)
{
	CUmemAllocationProp prop = prop_of(device);
	CUmemGenericAllocationHandle handle;

	ok(gpu->cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

static CUresult give_access(CUdeviceptr va, int device)
{
	const CUmemAccessDesc desc = { { CU_MEM_LOCATION_TYPE_DEVICE, device },
				       CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return gpu->cuMemSetAccess(va, conf.granule, &desc, 1);
}

static CUdeviceptr map_on(int device, CUmemGenericAllocationHandle handle)
{
	CUdeviceptr va = conf_reserve(conf.granule);

	ok(gpu->cuMemMap(va, conf.granule, 0, handle, 0));
	ok(give_access(va, device));
	return va;
}

static void pages_unmap(CUdeviceptr va)
{
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemAddressFree(va, conf.granule));
}

static size_t free_on(int device)
{
	size_t free_bytes, total_bytes;

	ok(gpu->cuCtxPushCurrent(context[device]));
	ok(gpu->cuMemGetInfo(&free_bytes, &total_bytes));
	ok(gpu->cuCtxPopCurrent(&(CUcontext){ NULL }));
	return free_bytes;
}

static void test_names(void **state)
{
	CUuuid uuid[2];
	CUdevice device;
	int count = 0;

	(void)state;
	devices_begin();
	ok(gpu->cuDeviceGetCount(&count));
	check(count >= 2);
	expect(gpu->cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
	expect(gpu->cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
	for (int i = 0; i < 2; i++) {
		ok(gpu->cuDeviceGet(&device, i));
		ok(gpu->cuDeviceGetUuid(&uuid[i], device));
		ok(gpu->cuCtxPushCurrent(context[i]));
		ok(gpu->cuCtxGetDevice(&device));
		check(device == i);
		ok(gpu->cuCtxPopCurrent(&(CUcontext){ NULL }));
	}
	check(memcmp(&uuid[0], &uuid[1], sizeof(uuid[0])) != 0);
	devices_end();
}

/* Memory is taken from the device that is asked, and from no other. */
static void test_memory_apart(void **state)
{
	CUmemGenericAllocationHandle handle, again;
	CUmemAllocationProp prop;
	size_t before[2];
	int fd;

	(void)state;
	devices_begin();
	before[0] = free_on(0);
	before[1] = free_on(1);
	handle = create_on(1, conf.bulk);
	check(free_on(0) + conf.noise >= before[0]);
	check(free_on(1) <= before[1] - conf.bulk + conf.noise);
	/* An import knows where the memory is. */
	fd = conf_export(handle);
	again = conf_import(fd);
	close(fd);
	ok(gpu->cuMemGetAllocationPropertiesFromHandle(&prop, again));
	check(prop.location.id == 1);
	ok(gpu->cuMemRelease(again));
	ok(gpu->cuMemRelease(handle));
	check(free_on(1) + conf.noise >= before[1]);
	devices_end();
}

static void test_access(void **state)
{
	CUmemGenericAllocationHandle handle;
	int ordinal = -1;
	CUdeviceptr va;

	(void)state;
	devices_begin();
	handle = create_on(1, conf.granule);
	va = conf_reserve(conf.granule);
	ok(gpu->cuMemMap(va, conf.granule, 0, handle, 0));
	if (conf.software) /* hardware may have a link between the two */
		expect(give_access(va, 0), CUDA_ERROR_INVALID_DEVICE);
	ok(give_access(va, 1));
	ok(gpu->cuCtxPushCurrent(context[1]));
	ok(gpu->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, va));
	ok(gpu->cuCtxPopCurrent(&(CUcontext){ NULL }));
	check(ordinal == 1);
	pages_unmap(va);
	ok(gpu->cuMemRelease(handle));
	devices_end();
}

/* Bytes of one device reach the other through host memory, registered once for both. */
static void test_copies(void **state)
{
	CUmemGenericAllocationHandle handle[2];
	CUdeviceptr va[2];
	uint32_t *host;

	(void)state;
	devices_begin();
	for (int i = 0; i < 2; i++) {
		handle[i] = create_on(i, conf.granule);
		va[i] = map_on(i, handle[i]);
	}
	host = conf_shared(conf.granule, NULL);
	ok(gpu->cuMemHostRegister(host, conf.granule, CU_MEMHOSTREGISTER_PORTABLE));
	ok(gpu->cuMemsetD32Async(va[0], 0x12345678, conf.granule / 4, NULL));
	ok(gpu->cuMemcpyDtoHAsync(host, va[0], conf.granule, NULL));
	ok(gpu->cuCtxSynchronize());
	ok(gpu->cuCtxPushCurrent(context[1]));
	ok(gpu->cuMemcpyHtoDAsync(va[1], host, conf.granule, NULL));
	ok(gpu->cuCtxSynchronize());
	memset(host, 0, conf.granule);
	ok(gpu->cuMemcpyDtoH(host, va[1], conf.granule));
	check(host[0] == 0x12345678 && host[conf.granule / 4 - 1] == 0x12345678);
	ok(gpu->cuCtxPopCurrent(&(CUcontext){ NULL }));
	ok(gpu->cuMemHostUnregister(host));
	for (int i = 0; i < 2; i++) {
		pages_unmap(va[i]);
		ok(gpu->cuMemRelease(handle[i]));
	}
	devices_end();
}

/* A process may see some of several devices, in an order of its own, which the ordinals follow. */
static int run_visible(int sock)
{
	CUuuid uuid;
	int count;

	conf_init();
	ok(gpu->cuDeviceGetCount(&count));
	ok(gpu->cuDeviceGetUuid(&uuid, 0));
	conf_send(sock, (uint64_t)count << 8 | (unsigned char)uuid.bytes[15], -1);
	return 0;
}

static uint64_t run_and_receive(const char *visible)
{
	struct conf_peer peer;
	uint64_t word;

	setenv("MM_SOFTGPU_VISIBLE", visible, 1);
	peer = conf_spawn("seen");
	word = conf_recv(peer.sock, NULL);
	check(conf_join(&peer) == 0);
	unsetenv("MM_SOFTGPU_VISIBLE");
	return word;
}

static void test_visible(void **state)
{
	CUuuid uuid[2];

	(void)state;
	if (!conf.software)
		conf_skip("what a process sees is CUDA_VISIBLE_DEVICES there");
	devices_begin();
	for (int i = 0; i < 2; i++)
		ok(gpu->cuDeviceGetUuid(&uuid[i], i));
	check(run_and_receive("0") == (1u << 8 | (unsigned char)uuid[0].bytes[15]));
	check(run_and_receive("1") == (1u << 8 | (unsigned char)uuid[1].bytes[15]));
	check(run_and_receive("1,0") == (2u << 8 | (unsigned char)uuid[1].bytes[15]));
	devices_end();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_visible),      cmocka_unit_test(test_names),
	cmocka_unit_test(test_memory_apart), cmocka_unit_test(test_access),
	cmocka_unit_test(test_copies),
};

static const struct conf_role roles[] = { { "seen", run_visible }, { NULL, NULL } };

int main(int argc, char **argv)
{
	setenv("MM_SOFTGPU_DEVICES", "2", 1);
	return conf_main(argc, argv, "devices", tests, MM_ARRAY_SIZE(tests), roles);
}
