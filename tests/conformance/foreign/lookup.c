/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that links no driver: it loads libcuda.so.1 and asks cuGetProcAddress for everything,
 * as the CUDA runtime, NCCL and PyTorch do, with the types of cudaTypedefs.h. It tells what is
 * missing from what is too new, and uses what is there. It knows nothing of this project.
 */
#include <cuda.h>
#include <cudaTypedefs.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/foreign/check.h"

static PFN_cuGetProcAddress_v12000 get;

static void *find(const char *name, int version)
{
	CUdriverProcAddressQueryResult status;
	void *fn = NULL;

	REQUIRE(get(name, &fn, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS);
	REQUIRE((status == CU_GET_PROC_ADDRESS_SUCCESS) == (fn != NULL));
	return fn;
}

#define LOAD(name, version)                             \
	do {                                            \
		*(void **)&name = find(#name, version); \
		REQUIRE(name);                          \
	} while (0)

#undef cuMemAlloc
#undef cuMemFree
#undef cuMemcpyHtoD
#undef cuMemcpyDtoH
#undef cuMemGetInfo
#undef cuCtxDestroy
#undef cuCtxCreate

static PFN_cuInit_v2000 p_cuInit;

int main(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	PFN_cuMemAlloc_v3020 cuMemAlloc;
	PFN_cuMemFree_v3020 cuMemFree;
	PFN_cuMemcpyHtoD_v3020 cuMemcpyHtoD;
	PFN_cuMemcpyDtoH_v3020 cuMemcpyDtoH;
	PFN_cuMemGetInfo_v3020 cuMemGetInfo;
	PFN_cuCtxCreate_v3020 cuCtxCreate;
	PFN_cuCtxDestroy_v4000 cuCtxDestroy;
	CUdriverProcAddressQueryResult status;
	char out[1000], in[1000] = { 0 };
	size_t free_bytes, total_bytes;
	CUdeviceptr mem;
	CUcontext ctx;
	void *fn;

	REQUIRE(lib);
	*(void **)&get = dlsym(lib, "cuGetProcAddress_v2");
	REQUIRE(get);
	*(void **)&p_cuInit = find("cuInit", 2000);
	LOAD(cuMemAlloc, 3020);
	LOAD(cuMemFree, 3020);
	LOAD(cuMemcpyHtoD, 3020);
	LOAD(cuMemcpyDtoH, 3020);
	LOAD(cuMemGetInfo, 3020);
	LOAD(cuCtxCreate, 3020);
	LOAD(cuCtxDestroy, 4000);
	/* A default stream per thread is another function behind the same name. */
	REQUIRE(get("cuMemcpyHtoD", &fn, 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
		    &status) == CUDA_SUCCESS);
	REQUIRE(fn && fn != (void *)cuMemcpyHtoD);
	REQUIRE(get("cuNobodyHasThis", &fn, 12000, 0, &status) == CUDA_SUCCESS);
	REQUIRE(!fn && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	REQUIRE(get("cuMemCreate", &fn, 9000, 0, &status) == CUDA_SUCCESS);
	REQUIRE(!fn && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	memset(out, 0x3c, sizeof(out));
	REQUIRE(p_cuInit(0) == CUDA_SUCCESS);
	REQUIRE(cuMemAlloc(&mem, 1) == CUDA_ERROR_INVALID_CONTEXT);
	REQUIRE(cuCtxCreate(&ctx, 0, 0) == CUDA_SUCCESS);
	REQUIRE(cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS);
	REQUIRE(free_bytes <= total_bytes);
	REQUIRE(cuMemAlloc(&mem, sizeof(out)) == CUDA_SUCCESS);
	REQUIRE(cuMemcpyHtoD(mem, out, sizeof(out)) == CUDA_SUCCESS);
	REQUIRE(cuMemcpyDtoH(in, mem, sizeof(in)) == CUDA_SUCCESS);
	REQUIRE(memcmp(in, out, sizeof(in)) == 0);
	REQUIRE(cuMemFree(mem) == CUDA_SUCCESS);
	REQUIRE(cuCtxDestroy(ctx) == CUDA_SUCCESS);
	puts("ok");
	return 0;
}
