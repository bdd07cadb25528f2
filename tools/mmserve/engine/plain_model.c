/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/plain_model.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/model/shard_names.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/model/config.h"
#include "libclient/model/index.h"
#include "tools/mmserve/engine/config.h"

#define INDEX_NAME "model.safetensors.index.json"

struct plain_model_opener {
	const struct mm_gpu_api *gpu;
	const char *dir;
	char *err;
	struct mm_model_config config;
	int index_fd; /* -1: the folder has none */
};

static int MM_PRINTF(3, 4)
	plain_model_fail(const struct plain_model_opener *o, int error, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(o->err, MM_SERVE_ERROR_BYTES, "%.3900s: %s", o->dir, text);
	return error;
}

static int plain_file_open(const struct plain_model_opener *o, const char *name,
			   const char **ret_why)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.3700s/%.300s", o->dir, name);
	return mm_serve_open(path, ret_why);
}

/* ---- the list of files ---- */

static int model_file_add(const struct plain_model_opener *o, struct mm_plain_model *m,
			  const char *name)
{
	if (m->n_files == MM_LOAD_FILES_MAX)
		return plain_model_fail(o, -E2BIG, "more than %d weight files", MM_LOAD_FILES_MAX);
	if (strlen(name) >= MM_FILE_NAME_BYTES)
		return plain_model_fail(o, -ENAMETOOLONG, "%.60s...: a name too long", name);
	snprintf(m->files[m->n_files++].name, MM_FILE_NAME_BYTES, "%s", name);
	return 0;
}

static int plain_file_compare(const void *a, const void *b)
{
	const struct mm_plain_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int files_list_dir(const struct plain_model_opener *o, struct mm_plain_model *m)
{
	mm_cleanup(mm_close_dir) DIR *d = opendir(o->dir);
	const struct dirent *entry;
	int r = 0;

	if (!d)
		return plain_model_fail(o, -errno, "%s", strerror(errno));
	while (!r && (entry = readdir(d))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (dot && !strcmp(dot, ".safetensors"))
			r = model_file_add(o, m, entry->d_name);
	}
	if (!r && !m->n_files)
		return plain_model_fail(o, -ENOENT, "no *.safetensors file");
	qsort(m->files, m->n_files, sizeof(*m->files), plain_file_compare);
	return r;
}

static int files_list_index(const struct plain_model_opener *o, struct mm_plain_model *m)
{
	mm_cleanup(mm_free_ptr) struct mm_shard_names *names = calloc(1, sizeof(*names));
	char why[256];
	int r;

	if (!names)
		return -ENOMEM;
	r = mm_shard_names_read(o->index_fd, names, why, sizeof(why));
	if (r)
		return plain_model_fail(o, r, INDEX_NAME ": %s", why);
	for (size_t i = 0; i < names->n && !r; i++)
		r = model_file_add(o, m, names->name[i]);
	return r;
}

static int files_list(struct plain_model_opener *o, struct mm_plain_model *m)
{
	const char *why = "";

	o->index_fd = plain_file_open(o, INDEX_NAME, &why);
	if (o->index_fd == -ENOENT)
		return files_list_dir(o, m);
	return o->index_fd < 0 ? plain_model_fail(o, o->index_fd, INDEX_NAME ": %s", why)
			       : files_list_index(o, m);
}

/* ---- reading and laying out ---- */

static int model_file_map(const struct plain_model_opener *o, struct mm_plain_file *f,
			  struct mm_safetensors *st)
{
	const char *unopened = "";
	mm_cleanup(mm_close_fd) int fd = plain_file_open(o, f->name, &unopened);
	char why[256];
	void *bytes;
	int r;

	if (fd < 0)
		return plain_model_fail(o, fd, "%.250s: %s", f->name, unopened);
	r = mm_safetensors_read(fd, st, why, sizeof(why));
	if (r)
		return plain_model_fail(o, r, "%.200s: %s", f->name, why);
	bytes = mmap(NULL, st->file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return plain_model_fail(o, -errno, "%.250s: %s", f->name, strerror(errno));
	f->bytes = bytes;
	f->length_bytes = st->file_bytes;
	return 0;
}

static int model_config_read(struct plain_model_opener *o)
{
	const char *unopened = "";
	mm_cleanup(mm_close_fd) int fd = plain_file_open(o, "config.json", &unopened);
	struct mm_why why;
	int r;

	if (fd < 0)
		return plain_model_fail(o, fd, "config.json: %s", unopened);
	r = mm_model_config_read(fd, "config.json", &o->config, &why);
	return r ? plain_model_fail(o, r, "%s", why.text) : 0;
}

/* Adds a rule of libclient's packing list to those of the loader. */
static int pack_add(const struct plain_model_opener *o, const struct mm_pack *pack,
		    struct mm_packs *packs)
{
	struct mm_load_pack rule = { .magic = MM_ABI_MAGIC,
				     .kind = MM_LOAD_PACK,
				     .flags = pack->flags,
				     .n_members = pack->n_members };
	struct mm_why why;

	if (pack->n_members > MM_PACK_MEMBERS_MAX)
		return plain_model_fail(o, -EINVAL, "a packing rule of %u members",
					pack->n_members);
	if (pack->name)
		snprintf(rule.name, sizeof(rule.name), "%s", pack->name);
	for (uint32_t i = 0; i < pack->n_members; i++)
		snprintf(rule.member[i], sizeof(rule.member[i]), "%s", pack->members[i]);
	return mm_packs_add(packs, &rule, &why) ? plain_model_fail(o, -EINVAL, "%s", why.text) : 0;
}

static int layout_build(const struct plain_model_opener *o, const struct mm_model_opts *opts,
			struct mm_plain_model *m)
{
	const char *names[MM_LOAD_FILES_MAX];
	const struct mm_model_parts parts = { m->st, names, m->n_files, o->config.layers,
					      m->packs };
	const struct mm_shards shards = { m->st, names, m->n_files };
	struct mm_why why;
	int r = 0;

	for (size_t i = 0; i < m->n_files; i++)
		names[i] = m->files[i].name;
	for (size_t i = 0; opts && i < opts->n_packs && !r; i++)
		r = pack_add(o, &opts->packs[i], m->packs);
	if (r)
		return r;
	mm_packs_sort(m->packs);
	if (o->index_fd >= 0)
		r = mm_index_read(o->index_fd, INDEX_NAME, &shards, &why);
	if (!r)
		r = mm_layout_make(&parts, &m->layout, &why);
	return r ? plain_model_fail(o, r, "%s", why.text) : 0;
}

/* ---- the device ---- */

static int plain_model_allocate(const struct plain_model_opener *o, struct mm_plain_model *m)
{
	m->groups = calloc(m->layout.dir.n_groups, sizeof(*m->groups));
	if (!m->groups)
		return -ENOMEM;
	for (uint32_t g = 0; g < m->layout.dir.n_groups; g++) {
		const uint64_t bytes = m->layout.groups[g].bytes;
		const CUresult r = bytes ? o->gpu->cuMemAlloc(&m->groups[g], bytes) : CUDA_SUCCESS;

		if (r)
			return plain_model_fail(
				o, mm_gpu_errno(r), "%llu bytes of device memory: %s",
				(unsigned long long)bytes, mm_gpu_strerror(o->gpu, r));
	}
	return 0;
}

static int plain_model_upload(const struct plain_model_opener *o, struct mm_plain_model *m)
{
	CUresult r;

	for (size_t i = 0; i < m->layout.n_placed; i++) {
		const struct mm_placed *p = &m->layout.placed[i];
		const uint64_t at = p->store_offset - m->layout.groups[p->group].store_offset;
		const struct mm_plain_file *f = &m->files[p->file];

		if (p->item_bytes)
			return plain_model_fail(o, -ENOTSUP, "transposed matrices are mmd's alone");
		if (!p->bytes)
			continue;
		r = o->gpu->cuMemcpyHtoD(m->groups[p->group] + at, f->bytes + p->file_offset,
					 p->bytes);
		if (r)
			return plain_model_fail(o, mm_gpu_errno(r), "%.250s: %s", f->name,
						mm_gpu_strerror(o->gpu, r));
	}
	/*
	 * Copies from pageable memory may not be complete yet, and the engine's stream does not
	 * wait for them.
	 */
	r = o->gpu->cuCtxSynchronize();
	return r ? plain_model_fail(o, mm_gpu_errno(r), "cannot copy the weights: %s",
				    mm_gpu_strerror(o->gpu, r))
		 : 0;
}

static int plain_model_read(struct plain_model_opener *o, const struct mm_model_opts *opts,
			    struct mm_plain_model *m)
{
	int r = model_config_read(o);

	if (!r)
		r = files_list(o, m);
	for (size_t i = 0; i < m->n_files && !r; i++)
		r = model_file_map(o, &m->files[i], &m->st[i]);
	if (!r)
		r = layout_build(o, opts, m);
	if (!r && o->gpu)
		r = plain_model_allocate(o, m);
	return r || !o->gpu ? r : plain_model_upload(o, m);
}

int mm_plain_model_open(const struct mm_gpu_api *gpu, const char *dir,
			const struct mm_model_opts *opts, struct mm_plain_model *ret, char *err)
{
	struct plain_model_opener o = { .gpu = gpu, .dir = dir, .err = err, .index_fd = -1 };
	struct mm_plain_model m = {
		.files = calloc(MM_LOAD_FILES_MAX, sizeof(*m.files)),
		.st = calloc(MM_LOAD_FILES_MAX, sizeof(*m.st)),
		.packs = calloc(1, sizeof(*m.packs)),
	};
	int r = -ENOMEM;

	snprintf(err, MM_SERVE_ERROR_BYTES, "out of memory");
	if (m.files && m.st && m.packs)
		r = plain_model_read(&o, opts, &m);
	mm_close_fd(&o.index_fd);
	if (r)
		mm_plain_model_close(gpu, &m);
	else
		*ret = m;
	return r;
}

void mm_plain_model_close(const struct mm_gpu_api *gpu, struct mm_plain_model *m)
{
	for (uint32_t g = 0; m->groups && g < m->layout.dir.n_groups; g++)
		if (m->groups[g])
			gpu->cuMemFree(m->groups[g]);
	for (size_t i = 0; i < m->n_files; i++) {
		if (m->files[i].bytes)
			munmap(m->files[i].bytes, m->files[i].length_bytes);
		mm_safetensors_done(&m->st[i]);
	}
	mm_layout_done(&m->layout);
	free(m->groups);
	free(m->files);
	free(m->st);
	free(m->packs);
	*m = (struct mm_plain_model){ 0 };
}

/* ---- looking up tensors ---- */

static int plain_tensor_compare(const void *name, const void *tensor)
{
	return strcmp(name, ((const struct mm_dir_tensor *)tensor)->name);
}

int mm_plain_model_tensor(const struct mm_plain_model *m, const char *name,
			  struct mm_tensor *ret_tensor)
{
	const struct mm_dir_tensor *t = bsearch(name, m->layout.tensors, m->layout.dir.n_tensors,
						sizeof(*t), plain_tensor_compare);

	if (!t)
		return -ENOENT;
	*ret_tensor = (struct mm_tensor){ .size = sizeof(*ret_tensor),
					  .va = (m->groups ? m->groups[t->group] : 0) + t->offset,
					  .dtype = t->dtype,
					  .rank = t->rank,
					  .bytes = t->bytes,
					  .layer = (int32_t)t->group - 1,
					  .flags = t->flags };
	memcpy(ret_tensor->shape, t->shape, sizeof(t->shape));
	return 0;
}

const void *mm_plain_model_store(const struct mm_plain_model *m, const char *name,
				 uint64_t *ret_bytes)
{
	for (size_t i = 0; i < m->n_files; i++) {
		for (size_t j = 0; j < m->st[i].n_tensors; j++) {
			const struct mm_st_tensor *t = &m->st[i].tensors[j];

			if (strcmp(t->name, name))
				continue;
			*ret_bytes = t->bytes;
			return m->files[i].bytes + t->file_offset;
		}
	}
	return NULL;
}
