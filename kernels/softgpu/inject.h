/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_inject - failures on request
 *
 * Concept:   MM_SOFTGPU_FAIL = entry:nth:result[,...]: the nth call of that entry point in this
 *            process returns that CUresult before it does anything. "cuMemCreate:3:2" makes the
 *            third call return out-of-memory; nth 0 means every call. Names have no _vN.
 * Threading: safe from any thread; the calls of all threads are counted together.
 */
#pragma once

#include "mm/gpu.h"

/* @entry: the exported symbol. Return: the error for it to return; CUDA_SUCCESS. */
CUresult sg_inject(const char *entry);
