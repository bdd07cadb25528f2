/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_inject - failures on request
 *
 * Concept:   MM_SOFTGPU_FAIL = entry:nth:result[,...]: the nth call of that entry point in this
 *            process returns that CUresult before it does anything. "cuMemCreate:3:2" is an
 *            out-of-memory at the third; nth 0 means every call. Names without their _vN.
 * Threading: safe from any thread; the calls of all threads are counted together.
 */
#pragma once

#include "mm/gpu.h"

/* @entry: the exported symbol. Return: what it must return; CUDA_SUCCESS to go on. */
CUresult sg_inject(const char *entry);
