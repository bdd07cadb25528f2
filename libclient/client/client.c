/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a client: its driver, its device, its gates and its objects; error sentences. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libclient/client/internal.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"

#define TIMEOUT_DEFAULT_NS (120 * MM_NS_PER_S) /* longer than mmd makes a model wait */

/* ---- errors ---- */

/*
 * The sentence of the last failure in this thread, of whichever client: engines rarely have two,
 * and read the sentence at once.
 */
static _Thread_local struct {
	uint64_t client_id;
	char text[MM_ERROR_BYTES];
} last_error;

int mm_fail(const struct mm_client *client, int error, const char *format, ...)
{
	va_list args;

	last_error.client_id = client->id;
	if (error == -ETIMEDOUT && mm_link_is_silent(client)) {
		snprintf(last_error.text, sizeof(last_error.text),
			 "mmd does not answer: it is stopped, hangs or is restarting");
		return error;
	}
	va_start(args, format);
	vsnprintf(last_error.text, sizeof(last_error.text), format, args);
	va_end(args);
	return error;
}

const char *mm_client_error(const struct mm_client *client)
{
	return last_error.client_id == client->id ? last_error.text : "";
}

int mm_enter(struct mm_client *client)
{
	int dead;

	if (mm_fork_is_child(client))
		return mm_fail(client, -ECHILD, "the client belongs to the parent process");
	mm_client_lock_take(&client->lock);
	dead = client->dead;
	mm_client_lock_give(&client->lock);
	/* The text was complete before `dead` was set, and does not change afterwards. */
	return dead ? mm_fail(client, dead, "%s", client->dead_text) : 0;
}

int mm_size_check(const struct mm_client *client, const void *theirs, size_t v1_bytes)
{
	if (!mm_sized_check(theirs, v1_bytes))
		return 0;
	return mm_fail(client, -EINVAL,
		       "the struct to fill has a size that cannot be: set it to "
		       "its sizeof before the call");
}

void mm_sanitize(char *text, size_t bytes)
{
	text[bytes - 1] = 0;
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

/* ---- open ---- */

static int client_opts_read(const struct mm_client_opts *opts, struct mm_client_opts *ret_opts)
{
	int r;

	*ret_opts = (struct mm_client_opts){ 0 };
	if (!opts)
		return 0;
	r = mm_sized_read(opts, MM_V1_CLIENT_OPTS, ret_opts, sizeof(*ret_opts));
	if (!r && ret_opts->gpu)
		r = mm_sized_check(ret_opts->gpu, MM_V1_GPU_API);
	return r || ret_opts->flags & ~MM_CLIENT_KNOWN ? -EINVAL : 0;
}

static int locks_init(struct mm_client *c)
{
	pthread_condattr_t attr;
	int r;

	r = pthread_condattr_init(&attr);
	if (r)
		return -r;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	r = pthread_cond_init(&c->changed, &attr);
	pthread_condattr_destroy(&attr);
	if (r)
		return -r;
	mm_client_lock_init(&c->lock);
	mm_map_lock_init(&c->map_lock);
	return 0;
}

/* Not checked: no other thread has the client yet. */
static struct mm_client *
client_create(const struct mm_client_opts *opts) MM_NO_THREAD_SAFETY_ANALYSIS
{
	static uint64_t last_id;
	struct mm_client *c = mm_fault("client.create") ? NULL : calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	if (locks_init(c)) {
		free(c);
		return NULL;
	}
	c->id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
	c->timeout_ns = opts->timeout_ns ? opts->timeout_ns : TIMEOUT_DEFAULT_NS;
	c->no_void = opts->flags & MM_CLIENT_NO_VOID;
	c->sock = c->load_fd = c->store_fd = c->group_fd = MM_FD_NONE;
	c->tenant_region = c->mmd_region = c->gate_region = MM_REGION_NULL;
	c->group.region = MM_REGION_NULL;
	c->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->mark_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return c;
}

static int gpu_error(const struct mm_client *c, CUresult res, const char *what, char *err, size_t n)
{
	if (err)
		snprintf(err, n, "%s: %s", what, mm_gpu_strerror(c->gpu, res));
	return -ENODEV;
}

static int gpu_load(struct mm_client *c, char *err, size_t n)
{
	int r = mm_gpu_open(strcmp(c->welcome.driver, "cuda") == 0 ? "cuda" : NULL, &c->gpu_own,
			    err, n);

	c->gpu = &c->gpu_own;
	c->gpu_opened = !r;
	return r ? -ENODEV : 0;
}

/*
 * Copies the engine's table: entries that its version lacks are NULL, as optional ones may be, and
 * of a longer table the rest is never called.
 */
static void gpu_borrow(struct mm_client *c, const struct mm_gpu_api *gpu)
{
	memcpy(&c->gpu_own, gpu, MM_MIN(gpu->size, sizeof(c->gpu_own)));
	c->gpu_own.size = sizeof(c->gpu_own);
	c->gpu = &c->gpu_own;
}

/*
 * Finds the device of @ordinal in this process and its UUID. mmd may number the device differently
 * (CUDA_VISIBLE_DEVICES).
 */
static int device_find(struct mm_client *c, int ordinal, char *err, size_t n)
{
	CUuuid uuid;
	CUresult res;

	res = c->gpu->cuInit(0);
	if (res)
		return gpu_error(c, res, "cuInit", err, n);
	res = c->gpu->cuDeviceGet(&c->device, ordinal);
	if (!res)
		res = c->gpu->cuDeviceGetUuid(&uuid, c->device);
	if (res)
		return gpu_error(c, res, "no such device", err, n);
	memcpy(c->device_uuid, uuid.bytes, sizeof(c->device_uuid));
	return 0;
}

static int device_has_gates(struct mm_client *c, char *err, size_t n)
{
	int can = 0;

	if (!(c->welcome.features & MM_FEAT_REMAP))
		return 0;
	c->gpu->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
				     c->device);
	if (!can && err)
		snprintf(err, n,
			 "the device has no 64-bit stream memory operations; "
			 "open with the flag MM_CLIENT_NO_REMAP");
	return can ? 0 : -ENODEV;
}

static int device_check(struct mm_client *c, int ordinal, char *err, size_t n)
{
	if (memcmp(c->device_uuid, c->welcome.device_uuid, sizeof(c->device_uuid))) {
		if (err)
			snprintf(err, n,
				 "device %d is not the one that mmd owns; choose it by "
				 "opts.device or CUDA_VISIBLE_DEVICES",
				 ordinal);
		return -ENODEV;
	}
	return device_has_gates(c, err, n);
}

/*
 * The hello names the device, and the welcome names the driver. While no driver is loaded, the
 * hello names no device; an mmd with several devices refuses that, but its answer names the driver,
 * with which the client connects a second time.
 */
static int client_join(struct mm_client *c, const struct mm_client_opts *opts, char *err, size_t n)
{
	int r = 0;

	if (opts->gpu) {
		gpu_borrow(c, opts->gpu);
		r = device_find(c, opts->device, err, n);
	}
	if (r)
		return r;
	r = mm_connect(c, opts, err, n);
	if (c->gpu || (r && !(r == -ENODEV && c->welcome.n_devices > 1)))
		return r;
	if (gpu_load(c, err, n) || device_find(c, opts->device, err, n))
		return -ENODEV;
	return r ? mm_connect(c, opts, err, n) : 0;
}

/* Maps the gates for the device: stream operations use the device's address of them. */
static int gates_register(struct mm_client *c, char *err, size_t n)
{
	CUresult res;

	MM_CAPTURE_RELAXED(c);
	res = c->gpu->cuDevicePrimaryCtxRetain(&c->context, c->device);
	if (res) {
		c->context = NULL;
		return gpu_error(c, res, "cuDevicePrimaryCtxRetain", err, n);
	}
	res = c->gpu->cuCtxPushCurrent(c->context);
	if (res)
		return gpu_error(c, res, "cuCtxPushCurrent", err, n);
	res = c->gpu->cuMemHostRegister(c->gates, c->gate_region.size_bytes,
					CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	c->gates_registered = !res;
	if (!res)
		res = c->gpu->cuMemHostGetDevicePointer(&c->gates_va, c->gates, 0);
	c->gpu->cuCtxPopCurrent(&(CUcontext){ NULL });
	return res ? gpu_error(c, res, "cannot register the gates", err, n) : 0;
}

static int client_start(struct mm_client *c, const struct mm_client_opts *opts, char *err, size_t n)
{
	int r;

	if (c->event_fd < 0 || c->wake_fd < 0 || c->mark_fd < 0)
		return -EMFILE;
	r = mm_fork_watch(c);
	if (r)
		return r;
	r = client_join(c, opts, err, n);
	if (!r)
		r = device_check(c, opts->device, err, n);
	if (!r)
		r = gates_register(c, err, n);
	if (r)
		return r;
	mm_steps_init(&c->steps, c->welcome.features & MM_FEAT_PARTIAL);
	r = mm_mapper_init(&c->mapper, c->gpu, c->device, c->welcome.page_bytes,
			   (uint32_t)c->welcome.pool_pages);
	return r ? r : mm_service_start(c);
}

/* ---- close ---- */

/* The closing thread may have no context, or one of another device. */
static void gates_unregister(struct mm_client *c)
{
	bool borrowed;

	if (!c->gates_registered)
		return;
	borrowed = mm_context_borrow(c);
	c->gpu->cuMemHostUnregister(c->gates);
	mm_context_give_back(c, borrowed);
}

/*
 * Gives back what the client has of the device. Not checked: the service thread has ended, and no
 * other thread may use a client that is being closed.
 */
static void device_leave(struct mm_client *c) MM_NO_THREAD_SAFETY_ANALYSIS
{
	MM_CAPTURE_RELAXED(c);
	mm_step_destroy_all(c);
	mm_times_destroy(c);
	mm_map_lock_take(&c->map_lock);
	mm_kv_destroy(c->kv);
	mm_mem_destroy_all(c);
	mm_model_destroy(c->model);
	mm_mapper_done(&c->mapper);
	mm_map_lock_give(&c->map_lock);
	mm_cold_destroy(c->cold);
	mm_swap_destroy(c->swap);
	gates_unregister(c);
	if (c->context)
		c->gpu->cuDevicePrimaryCtxRelease(c->device);
}

/* Frees the client and as much of its content as exists. */
static void client_free(struct mm_client *c)
{
	mm_fork_unwatch(c);
	device_leave(c);
	mm_region_done(&c->tenant_region);
	mm_region_done(&c->mmd_region);
	mm_region_done(&c->gate_region);
	mm_region_done(&c->group.region);
	mm_close_fd(&c->group_fd);
	mm_close_fd(&c->load_fd);
	mm_close_fd(&c->store_fd);
	mm_close_fd(&c->sock);
	mm_close_fd(&c->event_fd);
	mm_close_fd(&c->wake_fd);
	mm_close_fd(&c->mark_fd);
	if (c->gpu_opened)
		mm_gpu_close(&c->gpu_own);
	mm_client_lock_destroy(&c->lock);
	mm_map_lock_destroy(&c->map_lock);
	pthread_cond_destroy(&c->changed);
	free(c);
}

/*
 * Unmaps all memory, then sends BYE, which states that nothing is mapped. The service thread still
 * handles events meanwhile, but maps nothing more.
 */
static void client_give_back(struct mm_client *c)
{
	struct mm_msg bye = { .opcode = MM_OP_BYE };
	struct mm_model *model;
	struct mm_kv *kv;

	MM_CAPTURE_RELAXED(c);
	mm_map_lock_take(&c->map_lock);
	c->closing = true;
	mm_client_lock_take(&c->lock);
	kv = c->kv;
	model = c->model;
	c->kv = NULL;
	c->model = NULL;
	mm_model_phase_set(c, MM_CLIENT_MODEL_BROKEN);
	mm_client_lock_give(&c->lock);
	mm_kv_destroy(kv);
	mm_mem_destroy_all(c);
	mm_model_destroy(model);
	mm_map_lock_give(&c->map_lock);
	mm_link_call(c, &bye);
}

struct mm_client *mm_client_close(struct mm_client *client)
{
	if (!client)
		return NULL;
	if (mm_fork_is_child(client)) {
		/* The child owns its copies of the fds only; locks and driver are the parent's. */
		mm_fork_close_fds(client);
		return NULL;
	}
	mm_steps_settle(client);
	client_give_back(client);
	mm_service_stop(client);
	client_free(client);
	return NULL;
}

int mm_client_open(const struct mm_client_opts *opts, struct mm_client **ret_client, char *errbuf,
		   size_t errbuf_bytes)
{
	struct mm_client_opts copy;
	struct mm_client *c;
	int r = client_opts_read(opts, &copy);

	if (errbuf && errbuf_bytes)
		snprintf(errbuf, errbuf_bytes, "%s",
			 r ? "opts: a size that cannot be, or a field or flag that this library "
			     "does not know"
			   : "out of memory or file descriptors");
	if (r)
		return r;
	c = client_create(&copy);
	if (!c)
		return -ENOMEM;
	r = client_start(c, &copy, errbuf, errbuf_bytes);
	if (r) {
		client_free(c);
		return r;
	}
	if (errbuf && errbuf_bytes)
		*errbuf = 0;
	*ret_client = c;
	return 0;
}

/* ---- state ---- */

uint32_t mm_client_abi(void)
{
	return MM_CLIENT_ABI;
}

const char *mm_client_version(void)
{
	return MM_VERSION;
}

const struct mm_gpu_api *mm_client_gpu(const struct mm_client *client)
{
	return client->gpu;
}

int mm_client_info(struct mm_client *client, struct mm_client_info *ret_info)
{
	const struct mm_welcome *w = &client->welcome;
	struct mm_client_info info;
	int r = mm_enter(client);

	if (!r)
		r = mm_size_check(client, ret_info, MM_V1_CLIENT_INFO);
	if (r)
		return r;
	info = (struct mm_client_info){
		.tenant_id = w->tenant_id,
		.page_bytes = w->page_bytes,
		.pool_pages = w->pool_pages,
		.features = w->features,
	};
	memcpy(info.policy, w->policy, sizeof(info.policy));
	memcpy(info.driver, w->driver, sizeof(info.driver));
	memcpy(info.device_uuid, w->device_uuid, sizeof(info.device_uuid));
	mm_client_lock_take(&client->lock);
	info.layers_remapped = client->steps.plan.away;
	info.layers_cycling = client->steps.plan.cycling;
	info.plan_epoch = client->steps.plan.epoch;
	info.plan_changes = client->plan_changes;
	info.plan_held_ns = client->held_ns;
	mm_client_lock_give(&client->lock);
	mm_sized_write(ret_info, &info, sizeof(info));
	return 0;
}

static void hint_demand(struct mm_tenant_stats *stats, const struct mm_load_hint *load)
{
	__atomic_store_n(&stats->kv_chunks_queued, load->kv_chunks_queued, __ATOMIC_RELAXED);
	__atomic_store_n(&stats->requests_done, load->requests_done, __ATOMIC_RELAXED);
	__atomic_store_n(&stats->requests_late, load->requests_late, __ATOMIC_RELAXED);
}

int mm_client_hint(struct mm_client *client, const struct mm_load_hint *hint)
{
	struct mm_tenant_stats *stats = &client->tenant->stats;
	struct mm_load_hint load;

	if (mm_fork_is_child(client))
		return mm_fail(client, -ECHILD, "the client belongs to the parent process");
	if (mm_sized_read(hint, MM_V1_LOAD_HINT, &load, sizeof(load)) || load.reserved ||
	    load.reserved2)
		return mm_fail(client, -EINVAL, "hint: " MM_SIZE_TEXT);
	__atomic_store_n(&stats->kv_chunks_used, load.kv_chunks_used, __ATOMIC_RELAXED);
	__atomic_store_n(&stats->waiting, load.waiting, __ATOMIC_RELAXED);
	__atomic_store_n(&stats->running, load.running, __ATOMIC_RELAXED);
	if (client->welcome.features & MM_FEAT_DEMAND)
		hint_demand(stats, &load);
	if (!load.running && !load.waiting)
		mm_turn_out_of_work(client);
	return 0;
}
