/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.cu as C, for the software GPU: one thread that is the whole grid. */
#include <time.h>

#include "kernels/host/kernel.h"
#include "tests/conformance/kernels.h"

#define FUNCTION static
/* For accesses that race with an unmap on purpose. */
#define RACES        __attribute__((noinline, no_sanitize("thread")))
#define KERNEL(name) static void name(struct name##_args a)
#define FIRST        0
#define STEP         1

FUNCTION uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

FUNCTION void add(uint64_t va, uint64_t value)
{
	__atomic_fetch_add((uint64_t *)(uintptr_t)va, value, __ATOMIC_RELAXED);
}

FUNCTION void publish(uint64_t va)
{
	__atomic_store_n((uint32_t *)(uintptr_t)va, 1, __ATOMIC_RELEASE);
}

FUNCTION uint32_t look(uint64_t va)
{
	return __atomic_load_n((const uint32_t *)(uintptr_t)va, __ATOMIC_ACQUIRE);
}

/* A kernel that waits has a processor of its own on a device; here it must leave it to others. */
FUNCTION void pause_a_little(void)
{
	const struct timespec nap = { .tv_nsec = 50000 };

	nanosleep(&nap, NULL);
}

#include "tests/conformance/kernels.cu"

#define HOST(name)                                                                      \
	static void host_##name(const struct mm_host_launch *launch, void *const *args) \
	{                                                                               \
		(void)launch;                                                           \
		name(*(const struct name##_args *)args[0]);                             \
	}

HOST(conf_loop)
HOST(conf_fill)
HOST(conf_count)

#define ENTRY(kernel)                                                    \
	{                                                                \
		.name = #kernel, .fn = host_##kernel, .n_args = 1,       \
		.arg_bytes = { (uint16_t)sizeof(struct kernel##_args) }, \
	}

const struct mm_host_kernel mm_host_kernels[] = {
	ENTRY(conf_loop),
	ENTRY(conf_fill),
	ENTRY(conf_count),
	{ .name = NULL },
};
