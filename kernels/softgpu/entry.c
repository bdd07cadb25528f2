/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/fault.h"
#include "kernels/softgpu/inject.h"
#include "kernels/softgpu/op.h"
#include "kernels/softgpu/vm.h"
#include "libclient/base/base.h"
#include "libclient/support/lock.h"

enum state { FRESH, READY, FORKED, ENDED };

static enum state state; /* atomic */
static struct mm_lock init_lock = MM_LOCK_INIT;
static bool fork_watched MM_GUARDED_BY(init_lock);

static enum state entry_state(void)
{
	return __atomic_load_n(&state, __ATOMIC_ACQUIRE);
}

/*
 * The child does not have the threads that may hold locks, so that every later call in it must fail
 * before it takes one.
 */
static void after_fork_in_child(void)
{
	if (entry_state() == READY)
		__atomic_store_n(&state, FORKED, __ATOMIC_RELEASE);
}

CUresult sg_enter(const char *entry, enum sg_entry_needs needs)
{
	enum state s = entry_state();

	if (s == FORKED)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (s == ENDED)
		return CUDA_ERROR_DEINITIALIZED;
	if (needs == SG_INITIALISED && s != READY)
		return CUDA_ERROR_NOT_INITIALIZED;
	return sg_inject(entry);
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
	CUresult res = CUDA_SUCCESS;

	SG_TRY(sg_enter(__func__, SG_ALWAYS));
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&init_lock);
	if (entry_state() == FRESH) {
		res = sg_devices_open();
		if (!res && !fork_watched)
			fork_watched = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
		if (!res)
			__atomic_store_n(&state, READY, __ATOMIC_RELEASE);
	}
	mm_lock_give(&init_lock);
	if (!res)
		sg_fault_install();
	return res;
}

/*
 * The kernel frees this process's descriptors when it ends, but a page without a holder is removed
 * only by the next process that counts, which may be long after. So pages are dropped while this
 * process can.
 */
__attribute__((destructor)) static void pages_release_at_exit(void)
{
	uint64_t used;

	if (entry_state() != READY)
		return;
	__atomic_store_n(&state, ENDED, __ATOMIC_RELEASE);
	/* A running kernel may have threads of its own, whose faults no guard would catch. */
	if (!sg_op_any_kernel())
		sg_vm_drop_all();
	for (unsigned int i = 0; i < sg_device_count(); i++)
		sg_device_used(i, &used);
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = SG_DRIVER_VERSION;
	return CUDA_SUCCESS;
}

/* ---- cuGetProcAddress ---- */

static const struct entry {
	const char *base;
	int version;
	void *fn;
} entries[] = {
#define ROW(base, version, symbol, params) { #base, version, (void *)symbol },
	SG_ENTRIES(ROW)
#undef ROW
};

/* Return: the entry of the newest ABI that is not newer than @version. */
static const struct entry *find_entry(const char *base, int version, bool *ret_exists)
{
	const struct entry *best = NULL;

	*ret_exists = false;
	for (size_t i = 0; i < MM_ARRAY_SIZE(entries); i++) {
		const struct entry *e = &entries[i];

		if (strcmp(e->base, base) != 0)
			continue;
		*ret_exists = true;
		if (e->version <= version && (!best || e->version > best->version))
			best = e;
	}
	return best;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **fn, int version, cuuint64_t flags,
				     CUdriverProcAddressQueryResult *status)
{
	const struct entry *e;
	bool exists;

	if (!name || !*name || !fn || version <= 0 || version > SG_DRIVER_VERSION ||
	    flags > (CU_GET_PROC_ADDRESS_LEGACY_STREAM |
		     CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		return CUDA_ERROR_INVALID_VALUE;
	e = find_entry(name, version, &exists);
	*fn = NULL;
	if (e) {
		*fn = e->fn;
		if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
			*fn = sg_per_thread_variant(e->fn);
	}
	if (status)
		*status = e        ? CU_GET_PROC_ADDRESS_SUCCESS
			  : exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				   : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

/* The first ABI has no status to return: a missing entry is an error. */
CUresult CUDAAPI cuGetProcAddress(const char *name, void **fn, int version, cuuint64_t flags)
{
	SG_TRY(cuGetProcAddress_v2(name, fn, version, flags, NULL));
	return *fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
