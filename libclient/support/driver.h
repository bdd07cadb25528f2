/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver - which words name a driver, for the options of programs that take one
 *
 * Concept:   mm_gpu_open() (mm/gpu.h) reads such a word; options refuse any other before it is
 *            called.
 * Threading: any.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

/* The values that --driver takes. */
#define MM_DRIVER_CHOICES "software, cuda, or the path of a driver library"

static inline bool mm_is_driver(const char *word)
{
	return strcmp(word, "software") == 0 || strcmp(word, "cuda") == 0 || strchr(word, '/');
}
