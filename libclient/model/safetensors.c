/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/dtype.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"

/* The limit of the reference implementation; it bounds the cost of a parse. */
#define HEADER_BYTES_MAX UINT64_C(100000000)
#define RANK_MAX         4
#define LENGTH_BYTES     8

/* The text of a refusal: one sentence, printable whatever strings the file has. */
struct refusal {
	char *text;
	size_t bytes;
};

static int header_refuse(const struct refusal *refusal, int code, const char *format, ...)
	MM_PRINTF(3, 4);

static int header_refuse(const struct refusal *refusal, int code, const char *format, ...)
{
	va_list args;

	if (!refusal->bytes)
		return code;
	va_start(args, format);
	vsnprintf(refusal->text, refusal->bytes, format, args);
	va_end(args);
	for (char *c = refusal->text; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
	return code;
}

static int tensor_parse_dtype(const json_t *entry, struct mm_st_tensor *t,
			      const struct refusal *refusal)
{
	const char *text = json_string_value(json_object_get(entry, "dtype"));

	if (!text)
		return header_refuse(refusal, -EBADMSG,
				     "tensor %s: no dtype, or it is not a string", t->name);
	t->dtype = mm_dtype_find(text);
	if (!t->dtype)
		return header_refuse(refusal, -ENOTSUP, "tensor %s: dtype %.16s is not known",
				     t->name, text);
	return 0;
}

static int tensor_parse_shape(const json_t *entry, struct mm_st_tensor *t,
			      const struct refusal *refusal)
{
	const json_t *shape = json_object_get(entry, "shape");
	uint64_t bits = mm_dtype_bits(t->dtype);
	size_t rank;

	if (!json_is_array(shape))
		return header_refuse(refusal, -EBADMSG,
				     "tensor %s: no shape, or it is not an array", t->name);
	rank = json_array_size(shape);
	if (rank > RANK_MAX)
		return header_refuse(refusal, -ENOTSUP,
				     "tensor %s: rank %zu is not served, at most %d is", t->name,
				     rank, RANK_MAX);
	for (size_t i = 0; i < rank; i++) {
		if (!mm_json_is_whole(json_array_get(shape, i), 0, INT64_MAX, &t->shape[i]))
			return header_refuse(refusal, -EBADMSG,
					     "tensor %s: shape[%zu] is not an integer >= 0",
					     t->name, i);
		if (__builtin_mul_overflow(bits, t->shape[i], &bits))
			return header_refuse(refusal, -EBADMSG,
					     "tensor %s: the shape overflows 2^61 bytes", t->name);
	}
	if (bits % 8)
		return header_refuse(refusal, -EBADMSG,
				     "tensor %s: elements of %u bits do not fill its last byte",
				     t->name, mm_dtype_bits(t->dtype));
	t->rank = (uint32_t)rank;
	t->bytes = bits / 8;
	return 0;
}

static int tensor_parse_offsets(const json_t *entry, struct mm_st_tensor *t, uint64_t data_offset,
				uint64_t file_bytes, const struct refusal *refusal)
{
	const json_t *offsets = json_object_get(entry, "data_offsets");
	uint64_t begin, end;

	if (!json_is_array(offsets) || json_array_size(offsets) != 2)
		return header_refuse(refusal, -EBADMSG,
				     "tensor %s: no data_offsets, or they are not an array of two",
				     t->name);
	if (!mm_json_is_whole(json_array_get(offsets, 0), 0, INT64_MAX, &begin) ||
	    !mm_json_is_whole(json_array_get(offsets, 1), 0, INT64_MAX, &end))
		return header_refuse(refusal, -EBADMSG,
				     "tensor %s: data_offsets are not integers >= 0", t->name);
	if (begin > end)
		return header_refuse(refusal, -EBADMSG,
				     "tensor %s: data_offsets are reversed (%" PRIu64 " > %" PRIu64
				     ")",
				     t->name, begin, end);
	if (end > file_bytes - data_offset)
		return header_refuse(refusal, -EBADMSG,
				     "tensor %s: ends at byte %" PRIu64
				     " of the data, of which the file has %" PRIu64,
				     t->name, end, file_bytes - data_offset);
	if (end - begin != t->bytes)
		return header_refuse(refusal, -EBADMSG,
				     "tensor %s: its shape needs %" PRIu64
				     " bytes, data_offsets hold %" PRIu64,
				     t->name, t->bytes, end - begin);
	t->file_offset = data_offset + begin;
	return 0;
}

static int tensor_parse(const char *name, const json_t *entry, uint64_t data_offset,
			uint64_t file_bytes, struct mm_st_tensor *t, const struct refusal *refusal)
{
	int r;

	if (!name[0])
		return header_refuse(refusal, -EBADMSG, "a tensor has an empty name");
	if (strlen(name) >= sizeof(t->name))
		return header_refuse(
			refusal, -ENOTSUP,
			"tensor %.40s...: the name has %zu bytes, at most %zu are served", name,
			strlen(name), sizeof(t->name) - 1);
	memcpy(t->name, name, strlen(name) + 1);
	if (!json_is_object(entry))
		return header_refuse(refusal, -EBADMSG, "tensor %s: its entry is not an object",
				     t->name);
	r = tensor_parse_dtype(entry, t, refusal);
	if (r < 0)
		return r;
	r = tensor_parse_shape(entry, t, refusal);
	if (r < 0)
		return r;
	return tensor_parse_offsets(entry, t, data_offset, file_bytes, refusal);
}

static int metadata_check(json_t *metadata, const struct refusal *refusal)
{
	const char *key;
	json_t *value;

	if (!json_is_object(metadata))
		return header_refuse(refusal, -EBADMSG, "__metadata__ is not an object");
	json_object_foreach(metadata, key, value)
		if (!json_is_string(value))
			return header_refuse(refusal, -EBADMSG,
					     "__metadata__: %.80s is not a string", key);
	return 0;
}

static int tensor_compare_offset(const void *a, const void *b)
{
	const struct mm_st_tensor *x = a, *y = b;

	if (x->file_offset != y->file_offset)
		return x->file_offset < y->file_offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int tensor_compare_name(const void *a, const void *b)
{
	return strcmp(((const struct mm_st_tensor *)a)->name,
		      ((const struct mm_st_tensor *)b)->name);
}

/* Every byte of the data must belong to exactly one tensor; others could hide anything. */
static int tiling_check(struct mm_safetensors *st, uint64_t data_offset,
			const struct refusal *refusal)
{
	uint64_t at = data_offset;

	qsort(st->tensors, st->n_tensors, sizeof(*st->tensors), tensor_compare_offset);
	for (size_t i = 0; i < st->n_tensors; i++) {
		const struct mm_st_tensor *t = &st->tensors[i];

		if (t->file_offset < at)
			return header_refuse(refusal, -EBADMSG, "tensor %s: overlaps tensor %s",
					     t->name, st->tensors[i - 1].name);
		if (t->file_offset > at)
			return header_refuse(refusal, -EBADMSG,
					     "tensor %s: a hole of %" PRIu64 " bytes before it",
					     t->name, t->file_offset - at);
		at += t->bytes;
	}
	if (at != st->file_bytes)
		return header_refuse(refusal, -EBADMSG,
				     "%" PRIu64 " bytes after the last tensor belong to none",
				     st->file_bytes - at);
	return 0;
}

static int header_parse_entries(json_t *root, uint64_t data_offset, struct mm_safetensors *st,
				const struct refusal *refusal)
{
	const char *name;
	json_t *entry;
	int r;

	json_object_foreach(root, name, entry) {
		if (strcmp(name, "__metadata__") == 0)
			r = metadata_check(entry, refusal);
		else
			r = tensor_parse(name, entry, data_offset, st->file_bytes,
					 &st->tensors[st->n_tensors++], refusal);
		if (r < 0)
			return r;
	}
	r = tiling_check(st, data_offset, refusal);
	if (r < 0)
		return r;
	qsort(st->tensors, st->n_tensors, sizeof(*st->tensors), tensor_compare_name);
	return 0;
}

static int header_load_json(const char *json, size_t json_bytes, json_t **ret_root,
			    const struct refusal *refusal)
{
	json_error_t where;
	json_t *root;

	if (json_bytes == 0 || json[0] != '{')
		return header_refuse(refusal, -EBADMSG,
				     "the header is not a JSON object: it does not begin with {");
	root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, &where);
	if (!root && json_error_code(&where) == json_error_out_of_memory)
		return header_refuse(refusal, -ENOMEM, "no memory to parse the header");
	if (!root)
		return header_refuse(refusal, -EBADMSG,
				     "the header is not valid JSON at byte %d: %s", where.position,
				     where.text);
	*ret_root = root;
	return 0;
}

int mm_safetensors_parse(const char *json, size_t json_bytes, uint64_t data_offset,
			 uint64_t file_bytes, struct mm_safetensors *ret_st, char *err,
			 size_t err_bytes)
{
	mm_cleanup(mm_safetensors_done) struct mm_safetensors st = { .file_bytes = file_bytes };
	const struct refusal refusal = { err, err ? err_bytes : 0 };
	mm_cleanup(mm_json_done) json_t *root = NULL;
	size_t entries;
	int r;

	if (data_offset > file_bytes)
		return header_refuse(&refusal, -EBADMSG,
				     "the data begin at byte %" PRIu64 ", the file has %" PRIu64,
				     data_offset, file_bytes);
	r = header_load_json(json, json_bytes, &root, &refusal);
	if (r < 0)
		return r;
	entries = json_object_size(root);
	if (entries > MM_TENSORS_MAX)
		return header_refuse(&refusal, -ENOTSUP, "%zu tensors, at most %d are served",
				     entries, MM_TENSORS_MAX);
	st.tensors = calloc(entries + 1, sizeof(*st.tensors));
	if (!st.tensors)
		return header_refuse(&refusal, -ENOMEM, "no memory for %zu tensors", entries);
	r = header_parse_entries(root, data_offset, &st, &refusal);
	if (r < 0)
		return r;
	*ret_st = st;
	st = (struct mm_safetensors){ 0 };
	return 0;
}

/*
 * Reads exactly @bytes at @offset; a file that ends sooner is malformed, which is not an I/O error.
 */
static int file_read_exactly(int fd, void *buffer, size_t bytes, uint64_t offset,
			     const struct refusal *refusal)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(fd, (char *)buffer + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return header_refuse(refusal, -EIO,
					     "reading the header at byte %" PRIu64 ": %s",
					     offset + done, strerror(errno));
		if (n == 0)
			return header_refuse(refusal, -EBADMSG,
					     "the file ends at byte %" PRIu64 ", inside its header",
					     offset + done);
		done += (size_t)n;
	}
	return 0;
}

int mm_safetensors_read(int fd, struct mm_safetensors *ret_st, char *err, size_t err_bytes)
{
	const struct refusal refusal = { err, err ? err_bytes : 0 };
	mm_cleanup(mm_free_ptr) char *json = NULL;
	uint64_t header_bytes, file_bytes;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return header_refuse(&refusal, -EIO, "fstat: %s", strerror(errno));
	file_bytes = (uint64_t)st.st_size;
	if (file_bytes < LENGTH_BYTES)
		return header_refuse(&refusal, -EBADMSG,
				     "the file has %" PRIu64 " bytes, a header needs %d",
				     file_bytes, LENGTH_BYTES);
	r = file_read_exactly(fd, &header_bytes, sizeof(header_bytes), 0, &refusal);
	if (r < 0)
		return r;
	if (header_bytes > HEADER_BYTES_MAX)
		return header_refuse(&refusal, -EBADMSG,
				     "a header of %" PRIu64 " bytes; at most %" PRIu64
				     " are allowed",
				     header_bytes, HEADER_BYTES_MAX);
	if (header_bytes > file_bytes - LENGTH_BYTES)
		return header_refuse(&refusal, -EBADMSG,
				     "a header of %" PRIu64 " bytes in a file of %" PRIu64
				     ": truncated?",
				     header_bytes, file_bytes);
	json = malloc(header_bytes + 1);
	if (!json)
		return header_refuse(&refusal, -ENOMEM,
				     "no memory for a header of %" PRIu64 " bytes", header_bytes);
	r = file_read_exactly(fd, json, header_bytes, LENGTH_BYTES, &refusal);
	if (r < 0)
		return r;
	return mm_safetensors_parse(json, header_bytes, LENGTH_BYTES + header_bytes, file_bytes,
				    ret_st, err, err_bytes);
}

void mm_safetensors_done(struct mm_safetensors *st)
{
	free(st->tensors);
	*st = (struct mm_safetensors){ 0 };
}
