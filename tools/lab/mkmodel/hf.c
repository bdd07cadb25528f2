/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mkmodel/hf.h"
#include "tools/lab/mkmodel/config.h"
#include "tools/lab/mkmodel/words.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "tools/lab/mkmodel/rows.h"

/* Tensors have indices in file order; the current file holds those from first to end - 1. */
struct writer {
	const struct mk_source *source;
	const struct mk_format *format;
	uint32_t first, end;
	json_t *index; /* weight_map */
	FILE *file;
	char path[PATH_MAX];
	char *err;
};

static int hf_fail(char *err, int error, const char *text)
{
	snprintf(err, MK_ERROR_BYTES, "%s", text);
	return error;
}

static int fail_path(struct writer *w, const char *what)
{
	const int error = errno ? errno : EIO;

	snprintf(w->err, MK_ERROR_BYTES, "%s: cannot %s: %s", w->path, what, strerror(error));
	return -error;
}

/* ---- tensors ---- */

static struct mk_tensor writer_tensor(const struct writer *w, enum mm_weight weight, uint32_t layer)
{
	const struct mm_arch *a = &w->source->arch;
	struct mk_tensor t = { .weight = weight, .layer = layer };

	mm_arch_size(a, weight, &t.rows, &t.columns);
	mm_arch_name(a, weight, layer, t.name, sizeof(t.name));
	t.vector = t.rows == 0;
	t.rows = MM_MAX(t.rows, 1);
	t.dtype = t.vector ? w->format->vector_dtype : w->format->dtype;
	t.bytes = (uint64_t)t.rows * t.columns * mm_dtype_bytes(t.dtype);
	return t;
}

typedef int visit_fn(struct writer *w, const struct mk_tensor *t, void *arg);

struct walk {
	visit_fn *visit;
	void *arg;
	uint32_t at;
};

static int walk_one(struct writer *w, struct walk *walk, enum mm_weight weight, uint32_t layer)
{
	struct mk_tensor t;

	if (!mm_arch_has(&w->source->arch, weight))
		return 0;
	if (walk->at < w->first || walk->at >= w->end) {
		walk->at++;
		return 0;
	}
	walk->at++;
	t = writer_tensor(w, weight, layer);
	return walk->visit(w, &t, walk->arg);
}

/* Calls @visit for each tensor of the current file, in order, and stops at the first failure. */
static int each_tensor(struct writer *w, visit_fn *visit, void *arg)
{
	struct walk walk = { visit, arg, 0 };
	int r = 0;

	for (enum mm_weight i = 0; i < MM_W_LAYER_FIRST && !r; i++)
		r = walk_one(w, &walk, i, 0);
	for (uint32_t layer = 0; layer < w->source->arch.layers; layer++)
		for (enum mm_weight i = MM_W_LAYER_FIRST; i <= MM_W_LAYER_LAST && !r; i++)
			r = walk_one(w, &walk, i, layer);
	for (enum mm_weight i = MM_W_LAYER_LAST + 1; i < MM_W_COUNT && !r; i++)
		r = walk_one(w, &walk, i, 0);
	return r;
}

/* ---- one file ---- */

struct tensor_header {
	json_t *object;
	uint64_t offset;
};

static int header_tensor(struct writer *w, const struct mk_tensor *t, void *arg)
{
	struct tensor_header *h = arg;
	json_t *shape = t->vector ? json_pack("[I]", (json_int_t)t->columns)
				  : json_pack("[II]", (json_int_t)t->rows, (json_int_t)t->columns);

	if (mm_json_put(h->object, t->name,
			json_pack("{s:s,s:o,s:[II]}", "dtype", mk_dtype_name(t->dtype, false),
				  "shape", shape, "data_offsets", (json_int_t)h->offset,
				  (json_int_t)(h->offset + t->bytes))))
		return hf_fail(w->err, -ENOMEM, "out of memory");
	h->offset += t->bytes;
	return 0;
}

/* Writes the header: eight bytes of length, then JSON, padded with spaces to align the data. */
static int write_header(struct writer *w)
{
	mm_cleanup(mm_json_done) json_t *object = json_object();
	struct tensor_header h = { object, 0 };
	mm_cleanup(mm_free_ptr) char *text = NULL;
	uint64_t length, padded;
	int r = each_tensor(w, header_tensor, &h);

	if (r)
		return r;
	text = json_dumps(object, JSON_COMPACT);
	if (!text)
		return hf_fail(w->err, -ENOMEM, "out of memory");
	length = strlen(text);
	padded = mm_round_up(length, 8);
	if (fwrite(&padded, sizeof(padded), 1, w->file) != 1 ||
	    fprintf(w->file, "%s%*s", text, (int)(padded - length), "") < 0)
		return fail_path(w, "write");
	return 0;
}

static int add_bytes(struct writer *w, const struct mk_tensor *t, void *arg)
{
	uint64_t *bytes = arg;

	(void)w;
	*bytes += t->bytes;
	return 0;
}

static int leave_hole(struct writer *w)
{
	uint64_t bytes = 0;
	off_t header;

	each_tensor(w, add_bytes, &bytes);
	errno = 0;
	header = fflush(w->file) ? -1 : ftello(w->file);
	if (header < 0 || ftruncate(fileno(w->file), header + (off_t)bytes) < 0)
		return fail_path(w, "write");
	return 0;
}

struct tensor_list {
	struct mk_tensor *tensors;
	size_t n;
	uint64_t offset;
};

static int list_tensor(struct writer *w, const struct mk_tensor *t, void *arg)
{
	struct tensor_list *l = arg;

	(void)w;
	l->tensors[l->n] = *t;
	l->tensors[l->n++].offset = l->offset;
	l->offset += t->bytes;
	return 0;
}

static int count_tensor(struct writer *w, const struct mk_tensor *t, void *arg)
{
	(void)w;
	(void)t;
	(*(size_t *)arg)++;
	return 0;
}

static int write_data(struct writer *w)
{
	mm_cleanup(mm_free_ptr) struct mk_tensor *tensors = NULL;
	struct tensor_list list = { 0 };
	size_t n = 0;
	off_t header;
	int r;

	each_tensor(w, count_tensor, &n);
	list.tensors = tensors = calloc(n + 1, sizeof(*tensors));
	if (!tensors)
		return hf_fail(w->err, -ENOMEM, "out of memory");
	each_tensor(w, list_tensor, &list);
	errno = 0;
	header = fflush(w->file) ? -1 : ftello(w->file);
	if (header < 0)
		return fail_path(w, "write");
	r = mk_rows_write(w->source, tensors, list.n, fileno(w->file), (uint64_t)header, w->err);
	if (!r || *w->err)
		return r;
	errno = -r;
	return fail_path(w, "write");
}

static int write_safetensors(struct writer *w)
{
	const int r = write_header(w);

	if (r)
		return r;
	return w->source->row ? write_data(w) : leave_hole(w);
}

static int write_json(struct writer *w, const json_t *json)
{
	if (!json)
		return hf_fail(w->err, -ENOMEM, "out of memory");
	if (json_dumpf(json, w->file, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) ||
	    fputc('\n', w->file) == EOF)
		return fail_path(w, "write");
	return 0;
}

static int write_config(struct writer *w)
{
	mm_cleanup(mm_json_done) json_t *config =
		mk_config_json(&w->source->arch, w->format->dtype);

	return write_json(w, config);
}

static int write_words(struct writer *w)
{
	mm_cleanup(mm_json_done) json_t *words = mk_words_json(&w->source->arch);

	return write_json(w, words);
}

static int write_words_config(struct writer *w)
{
	mm_cleanup(mm_json_done) json_t *config = mk_words_config_json(&w->source->arch);

	return write_json(w, config);
}

/* Has @body write the file dir/name.part, then renames it. */
static int write_file(struct writer *w, const char *dir, const char *name,
		      int (*body)(struct writer *w))
{
	char final[PATH_MAX];
	int r;

	if (snprintf(final, sizeof(final), "%s/%s", dir, name) >= (int)sizeof(final) - 5)
		return hf_fail(w->err, -ENAMETOOLONG, "the output's path is too long");
	snprintf(w->path, sizeof(w->path), "%.*s.part", PATH_MAX - 6, final);
	w->file = fopen(w->path, "wbe");
	if (!w->file)
		return fail_path(w, "create");
	r = body(w);
	if (fclose(w->file) && !r)
		r = fail_path(w, "write");
	if (!r && rename(w->path, final))
		r = fail_path(w, "rename");
	if (r)
		unlink(w->path);
	return r;
}

/* ---- shards ---- */

struct file_sizes {
	uint64_t bytes;
	uint32_t tensors;
};

static int add_size(struct writer *w, const struct mk_tensor *t, void *arg)
{
	struct file_sizes *s = arg;

	(void)w;
	s->bytes += t->bytes;
	s->tensors++;
	return 0;
}

static int index_tensor(struct writer *w, const struct mk_tensor *t, void *arg)
{
	if (mm_json_put(w->index, t->name, json_string(arg)))
		return hf_fail(w->err, -ENOMEM, "out of memory");
	return 0;
}

struct cut {                  /* state of the search for the end of a shard */
	uint64_t bytes, want; /* both from the model's beginning */
	uint32_t at;
};

static int tensor_advance(struct writer *w, const struct mk_tensor *t, void *arg)
{
	struct cut *c = arg;

	(void)w;
	if (c->bytes >= c->want)
		return 1;
	c->bytes += t->bytes;
	c->at++;
	return 0;
}

/* Chooses the tensors of shard @i. Shards have similar sizes, and at least one tensor each. */
static void cut_shard(struct writer *w, uint32_t i, const struct file_sizes *all)
{
	const uint32_t n = w->format->shards, first = w->end;
	struct cut cut = { .want = (uint64_t)((double)all->bytes / n * (i + 1)) };

	w->first = 0;
	w->end = UINT32_MAX;
	if (i + 1 < n)
		each_tensor(w, tensor_advance, &cut);
	else
		cut.at = all->tensors;
	w->first = first;
	w->end = MM_MIN(MM_MAX(cut.at, first + 1), all->tensors - (n - 1 - i));
}

static int write_index(struct writer *w)
{
	struct file_sizes all = { 0 };
	mm_cleanup(mm_json_done) json_t *root = NULL;

	w->first = 0;
	w->end = UINT32_MAX;
	each_tensor(w, add_size, &all);
	root = json_pack("{s:{s:I},s:O}", "metadata", "total_size", (json_int_t)all.bytes,
			 "weight_map", w->index);
	return write_json(w, root);
}

static int write_shards(struct writer *w, const char *dir)
{
	const uint32_t n = w->format->shards;
	struct file_sizes all = { 0 };
	int r = 0;

	each_tensor(w, add_size, &all);
	if (n > all.tensors || n > MK_SHARDS_MAX) {
		snprintf(w->err, MK_ERROR_BYTES, "%u shards for %u tensors (at most %d)", n,
			 all.tensors, MK_SHARDS_MAX);
		return -EINVAL;
	}
	w->end = 0;
	for (uint32_t i = 0; i < n && !r; i++) {
		char name[64];

		snprintf(name, sizeof(name), "model-%05u-of-%05u.safetensors", i + 1, n);
		cut_shard(w, i, &all);
		r = each_tensor(w, index_tensor, name);
		if (!r)
			r = write_file(w, dir, name, write_safetensors);
	}
	return r ? r : write_file(w, dir, "model.safetensors.index.json", write_index);
}

int mk_write(const struct mk_source *source, const char *dir, const struct mk_format *format,
	     char *err)
{
	mm_cleanup(mm_json_done) json_t *index = json_object();
	struct writer w = {
		.source = source, .format = format, .end = UINT32_MAX, .index = index, .err = err
	};
	int r;

	if (!index)
		return hf_fail(err, -ENOMEM, "out of memory");
	if (mkdir(dir, 0777) && errno != EEXIST) {
		snprintf(w.path, sizeof(w.path), "%s", dir);
		return fail_path(&w, "create the folder");
	}
	r = format->shards ? write_shards(&w, dir)
			   : write_file(&w, dir, "model.safetensors", write_safetensors);
	if (!r && format->words && source->arch.vocab <= MK_WORDS_MAX) {
		r = write_file(&w, dir, "tokenizer.json", write_words);
		if (!r)
			r = write_file(&w, dir, "tokenizer_config.json", write_words_config);
	}
	return r ? r : write_file(&w, dir, "config.json", write_config);
}
