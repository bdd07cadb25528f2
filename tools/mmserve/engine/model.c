/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/checksum.h"
#include "libclient/base/base.h"

struct weights_binder {
	struct mm_memory *memory;
	const struct mm_arch *arch;
	bool checksums;
	char *err;
};

static int model_fail(const struct weights_binder *b, const char *name, const char *why)
{
	snprintf(b->err, MM_SERVE_ERROR_BYTES, "tensor %.200s: %.200s", name, why);
	return -EBADMSG;
}

static int tensor_bind(const struct weights_binder *b, enum mm_weight role, uint32_t layer,
		       struct mm_bound *ret_bound)
{
	uint32_t rows, columns;
	struct mm_tensor t = { .size = sizeof(t) };
	const void *store;
	char name[128];
	uint64_t bytes;

	mm_arch_name(b->arch, role, layer, name, sizeof(name));
	mm_arch_size(b->arch, role, &rows, &columns);
	if (b->memory->ops->tensor(b->memory, name, &t))
		return model_fail(b, name, "is missing in the model's files");
	if (t.rank != (rows ? 2u : 1u) || t.shape[t.rank - 1] != columns ||
	    (rows && t.shape[0] != rows))
		return model_fail(b, name, "its shape is not the one that config.json makes");
	if (t.dtype < MM_DTYPE_F32 || t.dtype > MM_DTYPE_BF16)
		return model_fail(b, name, "there are no kernels for its type of elements");
	*ret_bound = (struct mm_bound){ .va = t.va, .bytes = t.bytes, .dtype = t.dtype };
	if (!b->checksums)
		return 0;
	store = b->memory->ops->store(b->memory, name, &bytes);
	if (!store || bytes != t.bytes)
		return model_fail(b, name,
				  "its host copy cannot be read, so --verify is not possible");
	ret_bound->checksum = mm_checksum_bytes(store, bytes);
	return 0;
}

static int bind_all(const struct weights_binder *b, struct mm_bound *all)
{
	const struct mm_arch *a = b->arch;
	int r = 0;

	for (uint32_t layer = 0; layer < a->layers; layer++) {
		struct mm_bound *w = all + (size_t)layer * MM_W_COUNT;

		for (enum mm_weight role = 0; role < MM_W_COUNT && !r; role++)
			if (mm_arch_has(a, role) && (mm_weight_per_layer(role) || !layer))
				r = tensor_bind(b, role, layer, &w[role]);
		if (r)
			return r;
	}
	if (a->tied)
		all[MM_W_HEAD] = all[MM_W_EMBED];
	return 0;
}

int mm_weights_bind(struct mm_memory *memory, const struct mm_arch *arch, bool checksums,
		    struct mm_weights *ret_weights, char *err)
{
	const struct weights_binder b = { memory, arch, checksums, err };
	mm_cleanup(mm_weights_done) struct mm_weights w = { .arch = *arch };
	int r;

	w.all = calloc((size_t)arch->layers * MM_W_COUNT, sizeof(*w.all));
	if (!w.all) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "out of memory");
		return -ENOMEM;
	}
	r = bind_all(&b, w.all);
	if (r)
		return r;
	*ret_weights = w;
	w = (struct mm_weights){ 0 };
	return 0;
}

void mm_weights_done(struct mm_weights *w)
{
	free(w->all);
	*w = (struct mm_weights){ 0 };
}
