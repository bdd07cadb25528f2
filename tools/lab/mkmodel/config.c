/* SPDX-License-Identifier: Apache-2.0 */
/* config - checks a model's sizes, and makes its config.json. */
#include "tools/lab/mkmodel/config.h"

#include <errno.h>
#include <stdio.h>

#include "kernels/args/args.h"
#include "libclient/support/json.h"

const char *mk_dtype_name(enum mm_dtype dtype, bool torch)
{
	if (dtype == MM_DTYPE_F32)
		return torch ? "float32" : "F32";
	if (dtype == MM_DTYPE_F16)
		return torch ? "float16" : "F16";
	return torch ? "bfloat16" : "BF16";
}

static int mk_config_fail(char *err, const char *text)
{
	snprintf(err, MK_ERROR_BYTES, "%s", text);
	return -EINVAL;
}

static int check_rope(const struct mm_rope *rope, char *err)
{
	if (!(rope->theta >= 1 && rope->theta <= 1e12))
		return mk_config_fail(err, "RoPE's theta must be from 1 to 1e12");
	if (rope->scaling != MM_ROPE_UNSCALED && !(rope->factor >= 1 && rope->factor <= 1e6))
		return mk_config_fail(err, "RoPE scaling: the factor must be from 1 to 1e6");
	if (rope->scaling == MM_ROPE_LLAMA3 &&
	    !(rope->low_factor > 0 && rope->high_factor > rope->low_factor &&
	      rope->high_factor <= 1e6 && rope->original >= 1 && rope->original <= MK_ROWS_MAX))
		return mk_config_fail(
			err, "llama3 scaling: needs 0 < low < high <= 1e6 and original >= 1");
	return 0;
}

static int check_family(const struct mm_arch *a, char *err)
{
	if (a->family != MM_FAMILY_OPT) {
		if (a->head_dim % 2)
			return mk_config_fail(
				err, "head size (hidden / heads) is odd: RoPE needs pairs");
		if (a->embed_dim != a->hidden || a->post_norm || a->no_final_norm)
			return mk_config_fail(
				err, "only OPT has another embedding size or norms behind");
		return check_rope(&a->rope, err);
	}
	if (a->kv_heads != a->heads)
		return mk_config_fail(err, "OPT has as many KV heads as heads");
	if (a->rope.scaling != MM_ROPE_UNSCALED)
		return mk_config_fail(err, "OPT has no RoPE to scale");
	return 0;
}

int mk_arch_check(const struct mm_arch *a, char *err)
{
	if (!a->hidden || !a->ffn || !a->layers || !a->heads || !a->kv_heads || !a->vocab ||
	    !a->max_position)
		return mk_config_fail(err, "every size must be at least 1");
	if (a->hidden > MK_WIDTH_MAX || a->ffn > MK_FFN_MAX || a->layers > MK_LAYERS_MAX ||
	    a->vocab > MK_ROWS_MAX || a->max_position > MK_ROWS_MAX || a->embed_dim > MK_WIDTH_MAX)
		return mk_config_fail(
			err, "a size is out of range (hidden <= 1Mi, ffn <= 4Mi, layers <= "
			     "4096, vocab and max position <= 16Mi)");
	if (a->hidden % a->heads || a->head_dim != a->hidden / a->heads)
		return mk_config_fail(err, "hidden size is not a multiple of the number of heads");
	if (a->heads % a->kv_heads)
		return mk_config_fail(err, "heads are not a multiple of the KV heads");
	if (a->head_dim > MM_HEAD_DIM_MAX)
		return mk_config_fail(err, "head size (hidden / heads) is larger than 256");
	return check_family(a, err);
}

static json_t *rope_scaling(const struct mm_rope *rope)
{
	if (rope->scaling == MM_ROPE_LINEAR)
		return json_pack("{s:s,s:f}", "rope_type", "linear", "factor", rope->factor);
	if (rope->scaling == MM_ROPE_LLAMA3)
		return json_pack("{s:s,s:f,s:f,s:f,s:I}", "rope_type", "llama3", "factor",
				 rope->factor, "low_freq_factor", rope->low_factor,
				 "high_freq_factor", rope->high_factor,
				 "original_max_position_embeddings", (json_int_t)rope->original);
	return json_null();
}

static json_t *llama_config(const struct mm_arch *a)
{
	return json_pack("{s:s,s:I,s:I,s:I,s:f,s:f,s:o}", "hidden_act", "silu", "intermediate_size",
			 (json_int_t)a->ffn, "num_key_value_heads", (json_int_t)a->kv_heads,
			 "head_dim", (json_int_t)a->head_dim, "rms_norm_eps", a->norm_eps,
			 "rope_theta", a->rope.theta, "rope_scaling", rope_scaling(&a->rope));
}

static json_t *opt_config(const struct mm_arch *a)
{
	return json_pack("{s:s,s:I,s:I,s:b,s:b,s:b,s:b}", "activation_function", "relu", "ffn_dim",
			 (json_int_t)a->ffn, "word_embed_proj_dim", (json_int_t)a->embed_dim,
			 "do_layer_norm_before", !a->post_norm, "_remove_final_layer_norm",
			 a->no_final_norm, "enable_bias", 1, "layer_norm_elementwise_affine", 1);
}

static json_t *common_config(const struct mm_arch *a, enum mm_dtype dtype)
{
	return json_pack("{s:[s],s:s,s:I,s:I,s:I,s:I,s:I,s:b,s:s,s:i,s:i}", "architectures",
			 mm_family_architecture(a->family), "model_type", mm_family_name(a->family),
			 "hidden_size", (json_int_t)a->hidden, "num_hidden_layers",
			 (json_int_t)a->layers, "num_attention_heads", (json_int_t)a->heads,
			 "vocab_size", (json_int_t)a->vocab, "max_position_embeddings",
			 (json_int_t)a->max_position, "tie_word_embeddings", a->tied, "torch_dtype",
			 mk_dtype_name(dtype, true), "bos_token_id", 1, "eos_token_id", 2);
}

json_t *mk_config_json(const struct mm_arch *a, enum mm_dtype dtype)
{
	mm_cleanup(mm_json_done) json_t *config = common_config(a, dtype);
	mm_cleanup(mm_json_done) json_t *more =
		a->family == MM_FAMILY_OPT ? opt_config(a) : llama_config(a);
	int r = !config || !more ? -1 : json_object_update(config, more);

	if (!r && a->family == MM_FAMILY_LLAMA)
		r = mm_json_put_flag(config, "attention_bias", false) ||
		    mm_json_put_flag(config, "mlp_bias", false);
	if (!r && a->family == MM_FAMILY_QWEN2)
		r = mm_json_put_flag(config, "use_sliding_window", false);
	return r ? NULL : mm_json_take(&config);
}
