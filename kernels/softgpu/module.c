/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/context.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/module.h"
#include "kernels/softgpu/op.h"
#include "libclient/base/base.h"
#include "libclient/support/lock.h"
#include "libclient/support/cleanup.h"

#define FATBIN_MAGIC       0xba55ed50u
#define FATBIN_WRAPPER     0x466243b1u
#define ELF_MACHINE_CUDA   190
#define KERNELS_MAX        4096
#define THREADS_PER_BLOCK  1024
#define SHARED_BYTES       (48u << 10)
#define SHARED_BYTES_OPTIN (227u << 10)

struct sg_module {
	struct sg_object object;
	struct sg_context *ctx; /* a reference */
	void *library;
	const struct mm_host_kernel *kernels;
	size_t n_kernels;
	void (*fault)(void); /* the module's mm_host_fault(), or NULL */
	struct sg_module_mutex mtx;
	/* Functions that were looked up, each published. */
	struct sg_function *functions MM_GUARDED_BY(sg_module_mutex);
};

static void destroy_module(struct sg_object *object)
{
	struct sg_module *m = (struct sg_module *)object;

	dlclose(m->library);
	sg_object_put(&m->ctx->object);
	sg_module_mutex_destroy(&m->mtx);
	free(m);
}

static void destroy_function(struct sg_object *object)
{
	struct sg_function *f = (struct sg_function *)object;

	sg_object_put(&f->module->object);
	free(f);
}

/* Refuses an array without an end, and rows without a function or with too many arguments. */
static CUresult kernels_check(const struct mm_host_kernel *kernels, size_t *ret_n)
{
	size_t n = 0;

	for (; n < KERNELS_MAX && kernels[n].name; n++)
		if (!kernels[n].fn || kernels[n].n_args > MM_HOST_ARGS_MAX)
			return CUDA_ERROR_INVALID_IMAGE;
	if (n == KERNELS_MAX)
		return CUDA_ERROR_INVALID_IMAGE;
	*ret_n = n;
	return CUDA_SUCCESS;
}

static bool is_ptx(const unsigned char *head, size_t bytes)
{
	static const char *const begins[] = { ".version", "//", ".target" };

	while (bytes && strchr(" \t\r\n", *head) && *head) {
		head++;
		bytes--;
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(begins); i++)
		if (bytes >= strlen(begins[i]) && memcmp(head, begins[i], strlen(begins[i])) == 0)
			return true;
	return false;
}

/* Return: an error; code for a GPU gets another one than bytes that are no code at all. */
static CUresult image_refuse(const unsigned char *head, size_t bytes)
{
	uint32_t magic = 0;
	uint16_t machine;

	if (bytes >= sizeof(magic))
		memcpy(&magic, head, sizeof(magic));
	if (magic == FATBIN_MAGIC || magic == FATBIN_WRAPPER)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	if (bytes >= sizeof(Elf64_Ehdr) && memcmp(head, ELFMAG, SELFMAG) == 0) {
		memcpy(&machine, head + offsetof(Elf64_Ehdr, e_machine), sizeof(machine));
		if (machine == ELF_MACHINE_CUDA)
			return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	return is_ptx(head, bytes) ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
}

/* Return: the reason why a file is no module. For files that dlopen() refused, or must not see. */
static CUresult file_refuse(const char *path)
{
	mm_cleanup(mm_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	unsigned char head[256];
	ssize_t n;

	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	n = read(fd, head, sizeof(head));
	return n < 0 ? CUDA_ERROR_INVALID_IMAGE : image_refuse(head, (size_t)n);
}

/* Takes over @library, also when it fails. */
static CUresult module_create(struct sg_context *ctx, void *library, struct sg_module **ret_module)
{
	const struct mm_host_kernel *kernels = dlsym(library, MM_HOST_KERNELS_SYMBOL);
	struct sg_module *m = NULL;
	CUresult res = CUDA_ERROR_INVALID_IMAGE;
	size_t n = 0;

	if (kernels)
		res = kernels_check(kernels, &n);
	if (!res) {
		m = calloc(1, sizeof(*m));
		if (!m)
			res = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (res) {
		dlclose(library);
		return res;
	}
	sg_object_init(&m->object, SG_MODULE, destroy_module);
	sg_object_ref(&ctx->object);
	m->ctx = ctx;
	m->object.owner = ctx;
	m->library = library;
	m->kernels = kernels;
	m->n_kernels = n;
	m->fault = (void (*)(void))dlsym(library, MM_HOST_FAULT_SYMBOL);
	sg_module_mutex_init(&m->mtx);
	*ret_module = m;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoad(CUmodule *ret, const char *path)
{
	mm_cleanup(mm_free_ptr) char *real = NULL;
	struct sg_context *ctx;
	struct sg_module *m;
	void *library;

	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	SG_TRY(sg_context_current(&ctx));
	if (!ret || !path)
		return CUDA_ERROR_INVALID_VALUE;
	/* An absolute path, which the dynamic linker does not search for. */
	real = realpath(path, NULL);
	if (!real)
		return CUDA_ERROR_FILE_NOT_FOUND;
	library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return file_refuse(real);
	SG_TRY(module_create(ctx, library, &m));
	sg_object_publish(&m->object);
	*ret = (CUmodule)m;
	return CUDA_SUCCESS;
}

/* Refuses an image in memory, which can only be code for a GPU. Its length is not known. */
static CUresult memory_refuse(const void *image)
{
	/* memcmp() might read beyond the NUL of a text that is shorter. */
	if (strncmp(image, ELFMAG, SELFMAG) == 0)
		return image_refuse(image, sizeof(Elf64_Ehdr));
	return image_refuse(image, strnlen(image, 64));
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *ret, const void *image)
{
	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	SG_TRY(sg_enter_context());
	return ret && image ? memory_refuse(image) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *ret, const void *image, unsigned int n_options,
				    CUjit_option *options, void **values)
{
	(void)n_options;
	(void)options;
	(void)values;
	return cuModuleLoadData(ret, image);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *ret, const void *image)
{
	return cuModuleLoadData(ret, image);
}

/* Releases functions that were taken off their module: no other thread reaches them. */
static void functions_release(struct sg_function *list) MM_NO_THREAD_SAFETY_ANALYSIS
{
	struct sg_function *next;

	for (struct sg_function *f = list; f; f = next) {
		next = f->next;
		sg_object_retract(f, SG_FUNCTION);
		sg_object_put(&f->object);
	}
}

/* Takes over the reference that the registry had. */
static void module_end(struct sg_module *m)
{
	struct sg_function *list;

	sg_module_mutex_take(&m->mtx);
	list = m->functions;
	m->functions = NULL;
	sg_module_mutex_give(&m->mtx);
	functions_release(list);
	sg_object_put(&m->object);
}

void sg_modules_end(const struct sg_context *ctx)
{
	struct sg_object *module = sg_object_retract_owned(ctx, SG_MODULE), *next;

	for (; module; module = next) {
		next = module->next;
		module_end((struct sg_module *)module);
	}
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle)
{
	struct sg_module *m;

	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	m = sg_object_retract(handle, SG_MODULE);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	module_end(m);
	return CUDA_SUCCESS;
}

/* The same name is always the same function. */
static CUresult module_find_function(struct sg_module *m, const char *name,
				     struct sg_function **ret) MM_REQUIRES(sg_module_mutex)
{
	struct sg_function *f;
	size_t i = 0;

	for (f = m->functions; f; f = f->next)
		if (strcmp(f->kernel->name, name) == 0) {
			*ret = f;
			return CUDA_SUCCESS;
		}
	while (i < m->n_kernels && strcmp(m->kernels[i].name, name) != 0)
		i++;
	if (i == m->n_kernels)
		return CUDA_ERROR_NOT_FOUND;
	f = calloc(1, sizeof(*f));
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_init(&f->object, SG_FUNCTION, destroy_function);
	sg_object_ref(&m->object);
	f->module = m;
	f->kernel = &m->kernels[i];
	f->fault = m->fault;
	f->next = m->functions;
	m->functions = f;
	sg_object_publish(&f->object);
	*ret = f;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *ret, CUmodule handle, const char *name)
{
	struct sg_function *f = NULL;
	struct sg_module *m;
	CUresult res;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!ret || !name)
		return CUDA_ERROR_INVALID_VALUE;
	m = sg_object_get(handle, SG_MODULE);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_module_mutex_take(&m->mtx);
	res = module_find_function(m, name, &f);
	sg_module_mutex_give(&m->mtx);
	sg_object_put(&m->object);
	if (!res)
		*ret = (CUfunction)f;
	return res;
}

/* There are no globals to find: host kernels have no device variables. */
CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr *va, size_t *bytes, CUmodule handle,
				      const char *name)
{
	struct sg_module *m;

	(void)va;
	(void)bytes;
	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	m = sg_object_get(handle, SG_MODULE);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_object_put(&m->object);
	return CUDA_ERROR_NOT_FOUND;
}

/* The first ABI, with 32 bits for an address; for programs that only check that it exists. */
CUresult CUDAAPI cuModuleGetGlobal(unsigned int *va, unsigned int *bytes, CUmodule handle,
				   const char *name)
{
	(void)va;
	(void)bytes;
	return cuModuleGetGlobal_v2(NULL, NULL, handle, name);
}

/* ---- Libraries: code for every context at once; none of it for this device ---- */

/* A text of PTX, which is built when something of it is first asked for, and cannot be. */
struct library {
	struct sg_object object;
};

static void destroy_library(struct sg_object *object)
{
	free(object);
}

static CUresult library_create(CUlibrary *ret)
{
	struct library *library = calloc(1, sizeof(*library));

	if (!library)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_init(&library->object, SG_LIBRARY, destroy_library);
	sg_object_publish(&library->object);
	*ret = (CUlibrary)library;
	return CUDA_SUCCESS;
}

/* Return: the error with which what is in the library is asked for. */
static CUresult library_refuse(CUlibrary handle)
{
	struct sg_object *library = sg_object_get(handle, SG_LIBRARY);

	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_object_put(library);
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary handle)
{
	struct sg_object *library;

	SG_ENTER();
	library = sg_object_retract(handle, SG_LIBRARY);
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_object_put(library);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule *ret, CUlibrary handle)
{
	SG_ENTER();
	return ret ? library_refuse(handle) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *ret, CUlibrary handle, const char *name)
{
	SG_ENTER();
	return ret && name ? library_refuse(handle) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *va, size_t *bytes, CUlibrary handle,
				    const char *name)
{
	(void)va;
	(void)bytes;
	SG_ENTER();
	return name ? library_refuse(handle) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *ret, const void *image, CUjit_option *jit_options,
				   void **jit_values, unsigned int n_jit_options,
				   CUlibraryOption *options, void **values, unsigned int n_options)
{
	(void)jit_options;
	(void)jit_values;
	(void)n_jit_options;
	(void)options;
	(void)values;
	(void)n_options;
	SG_ENTER();
	if (!ret || !image)
		return CUDA_ERROR_INVALID_VALUE;
	/* Machine code is looked at when it is loaded. */
	return is_ptx(image, strnlen(image, 64)) ? library_create(ret) : memory_refuse(image);
}

/* Not supported: host kernels are loaded as modules only. */
CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *jit_options,
				       void **jit_values, unsigned int n_jit_options,
				       CUlibraryOption *options, void **values,
				       unsigned int n_options)
{
	(void)jit_options;
	(void)jit_values;
	(void)n_jit_options;
	(void)options;
	(void)values;
	(void)n_options;
	SG_ENTER();
	return ret && path ? file_refuse(path) : CUDA_ERROR_INVALID_VALUE;
}

/* Nothing to do: each function is loaded with its module. */
CUresult CUDAAPI cuFuncLoad(CUfunction handle)
{
	struct sg_function *f;

	SG_ENTER();
	f = sg_object_get(handle, SG_FUNCTION);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_object_put(&f->object);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
	struct sg_function *f;

	SG_ENTER();
	if (!value || (int)attribute < 0 ||
	    attribute > CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
		return CUDA_ERROR_INVALID_VALUE;
	f = sg_object_get(handle, SG_FUNCTION);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_object_put(&f->object);
	*value = 0;
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
		*value = THREADS_PER_BLOCK;
	else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		*value = SHARED_BYTES;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	struct sg_function *f;

	SG_ENTER();
	if (value < 0 || (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
			  attribute != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT))
		return CUDA_ERROR_INVALID_VALUE;
	f = sg_object_get(handle, SG_FUNCTION);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_object_put(&f->object);
	return CUDA_SUCCESS;
}

/* ---- Launch ---- */

/*
 * Finds the buffer that @extra names; in it every parameter has its natural alignment, as in CUDA.
 */
static CUresult extra_find_buffer(void **extra, const unsigned char **ret_buffer, size_t *ret_bytes)
{
	*ret_buffer = NULL;
	*ret_bytes = 0;
	for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			*ret_buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*ret_bytes = *(const size_t *)extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	return *ret_buffer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Return: the alignment of a parameter: its size for 1, 2, 4 and 8 bytes, else at most 8. */
static size_t alignment_of(size_t bytes)
{
	size_t align = 8;

	while (align > 1 && bytes % align)
		align /= 2;
	return align;
}

/* Copies the arguments: the caller may change them as soon as the launch returns. */
static CUresult op_copy_args(struct sg_op *op, void **params, void **extra)
{
	const struct mm_host_kernel *k = op->launch.function->kernel;
	size_t at[MM_HOST_ARGS_MAX], total = 0, bytes = 0;
	const unsigned char *buffer = NULL;

	if (!params && extra)
		SG_TRY(extra_find_buffer(extra, &buffer, &bytes));
	for (unsigned int i = 0; i < k->n_args; i++) {
		total = mm_round_up(total, alignment_of(k->arg_bytes[i]));
		at[i] = total;
		total += k->arg_bytes[i];
	}
	if (k->n_args && !params && total > bytes)
		return CUDA_ERROR_INVALID_VALUE;
	op->launch.bytes = aligned_alloc(16, mm_round_up(total + 1, 16));
	if (!op->launch.bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < k->n_args; i++) {
		op->launch.args[i] = op->launch.bytes + at[i];
		memcpy(op->launch.args[i], params ? params[i] : buffer + at[i], k->arg_bytes[i]);
	}
	return CUDA_SUCCESS;
}

static bool shape_is_valid(const struct mm_host_launch *s)
{
	uint64_t threads = (uint64_t)s->block[0] * s->block[1];

	for (int i = 0; i < 3; i++)
		if (!s->grid[i] || !s->block[i] || s->block[i] > THREADS_PER_BLOCK)
			return false;
	return threads * s->block[2] <= THREADS_PER_BLOCK && s->grid[0] <= INT32_MAX &&
	       s->grid[1] <= UINT16_MAX && s->grid[2] <= UINT16_MAX &&
	       s->shared_bytes <= SHARED_BYTES_OPTIN;
}

/* Takes over the caller's reference to @f. */
static CUresult function_launch(struct sg_function *f, const struct mm_host_launch *shape,
				CUstream handle, void **params, void **extra)
{
	struct sg_op *op = sg_op_create(SG_OP_LAUNCH);
	struct sg_stream *stream;
	CUresult res;

	if (!op) {
		sg_object_put(&f->object);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->launch.function = f;
	op->launch.shape = *shape;
	res = op_copy_args(op, params, extra);
	if (!res)
		res = sg_stream_get(handle, &stream);
	if (res) {
		sg_op_destroy(op);
		return res;
	}
	res = sg_stream_submit(stream, op, NULL);
	sg_stream_put(stream);
	return res;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
				unsigned int grid_z, unsigned int block_x, unsigned int block_y,
				unsigned int block_z, unsigned int shared_bytes, CUstream stream,
				void **params, void **extra)
{
	const struct mm_host_launch shape = { { grid_x, grid_y, grid_z },
					      { block_x, block_y, block_z },
					      shared_bytes };
	struct sg_function *f;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!shape_is_valid(&shape) || (params && extra))
		return CUDA_ERROR_INVALID_VALUE;
	f = sg_object_get(function, SG_FUNCTION);
	return f ? function_launch(f, &shape, stream, params, extra) : CUDA_ERROR_INVALID_HANDLE;
}
