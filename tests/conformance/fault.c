/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device accesses that are not allowed, by the driver's own copies and fills and by kernels. On
 * hardware each is an Xid 31 that takes the context, and under MPS those of others, with it: so
 * each runs in a process of its own, while this one has work of its own on the device.
 */
#include "tests/conformance/conf.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/kernels.h"

#define gpu (&conf.gpu)

#define PAGE      4096u
#define BY_DRIVER 1
#define BY_KERNEL 2
/*
 * Longer than it takes to disturb it: on the software GPU, which may be slow, it ends by that
 * alone.
 */
#define KERNEL_NS ((conf.software ? 300 : 2) * MM_NS_PER_S)

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
static const CUmemAccess_flags RO = CU_MEM_ACCESS_FLAGS_PROT_READ;
static const CUmemAccess_flags NONE = CU_MEM_ACCESS_FLAGS_PROT_NONE;

static const char *role_name; /* for facts */
static bool by_kernel;
static uint64_t *words; /* host memory: a kernel's start, flags */
static CUdeviceptr words_va, rounds_va;
static CUfunction loop;

/* ---- What the roles are made of ---- */

static void fault_begin(int sock, const char *name)
{
	role_name = name;
	by_kernel = conf_recv(sock, NULL) == BY_KERNEL;
	conf_context();
	if (by_kernel)
		loop = conf_kernel("conf_loop");
	words = conf_shared(PAGE, NULL);
	words_va = conf_register(words, PAGE, 0);
	rounds_va = conf_zeroed(8);
}

static void loop_launch(CUdeviceptr va, size_t bytes, bool writes, uint64_t ns, CUstream stream)
{
	const struct conf_loop_args args = { .started_va = words_va + 8,
					     .va = va,
					     .bytes = bytes,
					     .rounds_va = rounds_va,
					     .ns = ns,
					     .writes = writes };

	conf_launch(loop, 1, 1, stream, &args);
}

static CUresult range_touch(CUdeviceptr va, bool writes, CUstream stream)
{
	uint32_t seen[4];

	if (by_kernel) {
		loop_launch(va, 128, writes, MM_NS_PER_MS, stream);
		return CUDA_SUCCESS;
	}
	return writes ? gpu->cuMemsetD32Async(va, 1, 16, stream)
		      : gpu->cuMemcpyDtoHAsync(seen, va, sizeof(seen), stream);
}

static void report_result(const char *what, CUresult result)
{
	char name[128];

	snprintf(name, sizeof(name), "%s%s.%s", role_name, by_kernel ? ".kernel" : "", what);
	conf_fact_result(name, result);
}

/* The software GPU has one answer; a driver may say which kind of loss it was in several ways. */
static bool is_loss(CUresult res, CUresult first)
{
	if (conf.software)
		return res == first &&
		       (res == CUDA_ERROR_ILLEGAL_ADDRESS || res == CUDA_ERROR_LAUNCH_FAILED);
	return res != CUDA_SUCCESS && res != CUDA_ERROR_NOT_READY;
}

/*
 * A copy or a fill may be refused at once, or fault when it runs; it may not succeed. Once it has
 * faulted, nothing on the context works again.
 */
static int expect_lost(CUresult submitted, CUstream stream)
{
	CUresult res = submitted ? submitted : gpu->cuStreamSynchronize(stream);
	CUdeviceptr va;

	report_result(submitted ? "submitted" : "run", res);
	if (submitted == CUDA_ERROR_INVALID_VALUE && !conf.software)
		return 0; /* refused, and nothing is lost */
	check(is_loss(res, res));
	check(is_loss(gpu->cuStreamSynchronize(stream), res));
	check(is_loss(gpu->cuStreamQuery(stream), res));
	check(is_loss(gpu->cuCtxSynchronize(), res));
	check(is_loss(gpu->cuMemsetD8Async(words_va, 0, 1, stream), res));
	submitted = gpu->cuMemAlloc(&va, 4096);
	report_result("later", submitted);
	check(is_loss(submitted, res));
	return 0;
}

/* ---- Roles ---- */

/* The role's begin: a stream, and memory that it may use with @access. */
static CUdeviceptr begin_mapped(int sock, const char *name, CUmemAccess_flags access,
				CUstream *ret_stream)
{
	CUdeviceptr va;

	fault_begin(sock, name);
	*ret_stream = conf_stream();
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), access);
	return va;
}

static int access_before_set(int sock)
{
	CUstream stream;
	CUdeviceptr va;

	fault_begin(sock, "access_before_set");
	stream = conf_stream();
	va = conf_reserve(conf.granule);
	ok(gpu->cuMemMap(va, conf.granule, 0, conf_create(conf.granule), 0));
	return expect_lost(range_touch(va, true, stream), stream);
}

static int access_unmapped(int sock)
{
	CUstream stream;
	CUdeviceptr va = begin_mapped(sock, "access_unmapped", RW, &stream);

	ok(range_touch(va, true, stream));
	ok(gpu->cuStreamSynchronize(stream));
	ok(gpu->cuMemUnmap(va, conf.granule));
	return expect_lost(range_touch(va, true, stream), stream);
}

static int write_read_only(int sock)
{
	CUstream stream;
	CUdeviceptr va = begin_mapped(sock, "write_read_only", RO, &stream);

	ok(range_touch(va, false, stream));
	ok(gpu->cuStreamSynchronize(stream));
	return expect_lost(range_touch(va, true, stream), stream);
}

static int access_taken_away(int sock)
{
	CUstream stream;
	CUdeviceptr va = begin_mapped(sock, "access_taken_away", RW, &stream);
	CUresult res;

	ok(range_touch(va, true, stream));
	ok(gpu->cuStreamSynchronize(stream));
	res = conf_try_access(va, conf.granule, NONE);
	report_result("set_access_none", res);
	if (res && !conf.software)
		return 0; /* not to be had from this driver, and not relied on */
	ok(res);
	return expect_lost(range_touch(va, false, stream), stream);
}

/* Unmapping waits for nobody: what is queued behind a wait finds nothing there. */
static int unmap_does_not_drain(int sock)
{
	CUstream stream;
	CUdeviceptr va = begin_mapped(sock, "unmap_does_not_drain", RW, &stream);

	ok(gpu->cuStreamWaitValue32(stream, words_va + 64, 1, CU_STREAM_WAIT_VALUE_EQ));
	ok(range_touch(va, true, stream));
	ok(gpu->cuMemUnmap(va, conf.granule));
	__atomic_store_n((uint32_t *)&words[8], 1, __ATOMIC_RELEASE);
	return expect_lost(CUDA_SUCCESS, stream);
}

/* Nor for a kernel that is running: it is hit. */
static int unmap_under_kernel(int sock)
{
	uint64_t submitted, took;
	CUstream stream;
	CUdeviceptr va = begin_mapped(sock, "unmap_under_kernel", RW, &stream);

	loop_launch(va, conf.granule, false, KERNEL_NS, stream);
	while (!__atomic_load_n((uint32_t *)&words[1], __ATOMIC_ACQUIRE))
		conf_nap_ms(1);
	submitted = conf_now_ns();
	ok(gpu->cuMemUnmap(va, conf.granule));
	took = conf_now_ns() - submitted;
	conf_fact("unmap_under_kernel.took", "us", (double)took / 1e3);
	/*
	 * A driver that waits for the kernel harms nobody; the software GPU is as bad as it may be.
	 */
	if (took > KERNEL_NS / 2 && !conf.software && !gpu->cuStreamSynchronize(stream)) {
		conf_fact_text("unmap_under_kernel.run", "unmap waited for the kernel");
		return 0;
	}
	return expect_lost(CUDA_SUCCESS, stream);
}

/*
 * Nothing that was queued behind the fault runs: no flag is raised over bytes that are not there.
 */
static int nothing_runs_after(int sock)
{
	CUdeviceptr va;
	CUstream stream;
	CUresult res;

	fault_begin(sock, "nothing_runs_after");
	stream = conf_stream();
	va = conf_reserve(conf.granule);
	ok(gpu->cuMemMap(va, conf.granule, 0, conf_create(conf.granule), 0));
	res = range_touch(va, true, stream);
	if (!res)
		gpu->cuStreamWriteValue64(stream, words_va + 64, 1, 0);
	expect_lost(res, stream);
	check(__atomic_load_n(&words[8], __ATOMIC_ACQUIRE) == 0);
	return 0;
}

/* Host memory that a process can only read: its device cannot write it either. */
static int write_sealed_host(int sock)
{
	uint64_t *page, *read_only;
	CUstream stream;
	CUdeviceptr va;
	CUresult res = CUDA_SUCCESS;
	int fd;

	fault_begin(sock, "write_sealed_host");
	conf_needs_read_only();
	stream = conf_stream();
	page = conf_shared(PAGE, &fd);
	page[0] = 0x7777;
	check(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
	read_only = conf_shared_from(fd, PAGE, PROT_READ);
	va = conf_register(read_only, PAGE, CU_MEMHOSTREGISTER_READ_ONLY);
	if (by_kernel)
		loop_launch(va, 128, true, MM_NS_PER_MS, stream);
	else
		res = gpu->cuStreamWriteValue32(stream, va, 1, 0);
	expect_lost(res, stream);
	check(__atomic_load_n(page, __ATOMIC_ACQUIRE) == 0x7777);
	return 0;
}

/* ---- Tests ---- */

struct fault {
	const char *role;
	uint64_t by;
};

/* A fault is its context's affair: this process works on, what it has running ends as it should. */
static void test_fault(void **state)
{
	const struct fault *f = *state;
	struct conf_peer peer;
	CUstream stream = conf_stream();
	uint64_t *page = conf_shared(PAGE, NULL);
	CUdeviceptr page_va = conf_register(page, PAGE, 0), va = conf_zeroed(4096);
	int status;

	if (conf_attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED))
		conf_skip("under MPS a fault takes every client with it");
	if (conf_has_kernels()) {
		const struct conf_loop_args args = { .flag_va = page_va + 64,
						     .rounds_va = va + 1024,
						     .ns = 10 * MM_NS_PER_S,
						     .stop = 1 };

		conf_launch(conf_kernel("conf_loop"), 1, 1, stream, &args);
	}
	ok(gpu->cuStreamWaitValue32(stream, page_va + 64, 1, CU_STREAM_WAIT_VALUE_EQ));
	ok(gpu->cuMemsetD32Async(va, 1, 16, stream));
	peer = conf_spawn(f->role);
	conf_send(peer.sock, f->by, -1);
	status = conf_join(&peer);
	__atomic_store_n((uint32_t *)&page[8], 1, __ATOMIC_RELEASE);
	ok(gpu->cuStreamSynchronize(stream));
	ok(gpu->cuMemFree(va));
	ok(gpu->cuMemHostUnregister(page));
	if (status == CONF_SKIPPED)
		conf_skip("%s was", f->role);
	if (status)
		fail_msg("%s: %d", f->role, status);
}

#define FAULT(name, role, by)                                        \
	{                                                            \
		name, test_fault, conf_set_up, NULL, &(struct fault) \
		{                                                    \
#role, by                                    \
		}                                                    \
	}
#define BOTH(name, role) FAULT(name, role, BY_DRIVER), FAULT(name " (kernel)", role, BY_KERNEL)
static const struct CMUnitTest tests[] = {
	BOTH("access before set-access", access_before_set),
	BOTH("access after unmap", access_unmapped),
	BOTH("write to a read-only mapping", write_read_only),
	BOTH("access after it was taken away", access_taken_away),
	BOTH("unmap does not drain", unmap_does_not_drain),
	FAULT("unmap under a running kernel", unmap_under_kernel, BY_KERNEL),
	BOTH("nothing runs after a fault", nothing_runs_after),
	BOTH("write to sealed registered memory", write_sealed_host),
};

static const struct conf_role roles[] = {
	{ "access_before_set", access_before_set },
	{ "access_unmapped", access_unmapped },
	{ "write_read_only", write_read_only },
	{ "access_taken_away", access_taken_away },
	{ "unmap_does_not_drain", unmap_does_not_drain },
	{ "unmap_under_kernel", unmap_under_kernel },
	{ "nothing_runs_after", nothing_runs_after },
	{ "write_sealed_host", write_sealed_host },
	{ NULL, NULL },
};

CONF_MAIN("fault", tests, roles)
