/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host kernel - a function that the software GPU runs in place of a CUDA kernel
 *
 * Concept:   a module of host kernels is a shared object that exports one array, mm_host_kernels,
 *            ended by an entry without a name. cuModuleLoad() takes its path; its functions have
 *            the names of the CUDA kernels. A launch calls the function once, for the whole grid.
 * Arguments: args[i] points to a copy, made by cuLaunchKernel(), of the i-th parameter of the CUDA
 *            kernel, arg_bytes[i] long. A device address is a CUdeviceptr there, and is the host
 *            address of the same bytes.
 * Threading: called on the worker thread of a stream; kernels of several streams run at once. An
 *            access on that thread that the device's mappings do not allow never returns: the
 *            kernel is left by a long jump and the context is lost, as on hardware. So a kernel
 *            holds no lock and owns nothing while it accesses device memory.
 * Cost:      on a timed device the cost function is called instead of the kernel and under the same
 *            rules: it computes from the arguments how much the kernel would move and do. It may
 *            read data that small copies put into device memory (positions, lengths), never bulk
 *            data. A kernel without a cost function takes the least time of a kernel.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/timing/cost.h"

#define MM_HOST_ARGS_MAX       24
#define MM_HOST_KERNELS_SYMBOL "mm_host_kernels"
#define MM_HOST_FAULT_SYMBOL   "mm_host_fault"

struct mm_host_launch {
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
};

typedef void mm_host_kernel_fn(const struct mm_host_launch *launch, void *const *args);
typedef void mm_host_cost_fn(const struct mm_host_launch *launch, void *const *args,
			     struct mm_cost *ret);

struct mm_host_kernel {
	const char *name; /* NULL ends the array */
	mm_host_kernel_fn *fn;
	mm_host_cost_fn *cost; /* cost function, or NULL */
	uint8_t n_args;
	uint16_t arg_bytes[MM_HOST_ARGS_MAX];
};

/* Each module defines this table, which is exported whatever -fvisibility is. */
extern __attribute__((visibility("default"))) const struct mm_host_kernel mm_host_kernels[];

/*
 * A module whose kernels run on stacks of their own defines this, too. It is called in the signal's
 * handler, on the thread of a kernel that is about to be left by a long jump. It switches to the
 * thread's own stack and faults there again; if that stack is the running one, it returns.
 */
extern __attribute__((visibility("default"))) void mm_host_fault(void);
