/* SPDX-License-Identifier: Apache-2.0 */
/* mkmodel: models in Hugging Face's layout, from a llama2.c checkpoint or from a seed. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/base.h"
#include "tools/mkmodel/options.h"
#include "tools/mkmodel/shapes.h"
#include "tools/mkmodel/sources.h"

static int fail(const char *err)
{
	fprintf(stderr, "mkmodel: %s\n", err);
	return EXIT_FAILURE;
}

static int write_model(const struct mk_source *source, const char *dir, const struct mk_options *o)
{
	char err[MK_ERROR_BYTES];

	return mk_write(source, dir, &o->format, err) ? fail(err) : EXIT_SUCCESS;
}

static int run_llama2c(const struct mk_options *o, const char *path, const char *dir)
{
	mm_cleanup(mk_llama2c_close) struct mk_llama2c ckpt = { 0 };
	char err[MK_ERROR_BYTES];
	struct mk_source source;

	if (mk_llama2c_open(path, &ckpt, err))
		return fail(err);
	source = (struct mk_source){ ckpt.arch, mk_llama2c_row, &ckpt };
	return write_model(&source, dir, o);
}

/* @base: what the options are applied to */
static int write_random(const struct mk_options *o, const struct mm_arch *base, const char *dir)
{
	struct mk_random r = { *base, o->seed };
	char err[MK_ERROR_BYTES];
	struct mk_source source;

	mk_options_apply(o, &r.arch);
	if (mk_arch_check(&r.arch, err))
		return mk_usage(err, "the model");
	source = (struct mk_source){ r.arch, mk_random_row, &r };
	return write_model(&source, dir, o);
}

static int run_random(const struct mk_options *o, const char *dir)
{
	const bool opt = o->given.family == MM_FAMILY_OPT;
	const struct mm_arch base = { .family = o->given.family,
				      .hidden = 256,
				      .ffn = (opt ? 4 : 3) * 256,
				      .layers = 8,
				      .heads = 8,
				      .vocab = 512,
				      .max_position = 2048,
				      .tied = opt };

	return write_random(o, &base, dir);
}

static void list(const struct mk_shapes *shapes)
{
	printf("%-20s %-6s %7s %7s %6s %9s %7s %8s\n", "model", "family", "layers", "hidden",
	       "heads", "kv heads", "ffn", "vocab");
	for (size_t i = 0; i < shapes->n; i++) {
		const struct mm_arch *a = &shapes->all[i].arch;

		printf("%-20s %-6s %7u %7u %6u %9u %7u %8u\n", shapes->all[i].name,
		       mm_family_name(a->family), a->layers, a->hidden, a->heads, a->kv_heads,
		       a->ffn, a->vocab);
	}
}

/* @dir NULL: list them */
static int run_shapes(const struct mk_options *o, const char *path, const char *dir)
{
	mm_cleanup(mk_shapes_done) struct mk_shapes shapes = { 0 };
	char err[MK_ERROR_BYTES];

	if (mk_shapes_read(path, &shapes, err))
		return fail(err);
	if (!dir) {
		list(&shapes);
		return EXIT_SUCCESS;
	}
	for (size_t i = 0; i < shapes.n; i++)
		if (!strcmp(shapes.all[i].name, o->model))
			return write_random(o, &shapes.all[i].arch, dir);
	return mk_usage("is not in the list of shapes", o->model);
}

int main(int argc, char **argv)
{
	struct mk_options o;
	const int r = mk_options_parse(argc, argv, &o);
	char **rest = argv + optind;
	const int n = argc - optind;

	if (r >= 0)
		return r;
	if (n < 1)
		return mk_usage("say llama2c, random or shapes", "command");
	if (!strcmp(rest[0], "llama2c")) {
		if (o.of_random)
			return mk_usage("only dtypes and --shards may be given", "llama2c");
		return n == 3 ? run_llama2c(&o, rest[1], rest[2])
			      : mk_usage("needs CHECKPOINT and OUT_DIR", "llama2c");
	}
	if (!strcmp(rest[0], "random")) {
		if (o.model)
			return mk_usage("is an option of shapes", "--model");
		return n == 2 ? run_random(&o, rest[1]) : mk_usage("needs OUT_DIR", "random");
	}
	if (strcmp(rest[0], "shapes"))
		return mk_usage("unknown command", rest[0]);
	if (o.family_given)
		return mk_usage("is the listed model's", "--family");
	if (n == 2 && !o.of_random)
		return run_shapes(&o, rest[1], NULL);
	return n == 3 && o.model ? run_shapes(&o, rest[1], rest[2])
				 : mk_usage("needs FILE, and OUT_DIR with --model NAME", "shapes");
}
