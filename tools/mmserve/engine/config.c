/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/config.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

struct reader {
	const json_t *root;
	const char *path;
	char *err;
	int error; /* the first failure; later reads keep it */
};

static void MM_PRINTF(3, 4) config_fail(struct reader *r, int error, const char *format, ...)
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
		config_fail(r, -EBADMSG, "%s is missing", key);
		return 1;
	}
	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > max) {
		config_fail(r, -EBADMSG, "%s must be a whole number from 1 to %u", key, max);
		return 1;
	}
	return (uint32_t)json_integer_value(v);
}

/* Kernels compute in floats: 1e-60 would be 0 there, 1e60 infinite. */
static double config_real(struct reader *r, const json_t *from, const char *key, double fallback)
{
	const json_t *v = json_object_get(from, key);
	const double value = json_number_value(v);

	if ((!v || json_is_null(v)) && fallback > 0)
		return fallback;
	if (!v)
		config_fail(r, -EBADMSG, "%s is missing", key);
	else if (!json_is_number(v) || value < FLT_MIN || value > FLT_MAX)
		config_fail(r, -EBADMSG, "%s must be a number above 0 that a float holds", key);
	else
		return value;
	return 1;
}

static double get_real(struct reader *r, const char *key, double fallback)
{
	return config_real(r, r->root, key, fallback);
}

static bool is_given(const struct reader *r, const char *key)
{
	const json_t *v = json_object_get(r->root, key);

	return v && !json_is_null(v);
}

static bool get_bool(struct reader *r, const char *key, bool fallback)
{
	const json_t *v = json_object_get(r->root, key);

	if (!v || json_is_null(v))
		return fallback;
	if (!json_is_boolean(v))
		config_fail(r, -EBADMSG, "%s must be true or false", key);
	return json_is_true(v);
}

/* What we compute in one way only. */
static void want_bool(struct reader *r, const char *key, bool want)
{
	if (get_bool(r, key, want) != want)
		config_fail(r, -ENOTSUP, "%s %s is not served", key, want ? "false" : "true");
}

static void want_activation(struct reader *r, const char *key, const char *want)
{
	const json_t *v = json_object_get(r->root, key);

	if (v && (!json_is_string(v) || strcmp(json_string_value(v), want)))
		config_fail(r, -ENOTSUP, "%s is not \"%s\"", key, want);
}

/* ---- keys that stand for arithmetic that we do not have ---- */

enum neutral { ABSENT, NOTHING, ONE }; /* null always is; 0 or false; 1 */

/*
 * What other families, or those who changed a model, say of a computation that is not that of our
 * families, and the value by which it is all the same. Engines differ in which of them they look
 * at; a file that has one is refused rather than computed wrongly.
 */
static const struct {
	const char *key;
	enum neutral neutral;
} foreign_keys[] = {
	/* numbers that stand for other numbers */
	{ "quantization_config", ABSENT },
	{ "compression_config", ABSENT },
	{ "quantization", ABSENT },
	/* stacks, and what is between layers */
	{ "is_encoder_decoder", NOTHING },
	{ "add_cross_attention", NOTHING },
	{ "num_experts", NOTHING },
	{ "num_local_experts", NOTHING },
	{ "n_routed_experts", NOTHING },
	{ "moe_num_experts", NOTHING },
	{ "num_kv_shared_layers", NOTHING },
	{ "use_parallel_residual", NOTHING },
	{ "parallel_attn", NOTHING },
	/* factors */
	{ "embedding_multiplier", ONE },
	{ "residual_multiplier", ONE },
	{ "logits_scaling", ONE },
	{ "logit_scale", ONE },
	{ "scale_emb", ONE },
	{ "scale_depth", ABSENT },
	{ "dim_model_base", ABSENT },
	{ "final_logit_softcapping", NOTHING },
	/* attention */
	{ "attention_multiplier", ABSENT },
	{ "query_pre_attn_scalar", ABSENT },
	{ "attn_logit_softcapping", NOTHING },
	{ "attention_chunk_size", ABSENT },
	{ "clip_qkv", NOTHING },
	{ "use_qk_norm", NOTHING },
	{ "qk_norm", NOTHING },
	{ "qk_layernorm", NOTHING },
	{ "kv_lora_rank", NOTHING },
	/* positions */
	{ "alibi", NOTHING },
	{ "use_alibi", NOTHING },
	{ "rotary_pct", ONE },
	{ "rotary_dim", ABSENT },
	{ "rotary_emb_base", ABSENT },
	{ "rope_interleave", NOTHING },
	{ "rope_interleaved", NOTHING },
	{ "no_rope_layers", ABSENT },
	{ "no_rope_layer_interval", NOTHING },
};

static bool is_neutral(const json_t *v, enum neutral neutral)
{
	if (!v || json_is_null(v))
		return true;
	if (neutral == NOTHING)
		return json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
	return neutral == ONE && json_is_number(v) && json_number_value(v) == 1;
}

static void refuse_value(struct reader *r, const char *key)
{
	char *value = json_dumps(json_object_get(r->root, key),
				 JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);

	config_fail(r, -ENOTSUP, "%s %.60s is not served", key, value ? value : "");
	free(value);
}

static void want_no_foreign_keys(struct reader *r)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(foreign_keys); i++)
		if (!is_neutral(json_object_get(r->root, foreign_keys[i].key),
				foreign_keys[i].neutral))
			refuse_value(r, foreign_keys[i].key);
}

/* ---- the family ---- */

/* What decides elsewhere which code runs: a file that says two things is none of ours. */
static void check_model_type(struct reader *r, enum mm_family family)
{
	const json_t *type = json_object_get(r->root, "model_type");
	const char *name = json_string_value(type);

	if (type && !json_is_null(type) && (!name || strcmp(name, mm_family_name(family))))
		config_fail(r, name ? -ENOTSUP : -EBADMSG,
			    "model_type is not \"%s\", though %s is named", mm_family_name(family),
			    mm_family_architecture(family));
}

static enum mm_family read_family(struct reader *r)
{
	const json_t *archs = json_object_get(r->root, "architectures");
	const char *arch = json_string_value(json_array_get(archs, 0));

	if (!arch)
		config_fail(r, -EBADMSG,
			    "architectures must name a model, such as LlamaForCausalLM");
	for (enum mm_family f = 0; arch && f < MM_FAMILY_COUNT; f++)
		if (!strcmp(arch, mm_family_architecture(f)))
			return f;
	config_fail(
		r, -ENOTSUP,
		"architecture %.100s is not served, only LlamaForCausalLM, Qwen2ForCausalLM and "
		"OPTForCausalLM",
		arch);
	return MM_FAMILY_LLAMA;
}

/* ---- RoPE ---- */

/* Newer files say rope_parameters, with theta inside, for rope_scaling beside rope_theta. */
static const json_t *rope_object(struct reader *r, const char **ret_key)
{
	const json_t *scaling = json_object_get(r->root, "rope_scaling");
	const json_t *parameters = json_object_get(r->root, "rope_parameters");
	const json_t *v = json_is_object(parameters) ? parameters : scaling;

	*ret_key = json_is_object(parameters) ? "rope_parameters" : "rope_scaling";
	if (json_is_object(parameters) && json_is_object(scaling))
		config_fail(r, -EBADMSG, "rope_scaling and rope_parameters: only one may be there");
	if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
		config_fail(r, -EBADMSG, "rope_parameters must be an object");
	if (v && !json_is_object(v) && !json_is_null(v))
		config_fail(r, -EBADMSG, "%s must be an object", *ret_key);
	return json_is_object(v) ? v : NULL;
}

/* Its name; older files spell it "type". NULL: failed. */
static const char *rope_type(struct reader *r, const json_t *from, const char *key)
{
	const json_t *type = json_object_get(from, "rope_type");
	const json_t *old = json_object_get(from, "type");
	const char *name = json_string_value(type ? type : old);

	if (!name)
		config_fail(r, -EBADMSG, "%s: rope_type must be a name", key);
	else if (type && old && (!json_is_string(old) || strcmp(json_string_value(old), name)))
		config_fail(r, -EBADMSG, "%s: rope_type and type contradict each other", key);
	return name;
}

static double rope_factor_parse(struct reader *r, const json_t *from, const char *key)
{
	const double value = config_real(r, from, key, 0);

	if (value < 1)
		config_fail(r, -EBADMSG, "%s must be at least 1", key);
	return value;
}

static void read_llama3(struct reader *r, const json_t *from, struct mm_rope *rope)
{
	static const char original[] = "original_max_position_embeddings";
	const json_t *v = json_object_get(from, original);

	rope->scaling = MM_ROPE_LLAMA3;
	rope->factor = rope_factor_parse(r, from, "factor");
	rope->low_factor = config_real(r, from, "low_freq_factor", 0);
	rope->high_factor = config_real(r, from, "high_freq_factor", 0);
	if (rope->high_factor <= rope->low_factor)
		config_fail(r, -EBADMSG, "high_freq_factor must be above low_freq_factor");
	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 24)
		config_fail(r, -EBADMSG, "%s must be a whole number from 1 to %u", original,
			    1u << 24);
	rope->original = (uint32_t)json_integer_value(v);
}

/* Part of each head turned, the rest not. */
static void want_whole_heads(struct reader *r, const json_t *from)
{
	const json_t *part = json_object_get(from, "partial_rotary_factor");

	if (part && !json_is_null(part) && json_number_value(part) != 1)
		config_fail(r, -ENOTSUP, "partial_rotary_factor is not 1");
}

static void read_rope(struct reader *r, struct mm_rope *rope)
{
	const char *key, *type;
	const json_t *from = rope_object(r, &key);

	*rope = (struct mm_rope){ .theta = get_real(r, "rope_theta", 10000.0) };
	want_whole_heads(r, r->root);
	want_whole_heads(r, from);
	if (!from)
		return;
	rope->theta = config_real(r, from, "rope_theta", rope->theta);
	type = rope_type(r, from, key);
	if (!type || !strcmp(type, "default"))
		return;
	if (!strcmp(type, "llama3")) {
		read_llama3(r, from, rope);
	} else if (!strcmp(type, "linear")) {
		rope->scaling = MM_ROPE_LINEAR;
		rope->factor = rope_factor_parse(r, from, "factor");
	} else {
		config_fail(r, -ENOTSUP,
			    "%s of type \"%.60s\" is not served, only llama3 and linear", key,
			    type);
	}
}

/* ---- families ---- */

static void check_heads(struct reader *r, const struct mm_arch *a)
{
	if (a->heads % a->kv_heads)
		config_fail(r, -EBADMSG, "%u attention heads are not a multiple of %u KV heads",
			    a->heads, a->kv_heads);
	if (a->head_dim > MM_HEAD_DIM_MAX)
		config_fail(r, -ENOTSUP, "heads of %u are not served, at most %u", a->head_dim,
			    MM_HEAD_DIM_MAX);
	if (a->family != MM_FAMILY_OPT && a->head_dim % 2)
		config_fail(r, -EBADMSG, "head_dim %u is odd: RoPE needs pairs", a->head_dim);
}

static void read_sizes(struct reader *r, struct mm_arch *a)
{
	a->hidden = get_size(r, "hidden_size", 1u << 20, 0);
	a->layers = get_size(r, "num_hidden_layers", 4096, 0);
	a->heads = get_size(r, "num_attention_heads", 1u << 14, 0);
	a->vocab = get_size(r, "vocab_size", 1u << 24, 0);
	a->max_position = get_size(r, "max_position_embeddings", 1u << 24, 2048);
	if (!is_given(r, "head_dim") && a->hidden % a->heads)
		config_fail(r, -EBADMSG, "hidden_size %u is not a multiple of %u heads", a->hidden,
			    a->heads);
	a->head_dim = a->hidden / a->heads;
}

/* Only the newest of a text; where there are no more positions than that it is all of it. */
static void want_no_window(struct reader *r, const struct mm_arch *a)
{
	if (is_given(r, "sliding_window") &&
	    get_size(r, "sliding_window", UINT32_MAX, 0) < a->max_position)
		refuse_value(r, "sliding_window");
}

/* Where the family knows but one value: what follows from the others. */
static void want_size(struct reader *r, const char *key, uint32_t want)
{
	if (is_given(r, key) && get_size(r, key, UINT32_MAX, 0) != want)
		refuse_value(r, key);
}

/* Newer files say of each layer how far it looks. */
static void want_full_attention(struct reader *r)
{
	const json_t *types = json_object_get(r->root, "layer_types"), *type;
	size_t i;

	if (types && !json_is_null(types) && !json_is_array(types))
		config_fail(r, -EBADMSG, "layer_types must be a list");
	json_array_foreach(types, i, type)
		if (!json_is_string(type) || strcmp(json_string_value(type), "full_attention"))
			config_fail(r, -ENOTSUP, "layer_types[%zu] is not \"full_attention\"", i);
}

static void read_llama(struct reader *r, struct mm_arch *a)
{
	want_activation(r, "hidden_act", "silu");
	a->ffn = get_size(r, "intermediate_size", 1u << 22, 0);
	a->kv_heads = get_size(r, "num_key_value_heads", 1u << 14, a->heads);
	a->head_dim = get_size(r, "head_dim", MM_HEAD_DIM_MAX, MM_MAX(a->head_dim, 1));
	a->embed_dim = a->hidden;
	a->norm_eps = get_real(r, "rms_norm_eps", 1e-6);
	a->tied = get_bool(r, "tie_word_embeddings", false);
	read_rope(r, &a->rope);
	want_bool(r, "mlp_bias", false);
	/*
	 * Qwen 2 has a window beside this only where it is true, and its biases whatever a file
	 * says.
	 */
	want_bool(r, "use_sliding_window", false);
	if (a->family == MM_FAMILY_QWEN2)
		return;
	want_no_window(r, a);
	want_bool(r, "attention_bias", false);
	want_bool(r, "qkv_bias", false);
	want_bool(r, "bias", false);
}

static void read_opt(struct reader *r, struct mm_arch *a)
{
	want_activation(r, "activation_function", "relu");
	want_bool(r, "enable_bias", true);
	want_bool(r, "layer_norm_elementwise_affine", true);
	want_no_window(r, a);
	want_size(r, "num_key_value_heads", a->heads);
	want_size(r, "head_dim", a->head_dim);
	if (is_given(r, "rope_scaling") || is_given(r, "rope_parameters"))
		config_fail(r, -ENOTSUP, "rope_scaling: OPT has no RoPE");
	a->ffn = get_size(r, "ffn_dim", 1u << 22, 0);
	a->kv_heads = a->heads;
	a->embed_dim = get_size(r, "word_embed_proj_dim", 1u << 20, a->hidden);
	a->post_norm = !get_bool(r, "do_layer_norm_before", true);
	a->no_final_norm = get_bool(r, "_remove_final_layer_norm", false);
	a->norm_eps = 1e-5;
	a->tied = get_bool(r, "tie_word_embeddings", true);
}

static void read_config(struct reader *r, struct mm_arch *a)
{
	a->family = read_family(r);
	if (r->error)
		return;
	check_model_type(r, a->family);
	want_no_foreign_keys(r);
	want_full_attention(r);
	read_sizes(r, a);
	if (a->family == MM_FAMILY_OPT)
		read_opt(r, a);
	else
		read_llama(r, a);
	check_heads(r, a);
}

static void free_json(json_t **j)
{
	json_decref(*j);
}

int mm_serve_open(const char *path, const char **ret_why)
{
	mm_cleanup(mm_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	int found;

	if (fd < 0 || fstat(fd, &st) < 0) {
		const int error = errno;

		*ret_why = strerror(error);
		return -error;
	}
	if (!S_ISREG(st.st_mode)) {
		*ret_why = "not a regular file";
		return -EINVAL;
	}
	found = fd;
	fd = -1;
	return found;
}

static FILE *open_config(struct reader *r, const char *path)
{
	const char *why = "";
	const int fd = mm_serve_open(path, &why);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");

	if (fd < 0)
		config_fail(r, fd, "%s", why);
	else if (!file)
		config_fail(r, -ENOMEM, "out of memory");
	if (fd >= 0 && !file)
		close(fd);
	return file;
}

int mm_config_load(const char *dir, struct mm_arch *ret_arch, char *err)
{
	mm_cleanup(free_json) json_t *root = NULL;
	struct mm_arch arch = { 0 };
	char path[PATH_MAX];
	struct reader r = { .path = path, .err = err };
	json_error_t where;
	FILE *file;

	snprintf(path, sizeof(path), "%.4000s/config.json", dir);
	file = open_config(&r, path);
	if (!file)
		return r.error;
	root = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
	fclose(file);
	if (!json_is_object(root)) {
		config_fail(&r, -EBADMSG, "line %d: not a JSON object: %.120s", where.line,
			    root ? "" : where.text);
		return r.error;
	}
	r.root = root;
	read_config(&r, &arch);
	if (!r.error)
		*ret_arch = arch;
	return r.error;
}
