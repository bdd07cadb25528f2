/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens - generates tokens with llama.cpp, on mmd's memory or on its own
 *
 * tokens make FILE LAYERS SEED       writes a small random Llama with blocks of Q8_0
 * tokens plain FILE STEPS            llama.cpp alone
 * tokens mmd FILE STEPS [ACT]        the same on mmd ($MMD_SOCKET)
 *
 * Three sequences of unequal length are read in parts and then go on greedily, STEPS tokens each.
 * Standard output has a line of ids for each sequence; with mmd a last line in JSON with what was
 * counted. ACT: `void` has a second thread abandon steps of its own, which makes those of the
 * generation void; `other=FILE` has llama.cpp load another file than mmd.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf.h"
#include "libclient/ggml/mm-ggml.h"

enum { EMBD = 128, HEADS = 4, HEADS_KV = 2, FF = 256, VOCAB = 512, CONTEXT = 512 };
enum { SEQS = 3, UBATCH = 8, BATCH = 64 };

static const int prompt_len[SEQS] = { 5, 23, 11 };

/* ---- a model ---- */

static uint64_t random_state;

static float random_weight(float scale)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return scale * ((float)(random_state >> 40) / (float)(1 << 23) - 1.0f);
}

static void tensor_add(struct ggml_context *ctx, struct gguf_context *gguf, const char *name,
		       int64_t columns, int64_t rows)
{
	enum ggml_type type = rows > 1 ? GGML_TYPE_Q8_0 : GGML_TYPE_F32;
	struct ggml_tensor *t = rows > 1 ? ggml_new_tensor_2d(ctx, type, columns, rows)
					 : ggml_new_tensor_1d(ctx, type, columns);
	float *values = malloc((size_t)(columns * rows) * sizeof(*values));

	if (!values)
		err(1, NULL);
	for (int64_t i = 0; i < columns * rows; i++)
		values[i] = rows > 1 ? random_weight(0.15f) : 1.0f + random_weight(0.1f);
	if (rows > 1)
		ggml_quantize_chunk(type, values, t->data, 0, rows, columns, NULL);
	else
		memcpy(t->data, values, ggml_nbytes(t));
	free(values);
	ggml_set_name(t, name);
	gguf_add_tensor(gguf, t);
}

static void layer_add(struct ggml_context *ctx, struct gguf_context *gguf, int layer)
{
	static const struct {
		const char *name;
		int columns, rows;
	} tensors[] = {
		{ "attn_norm", EMBD, 1 },
		{ "attn_q", EMBD, EMBD },
		{ "attn_k", EMBD, EMBD / HEADS * HEADS_KV },
		{ "attn_v", EMBD, EMBD / HEADS * HEADS_KV },
		{ "attn_output", EMBD, EMBD },
		{ "ffn_norm", EMBD, 1 },
		{ "ffn_gate", EMBD, FF },
		{ "ffn_up", EMBD, FF },
		{ "ffn_down", FF, EMBD },
	};
	char name[64];

	for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
		snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, tensors[i].name);
		tensor_add(ctx, gguf, name, tensors[i].columns, tensors[i].rows);
	}
}

static void model_make(const char *path, int layers, uint64_t seed)
{
	struct ggml_init_params params = { .mem_size = (size_t)(layers + 4) << 21 };
	struct ggml_context *ctx = ggml_init(params);
	struct gguf_context *gguf = gguf_init_empty();

	if (!ctx || !gguf)
		errx(1, "no memory for a model");
	random_state = seed;
	gguf_set_val_str(gguf, "general.architecture", "llama");
	gguf_set_val_u32(gguf, "llama.context_length", CONTEXT);
	gguf_set_val_u32(gguf, "llama.embedding_length", EMBD);
	gguf_set_val_u32(gguf, "llama.block_count", (uint32_t)layers);
	gguf_set_val_u32(gguf, "llama.feed_forward_length", FF);
	gguf_set_val_u32(gguf, "llama.attention.head_count", HEADS);
	gguf_set_val_u32(gguf, "llama.attention.head_count_kv", HEADS_KV);
	gguf_set_val_f32(gguf, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	gguf_set_val_u32(gguf, "llama.rope.dimension_count", EMBD / HEADS);
	gguf_set_val_u32(gguf, "llama.vocab_size", VOCAB);
	gguf_set_val_str(gguf, "tokenizer.ggml.model", "no_vocab");
	tensor_add(ctx, gguf, "token_embd.weight", EMBD, VOCAB);
	tensor_add(ctx, gguf, "output_norm.weight", EMBD, 1);
	tensor_add(ctx, gguf, "output.weight", EMBD, VOCAB);
	for (int l = 0; l < layers; l++)
		layer_add(ctx, gguf, l);
	if (!gguf_write_to_file(gguf, path, false))
		errx(1, "%s: cannot be written", path);
	gguf_free(gguf);
	ggml_free(ctx);
}

/* ---- generation ---- */

struct engine {
	struct mm_client *client;
	struct mm_ggml *ggml;
	struct mm_ggml_run *run;
	struct llama_model *model;
	struct llama_context *context;
	bool breaks, ending;
	pthread_t breaker;
};

static void *steps_break(void *arg)
{
	struct engine *e = arg;
	useconds_t pause =
		20000; /* longer each time: however slow the machine, some steps succeed */

	while (!__atomic_load_n(&e->ending, __ATOMIC_RELAXED)) {
		if (mm_step_begin(e->client) == 0)
			mm_step_abandon(e->client, NULL);
		usleep(pause);
		pause += pause / 8;
	}
	return NULL;
}

static void batch_decode(struct engine *e, struct llama_batch batch)
{
	int r = e->run ? mm_ggml_decode(e->run, e->context, batch)
		       : llama_decode(e->context, batch);

	if (r)
		errx(1, "decode: %d: %s", r, e->ggml ? mm_ggml_error(e->ggml) : "");
}

static void batch_add(struct llama_batch *b, llama_token token, llama_pos pos, llama_seq_id seq,
		      bool logits)
{
	int32_t i = b->n_tokens++;

	b->token[i] = token;
	b->pos[i] = pos;
	b->n_seq_id[i] = 1;
	b->seq_id[i][0] = seq;
	b->logits[i] = logits;
}

static llama_token token_best(const float *logits)
{
	llama_token best = 0;

	for (llama_token t = 1; t < VOCAB; t++)
		if (logits[t] > logits[best])
			best = t;
	return best;
}

static void tokens_generate(struct engine *e, int steps)
{
	struct llama_batch batch = llama_batch_init(BATCH, 0, SEQS);
	llama_token *ids = calloc((size_t)(SEQS * (steps + 1)), sizeof(*ids));
	int last[SEQS];

	if (!ids)
		err(1, NULL);
	for (int s = 0; s < SEQS; s++) {
		for (int i = 0; i < prompt_len[s]; i++)
			batch_add(&batch, (i * 7 + s * 31 + 1) % VOCAB, i, s,
				  i + 1 == prompt_len[s]);
		last[s] = batch.n_tokens - 1;
	}
	for (int step = 0; step <= steps; step++) {
		batch_decode(e, batch);
		for (int s = 0; s < SEQS; s++)
			ids[s * (steps + 1) + step] =
				token_best(llama_get_logits_ith(e->context, last[s]));
		batch.n_tokens = 0;
		for (int s = 0; s < SEQS; s++) {
			batch_add(&batch, ids[s * (steps + 1) + step], prompt_len[s] + step, s,
				  true);
			last[s] = s;
		}
	}
	for (int s = 0; s < SEQS; s++)
		for (int i = 0; i <= steps; i++)
			printf("%d%c", ids[s * (steps + 1) + i], i == steps ? '\n' : ' ');
	free(ids);
	llama_batch_free(batch);
}

/* ---- with mmd ---- */

static void ggml_open(struct engine *e, const char *path, struct llama_model_params *params)
{
	char why[512] = "";
	struct mm_client_opts opts = { .size = sizeof(opts), .name = "llama" };

	if (mm_client_open(&opts, &e->client, why, sizeof(why)))
		errx(3, "%s", why);
	if (mm_ggml_open(e->client, path, &e->ggml, why, sizeof(why)))
		errx(1, "%s", why);
	mm_ggml_model_params(e->ggml, params);
}

static void run_open(struct engine *e, struct llama_context_params *params, const char *act)
{
	if (mm_ggml_loaded(e->ggml) || mm_ggml_run_open(e->ggml, params, &e->run))
		errx(1, "%s", mm_ggml_error(e->ggml));
	if (!act || strcmp(act, "void") != 0)
		return;
	e->breaks = true;
	errno = pthread_create(&e->breaker, NULL, steps_break, e);
	if (errno)
		err(1, "pthread_create");
}

static void stats_print(struct engine *e)
{
	struct mm_ggml_stats stats = { .size = sizeof(stats) };
	struct mm_client_info info = { .size = sizeof(info) };

	if (mm_ggml_run_stats(e->run, &stats) || mm_client_info(e->client, &info))
		errx(1, "no statistics");
	printf("{\"steps\":%" PRIu64 ",\"gated\":%" PRIu64 ",\"voided\":%" PRIu64
	       ",\"relearnt\":%" PRIu64 ",\"plan_changes\":%" PRIu64 "}\n",
	       stats.steps, stats.gated, stats.voided, stats.relearnt, info.plan_changes);
}

static void log_nothing(enum ggml_log_level level, const char *text, void *user)
{
	(void)user;
	if (level == GGML_LOG_LEVEL_ERROR)
		fputs(text, stderr);
}

static int engine_run(const char *path, int steps, bool mmd, const char *act)
{
	struct llama_model_params model_params = llama_model_default_params();
	struct llama_context_params params = llama_context_default_params();
	const char *other = act && !strncmp(act, "other=", 6) ? act + 6 : NULL;
	struct engine e = { 0 };

	params.n_ctx = CONTEXT * SEQS;
	params.n_batch = BATCH;
	params.n_ubatch = UBATCH;
	params.n_seq_max = SEQS;
	params.n_threads = params.n_threads_batch = 1;
	if (mmd)
		ggml_open(&e, path, &model_params);
	e.model = llama_model_load_from_file(other ? other : path, model_params);
	if (!e.model)
		errx(1, "%s: %s", path, e.ggml ? mm_ggml_error(e.ggml) : "not loaded");
	if (mmd)
		run_open(&e, &params, act);
	e.context = llama_init_from_model(e.model, params);
	if (!e.context)
		errx(1, "no context");
	tokens_generate(&e, steps);
	if (e.breaks) {
		__atomic_store_n(&e.ending, true, __ATOMIC_RELAXED);
		pthread_join(e.breaker, NULL);
	}
	if (mmd) {
		mm_ggml_idle(e.run);
		stats_print(&e);
	}
	llama_free(e.context);
	llama_model_free(e.model);
	mm_ggml_run_close(e.run);
	mm_ggml_close(e.ggml);
	mm_client_close(e.client);
	return 0;
}

int main(int argc, char *argv[])
{
	llama_log_set(log_nothing, NULL);
	if (argc == 5 && !strcmp(argv[1], "make")) {
		model_make(argv[2], atoi(argv[3]), strtoull(argv[4], NULL, 10));
		return 0;
	}
	if (argc >= 4 && (!strcmp(argv[1], "plain") || !strcmp(argv[1], "mmd")))
		return engine_run(argv[2], atoi(argv[3]), !strcmp(argv[1], "mmd"),
				  argc > 4 ? argv[4] : NULL);
	errx(2, "usage: tokens make FILE LAYERS SEED | plain FILE STEPS | mmd FILE STEPS [ACT]");
}
