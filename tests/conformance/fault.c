/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device accesses that are not allowed. On hardware each is an Xid 31 that takes the context, and
 * under MPS those of others, with it: so each runs in a process of its own.
 */
#include "tests/conformance/conf.h"

#include <sys/mman.h>
#include <unistd.h>

#define gpu (&conf.gpu)

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
static const CUmemAccess_flags RO = CU_MEM_ACCESS_FLAGS_PROT_READ;
static const CUmemAccess_flags NONE = CU_MEM_ACCESS_FLAGS_PROT_NONE;

static bool is_fatal(CUresult res)
{
	return res == CUDA_ERROR_ILLEGAL_ADDRESS || res == CUDA_ERROR_LAUNCH_FAILED;
}

/*
 * A copy or a fill may be refused at once, or fault when it runs; it may not succeed. Once it has
 * faulted, nothing on the context works again.
 */
static int expect_lost(CUresult submitted, CUstream stream)
{
	CUresult res = submitted ? submitted : gpu->cuStreamSynchronize(stream);
	CUdeviceptr va;

	if (submitted == CUDA_ERROR_INVALID_VALUE && !conf.software)
		return 0;
	check(is_fatal(res));
	check(gpu->cuStreamSynchronize(stream) == res);
	check(gpu->cuCtxSynchronize() == res);
	check(gpu->cuStreamQuery(stream) == res);
	check(gpu->cuMemAlloc(&va, 4096) == res);
	check(gpu->cuMemsetD8Async(0, 0, 1, stream) == res);
	return 0;
}

static int access_before_set(int sock)
{
	CUdeviceptr va;

	(void)sock;
	conf_context();
	va = conf_reserve(conf.granule);
	ok(gpu->cuMemMap(va, conf.granule, 0, conf_create(conf.granule), 0));
	return expect_lost(gpu->cuMemsetD32Async(va, 1, 16, NULL), NULL);
}

static int access_unmapped(int sock)
{
	CUstream stream;
	CUdeviceptr va;

	(void)sock;
	conf_context();
	stream = conf_stream();
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), RW);
	ok(gpu->cuMemsetD32Async(va, 1, 16, stream));
	ok(gpu->cuStreamSynchronize(stream));
	ok(gpu->cuMemUnmap(va, conf.granule));
	return expect_lost(gpu->cuMemsetD32Async(va, 1, 16, stream), stream);
}

static int write_read_only(int sock)
{
	CUdeviceptr va;
	uint32_t seen;

	(void)sock;
	conf_context();
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), RO);
	ok(gpu->cuMemcpyDtoH(&seen, va, sizeof(seen)));
	return expect_lost(gpu->cuMemsetD32Async(va, 1, 16, NULL), NULL);
}

static int access_taken_away(int sock)
{
	CUdeviceptr va;
	uint32_t seen;

	(void)sock;
	conf_context();
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), RW);
	ok(gpu->cuMemsetD32Async(va, 1, 16, NULL));
	ok(gpu->cuCtxSynchronize());
	conf_access(va, conf.granule, NONE);
	return expect_lost(gpu->cuMemcpyDtoH(&seen, va, sizeof(seen)), NULL);
}

/* Unmapping waits for nobody: what is queued behind a wait finds nothing there. */
static int unmap_does_not_drain(int sock)
{
	void *page = conf_shared(4096, NULL);
	CUdeviceptr va, flag;
	CUstream stream;

	(void)sock;
	conf_context();
	stream = conf_stream();
	flag = conf_register(page, 4096, 0);
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), RW);
	ok(gpu->cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	ok(gpu->cuMemsetD32Async(va, 1, 16, stream));
	ok(gpu->cuMemUnmap(va, conf.granule));
	__atomic_store_n((uint32_t *)page, 1, __ATOMIC_RELEASE);
	return expect_lost(CUDA_SUCCESS, stream);
}

/* Nothing that was queued behind the fault runs: no flag is raised over bytes that are not there. */
static int nothing_runs_after(int sock)
{
	uint64_t *page = conf_shared(4096, NULL);
	CUdeviceptr va, flag;
	CUstream stream;
	CUresult res;

	(void)sock;
	conf_context();
	stream = conf_stream();
	flag = conf_register(page, 4096, 0);
	va = conf_reserve(conf.granule);
	ok(gpu->cuMemMap(va, conf.granule, 0, conf_create(conf.granule), 0));
	res = gpu->cuMemsetD32Async(va, 1, 16, stream);
	if (!res)
		gpu->cuStreamWriteValue64(stream, flag, 1, 0);
	expect_lost(res, stream);
	check(__atomic_load_n(page, __ATOMIC_ACQUIRE) == 0);
	return 0;
}

static int write_read_only_host(int sock)
{
	void *page = conf_shared(4096, NULL);
	CUdeviceptr flag;

	(void)sock;
	conf_context();
	flag = conf_register(page, 4096, CU_MEMHOSTREGISTER_READ_ONLY);
	return expect_lost(gpu->cuStreamWriteValue32(NULL, flag, 1, 0), NULL);
}

/* A fault is this context's affair: another process works on, and so does the memory. */
static void test_fault(void **state)
{
	const char *role = *state;
	struct conf_peer peer = conf_spawn(role);
	CUdeviceptr va;
	int status;

	status = conf_join(&peer);
	if (status)
		fail_msg("%s: %d", role, status);
	ok(gpu->cuMemAlloc(&va, 4096));
	ok(gpu->cuMemsetD32Async(va, 1, 16, NULL));
	ok(gpu->cuCtxSynchronize());
	ok(gpu->cuMemFree(va));
}

static int set_up(void **state)
{
	(void)state;
	if (!conf.ctx)
		conf_context();
	return 0;
}

#define FAULT(name, role)                                     \
	{                                                     \
		name, test_fault, set_up, NULL, (void *)#role \
	}
static const struct CMUnitTest tests[] = {
	FAULT("access before set-access", access_before_set),
	FAULT("access after unmap", access_unmapped),
	FAULT("write to a read-only mapping", write_read_only),
	FAULT("access after it was taken away", access_taken_away),
	FAULT("unmap does not drain", unmap_does_not_drain),
	FAULT("nothing runs after a fault", nothing_runs_after),
	FAULT("write to read-only registered memory", write_read_only_host),
};

static const struct conf_role roles[] = {
	{ "access_before_set", access_before_set },
	{ "access_unmapped", access_unmapped },
	{ "write_read_only", write_read_only },
	{ "access_taken_away", access_taken_away },
	{ "unmap_does_not_drain", unmap_does_not_drain },
	{ "nothing_runs_after", nothing_runs_after },
	{ "write_read_only_host", write_read_only_host },
	{ NULL, NULL },
};

CONF_MAIN("fault", tests, roles)
