/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a model: its phases, its addresses, and what the engine can look up in it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "libclient/client/internal.h"
#include "mm/client_model.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/fault.h"

#define LOAD_TRIES      3 /* workers that may die before the load fails */
#define AGAIN_NS        (50 * MM_NS_PER_MS)
#define REFUSAL_WAIT_NS (10 * MM_NS_PER_S) /* for the refusal of mmd after that of load */

/* ---- events of mmd ---- */

void mm_model_destroy(struct mm_model *model)
{
	struct mm_mapper *mapper;

	if (!model)
		return;
	mapper = &model->client->mapper;
	for (uint32_t g = 0; model->spans && g < model->dir.n_groups; g++) {
		struct mm_span *span = &model->spans[g];

		mm_mapper_apply(mapper, span, 1, NULL);
		if (span->va)
			mm_mapper_unreserve(mapper, span->va, span->n_pages);
	}
	free(model->spans);
	free(model->cycles);
	mm_directory_done(&model->dir);
	mm_region_done(&model->store);
	free(model);
}

/* Reserves addresses for each group; table entries are in the order of the directory (abi.h). */
static int model_reserve(struct mm_client *c, struct mm_model *model, const char **ret_text)
	MM_REQUIRES(mm_map_lock)
{
	uint64_t page_bytes = c->welcome.page_bytes;
	int r;

	model->spans = calloc(model->dir.n_groups, sizeof(*model->spans));
	model->cycles = calloc(model->dir.n_groups, sizeof(*model->cycles));
	*ret_text = "out of memory or addresses for the model";
	if (!model->spans || !model->cycles)
		return -ENOMEM;
	for (uint32_t g = 0; g < model->dir.n_groups; g++) {
		uint64_t n_pages = mm_div_up(model->dir.groups[g].bytes, page_bytes);

		if (n_pages > MM_MAP_KV_BASE - model->pages) {
			*ret_text = "the model has more pages than the map table has entries";
			return -EPROTO;
		}
		model->spans[g].entry = (uint32_t)model->pages;
		model->spans[g].n_pages = (uint32_t)n_pages;
		model->spans[g].whole = true;
		model->pages += n_pages;
		r = n_pages ? mm_mapper_reserve(&c->mapper, n_pages, &model->spans[g].va) : 0;
		if (r)
			return r;
	}
	return 0;
}

static int model_open_store(struct mm_client *c, const struct mm_msg *msg, struct mm_model *model,
			    const char **ret_text)
{
	uint64_t head_bytes = msg->arg[3] ? msg->arg[3] : msg->arg[2];
	int fd, r;

	mm_client_lock_take(&c->lock);
	fd = c->store_fd;
	c->store_fd = MM_FD_NONE;
	mm_client_lock_give(&c->lock);
	*ret_text = "mmd sent no store that can be mapped";
	r = fd < 0 ? -EPROTO : mm_region_open(fd, head_bytes, false, &model->store);
	if (r)
		return r;
	madvise(model->store.base, model->store.size_bytes, MADV_DONTFORK);
	model->head_bytes = head_bytes;
	r = mm_directory_read(model->store.base, head_bytes, msg->arg[2], &model->dir, ret_text);
	return r == -EBADMSG ? -EPROTO : r;
}

static int model_build(struct mm_client *c, const struct mm_msg *msg, struct mm_model *model,
		       const char **ret_text) MM_REQUIRES(mm_map_lock)
{
	int r = model_open_store(c, msg, model, ret_text);

	if (!r)
		r = model_reserve(c, model, ret_text);
	if (r)
		return r;
	if (msg->arg[0] != model->dir.n_groups || msg->arg[1] != model->pages) {
		*ret_text = "mmd and the store disagree about the model";
		return -EPROTO;
	}
	return 0;
}

static struct mm_model *model_create(struct mm_client *c)
{
	struct mm_model *model = mm_fault("model.create") ? NULL : calloc(1, sizeof(*model));

	if (model) {
		model->client = c;
		model->store = MM_REGION_NULL;
	}
	return model;
}

static bool model_is_due(struct mm_client *c)
{
	bool due;

	mm_client_lock_take(&c->lock);
	due = !c->model && (c->model_phase == MM_CLIENT_MODEL_LOADING ||
			    c->model_phase == MM_CLIENT_MODEL_BROKEN);
	mm_client_lock_give(&c->lock);
	return due;
}

int mm_model_on_loaded(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	struct mm_model *model;
	int r = 0;

	*ret_text = "mmd loaded a model that nobody asked for";
	if (!model_is_due(client))
		return -EPROTO;
	*ret_text = "out of memory";
	model = model_create(client);
	if (!model)
		return -ENOMEM;

	mm_map_lock_take(&client->map_lock);
	if (!client->closing)
		r = model_build(client, msg, model, ret_text);
	if (!r && !client->closing) {
		mm_client_lock_take(&client->lock);
		client->model = model;
		if (client->model_phase == MM_CLIENT_MODEL_LOADING)
			mm_model_phase_set(client, MM_CLIENT_MODEL_LOADED);
		pthread_cond_broadcast(&client->changed);
		mm_client_lock_give(&client->lock);
		model = NULL;
	}
	mm_model_destroy(model);
	mm_map_lock_give(&client->map_lock);
	return r;
}

int mm_model_on_ready(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	int r = 0;

	mm_client_lock_take(&client->lock);
	if (msg->result < 0) {
		/* After a load was given up no call waits for the refusal. */
		if (client->model_phase == MM_CLIENT_MODEL_LOADING ||
		    client->model_phase == MM_CLIENT_MODEL_LOADED)
			mm_model_phase_set(client, MM_CLIENT_MODEL_REFUSED);
		client->refused_result = MM_MAX(msg->result, -4095);
		client->refused_why = msg->arg[0] <= MM_REFUSED_LOAD ? (enum mm_refusal)msg->arg[0]
								     : MM_REFUSED_NO;
	} else if (client->model_phase == MM_CLIENT_MODEL_LOADED && client->steps.plan.epoch) {
		mm_model_phase_set(client, MM_CLIENT_MODEL_READY);
	} else if (client->model_phase != MM_CLIENT_MODEL_BROKEN) {
		*ret_text = "mmd says that a model is ready that is not mapped";
		r = -EPROTO;
	}
	pthread_cond_broadcast(&client->changed);
	mm_client_lock_give(&client->lock);
	return r;
}

/* ---- loading ---- */

static int phase_enter(struct mm_client *c)
{
	enum mm_client_model_phase phase;

	mm_client_lock_take(&c->lock);
	phase = c->model_phase;
	if (phase == MM_CLIENT_MODEL_NONE)
		mm_model_phase_set(c, MM_CLIENT_MODEL_LOADING);
	mm_client_lock_give(&c->lock);
	if (phase == MM_CLIENT_MODEL_NONE)
		return 0;
	return mm_fail(c, -EEXIST, "%s",
		       phase == MM_CLIENT_MODEL_BROKEN
			       ? "a load was given up half-way: close this client and open another"
			       : "this client has a model already");
}

/*
 * Waits until a channel to load has arrived (*ret_fd), mmd has refused (-ECANCELED), or mmd has the
 * model already (-EALREADY): the last word of the load before this one was lost with its channel.
 */
static int load_wait_channel(struct mm_client *c, int *ret_fd)
{
	struct mm_patience patience = mm_patience_of(c->timeout_ns);
	int r = 0;

	mm_client_lock_take(&c->lock);
	while (!r && c->load_fd < 0 && c->model_phase == MM_CLIENT_MODEL_LOADING)
		r = mm_link_wait_for_mmd(c, &patience);
	if (!r && c->load_fd < 0)
		r = c->model_phase == MM_CLIENT_MODEL_REFUSED ? -ECANCELED : -EALREADY;
	if (!r) {
		*ret_fd = c->load_fd;
		c->load_fd = MM_FD_NONE;
	}
	mm_client_lock_give(&c->lock);
	if (r && r != -ECANCELED && r != -EALREADY)
		return mm_fail(c, r, "mmd started no worker to load the model: %s", strerror(-r));
	return r;
}

/* Waits until the model is ready or refused; the deadline starts anew with each new phase. */
static int model_wait_ready(struct mm_client *c, uint64_t timeout_ns)
{
	struct mm_patience patience = mm_patience_of(timeout_ns);
	enum mm_client_model_phase phase = MM_CLIENT_MODEL_NONE;
	int r = 0;

	mm_client_lock_take(&c->lock);
	while (!r && c->model_phase != MM_CLIENT_MODEL_READY &&
	       c->model_phase != MM_CLIENT_MODEL_REFUSED) {
		if (c->model_phase != phase)
			patience = mm_patience_of(timeout_ns);
		phase = c->model_phase;
		r = mm_link_wait_for_mmd(c, &patience);
	}
	if (!r && c->model_phase == MM_CLIENT_MODEL_REFUSED)
		r = -ECANCELED;
	mm_client_lock_give(&c->lock);
	return r;
}

static int model_fail_refused(struct mm_client *c)
{
	static const char *const why[] = {
		[MM_REFUSED_NO] = "mmd refused the model",
		[MM_REFUSED_QUOTA] = "the model is larger than the account may have",
		[MM_REFUSED_DEVICE] = "the model does not fit on the device, or not now",
		[MM_REFUSED_STORE] = "no host memory for the model",
		[MM_REFUSED_LOAD] = "the model could not be loaded",
	};
	enum mm_refusal reason;
	int error;

	mm_client_lock_take(&c->lock);
	error = c->refused_result;
	reason = c->refused_why;
	mm_client_lock_give(&c->lock);
	return mm_fail(c, error, "%s: %s", why[reason], strerror(-error));
}

/* After load has refused, mmd refuses too, and only then another load may begin. */
static int load_refused(struct mm_client *c, int error)
{
	int r = model_wait_ready(c, REFUSAL_WAIT_NS);

	return r == -ECANCELED ? -ECANCELED : error;
}

static int load_run(struct mm_client *c, const struct mm_model_files *files, int *ret_result,
		    uint32_t *ret_flags)
{
	int r = -EPIPE;

	for (int i = 0; i < LOAD_TRIES && r == -EPIPE; i++) {
		mm_cleanup(mm_close_fd) int fd = -1;

		r = load_wait_channel(c, &fd);
		if (!r)
			r = mm_model_files_pass(c, files, fd, ret_flags);
	}
	if (r == -EALREADY)
		r = 0;
	if (r == -EPIPE)
		r = mm_fail(c, -EIO, "the worker that loads the model died %d times", LOAD_TRIES);
	*ret_result = r;
	return r ? load_refused(c, r) : model_wait_ready(c, c->timeout_ns);
}

static int model_request_open(struct mm_client *c)
{
	struct mm_msg msg = { .opcode = MM_OP_MODEL_OPEN };
	int r = mm_link_call(c, &msg);

	if (r)
		return mm_fail(c, r, "mmd did not answer: %s", strerror(-r));
	if (msg.result < 0)
		return mm_fail(c, msg.result, "mmd refused to load a model: %s",
			       strerror(-msg.result));
	return 0;
}

void mm_model_drop(struct mm_client *c)
{
	struct mm_steps_out out = { 0 };
	struct mm_model *model;

	MM_CAPTURE_RELAXED(c);
	mm_map_lock_take(&c->map_lock);
	mm_client_lock_take(&c->lock);
	model = c->model;
	c->model = NULL;
	mm_steps_drop_plan(&c->steps, &out);
	mm_step_out_perform(c, &out);
	mm_close_fd(&c->load_fd);
	mm_close_fd(&c->store_fd);
	mm_model_phase_set(c, MM_CLIENT_MODEL_NONE);
	mm_client_lock_give(&c->lock);
	mm_model_destroy(model);
	mm_map_lock_give(&c->map_lock);
}

static void phase_break(struct mm_client *c)
{
	mm_client_lock_take(&c->lock);
	mm_model_phase_set(c, MM_CLIENT_MODEL_BROKEN);
	mm_client_lock_give(&c->lock);
}

static int model_load_once(struct mm_client *c, const struct mm_model_files *files,
			   uint32_t *ret_flags)
{
	int load_result = 0;
	int r = model_request_open(c);

	if (r) {
		mm_model_drop(c);
		return r;
	}
	r = load_run(c, files, &load_result, ret_flags);
	if (r == -ECANCELED) {
		/* The sentence of load, if there is one, names the file and the place. */
		if (!load_result || load_result == -ECANCELED)
			load_result = model_fail_refused(c);
		mm_model_drop(c);
		return load_result;
	}
	if (!r)
		return 0;
	phase_break(c);
	if (!load_result)
		mm_fail(c, r, "the model did not get ready: %s", strerror(-r));
	return r;
}

/*
 * Repeats after -EAGAIN: all workers are busy, or the worker died for another reason than the
 * files.
 */
static int model_load_retry(struct mm_client *c, const struct mm_model_files *files,
			    uint32_t *ret_flags)
{
	const struct timespec pause = mm_timespec(AGAIN_NS);
	uint64_t deadline_ns = mm_deadline_ns(c->timeout_ns);
	int r;

	for (;;) {
		r = phase_enter(c);
		if (!r)
			r = model_load_once(c, files, ret_flags);
		if (r != -EAGAIN || mm_now_ns() >= deadline_ns)
			return r;
		nanosleep(&pause, NULL);
	}
}

static int model_load(struct mm_client *c, const struct mm_model_files *files,
		      struct mm_model **ret_model)
{
	uint32_t flags = 0;
	int r = model_load_retry(c, files, &flags);

	if (r)
		return r;
	mm_client_model(c)->load_flags = flags;
	*ret_model = mm_client_model(c);
	return 0;
}

int mm_model_load(struct mm_client *client, const char *dir, const struct mm_model_opts *opts,
		  struct mm_model **ret_model)
{
	mm_cleanup(mm_model_files_close) struct mm_model_files *files = NULL;
	int r = mm_enter(client);

	if (!r)
		r = mm_model_files_open(client, dir, opts, &files);
	return r ? r : model_load(client, files, ret_model);
}

int mm_model_load_files(struct mm_client *client, const int *fds, size_t n,
			const struct mm_model_opts *opts, struct mm_model **ret_model)
{
	mm_cleanup(mm_model_files_close) struct mm_model_files *files = NULL;
	int r = mm_enter(client);

	if (!r)
		r = mm_model_files_adopt(client, fds, n, opts, &files);
	return r ? r : model_load(client, files, ret_model);
}

int mm_model_load_key(struct mm_client *client, const void *key, size_t key_bytes,
		      const uint8_t *digest, struct mm_model **ret_model)
{
	mm_cleanup(mm_model_files_close) struct mm_model_files *files = NULL;
	int r = mm_enter(client);

	if (!r)
		r = mm_model_files_by_key(client, key, key_bytes, digest, &files);
	return r ? r : model_load(client, files, ret_model);
}

/* ---- lookup ---- */

int mm_model_info(const struct mm_model *model, struct mm_model_info *ret_info)
{
	const struct mm_directory *dir = &model->dir;
	struct mm_model_info info = {
		.n_layers = dir->n_groups - 1,
		.n_tensors = dir->n_tensors,
		.resident_bytes = dir->groups[0].bytes,
		.device_bytes = model->pages * model->client->welcome.page_bytes,
		.store_bytes = dir->store_bytes,
		.load_flags = model->load_flags,
	};

	if (mm_size_check(model->client, ret_info, MM_V1_MODEL_INFO))
		return -EINVAL;
	memcpy(info.digest, dir->identity, sizeof(info.digest));
	for (uint32_t g = 1; g < dir->n_groups; g++)
		info.layer_bytes = MM_MAX(info.layer_bytes, dir->groups[g].bytes);
	for (uint32_t i = 0; i < dir->n_tensors; i++)
		if (!(dir->tensors[i].flags & MM_TENSOR_PACK))
			info.tensor_bytes += dir->tensors[i].bytes;
	info.waste_bytes = info.device_bytes - MM_MIN(info.tensor_bytes, info.device_bytes);
	mm_sized_write(ret_info, &info, sizeof(info));
	return 0;
}

static void tensor_write(const struct mm_model *model, const struct mm_dir_tensor *t,
			 struct mm_tensor *ret_tensor)
{
	struct mm_tensor tensor = {
		.va = model->spans[t->group].va + t->offset,
		.dtype = t->dtype,
		.rank = t->rank,
		.bytes = t->bytes,
		.layer = (int32_t)t->group - 1,
		.flags = t->flags,
	};

	memcpy(tensor.shape, t->shape, sizeof(tensor.shape));
	mm_sized_write(ret_tensor, &tensor, sizeof(tensor));
}

int mm_model_tensor(const struct mm_model *model, const char *name, struct mm_tensor *ret_tensor)
{
	const struct mm_dir_tensor *t = mm_directory_find(&model->dir, name);

	if (mm_size_check(model->client, ret_tensor, MM_V1_TENSOR))
		return -EINVAL;
	if (!t)
		return mm_fail(model->client, -ENOENT, "the model has no tensor %s", name);
	tensor_write(model, t, ret_tensor);
	return 0;
}

int mm_model_tensor_at(const struct mm_model *model, uint32_t index, char *ret_name,
		       size_t name_bytes, struct mm_tensor *ret_tensor)
{
	const struct mm_dir_tensor *t;

	if (mm_size_check(model->client, ret_tensor, MM_V1_TENSOR))
		return -EINVAL;
	if (index >= model->dir.n_tensors)
		return mm_fail(model->client, -ENOENT, "tensor %u: the model has %u", index,
			       model->dir.n_tensors);
	t = &model->dir.tensors[index];
	if (name_bytes <= strlen(t->name))
		return mm_fail(model->client, -EINVAL, "tensor %u: its name has %zu bytes", index,
			       strlen(t->name));
	memcpy(ret_name, t->name, strlen(t->name) + 1);
	tensor_write(model, t, ret_tensor);
	return 0;
}

const void *mm_model_store(const struct mm_model *model, const char *name, uint64_t *ret_bytes)
{
	const struct mm_dir_tensor *t = mm_directory_find(&model->dir, name);

	/* Only the directory is mapped if the model is on disk. */
	if (!t || model->head_bytes < model->dir.store_bytes)
		return NULL;
	*ret_bytes = t->bytes;
	return (const char *)model->store.base + model->dir.groups[t->group].store_offset +
	       t->offset;
}

int mm_model_compute(const struct mm_model *model, const uint16_t *weights, uint32_t n_layers)
{
	struct mm_client *client = model->client;
	int r = mm_enter(client);

	if (r)
		return r;
	if (n_layers != model->dir.n_groups - 1)
		return mm_fail(client, -EINVAL, "%u weights, the model has %u layers", n_layers,
			       model->dir.n_groups - 1);
	for (uint32_t i = 0; i < n_layers; i++)
		if (!weights[i])
			return mm_fail(client, -EINVAL, "layer %u: its computation has no weight",
				       i);
	for (uint32_t i = 0; i < n_layers; i++)
		__atomic_store_n(&client->tenant->stats.compute[i], weights[i], __ATOMIC_RELAXED);
	return 0;
}
