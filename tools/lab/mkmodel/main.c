/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mkmodel - writes models in Hugging Face's layout, from a llama2.c checkpoint, from a seed, or
 * without weights.
 */
#include <stdio.h>
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
	return MM_EXIT_FAILED;
}

static int write_model(const struct mk_source *source, const char *dir, const struct mk_options *o)
{
	char err[MK_ERROR_BYTES];

	return mk_write(source, dir, &o->format, err) ? mkmodel_fail(err) : MM_EXIT_DONE;
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

/*
 * Writes a model to the last argument. @base: sizes that the options are applied to; @row: if NULL,
 * files are sparse.
 */
static int write_shape(const struct mk_options *o, const struct mm_opt_line *line,
		       const struct mm_arch *base, mk_row_fn *row)
{
	struct mk_random r = { *base, o->seed };
	char err[MK_ERROR_BYTES];
	struct mk_source source;

	mk_options_apply(o, &r.arch);
	if (mk_arch_check(&r.arch, err))
		return mm_opt_refuse(&mk_program, line->command, "the model: %s", err);
	source = (struct mk_source){ r.arch, row, &r };
	return write_model(&source, line->argv[line->argc - 1], o);
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

/* Writes a model of the shape that the options give. @row: if NULL, files are sparse. */
static int run_shaped(const struct mk_options *o, const struct mm_opt_line *line, mk_row_fn *row)
{
	const enum mm_family family = o->family ? (enum mm_family)(o->family - 1) : MM_FAMILY_LLAMA;
	const struct mm_arch base = o->shape ? mm_shape_find(o->shape)->arch : small_arch(family);

	return write_shape(o, line, &base, row);
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

/* Writes a model of a list of shapes, or prints the list. */
static int run_shapes(const struct mk_options *o, const struct mm_opt_line *line)
{
	mm_cleanup(mk_shapes_done) struct mk_shapes shapes = { 0 };
	struct mm_opt_near near = { .word = o->model };
	char err[MK_ERROR_BYTES];

	if (mk_shapes_read(line->argv[0], &shapes, err))
		return mkmodel_fail(err);
	if (!o->model) {
		shapes_print(&shapes);
		return mm_opt_flush(&mk_program, MM_EXIT_DONE);
	}
	near.bytes = strlen(o->model);
	for (size_t i = 0; i < shapes.n; i++) {
		if (!strcmp(shapes.all[i].name, o->model))
			return write_shape(o, line, &shapes.all[i].arch, mk_random_row);
		mm_opt_near_offer(&near, shapes.all[i].name);
	}
	return mm_opt_refuse(&mk_program, line->command,
			     "--model: '%.64s' is not in the list of shapes%s%s", o->model,
			     near.best ? "; did you mean " : "", near.best ? near.best : "");
}

int main(int argc, char **argv)
{
	struct mm_opt_line line;
	struct mk_options o;
	const int status = mk_options_parse(argc, argv, &o, &line);

	if (status >= 0)
		return status;
	switch ((enum mk_command)line.command) {
	case MK_LLAMA2C:
		return run_llama2c(&o, line.argv[0], line.argv[1]);
	case MK_RANDOM:
		return run_shaped(&o, &line, mk_random_row);
	case MK_SPARSE:
		return run_shaped(&o, &line, NULL);
	case MK_SHAPES:
		return run_shapes(&o, &line);
	}
	return MM_EXIT_USAGE;
}
