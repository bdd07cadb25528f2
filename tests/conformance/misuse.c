/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are wrong. The software GPU refuses each, so that mistakes show; a driver may do what
 * it likes, crash included: each is made in a process of its own, and what came of it is a fact.
 */
#include "tests/conformance/conf.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define gpu (&conf.gpu)

#define PAGE 4096u

static CUresult release_twice(void)
{
	CUmemGenericAllocationHandle h = conf_create(conf.granule);

	ok(gpu->cuMemRelease(h));
	return gpu->cuMemRelease(h);
}

static CUresult map_released(void)
{
	CUmemGenericAllocationHandle h = conf_create(conf.granule);
	CUdeviceptr va = conf_reserve(conf.granule);

	ok(gpu->cuMemRelease(h));
	return gpu->cuMemMap(va, conf.granule, 0, h, 0);
}

static CUresult export_nothing(void)
{
	int fd = -1;

	return gpu->cuMemExportToShareableHandle(&fd, 0xdead0000beef,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUdeviceptr page_mapped(size_t granules)
{
	CUdeviceptr va = conf_reserve(granules * conf.granule);

	ok(gpu->cuMemMap(va, conf.granule, 0, conf_create(conf.granule), 0));
	return va;
}

static CUresult free_mapped_addresses(void)
{
	return gpu->cuMemAddressFree(page_mapped(2), 2 * conf.granule);
}

static CUresult free_half_the_addresses(void)
{
	return gpu->cuMemAddressFree(conf_reserve(2 * conf.granule), conf.granule);
}

static CUresult unmap_twice(void)
{
	CUdeviceptr va = page_mapped(1);

	ok(gpu->cuMemUnmap(va, conf.granule));
	return gpu->cuMemUnmap(va, conf.granule);
}

static CUresult unmap_part(size_t first)
{
	CUdeviceptr va = conf_reserve(2 * conf.granule);

	ok(gpu->cuMemMap(va, 2 * conf.granule, 0, conf_create(2 * conf.granule), 0));
	return gpu->cuMemUnmap(va + first * conf.granule, conf.granule);
}

static CUresult unmap_first_part(void)
{
	return unmap_part(0);
}

static CUresult unmap_last_part(void)
{
	return unmap_part(1);
}

static CUresult retain_unmapped(void)
{
	CUmemGenericAllocationHandle h;

	return gpu->cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)conf_reserve(conf.granule));
}

static CUresult access_to_a_hole(void)
{
	return conf_try_access(page_mapped(2), 2 * conf.granule,
			       CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static CUresult free_twice(void)
{
	CUdeviceptr va;

	ok(gpu->cuMemAlloc(&va, 100000));
	ok(gpu->cuMemFree(va));
	return gpu->cuMemFree(va);
}

static CUresult unregister_unknown(void)
{
	return gpu->cuMemHostUnregister(conf_shared(PAGE, NULL));
}

static CUresult register_nothing(void)
{
	void *page = conf_shared(PAGE, NULL);

	munmap(page, PAGE);
	return gpu->cuMemHostRegister(page, PAGE, 0);
}

static CUresult copy_from_nowhere(void)
{
	uint64_t word = 0;

	return gpu->cuMemcpyHtoD(0, &word, sizeof(word));
}

static const struct misuse {
	const char *name;
	CUresult (*run)(void);
	CUresult software; /* what the software GPU says */
} misuses[] = {
	{ "release_twice", release_twice, CUDA_ERROR_INVALID_VALUE },
	{ "map_released", map_released, CUDA_ERROR_INVALID_VALUE },
	{ "export_nothing", export_nothing, CUDA_ERROR_INVALID_VALUE },
	{ "free_mapped_addresses", free_mapped_addresses, CUDA_ERROR_INVALID_VALUE },
	{ "free_half_the_addresses", free_half_the_addresses, CUDA_ERROR_INVALID_VALUE },
	{ "unmap_twice", unmap_twice, CUDA_ERROR_INVALID_VALUE },
	{ "unmap_first_part", unmap_first_part, CUDA_ERROR_INVALID_VALUE },
	{ "unmap_last_part", unmap_last_part, CUDA_ERROR_INVALID_VALUE },
	{ "retain_unmapped", retain_unmapped, CUDA_ERROR_INVALID_VALUE },
	{ "access_to_a_hole", access_to_a_hole, CUDA_ERROR_INVALID_VALUE },
	{ "free_twice", free_twice, CUDA_ERROR_INVALID_VALUE },
	{ "unregister_unknown", unregister_unknown, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED },
	{ "register_nothing", register_nothing, CUDA_ERROR_INVALID_VALUE },
	{ "copy_from_nowhere", copy_from_nowhere, CUDA_ERROR_INVALID_VALUE },
};

static int run_misuser(int sock)
{
	uint64_t i;

	conf_context();
	i = conf_recv(sock, NULL) - 1;
	check(i < MM_ARRAY_SIZE(misuses));
	conf_send(sock, 1 + (uint64_t)misuses[i].run(), -1);
	/* Leftovers of a wrong call are not cleaned up. */
	_exit(0);
}

static void test_misuse(void **state)
{
	char name[96];

	(void)state;
	conf_init();
	for (size_t i = 0; i < MM_ARRAY_SIZE(misuses); i++) {
		struct conf_peer peer = conf_spawn("misuser");
		uint64_t said;
		int status;

		conf_send(peer.sock, i + 1, -1);
		said = conf_recv(peer.sock, NULL);
		status = conf_join(&peer);
		snprintf(name, sizeof(name), "misuse.%s", misuses[i].name);
		if (said)
			conf_fact_result(name, (CUresult)(said - 1));
		else
			conf_fact_text(name, "the process ended with %d", status);
		if (conf.software && said != 1 + (uint64_t)misuses[i].software)
			fail_msg("%s: %d", misuses[i].name, (int)said - 1);
	}
}

/* Whatever they did, the device serves others. */
static void test_afterwards(void **state)
{
	CUdeviceptr va;

	(void)state;
	conf_context();
	ok(gpu->cuMemAlloc(&va, 4096));
	ok(gpu->cuMemsetD32Async(va, 1, 16, NULL));
	ok(gpu->cuCtxSynchronize());
	ok(gpu->cuMemFree(va));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_misuse),
	cmocka_unit_test(test_afterwards),
};

static const struct conf_role roles[] = { { "misuser", run_misuser }, { NULL, NULL } };

CONF_MAIN("misuse", tests, roles)
