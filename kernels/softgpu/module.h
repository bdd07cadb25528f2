/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_module - a shared object of host kernels (kernels/host/kernel.h), and its functions
 *
 * Concept:   a module is a shared object that dlopen() loaded; a function is one row of its table
 *            of kernels, created when it is looked up first.
 * Ownership: a function holds its module; queued launches hold their function. The shared object is
 *            unloaded with the last of them.
 * Threading: everything is safe from any thread; a module's list of functions has a lock.
 */
#pragma once

#include "kernels/host/kernel.h"
#include "kernels/softgpu/object.h"
#include "libclient/support/lock.h"

struct sg_context;
struct sg_module;

MM_LOCK_KIND(sg_module_mutex);

struct sg_function {
	struct sg_object object;
	struct sg_module *module; /* a reference */
	const struct mm_host_kernel *kernel;
	void (*fault)(void); /* the module's mm_host_fault(), or NULL */
	struct sg_function *next MM_GUARDED_BY(sg_module_mutex); /* next of its module */
};

/* Unloads the modules of @ctx, which ends. */
void sg_modules_end(const struct sg_context *ctx);
