/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/module.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "tools/mmserve/engine/config.h"

struct module_choice {
	const char *file, *fast_file; /* fast_file NULL: same as file */
	bool software;                /* the software GPU runs it, else a CUDA device */
	const char *absent;           /* why the file may be missing */
};

/* Values are indices of modules[]. */
const struct mm_opt_choice mm_serve_module_choices[] = {
	{ "host", 0, "on the software GPU" },
	{ "emulated", 1, "the CUDA kernels, on the software GPU" },
	{ "cuda", 2, "on a CUDA device" },
	{ NULL, 0, NULL },
};

static const struct module_choice modules[] = {
	{ "libmm-kernels-host.so", "libmm-kernels-host-fast.so", true,
	  "the build is not complete" },
	{ "libmm-kernels-emulated.so", NULL, true, "the build is not complete" },
	{ "mm-kernels-cuda.fatbin", NULL, false, "it was built without nvcc" },
};

static const struct module_choice *module_find(const char *name)
{
	for (const struct mm_opt_choice *c = mm_serve_module_choices; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return &modules[c->value];
	return NULL;
}

static int module_beside(const char *file, char *path)
{
	static const char *const places[] = { MM_BIN_TO_LIB, "../lib" };
	char program[PATH_MAX - 128];
	const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	const char *slash;

	program[MM_MAX(n, 0)] = '\0';
	slash = strrchr(program, '/');
	for (size_t i = 0; i < MM_ARRAY_SIZE(places); i++) {
		snprintf(path, PATH_MAX, "%.*s/%s/%s", slash ? (int)(slash - program) : 0, program,
			 places[i], file);
		if (access(path, F_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

int mm_serve_module(const struct mm_serve_options *o, const struct mm_gpu_api *gpu, char *path,
		    enum mm_gemm_kind *ret, char *err)
{
	const bool software = mm_gpu_is_software(gpu);
	const char *name = o->kernels ? o->kernels : software ? "host" : "cuda";
	const struct module_choice *m = module_find(name);
	const char *file;

	*ret = software ? MM_GEMM_KERNEL : MM_GEMM_CUBLAS;
	if (o->gemm)
		*ret = (enum mm_gemm_kind)(o->gemm - 1);
	if (!m) {
		snprintf(path, PATH_MAX, "%s", name);
		return 0;
	}
	if (m->software != software) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "--kernels %s: %s", name,
			 software ? "the software GPU runs host or emulated"
				  : "a CUDA device runs cuda");
		return -EINVAL;
	}
	file = o->fast && m->fast_file && *ret == MM_GEMM_KERNEL ? m->fast_file : m->file;
	if (!module_beside(file, path))
		return 0;
	snprintf(
		err, MM_SERVE_ERROR_BYTES,
		"there is no %s in the library folder of this mmserve: %s; --kernels names another",
		file, m->absent);
	return -ENOENT;
}
