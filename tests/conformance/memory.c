/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, address ranges, mappings and access, in one process. */
#include "tests/conformance/conf.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define gpu (&conf.gpu)

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
static const CUmemAccess_flags RO = CU_MEM_ACCESS_FLAGS_PROT_READ;

static void page_fill(CUdeviceptr va, uint32_t value, size_t bytes)
{
	ok(gpu->cuMemsetD32Async(va, value, bytes / 4, NULL));
	ok(gpu->cuCtxSynchronize());
}

static uint32_t page_peek(CUdeviceptr va)
{
	uint32_t value;

	ok(gpu->cuMemcpyDtoH(&value, va, sizeof(value)));
	return value;
}

/* In a role: no context was ever made in this process. Whether one can map without is only told. */
static int context_free(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	CUcontext ctx;
	CUresult res;
	int fd;

	conf_init();
	h = conf_create(conf.granule);
	fd = conf_export(h);
	va = conf_reserve(conf.granule);
	res = gpu->cuMemMap(va, conf.granule, 0, h, 0);
	conf_fact_result("context_free.map", res);
	if (!res) {
		conf_fact_result("context_free.access", conf_try_access(va, conf.granule, RW));
		ok(gpu->cuMemUnmap(va, conf.granule));
	}
	ok(gpu->cuMemAddressFree(va, conf.granule));
	ok(gpu->cuCtxGetCurrent(&ctx));
	check(!ctx);
	conf_send(sock, 1, fd);
	close(fd);
	ok(gpu->cuMemRelease(h));
	return 0;
}

static void test_context_free(void **state)
{
	struct conf_peer peer = conf_spawn("context_free");
	CUdeviceptr va = conf_reserve(conf.granule);
	CUmemGenericAllocationHandle h;
	int fd;

	(void)state;
	check(conf_recv(peer.sock, &fd) == 1 && fd >= 0);
	h = conf_import(fd);
	close(fd);
	conf_finish(&peer);
	conf_map(va, conf.granule, h, RW);
	page_fill(va, 7, conf.granule);
	check(page_peek(va + conf.granule - 4) == 7);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemAddressFree(va, conf.granule));
}

static void test_create_rules(void **state)
{
	const size_t g = conf.granule;
	const struct {
		const char *name;
		size_t bytes;
		int location_type, device, type;
		unsigned long long flags;
		bool refused;
	} cases[] = {
		{ "one granule", g, 1, 0, 1, 0, false },
		{ "three granules", 3 * g, 1, 0, 1, 0, false },
		{ "nothing", 0, 1, 0, 1, 0, true },
		{ "part", g / 2, 1, 0, 1, 0, true },
		{ "odd", g + g / 2, 1, 0, 1, 0, true },
		{ "flags", g, 1, 0, 1, 1, true },
		{ "no location", g, 0, 0, 1, 0, true },
		{ "no device", g, 1, 4096, 1, 0, true },
		{ "no type", g, 1, 0, 0, 0, true },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		CUmemAllocationProp prop = conf.prop;
		CUmemGenericAllocationHandle h = 0;
		char fact[96];
		CUresult res;

		prop.location.type = (CUmemLocationType)cases[i].location_type;
		prop.location.id = cases[i].device;
		prop.type = (CUmemAllocationType)cases[i].type;
		res = gpu->cuMemCreate(&h, cases[i].bytes, &prop, cases[i].flags);
		snprintf(fact, sizeof(fact), "create.rule.%s", cases[i].name);
		conf_fact_result(fact, res);
		/* Valid calls must work; no code relies on invalid ones being refused. */
		if ((res != CUDA_SUCCESS) != cases[i].refused &&
		    (conf.software || !cases[i].refused))
			fail_msg("%s: %s", cases[i].name, mm_gpu_strerror(gpu, res));
		if (!res)
			ok(gpu->cuMemRelease(h));
	}
}

/*
 * Offset 0, the whole handle, inside one reservation, nothing mapped there yet: what is always
 * allowed, and all that we do. A later driver may allow more.
 */
static void test_map_rules(void **state)
{
	const size_t g = conf.granule;
	CUmemGenericAllocationHandle h = conf_create(2 * g), other = conf_create(g);
	CUdeviceptr va = conf_reserve(4 * g);
	const struct {
		const char *name;
		CUdeviceptr va;
		size_t bytes, offset;
		unsigned long long flags;
	} cases[] = {
		{ "offset", va, g, g, 0 },
		{ "offset in front of the end", va, 2 * g, g, 0 },
		{ "part", va, g / 2, 0, 0 },
		{ "more than the handle", va, 3 * g, 0, 0 },
		{ "unaligned address", va + g / 2, 2 * g, 0, 0 },
		{ "flags", va, 2 * g, 0, 1 },
		{ "past the reservation", va + 3 * g, 2 * g, 0, 0 },
	};
	char fact[96];
	CUresult res;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		res = gpu->cuMemMap(cases[i].va, cases[i].bytes, cases[i].offset, h,
				    cases[i].flags);
		snprintf(fact, sizeof(fact), "map.rule.%s", cases[i].name);
		conf_fact_result(fact, res);
		if (!res && conf.software)
			fail_msg("%s was accepted", cases[i].name);
		if (!res)
			ok(gpu->cuMemUnmap(cases[i].va, cases[i].bytes));
	}
	ok(gpu->cuMemMap(va, 2 * g, 0, h, 0));
	check(gpu->cuMemMap(va, 2 * g, 0, h, 0) != CUDA_SUCCESS);
	check(gpu->cuMemMap(va + g, g, 0, other, 0) != CUDA_SUCCESS);
	ok(gpu->cuMemUnmap(va, 2 * g));
	ok(gpu->cuMemAddressFree(va, 4 * g));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemRelease(other));
}

/* A handle mapped in part, from its begin: nothing that we build on, hardware may allow it. */
static void test_prefix(void **state)
{
	const size_t g = conf.granule;
	CUmemGenericAllocationHandle h = conf_create(2 * g);
	CUdeviceptr va = conf_reserve(2 * g);
	CUresult res = gpu->cuMemMap(va, g, 0, h, 0);

	(void)state;
	conf_fact_result("map.prefix", res);
	if (conf.software)
		check(res == CUDA_ERROR_NOT_SUPPORTED);
	if (!res)
		ok(gpu->cuMemUnmap(va, g));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemAddressFree(va, 2 * g));
}

/* Access is set over whole runs of mappings, in one call. */
static void test_access_ranges(void **state)
{
	const size_t g = conf.granule;
	CUdeviceptr va = conf_reserve(4 * g);
	CUmemGenericAllocationHandle h[3];
	unsigned long long flags = ~0ull;
	CUresult res;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		h[i] = conf_create(g);
		ok(gpu->cuMemMap(va + i * g, g, 0, h[i], 0));
	}
	res = gpu->cuMemGetAccess(&flags, &conf.prop.location, va);
	conf_fact_text("access.after_map", "%s, flags %llu", mm_gpu_strerror(gpu, res), flags);
	check(!conf.software || (!res && flags == CU_MEM_ACCESS_FLAGS_PROT_NONE));
	conf_access(va, 3 * g, RW);
	ok(gpu->cuMemGetAccess(&flags, &conf.prop.location, va + 2 * g));
	check(flags == (unsigned long long)RW);
	for (size_t i = 0; i < 3; i++)
		page_fill(va + i * g, (uint32_t)i + 1, g);
	check(page_peek(va) == 1 && page_peek(va + g) == 2 && page_peek(va + 2 * g) == 3);
	/* One call takes several complete mappings away. */
	ok(gpu->cuMemUnmap(va, 3 * g));
	ok(gpu->cuMemAddressFree(va, 4 * g));
	for (size_t i = 0; i < 3; i++)
		ok(gpu->cuMemRelease(h[i]));
}

static void test_aliases(void **state)
{
	const size_t g = conf.granule;
	CUmemGenericAllocationHandle h = conf_create(g);
	CUdeviceptr va = conf_reserve(8 * g);

	(void)state;
	for (size_t i = 0; i < 8; i++)
		ok(gpu->cuMemMap(va + i * g, g, 0, h, 0));
	conf_access(va, 7 * g, RW);
	conf_access(va + 7 * g, g, RO);
	for (uint32_t i = 0; i < 7; i++) {
		page_fill(va + i * g, 100 + i, g);
		for (size_t k = 0; k < 8; k++)
			check(page_peek(va + k * g + g / 2) == 100 + i);
	}
	ok(gpu->cuMemUnmap(va, 8 * g));
	ok(gpu->cuMemAddressFree(va, 8 * g));
	ok(gpu->cuMemRelease(h));
}

/* Bytes stay in a page through unmap, map elsewhere, and no handle at all. */
static void test_remap_keeps_bytes(void **state)
{
	const size_t g = conf.granule;
	CUmemGenericAllocationHandle h = conf_create(g), again;
	CUdeviceptr va = conf_reserve(2 * g);

	(void)state;
	conf_map(va, g, h, RW);
	page_fill(va, 0xabcd, g);
	ok(gpu->cuMemUnmap(va, g));
	conf_map(va + g, g, h, RW);
	check(page_peek(va + g) == 0xabcd);
	ok(gpu->cuMemRelease(h));
	check(page_peek(va + g) == 0xabcd);
	ok(gpu->cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + g + g / 2)));
	conf_map(va, g, again, RO);
	check(page_peek(va) == 0xabcd);
	ok(gpu->cuMemUnmap(va, 2 * g));
	ok(gpu->cuMemRelease(again));
	ok(gpu->cuMemAddressFree(va, 2 * g));
}

static void test_retain_counts(void **state)
{
	const size_t g = conf.granule;
	CUmemGenericAllocationHandle h = conf_create(g), again = 0;
	CUdeviceptr va = conf_reserve(g);

	(void)state;
	conf_map(va, g, h, RW);
	ok(gpu->cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)va));
	check(again == h);
	ok(gpu->cuMemUnmap(va, g));
	ok(gpu->cuMemRelease(h));
	/* One reference is left. */
	conf_map(va, g, h, RW);
	page_fill(va, 5, g);
	check(page_peek(va) == 5);
	ok(gpu->cuMemUnmap(va, g));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemAddressFree(va, g));
}

/*
 * Bytes that one process left in memory that went back to the device are not visible to the next. A
 * driver does not promise that within a process (mmd zeroes pages that it passes on), so there it
 * is a fact.
 */
static void test_fresh_is_clean(void **state)
{
	const size_t bytes = 16 * conf.granule;
	CUdeviceptr va = conf_reserve(bytes);
	size_t stale = 0;

	(void)state;
	for (int round = 0; round < 4; round++) {
		CUmemGenericAllocationHandle h = conf_create(bytes);

		conf_map(va, bytes, h, RW);
		for (size_t at = 0; at < bytes; at += conf.granule / 4)
			stale += page_peek(va + at) == 0x5ec3e700;
		page_fill(va, 0x5ec3e700, bytes);
		ok(gpu->cuMemUnmap(va, bytes));
		ok(gpu->cuMemRelease(h));
	}
	conf_fact("create.stale_samples", "of 192", (double)stale);
	check(!conf.software || stale == 0);
	ok(gpu->cuMemAddressFree(va, bytes));
}

/* A release gives nothing back while something is mapped. */
static void test_capacity(void **state)
{
	const size_t bytes = conf.bulk, before = conf_free_bytes();
	CUmemGenericAllocationHandle h = conf_create(bytes);
	CUdeviceptr va = conf_reserve(bytes);
	uint64_t begin;

	(void)state;
	check(conf_free_bytes() <= before - bytes + conf.noise);
	conf_map(va, bytes, h, RW);
	ok(gpu->cuMemRelease(h));
	conf_nap_ms(20);
	check(conf_free_bytes() <= before - bytes + conf.noise);
	begin = conf_now_ns();
	ok(gpu->cuMemUnmap(va, bytes));
	check(conf_comes_back(before));
	conf_fact("free.back_after_unmap", "ms", (double)(conf_now_ns() - begin) / 1e6);
	ok(gpu->cuMemAddressFree(va, bytes));
}

/* Only on the software GPU: filling a real one would disturb whoever else uses it. */
static void test_exhaustion(void **state)
{
	enum { MAX = 4096 };
	static CUmemGenericAllocationHandle h[MAX];
	CUmemGenericAllocationHandle one_more;
	size_t before, n = 0;

	(void)state;
	if (!conf.software)
		conf_skip("it would disturb whoever else uses the device");
	before = conf_free_bytes();
	while (n < MAX && !gpu->cuMemCreate(&h[n], conf.granule, &conf.prop, 0))
		n++;
	check(n == before / conf.granule);
	expect(gpu->cuMemCreate(&one_more, conf.granule, &conf.prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	check(conf_free_bytes() == 0);
	ok(gpu->cuMemRelease(h[--n]));
	ok(gpu->cuMemCreate(&h[n++], conf.granule, &conf.prop, 0));
	while (n)
		ok(gpu->cuMemRelease(h[--n]));
	check(conf_free_bytes() == before);
}

static void test_reservations(void **state)
{
	const size_t g = conf.granule;
	CUdeviceptr va, hinted;
	CUresult res;

	(void)state;
	ok(gpu->cuMemAddressReserve(&va, 4 * g, 8 * g, 0, 0));
	check(va % (8 * g) == 0);
	ok(gpu->cuMemAddressFree(va, 4 * g));
	/* A hint that is free is taken, by the software GPU; one that is not, is only a hint. */
	ok(gpu->cuMemAddressReserve(&hinted, 4 * g, 0, va, 0));
	conf_fact_text("reserve.free_hint", hinted == va ? "taken" : "not taken");
	check(hinted == va || !conf.software);
	ok(gpu->cuMemAddressReserve(&va, 4 * g, 0, hinted, 0));
	check(va != hinted);
	ok(gpu->cuMemAddressFree(va, 4 * g));
	ok(gpu->cuMemAddressFree(hinted, 4 * g));
	check(gpu->cuMemAddressReserve(&va, 0, 0, 0, 0) != CUDA_SUCCESS);
	res = gpu->cuMemAddressReserve(&va, g, 0, 0, 1);
	conf_fact_result("reserve.flags", res);
	check(res || !conf.software);
	res = gpu->cuMemAddressReserve(&va, g, 3 * g, 0, 0);
	conf_fact_result("reserve.odd_alignment", res);
	check(res || !conf.software);
}

static void test_pointer_attributes(void **state)
{
	const size_t g = conf.granule;
	CUmemGenericAllocationHandle h = conf_create(g);
	CUdeviceptr va = conf_reserve(2 * g), base;
	unsigned int type = 0;
	CUresult res;
	size_t bytes;
	int host = 0;

	(void)state;
	conf_map(va, g, h, RW);
	ok(gpu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va));
	check(type == CU_MEMORYTYPE_DEVICE);
	ok(gpu->cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, va + 8));
	check(base == va);
	ok(gpu->cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, va + 8));
	check(bytes == g);
	/* Devices that reach pageable memory may know it. */
	res = gpu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					 (CUdeviceptr)(uintptr_t)&host);
	conf_fact_result("pointer_attribute.pageable", res);
	check(res == CUDA_ERROR_INVALID_VALUE || !conf.software);
	ok(gpu->cuMemUnmap(va, g));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemAddressFree(va, 2 * g));
}

static void test_device(void **state)
{
	static const CUdevice_attribute needed[] = {
		CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
		CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
	};
	static const struct {
		const char *name;
		CUdevice_attribute attribute;
	} told[] = {
		{ "device.processors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT },
		{ "device.capability_major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR },
		{ "device.capability_minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR },
		{ "device.copy_engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT },
		{ "device.ecc", CU_DEVICE_ATTRIBUTE_ECC_ENABLED },
		{ "device.mps", CU_DEVICE_ATTRIBUTE_MPS_ENABLED },
		{ "device.compute_mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE },
		{ "device.pageable_access", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS },
		{ "device.host_page_tables",
		  CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES },
		{ "device.gpudirect_vmm",
		  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED },
		{ "device.flush_remote_writes", CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES },
		{ "device.read_only_register",
		  CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED },
		{ "device.wait_nor", CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR },
		{ "device.host_numa_vmm",
		  CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED },
		{ "device.fabric", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED },
	};
	char name[128] = "", pci[32] = "";
	int value, version;
	CUuuid uuid;
	size_t total;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(needed); i++) {
		ok(gpu->cuDeviceGetAttribute(&value, needed[i], 0));
		if (value != 1)
			fail_msg("attribute %d is %d", (int)needed[i], value);
	}
	ok(gpu->cuDeviceGetName(name, sizeof(name), 0));
	ok(gpu->cuDeviceGetPCIBusId(pci, sizeof(pci), 0));
	ok(gpu->cuDeviceGetUuid(&uuid, 0));
	ok(gpu->cuDeviceTotalMem(&total, 0));
	ok(gpu->cuDriverGetVersion(&version));
	conf_fact_text("device.name", "%s", name);
	conf_fact_text("device.pci", "%s", pci);
	conf_fact("device.memory", "bytes", (double)total);
	conf_fact("device.driver", "version", version);
	for (size_t i = 0; i < MM_ARRAY_SIZE(told); i++)
		conf_fact(told[i].name, "", conf_attribute(told[i].attribute));
	check(*name && *pci && total);
	expect(gpu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 4096),
	       CUDA_ERROR_INVALID_DEVICE);
}

/* ---- Granularity ---- */

static size_t granularity_of(const char *name, const CUmemAllocationProp *prop)
{
	char fact[96];
	size_t bytes[2] = { 0 };
	CUresult res;

	for (int i = 0; i < 2; i++) {
		snprintf(fact, sizeof(fact), "granularity.%s.%s", name,
			 i ? "recommended" : "minimum");
		res = gpu->cuMemGetAllocationGranularity(&bytes[i], prop,
							 i ? CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
							   : CU_MEM_ALLOC_GRANULARITY_MINIMUM);
		if (res)
			conf_fact_result(fact, res);
		else
			conf_fact(fact, "bytes", (double)bytes[i]);
	}
	return bytes[0];
}

/* A granularity of one set of properties must hold for memory that is made with them. */
static void test_granularity(void **state)
{
	CUmemAllocationProp plain = conf.prop, direct = conf.prop, host = conf.prop;
	CUmemGenericAllocationHandle h;
	size_t bytes;

	(void)state;
	plain.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	bytes = granularity_of("plain", &plain);
	check(bytes && (bytes & (bytes - 1)) == 0);
	bytes = granularity_of("exportable", &conf.prop);
	check(bytes == conf.granule && (bytes & (bytes - 1)) == 0);
	if (conf_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
		direct.allocFlags.gpuDirectRDMACapable = 1;
		bytes = granularity_of("gpudirect", &direct);
		ok(gpu->cuMemCreate(&h, bytes, &direct, 0));
		ok(gpu->cuMemRelease(h));
		/* mmd asks once, for all its pages. */
		check(bytes == conf.granule);
	}
	if (conf_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
		host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
		host.location.id = conf_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
		if (host.location.id < 0)
			host.location.id = 0;
		granularity_of("host_numa", &host);
	}
}

/* ---- Descriptors ---- */

static size_t count_descriptors(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* How many descriptors a handle costs: one on the software GPU, to be learned on hardware. */
static void test_descriptors(void **state)
{
	CUmemGenericAllocationHandle h[8];
	size_t before, with;

	(void)state;
	/* Whatever the driver opens for the first one is not a handle's. */
	ok(gpu->cuMemRelease(conf_create(conf.granule)));
	before = count_descriptors();
	for (size_t i = 0; i < MM_ARRAY_SIZE(h); i++)
		h[i] = conf_create(conf.granule);
	with = count_descriptors();
	conf_fact("create.descriptors", "per handle", (double)(with - before) / MM_ARRAY_SIZE(h));
	for (size_t i = 0; i < MM_ARRAY_SIZE(h); i++)
		ok(gpu->cuMemRelease(h[i]));
	with = count_descriptors();
	conf_fact("create.descriptors_left", "", (double)with - (double)before);
	check(with == before || !conf.software);
}

/*
 * Far from the kernel driver's limit of exported objects, but more than a process opens by default.
 */
static void test_many_exports(void **state)
{
	enum { HANDLES = 256, EACH = 8 };
	struct rlimit old, limit;
	CUmemGenericAllocationHandle h[HANDLES];
	static int fds[HANDLES * EACH];
	size_t before = conf_free_bytes();
	uint64_t begin;

	(void)state;
	check(getrlimit(RLIMIT_NOFILE, &old) == 0);
	limit = old;
	limit.rlim_cur = MM_MIN((rlim_t)4096, old.rlim_max);
	check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_cur < HANDLES * (EACH + 1) + 256)
		conf_skip("RLIMIT_NOFILE: %llu", (unsigned long long)limit.rlim_max);
	for (size_t i = 0; i < HANDLES; i++)
		h[i] = conf_create(conf.granule);
	begin = conf_now_ns();
	for (size_t i = 0; i < MM_ARRAY_SIZE(fds); i++)
		fds[i] = conf_export(h[i % HANDLES]);
	conf_fact("export.of_2048", "us each",
		  (double)(conf_now_ns() - begin) / 1e3 / MM_ARRAY_SIZE(fds));
	for (size_t i = 0; i < HANDLES; i++)
		ok(gpu->cuMemRelease(h[i]));
	/* Any of them still is the memory. */
	h[0] = conf_import(fds[MM_ARRAY_SIZE(fds) - 1]);
	ok(gpu->cuMemRelease(h[0]));
	for (size_t i = 0; i < MM_ARRAY_SIZE(fds); i++)
		close(fds[i]);
	check(conf_comes_back(before));
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_device),        T(test_context_free),
	T(test_create_rules),  T(test_map_rules),
	T(test_prefix),        T(test_access_ranges),
	T(test_aliases),       T(test_remap_keeps_bytes),
	T(test_retain_counts), T(test_fresh_is_clean),
	T(test_capacity),      T(test_exhaustion),
	T(test_reservations),  T(test_pointer_attributes),
	T(test_granularity),   T(test_descriptors),
	T(test_many_exports),
};

static const struct conf_role roles[] = { { "context_free", context_free }, { NULL, NULL } };

CONF_MAIN("memory", tests, roles)
