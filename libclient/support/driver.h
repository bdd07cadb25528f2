/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver - the words that name a driver, for options of programs
 *
 * Concept:   mm_gpu_open() (mm/gpu.h) takes such a word; options refuse any other before it is
 *            called.
 * Threading: any.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

/* Values of --driver, for help texts. */
#define MM_DRIVER_CHOICES "software, cuda, or the path of a driver library"

static inline bool mm_is_driver(const char *word)
{
	return strcmp(word, "software") == 0 || strcmp(word, "cuda") == 0 || strchr(word, '/');
}
