/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - mkmodel's command line
 *
 * Concept:    Sizes that the command line gives are kept apart from the model that they are applied
 *             to: the defaults, or a model of a list of shapes. Where only one size is given, the
 *             others follow in the proportions of that model.
 * Ownership:  a plain value; strings point into argv.
 * Threading:  one thread.
 */
#pragma once

#include "libclient/support/options.h"
#include "tools/lab/mkmodel/hf.h"

enum mk_command { MK_LLAMA2C, MK_RANDOM, MK_SHAPES, MK_SPARSE };

struct mk_options {
	struct mm_arch given; /* a field that was not given is 0; the family is not in it */
	uint32_t family;      /* 1 + enum mm_family; 0: not given */
	bool tied, untied;
	struct mk_format format;
	uint64_t seed;
	const char *model; /* in the list of shapes */
	const char *shape; /* of mm_shape_find() */
};

extern const struct mm_opt_program mk_program; /* commands are indexed by enum mk_command */

/**
 * mk_options_parse() - parse the command line
 * @argc:        of main
 * @argv:        of main
 * @ret_options: written only if the program is to run
 * @ret_line:    likewise
 *
 * Return: -1 the program is to run; else its exit status.
 */
int mk_options_parse(int argc, char **argv, struct mk_options *ret_options,
		     struct mm_opt_line *ret_line);

/* Applies the given sizes to @base, in which a size that follows from others may be 0. */
void mk_options_apply(const struct mk_options *o, struct mm_arch *base);
