/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/steps_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/model/shapes.h"
#include "tools/lab/workload/options.h"

static int alpha_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_bench_steps_opts *o = into;

	o->n_alpha = 0;
	if (!strcmp(text, opt->choices[0].name))
		return 0;
	for (char *word; (word = strsep(&text, ","));) {
		uint64_t alpha;
		const int r = mm_opt_number(opt, word, &alpha, why);

		if (r)
			return r;
		if (o->n_alpha && alpha <= o->alpha[o->n_alpha - 1]) {
			snprintf(why, MM_OPT_ERROR_BYTES, "'%.64s': the list must ascend", word);
			return -EINVAL;
		}
		o->alpha[o->n_alpha++] = (uint32_t)alpha;
	}
	return 0;
}

static int cold_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_bench_steps_opts *o = into;

	o->n_cold = 0;
	for (char *word; (word = strsep(&text, ","));) {
		uint64_t cold;
		const int r = mm_opt_number(opt, word, &cold, why);

		if (r)
			return r;
		if (o->n_cold == MM_BENCH_STEPS_COLD_MAX ||
		    (o->n_cold && cold <= o->cold[o->n_cold - 1])) {
			snprintf(why, MM_OPT_ERROR_BYTES,
				 "'%.64s': the list must ascend, with %u numbers at most", word,
				 MM_BENCH_STEPS_COLD_MAX);
			return -EINVAL;
		}
		o->cold[o->n_cold++] = (uint32_t)cold;
	}
	return 0;
}

static int steps_slots_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_bench_steps_opts *o = into;

	memset(o->beta, 0, sizeof(o->beta));
	for (char *word; (word = strsep(&text, ","));) {
		uint64_t beta;
		const int r = mm_opt_number(opt, word, &beta, why);

		if (r)
			return r;
		o->beta[beta] = true;
	}
	return 0;
}

static const struct mm_opt_choice alpha_choices[] = {
	{ "all", 0, NULL },
	{ NULL, 0, NULL },
};

#define AT(field)       MM_OPT_AT(struct mm_bench_steps_opts, field)
#define CALL(p)         .type = MM_OPT_CALL, .parse = (p)
#define NUMBER(low, up) .type = MM_OPT_NUMBER, .min = (low), .max = (up)

const struct mm_opt mm_bench_steps_options[] = {
	{ "profile", "NAME|FILE", "the device, and with ,KEY=VALUE behind it other numbers of it",
	  MM_OPT_TEXT, AT(profile), .choices = mm_wl_profile_choices, .required = true },
	{ "shape", "NAME", "a model that is built in", CALL(mm_shape_parse), AT(shape),
	  .choices = mm_shape_choices },
	{ "model", "DIR", "instead: a model's folder, of fp16 weights", MM_OPT_TEXT, AT(model) },
	{ "batch", "N", "sequences, each decodes one token a step", NUMBER(1, 1024), AT(batch),
	  .preset = "16" },
	{ "context", "N", "tokens of each sequence", NUMBER(1, 1 << 20), AT(context),
	  .preset = "512" },
	{ "alpha", "N,...",
	  "layers away, ascending, or as many as are possible, one after the other",
	  CALL(alpha_parse), .max = MM_LAYERS_MAX, .preset = "all", .choices = alpha_choices },
	{ "slots", "N,...", "that cycling layers share, 1 or 2", CALL(steps_slots_parse), .min = 1,
	  .max = 2, .preset = "1,2" },
	{ "cold", "N,...",
	  "KV blocks in host memory that each step streams, ascending, one number after the other",
	  CALL(cold_parse), .max = MM_COLD_MAX, .otherwise = "none" },
	{ "steps", "N", "measured under each plan", NUMBER(2, 1000), AT(steps), .preset = "12" },
	{ "warmup", "N", "steps before them", NUMBER(1, 1000), AT(warmup), .preset = "6" },
	{ "dilation", "K", "a second of the device takes K of the host", MM_OPT_REAL, AT(dilation),
	  .least = 1, .most = 1000, .preset = "4" },
	{ "page", "SIZE", "mmd's unit of memory", MM_OPT_SIZE, AT(page_bytes), .min = 1,
	  .otherwise = "mmd's own" },
	{ "json", NULL, "print one JSON object instead of the table", MM_OPT_FLAG, AT(json) },
	{ 0 },
};

int mm_bench_steps_settle(const struct mm_bench_steps_opts *o, char *why)
{
	if (!o->model != !o->shape)
		return 0;
	snprintf(why, MM_OPT_ERROR_BYTES, "give --shape or --model");
	return -EINVAL;
}
