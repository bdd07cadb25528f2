/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that mmserve reads from outside: one valid form, then one fault at a time. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/sched/kvarena.h"
#include "tools/mmserve/engine/report.h"
#include "tools/mmserve/engine/requests.h"

static char dir[256], path[300];
static char err[MM_SERVE_ERROR_BYTES];

static int make_dir(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(dir, sizeof(dir), "%s/mm-input.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

static void write_file(const char *name, const char *text, size_t length)
{
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, length, file), length);
	fclose(file);
}

#define CONFIG(more)                                                                              \
	"{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":172," \
	"\"num_hidden_layers\":5,\"num_attention_heads\":8,\"vocab_size\":512" more "}"

#define LLAMA3(more, original)                                           \
	",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8," more \
	"\"original_max_position_embeddings\":" original "}"

#define QWEN2(more)                                                                               \
	"{\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":172," \
	"\"num_hidden_layers\":5,\"num_attention_heads\":8,\"vocab_size\":512" more "}"

#define OPT(more)                                                     \
	"{\"architectures\":[\"OPTForCausalLM\"],\"hidden_size\":64," \
	"\"num_hidden_layers\":5,\"num_attention_heads\":8,\"vocab_size\":512" more "}"

static const struct {
	const char *name, *text, *want; /* want: a part of the sentence */
	int error;
} bad_configs[] = {
	{ "empty", "", "not a JSON object", -EBADMSG },
	{ "list", "[]", "not a JSON object", -EBADMSG },
	{ "no keys", "{}", "architectures", -EBADMSG },
	{ "other architecture", "{\"architectures\":[\"GPT2LMHeadModel\"]}", "GPT2LMHeadModel",
	  -ENOTSUP },
	{ "missing size", "{\"architectures\":[\"LlamaForCausalLM\"]}", "hidden_size is missing",
	  -EBADMSG },
	{ "size is text", CONFIG(",\"max_position_embeddings\":\"a\""), "max_position_embeddings",
	  -EBADMSG },
	{ "size is 0", CONFIG(",\"max_position_embeddings\":0"), "from 1 to", -EBADMSG },
	{ "size is huge", CONFIG(",\"max_position_embeddings\":99999999999"), "from 1 to",
	  -EBADMSG },
	{ "rope scaling", CONFIG(",\"rope_scaling\":{\"type\":\"linear\"}"), "factor is missing",
	  -EBADMSG },
	{ "scaling is text", CONFIG(",\"rope_scaling\":\"llama3\""), "must be an object",
	  -EBADMSG },
	{ "scaling without type", CONFIG(",\"rope_scaling\":{\"factor\":2}"), "rope_type",
	  -EBADMSG },
	{ "scaling of two types",
	  CONFIG(",\"rope_scaling\":{\"rope_type\":\"linear\",\"type\":\"llama3\"}"), "contradict",
	  -EBADMSG },
	{ "unknown scaling", CONFIG(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}"),
	  "\"yarn\" is not served", -ENOTSUP },
	{ "unknown parameters", CONFIG(",\"rope_parameters\":{\"rope_type\":\"dynamic\"}"),
	  "rope_parameters of type \"dynamic\"", -ENOTSUP },
	{ "scaling shrinks", CONFIG(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}"),
	  "at least 1", -EBADMSG },
	{ "factor is no number", CONFIG(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}"),
	  "factor must be", -EBADMSG },
	{ "scaling twice",
	  CONFIG(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
		 "\"rope_parameters\":{\"rope_type\":\"default\"}"),
	  "only one", -EBADMSG },
	{ "llama3 without low", CONFIG(LLAMA3("\"high_freq_factor\":4,", "8192")),
	  "low_freq_factor is missing", -EBADMSG },
	{ "llama3 upside down",
	  CONFIG(LLAMA3("\"high_freq_factor\":1,\"low_freq_factor\":4,", "8192")),
	  "above low_freq_factor", -EBADMSG },
	{ "llama3 of no positions",
	  CONFIG(LLAMA3("\"high_freq_factor\":4,\"low_freq_factor\":1,", "0")),
	  "original_max_position_embeddings", -EBADMSG },
	{ "llama3 of half a position",
	  CONFIG(LLAMA3("\"high_freq_factor\":4,\"low_freq_factor\":1,", "0.5")),
	  "original_max_position_embeddings", -EBADMSG },
	{ "half of the heads turned", CONFIG(",\"partial_rotary_factor\":0.5"),
	  "partial_rotary_factor", -ENOTSUP },
	{ "half of the heads turned, newer",
	  CONFIG(",\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}"),
	  "partial_rotary_factor", -ENOTSUP },
	{ "layers that look less far",
	  QWEN2(",\"layer_types\":[\"full_attention\",\"sliding_attention\"]"), "layer_types[1]",
	  -ENOTSUP },
	{ "layer types are text", QWEN2(",\"layer_types\":\"full_attention\""), "must be a list",
	  -EBADMSG },
	{ "sliding window", QWEN2(",\"use_sliding_window\":true"), "use_sliding_window true",
	  -ENOTSUP },
	{ "sliding window is text", QWEN2(",\"use_sliding_window\":\"no\""),
	  "use_sliding_window must be", -EBADMSG },
	{ "OPT without ffn", OPT(",\"ffn_dim\":null"), "ffn_dim must be", -EBADMSG },
	{ "OPT without bias", OPT(",\"ffn_dim\":9,\"enable_bias\":false"), "enable_bias false",
	  -ENOTSUP },
	{ "OPT's norm without gain", OPT(",\"ffn_dim\":9,\"layer_norm_elementwise_affine\":false"),
	  "layer_norm_elementwise_affine false", -ENOTSUP },
	{ "OPT with GELU", OPT(",\"ffn_dim\":9,\"activation_function\":\"gelu\""),
	  "activation_function is not \"relu\"", -ENOTSUP },
	{ "OPT's order of norms", OPT(",\"ffn_dim\":9,\"do_layer_norm_before\":1"),
	  "do_layer_norm_before must be", -EBADMSG },
	{ "OPT's embedding", OPT(",\"ffn_dim\":9,\"word_embed_proj_dim\":0"),
	  "word_embed_proj_dim must be", -EBADMSG },
	{ "activation", CONFIG(",\"hidden_act\":\"gelu\""), "hidden_act", -ENOTSUP },
	{ "bias", CONFIG(",\"attention_bias\":true"), "attention_bias", -ENOTSUP },
	{ "bool is a number", CONFIG(",\"tie_word_embeddings\":1"), "tie_word_embeddings",
	  -EBADMSG },
	{ "eps", CONFIG(",\"rms_norm_eps\":-1"), "rms_norm_eps", -EBADMSG },
	{ "eps of no float", CONFIG(",\"rms_norm_eps\":1e-60"), "rms_norm_eps", -EBADMSG },
	{ "endless theta", CONFIG(",\"rope_theta\":1e60"), "rope_theta", -EBADMSG },
	{ "heads", CONFIG(",\"num_key_value_heads\":3"), "multiple of 3", -EBADMSG },
	{ "odd head", CONFIG(",\"head_dim\":7"), "odd", -EBADMSG },
	{ "long head", CONFIG(",\"head_dim\":512"), "head_dim", -EBADMSG },
	{ "twice", CONFIG(",\"head_dim\":8,\"head_dim\":8"), "duplicate", -EBADMSG },
	{ "quantized", CONFIG(",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}"),
	  "quantization_config {\"quant_method\":\"gptq\"", -ENOTSUP },
	{ "quantized, nobody knows how", QWEN2(",\"quantization_config\":{}"),
	  "quantization_config {} is not served", -ENOTSUP },
	{ "quantized OPT", OPT(",\"ffn_dim\":9,\"quantization_config\":false"),
	  "quantization_config false is not served", -ENOTSUP },
	{ "quantized elsewhere", CONFIG(",\"compression_config\":{}"), "compression_config",
	  -ENOTSUP },
	{ "another model's type", CONFIG(",\"model_type\":\"gemma2\""),
	  "model_type is not \"llama\"", -ENOTSUP },
	{ "type is a number", QWEN2(",\"model_type\":2"), "model_type is not \"qwen2\"", -EBADMSG },
	{ "experts", CONFIG(",\"num_local_experts\":8"), "num_local_experts 8 is not served",
	  -ENOTSUP },
	{ "one expert", CONFIG(",\"num_experts\":1"), "num_experts 1 is not served", -ENOTSUP },
	{ "capped logits", CONFIG(",\"final_logit_softcapping\":30.0"),
	  "final_logit_softcapping 30.0", -ENOTSUP },
	{ "capped attention", QWEN2(",\"attn_logit_softcapping\":50"), "attn_logit_softcapping 50",
	  -ENOTSUP },
	{ "scaled embedding", CONFIG(",\"embedding_multiplier\":12"), "embedding_multiplier 12",
	  -ENOTSUP },
	{ "scaled attention", CONFIG(",\"attention_multiplier\":1"), "attention_multiplier 1",
	  -ENOTSUP },
	{ "factor is text", CONFIG(",\"logit_scale\":\"1\""), "logit_scale \"1\"", -ENOTSUP },
	{ "normed heads", QWEN2(",\"use_qk_norm\":true"), "use_qk_norm true", -ENOTSUP },
	{ "pairs side by side", CONFIG(",\"rope_interleaved\":true"), "rope_interleaved true",
	  -ENOTSUP },
	{ "part of the heads, older", CONFIG(",\"rotary_pct\":0.25"), "rotary_pct 0.25", -ENOTSUP },
	{ "layers without RoPE", CONFIG(",\"no_rope_layers\":[1,0]"), "no_rope_layers [1,0]",
	  -ENOTSUP },
	{ "other residuals", OPT(",\"ffn_dim\":9,\"use_parallel_residual\":true"),
	  "use_parallel_residual true", -ENOTSUP },
	{ "two stacks", OPT(",\"ffn_dim\":9,\"is_encoder_decoder\":true"),
	  "is_encoder_decoder true", -ENOTSUP },
	{ "Llama's window", CONFIG(",\"sliding_window\":2047"), "sliding_window 2047", -ENOTSUP },
	{ "Llama's window, by its switch", CONFIG(",\"use_sliding_window\":true"),
	  "use_sliding_window true", -ENOTSUP },
	{ "OPT's window", OPT(",\"ffn_dim\":9,\"sliding_window\":1"), "sliding_window 1",
	  -ENOTSUP },
	{ "window is text", CONFIG(",\"sliding_window\":\"a\""), "sliding_window must be",
	  -EBADMSG },
	{ "biases by another name", CONFIG(",\"bias\":true"), "bias true", -ENOTSUP },
	{ "biases of q, k, v", CONFIG(",\"qkv_bias\":true"), "qkv_bias true", -ENOTSUP },
	{ "Qwen's other biases", QWEN2(",\"mlp_bias\":true"), "mlp_bias true", -ENOTSUP },
	{ "OPT with RoPE", OPT(",\"ffn_dim\":9,\"rope_scaling\":{\"type\":\"linear\"}"),
	  "OPT has no RoPE", -ENOTSUP },
	{ "OPT's KV heads", OPT(",\"ffn_dim\":9,\"num_key_value_heads\":4"),
	  "num_key_value_heads 4", -ENOTSUP },
	{ "OPT's heads", OPT(",\"ffn_dim\":9,\"head_dim\":4"), "head_dim 4", -ENOTSUP },
	{ "OPT's layers", OPT(",\"ffn_dim\":9,\"layer_types\":[\"sliding_attention\"]"),
	  "layer_types[0]", -ENOTSUP },
	{ "hidden size in parts",
	  "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":100,"
	  "\"intermediate_size\":172,\"num_hidden_layers\":5,\"num_attention_heads\":8,"
	  "\"vocab_size\":512,\"head_dim\":null}",
	  "hidden_size 100 is not a multiple of 8", -EBADMSG },
};

static struct mm_arch good_config(const char *text)
{
	struct mm_arch a;

	write_file("config.json", text, strlen(text));
	if (mm_config_load(dir, &a, err))
		fail_msg("%s", err);
	unlink(path);
	return a;
}

static void test_good_configs(void **state)
{
	struct mm_arch a = good_config(
		CONFIG(LLAMA3("\"high_freq_factor\":4,\"low_freq_factor\":1.0,", "8192")));

	(void)state;
	assert_true(a.rope.scaling == MM_ROPE_LLAMA3 && a.rope.theta == 1e4);
	assert_true(a.rope.factor == 8 && a.rope.low_factor == 1 && a.rope.high_factor == 4);
	assert_int_equal(a.rope.original, 8192);
	a = good_config(CONFIG(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}"));
	assert_true(a.rope.scaling == MM_ROPE_LINEAR && a.rope.factor == 2);
	a = good_config(
		CONFIG(",\"rope_scaling\":null,"
		       "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}"));
	assert_true(a.rope.scaling == MM_ROPE_UNSCALED && a.rope.theta == 5e5);
	a = good_config(
		QWEN2(",\"use_sliding_window\":false,\"rope_theta\":1000000.0,"
		      "\"layer_types\":[\"full_attention\"],\"partial_rotary_factor\":1.0"));
	assert_true(a.family == MM_FAMILY_QWEN2 && !a.tied && a.rope.theta == 1e6);
	a = good_config(OPT(",\"ffn_dim\":256"));
	assert_true(a.family == MM_FAMILY_OPT && a.tied && !a.post_norm && !a.no_final_norm);
	assert_true(a.ffn == 256 && a.embed_dim == 64 && a.kv_heads == 8 && a.norm_eps == 1e-5);
	/* Keys with values that change nothing. */
	a = good_config(
		CONFIG(",\"model_type\":\"llama\",\"quantization_config\":null,\"num_experts\":0,"
		       "\"logit_scale\":1.0,\"residual_multiplier\":1,\"alibi\":false,"
		       "\"sliding_window\":2048,\"attn_logit_softcapping\":null,\"head_dim\":null,"
		       "\"use_cache\":true,\"pretraining_tp\":1,\"torch_dtype\":\"float16\""));
	assert_true(a.family == MM_FAMILY_LLAMA && a.head_dim == 8);
	a = good_config(
		QWEN2(",\"sliding_window\":32,\"max_window_layers\":21,\"model_type\":null"));
	assert_true(a.family == MM_FAMILY_QWEN2);
	a = good_config(OPT(",\"ffn_dim\":256,\"num_key_value_heads\":8,\"head_dim\":8,"
			    "\"model_type\":\"opt\""));
	assert_true(a.kv_heads == 8 && a.head_dim == 8);
	a = good_config(OPT(",\"ffn_dim\":256,\"word_embed_proj_dim\":32,"
			    "\"do_layer_norm_before\":false,\"tie_word_embeddings\":false"));
	assert_true(a.embed_dim == 32 && a.post_norm && !a.tied);
}

static void test_config(void **state)
{
	static const char good[] = CONFIG(",\"rope_theta\":5e5,\"tie_word_embeddings\":true");
	struct mm_arch c;

	(void)state;
	write_file("config.json", good, strlen(good));
	assert_int_equal(mm_config_load(dir, &c, err), 0);
	assert_int_equal(c.kv_heads, 8);
	assert_int_equal(c.head_dim, 8);
	assert_int_equal(c.max_position, 2048);
	assert_true(c.tied && c.rope.theta == 5e5);
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad_configs); i++) {
		write_file("config.json", bad_configs[i].text, strlen(bad_configs[i].text));
		print_message("%s\n", bad_configs[i].name);
		assert_int_equal(mm_config_load(dir, &c, err), bad_configs[i].error);
		print_message("  %s\n", err);
		assert_non_null(strstr(err, bad_configs[i].want));
		assert_non_null(strstr(err, "config.json"));
	}
	unlink(path);
	assert_int_equal(mm_config_load(dir, &c, err), -ENOENT);
}

static const struct mm_requests_opts opts = { .seed = 3, .vocab = 100 };

#define LINE "{\"id\":\"a\",\"arrival_s\":1,\"prompt\":[1,2],\"max_tokens\":3}\n"
#define COUNTS                                              \
	"{\"id\":1,\"prompt_tokens\":4,\"max_tokens\":3}\n" \
	"{\"id\":2,\"prompt_tokens\":3,\"max_tokens\":2}\n"
#define HEAD "arrival_s,prompt_tokens,output_tokens\n"

static const struct {
	const char *text, *want;
	bool csv;
} bad_requests[] = {
	{ "", ":0: it is empty", false },
	{ LINE "{", ":2: not a JSON object", false },
	{ LINE "[]\n", ":2: not a JSON object", false },
	{ "{\"prompt\":[1],\"max_tokens\":1}", ":1: id must be", false },
	{ "{\"id\":\"\",\"prompt\":[1],\"max_tokens\":1}", "id must be", false },
	{ "{\"id\":null,\"prompt\":[1],\"max_tokens\":1}", "id must be", false },
	{ "{\"id\":true,\"prompt\":[1],\"max_tokens\":1}", "id must be", false },
	{ "{\"id\":1.5,\"prompt\":[1],\"max_tokens\":1}", "id must be", false },
	{ "{\"id\":[0],\"prompt\":[1],\"max_tokens\":1}", "id must be", false },
	{ "{\"id\":9223372036854775808,\"prompt\":[1],\"max_tokens\":1}", "too big", false },
	{ "{\"id\":1,\"prompt\":[],\"max_tokens\":1}", "prompt must be", false },
	{ "{\"id\":1,\"prompt\":[100],\"max_tokens\":1}", "prompt[0] is not a token", false },
	{ "{\"id\":1,\"prompt\":[1,-1],\"max_tokens\":1}", "prompt[1] is not a token", false },
	{ "{\"id\":1,\"prompt\":[1],\"max_tokens\":0}", "max_tokens must be", false },
	{ "{\"id\":1,\"prompt\":[1],\"max_tokens\":1e9}", "max_tokens must be", false },
	{ "{\"id\":1,\"prompt\":[1],\"max_tokens\":1,\"x\":1}", "unknown key \"x\"", false },
	{ "{\"id\":1,\"arrival_s\":-1,\"prompt\":[1],\"max_tokens\":1}", "arrival_s", false },
	{ "{\"id\":1,\"prompt_tokens\":0,\"max_tokens\":1}", "prompt_tokens must be", false },
	{ "{\"id\":1,\"prompt_tokens\":\"2\",\"max_tokens\":1}", "prompt_tokens must be", false },
	{ "{\"id\":1,\"prompt_tokens\":99999999,\"max_tokens\":1}", "prompt_tokens must be",
	  false },
	{ "{\"id\":1,\"prompt_tokens\":2,\"prompt\":[1,2],\"max_tokens\":1}", "give one of",
	  false },
	{ "{\"id\":1,\"max_tokens\":1}", "prompt must be", false },
	{ LINE "{\"id\":1,\"arrival_s\":0,\"prompt\":[1],\"max_tokens\":1}", "not in order",
	  false },
	{ "", ":0: it is empty", true },
	{ "a,b,c\n0,1,1\n", ":1: the first line must be", true },
	{ HEAD "0,1\n", ":2: prompt_tokens must be", true },
	{ HEAD "0,1,1,1\n", ":2: output_tokens must be", true },
	{ HEAD "0,1,1\nx,1,1\n", ":3: arrival_s must be", true },
	{ HEAD "nan,1,1\n", "arrival_s must be", true },
	{ HEAD "0,0,1\n", "prompt_tokens must be", true },
	{ HEAD "0,1,-1\n", "output_tokens must be", true },
	{ HEAD "0,99999999999999999999,1\n", "prompt_tokens must be", true },
	{ HEAD "1,1,1\n0,1,1\n", ":3: arrivals are not in order", true },
	{ HEAD "\n", ":2: arrival_s must be", true },
};

static void test_bad_requests(void **state)
{
	struct mm_requests q;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad_requests); i++) {
		write_file("r", bad_requests[i].text, strlen(bad_requests[i].text));
		assert_int_equal(mm_requests_read(path, bad_requests[i].csv, &opts, &q, err),
				 -EBADMSG);
		print_message("%s\n", err);
		assert_non_null(strstr(err, bad_requests[i].want));
	}
	write_file("r", LINE "\0\n", sizeof(LINE) + 1);
	assert_int_equal(mm_requests_read(path, false, &opts, &q, err), -EBADMSG);
	assert_non_null(strstr(err, ":2: a zero byte"));
	unlink(path);
	assert_int_equal(mm_requests_read(path, true, &opts, &q, err), -ENOENT);
}

static void test_good_requests(void **state)
{
	struct mm_requests_opts o = opts;
	struct mm_requests a, b;

	(void)state;
	write_file("r", HEAD, strlen(HEAD));
	assert_int_equal(mm_requests_read(path, true, &o, &a, err), 0);
	assert_int_equal(a.n, 0);
	write_file("r", LINE LINE, 2 * strlen(LINE));
	assert_non_null(freopen(path, "re", stdin));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(mm_requests_read(i ? "-" : path, false, &o, &a, err), 0);
		assert_int_equal(a.n, 2);
		assert_string_equal(a.all[1].id, "a");
		assert_int_equal(a.all[1].ids[1], 2);
		mm_requests_done(&a);
	}
	assert_int_equal(mm_requests_read("-", false, &o, &a, err), -EBADMSG);
	assert_string_equal(err, "standard input:0: it is empty");
	write_file("r", HEAD "0,9,4\n0.5,3,2\n2e0,7,1", strlen(HEAD "0,9,4\n0.5,3,2\n2e0,7,1"));
	assert_int_equal(mm_requests_read(path, true, &o, &a, err), 0);
	o.limit = 2;
	o.max_prompt = 4;
	o.max_output = 3;
	o.at_once = true;
	assert_int_equal(mm_requests_read(path, true, &o, &b, err), 0);
	assert_int_equal(a.n, 3);
	assert_int_equal(b.n, 2);
	assert_true(a.all[1].arrival_s == 0.5 && b.all[1].arrival_s == 0);
	assert_int_equal(b.all[0].n_prompt, 4);
	assert_int_equal(b.all[0].max_tokens, 3);
	/* The ids do not depend on cuts, or on other requests. */
	assert_memory_equal(a.all[0].ids, b.all[0].ids, 4 * sizeof(uint32_t));
	assert_memory_equal(a.all[1].ids, b.all[1].ids, 3 * sizeof(uint32_t));
	assert_true(memcmp(a.all[0].ids, a.all[1].ids, 3 * sizeof(uint32_t)) != 0);
	mm_requests_done(&a);
	/* JSONL with only the number of tokens has the same ids. */
	write_file("r", COUNTS, strlen(COUNTS));
	assert_int_equal(mm_requests_read(path, false, &opts, &a, err), 0);
	assert_int_equal(a.n, 2);
	assert_int_equal(a.all[0].n_prompt, 4);
	assert_int_equal(a.all[0].max_tokens, 3);
	assert_memory_equal(a.all[0].ids, b.all[0].ids, 4 * sizeof(uint32_t));
	assert_memory_equal(a.all[1].ids, b.all[1].ids, 3 * sizeof(uint32_t));
	mm_requests_done(&a);
	mm_requests_done(&b);
	unlink(path);
}

/* Return: the id of a request in the output, as a JSON reader gets it. */
static json_t *reported_id(const struct mm_request *q)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	json_t *line, *id;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	assert_int_equal(mm_report_request(out, q), 0);
	fclose(out);
	line = json_loads(text, 0, NULL);
	assert_non_null(line);
	id = json_incref(json_object_get(line, "id"));
	json_decref(line);
	return id;
}

/*
 * An id that is a number is written as that number, a string as that string; the id of a trace's
 * row is its number.
 */
static void test_ids(void **state)
{
	static const char *const ids[] = {
		"0",
		"\"0\"",
		"-1",
		"9007199254740993", /* no double has this value */
		"9223372036854775807",
		"-9223372036854775808",
		"\"007\"",
		"\"a \\\"b\\\" \\u00fc \\n\"",
		"\"null\"",
	};
	struct mm_requests q;
	char line[128];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(ids); i++) {
		json_t *want = json_loads(ids[i], JSON_DECODE_ANY, NULL), *got;

		snprintf(line, sizeof(line), "{\"id\":%s,\"prompt\":[1],\"max_tokens\":1}\n",
			 ids[i]);
		write_file("r", line, strlen(line));
		assert_int_equal(mm_requests_read(path, false, &opts, &q, err), 0);
		got = reported_id(&q.all[0]);
		print_message("%s\n", ids[i]);
		assert_true(want && json_equal(want, got));
		json_decref(want);
		json_decref(got);
		mm_requests_done(&q);
	}
	write_file("r", HEAD "0,1,1\n0,1,1\n", strlen(HEAD "0,1,1\n0,1,1\n"));
	assert_int_equal(mm_requests_read(path, true, &opts, &q, err), 0);
	for (size_t i = 0; i < q.n; i++) {
		json_t *got = reported_id(&q.all[i]);

		assert_true(json_is_integer(got));
		assert_int_equal(json_integer_value(got), i);
		json_decref(got);
	}
	mm_requests_done(&q);
	unlink(path);
}

static void test_goals(void **state)
{
	double times[] = { 12, 12.5, 13.5 };
	struct mm_request q = { .arrival_s = 10, .n_output = 3, .times = times };
	static const struct {
		struct mm_request_goals goals;
		bool late;
	} cases[] = {
		{ { 0, 0 }, false },    { { 2, 0 }, false },     { { 1.9, 0 }, true },
		{ { 0, 0.75 }, false }, { { 0, 0.74 }, true },   { { 2, 0.75 }, false },
		{ { 2, 0.74 }, true },  { { 1.9, 0.75 }, true },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		assert_true(mm_request_is_late(&q, &cases[i].goals) == cases[i].late);
	q.n_output = 1; /* has no time per further token */
	assert_false(mm_request_is_late(&q, &cases[4].goals));
	strcpy(q.error, "no memory");
	assert_true(mm_request_is_late(&q, &cases[1].goals));
	assert_false(mm_request_is_late(&q, &cases[0].goals));
}

static void test_chunk_sizes(void **state)
{
	static const struct {
		uint64_t page, block, want;
	} cases[] = {
		{ 4096, 4096, 4096 },        { 4096, 1000, 4096 },
		{ 4096, 2100, 24576 },       { 2097152, 20480, 2097152 },
		{ 65536, 1 << 20, 1 << 20 }, { 1 << 20, 786432, 3 << 20 },
		{ 4096, 4100, 65536 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		const uint64_t got = mm_kv_chunk_bytes(cases[i].page, cases[i].block);

		print_message("case %zu: %llu\n", i, (unsigned long long)got);
		assert_int_equal(got % cases[i].page, 0);
		assert_true(got >= cases[i].block);
		assert_int_equal(got, cases[i].want);
	}
}

/*
 * A fixed arena holds nearly as many blocks as fit into its bytes, and never fewer than with small
 * chunks.
 */
static void test_fixed_chunk_sizes(void **state)
{
	const uint64_t mib = 1 << 20;
	static const struct {
		uint64_t page_kib, block_kib, share_mib;
	} cases[] = {
		{ 16384, 12800, 8688 }, /* 13 billion parameters, with a third of a device */
		{ 16384, 12800, 8576 }, { 16384, 2048, 3360 }, { 16384, 21504, 5376 },
		{ 16384, 8192, 1216 },  { 2048, 12800, 8688 }, { 65536, 12800, 8688 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		const uint64_t page = cases[i].page_kib << 10, block = cases[i].block_kib << 10;
		const uint64_t share = cases[i].share_mib * mib;
		const uint64_t chunk = mm_kv_fixed_chunk_bytes(page, block, share);
		const uint64_t small = mm_kv_chunk_bytes(page, block);
		const uint64_t blocks = share / chunk * (chunk / block);

		print_message("case %zu: %llu\n", i, (unsigned long long)chunk);
		assert_int_equal(chunk % page, 0);
		assert_true(chunk / block <= MM_KV_FIXED_BLOCKS_MAX + page / block);
		assert_true(blocks >= share / small * (small / block));
		assert_true(100 * blocks >= 99 * (share / block));
	}
	/* A share that holds no chunk at all has no effect. */
	assert_int_equal(mm_kv_fixed_chunk_bytes(4096, 2100, 100), mm_kv_chunk_bytes(4096, 2100));
}

/* In both layouts blocks do not overlap and lie within their chunk, and the counts agree. */
static void test_arena_layouts(void **state)
{
	const uint64_t part = 1984, page = 4096;
	const uint32_t layers = 5;
	struct mm_kv_arena whole, apart;

	(void)state;
	assert_int_equal(mm_kv_arena_init(&whole, MM_KV_BLOCK_MAJOR, layers, part, page), 0);
	assert_int_equal(mm_kv_arena_init(&apart, MM_KV_SEPARATE, layers, part, page), 0);
	assert_int_equal(whole.ranges, 1);
	assert_int_equal(apart.ranges, 2 * layers);
	assert_true(whole.block_bytes >= 2 * layers * part && apart.block_bytes >= part);
	whole.va[0] = 1 << 20;
	for (uint32_t i = 0; i < apart.ranges; i++)
		apart.va[i] = (i + 1) << 20;
	for (uint32_t i = 0; i < 2 * layers; i++) {
		assert_int_equal(mm_kv_arena_part(&whole, i), (1 << 20) + i * part);
		assert_int_equal(mm_kv_arena_part(&apart, i), (i + 1) << 20);
	}
	for (const struct mm_kv_arena *a = &whole; a; a = a == &whole ? &apart : NULL) {
		assert_int_equal(a->chunk_bytes % page, 0);
		assert_int_equal(a->block_bytes % MM_KV_UNIT_BYTES, 0);
		for (uint32_t b = 1; b < 3 * a->blocks_per_chunk; b++) {
			const uint64_t at = mm_kv_arena_offset(a, b),
				       last = at + a->block_bytes - 1;

			assert_true(at >= mm_kv_arena_offset(a, b - 1) + a->block_bytes);
			assert_int_equal(at / a->chunk_bytes, b / a->blocks_per_chunk);
			assert_int_equal(last / a->chunk_bytes, b / a->blocks_per_chunk);
		}
	}
	mm_kv_arena_done(&whole);
	mm_kv_arena_done(&apart);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config),        cmocka_unit_test(test_good_configs),
		cmocka_unit_test(test_bad_requests),  cmocka_unit_test(test_good_requests),
		cmocka_unit_test(test_ids),           cmocka_unit_test(test_goals),
		cmocka_unit_test(test_chunk_sizes),   cmocka_unit_test(test_fixed_chunk_sizes),
		cmocka_unit_test(test_arena_layouts),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
