/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/driver.h"
#include "mmd/config/policies.h"
#include "tools/lab/common/device.h"

#define PAGE_SOFTWARE (256 << 10)
#define PAGE_OTHER    (2 << 20)
#define DURATION_S    12

MM_PRINTF(2, 3) static int serve_refuse(char *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, MM_OPT_ERROR_BYTES, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- one option ---- */

static int models_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_bench_opts *o = into;

	(void)opt;
	o->shape.tenants = 0;
	for (char *dir; (dir = strsep(&text, ","));) {
		if (!*dir)
			return serve_refuse(why, "an empty name");
		if (*dir == '-')
			return serve_refuse(why, "'%s' is a flag; give folders (or ./%s)", dir,
					    dir);
		if (o->shape.tenants == MM_BENCH_TENANTS_MAX)
			return serve_refuse(why, "more than %d", MM_BENCH_TENANTS_MAX);
		o->model[o->shape.tenants++] = dir;
	}
	return 0;
}

static int bench_policies_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_bench_opts *o = into;

	o->n_policies = 0;
	for (const char *word = text;; word += strcspn(word, ",") + 1) {
		const size_t n = strcspn(word, ",");
		uint64_t policy = 0;
		const int r = mm_opt_choice(opt, word, n, &policy, why);

		if (r)
			return r;
		for (uint32_t i = 0; i < o->n_policies; i++) {
			if (o->policy[i] == policy)
				return serve_refuse(why, "'%.*s' twice", (int)n, word);
		}
		o->policy[o->n_policies++] = (enum mm_policy)policy;
		if (!word[n])
			return 0;
	}
}

static int layout_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_bench_opts *o = into;
	uint64_t unused;
	const int r = mm_opt_choice(opt, text, strlen(text), &unused, why);

	if (!r)
		o->kv_layout = text;
	return r;
}

static int serve_slots_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_bench_opts *o = into;
	uint64_t unused;
	const int r = mm_opt_choice(opt, text, strlen(text), &unused, why);

	if (!r)
		o->slots = text;
	return r;
}

static int word_append(struct mm_bench_words *words, const char *word, char *why)
{
	if (words->n == MM_BENCH_EXTRA_MAX)
		return serve_refuse(why, "more than %d words for a program", MM_BENCH_EXTRA_MAX);
	words->word[words->n++] = (char *)(uintptr_t)word;
	return 0;
}

/* Takes further flags of mmd or mmserve, separated by spaces; the programs check them. */
static int words_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_bench_words *words = (void *)((char *)into + opt->at);
	int r = 0;

	for (char *word; !r && (word = strsep(&text, " "));)
		r = *word ? word_append(words, word, why) : 0;
	return r;
}

/* ---- the table ---- */

const struct mm_opt_choice mm_bench_policy_choices[] = { MM_POLICY_CHOICES, { NULL, 0, NULL } };

static const struct mm_opt_choice serve_slots_choices[] = {
	{ "auto", 0, NULL },
	{ "1", 1, NULL },
	{ "2", 2, NULL },
	{ NULL, 0, NULL },
};

static const struct mm_opt_choice layout_choices[] = {
	{ "block-major", 0, NULL },
	{ "separate", 0, NULL },
	{ NULL, 0, NULL },
};

#define AT(field)       MM_OPT_AT(struct mm_bench_opts, field)
#define CALL(p)         .type = MM_OPT_CALL, .parse = (p)
#define NUMBER(low, up) .type = MM_OPT_NUMBER, .min = (low), .max = (up)
#define REAL(low)       .type = MM_OPT_REAL, .least = (low), .most = 1e6

const struct mm_opt mm_bench_options[] = {
	{ "models", "DIR,...", "one tenant each; the same folder may stand several times",
	  CALL(models_parse), .required = true, .group = "Models and requests" },
	{ "trace", "FILE", "CSV: arrival_s,prompt_tokens,output_tokens[,tenant]", MM_OPT_TEXT,
	  AT(trace_path), .otherwise = "--synthetic" },
	/* Clears the path, so that of both the last one counts. */
	{ "synthetic", NULL, "bursts from the seed that alternate between tenants", MM_OPT_FLAG,
	  AT(trace_path), .clears = true },
	{ "seed", "N", "of prompts and of the synthetic trace", NUMBER(0, UINT64_MAX >> 1),
	  AT(shape.seed), .preset = "1" },
	{ "duration", "S", "arrivals later than this are left out; 0, only with --trace: none",
	  REAL(0), AT(shape.duration_s), .otherwise = "12, with --trace 0", .unit = "s" },
	{ "speed", "F", "arrivals come F times as fast", REAL(1e-3), AT(shape.speed),
	  .preset = "1" },
	{ "token-scale", "F", "token counts times F", REAL(1e-4), AT(shape.token_scale),
	  .preset = "1" },
	{ "policies", "NAME,...", "one run of each", CALL(bench_policies_parse),
	  .preset = "recompute,elastic,remap", .choices = mm_bench_policy_choices },
	{ "repeat", "N", "runs of each policy; the one of median throughput is reported",
	  NUMBER(1, MM_BENCH_REPEAT_MAX), AT(repeat), .preset = "1" },
	MM_DRIVER_OPT(struct mm_bench_opts, driver),
	{ "devices", "N",
	  "so many of its devices, from 0 on; tenants are dealt out to them in turn",
	  NUMBER(1, MM_BENCH_DEVICES_MAX), AT(devices), .preset = "1" },
	{ "pool", "SIZE", "memory that mmd manages of each device", MM_OPT_SIZE, AT(pool_bytes),
	  .otherwise = "the models and 60 %", .min = 1, .group = "Memory" },
	{ "page", "SIZE", "mmd's unit of memory", MM_OPT_SIZE, AT(page_bytes),
	  .otherwise = "256K, not on the software GPU 2M", .min = 1 },
	{ "kv-share", "SIZE", "a tenant's share under recompute", MM_OPT_SIZE, AT(kv_share_bytes),
	  .otherwise = "equal parts of what the weights leave", .min = 1 },
	{ "slots", "N", "of mmd: that cycling layers share", CALL(serve_slots_parse),
	  .preset = "auto", .choices = serve_slots_choices, .group = "mmd and mmserve" },
	{ "host-store-max", "SIZE", "of mmd: host memory for weights", MM_OPT_TEXT,
	  AT(host_store_max), .otherwise = "no limit" },
	{ "block-tokens", "N", "of mmserve: tokens of a block of KV", NUMBER(1, 1024),
	  AT(block_tokens), .preset = "16" },
	{ "max-batch", "N", "of mmserve: sequences that run at once", NUMBER(1, 4096),
	  AT(batch_max), .preset = "32" },
	{ "max-batched-tokens", "N", "of mmserve: tokens of one step", NUMBER(1, 65536),
	  AT(batched_tokens_max), .preset = "128" },
	{ "kv-layout", "NAME", "of mmserve: where keys and values lie", CALL(layout_parse),
	  .choices = layout_choices, .otherwise = "as mmserve's" },
	{ "fused", NULL, "of mmserve: q, k and v as one matrix, gate and up as one", MM_OPT_FLAG,
	  AT(fused) },
	{ "mmd", "WORDS", "further options of mmd, separated by spaces", CALL(words_parse), AT(mmd),
	  .dashed = true },
	{ "mmserve", "WORDS", "further options of every mmserve, separated by spaces",
	  CALL(words_parse), AT(mmserve), .dashed = true },
	{ "verify", NULL, "checksum every layer's bytes where they are used", MM_OPT_FLAG,
	  AT(verify), .group = "Output" },
	{ "keep", "DIR", "leave logs, traces and outputs in DIR", MM_OPT_TEXT, AT(keep_dir) },
	{ "json", NULL, "the last line of stdout is one JSON object", MM_OPT_FLAG, AT(json) },
	{ 0 },
};

/* ---- all of them ---- */

/* Puts words before those that are there; NULL ends them. */
static int words_begin(struct mm_bench_words *words, const char *const *first, char *why)
{
	const struct mm_bench_words more = *words;
	int r = 0;

	words->n = 0;
	for (; *first && !r; first++)
		r = word_append(words, *first, why);
	for (uint32_t i = 0; i < more.n && !r; i++)
		r = word_append(words, more.word[i], why);
	return r;
}

/* Hands on what has an option here, too, to the program whose option it is. */
static int settle_words(struct mm_bench_opts *o, char *why)
{
	const char *const mmd[] = { "--host-store-max", o->host_store_max, NULL };
	const char *const fused[] = { "--fused", NULL };
	const char *const layout[] = { "--kv-layout", o->kv_layout, NULL };
	int r = 0;

	if (o->host_store_max)
		r = words_begin(&o->mmd, mmd, why);
	if (o->fused && !r)
		r = words_begin(&o->mmserve, fused, why);
	if (o->kv_layout && !r)
		r = words_begin(&o->mmserve, layout, why);
	return r;
}

static int settle_driver(struct mm_bench_opts *o, char *why)
{
	if (!o->driver && mm_driver_check_environment(why))
		return -EINVAL;
	if (!o->driver)
		o->driver = getenv("MM_DRIVER");
	if (!o->driver || !*o->driver)
		o->driver = "software";
	if (!o->page_bytes)
		o->page_bytes = mm_device_is_software(o->driver) ? PAGE_SOFTWARE : PAGE_OTHER;
	return 0;
}

int mm_bench_settle(struct mm_bench_opts *o, char *why)
{
	int r = settle_driver(o, why);

	if (!r)
		r = settle_words(o, why);
	if (r)
		return r;
	if (o->devices > o->shape.tenants)
		return serve_refuse(why, "--devices: %u for %u tenants", o->devices,
				    o->shape.tenants);
	if (o->pool_bytes && o->pool_bytes < o->page_bytes)
		return serve_refuse(why, "--pool is smaller than one page");
	if (o->shape.duration_s < 0)
		o->shape.duration_s = o->trace_path ? 0 : DURATION_S;
	if (!o->trace_path && o->shape.duration_s <= 0)
		return serve_refuse(why, "--duration 0 needs --trace");
	return 0;
}
