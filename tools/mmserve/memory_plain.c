/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#include "mm/base.h"
#include "mmd/load/safetensors.h"
#include "tools/mmserve/config.h"

#define FILES_MAX        1024
#define PLAIN_PAGE_BYTES 65536u

struct weights_file {
	struct mm_safetensors st;
	char *bytes;
	size_t length_bytes;
	CUdeviceptr *va; /* one per tensor */
};

struct plain {
	struct weights_file *files;
	size_t n_files;
	CUdeviceptr kv_va;
	uint32_t kv_chunks;
	char error[256];
};

static void free_file(const struct mm_gpu_api *gpu, struct weights_file *f)
{
	for (size_t i = 0; f->va && i < f->st.n_tensors; i++)
		if (f->va[i])
			gpu->cuMemFree(f->va[i]);
	free(f->va);
	if (f->bytes)
		munmap(f->bytes, f->length_bytes);
	mm_safetensors_done(&f->st);
}

static void plain_close(struct mm_memory *m)
{
	struct plain *p = m->state;

	for (size_t i = 0; i < p->n_files; i++)
		free_file(m->gpu, &p->files[i]);
	if (p->kv_va)
		m->gpu->cuMemFree(p->kv_va);
	free(p->files);
	free(p);
}

static const struct mm_st_tensor *find(const struct plain *p, const char *name,
				       const struct weights_file **ret_file, size_t *ret_index)
{
	for (size_t i = 0; i < p->n_files; i++) {
		const struct weights_file *f = &p->files[i];

		for (size_t j = 0; j < f->st.n_tensors; j++) {
			if (strcmp(f->st.tensors[j].name, name))
				continue;
			*ret_file = f;
			*ret_index = j;
			return &f->st.tensors[j];
		}
	}
	return NULL;
}

static int plain_tensor(struct mm_memory *m, const char *name, struct mm_tensor *ret_tensor)
{
	const struct weights_file *f;
	const struct mm_st_tensor *t;
	size_t index;

	t = find(m->state, name, &f, &index);
	if (!t)
		return -ENOENT;
	*ret_tensor = (struct mm_tensor){ .va = f->va[index],
					  .dtype = t->dtype,
					  .rank = t->rank,
					  .bytes = t->bytes,
					  .layer = -1 };
	memcpy(ret_tensor->shape, t->shape, sizeof(t->shape));
	return 0;
}

static const void *plain_store(struct mm_memory *m, const char *name, uint64_t *ret_bytes)
{
	const struct weights_file *f;
	const struct mm_st_tensor *t;
	size_t index;

	t = find(m->state, name, &f, &index);
	if (!t)
		return NULL;
	*ret_bytes = t->bytes;
	return f->bytes + t->file_offset;
}

static int plain_kv_open(struct mm_memory *m, const struct mm_kv_opts *opts, CUdeviceptr *ret_va)
{
	struct plain *p = m->state;
	const uint64_t range = opts->chunk_bytes * opts->share_chunks, bytes = range * opts->ranges;
	const CUresult r = m->gpu->cuMemAlloc(&p->kv_va, bytes);

	if (r) {
		snprintf(p->error, sizeof(p->error), "%llu bytes of KV: %s",
			 (unsigned long long)bytes, mm_gpu_strerror(m->gpu, r));
		return mm_gpu_errno(r);
	}
	p->kv_chunks = opts->share_chunks;
	for (uint32_t i = 0; i < opts->ranges; i++)
		ret_va[i] = p->kv_va + i * range;
	return 0;
}

static int plain_kv_want(struct mm_memory *m, uint32_t chunks_total)
{
	const struct plain *p = m->state;

	return chunks_total <= p->kv_chunks ? 0 : -ENOSPC;
}

static void plain_kv_usable(struct mm_memory *m, uint64_t *ret_bitmap, size_t words)
{
	const struct plain *p = m->state;

	memset(ret_bitmap, 0, words * sizeof(*ret_bitmap));
	for (uint32_t i = 0; i < p->kv_chunks; i++)
		ret_bitmap[i / 64] |= UINT64_C(1) << i % 64;
}

static int plain_kv_release(struct mm_memory *m, uint32_t chunk)
{
	(void)m;
	(void)chunk;
	return -ENOTSUP;
}

static int plain_event_fd(struct mm_memory *m)
{
	(void)m;
	return -1;
}

static int plain_next_event(struct mm_memory *m, struct mm_event *ret_event)
{
	(void)m;
	(void)ret_event;
	return -EAGAIN;
}

static void plain_hint(struct mm_memory *m, const struct mm_load_hint *hint)
{
	(void)m;
	(void)hint;
}

static int plain_step_begin(struct mm_memory *m)
{
	(void)m;
	return 0;
}

static int plain_step_end(struct mm_memory *m, CUstream stream, struct mm_step_info *ret_info)
{
	struct plain *p = m->state;
	const CUresult r = m->gpu->cuStreamSynchronize(stream);

	*ret_info = (struct mm_step_info){ 0 };
	if (r)
		snprintf(p->error, sizeof(p->error), "the step failed: %s",
			 mm_gpu_strerror(m->gpu, r));
	return r ? -EIO : 0;
}

static int plain_step_abandon(struct mm_memory *m, CUstream stream)
{
	struct mm_step_info info;

	return plain_step_end(m, stream, &info);
}

static int plain_layer(struct mm_memory *m, uint32_t layer, CUstream stream)
{
	(void)m;
	(void)layer;
	(void)stream;
	return 0;
}

static const char *plain_error(struct mm_memory *m)
{
	const struct plain *p = m->state;

	return p->error;
}

static const struct mm_memory_ops plain_ops = {
	.tensor = plain_tensor,
	.store = plain_store,
	.kv_open = plain_kv_open,
	.kv_want = plain_kv_want,
	.kv_usable = plain_kv_usable,
	.kv_release = plain_kv_release,
	.event_fd = plain_event_fd,
	.next_event = plain_next_event,
	.hint = plain_hint,
	.step_begin = plain_step_begin,
	.step_end = plain_step_end,
	.step_abandon = plain_step_abandon,
	.layer_begin = plain_layer,
	.layer_end = plain_layer,
	.error = plain_error,
	.close = plain_close,
};

static int upload(const struct mm_gpu_api *gpu, struct weights_file *f, const char *path, char *err)
{
	f->va = calloc(f->st.n_tensors + 1, sizeof(*f->va));
	if (!f->va)
		return -ENOMEM;
	for (size_t i = 0; i < f->st.n_tensors; i++) {
		const struct mm_st_tensor *t = &f->st.tensors[i];
		CUresult r;

		if (!t->bytes)
			continue;
		r = gpu->cuMemAlloc(&f->va[i], t->bytes);
		if (!r)
			r = gpu->cuMemcpyHtoD(f->va[i], f->bytes + t->file_offset, t->bytes);
		if (r) {
			snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: tensor %s: %s", path, t->name,
				 mm_gpu_strerror(gpu, r));
			return mm_gpu_errno(r);
		}
	}
	return 0;
}

static int load_file(const struct mm_gpu_api *gpu, struct weights_file *f, const char *path,
		     char *err)
{
	mm_cleanup(mm_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char why[512];
	void *bytes;
	int r;

	if (fd < 0) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: %s", path, strerror(errno));
		return -errno;
	}
	r = mm_safetensors_read(fd, &f->st, why, sizeof(why));
	if (r) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: %s", path, why);
		return r;
	}
	bytes = mmap(NULL, f->st.file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: %s", path, strerror(errno));
		return -errno;
	}
	f->bytes = bytes;
	f->length_bytes = f->st.file_bytes;
	return upload(gpu, f, path, err);
}

static void close_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static int load_dir(struct mm_memory *m, const char *dir, char *err)
{
	mm_cleanup(close_dir) DIR *d = opendir(dir);
	struct plain *p = m->state;
	const struct dirent *entry;
	char path[PATH_MAX];
	int r;

	if (!d) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: %s", dir, strerror(errno));
		return -errno;
	}
	while ((entry = readdir(d))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (!dot || strcmp(dot, ".safetensors"))
			continue;
		if (p->n_files == FILES_MAX) {
			snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: more than %d weight files",
				 dir, FILES_MAX);
			return -E2BIG;
		}
		snprintf(path, sizeof(path), "%.3800s/%s", dir, entry->d_name);
		r = load_file(m->gpu, &p->files[p->n_files++], path, err);
		if (r)
			return r;
	}
	if (p->n_files)
		return 0;
	snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: no *.safetensors file", dir);
	return -ENOENT;
}

int mm_memory_plain_open(const struct mm_gpu_api *gpu, const char *dir,
			 struct mm_memory *ret_memory, char *err)
{
	mm_cleanup(mm_memory_close) struct mm_memory m = { .gpu = gpu };
	struct plain *p = calloc(1, sizeof(*p));
	int r;

	snprintf(err, MM_SERVE_ERROR_BYTES, "out of memory");
	if (!p)
		return -ENOMEM;
	m.ops = &plain_ops;
	m.state = p;
	m.page_bytes = PLAIN_PAGE_BYTES;
	m.kv_pages_max = UINT32_MAX;
	m.fixed = true;
	p->files = calloc(FILES_MAX, sizeof(*p->files));
	if (!p->files)
		return -ENOMEM;
	r = load_dir(&m, dir, err);
	if (r)
		return r;
	*ret_memory = m;
	m = (struct mm_memory){ 0 };
	return 0;
}

void mm_memory_close(struct mm_memory *m)
{
	if (m->ops)
		m->ops->close(m);
	*m = (struct mm_memory){ 0 };
}
