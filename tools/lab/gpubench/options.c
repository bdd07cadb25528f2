/* SPDX-License-Identifier: Apache-2.0 */
/* options - the command line of gpubench. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/driver.h"
#include "libclient/support/options.h"
#include "tools/lab/gpubench/gpubench.h"
#include "tools/lab/gpubench/measure.h"

static int pages_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_gpu_opts *o = into;
	int r = 0;

	o->n_pages = 0;
	for (char *word; !r && (word = strsep(&text, ","));) {
		uint64_t bytes;

		r = mm_opt_number(opt, word, &bytes, why);
		if (r)
			return r;
		if (bytes & (bytes - 1))
			r = snprintf(why, MM_OPT_ERROR_BYTES, "'%.40s' is not a power of two",
				     word);
		else if (o->n_pages == MM_GPU_PAGES_MAX)
			r = snprintf(why, MM_OPT_ERROR_BYTES, "more than %d", MM_GPU_PAGES_MAX);
		else if (o->n_pages && bytes <= o->pages[o->n_pages - 1])
			r = snprintf(why, MM_OPT_ERROR_BYTES, "%.40s: the list must ascend", word);
		else
			o->pages[o->n_pages++] = bytes;
	}
	return r ? -EINVAL : 0;
}

static const struct mm_opt gpubench_options[] = {
	MM_DRIVER_OPT(struct mm_gpu_opts, driver),
	{ .name = "device",
	  .value = "N",
	  .help = "ordinal that the driver knows the device by",
	  .type = MM_OPT_NUMBER,
	  MM_OPT_AT(struct mm_gpu_opts, device),
	  .max = 1023,
	  .preset = "0" },
	{ .name = "pages",
	  .value = "SIZE,...",
	  .help = "page sizes to compare: powers of two, ascending",
	  .type = MM_OPT_CALL,
	  .parse = pages_parse,
	  .each = MM_OPT_SIZE,
	  .min = 4096,
	  .max = UINT64_C(1) << 30,
	  .otherwise = "2M,16M,64M; on the software GPU 64K,256K" },
	{ .name = "repeat",
	  .value = "N",
	  .help = "measurements of each figure",
	  .type = MM_OPT_NUMBER,
	  MM_OPT_AT(struct mm_gpu_opts, repeat),
	  .min = 1,
	  .max = 10000,
	  .otherwise = "15, with --quick 5" },
	{ .name = "quick",
	  .help = "fewer cases, fewer measurements",
	  .type = MM_OPT_FLAG,
	  MM_OPT_AT(struct mm_gpu_opts, quick) },
	{ .name = "model",
	  .value = "DIR",
	  .help = "model that mmserve serves in the part overhead",
	  .type = MM_OPT_TEXT,
	  MM_OPT_AT(struct mm_gpu_opts, model),
	  .otherwise = "a random one" },
	{ .name = "kernels",
	  .value = "FILE",
	  .help = "module of kernels",
	  .type = MM_OPT_TEXT,
	  MM_OPT_AT(struct mm_gpu_opts, kernels),
	  .otherwise = "by driver, beside the programs" },
	{ .name = "out",
	  .value = "FILE",
	  .help = "append each result to FILE as it comes, a line of JSON each",
	  .type = MM_OPT_TEXT,
	  MM_OPT_AT(struct mm_gpu_opts, out_path) },
	{ .name = "patience",
	  .value = "S",
	  .help = "end a part that takes longer, and go on with the next",
	  .type = MM_OPT_NUMBER,
	  MM_OPT_AT(struct mm_gpu_opts, timeout_s),
	  .min = 1,
	  .max = 86400,
	  .unit = "s",
	  .preset = "150" },
	{ .name = "keep",
	  .value = "DIR",
	  .help = "leave logs in DIR",
	  .type = MM_OPT_TEXT,
	  MM_OPT_AT(struct mm_gpu_opts, keep_dir) },
	{ .name = "json",
	  .help = "one JSON object on standard output instead of the table",
	  .type = MM_OPT_FLAG,
	  MM_OPT_AT(struct mm_gpu_opts, json) },
	{ .name = "list",
	  .help = "print the parts, with what each measures, and run nothing",
	  .type = MM_OPT_FLAG,
	  MM_OPT_AT(struct mm_gpu_opts, list) },
	{ 0 },
};

static const struct mm_opt_command gpubench_command = {
	.name = "",
	.arguments = "[PART,...]",
	.summary = "measure what the mechanism costs on the device that is there",
	.sets = { { .opts = gpubench_options } },
	.arguments_max = 1,
};

static const struct mm_opt_program gpubench_program = {
	.name = "gpubench",
	.summary = "measure what the mechanism costs on the device that is there",
	.text = "Each figure has a reference that is measured in turn with it in the same run: "
		"printed are medians, p10 and p90, their ratio, and whether the goal is reached. "
		"Each PART (--list; default: all) runs in a process of its own; one that fails, "
		"dies or hangs costs no other. On the software GPU it is a rehearsal, which "
		"reaches and misses nothing. Documentation/gpubench.md says what each number "
		"means.",
	.commands = &gpubench_command,
	.n_commands = 1,
	.exits = "Exit status: 0 done, whether goals are reached or missed; 1 a part failed, or "
		 "the driver or the device is not there; 2 usage.",
	.man_section = "1",
	.see_also = "mmbench(1), mmsim(1), mmd(8)",
};

static int parts_parse(char *text, struct mm_gpu_opts *o)
{
	for (char *word; (word = strsep(&text, ","));) {
		struct mm_opt_near near = { .word = word, .bytes = strlen(word) };
		uint32_t i = 0;

		for (; mm_gpu_groups[i] && strcmp(mm_gpu_groups[i]->name, word); i++)
			mm_opt_near_offer(&near, mm_gpu_groups[i]->name);
		if (!mm_gpu_groups[i])
			return mm_opt_refuse(&gpubench_program, 0,
					     "there is no part '%.64s' (--list prints all)%s%s%s",
					     word, near.best ? "; did you mean " : "",
					     near.best ? near.best : "", near.best ? "?" : "");
		if (o->part[i])
			return mm_opt_refuse(&gpubench_program, 0, "part %s twice", word);
		o->part[i] = true;
	}
	return -1;
}

int mm_gpu_options(int argc, char **argv, struct mm_gpu_opts *ret_opts)
{
	struct mm_gpu_opts o = { 0 };
	char why[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;
	int r = mm_opt_main(&gpubench_program, argc, argv, &o, &line);

	if (r >= 0)
		return r;
	if (line.argc)
		r = parts_parse(line.argv[0], &o);
	for (uint32_t i = 0; !line.argc && mm_gpu_groups[i]; i++)
		o.part[i] = true;
	if (r < 0 && !o.driver && mm_driver_check_environment(why))
		r = mm_opt_refuse(&gpubench_program, 0, "%s", why);
	if (!o.driver)
		o.driver = getenv("MM_DRIVER");
	if (!o.driver || !*o.driver)
		o.driver = "software";
	*ret_opts = o;
	return r;
}

int mm_gpu_flush(int status)
{
	return mm_opt_flush(&gpubench_program, status);
}
