/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/config.h"

#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>

#include "kernels/args.h"
#include "mm/base.h"

struct reader {
	const json_t *root;
	const char *path;
	char *err;
	int error; /* the first failure; later reads keep it */
};

static void MM_PRINTF(3, 4) fail(struct reader *r, int error, const char *format, ...)
{
	char text[256];
	va_list args;

	if (r->error)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(r->err, MM_SERVE_ERROR_BYTES, "%.4000s: %s", r->path, text);
	r->error = error;
}

/* A whole number of 1..@max; @fallback (if not 0) where the key is missing or null. */
static uint32_t get_size(struct reader *r, const char *key, uint32_t max, uint32_t fallback)
{
	const json_t *v = json_object_get(r->root, key);

	if ((!v || json_is_null(v)) && fallback)
		return fallback;
	if (!v) {
		fail(r, -EBADMSG, "%s is missing", key);
		return 1;
	}
	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > max) {
		fail(r, -EBADMSG, "%s must be a whole number from 1 to %u", key, max);
		return 1;
	}
	return (uint32_t)json_integer_value(v);
}

static double get_real(struct reader *r, const char *key, double fallback)
{
	const json_t *v = json_object_get(r->root, key);
	double value;

	if (!v || json_is_null(v))
		return fallback;
	value = json_number_value(v);
	/* Kernels compute in floats: 1e-60 would be 0 there, 1e60 infinite. */
	if (!json_is_number(v) || value < FLT_MIN || value > FLT_MAX) {
		fail(r, -EBADMSG, "%s must be a number above 0 that a float holds", key);
		return fallback;
	}
	return value;
}

static bool get_bool(struct reader *r, const char *key)
{
	const json_t *v = json_object_get(r->root, key);

	if (v && !json_is_null(v) && !json_is_boolean(v))
		fail(r, -EBADMSG, "%s must be true or false", key);
	return json_is_true(v);
}

static void check_family(struct reader *r)
{
	const json_t *archs = json_object_get(r->root, "architectures");
	const char *arch = json_string_value(json_array_get(archs, 0));
	const json_t *act = json_object_get(r->root, "hidden_act");
	const json_t *scaling = json_object_get(r->root, "rope_scaling");

	if (!arch)
		fail(r, -EBADMSG, "architectures must name LlamaForCausalLM");
	else if (strcmp(arch, "LlamaForCausalLM"))
		fail(r, -ENOTSUP, "architecture %.100s is not served, only LlamaForCausalLM", arch);
	if (act && (!json_is_string(act) || strcmp(json_string_value(act), "silu")))
		fail(r, -ENOTSUP, "hidden_act is not \"silu\"");
	if (scaling && !json_is_null(scaling))
		fail(r, -ENOTSUP, "rope_scaling is not served; use a model without it");
	if (get_bool(r, "attention_bias") || get_bool(r, "mlp_bias"))
		fail(r, -ENOTSUP, "attention_bias and mlp_bias are not served");
}

static void check_heads(struct reader *r, const struct mm_llama_config *c)
{
	if (c->heads % c->kv_heads)
		fail(r, -EBADMSG, "%u attention heads are not a multiple of %u KV heads", c->heads,
		     c->kv_heads);
	if (c->head_dim % 2)
		fail(r, -EBADMSG, "head_dim %u is odd: RoPE needs pairs", c->head_dim);
}

static void read_config(struct reader *r, struct mm_llama_config *c)
{
	check_family(r);
	c->hidden = get_size(r, "hidden_size", 1u << 20, 0);
	c->ffn = get_size(r, "intermediate_size", 1u << 22, 0);
	c->layers = get_size(r, "num_hidden_layers", 4096, 0);
	c->heads = get_size(r, "num_attention_heads", 1u << 14, 0);
	c->kv_heads = get_size(r, "num_key_value_heads", 1u << 14, c->heads);
	if (!json_object_get(r->root, "head_dim") && c->hidden % c->heads)
		fail(r, -EBADMSG, "hidden_size %u is not a multiple of %u heads", c->hidden,
		     c->heads);
	c->head_dim = get_size(r, "head_dim", MM_HEAD_DIM_MAX, MM_MAX(c->hidden / c->heads, 1));
	if (c->head_dim > MM_HEAD_DIM_MAX)
		fail(r, -ENOTSUP, "heads of %u are not served, at most %u", c->head_dim,
		     MM_HEAD_DIM_MAX);
	c->vocab = get_size(r, "vocab_size", 1u << 24, 0);
	c->max_position = get_size(r, "max_position_embeddings", 1u << 24, 2048);
	c->rms_eps = (float)get_real(r, "rms_norm_eps", 1e-6);
	c->rope_theta = get_real(r, "rope_theta", 10000.0);
	c->tied = get_bool(r, "tie_word_embeddings");
	check_heads(r, c);
}

static void free_json(json_t **j)
{
	json_decref(*j);
}

int mm_llama_config_load(const char *dir, struct mm_llama_config *ret_config, char *err)
{
	mm_cleanup(free_json) json_t *root = NULL;
	struct mm_llama_config c;
	char path[PATH_MAX];
	struct reader r = { .path = path, .err = err };
	json_error_t where;
	FILE *file;

	snprintf(path, sizeof(path), "%.4000s/config.json", dir);
	file = fopen(path, "rbe");
	if (!file) {
		const int error = errno;

		fail(&r, -error, "%s", strerror(error));
		return r.error;
	}
	root = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
	fclose(file);
	if (!json_is_object(root)) {
		fail(&r, -EBADMSG, "line %d: not a JSON object: %.120s", where.line,
		     root ? "" : where.text);
		return r.error;
	}
	r.root = root;
	read_config(&r, &c);
	if (!r.error)
		*ret_config = c;
	return r.error;
}
