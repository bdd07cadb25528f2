/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/tools/mmserve/reference.h"

#include <assert.h>
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct matrix {
	char name[128];
	size_t n;
	double *values;
};

struct reference {
	json_t *config;
	struct matrix *all;
	size_t n;
	bool opt;
};

/* ---- reading ---- */

static double value_of(const uint8_t *p, const char *dtype)
{
	uint32_t bits = (uint32_t)p[0] | (uint32_t)p[1] << 8;
	float f;

	if (!strcmp(dtype, "F32"))
		bits |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	else if (!strcmp(dtype, "BF16"))
		bits <<= 16;
	if (strcmp(dtype, "F16")) {
		memcpy(&f, &bits, sizeof(f));
		return (double)f;
	}
	if (!(bits & 0x7c00))
		return (bits & 0x8000 ? -1 : 1) * ldexp(bits & 0x3ff, -24);
	return (bits & 0x8000 ? -1 : 1) * ldexp((bits & 0x3ff) + 1024, (int)(bits >> 10 & 31) - 25);
}

static void read_tensor(struct reference *r, const char *name, const json_t *entry,
			const uint8_t *data)
{
	const char *dtype = json_string_value(json_object_get(entry, "dtype"));
	const json_t *offsets = json_object_get(entry, "data_offsets");
	const size_t size = strcmp(dtype, "F32") ? 2 : 4;
	const size_t first = (size_t)json_integer_value(json_array_get(offsets, 0));
	const size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
	struct matrix *m;

	r->all = realloc(r->all, (r->n + 1) * sizeof(*r->all));
	assert(r->all);
	m = &r->all[r->n++];
	snprintf(m->name, sizeof(m->name), "%s", name);
	m->n = (end - first) / size;
	m->values = calloc(m->n, sizeof(*m->values));
	assert(m->values);
	for (size_t i = 0; i < m->n; i++)
		m->values[i] = value_of(data + first + i * size, dtype);
}

static uint8_t *read_file(const char *path, size_t *ret_bytes)
{
	FILE *file = fopen(path, "rbe");
	uint8_t *bytes;
	long size;

	assert(file && !fseek(file, 0, SEEK_END));
	size = ftell(file);
	rewind(file);
	bytes = malloc((size_t)size + 1);
	assert(bytes && fread(bytes, 1, (size_t)size, file) == (size_t)size);
	fclose(file);
	*ret_bytes = (size_t)size;
	return bytes;
}

static void read_weights(struct reference *r, const char *path)
{
	size_t size;
	uint8_t *bytes = read_file(path, &size);
	uint64_t header_bytes;
	const char *name;
	json_t *header, *entry;

	memcpy(&header_bytes, bytes, 8);
	header = json_loadb((const char *)bytes + 8, header_bytes, 0, NULL);
	assert(header);
	json_object_foreach(header, name, entry)
		if (strcmp(name, "__metadata__"))
			read_tensor(r, name, entry, bytes + 8 + header_bytes);
	json_decref(header);
	free(bytes);
}

struct reference *reference_open(const char *dir)
{
	struct reference *r = calloc(1, sizeof(*r));
	DIR *d = opendir(dir);
	struct dirent *entry;
	char path[1024];

	assert(r && d);
	snprintf(path, sizeof(path), "%s/config.json", dir);
	r->config = json_load_file(path, 0, NULL);
	assert(r->config);
	r->opt = !strcmp(json_string_value(json_object_get(r->config, "model_type")), "opt");
	while ((entry = readdir(d))) {
		if (!strstr(entry->d_name, ".safetensors") || strstr(entry->d_name, ".json"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		read_weights(r, path);
	}
	closedir(d);
	return r;
}

void reference_close(struct reference *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->all[i].values);
	free(r->all);
	json_decref(r->config);
	free(r);
}

static double number(const struct reference *r, const char *key)
{
	const json_t *v = json_object_get(r->config, key);

	assert(json_is_number(v));
	return json_number_value(v);
}

static size_t config_size(const struct reference *r, const char *key)
{
	return (size_t)number(r, key);
}

uint32_t reference_vocab(const struct reference *r)
{
	return (uint32_t)config_size(r, "vocab_size");
}

static const double *tensor_find(const struct reference *r, const char *name)
{
	for (size_t i = 0; i < r->n; i++)
		if (!strcmp(r->all[i].name, name))
			return r->all[i].values;
	return NULL;
}

/* ---- the parts of a layer; @prefix: of the tensors' names ---- */

static const double *weight(const struct reference *r, const char *prefix, const char *last,
			    bool must)
{
	char name[192];
	const double *found;

	snprintf(name, sizeof(name), "%s.%s", prefix, last);
	found = tensor_find(r, name);
	assert(found || !must);
	return found;
}

static void linear_apply(const struct reference *r, const char *prefix, const double *x, size_t k,
			 double *y, size_t n)
{
	const double *w = weight(r, prefix, "weight", true);
	const double *b = weight(r, prefix, "bias", false);

	for (size_t o = 0; o < n; o++) {
		y[o] = b ? b[o] : 0;
		for (size_t i = 0; i < k; i++)
			y[o] += x[i] * w[o * k + i];
	}
}

static void norm_apply(const struct reference *r, const char *prefix, const double *x, double *y)
{
	const size_t n = config_size(r, "hidden_size");
	const double *w = weight(r, prefix, "weight", true);
	const double *b = weight(r, prefix, "bias", r->opt);
	double mean = 0, square = 0;

	for (size_t i = 0; i < n && r->opt; i++)
		mean += x[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		square += (x[i] - mean) * (x[i] - mean) / (double)n;
	square = sqrt(square + (r->opt ? 1e-5 : number(r, "rms_norm_eps")));
	for (size_t i = 0; i < n; i++)
		y[i] = (x[i] - mean) / square * w[i] + (r->opt ? b[i] : 0);
}

/* The llama3 scaling as it was published: by wavelength, blended in between. */
static double rope_frequency(const struct reference *r, size_t pair, size_t dim)
{
	const json_t *scaling = json_object_get(r->config, "rope_scaling");
	const double f = 1 / pow(number(r, "rope_theta"), 2 * (double)pair / (double)dim);
	const double wavelength = 2 * acos(-1) / f;
	double factor, low, high, original, smooth;

	if (!json_is_object(scaling))
		return f;
	factor = json_number_value(json_object_get(scaling, "factor"));
	if (!strcmp(json_string_value(json_object_get(scaling, "rope_type")), "linear"))
		return f / factor;
	low = json_number_value(json_object_get(scaling, "low_freq_factor"));
	high = json_number_value(json_object_get(scaling, "high_freq_factor"));
	original = json_number_value(json_object_get(scaling, "original_max_position_embeddings"));
	if (wavelength < original / high)
		return f;
	if (wavelength > original / low)
		return f / factor;
	smooth = (original / wavelength - low) / (high - low);
	return (1 - smooth) * f / factor + smooth * f;
}

static void heads_rotate(const struct reference *r, double *x, size_t heads, size_t dim,
			 size_t position)
{
	for (size_t h = 0; h < heads && !r->opt; h++) {
		for (size_t i = 0; i < dim / 2; i++) {
			const double angle = (double)position * rope_frequency(r, i, dim);
			double *a = &x[h * dim + i], *b = a + dim / 2;
			const double p = *a, q = *b;

			*a = p * cos(angle) - q * sin(angle);
			*b = q * cos(angle) + p * sin(angle);
		}
	}
}

static void attend(const double *q, const double *k, const double *v, size_t context, size_t stride,
		   size_t dim, double *out)
{
	double score[512], sum = 0;

	assert(context <= 512);
	memset(out, 0, dim * sizeof(*out));
	for (size_t t = 0; t < context; t++) {
		score[t] = 0;
		for (size_t i = 0; i < dim; i++)
			score[t] += q[i] * k[t * stride + i] / sqrt((double)dim);
		sum += exp(score[t]);
	}
	for (size_t t = 0; t < context; t++)
		for (size_t i = 0; i < dim; i++)
			out[i] += exp(score[t]) / sum * v[t * stride + i];
}

struct shape {
	size_t n, hidden, ffn, heads, kv_heads, dim;
};

static double *zeros(size_t n)
{
	double *x = calloc(n, sizeof(*x));

	assert(x);
	return x;
}

/* Computes out[t] = o(attention(x)). */
static void attention_apply(const struct reference *r, const char *layer, const struct shape *s,
			    const double *x, double *out)
{
	const size_t q_dim = s->heads * s->dim, kv_dim = s->kv_heads * s->dim;
	double *q = zeros(s->n * q_dim), *k = zeros(s->n * kv_dim), *v = zeros(s->n * kv_dim);
	double *mixed = zeros(q_dim);
	char name[128];

	for (size_t t = 0; t < s->n; t++) {
		snprintf(name, sizeof(name), "%s.self_attn.q_proj", layer);
		linear_apply(r, name, x + t * s->hidden, s->hidden, q + t * q_dim, q_dim);
		snprintf(name, sizeof(name), "%s.self_attn.k_proj", layer);
		linear_apply(r, name, x + t * s->hidden, s->hidden, k + t * kv_dim, kv_dim);
		snprintf(name, sizeof(name), "%s.self_attn.v_proj", layer);
		linear_apply(r, name, x + t * s->hidden, s->hidden, v + t * kv_dim, kv_dim);
		heads_rotate(r, q + t * q_dim, s->heads, s->dim, t);
		heads_rotate(r, k + t * kv_dim, s->kv_heads, s->dim, t);
	}
	snprintf(name, sizeof(name), "%s.self_attn.%s", layer, r->opt ? "out_proj" : "o_proj");
	for (size_t t = 0; t < s->n; t++) {
		for (size_t h = 0; h < s->heads; h++) {
			const size_t kv = h / (s->heads / s->kv_heads) * s->dim;

			attend(q + t * q_dim + h * s->dim, k + kv, v + kv, t + 1, kv_dim, s->dim,
			       mixed + h * s->dim);
		}
		linear_apply(r, name, mixed, q_dim, out + t * s->hidden, s->hidden);
	}
	free(q);
	free(k);
	free(v);
	free(mixed);
}

static void feed_forward(const struct reference *r, const char *layer, const struct shape *s,
			 const double *x, double *out)
{
	double *gate = zeros(s->ffn), *up = zeros(s->ffn);
	char name[128];

	for (size_t t = 0; t < s->n; t++) {
		snprintf(name, sizeof(name), "%s.%s", layer, r->opt ? "fc1" : "mlp.up_proj");
		linear_apply(r, name, x + t * s->hidden, s->hidden, up, s->ffn);
		if (!r->opt) {
			snprintf(name, sizeof(name), "%s.mlp.gate_proj", layer);
			linear_apply(r, name, x + t * s->hidden, s->hidden, gate, s->ffn);
		}
		for (size_t i = 0; i < s->ffn; i++)
			up[i] = r->opt ? fmax(up[i], 0) : up[i] * gate[i] / (1 + exp(-gate[i]));
		snprintf(name, sizeof(name), "%s.%s", layer, r->opt ? "fc2" : "mlp.down_proj");
		linear_apply(r, name, up, s->ffn, out + t * s->hidden, s->hidden);
	}
	free(gate);
	free(up);
}

typedef void block_fn(const struct reference *r, const char *layer, const struct shape *s,
		      const double *x, double *out);

static void residual_apply(const struct reference *r, const char *layer, const char *norm_name,
			   const struct shape *s, block_fn *block, double *x)
{
	const bool before =
		!r->opt || json_is_true(json_object_get(r->config, "do_layer_norm_before"));
	double *h = zeros(s->n * s->hidden), *y = zeros(s->n * s->hidden);
	char name[128];

	snprintf(name, sizeof(name), "%s.%s", layer, norm_name);
	memcpy(h, x, s->n * s->hidden * sizeof(*h));
	for (size_t t = 0; t < s->n && before; t++)
		norm_apply(r, name, x + t * s->hidden, h + t * s->hidden);
	block(r, layer, s, h, y);
	for (size_t i = 0; i < s->n * s->hidden; i++)
		x[i] += y[i];
	memcpy(h, x, s->n * s->hidden * sizeof(*h));
	for (size_t t = 0; t < s->n && !before; t++)
		norm_apply(r, name, h + t * s->hidden, x + t * s->hidden);
	free(h);
	free(y);
}

/* ---- outside the layers ---- */

static size_t embed_dim(const struct reference *r)
{
	return config_size(r, r->opt ? "word_embed_proj_dim" : "hidden_size");
}

static void tokens_embed(const struct reference *r, const uint32_t *ids, const struct shape *s,
			 double *x)
{
	const size_t dim = embed_dim(r);
	const double *tokens = weight(
		r, r->opt ? "model.decoder.embed_tokens" : "model.embed_tokens", "weight", true);

	for (size_t t = 0; t < s->n; t++) {
		if (dim == s->hidden)
			memcpy(x + t * s->hidden, tokens + ids[t] * dim, dim * sizeof(*x));
		else
			linear_apply(r, "model.decoder.project_in", tokens + ids[t] * dim, dim,
				     x + t * s->hidden, s->hidden);
		for (size_t i = 0; i < s->hidden && r->opt; i++)
			x[t * s->hidden + i] += weight(r, "model.decoder.embed_positions", "weight",
						       true)[(t + 2) * s->hidden + i];
	}
}

static void head_apply(const struct reference *r, const struct shape *s, double *x, double *logits)
{
	const bool tied = json_is_true(json_object_get(r->config, "tie_word_embeddings"));
	const char *name = !tied    ? "lm_head"
			   : r->opt ? "model.decoder.embed_tokens"
				    : "model.embed_tokens";
	const char *last = r->opt ? "model.decoder.final_layer_norm" : "model.norm";
	double *h = zeros(s->hidden), *out = zeros(embed_dim(r));

	memcpy(h, x, s->hidden * sizeof(*h));
	if (weight(r, last, "weight", !r->opt))
		norm_apply(r, last, x, h);
	if (embed_dim(r) == s->hidden)
		memcpy(out, h, s->hidden * sizeof(*h));
	else
		linear_apply(r, "model.decoder.project_out", h, s->hidden, out, embed_dim(r));
	linear_apply(r, name, out, embed_dim(r), logits, config_size(r, "vocab_size"));
	free(h);
	free(out);
}

void reference_logits(const struct reference *r, const uint32_t *ids, size_t n, double *ret_logits)
{
	struct shape s = { .n = n,
			   .hidden = config_size(r, "hidden_size"),
			   .ffn = config_size(r, r->opt ? "ffn_dim" : "intermediate_size"),
			   .heads = config_size(r, "num_attention_heads") };
	double *x = zeros(n * s.hidden);
	char layer[64];

	s.kv_heads = r->opt ? s.heads : config_size(r, "num_key_value_heads");
	s.dim = s.hidden / s.heads;
	tokens_embed(r, ids, &s, x);
	for (size_t i = 0; i < config_size(r, "num_hidden_layers"); i++) {
		snprintf(layer, sizeof(layer), "model.%slayers.%zu", r->opt ? "decoder." : "", i);
		residual_apply(r, layer, r->opt ? "self_attn_layer_norm" : "input_layernorm", &s,
			       attention_apply, x);
		residual_apply(r, layer, r->opt ? "final_layer_norm" : "post_attention_layernorm",
			       &s, feed_forward, x);
	}
	for (size_t t = 0; t < n; t++)
		head_apply(r, &s, x + t * s.hidden, ret_logits + t * config_size(r, "vocab_size"));
	free(x);
}
