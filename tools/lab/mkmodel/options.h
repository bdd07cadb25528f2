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

#include "tools/lab/mkmodel/hf.h"

#define MK_EXIT_USAGE 2

struct mk_options {
	struct mm_arch given; /* a field that was not given is 0 */
	bool family_given, tied, untied;
	bool of_random; /* an option was given that does not apply to a checkpoint */
	bool dtype_given, vector_dtype_given;
	struct mk_format format;
	uint64_t seed;
	const char *model;
	const char *shape;
};

/* Parses the options. Return: -1 go on, with the first argument at optind; else the exit status. */
int mk_options_parse(int argc, char **argv, struct mk_options *ret_options);

/* Prints on stderr what is wrong with which argument. Return: the exit status. */
int mk_usage(const char *what, const char *which);

/* Applies the given sizes to @base, in which a size that follows from others may be 0. */
void mk_options_apply(const struct mk_options *o, struct mm_arch *base);
