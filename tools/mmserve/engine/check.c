/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/model/names.h"
#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/engine/model.h"
#include "tools/mmserve/engine/plain_model.h"

struct files_check {
	const struct mm_arch *arch;
	const struct mm_plain_model *model;
	const char *dir;
	char *err;
};

static int MM_PRINTF(3, 4)
	check_fail(const struct files_check *c, int error, const char *format, ...)
{
	char text[768];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(c->err, MM_SERVE_ERROR_BYTES, "%.3800s: %s", c->dir, text);
	return error;
}

/* ---- tensors that the forward pass needs ---- */

static int file_tensor(struct mm_memory *m, const char *name, struct mm_tensor *ret_tensor)
{
	return mm_plain_model_tensor(m->state, name, ret_tensor);
}

/* Binds the weights as for serving. There are no addresses; the result is dropped. */
static int check_needed(const struct files_check *c)
{
	static const struct mm_memory_ops ops = { .tensor = file_tensor };
	struct mm_memory files = { .ops = &ops, .state = (void *)(uintptr_t)c->model };
	mm_cleanup(mm_weights_done) struct mm_weights weights = { 0 };

	return mm_weights_bind(&files, c->arch, false, &weights, c->err);
}

/* ---- tensors that the forward pass does not read ---- */

static bool is_read(const struct mm_arch *arch, const char *name)
{
	const uint32_t layer = mm_name_layer(name, NULL);
	char role[MM_TENSOR_NAME_BYTES];

	for (enum mm_weight w = 0; w < MM_W_COUNT; w++) {
		if (!mm_arch_has(arch, w) || mm_weight_per_layer(w) != (layer != MM_NO_LAYER))
			continue;
		mm_arch_name(arch, w, layer, role, sizeof(role));
		if (strcmp(role, name) == 0)
			return true;
	}
	return false;
}

/* True for buffers that older files have, and for tensors outside the decoder, of other heads. */
static bool is_harmless(const char *name)
{
	return strstr(name, ".rotary_emb.") || strcmp(name, "model.decoder.version") == 0 ||
	       (strncmp(name, "model.", strlen("model.")) != 0 &&
		strncmp(name, "lm_head.", strlen("lm_head.")) != 0);
}

static const struct mm_st_tensor *find_tensor(const struct files_check *c, const char *name,
					      const char **ret_bytes)
{
	for (size_t f = 0; f < c->model->n_files; f++)
		for (size_t i = 0; i < c->model->st[f].n_tensors; i++) {
			const struct mm_st_tensor *t = &c->model->st[f].tensors[i];

			if (strcmp(t->name, name) != 0)
				continue;
			*ret_bytes = c->model->files[f].bytes + t->file_offset;
			return t;
		}
	return NULL;
}

/*
 * Checks a tied model whose files have a head, too. It passes if the head equals the embedding.
 * Otherwise one of the two is wrong, and programs do not agree which: transformers uses the
 * embedding up to version 4, and the head from version 5 on.
 */
static int check_second_head(const struct files_check *c, const struct mm_st_tensor *head,
			     const struct mm_plain_file *file)
{
	const char *bytes = NULL;
	const struct mm_st_tensor *embed;
	char name[MM_TENSOR_NAME_BYTES];

	mm_arch_name(c->arch, MM_W_EMBED, MM_ANY_LAYER, name, sizeof(name));
	embed = find_tensor(c, name, &bytes);
	if (embed && embed->dtype == head->dtype && embed->bytes == head->bytes &&
	    embed->rank == head->rank &&
	    memcmp(embed->shape, head->shape, sizeof(embed->shape)) == 0 &&
	    memcmp(bytes, file->bytes + head->file_offset, head->bytes) == 0)
		return 0;
	return check_fail(
		c, -EBADMSG,
		"config.json: tie_word_embeddings makes %s the head, but %s in %.200s is another "
		"one",
		name, head->name, file->name);
}

static int check_left_over(const struct files_check *c, const struct mm_st_tensor *t,
			   const struct mm_plain_file *file)
{
	char head[MM_TENSOR_NAME_BYTES];

	if (is_read(c->arch, t->name) || is_harmless(t->name))
		return 0;
	mm_arch_name(c->arch, MM_W_HEAD, MM_ANY_LAYER, head, sizeof(head));
	if (c->arch->tied && strcmp(t->name, head) == 0)
		return check_second_head(c, t, file);
	return check_fail(c, -ENOTSUP,
			  "%.200s: tensor %s: %s as config.json describes it has no use for it",
			  file->name, t->name, mm_family_architecture(c->arch->family));
}

int mm_serve_check_files(const char *dir, const struct mm_arch *arch, char *err)
{
	struct mm_plain_model model;
	const struct files_check c = { arch, &model, dir, err };
	int r;

	if (mm_plain_model_open(NULL, dir, NULL, &model, err))
		return 0;
	r = check_needed(&c);
	for (size_t f = 0; f < model.n_files && !r; f++)
		for (size_t i = 0; i < model.st[f].n_tensors && !r; i++)
			r = check_left_over(&c, &model.st[f].tensors[i], &model.files[f]);
	mm_plain_model_close(NULL, &model);
	return r;
}
