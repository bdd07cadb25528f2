/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a GGUF file into what mmd loads: a safetensors file of bytes, in a memfd. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "gguf.h"
#include "libclient/ggml/internal.h"

#define HEADER_ALIGN 8 /* of the length of a safetensors header */

/* A GGUF file while it is turned into files for mmd. */
struct weights {
	const char *path;
	struct gguf_context *gguf;
	struct ggml_context *meta; /* the tensors, without data */
	int in, out;
	uint32_t layers;
};

int mm_ggml_fail(struct mm_ggml *g, int r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(g->error, sizeof(g->error), fmt, ap);
	va_end(ap);
	return r;
}

int mm_ggml_layer(const char *name)
{
	unsigned int layer;
	char dot;

	if (sscanf(name, "blk.%3u%c", &layer, &dot) != 2 || dot != '.')
		return MM_GGML_NO_LAYER;
	return (int)layer;
}

bool mm_ggml_name(const char *name, char ret[MM_TENSOR_NAME_BYTES])
{
	const char *rest = name;
	int n;

	if (mm_ggml_layer(name) != MM_GGML_NO_LAYER)
		rest = name + strlen("blk.");
	if (rest[strspn(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")])
		return false;
	n = snprintf(ret, MM_TENSOR_NAME_BYTES, "%s%s", rest == name ? "" : "layers.", rest);
	return n > 0 && n < MM_TENSOR_NAME_BYTES;
}

static int write_all(int fd, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes > 0) {
		ssize_t n = write(fd, at, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int tensor_copy(const struct weights *w, uint64_t offset, uint64_t bytes)
{
	off_t at = (off_t)offset;

	while (bytes > 0) {
		ssize_t n = sendfile(w->out, w->in, &at, bytes < (1u << 30) ? bytes : 1u << 30);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG; /* the file is shorter than it says */
		bytes -= (uint64_t)n;
	}
	return 0;
}

static struct ggml_tensor *tensor_at(const struct weights *w, int64_t i)
{
	return ggml_get_tensor(w->meta, gguf_get_tensor_name(w->gguf, i));
}

/* Checks names, and that layers 0 to n - 1 are there. */
static int tensors_check(struct mm_ggml *g, struct weights *w)
{
	bool seen[MM_LAYERS_MAX + 1] = { false };
	char name[MM_TENSOR_NAME_BYTES];

	for (int64_t i = 0; i < gguf_get_n_tensors(w->gguf); i++) {
		const char *given = gguf_get_tensor_name(w->gguf, i);
		int layer = mm_ggml_layer(given);

		if (!mm_ggml_name(given, name) || !tensor_at(w, i) ||
		    ggml_nrows(tensor_at(w, i)) < 1)
			return mm_ggml_fail(g, -EBADMSG,
					    "%s: tensor %" PRIi64 ": a name like that "
					    "cannot be loaded",
					    w->path, i);
		if (layer > MM_LAYERS_MAX - 1)
			return mm_ggml_fail(g, -ENOTSUP, "%s: %s: at most %d layers", w->path,
					    given, MM_LAYERS_MAX);
		if (layer == MM_GGML_NO_LAYER)
			continue;
		seen[layer] = true;
		if ((uint32_t)layer >= w->layers)
			w->layers = (uint32_t)layer + 1;
	}
	for (uint32_t l = 0; l < w->layers; l++)
		if (!seen[l])
			return mm_ggml_fail(g, -EBADMSG,
					    "%s: no tensor of layer %u, but of later "
					    "ones",
					    w->path, l);
	if (!w->layers)
		return mm_ggml_fail(g, -EBADMSG, "%s: no tensor is of a layer (blk.N)", w->path);
	return 0;
}

static int file_open(struct mm_ggml *g, struct weights *w)
{
	struct gguf_init_params params = { .no_alloc = true, .ctx = &w->meta };
	int64_t split;

	w->in = open(w->path, O_RDONLY | O_CLOEXEC);
	if (w->in < 0)
		return mm_ggml_fail(g, -errno, "%s: %s", w->path, strerror(errno));
	w->gguf = gguf_init_from_file(w->path, params);
	if (!w->gguf)
		return mm_ggml_fail(g, -EBADMSG, "%s: not a GGUF file that this llama.cpp reads",
				    w->path);
	split = gguf_find_key(w->gguf, "split.count");
	if (split >= 0 && gguf_get_kv_type(w->gguf, split) == GGUF_TYPE_UINT16 &&
	    gguf_get_val_u16(w->gguf, split) > 1)
		return mm_ggml_fail(g, -ENOTSUP,
				    "%s: one of %u parts: merge them first "
				    "(llama-gguf-split --merge)",
				    w->path, gguf_get_val_u16(w->gguf, split));
	return tensors_check(g, w);
}

/* Bytes in as many rows as the tensor has: layers' matrices may go away, their vectors stay. */
static void entry_write(FILE *f, const struct ggml_tensor *t, const char *name, uint64_t at)
{
	uint64_t bytes = ggml_nbytes(t), rows = (uint64_t)ggml_nrows(t);

	fprintf(f, "\"%s\":{\"dtype\":\"U8\",\"shape\":[", name);
	if (rows > 1)
		fprintf(f, "%" PRIu64 ",", rows);
	fprintf(f, "%" PRIu64 "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", bytes / rows, at,
		at + bytes);
}

static int header_write(struct mm_ggml *g, struct weights *w)
{
	char name[MM_TENSOR_NAME_BYTES];
	uint64_t at = 0, length;
	char *text = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&text, &bytes);
	int r;

	if (!f)
		return mm_ggml_fail(g, -ENOMEM, "%s: no memory for the header", w->path);
	fputc('{', f);
	for (int64_t i = 0; i < gguf_get_n_tensors(w->gguf); i++) {
		const struct ggml_tensor *t = tensor_at(w, i);

		mm_ggml_name(gguf_get_tensor_name(w->gguf, i), name);
		fputs(i ? "," : "", f);
		entry_write(f, t, name, at);
		at += ggml_nbytes(t);
	}
	fputc('}', f);
	for (long end = ftell(f); end % HEADER_ALIGN; end++)
		fputc(' ', f);
	r = ferror(f) ? -ENOMEM : 0;
	if (fclose(f) != 0 || r) {
		free(text);
		return mm_ggml_fail(g, -ENOMEM, "%s: no memory for the header", w->path);
	}
	length = bytes; /* little-endian, as everything of safetensors */
	r = write_all(w->out, &length, sizeof(length));
	if (!r)
		r = write_all(w->out, text, bytes);
	free(text);
	return r ? mm_ggml_fail(g, r, "%s: the copy: %s", w->path, strerror(-r)) : 0;
}

static int copy_write(struct mm_ggml *g, struct weights *w)
{
	uint64_t data = gguf_get_data_offset(w->gguf);
	int r;

	w->out = memfd_create("mm-ggml", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (w->out < 0)
		return mm_ggml_fail(g, -errno, "%s: no memfd: %s", w->path, strerror(errno));
	r = header_write(g, w);
	for (int64_t i = 0; !r && i < gguf_get_n_tensors(w->gguf); i++) {
		const struct ggml_tensor *t = tensor_at(w, i);

		r = tensor_copy(w, data + gguf_get_tensor_offset(w->gguf, i), ggml_nbytes(t));
		if (r)
			mm_ggml_fail(g, r, "%s: tensor %s: %s", w->path, ggml_get_name(t),
				     r == -EBADMSG ? "the file ends before it" : strerror(-r));
	}
	return r;
}

/* Sealed, so that tenants of the same weights share the host's copy. */
static int model_load(struct mm_ggml *g, const struct weights *w)
{
	const struct mm_model_opts opts = { .size = sizeof(opts), .n_layers = w->layers };
	int r;

	if (fcntl(w->out, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		return mm_ggml_fail(g, -errno, "%s: the copy: %s", w->path, strerror(errno));
	r = mm_model_load_files(g->client, &w->out, 1, &opts, &g->model);
	return r ? mm_ggml_fail(g, r, "%s: %s", w->path, mm_client_error(g->client)) : 0;
}

int mm_ggml_weights_load(struct mm_ggml *g, const char *path)
{
	struct weights w = { .path = path, .in = -1, .out = -1 };
	int r = file_open(g, &w);

	if (!r)
		r = copy_write(g, &w);
	if (!r)
		r = model_load(g, &w);
	if (w.in >= 0)
		close(w.in);
	if (w.out >= 0)
		close(w.out);
	gguf_free(w.gguf);
	ggml_free(w.meta);
	return r;
}
