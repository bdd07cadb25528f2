/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module - chooses the kernels that a device runs, and what computes matrix products
 *
 * Concept:   both depend on the driver: the software GPU runs host kernels, a CUDA device runs the
 *            fat binary and cuBLAS. Options override that. Modules are in the library folder that
 *            belongs to the program, installed or built; the fat binary is there only if the build
 *            had nvcc.
 * Threading: none; the caller's.
 */
#pragma once

#include "kernels/blas/backend.h"
#include "libclient/support/options.h"
#include "tools/mmserve/engine/options.h"

/**
 * mm_serve_module() - choose the module and what computes matrix products
 * @o:    parsed
 * @gpu:  open
 * @path: gets the module's path; PATH_MAX
 * @ret:  gets what computes matrix products
 * @err:  gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -ENOENT there is no such module; -EINVAL the device cannot run it.
 */
int mm_serve_module(const struct mm_serve_options *o, const struct mm_gpu_api *gpu, char *path,
		    enum mm_gemm_kind *ret, char *err);

/* The names of modules that need no path. */
extern const struct mm_opt_choice mm_serve_module_choices[];
