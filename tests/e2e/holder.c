/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds so many bytes of the first device, or only its context, until its standard input ends:
 * somebody who is not mmd's.
 */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "mm/gpu.h"

int main(int argc, char **argv)
{
	struct mm_gpu_api gpu = { 0 };
	char err[256] = "";
	CUcontext ctx;
	unsigned long long bytes;
	CUdeviceptr va;

	assert(argc == 2);
	bytes = strtoull(argv[1], NULL, 10);
	if (mm_gpu_open("software", &gpu, err, sizeof(err)) < 0 ||
	    mm_gpu_init(&gpu, err, sizeof(err)) < 0) {
		fprintf(stderr, "%s\n", err);
		return 1;
	}
	assert(gpu.cuDevicePrimaryCtxRetain(&ctx, 0) == CUDA_SUCCESS);
	assert(gpu.cuCtxSetCurrent(ctx) == CUDA_SUCCESS);
	assert(!bytes || gpu.cuMemAlloc(&va, bytes) == CUDA_SUCCESS);
	puts("held");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
