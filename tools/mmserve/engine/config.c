/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/config.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"

struct config_reader {
	const json_t *root;
	struct mm_json_reader file;
};

/* Return: a whole number of 1..@max; @fallback, if it is not 0, if the key is missing or null. */
static uint32_t get_size(struct config_reader *reader, const char *key, uint32_t max,
			 uint32_t fallback)
{
	return (uint32_t)(fallback ? mm_json_read_whole_or(&reader->file, reader->root, key, 1, max,
							   fallback)
				   : mm_json_read_whole(&reader->file, reader->root, key, 1, max));
}

/* Reads a number above 0 that a float can hold, because kernels compute in floats. */
static double config_real(struct config_reader *reader, const json_t *from, const char *key,
			  double fallback)
{
	const json_t *v = json_object_get(from, key);
	const double value = json_number_value(v);

	if (fallback > 0 && !mm_json_has(from, key))
		return fallback;
	if (!v)
		mm_json_fail(&reader->file, -EBADMSG, "%s is missing", key);
	else if (!json_is_number(v) || value < FLT_MIN || value > FLT_MAX)
		mm_json_fail(&reader->file, -EBADMSG,
			     "%s must be a number above 0 that a float holds", key);
	else
		return value;
	return 1;
}

static double get_real(struct config_reader *reader, const char *key, double fallback)
{
	return config_real(reader, reader->root, key, fallback);
}

static bool get_bool(struct config_reader *reader, const char *key, bool fallback)
{
	return mm_json_read_flag_or(&reader->file, reader->root, key, fallback);
}

/* Refuses a model whose value of @key differs from the only one that mmserve computes. */
static void require_bool(struct config_reader *reader, const char *key, bool want)
{
	if (get_bool(reader, key, want) != want)
		mm_json_fail(&reader->file, -ENOTSUP, "%s %s is not served", key,
			     want ? "false" : "true");
}

static void require_activation(struct config_reader *reader, const char *key, const char *want)
{
	const json_t *v = json_object_get(reader->root, key);

	if (v && (!json_is_string(v) || strcmp(json_string_value(v), want)))
		mm_json_fail(&reader->file, -ENOTSUP, "%s is not \"%s\"", key, want);
}

/* ---- keys that stand for arithmetic that mmserve does not have ---- */

/* The value by which a key changes nothing. null and an absent key never change anything. */
enum config_neutral {
	NEUTRAL_ABSENT,  /* no other value */
	NEUTRAL_NOTHING, /* 0 or false */
	NEUTRAL_ONE      /* 1 */
};

/*
 * Keys of other families, or of modified models, that change the computation, and the value with
 * which they do not. Engines differ in which of them they read; a file in which one has another
 * value is refused rather than computed wrongly.
 */
static const struct {
	const char *key;
	enum config_neutral neutral;
} foreign_keys[] = {
	/* quantized weights */
	{ "quantization_config", NEUTRAL_ABSENT },
	{ "compression_config", NEUTRAL_ABSENT },
	{ "quantization", NEUTRAL_ABSENT },
	/* the stack of layers */
	{ "is_encoder_decoder", NEUTRAL_NOTHING },
	{ "add_cross_attention", NEUTRAL_NOTHING },
	{ "num_experts", NEUTRAL_NOTHING },
	{ "num_local_experts", NEUTRAL_NOTHING },
	{ "n_routed_experts", NEUTRAL_NOTHING },
	{ "moe_num_experts", NEUTRAL_NOTHING },
	{ "num_kv_shared_layers", NEUTRAL_NOTHING },
	{ "use_parallel_residual", NEUTRAL_NOTHING },
	{ "parallel_attn", NEUTRAL_NOTHING },
	/* factors */
	{ "embedding_multiplier", NEUTRAL_ONE },
	{ "residual_multiplier", NEUTRAL_ONE },
	{ "logits_scaling", NEUTRAL_ONE },
	{ "logit_scale", NEUTRAL_ONE },
	{ "scale_emb", NEUTRAL_ONE },
	{ "scale_depth", NEUTRAL_ABSENT },
	{ "dim_model_base", NEUTRAL_ABSENT },
	{ "final_logit_softcapping", NEUTRAL_NOTHING },
	/* attention */
	{ "attention_multiplier", NEUTRAL_ABSENT },
	{ "query_pre_attn_scalar", NEUTRAL_ABSENT },
	{ "attn_logit_softcapping", NEUTRAL_NOTHING },
	{ "attention_chunk_size", NEUTRAL_ABSENT },
	{ "clip_qkv", NEUTRAL_NOTHING },
	{ "use_qk_norm", NEUTRAL_NOTHING },
	{ "qk_norm", NEUTRAL_NOTHING },
	{ "qk_layernorm", NEUTRAL_NOTHING },
	{ "kv_lora_rank", NEUTRAL_NOTHING },
	/* positions */
	{ "alibi", NEUTRAL_NOTHING },
	{ "use_alibi", NEUTRAL_NOTHING },
	{ "rotary_pct", NEUTRAL_ONE },
	{ "rotary_dim", NEUTRAL_ABSENT },
	{ "rotary_emb_base", NEUTRAL_ABSENT },
	{ "rope_interleave", NEUTRAL_NOTHING },
	{ "rope_interleaved", NEUTRAL_NOTHING },
	{ "no_rope_layers", NEUTRAL_ABSENT },
	{ "no_rope_layer_interval", NEUTRAL_NOTHING },
};

static bool is_neutral(const json_t *v, enum config_neutral neutral)
{
	if (!v || json_is_null(v))
		return true;
	if (neutral == NEUTRAL_NOTHING)
		return json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
	return neutral == NEUTRAL_ONE && json_is_number(v) && json_number_value(v) == 1;
}

static void refuse_value(struct config_reader *reader, const char *key)
{
	char *value = json_dumps(json_object_get(reader->root, key),
				 JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);

	mm_json_fail(&reader->file, -ENOTSUP, "%s %.60s is not served", key, value ? value : "");
	free(value);
}

static void require_no_foreign_keys(struct config_reader *reader)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(foreign_keys); i++)
		if (!is_neutral(json_object_get(reader->root, foreign_keys[i].key),
				foreign_keys[i].neutral))
			refuse_value(reader, foreign_keys[i].key);
}

/* ---- the family ---- */

/* Other programs choose the code by model_type: a file that contradicts itself is refused. */
static void check_model_type(struct config_reader *reader, enum mm_family family)
{
	const json_t *type = json_object_get(reader->root, "model_type");
	const char *name = json_string_value(type);

	if (type && !json_is_null(type) && (!name || strcmp(name, mm_family_name(family))))
		mm_json_fail(&reader->file, name ? -ENOTSUP : -EBADMSG,
			     "model_type is not \"%s\", though %s is named", mm_family_name(family),
			     mm_family_architecture(family));
}

static enum mm_family config_read_family(struct config_reader *reader)
{
	const json_t *archs = json_object_get(reader->root, "architectures");
	const char *arch = json_string_value(json_array_get(archs, 0));

	if (!arch)
		mm_json_fail(&reader->file, -EBADMSG,
			     "architectures must name a model, such as LlamaForCausalLM");
	for (enum mm_family f = 0; arch && f < MM_FAMILY_COUNT; f++)
		if (!strcmp(arch, mm_family_architecture(f)))
			return f;
	mm_json_fail(
		&reader->file, -ENOTSUP,
		"architecture %.100s is not served, only LlamaForCausalLM, Qwen2ForCausalLM and "
		"OPTForCausalLM",
		arch);
	return MM_FAMILY_LLAMA;
}

/* ---- RoPE ---- */

/* Newer files have rope_parameters, with theta inside, instead of rope_scaling and rope_theta. */
static const json_t *rope_object(struct config_reader *reader, const char **ret_key)
{
	const json_t *scaling = json_object_get(reader->root, "rope_scaling");
	const json_t *parameters = json_object_get(reader->root, "rope_parameters");
	const json_t *v = json_is_object(parameters) ? parameters : scaling;

	*ret_key = json_is_object(parameters) ? "rope_parameters" : "rope_scaling";
	if (json_is_object(parameters) && json_is_object(scaling))
		mm_json_fail(&reader->file, -EBADMSG,
			     "rope_scaling and rope_parameters: only one may be there");
	if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
		mm_json_fail(&reader->file, -EBADMSG, "rope_parameters must be an object");
	if (v && !json_is_object(v) && !json_is_null(v))
		mm_json_fail(&reader->file, -EBADMSG, "%s must be an object", *ret_key);
	return json_is_object(v) ? v : NULL;
}

/* Return: the name of the scaling, for which older files have the key "type"; NULL: failed. */
static const char *rope_type(struct config_reader *reader, const json_t *from, const char *key)
{
	const json_t *type = json_object_get(from, "rope_type");
	const json_t *old = json_object_get(from, "type");
	const char *name = json_string_value(type ? type : old);

	if (!name)
		mm_json_fail(&reader->file, -EBADMSG, "%s: rope_type must be a name", key);
	else if (type && old && (!json_is_string(old) || strcmp(json_string_value(old), name)))
		mm_json_fail(&reader->file, -EBADMSG,
			     "%s: rope_type and type contradict each other", key);
	return name;
}

static double rope_factor_parse(struct config_reader *reader, const json_t *from, const char *key)
{
	const double value = config_real(reader, from, key, 0);

	if (value < 1)
		mm_json_fail(&reader->file, -EBADMSG, "%s must be at least 1", key);
	return value;
}

static void read_llama3(struct config_reader *reader, const json_t *from, struct mm_rope *rope)
{
	static const char original[] = "original_max_position_embeddings";

	rope->scaling = MM_ROPE_LLAMA3;
	rope->factor = rope_factor_parse(reader, from, "factor");
	rope->low_factor = config_real(reader, from, "low_freq_factor", 0);
	rope->high_factor = config_real(reader, from, "high_freq_factor", 0);
	if (rope->high_factor <= rope->low_factor)
		mm_json_fail(&reader->file, -EBADMSG,
			     "high_freq_factor must be above low_freq_factor");
	rope->original = (uint32_t)mm_json_read_whole(&reader->file, from, original, 1, 1u << 24);
}

/* Refuses models in which only a part of each head is rotated. */
static void require_whole_heads(struct config_reader *reader, const json_t *from)
{
	static const char key[] = "partial_rotary_factor";

	if (mm_json_has(from, key) && mm_json_real(from, key) != 1)
		mm_json_fail(&reader->file, -ENOTSUP, "partial_rotary_factor is not 1");
}

static void read_rope(struct config_reader *reader, struct mm_rope *rope)
{
	const char *key, *type;
	const json_t *from = rope_object(reader, &key);

	*rope = (struct mm_rope){ .theta = get_real(reader, "rope_theta", 10000.0) };
	require_whole_heads(reader, reader->root);
	require_whole_heads(reader, from);
	if (!from)
		return;
	rope->theta = config_real(reader, from, "rope_theta", rope->theta);
	type = rope_type(reader, from, key);
	if (!type || !strcmp(type, "default"))
		return;
	if (!strcmp(type, "llama3")) {
		read_llama3(reader, from, rope);
	} else if (!strcmp(type, "linear")) {
		rope->scaling = MM_ROPE_LINEAR;
		rope->factor = rope_factor_parse(reader, from, "factor");
	} else {
		mm_json_fail(&reader->file, -ENOTSUP,
			     "%s of type \"%.60s\" is not served, only llama3 and linear", key,
			     type);
	}
}

/* ---- families ---- */

static void check_heads(struct config_reader *reader, const struct mm_arch *a)
{
	if (a->heads % a->kv_heads)
		mm_json_fail(&reader->file, -EBADMSG,
			     "%u attention heads are not a multiple of %u KV heads", a->heads,
			     a->kv_heads);
	if (a->head_dim > MM_HEAD_DIM_MAX)
		mm_json_fail(&reader->file, -ENOTSUP, "heads of %u are not served, at most %u",
			     a->head_dim, MM_HEAD_DIM_MAX);
	if (a->family != MM_FAMILY_OPT && a->head_dim % 2)
		mm_json_fail(&reader->file, -EBADMSG, "head_dim %u is odd: RoPE needs pairs",
			     a->head_dim);
}

static void config_read_sizes(struct config_reader *reader, struct mm_arch *a)
{
	a->hidden = get_size(reader, "hidden_size", 1u << 20, 0);
	a->layers = get_size(reader, "num_hidden_layers", 4096, 0);
	a->heads = get_size(reader, "num_attention_heads", 1u << 14, 0);
	a->vocab = get_size(reader, "vocab_size", 1u << 24, 0);
	a->max_position = get_size(reader, "max_position_embeddings", 1u << 24, 2048);
	if (!mm_json_has(reader->root, "head_dim") && a->hidden % a->heads)
		mm_json_fail(&reader->file, -EBADMSG,
			     "hidden_size %u is not a multiple of %u heads", a->hidden, a->heads);
	a->head_dim = a->hidden / a->heads;
}

/* Refuses a sliding window of attention, unless it is as large as the longest context. */
static void require_no_window(struct config_reader *reader, const struct mm_arch *a)
{
	if (mm_json_has(reader->root, "sliding_window") &&
	    get_size(reader, "sliding_window", UINT32_MAX, 0) < a->max_position)
		refuse_value(reader, "sliding_window");
}

/* Refuses a value of @key other than @want, which the family's other values imply. */
static void require_size(struct config_reader *reader, const char *key, uint32_t want)
{
	if (mm_json_has(reader->root, key) && get_size(reader, key, UINT32_MAX, 0) != want)
		refuse_value(reader, key);
}

/* Newer files have a type of attention for each layer: all must be full. */
static void require_full_attention(struct config_reader *reader)
{
	const json_t *types = json_object_get(reader->root, "layer_types"), *type;
	size_t i;

	if (types && !json_is_null(types) && !json_is_array(types))
		mm_json_fail(&reader->file, -EBADMSG, "layer_types must be a list");
	json_array_foreach(types, i, type)
		if (!json_is_string(type) || strcmp(json_string_value(type), "full_attention"))
			mm_json_fail(&reader->file, -ENOTSUP,
				     "layer_types[%zu] is not \"full_attention\"", i);
}

static void read_llama(struct config_reader *reader, struct mm_arch *a)
{
	require_activation(reader, "hidden_act", "silu");
	a->ffn = get_size(reader, "intermediate_size", 1u << 22, 0);
	a->kv_heads = get_size(reader, "num_key_value_heads", 1u << 14, a->heads);
	a->head_dim = get_size(reader, "head_dim", MM_HEAD_DIM_MAX, MM_MAX(a->head_dim, 1));
	a->embed_dim = a->hidden;
	a->norm_eps = get_real(reader, "rms_norm_eps", 1e-6);
	a->tied = get_bool(reader, "tie_word_embeddings", false);
	read_rope(reader, &a->rope);
	require_bool(reader, "mlp_bias", false);
	/*
	 * Qwen 2 has a window only if this is true, and always has biases, so the keys below do not
	 * apply to it.
	 */
	require_bool(reader, "use_sliding_window", false);
	if (a->family == MM_FAMILY_QWEN2)
		return;
	require_no_window(reader, a);
	require_bool(reader, "attention_bias", false);
	require_bool(reader, "qkv_bias", false);
	require_bool(reader, "bias", false);
}

static void read_opt(struct config_reader *reader, struct mm_arch *a)
{
	require_activation(reader, "activation_function", "relu");
	require_bool(reader, "enable_bias", true);
	require_bool(reader, "layer_norm_elementwise_affine", true);
	require_no_window(reader, a);
	require_size(reader, "num_key_value_heads", a->heads);
	require_size(reader, "head_dim", a->head_dim);
	if (mm_json_has(reader->root, "rope_scaling") ||
	    mm_json_has(reader->root, "rope_parameters"))
		mm_json_fail(&reader->file, -ENOTSUP, "rope_scaling: OPT has no RoPE");
	a->ffn = get_size(reader, "ffn_dim", 1u << 22, 0);
	a->kv_heads = a->heads;
	a->embed_dim = get_size(reader, "word_embed_proj_dim", 1u << 20, a->hidden);
	a->post_norm = !get_bool(reader, "do_layer_norm_before", true);
	a->no_final_norm = get_bool(reader, "_remove_final_layer_norm", false);
	a->norm_eps = 1e-5;
	a->tied = get_bool(reader, "tie_word_embeddings", true);
}

static void config_read(struct config_reader *reader, struct mm_arch *a)
{
	a->family = config_read_family(reader);
	if (reader->file.error)
		return;
	check_model_type(reader, a->family);
	require_no_foreign_keys(reader);
	require_full_attention(reader);
	config_read_sizes(reader, a);
	if (a->family == MM_FAMILY_OPT)
		read_opt(reader, a);
	else
		read_llama(reader, a);
	check_heads(reader, a);
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

static FILE *open_config(struct config_reader *reader, const char *path)
{
	const char *why = "";
	const int fd = mm_serve_open(path, &why);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");

	if (fd < 0)
		mm_json_fail(&reader->file, fd, "%s", why);
	else if (!file)
		mm_json_fail(&reader->file, -ENOMEM, "out of memory");
	if (fd >= 0 && !file)
		close(fd);
	return file;
}

int mm_config_load(const char *dir, struct mm_arch *ret_arch, char *err)
{
	mm_cleanup(mm_json_done) json_t *root = NULL;
	struct mm_arch arch = { 0 };
	char path[PATH_MAX];
	struct config_reader reader = { .file = { path, err, MM_SERVE_ERROR_BYTES, 0 } };
	json_error_t where;
	FILE *file;

	snprintf(path, sizeof(path), "%.4000s/config.json", dir);
	file = open_config(&reader, path);
	if (!file)
		return reader.file.error;
	root = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
	fclose(file);
	if (!json_is_object(root)) {
		mm_json_fail(&reader.file, -EBADMSG, "line %d: not a JSON object: %.120s",
			     where.line, root ? "" : where.text);
		return reader.file.error;
	}
	reader.root = root;
	config_read(&reader, &arch);
	if (!reader.file.error)
		*ret_arch = arch;
	return reader.file.error;
}
