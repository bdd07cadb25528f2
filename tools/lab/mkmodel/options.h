/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - mkmodel's command line
 *
 * Concept:    what was given is kept apart from what it is applied to: the defaults, or a model of
 *             a list of shapes, whose proportions stay where only one size is given.
 * Ownership:  a plain value; texts are argv's.
 */
#pragma once

#include "tools/lab/mkmodel/hf.h"

#define MK_EXIT_USAGE 2

struct mk_options {
	struct mm_arch given; /* 0: not given */
	bool family_given, tied, untied;
	bool of_random; /* an option was given that a checkpoint has no use for */
	bool dtype_given, vector_dtype_given;
	struct mk_format format;
	uint64_t seed;
	const char *model;
	const char *shape;
};

/* Return: -1 go on, optind says where; else the exit status. */
int mk_options_parse(int argc, char **argv, struct mk_options *ret_options);

/* Says on stderr what is wrong with which argument. Return: the exit status. */
int mk_usage(const char *what, const char *which);

/* @base: filled, or with the sizes that are to follow from others 0. */
void mk_options_apply(const struct mk_options *o, struct mm_arch *base);
