/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buffer type. ggml lays tensors out in a buffer by itself; here each tensor is moved, when it
 * is initialised, to where mmd has it. What ggml took for the buffer's addresses is reserved and
 * not accessible, so that nothing is written there by mistake.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ggml-cpu.h"
#include "libclient/ggml/internal.h"

#define ALIGNMENT 32 /* what ggml's CPU backend wants; mmd aligns tensors to more */

struct reserved {
	struct mm_ggml *g;
	void *base;
	size_t bytes;
};

static void reserved_free(ggml_backend_buffer_t buffer)
{
	struct reserved *res = buffer->context;

	munmap(res->base, res->bytes);
	free(res);
}

static void *reserved_base(ggml_backend_buffer_t buffer)
{
	const struct reserved *res = buffer->context;

	return res->base;
}

static enum ggml_status tensor_init(ggml_backend_buffer_t buffer, struct ggml_tensor *t)
{
	const struct reserved *res = buffer->context;
	struct mm_tensor have = { .size = sizeof(have) };
	char name[MM_TENSOR_NAME_BYTES];

	if (t->view_src)
		return GGML_STATUS_SUCCESS; /* its data is set from that of the other */
	if (!mm_ggml_name(t->name, name) || mm_model_tensor(res->g->model, name, &have) ||
	    have.bytes < ggml_nbytes(t) || have.va % ALIGNMENT) {
		mm_ggml_fail(res->g, -EBADMSG, "%s: not a tensor of the file that was loaded",
			     t->name);
		return GGML_STATUS_FAILED;
	}
	t->data = (void *)(uintptr_t)have.va;
	return GGML_STATUS_SUCCESS;
}

/* The host's copy of a part of a tensor; NULL if there is no such part. */
static const char *tensor_host(const struct mm_ggml *g, const struct ggml_tensor *t, size_t offset,
			       size_t bytes)
{
	char name[MM_TENSOR_NAME_BYTES];
	uint64_t have = 0;
	const char *host;

	if (!mm_ggml_name(t->name, name))
		return NULL;
	host = mm_model_store(g->model, name, &have);
	return host && offset <= have && bytes <= have - offset ? host + offset : NULL;
}

/* The loader may write only what is there already. */
static void tensor_set(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data,
		       size_t offset, size_t bytes)
{
	struct mm_ggml *g = ((struct reserved *)buffer->context)->g;
	const char *host = tensor_host(g, t, offset, bytes);

	g->compared++;
	if ((!host || memcmp(host, data, bytes) != 0) && !g->differs[0])
		snprintf(g->differs, sizeof(g->differs), "%s", t->name);
}

static void tensor_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data,
		       size_t offset, size_t bytes)
{
	const struct mm_ggml *g = ((struct reserved *)buffer->context)->g;
	const char *host = tensor_host(g, t, offset, bytes);

	/* The host's copy: on the device the layer may be away. */
	GGML_ASSERT(host && "a part of a tensor that it does not have");
	memcpy(data, host, bytes);
}

/* Weights are never cleared. */
static void reserved_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
	(void)buffer;
	(void)value;
}

static const struct ggml_backend_buffer_i buffer_functions = {
	.free_buffer = reserved_free,
	.get_base = reserved_base,
	.init_tensor = tensor_init,
	.set_tensor = tensor_set,
	.get_tensor = tensor_get,
	.clear = reserved_clear,
};

static const char *type_name(ggml_backend_buffer_type_t type)
{
	(void)type;
	return "mmd";
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t bytes)
{
	struct reserved *res = calloc(1, sizeof(*res));
	ggml_backend_buffer_t buffer;

	if (!res)
		return NULL;
	res->g = type->context;
	res->bytes = bytes ? bytes : 1;
	res->base = mmap(NULL, res->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	buffer = res->base != MAP_FAILED
			 ? ggml_backend_buffer_init(type, buffer_functions, res, bytes)
			 : NULL;
	if (!buffer) {
		if (res->base != MAP_FAILED)
			munmap(res->base, res->bytes);
		free(res);
	}
	return buffer;
}

static size_t type_alignment(ggml_backend_buffer_type_t type)
{
	(void)type;
	return ALIGNMENT;
}

/* The loader reads files straight into host memory; this memory is read-only. */
static bool type_is_host(ggml_backend_buffer_type_t type)
{
	return !((const struct mm_ggml *)type->context)->loading;
}

void mm_ggml_type_init(struct mm_ggml *g)
{
	g->type = (struct ggml_backend_buffer_type){
		.iface = {
			.get_name = type_name,
			.alloc_buffer = type_alloc,
			.get_alignment = type_alignment,
			.is_host = type_is_host,
		},
		.device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU),
		.context = g,
	};
	g->overrides[0] = (struct llama_model_tensor_buft_override){
		.pattern = ".*",
		.buft = &g->type,
	};
}

bool mm_ggml_owns(const struct mm_ggml *g, const struct ggml_tensor *t)
{
	return t->buffer && t->buffer->buft == &g->type;
}
