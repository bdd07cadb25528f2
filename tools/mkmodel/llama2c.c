/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mkmodel/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "mm/base.h"

#define HEADER_BYTES 28u

/* The file's arrays in order; each holds all layers of one kind. */
static const enum mk_kind file_order[] = { MK_EMBED, MK_INPUT_NORM, MK_Q,         MK_K,
					   MK_V,     MK_O,          MK_POST_NORM, MK_GATE,
					   MK_DOWN,  MK_UP,         MK_FINAL_NORM };

static bool per_layer(enum mk_kind kind)
{
	return kind >= MK_INPUT_NORM && kind <= MK_DOWN;
}

static uint64_t array_bytes(const struct mk_shape *s, enum mk_kind kind)
{
	uint32_t rows, columns;

	mk_kind_size(s, kind, &rows, &columns);
	return (uint64_t)rows * columns * sizeof(float) * (per_layer(kind) ? s->layers : 1);
}

/* Where @kind begins; behind the last array lie the old RoPE tables, then an untied head. */
static uint64_t array_offset(const struct mk_shape *s, enum mk_kind kind)
{
	uint64_t offset = HEADER_BYTES;

	for (size_t i = 0; i < MM_ARRAY_SIZE(file_order); i++) {
		if (file_order[i] == kind)
			return offset;
		offset += array_bytes(s, file_order[i]);
	}
	return offset + (uint64_t)s->max_position * (s->hidden / s->heads) * sizeof(float);
}

static int parse_shape(const int32_t header[7], struct mk_shape *ret_shape, char *err)
{
	struct mk_shape s = { .tied = header[5] > 0 };

	for (int i = 0; i < 7; i++) {
		if (header[i] <= 0 && !(i == 5 && header[5] < 0 && header[5] != INT32_MIN)) {
			snprintf(err, MK_ERROR_BYTES,
				 "not a llama2.c checkpoint: header word %d is %d", i, header[i]);
			return -EBADMSG;
		}
	}
	s.hidden = (uint32_t)header[0];
	s.ffn = (uint32_t)header[1];
	s.layers = (uint32_t)header[2];
	s.heads = (uint32_t)header[3];
	s.kv_heads = (uint32_t)header[4];
	s.vocab = (uint32_t)(s.tied ? header[5] : -header[5]);
	s.max_position = (uint32_t)header[6];
	if (mk_shape_check(&s, err))
		return -EBADMSG;
	*ret_shape = s;
	return 0;
}

static int check(struct mk_llama2c *c, char *err)
{
	int32_t header[7];
	uint64_t want;
	int r;

	if (c->length_bytes < HEADER_BYTES) {
		snprintf(err, MK_ERROR_BYTES, "not a llama2.c checkpoint: only %zu bytes",
			 c->length_bytes);
		return -EBADMSG;
	}
	memcpy(header, c->bytes, sizeof(header));
	r = parse_shape(header, &c->shape, err);
	if (r)
		return r;
	want = array_offset(&c->shape, MK_HEAD);
	want += c->shape.tied ? 0 : array_bytes(&c->shape, MK_HEAD);
	if (c->length_bytes != want) {
		snprintf(err, MK_ERROR_BYTES,
			 "the header's shape makes %llu bytes, the file has %zu",
			 (unsigned long long)want, c->length_bytes);
		return -EBADMSG;
	}
	return 0;
}

static int map_file(const char *path, struct mk_llama2c *c)
{
	mm_cleanup(mm_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *bytes;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size == 0)
		return 0;
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return -errno;
	c->bytes = bytes;
	c->length_bytes = (size_t)st.st_size;
	return 0;
}

int mk_llama2c_open(const char *path, struct mk_llama2c *ret_ckpt, char *err)
{
	mm_cleanup(mk_llama2c_close) struct mk_llama2c c = { 0 };
	char why[MK_ERROR_BYTES / 4];
	int r = map_file(path, &c);

	if (r) {
		snprintf(err, MK_ERROR_BYTES, "%s: %s", path, strerror(-r));
		return r;
	}
	r = check(&c, err);
	if (r) {
		snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, err);
		snprintf(err, MK_ERROR_BYTES, "%.3000s: %s", path, why);
		return r;
	}
	*ret_ckpt = c;
	c = (struct mk_llama2c){ 0 };
	return 0;
}

void mk_llama2c_close(struct mk_llama2c *c)
{
	if (c->bytes)
		munmap((void *)(uintptr_t)c->bytes, c->length_bytes);
	c->bytes = NULL;
}

void mk_llama2c_row(void *context, enum mk_kind kind, uint32_t layer, uint32_t row, float *out)
{
	const struct mk_llama2c *c = context;
	const uint32_t half = c->shape.hidden / c->shape.heads / 2;
	uint64_t offset = array_offset(&c->shape, kind);
	uint32_t rows, columns;

	mk_kind_size(&c->shape, kind, &rows, &columns);
	if (kind == MK_Q || kind == MK_K) {
		const uint32_t in_head = row % (2 * half);

		row += (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1) - in_head;
	}
	offset += ((uint64_t)layer * rows + row) * columns * sizeof(float);
	memcpy(out, c->bytes + offset, columns * sizeof(float));
}
