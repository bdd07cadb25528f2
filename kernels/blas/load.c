/* SPDX-License-Identifier: Apache-2.0 */
/* Finds cuBLAS at run time, and its symbols. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/blas/cublas.h"
#include "libclient/base/base.h"

static const struct symbol {
	const char *name;
	size_t offset;
} cublas_symbols[] = {
#define SYMBOL(result, name, params) { #name, offsetof(struct mm_cublas, name) },
	MM_CUBLAS_ENTRIES(SYMBOL)
#undef SYMBOL
};

static void *cublas_open_library(char *err, size_t err_bytes)
{
	static const char *const names[] = { "libcublas.so.13",
					     "/usr/local/cuda/lib64/libcublas.so.13",
					     "libcublas.so.12",
					     "/usr/local/cuda/lib64/libcublas.so.12" };
	const char *named = secure_getenv("MM_CUBLAS_LIB");
	void *library = NULL;

	if (named && *named) {
		library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
		if (!library)
			snprintf(err, err_bytes, "MM_CUBLAS_LIB: %s", dlerror());
		return library;
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(names) && !library; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		snprintf(err, err_bytes,
			 "cuBLAS: neither libcublas.so.13 nor .12 can be loaded (%s); set "
			 "MM_CUBLAS_LIB to the library's path",
			 dlerror());
	return library;
}

int mm_cublas_load(struct mm_cublas *ret_lib, char *err, size_t err_bytes)
{
	struct mm_cublas lib = { 0 };
	void *library = cublas_open_library(err, err_bytes);

	if (!library)
		return -ENOENT;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cublas_symbols); i++) {
		void *at = dlsym(library, cublas_symbols[i].name);

		if (!at) {
			snprintf(err, err_bytes,
				 "cuBLAS: the library has no %s; version 12 or later is needed",
				 cublas_symbols[i].name);
			dlclose(library);
			return -ENOSYS;
		}
		memcpy((char *)&lib + cublas_symbols[i].offset, &at, sizeof(at));
	}
	*ret_lib = lib;
	return 0;
}
