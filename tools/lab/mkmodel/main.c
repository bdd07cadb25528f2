/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mkmodel - writes models in Hugging Face's layout, from a llama2.c checkpoint, from a seed, or
 * without weights.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/mkmodel/config.h"
#include "tools/lab/mkmodel/options.h"
#include "tools/lab/mkmodel/shapes.h"
#include "tools/lab/mkmodel/sources.h"
#include "libclient/model/shapes.h"

static int mkmodel_fail(const char *err)
{
	fprintf(stderr, "mkmodel: %s\n", err);
	return EXIT_FAILURE;
}

static int write_model(const struct mk_source *source, const char *dir, const struct mk_options *o)
{
	char err[MK_ERROR_BYTES];

	return mk_write(source, dir, &o->format, err) ? mkmodel_fail(err) : EXIT_SUCCESS;
}

static int run_llama2c(const struct mk_options *o, const char *path, const char *dir)
{
	mm_cleanup(mk_llama2c_close) struct mk_llama2c ckpt = { 0 };
	char err[MK_ERROR_BYTES];
	struct mk_source source;

	if (mk_llama2c_open(path, &ckpt, err))
		return mkmodel_fail(err);
	source = (struct mk_source){ ckpt.arch, mk_llama2c_row, &ckpt };
	return write_model(&source, dir, o);
}

/* Writes a model. @base: sizes that the options are applied to; @row: if NULL, files are sparse. */
static int write_shape(const struct mk_options *o, const struct mm_arch *base, mk_row_fn *row,
		       const char *dir)
{
	struct mk_random r = { *base, o->seed };
	char err[MK_ERROR_BYTES];
	struct mk_source source;

	mk_options_apply(o, &r.arch);
	if (mk_arch_check(&r.arch, err))
		return mk_usage(err, "the model");
	source = (struct mk_source){ r.arch, row, &r };
	return write_model(&source, dir, o);
}

static struct mm_arch small_arch(enum mm_family family)
{
	const bool opt = family == MM_FAMILY_OPT;

	return (struct mm_arch){ .family = family,
				 .hidden = 256,
				 .ffn = (opt ? 4 : 3) * 256,
				 .layers = 8,
				 .heads = 8,
				 .vocab = 512,
				 .max_position = 2048,
				 .tied = opt };
}

static int unknown_shape(const char *name)
{
	char known[MM_SHAPE_NAMES_BYTES];

	mm_shape_names(known, sizeof(known));
	fprintf(stderr, "mkmodel: --shape: '%s' is none of: %s\n", name, known);
	return MK_EXIT_USAGE;
}

/* Writes a model of the shape that the options give. @row: if NULL, files are sparse. */
static int run_shaped(const struct mk_options *o, mk_row_fn *row, const char *dir)
{
	const struct mm_shape *shape = o->shape ? mm_shape_find(o->shape) : NULL;
	struct mm_arch base;

	if (o->shape && !shape)
		return unknown_shape(o->shape);
	if (o->shape && o->family_given)
		return mk_usage("is the model's own", "--family");
	base = shape ? shape->arch : small_arch(o->given.family);
	return write_shape(o, &base, row, dir);
}

static int run_sparse(const struct mk_options *options, const char *dir)
{
	struct mk_options o = *options;

	if (!o.dtype_given)
		o.format.dtype = MM_DTYPE_F16;
	if (!o.vector_dtype_given)
		o.format.vector_dtype = o.format.dtype;
	return run_shaped(&o, NULL, dir);
}

static void shapes_print(const struct mk_shapes *shapes)
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

/* Writes the models of a list of shapes into @dir; NULL: prints the list. */
static int run_shapes(const struct mk_options *o, const char *path, const char *dir)
{
	mm_cleanup(mk_shapes_done) struct mk_shapes shapes = { 0 };
	char err[MK_ERROR_BYTES];

	if (mk_shapes_read(path, &shapes, err))
		return mkmodel_fail(err);
	if (!dir) {
		shapes_print(&shapes);
		return EXIT_SUCCESS;
	}
	for (size_t i = 0; i < shapes.n; i++)
		if (!strcmp(shapes.all[i].name, o->model))
			return write_shape(o, &shapes.all[i].arch, mk_random_row, dir);
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
		return mk_usage("say llama2c, random, shapes or sparse", "command");
	if (o.shape && strcmp(rest[0], "sparse") && strcmp(rest[0], "random"))
		return mk_usage("is an option of random and sparse", "--shape");
	if (!strcmp(rest[0], "llama2c")) {
		if (o.of_random)
			return mk_usage("only dtypes and --shards may be given", "llama2c");
		return n == 3 ? run_llama2c(&o, rest[1], rest[2])
			      : mk_usage("needs CHECKPOINT and OUT_DIR", "llama2c");
	}
	if (!strcmp(rest[0], "random")) {
		if (o.model)
			return mk_usage("is an option of shapes", "--model");
		return n == 2 ? run_shaped(&o, mk_random_row, rest[1])
			      : mk_usage("needs OUT_DIR", "random");
	}
	if (!strcmp(rest[0], "sparse")) {
		if (o.model)
			return mk_usage("is an option of shapes", "--model");
		return n == 2 ? run_sparse(&o, rest[1]) : mk_usage("needs OUT_DIR", "sparse");
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
