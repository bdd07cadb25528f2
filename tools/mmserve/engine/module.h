/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module - which kernels a device runs, and who multiplies
 *
 * Concept:   the driver's kind picks both: the software GPU runs host kernels, a CUDA device the
 *            fat binary, and cuBLAS multiplies there. Options name others. Modules lie beside the
 *            program, where it is installed or where it was built; the fat binary is there only if
 *            nvcc was at the build.
 */
#pragma once

#include "kernels/blas/backend.h"
#include "tools/mmserve/engine/options.h"

/**
 * mm_serve_module() - the module's path and the multiplier
 * @o:    parsed
 * @gpu:  open
 * @path: gets the path, PATH_MAX
 * @ret:  gets the multiplier
 * @err:  gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -ENOENT there is no such module; -EINVAL the device cannot run it.
 */
int mm_serve_module(const struct mm_serve_options *o, const struct mm_gpu_api *gpu, char *path,
		    enum mm_gemm_kind *ret, char *err);

/* Whether @name is one of those that need no path. */
bool mm_serve_module_known(const char *name);
