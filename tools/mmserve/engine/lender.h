/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lender - what lends KV memory to the engine, as kvman sees it
 *
 * Concept:    the functions by which kvman.h requests, moves and releases chunks, over the engine's
 *             memory and its stream; and the sentence of a failure in the memory's own words.
 * Ownership:  none; the context of each function is the engine.
 * Threading:  the engine's thread.
 */
#pragma once

#include "mm/gpu.h"
#include "tools/mmserve/sched/kvman.h"

struct mm_engine;

extern const struct mm_kvman_ops mm_lender_ops; /* their context is a struct mm_engine */

/* Writes the engine's sentence: @what failed, and the memory's reason. Return: @error. */
int mm_lender_fail(struct mm_engine *e, int error, const char *what);

/* Writes the engine's sentence: @what failed, and why, by the driver. Return: negative errno. */
int mm_lender_fail_gpu(struct mm_engine *e, CUresult r, const char *what);
