/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver - the words that name a driver, and the option --driver of programs
 *
 * Concept:   mm_gpu_open() (mm/gpu.h) takes such a word; options refuse any other before it is
 *            called. The option's row is the same in every program's table.
 * Threading: any.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "libclient/support/options.h"

/* Values of --driver, for messages. */
#define MM_DRIVER_CHOICES "software, cuda, or the path of a driver library"

/* The row of --driver in a table; the field, a const char *, stays NULL without the option. */
#define MM_DRIVER_OPT(program, field)                                                         \
	{                                                                                     \
		.name = "driver", .value = "NAME",                                            \
		.help = "device driver, by name or by the path of its library",               \
		.type = MM_OPT_CALL, MM_OPT_AT(program, field), .choices = mm_driver_choices, \
		.parse = mm_driver_parse, .otherwise = "$MM_DRIVER, else software",           \
	}

extern const struct mm_opt_choice mm_driver_choices[];
mm_opt_parse_fn mm_driver_parse;

/**
 * mm_driver_check() - refuse a word that is neither a driver's name nor a path
 * @why: MM_OPT_ERROR_BYTES: on failure the rest of a sentence
 *
 * Return: 0; -EINVAL.
 */
int mm_driver_check(const char *word, char *why);

/**
 * mm_driver_check_environment() - refuse what MM_DRIVER names and no driver has as its name
 * @why: MM_OPT_ERROR_BYTES: on failure a sentence that begins with "MM_DRIVER: "
 *
 * For programs that were started without --driver. Return: 0; -EINVAL.
 */
int mm_driver_check_environment(char *why);

static inline bool mm_is_driver(const char *word)
{
	return strcmp(word, "software") == 0 || strcmp(word, "cuda") == 0 || strchr(word, '/');
}
