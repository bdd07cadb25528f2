/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mkmodel/shapes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"
#include "tools/lab/mkmodel/config.h"

struct shapes_reader {
	const char *path;
	char *err;
	size_t index; /* index of the model in the list */
};

static int MM_PRINTF(2, 3) shapes_fail(struct shapes_reader *r, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(r->err, MK_ERROR_BYTES, "%.3000s: model %zu: %s", r->path, r->index, text);
	return -EBADMSG;
}

static int shape_read_sizes(struct shapes_reader *r, const json_t *model, struct mm_arch *a)
{
	const struct {
		const char *key;
		uint32_t *at;
	} sizes[] = {
		{ "n_layers", &a->layers },   { "hidden_size", &a->hidden },
		{ "n_heads", &a->heads },     { "n_kv_heads", &a->kv_heads },
		{ "head_dim", &a->head_dim }, { "ffn_size", &a->ffn },
		{ "vocab_size", &a->vocab },  { "max_position", &a->max_position },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(sizes); i++) {
		uint64_t size;

		if (!mm_json_is_whole(json_object_get(model, sizes[i].key), 1, INT32_MAX, &size))
			return shapes_fail(r, "%s must be a whole number above 0", sizes[i].key);
		*sizes[i].at = (uint32_t)size;
	}
	return 0;
}

static int shape_read_family(struct shapes_reader *r, const json_t *model, struct mm_arch *a)
{
	const char *name = json_string_value(json_object_get(model, "family"));
	const json_t *theta = json_object_get(model, "rope_theta");
	const json_t *tied = json_object_get(model, "tied_lm_head");
	enum mm_family f = 0;

	while (f < MM_FAMILY_COUNT && (!name || strcmp(name, mm_family_name(f))))
		f++;
	if (f == MM_FAMILY_COUNT)
		return shapes_fail(r, "family must be llama, qwen2 or opt");
	if (!json_is_boolean(tied))
		return shapes_fail(r, "tied_lm_head must be true or false");
	if (theta && !json_is_number(theta))
		return shapes_fail(r, "rope_theta must be a number");
	a->family = f;
	a->tied = json_is_true(tied);
	a->rope.theta = json_number_value(theta);
	return 0;
}

static int read_model(struct shapes_reader *r, const json_t *model, struct mk_shape *s)
{
	const char *name = json_string_value(json_object_get(model, "name"));
	char why[MK_ERROR_BYTES];

	if (!name || !*name || strlen(name) >= sizeof(s->name))
		return shapes_fail(r, "name must be a text of 1 to %zu bytes", sizeof(s->name) - 1);
	snprintf(s->name, sizeof(s->name), "%s", name);
	if (shape_read_sizes(r, model, &s->arch) || shape_read_family(r, model, &s->arch))
		return -EBADMSG;
	mm_arch_fill(&s->arch);
	if (mk_arch_check(&s->arch, why))
		return shapes_fail(r, "%.400s", why);
	return 0;
}

int mk_shapes_read(const char *path, struct mk_shapes *ret, char *err)
{
	mm_cleanup(mk_shapes_done) struct mk_shapes shapes = { 0 };
	mm_cleanup(mm_json_done) json_t *root = NULL;
	struct mm_json_reader file = { path, err, MK_ERROR_BYTES, 0 };
	struct shapes_reader r = { .path = path, .err = err };
	const json_t *models;

	if (mm_json_read_file(&file, &root))
		return file.error;
	models = json_object_get(root, "models");
	if (!json_is_array(models))
		return mm_json_fail(&file, -EBADMSG, "there is no list \"models\"");
	shapes.n = json_array_size(models);
	shapes.all = calloc(shapes.n + 1, sizeof(*shapes.all));
	if (!shapes.all) {
		snprintf(err, MK_ERROR_BYTES, "out of memory");
		return -ENOMEM;
	}
	for (; r.index < shapes.n; r.index++)
		if (read_model(&r, json_array_get(models, r.index), &shapes.all[r.index]))
			return -EBADMSG;
	*ret = shapes;
	shapes = (struct mk_shapes){ 0 };
	return 0;
}

void mk_shapes_done(struct mk_shapes *shapes)
{
	free(shapes->all);
	*shapes = (struct mk_shapes){ 0 };
}
