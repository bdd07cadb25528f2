/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/gpubench/tenant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/common/proto.h"
#include "libclient/model/shapes.h"

#define NAME      "bench"
#define RETURN_MS 1
#define F16_BYTES 2

int mm_gpu_tenant_fail(struct mm_gpu_tenant *t, int error, const char *what)
{
	struct mm_gpu_bench *b = t->dev->bench;

	mm_gpu_fail(b, error, "%s: %s", what,
		    t->client ? mm_client_error(t->client) : strerror(-error));
	return mm_bench_mmd_explain(&t->mmd, error, b->err);
}

int mm_gpu_daemon_start(struct mm_gpu_bench *b, struct mm_bench_mmd *mmd, uint64_t page_bytes,
			uint64_t pool_bytes)
{
	char device[16], page[32], pool[32], dir[PATH_MAX];
	char *flags[] = { "--driver", (char *)b->opts.driver,
			  "--device", device,
			  "--page",   page,
			  "--pool",   pool,
			  "--policy", "remap",
			  NULL };

	snprintf(device, sizeof(device), "%u", b->opts.device);
	snprintf(page, sizeof(page), "%" PRIu64, page_bytes);
	snprintf(pool, sizeof(pool), "%" PRIu64, pool_bytes);
	snprintf(dir, sizeof(dir), "%.300s/%s-%" PRIu64, b->work_dir, b->part, page_bytes >> 10);
	snprintf(mmd->errors, sizeof(mmd->errors), "%.400s.log", dir);
	mmd->signals = b->signals;
	mmd->timeout_ns = MM_GPU_TIMEOUT_NS;
	return mm_bench_mmd_start(mmd, b->bin_dir, dir, flags, b->err);
}

int mm_gpu_tenant_open(struct mm_gpu_tenant *t, struct mm_gpu_dev *dev,
		       const struct mm_gpu_api *gpu, uint64_t page_bytes, uint64_t pool_bytes)
{
	struct mm_client_opts opts = { .size = sizeof(opts),
				       .socket_path = t->mmd.socket,
				       .name = NAME,
				       .gpu = gpu,
				       .device = (int)dev->bench->opts.device };
	struct mm_client_info info = { .size = sizeof(info) };
	int r;

	t->dev = dev;
	r = mm_gpu_daemon_start(dev->bench, &t->mmd, page_bytes, pool_bytes);
	if (r)
		return r;
	r = mm_client_open(&opts, &t->client, dev->bench->err, sizeof(dev->bench->err));
	if (r)
		return mm_bench_mmd_explain(&t->mmd, r, dev->bench->err);
	r = mm_client_info(t->client, &info);
	if (r)
		return mm_gpu_tenant_fail(t, r, "mmd");
	t->page_bytes = info.page_bytes;
	t->chunk_bytes = MM_CHUNK_BYTES_DEFAULT;
	return 0;
}

void mm_gpu_tenant_close(struct mm_gpu_tenant *t)
{
	mm_client_close(t->client);
	mm_bench_mmd_stop(&t->mmd);
	*t = (struct mm_gpu_tenant){ 0 };
}

/* ---- the model ---- */

/* Makes the sizes of a model of OPT's family. */
static struct mm_arch arch_of(const struct mm_gpu_shape *s)
{
	return (struct mm_arch){ .family = MM_FAMILY_OPT,
				 .hidden = s->hidden,
				 .layers = s->layers,
				 .heads = s->heads,
				 .kv_heads = s->heads,
				 .head_dim = s->hidden / s->heads,
				 .ffn = 4 * s->hidden,
				 .vocab = s->vocab,
				 .max_position = s->positions,
				 .embed_dim = s->hidden,
				 .tied = true };
}

uint64_t mm_gpu_shape_bytes(const struct mm_gpu_shape *shape)
{
	const struct mm_arch arch = arch_of(shape);

	return mm_arch_weight_bytes(&arch, F16_BYTES);
}

/* Makes a model; its files are sparse if the device only keeps time. */
static int shape_make_model(struct mm_gpu_bench *b, const struct mm_gpu_shape *shape,
			    const char *dir)
{
	char program[PATH_MAX + 16], log[PATH_MAX + 32], number[5][16];
	char *argv[] = { program,     b->timed ? "sparse" : "random",
			 (char *)dir, "--family",
			 "opt",       "--dtype",
			 "f16",       "--layers",
			 number[0],   "--hidden",
			 number[1],   "--heads",
			 number[2],   "--vocab",
			 number[3],   "--max-position",
			 number[4],   NULL };
	const uint32_t numbers[] = { shape->layers, shape->hidden, shape->heads, shape->vocab,
				     shape->positions };
	struct mm_child child = { .name = "mkmodel", .err_path = log };

	for (size_t i = 0; i < MM_ARRAY_SIZE(numbers); i++)
		snprintf(number[i], sizeof(number[i]), "%u", numbers[i]);
	snprintf(program, sizeof(program), "%s/mkmodel", b->bin_dir);
	snprintf(log, sizeof(log), "%s/mkmodel.log", b->work_dir);
	mm_gpu_progress(b, "a model of %u layers", shape->layers);
	return mm_child_run(&child, argv, MM_GPU_TIMEOUT_NS, b->err, sizeof(b->err));
}

int mm_gpu_model(struct mm_gpu_bench *bench, const struct mm_gpu_shape *shape, const char *name,
		 char *ret_dir)
{
	char config[PATH_MAX + 32];

	snprintf(ret_dir, PATH_MAX, "%.3800s/%s", bench->work_dir, name);
	snprintf(config, sizeof(config), "%s/config.json", ret_dir);
	return access(config, F_OK) ? shape_make_model(bench, shape, ret_dir) : 0;
}

static int tenant_load(struct mm_gpu_tenant *t)
{
	struct mm_gpu_bench *b = t->dev->bench;
	const struct mm_arch arch = arch_of(&b->sizes.cycling);
	struct mm_model_info info = { .size = sizeof(info) };
	char dir[PATH_MAX];
	int r = mm_gpu_model(b, &b->sizes.cycling, "cycling", dir);

	if (r)
		return r;
	r = mm_model_load(t->client, dir, NULL, &t->model);
	if (r)
		return mm_gpu_tenant_fail(t, r, "the model");
	mm_model_info(t->model, &info);
	t->layers = info.n_layers;
	t->layer_bytes = mm_arch_layer_bytes(&arch, F16_BYTES);
	return 0;
}

int mm_gpu_tenant_start(struct mm_gpu_tenant *t, struct mm_gpu_dev *dev, uint64_t page_bytes)
{
	const struct mm_gpu_sizes *sizes = &dev->bench->sizes;
	const uint64_t pool_bytes = 2 * mm_gpu_shape_bytes(&sizes->cycling) + sizes->pool_bytes;
	int r = mm_gpu_tenant_open(t, dev, &dev->gpu, page_bytes, pool_bytes);

	return r ? r : tenant_load(t);
}

int mm_gpu_tenant_plan(struct mm_gpu_tenant *t, uint32_t alpha, uint32_t beta,
		       struct mm_plan_set *ret_set)
{
	return mm_bench_mmd_set_plan(&t->mmd, NAME, alpha, beta, t->layers, ret_set,
				     t->dev->bench->err);
}

/* ---- KV ---- */

int mm_gpu_tenant_kv(struct mm_gpu_tenant *t, uint32_t chunks)
{
	const struct mm_kv_opts opts = { .size = sizeof(opts),
					 .chunk_bytes = t->page_bytes,
					 .ranges = 1,
					 .chunks_max = chunks,
					 .share_chunks = chunks };
	int r = mm_kv_open(t->client, &opts, &t->kv);

	t->kv_chunks = chunks;
	if (r)
		return mm_gpu_tenant_fail(t, r, "the KV arena");
	return mm_bench_mmd_status(&t->mmd, "pages.free", &t->free_pages, t->dev->bench->err);
}

static int release_all(struct mm_gpu_tenant *t)
{
	const size_t words = mm_div_up(t->kv_chunks, 64);
	mm_cleanup(mm_free_ptr) uint64_t *usable = calloc(words, sizeof(*usable));
	int r = 0;

	if (!usable)
		return mm_gpu_fail(t->dev->bench, -ENOMEM, "out of memory");
	mm_kv_usable(t->kv, usable, words);
	for (uint32_t i = 0; !r && i < t->kv_chunks; i++)
		if (usable[i / 64] >> i % 64 & 1)
			r = mm_kv_release(t->kv, i);
	return r ? mm_gpu_tenant_fail(t, r, "giving KV back") : 0;
}

int mm_gpu_tenant_return(struct mm_gpu_tenant *t)
{
	struct mm_gpu_bench *b = t->dev->bench;
	const uint64_t deadline_ns = mm_now_ns() + MM_GPU_TIMEOUT_NS;
	uint64_t clean = 0;
	int r = release_all(t);

	while (!r) {
		r = mm_bench_mmd_status(&t->mmd, "pages.free", &clean, b->err);
		if (r || clean >= t->free_pages)
			return r;
		if (mm_now_ns() > deadline_ns)
			return mm_gpu_fail(b, -ETIMEDOUT, "mmd does not clean pages in time");
		r = mm_bench_mmd_pause(&t->mmd, RETURN_MS, b->err);
	}
	return r;
}
