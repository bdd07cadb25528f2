/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels/softgpu/timed.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "mm/softgpu.h"
#include "tests/conformance/conf.h"

#define gpu (&conf.gpu)

static mm_softgpu_event_ns_fn *event_ns;

void *timed_symbol(const char *name)
{
	void *fn = dlsym(gpu->library, name);

	check(fn != NULL);
	return fn;
}

void timed_open(void)
{
	unsetenv("MM_SOFTGPU_MEMORY"); /* what the profile says */
	conf_context();
	*(void **)&event_ns = timed_symbol(MM_SOFTGPU_EVENT_SYMBOL);
}

CUevent timed_event(void)
{
	CUevent event;

	ok(gpu->cuEventCreate(&event, CU_EVENT_DEFAULT));
	return event;
}

CUevent timed_record(CUstream stream)
{
	CUevent event = timed_event();

	ok(gpu->cuEventRecord(event, stream));
	return event;
}

uint64_t timed_ns(CUevent event)
{
	uint64_t ns = 0;

	ok(gpu->cuEventSynchronize(event));
	check(event_ns(event, &ns) == 0);
	return ns;
}

static void CUDA_CB gate_wait(void *gate)
{
	while (!__atomic_load_n((uint32_t *)gate, __ATOMIC_ACQUIRE))
		usleep(500);
}

void timed_hold(CUstream stream, uint32_t *gate)
{
	ok(gpu->cuLaunchHostFunc(stream, gate_wait, gate));
}

void timed_gate_open(uint32_t *gate)
{
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

void timed_gate_close(uint32_t *gate)
{
	__atomic_store_n(gate, 0, __ATOMIC_RELEASE);
}
