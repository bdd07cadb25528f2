/* SPDX-License-Identifier: Apache-2.0 */
/* See kernels.h. Compiled by nvcc as it is, and into kernels_host.c as C. */
#include "tests/conformance/kernels.h"

#ifdef __CUDACC__

#define FUNCTION     static __device__
#define KERNEL(name) extern "C" __global__ void name(struct name##_args a)
#define RACES
#define FIRST ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP  ((uint64_t)gridDim.x * blockDim.x)

FUNCTION uint64_t now_ns(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

/* By all threads of a block: one addition for all of them. */
FUNCTION void add(uint64_t va, uint64_t value)
{
	static __shared__ unsigned long long sum;

	if (threadIdx.x == 0)
		sum = 0;
	__syncthreads();
	atomicAdd(&sum, (unsigned long long)value);
	__syncthreads();
	if (threadIdx.x == 0)
		atomicAdd((unsigned long long *)va, sum);
	__syncthreads();
}

FUNCTION void publish(uint64_t va)
{
	*(volatile uint32_t *)va = 1;
	__threadfence_system();
}

FUNCTION uint32_t look(uint64_t va)
{
	return *(volatile uint32_t *)va;
}

FUNCTION void pause_a_little(void)
{
}

#endif

FUNCTION uint64_t pattern(uint64_t seed, uint64_t i)
{
	return (((i + 1) * 0x9e3779b97f4a7c15u) ^ (seed * 0xbf58476d1ce4e5b9u)) | 1;
}

FUNCTION float compute(float x)
{
	for (int i = 0; i < 256; i++)
		x = x * 0.999f + 0.5f;
	return x;
}

RACES FUNCTION uint64_t read_word(uint64_t va, uint64_t i)
{
	return ((volatile uint64_t *)va)[i];
}

RACES FUNCTION void write_word(uint64_t va, uint64_t i, uint64_t value)
{
	((volatile uint64_t *)va)[i] = value;
}

KERNEL(conf_loop)
{
	const uint64_t first = FIRST, step = STEP, words = a.bytes / 8, begin = now_ns();
	uint64_t rounds = 0, sum = 0;
	float x = 1;

	if (first == 0 && a.started_va)
		publish(a.started_va);
	/* What is to be touched is, however long somebody else had the processor. */
	while ((!rounds || now_ns() - begin < a.ns) && !(a.flag_va && look(a.flag_va) == a.stop)) {
		if (!words)
			x = compute(x);
		else if (a.writes)
			write_word(a.va, (first + rounds * step) % words, rounds);
		else
			sum += read_word(a.va, (first + rounds * step) % words);
		rounds++;
		pause_a_little();
	}
	/* Never so, but the compiler does not know. */
	if (x < 0 || (sum && rounds == 0))
		rounds = 0;
	add(a.rounds_va, rounds);
}

KERNEL(conf_fill)
{
	const uint64_t first = FIRST, step = STEP;

	for (uint64_t i = first; i < a.words; i += step)
		((uint64_t *)a.va)[i] = pattern(a.seed, i);
}

KERNEL(conf_count)
{
	const uint64_t first = FIRST, step = STEP;
	uint64_t same = 0, set = 0;

	for (uint64_t i = first; i < a.words; i += step) {
		uint64_t word = ((volatile uint64_t *)a.va)[i];

		same += word == pattern(a.seed, i);
		set += word != 0;
	}
	add(a.ret_va, same);
	add(a.ret_va + 8, set);
}
