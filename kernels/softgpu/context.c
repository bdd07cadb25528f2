/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/context.h"
#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/event.h"
#include "kernels/softgpu/host.h"
#include "kernels/softgpu/module.h"
#include "kernels/softgpu/stream.h"
#include "kernels/softgpu/vm.h"
#include "libclient/base/base.h"

#define STACK_MAX    64
#define API_VERSION  3020
#define PRIORITY_MIN 0
#define PRIORITY_MAX (-5)

/* The calling thread's current contexts, each a reference. */
static __thread struct {
	struct sg_context *items[STACK_MAX];
	unsigned int n;
	bool registered; /* stack_key has a value: references are dropped when the thread ends */
} stack __attribute__((tls_model("initial-exec")));

static pthread_key_t stack_key;
static pthread_once_t stack_once = PTHREAD_ONCE_INIT;

static struct mm_lock primary_lock = MM_LOCK_INIT;
static struct primary {
	struct sg_context *ctx; /* NULL until it is first retained; then the same for ever */
	unsigned int retained MM_GUARDED_BY(primary_lock);
	unsigned int flags MM_GUARDED_BY(primary_lock);
} primaries[SG_DEVICES_MAX]; /* by ordinal of the device */

static uint64_t last_context_id; /* atomic */

static bool context_device_is_valid(CUdevice device)
{
	return device >= 0 && (unsigned int)device < sg_device_count();
}

/* ---- One context ---- */

static void destroy_context(struct sg_object *object)
{
	struct sg_context *ctx = (struct sg_context *)object;

	sg_context_mutex_destroy(&ctx->mtx);
	sg_context_clearing_destroy(&ctx->clearing);
	free(ctx);
}

static struct sg_context *create_context(unsigned int device, unsigned int flags, bool is_primary)
{
	struct sg_context *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	sg_object_init(&ctx->object, SG_CONTEXT, destroy_context);
	ctx->device = device;
	ctx->flags = flags;
	ctx->api_version = API_VERSION;
	ctx->id = __atomic_add_fetch(&last_context_id, 1, __ATOMIC_RELAXED);
	ctx->primary = is_primary;
	sg_context_mutex_init(&ctx->mtx);
	sg_context_clearing_init(&ctx->clearing);
	sg_object_publish(&ctx->object);
	return ctx;
}

bool sg_context_is_ending(const struct sg_context *ctx)
{
	return __atomic_load_n(&ctx->stopping, __ATOMIC_ACQUIRE);
}

CUresult sg_context_error(const struct sg_context *ctx)
{
	return (CUresult)__atomic_load_n(&ctx->error, __ATOMIC_ACQUIRE);
}

void sg_context_fault(struct sg_context *ctx, CUresult error)
{
	int none = CUDA_SUCCESS;

	/* Only the first error is kept. */
	__atomic_compare_exchange_n(&ctx->error, &none, (int)error, false, __ATOMIC_ACQ_REL,
				    __ATOMIC_ACQUIRE);
}

/* Return: the oldest stream with an id above @after, as a reference; NULL if there is none. */
static struct sg_stream *context_next_stream(struct sg_context *ctx, uint64_t after)
{
	struct sg_stream *next = NULL;

	sg_context_mutex_take(&ctx->mtx);
	for (struct sg_stream *s = ctx->streams; s; s = s->next)
		if (s->id > after && (!next || s->id < next->id))
			next = s;
	if (next)
		sg_object_ref(&next->object);
	sg_context_mutex_give(&ctx->mtx);
	return next;
}

CUresult sg_context_synchronize(struct sg_context *ctx)
{
	struct sg_stream *s;
	uint64_t id = 0;

	while ((s = context_next_stream(ctx, id))) {
		id = s->id;
		sg_stream_synchronize(s);
		sg_stream_put(s);
	}
	return sg_context_error(ctx);
}

/*
 * Default streams are not published; the context holds their first reference. Return: whether @s
 * was a default stream; then that reference is now the caller's.
 */
static bool context_disown_default(struct sg_context *ctx, struct sg_stream *s)
{
	struct sg_stream *legacy = s;
	bool is_default;

	sg_context_mutex_take(&ctx->mtx);
	is_default = s->thread != 0;
	s->thread = 0;
	sg_context_mutex_give(&ctx->mtx);
	return is_default || __atomic_compare_exchange_n(&ctx->legacy, &legacy, NULL, false,
							 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/*
 * Drops queued work and waits for running work; then frees all that belongs to the context, as
 * cuda.h lists it at cuCtxDestroy(). Memory of cuMemCreate() belongs to no context.
 */
static void clear_context(struct sg_context *ctx)
{
	struct sg_stream *s;
	uint64_t id = 0;

	__atomic_store_n(&ctx->stopping, true, __ATOMIC_RELEASE);
	while ((s = context_next_stream(ctx, id))) {
		id = s->id;
		sg_stream_synchronize(s);
		if (sg_object_retract(s, SG_STREAM) || context_disown_default(ctx, s))
			sg_stream_close(s);
		sg_stream_put(s);
	}
	sg_events_end(ctx);
	sg_modules_end(ctx);
	sg_vm_free_owned(ctx);
	sg_host_free_owned(ctx);
}

/* ---- The stack of current contexts ---- */

static void stack_drop(void *unused)
{
	(void)unused;
	while (stack.n)
		sg_object_put(&stack.items[--stack.n]->object);
}

static void stack_key_make(void)
{
	pthread_key_create(&stack_key, stack_drop);
}

/* Takes over the caller's reference to @ctx. */
static CUresult context_push(struct sg_context *ctx)
{
	if (stack.n == STACK_MAX) {
		sg_object_put(&ctx->object);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!stack.registered) {
		pthread_once(&stack_once, stack_key_make);
		pthread_setspecific(stack_key, &stack);
		stack.registered = true;
	}
	stack.items[stack.n++] = ctx;
	return CUDA_SUCCESS;
}

CUresult sg_context_current(struct sg_context **ret_ctx)
{
	struct sg_context *ctx;

	if (!stack.n)
		return CUDA_ERROR_INVALID_CONTEXT;
	ctx = stack.items[stack.n - 1];
	if (sg_context_is_ending(ctx))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	SG_TRY(sg_context_error(ctx));
	*ret_ctx = ctx;
	return CUDA_SUCCESS;
}

CUresult sg_context_unless(CUresult res)
{
	struct sg_context *ctx;

	SG_TRY(sg_context_current(&ctx));
	return res;
}

CUresult sg_context_device(unsigned int *ret_device)
{
	struct sg_context *ctx;

	SG_TRY(sg_context_current(&ctx));
	*ret_device = ctx->device;
	return CUDA_SUCCESS;
}

CUresult sg_enter_context(void)
{
	struct sg_context *ctx;

	return sg_context_current(&ctx);
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext handle)
{
	struct sg_context *ctx;

	SG_ENTER();
	ctx = sg_object_get(handle, SG_CONTEXT);
	return ctx ? context_push(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *ret)
{
	SG_ENTER();
	if (!stack.n)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ret)
		*ret = (CUcontext)stack.items[stack.n - 1];
	sg_object_put(&stack.items[--stack.n]->object);
	return CUDA_SUCCESS;
}

/* Replaces the top of the stack; with NULL, removes it. */
CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle)
{
	struct sg_context *ctx = NULL;

	SG_ENTER();
	if (handle) {
		ctx = sg_object_get(handle, SG_CONTEXT);
		if (!ctx)
			return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (stack.n)
		sg_object_put(&stack.items[--stack.n]->object);
	return ctx ? context_push(ctx) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ret)
{
	SG_ENTER();
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = stack.n ? (CUcontext)stack.items[stack.n - 1] : NULL;
	return CUDA_SUCCESS;
}

/* ---- cuCtxCreate() and what can be asked of a context ---- */

static CUresult context_create_current(CUcontext *ret, unsigned int flags, CUdevice device)
{
	struct sg_context *ctx;

	if (!ret || (flags & ~(unsigned int)CU_CTX_FLAGS_MASK))
		return CUDA_ERROR_INVALID_VALUE;
	if (!context_device_is_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	ctx = create_context((unsigned int)device, flags, false);
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_ref(&ctx->object);
	SG_TRY(context_push(ctx));
	*ret = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ret, unsigned int flags, CUdevice device)
{
	SG_ENTER();
	return context_create_current(ret, flags, device);
}

/* Affinity is ignored: the device has no multiprocessors. */
CUresult CUDAAPI cuCtxCreate_v3(CUcontext *ret, CUexecAffinityParam *params, int n_params,
				unsigned int flags, CUdevice device)
{
	SG_ENTER();
	if (params || n_params)
		return CUDA_ERROR_NOT_SUPPORTED;
	return context_create_current(ret, flags, device);
}

struct CUctxCreateParams_st {
	CUexecAffinityParam *execAffinityParams;
	int numExecAffinityParams;
	void *cigParams;
};

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *ret, CUctxCreateParams *params, unsigned int flags,
				CUdevice device)
{
	SG_ENTER();
	if (params && (params->numExecAffinityParams || params->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return context_create_current(ret, flags, device);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext handle)
{
	struct sg_context *ctx;

	SG_ENTER();
	ctx = sg_object_get(handle, SG_CONTEXT);
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx->primary) {
		sg_object_put(&ctx->object);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (stack.n && stack.items[stack.n - 1] == ctx)
		sg_object_put(&stack.items[--stack.n]->object);
	if (sg_object_retract(ctx, SG_CONTEXT)) {
		clear_context(ctx);
		sg_object_put(&ctx->object);
	}
	sg_object_put(&ctx->object);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
	SG_ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!stack.n)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = (CUdevice)stack.items[stack.n - 1]->device;
	return CUDA_SUCCESS;
}

/* A NULL @handle stands for the current context. Returns a reference. */
static CUresult context_get(CUcontext handle, struct sg_context **ret_ctx)
{
	struct sg_context *ctx;

	if (!handle) {
		SG_TRY(sg_context_current(&ctx));
		sg_object_ref(&ctx->object);
	} else {
		ctx = sg_object_get(handle, SG_CONTEXT);
		if (!ctx)
			return CUDA_ERROR_INVALID_CONTEXT;
	}
	*ret_ctx = ctx;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
	struct sg_context *ctx;

	SG_ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(context_get(handle, &ctx));
	*device = (CUdevice)ctx->device;
	sg_object_put(&ctx->object);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags)
{
	struct sg_context *ctx;

	SG_ENTER();
	SG_TRY(sg_context_current(&ctx));
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = __atomic_load_n(&ctx->flags, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct sg_context *ctx;

	SG_ENTER();
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(context_get(handle, &ctx));
	*id = ctx->id;
	sg_object_put(&ctx->object);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	struct sg_context *ctx;

	SG_ENTER();
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(context_get(handle, &ctx));
	*version = ctx->api_version;
	sg_object_put(&ctx->object);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	struct sg_context *ctx;

	SG_ENTER();
	SG_TRY(sg_context_current(&ctx));
	SG_TRY(sg_capture_check_context(ctx));
	return sg_context_synchronize(ctx);
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle)
{
	struct sg_context *ctx;
	CUresult res;

	SG_ENTER();
	SG_TRY(context_get(handle, &ctx));
	res = sg_capture_check_context(ctx);
	if (!res)
		res = sg_context_synchronize(ctx);
	sg_object_put(&ctx->object);
	return res;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (least)
		*least = PRIORITY_MIN;
	if (greatest)
		*greatest = PRIORITY_MAX;
	return CUDA_SUCCESS;
}

/* ---- The primary context ---- */

/*
 * Resets the primary context under the same handle; it cannot be used until it is retained again.
 * With @anyhow, also while it is retained, and then it stays so; else only if nobody has retained
 * it.
 */
static void reset_primary(struct primary *primary, bool anyhow)
{
	struct sg_context *ctx = primary->ctx;
	bool retained;

	sg_context_clearing_take(&ctx->clearing);
	mm_lock_take(&primary_lock);
	retained = primary->retained != 0;
	mm_lock_give(&primary_lock);
	if (anyhow || !retained) {
		clear_context(ctx);
		__atomic_store_n(&ctx->error, (int)CUDA_SUCCESS, __ATOMIC_RELEASE);
	}
	sg_context_clearing_give(&ctx->clearing);
}

/* The primary context was retained: it can be used again if it had been released or reset. */
static void revive_primary(const struct primary *primary)
{
	struct sg_context *ctx = primary->ctx;

	sg_context_clearing_take(&ctx->clearing);
	mm_lock_take(&primary_lock);
	__atomic_store_n(&ctx->flags, primary->flags, __ATOMIC_RELAXED);
	__atomic_store_n(&ctx->stopping, primary->retained == 0, __ATOMIC_RELEASE);
	mm_lock_give(&primary_lock);
	sg_context_clearing_give(&ctx->clearing);
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device)
{
	struct primary *primary;
	struct sg_context *ctx;

	SG_ENTER();
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context_device_is_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	primary = &primaries[device];
	mm_lock_take(&primary_lock);
	if (!primary->ctx)
		primary->ctx = create_context((unsigned int)device, primary->flags, true);
	ctx = primary->ctx;
	primary->retained += ctx != NULL;
	mm_lock_give(&primary_lock);
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (sg_context_is_ending(ctx))
		revive_primary(primary);
	*ret = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct primary *primary;
	bool there, last;

	SG_ENTER();
	if (!context_device_is_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	primary = &primaries[device];
	mm_lock_take(&primary_lock);
	there = primary->retained != 0;
	last = there && --primary->retained == 0;
	mm_lock_give(&primary_lock);
	if (last)
		reset_primary(primary, false);
	return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
	return cuDevicePrimaryCtxRelease_v2(device);
}

/*
 * cuda.h: a retained context stays retained, and must still be released. To use it again, a program
 * must retain it once more.
 */
CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	bool there;

	SG_ENTER();
	if (!context_device_is_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	mm_lock_take(&primary_lock);
	there = primaries[device].ctx != NULL;
	mm_lock_give(&primary_lock);
	if (there)
		reset_primary(&primaries[device], true);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device)
{
	return cuDevicePrimaryCtxReset_v2(device);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	struct primary *primary;

	SG_ENTER();
	if (!context_device_is_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	primary = &primaries[device];
	if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&primary_lock);
	primary->flags = flags;
	mm_lock_give(&primary_lock);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	struct primary *primary;

	SG_ENTER();
	if (!context_device_is_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	primary = &primaries[device];
	mm_lock_take(&primary_lock);
	if (flags)
		*flags = primary->flags;
	if (active)
		*active = primary->retained && !sg_context_is_ending(primary->ctx);
	mm_lock_give(&primary_lock);
	return CUDA_SUCCESS;
}
