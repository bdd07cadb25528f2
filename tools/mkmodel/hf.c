/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mkmodel/hf.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/args.h"
#include "mm/base.h"

static const struct {
	const char *name; /* behind "model.layers.N." where per_layer */
	bool per_layer;
} kinds[MK_KINDS] = {
	[MK_EMBED] = { "model.embed_tokens.weight", false },
	[MK_INPUT_NORM] = { "input_layernorm.weight", true },
	[MK_Q] = { "self_attn.q_proj.weight", true },
	[MK_K] = { "self_attn.k_proj.weight", true },
	[MK_V] = { "self_attn.v_proj.weight", true },
	[MK_O] = { "self_attn.o_proj.weight", true },
	[MK_POST_NORM] = { "post_attention_layernorm.weight", true },
	[MK_GATE] = { "mlp.gate_proj.weight", true },
	[MK_UP] = { "mlp.up_proj.weight", true },
	[MK_DOWN] = { "mlp.down_proj.weight", true },
	[MK_FINAL_NORM] = { "model.norm.weight", false },
	[MK_HEAD] = { "lm_head.weight", false },
};

struct writer {
	const struct mk_source *source;
	enum mm_dtype dtype;
	FILE *file;
	char path[PATH_MAX];
	char *err;
};

static const char *dtype_name(enum mm_dtype dtype, bool torch)
{
	if (dtype == MM_DTYPE_F32)
		return torch ? "float32" : "F32";
	if (dtype == MM_DTYPE_F16)
		return torch ? "float16" : "F16";
	return torch ? "bfloat16" : "BF16";
}

static int fail(char *err, int error, const char *text)
{
	snprintf(err, MK_ERROR_BYTES, "%s", text);
	return error;
}

static int fail_path(struct writer *w, const char *what)
{
	const int error = errno ? errno : EIO;

	snprintf(w->err, MK_ERROR_BYTES, "%s: cannot %s: %s", w->path, what, strerror(error));
	return -error;
}

int mk_shape_check(const struct mk_shape *s, char *err)
{
	if (!s->hidden || !s->ffn || !s->layers || !s->heads || !s->kv_heads || !s->vocab ||
	    !s->max_position)
		return fail(err, -EINVAL, "every size must be at least 1");
	if (s->hidden > 1u << 20 || s->ffn > 1u << 22 || s->layers > 4096 || s->vocab > 1u << 24 ||
	    s->max_position > 1u << 24)
		return fail(err, -EINVAL,
			    "a size is out of range (hidden <= 1Mi, ffn <= 4Mi, layers <= 4096, "
			    "vocab and max position <= 16Mi)");
	if (s->hidden % s->heads)
		return fail(err, -EINVAL, "hidden size is not a multiple of the number of heads");
	if (s->heads % s->kv_heads)
		return fail(err, -EINVAL, "heads are not a multiple of the KV heads");
	if (s->hidden / s->heads % 2)
		return fail(err, -EINVAL, "head size (hidden / heads) is odd: RoPE needs pairs");
	if (s->hidden / s->heads > MM_HEAD_DIM_MAX)
		return fail(err, -EINVAL, "head size (hidden / heads) is larger than 256");
	return 0;
}

void mk_kind_size(const struct mk_shape *s, enum mk_kind kind, uint32_t *ret_rows,
		  uint32_t *ret_columns)
{
	const uint32_t kv_dim = s->hidden / s->heads * s->kv_heads;
	const struct {
		uint32_t rows, columns;
	} sizes[MK_KINDS] = {
		[MK_EMBED] = { s->vocab, s->hidden }, [MK_INPUT_NORM] = { 1, s->hidden },
		[MK_Q] = { s->hidden, s->hidden },    [MK_K] = { kv_dim, s->hidden },
		[MK_V] = { kv_dim, s->hidden },       [MK_O] = { s->hidden, s->hidden },
		[MK_POST_NORM] = { 1, s->hidden },    [MK_GATE] = { s->ffn, s->hidden },
		[MK_UP] = { s->ffn, s->hidden },      [MK_DOWN] = { s->hidden, s->ffn },
		[MK_FINAL_NORM] = { 1, s->hidden },   [MK_HEAD] = { s->vocab, s->hidden },
	};

	*ret_rows = sizes[kind].rows;
	*ret_columns = sizes[kind].columns;
}

static int narrow_f16(uint32_t bits, uint16_t *ret_bits)
{
	const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	uint32_t magnitude = bits & 0x7fffffff;
	float value;

	if (magnitude < 0x38800000) { /* below the smallest normal: count in units of 2^-24 */
		memcpy(&value, &magnitude, sizeof(value));
		*ret_bits = sign | (uint16_t)lrintf(value * 0x1p24f);
		return 0;
	}
	magnitude += 0xfff + (magnitude >> 13 & 1);
	magnitude = (magnitude >> 13) - ((127 - 15) << 10);
	if (magnitude >= 0x7c00)
		return -ERANGE;
	*ret_bits = sign | (uint16_t)magnitude;
	return 0;
}

int mk_narrow(float value, enum mm_dtype dtype, uint16_t *ret_bits)
{
	uint32_t bits;

	if (!isfinite(value))
		return -ERANGE;
	memcpy(&bits, &value, sizeof(bits));
	if (dtype == MM_DTYPE_F16)
		return narrow_f16(bits, ret_bits);
	bits += 0x7fff + (bits >> 16 & 1);
	if ((bits & 0x7f800000) == 0x7f800000)
		return -ERANGE;
	*ret_bits = (uint16_t)(bits >> 16);
	return 0;
}

static void tensor_name(enum mk_kind kind, uint32_t layer, char *out, size_t bytes)
{
	if (kinds[kind].per_layer)
		snprintf(out, bytes, "model.layers.%u.%s", layer, kinds[kind].name);
	else
		snprintf(out, bytes, "%s", kinds[kind].name);
}

/* Calls @visit for every tensor of the model in file order; stops at the first failure. */
static int each_tensor(struct writer *w,
		       int (*visit)(struct writer *w, enum mk_kind kind, uint32_t layer, void *arg),
		       void *arg)
{
	const struct mk_shape *s = &w->source->shape;
	int r = visit(w, MK_EMBED, 0, arg);

	for (uint32_t layer = 0; layer < s->layers && !r; layer++)
		for (enum mk_kind kind = MK_INPUT_NORM; kind <= MK_DOWN && !r; kind++)
			r = visit(w, kind, layer, arg);
	if (!r)
		r = visit(w, MK_FINAL_NORM, 0, arg);
	if (!r && !s->tied)
		r = visit(w, MK_HEAD, 0, arg);
	return r;
}

struct header {
	json_t *object;
	uint64_t offset;
};

static int header_tensor(struct writer *w, enum mk_kind kind, uint32_t layer, void *arg)
{
	struct header *h = arg;
	uint32_t rows, columns;
	uint64_t bytes;
	char name[128];
	json_t *shape;

	mk_kind_size(&w->source->shape, kind, &rows, &columns);
	bytes = (uint64_t)rows * columns * mm_dtype_bytes(w->dtype);
	if (kind == MK_INPUT_NORM || kind == MK_POST_NORM || kind == MK_FINAL_NORM)
		shape = json_pack("[I]", (json_int_t)columns);
	else
		shape = json_pack("[II]", (json_int_t)rows, (json_int_t)columns);
	tensor_name(kind, layer, name, sizeof(name));
	if (json_object_set_new(h->object, name,
				json_pack("{s:s,s:o,s:[II]}", "dtype", dtype_name(w->dtype, false),
					  "shape", shape, "data_offsets", (json_int_t)h->offset,
					  (json_int_t)(h->offset + bytes))))
		return fail(w->err, -ENOMEM, "out of memory");
	h->offset += bytes;
	return 0;
}

static void free_json(json_t **j)
{
	json_decref(*j);
}

/* Eight bytes of length, then JSON padded with spaces so that the data begin aligned. */
static int write_header(struct writer *w)
{
	mm_cleanup(free_json) json_t *object = json_object();
	struct header h = { object, 0 };
	mm_cleanup(mm_free_ptr) char *text = NULL;
	uint64_t length, padded;
	int r = each_tensor(w, header_tensor, &h);

	if (r)
		return r;
	text = json_dumps(object, JSON_COMPACT);
	if (!text)
		return fail(w->err, -ENOMEM, "out of memory");
	length = strlen(text);
	padded = mm_round_up(length, 8);
	if (fwrite(&padded, sizeof(padded), 1, w->file) != 1 ||
	    fprintf(w->file, "%s%*s", text, (int)(padded - length), "") < 0)
		return fail_path(w, "write");
	return 0;
}

static int write_row(struct writer *w, const float *row, uint32_t columns, uint16_t *narrow)
{
	if (w->dtype == MM_DTYPE_F32) {
		for (uint32_t i = 0; i < columns; i++)
			if (!isfinite(row[i]))
				return -ERANGE;
		return fwrite(row, sizeof(*row), columns, w->file) == columns ? 0 : -EIO;
	}
	for (uint32_t i = 0; i < columns; i++)
		if (mk_narrow(row[i], w->dtype, &narrow[i]))
			return -ERANGE;
	return fwrite(narrow, sizeof(*narrow), columns, w->file) == columns ? 0 : -EIO;
}

static int write_tensor(struct writer *w, enum mk_kind kind, uint32_t layer, void *arg)
{
	float *row = arg;
	uint32_t rows, columns;
	char name[128];

	mk_kind_size(&w->source->shape, kind, &rows, &columns);
	tensor_name(kind, layer, name, sizeof(name));
	for (uint32_t i = 0; i < rows; i++) {
		int r;

		w->source->row(w->source->context, kind, layer, i, row);
		errno = 0;
		r = write_row(w, row, columns, (uint16_t *)(row + columns));
		if (r == -EIO)
			return fail_path(w, "write");
		if (r) {
			snprintf(w->err, MK_ERROR_BYTES,
				 "%s, row %u: a value is not finite or does not fit %s", name, i,
				 dtype_name(w->dtype, false));
			return r;
		}
	}
	return 0;
}

static int write_data(struct writer *w)
{
	const struct mk_shape *s = &w->source->shape;
	mm_cleanup(mm_free_ptr) float *row =
		calloc((size_t)MM_MAX(s->hidden, s->ffn) * 2, sizeof(*row));

	if (!row)
		return fail(w->err, -ENOMEM, "out of memory");
	return each_tensor(w, write_tensor, row);
}

static json_t *config_json(const struct mk_shape *s, enum mm_dtype dtype)
{
	return json_pack("{s:[s],s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:n,s:b,s:b,s:b,"
			 "s:s,s:i,s:i}",
			 "architectures", "LlamaForCausalLM", "model_type", "llama", "hidden_act",
			 "silu", "hidden_size", (json_int_t)s->hidden, "intermediate_size",
			 (json_int_t)s->ffn, "num_hidden_layers", (json_int_t)s->layers,
			 "num_attention_heads", (json_int_t)s->heads, "num_key_value_heads",
			 (json_int_t)s->kv_heads, "head_dim", (json_int_t)(s->hidden / s->heads),
			 "vocab_size", (json_int_t)s->vocab, "max_position_embeddings",
			 (json_int_t)s->max_position, "rms_norm_eps", 1e-5, "rope_theta", 10000.0,
			 "rope_scaling", "attention_bias", 0, "mlp_bias", 0, "tie_word_embeddings",
			 s->tied, "torch_dtype", dtype_name(dtype, true), "bos_token_id", 1,
			 "eos_token_id", 2);
}

static int write_config(struct writer *w)
{
	mm_cleanup(free_json) json_t *config = config_json(&w->source->shape, w->dtype);

	if (!config)
		return fail(w->err, -ENOMEM, "out of memory");
	if (json_dumpf(config, w->file, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) ||
	    fputc('\n', w->file) == EOF)
		return fail_path(w, "write");
	return 0;
}

static int write_safetensors(struct writer *w)
{
	const int r = write_header(w);

	return r ? r : write_data(w);
}

/* Writes dir/name.part by @body, then renames it. */
static int write_file(struct writer *w, const char *dir, const char *name,
		      int (*body)(struct writer *w))
{
	char final[PATH_MAX];
	int r;

	if (snprintf(final, sizeof(final), "%s/%s", dir, name) >= (int)sizeof(final) - 5)
		return fail(w->err, -ENAMETOOLONG, "the output's path is too long");
	snprintf(w->path, sizeof(w->path), "%.*s.part", PATH_MAX - 6, final);
	w->file = fopen(w->path, "wbe");
	if (!w->file)
		return fail_path(w, "create");
	r = body(w);
	if (fclose(w->file) && !r)
		r = fail_path(w, "write");
	if (!r && rename(w->path, final))
		r = fail_path(w, "rename");
	if (r)
		unlink(w->path);
	return r;
}

int mk_write(const struct mk_source *source, const char *dir, enum mm_dtype dtype, char *err)
{
	struct writer w = { .source = source, .dtype = dtype, .err = err };
	int r;

	if (mkdir(dir, 0777) && errno != EEXIST) {
		snprintf(w.path, sizeof(w.path), "%s", dir);
		return fail_path(&w, "create the folder");
	}
	r = write_file(&w, dir, "model.safetensors", write_safetensors);
	return r ? r : write_file(&w, dir, "config.json", write_config);
}
