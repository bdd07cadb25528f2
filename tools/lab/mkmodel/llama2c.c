/* SPDX-License-Identifier: Apache-2.0 */
/* llama2c - weights from a checkpoint of llama2.c (sources.h). */
#include "libclient/support/cleanup.h"
#include "tools/lab/mkmodel/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "libclient/base/base.h"
#include "tools/lab/mkmodel/config.h"

#define HEADER_BYTES 28u

/* The file's arrays, in order. Each array holds one weight of all layers. */
static const enum mm_weight file_order[] = { MM_W_EMBED, MM_W_INPUT_NORM, MM_W_Q,         MM_W_K,
					     MM_W_V,     MM_W_O,          MM_W_POST_NORM, MM_W_GATE,
					     MM_W_DOWN,  MM_W_UP,         MM_W_FINAL_NORM };

static uint64_t array_bytes(const struct mm_arch *a, enum mm_weight weight)
{
	uint32_t rows, columns;

	mm_arch_size(a, weight, &rows, &columns);
	return (uint64_t)MM_MAX(rows, 1) * columns * sizeof(float) *
	       (mm_weight_per_layer(weight) ? a->layers : 1);
}

/* Returns where @weight begins. The last array is followed by RoPE tables and an untied head. */
static uint64_t array_offset(const struct mm_arch *a, enum mm_weight weight)
{
	uint64_t offset = HEADER_BYTES;

	for (size_t i = 0; i < MM_ARRAY_SIZE(file_order); i++) {
		if (file_order[i] == weight)
			return offset;
		offset += array_bytes(a, file_order[i]);
	}
	return offset + (uint64_t)a->max_position * (a->hidden / a->heads) * sizeof(float);
}

static int parse_arch(const int32_t header[7], struct mm_arch *ret_arch, char *err)
{
	struct mm_arch a = { .tied = header[5] > 0 };

	for (int i = 0; i < 7; i++) {
		if (header[i] <= 0 && !(i == 5 && header[5] < 0 && header[5] != INT32_MIN)) {
			snprintf(err, MK_ERROR_BYTES,
				 "not a llama2.c checkpoint: header word %d is %d", i, header[i]);
			return -EBADMSG;
		}
	}
	a.hidden = (uint32_t)header[0];
	a.ffn = (uint32_t)header[1];
	a.layers = (uint32_t)header[2];
	a.heads = (uint32_t)header[3];
	a.kv_heads = (uint32_t)header[4];
	a.vocab = (uint32_t)(a.tied ? header[5] : -header[5]);
	a.max_position = (uint32_t)header[6];
	mm_arch_fill(&a);
	if (mk_arch_check(&a, err))
		return -EBADMSG;
	*ret_arch = a;
	return 0;
}

static int llama2c_check(struct mk_llama2c *c, char *err)
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
	r = parse_arch(header, &c->arch, err);
	if (r)
		return r;
	want = array_offset(&c->arch, MM_W_HEAD);
	want += c->arch.tied ? 0 : array_bytes(&c->arch, MM_W_HEAD);
	if (c->length_bytes != want) {
		snprintf(err, MK_ERROR_BYTES,
			 "the header's shape makes %llu bytes, the file has %zu",
			 (unsigned long long)want, c->length_bytes);
		return -EBADMSG;
	}
	return 0;
}

static int llama2c_map(const char *path, struct mk_llama2c *c)
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
	int r = llama2c_map(path, &c);

	if (r) {
		snprintf(err, MK_ERROR_BYTES, "%s: %s", path, strerror(-r));
		return r;
	}
	r = llama2c_check(&c, err);
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

void mk_llama2c_row(void *context, enum mm_weight weight, uint32_t layer, uint32_t row, float *out)
{
	const struct mk_llama2c *c = context;
	const uint32_t half = c->arch.hidden / c->arch.heads / 2;
	uint64_t offset = array_offset(&c->arch, weight);
	uint32_t rows, columns;

	mm_arch_size(&c->arch, weight, &rows, &columns);
	if (weight == MM_W_Q || weight == MM_W_K) {
		const uint32_t in_head = row % (2 * half);

		row += (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1) - in_head;
	}
	offset += ((uint64_t)layer * MM_MAX(rows, 1) + row) * columns * sizeof(float);
	memcpy(out, c->bytes + offset, columns * sizeof(float));
}
