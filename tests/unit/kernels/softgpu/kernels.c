/* SPDX-License-Identifier: Apache-2.0 */
/* Host kernels for the tests. */
#include <time.h>

#include "kernels/host/kernel.h"
#include "mm/gpu.h"

struct odd {
	char bytes[12];
};

static void saxpy(const struct mm_host_launch *launch, void *const *args)
{
	const float *x = (const float *)(uintptr_t) * (const CUdeviceptr *)args[1];
	float *y = (float *)(uintptr_t) * (const CUdeviceptr *)args[2];
	uint32_t n = *(const uint32_t *)args[3];
	float a = *(const float *)args[0];

	(void)launch;
	for (uint32_t i = 0; i < n; i++)
		y[i] = a * x[i] + y[i];
}

/* Writes its shape and its arguments down. */
static void report(const struct mm_host_launch *launch, void *const *args)
{
	uint32_t *out = (uint32_t *)(uintptr_t) * (const CUdeviceptr *)args[3];

	for (int i = 0; i < 3; i++) {
		out[i] = launch->grid[i];
		out[3 + i] = launch->block[i];
	}
	out[6] = launch->shared_bytes;
	out[7] = *(const uint8_t *)args[0];
	out[8] = *(const uint16_t *)args[1];
	out[9] = (uint32_t)((const struct odd *)args[2])->bytes[11];
}

static void store(const struct mm_host_launch *launch, void *const *args)
{
	(void)launch;
	*(volatile uint32_t *)(uintptr_t) * (const CUdeviceptr *)args[0] = 1;
}

/* Takes the time of as many bytes as it is told. */
static void spend(const struct mm_host_launch *launch, void *const *args)
{
	(void)launch;
	(void)args;
}

static void spend_cost(const struct mm_host_launch *launch, void *const *args, struct mm_cost *ret)
{
	(void)launch;
	ret->bytes = (double)*(const uint64_t *)args[0];
}

/* As many bytes as the device memory says that the argument points to. */
static void peek_cost(const struct mm_host_launch *launch, void *const *args, struct mm_cost *ret)
{
	(void)launch;
	ret->bytes = (double)*(volatile const uint64_t *)(uintptr_t) * (const CUdeviceptr *)args[0];
}

static void nothing(const struct mm_host_launch *launch, void *const *args)
{
	(void)launch;
	(void)args;
}

const struct mm_host_kernel mm_host_kernels[] = {
	{ "saxpy", saxpy, NULL, 4, { 4, 8, 8, 4 } },
	{ "report", report, NULL, 4, { 1, 2, sizeof(struct odd), 8 } },
	{ "store", store, NULL, 1, { 8 } },
	{ "spend", spend, spend_cost, 1, { 8 } },
	{ "peek", spend, peek_cost, 1, { 8 } },
	{ "nothing", nothing, NULL, 0, { 0 } },
	{ NULL, NULL, NULL, 0, { 0 } },
};
