/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a driver library and fills the table of its functions; explains why a driver fails. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mm/gpu.h"

#define SOFTGPU_NAME "libmm-softgpu.so"

typedef CUresult(CUDAAPI *proc_address_fn)(const char *symbol, void **pfn, int version,
					   cuuint64_t flags,
					   CUdriverProcAddressQueryResult *status);

struct gpu_report {
	char *text;
	size_t bytes;
};

static void MM_PRINTF(2, 3) gpu_report(const struct gpu_report *r, const char *format, ...)
{
	va_list args;

	if (!r->text || !r->bytes)
		return;
	va_start(args, format);
	vsnprintf(r->text, r->bytes, format, args);
	va_end(args);
}

/* The folder of the object that this code was linked into, with a final slash; "" if unknown. */
static void gpu_own_folder(char *ret_folder, size_t bytes)
{
	mm_cleanup(mm_free_ptr) char *real = NULL;
	Dl_info info;
	char *slash;

	ret_folder[0] = '\0';
	/* For the main program dli_fname is argv[0], which need not be a path. */
	if (dladdr((void *)gpu_own_folder, &info) && info.dli_fname && strchr(info.dli_fname, '/'))
		real = realpath(info.dli_fname, NULL);
	if (!real)
		real = realpath("/proc/self/exe", NULL);
	if (!real)
		return;
	slash = strrchr(real, '/');
	if (slash && (size_t)(slash - real) + 2 <= bytes) {
		memcpy(ret_folder, real, (size_t)(slash - real) + 1);
		ret_folder[slash - real + 1] = '\0';
	}
}

static void *driver_open_software(const struct gpu_report *err)
{
	static const char *const places[] = { "", MM_BIN_TO_LIB "/", "../lib/", "../../lib/" };
	const char *named = secure_getenv("MM_SOFTGPU_LIB");
	char folder[PATH_MAX], path[PATH_MAX + 64];
	void *lib;

	if (named && *named) {
		lib = dlopen(named, RTLD_NOW | RTLD_LOCAL);
		if (!lib)
			gpu_report(err, "MM_SOFTGPU_LIB: %s", dlerror());
		return lib;
	}
	gpu_own_folder(folder, sizeof(folder));
	for (size_t i = 0; *folder && i < MM_ARRAY_SIZE(places); i++) {
		snprintf(path, sizeof(path), "%s%s" SOFTGPU_NAME, folder, places[i]);
		if (access(path, F_OK) == 0)
			break;
		path[0] = '\0';
	}
	lib = dlopen(*folder && *path ? path : SOFTGPU_NAME, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		gpu_report(err, "software GPU: %s; set MM_SOFTGPU_LIB to the path of " SOFTGPU_NAME,
			   dlerror());
	return lib;
}

static void *driver_open_library(const char *driver, const struct gpu_report *err)
{
	const char *name = driver;
	void *lib;

	if (strcmp(driver, "software") == 0)
		return driver_open_software(err);
	if (strcmp(driver, "cuda") == 0)
		name = "libcuda.so.1";
	else if (!strchr(driver, '/')) {
		gpu_report(err, "driver '%s': give software, cuda, or the path of a library",
			   driver);
		return NULL;
	}
	/*
	 * RTLD_NODELETE: a driver has threads and handlers of its own, which outlive its last use.
	 */
	lib = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		gpu_report(err, "driver '%s': %s%s", driver, dlerror(),
			   name == driver ? ""
					  : "; install the NVIDIA driver, and run containers with "
					    "its compute capability");
	return lib;
}

/* One entry point at one ABI version; NULL if this driver has none. */
static void *entry_look_up(proc_address_fn proc_address, const char *name, int version)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	void *fn = NULL;

	if (proc_address(name, &fn, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status))
		return NULL;
	return status == CU_GET_PROC_ADDRESS_SUCCESS ? fn : NULL;
}

static const struct gpu_entry {
	const char *name;
	int version;
	bool required;
	size_t offset;
} gpu_entries[] = {
#define REQUIRED true
#define OPTIONAL false
#define ENTRY(need, name, version, params) \
	{ #name, version, need, offsetof(struct mm_gpu_api, name) },
	MM_GPU_ENTRIES(ENTRY)
#undef ENTRY
};

/* Names of missing functions, as many as there is room for, and the number of the others. */
struct missing {
	char text[512];
	size_t at;
	unsigned int unlisted;
};

static void MM_PRINTF(2, 3) missing_add(struct missing *m, const char *format, ...)
{
	size_t room = sizeof(m->text) - m->at;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(m->text + m->at, room, format, args);
	va_end(args);
	if (n >= 0 && (size_t)n < room) {
		m->at += (size_t)n;
		return;
	}
	m->text[m->at] = '\0';
	m->unlisted++;
}

/* Fills every entry of the table, and adds to @missing those that are required and absent. */
static void entries_fill(proc_address_fn proc_address, struct mm_gpu_api *gpu,
			 struct missing *missing)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(gpu_entries); i++) {
		const struct gpu_entry *e = &gpu_entries[i];
		void *fn = entry_look_up(proc_address, e->name, e->version);

		if (!fn && e->required)
			missing_add(missing, "%s%s(%d)", missing->at ? " " : "", e->name,
				    e->version);
		memcpy((char *)gpu + e->offset, &fn, sizeof(fn));
	}
}

/* The version of the driver, by the one name that every driver exports; 0 if it is unknown. */
static int driver_version(void *library, CUresult *ret_result)
{
	CUresult(CUDAAPI * get_version)(int *version);
	int version = 0;

	*(void **)&get_version = dlsym(library, "cuDriverGetVersion");
	*ret_result = get_version ? get_version(&version) : CUDA_ERROR_NOT_FOUND;
	return *ret_result ? 0 : version;
}

static int driver_check_version(void *library, const char *driver, int *ret_version,
				const struct gpu_report *err)
{
	CUresult result;
	int version = driver_version(library, &result);

	if (result == CUDA_ERROR_STUB_LIBRARY) {
		gpu_report(
			err,
			"driver '%s' is the toolkit's stub, which is for linking only; take its "
			"folder (stubs) out of LD_LIBRARY_PATH, or give the path of the driver's "
			"own libcuda.so.1",
			driver);
		return -ENOSYS;
	}
	if (version && version < MM_GPU_VERSION_MIN) {
		gpu_report(err,
			   "driver '%s' is CUDA %d.%d; " MM_GPU_VERSION_TEXT
			   " or later is needed: update the NVIDIA driver (550 or later)",
			   driver, version / 1000, version % 1000 / 10);
		return -ENOSYS;
	}
	*ret_version = version;
	return 0;
}

static int driver_fill(const char *driver, struct mm_gpu_api *gpu, const struct gpu_report *err)
{
	struct missing missing = { .text = "" };
	proc_address_fn proc_address;
	int version, r;

	r = driver_check_version(gpu->library, driver, &version, err);
	if (r < 0)
		return r;
	*(void **)&proc_address = dlsym(gpu->library, "cuGetProcAddress_v2");
	if (!proc_address) {
		gpu_report(err,
			   "driver '%s' has no cuGetProcAddress_v2: no CUDA driver, or an old one; "
			   "CUDA " MM_GPU_VERSION_TEXT " or later is needed",
			   driver);
		return -ENOSYS;
	}
	entries_fill(proc_address, gpu, &missing);
	if (!missing.at)
		return 0;
	gpu_report(err,
		   "driver '%s' (CUDA %d.%d) lacks what is needed: %s%s; is it a driver of "
		   "CUDA " MM_GPU_VERSION_TEXT " or later, whole?",
		   driver, version / 1000, version % 1000 / 10, missing.text,
		   missing.unlisted ? " and more" : "");
	return -ENOSYS;
}

int mm_gpu_open(const char *driver, struct mm_gpu_api *ret_gpu, char *err, size_t err_bytes)
{
	const struct gpu_report rep = { err, err_bytes };
	struct mm_gpu_api gpu = { .size = sizeof(gpu) };
	int r;

	if (!driver)
		driver = secure_getenv("MM_DRIVER");
	if (!driver || !*driver)
		driver = "software";
	gpu.library = driver_open_library(driver, &rep);
	if (!gpu.library)
		return -ENOENT;
	r = driver_fill(driver, &gpu, &rep);
	if (r < 0) {
		dlclose(gpu.library);
		return r;
	}
	*ret_gpu = gpu;
	return 0;
}

bool mm_gpu_is_software(const struct mm_gpu_api *gpu)
{
	return gpu->library && dlsym(gpu->library, "mm_softgpu_stats");
}

/* A sentence for a driver that does not start: what to check. */
static const char *init_hint(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_NO_DEVICE:
		return "no GPU is visible: what do nvidia-smi, CUDA_VISIBLE_DEVICES and the "
		       "container's devices say?";
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
		return "somebody has the GPU for himself, or its compute mode forbids it: "
		       "nvidia-smi -q -d COMPUTE";
	case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
		return "libcuda.so.1 is newer than the kernel's driver: take the compat folder out "
		       "of LD_LIBRARY_PATH, or update the NVIDIA driver";
	case CUDA_ERROR_SYSTEM_NOT_READY:
		return "the GPU's fabric is not up: is nvidia-fabricmanager running, of the "
		       "driver's own version?";
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return "libcuda.so.1 and the kernel's driver are of different versions: reboot, or "
		       "unload and load the nvidia modules";
	case CUDA_ERROR_MPS_CONNECTION_FAILED:
	case CUDA_ERROR_MPS_SERVER_NOT_READY:
	case CUDA_ERROR_MPS_RPC_FAILURE:
	case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
	case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
		return "MPS does not serve us: see nvidia-cuda-mps-control and its log, or unset "
		       "CUDA_MPS_PIPE_DIRECTORY";
	case CUDA_ERROR_OPERATING_SYSTEM:
	case CUDA_ERROR_NOT_PERMITTED:
		return "may we open /dev/nvidiactl, /dev/nvidia-uvm and the GPU's own node?";
	case CUDA_ERROR_OUT_OF_MEMORY:
		return "host or device memory is used up";
	default:
		return "what do nvidia-smi and the kernel's log (dmesg, NVRM: Xid) say?";
	}
}

int mm_gpu_init(const struct mm_gpu_api *gpu, char *err, size_t err_bytes)
{
	const struct gpu_report rep = { err, err_bytes };
	CUresult result = gpu->cuInit(0);
	int version = 0;

	if (result == CUDA_SUCCESS)
		return 0;
	(void)gpu->cuDriverGetVersion(&version);
	if (mm_gpu_is_software(gpu))
		gpu_report(&rep, "the software GPU does not start: %s; why is on stderr",
			   mm_gpu_strerror(gpu, result));
	else
		gpu_report(&rep, "the driver (CUDA %d.%d) does not start: %s (%d): %s",
			   version / 1000, version % 1000 / 10, mm_gpu_strerror(gpu, result),
			   (int)result, init_hint(result));
	return mm_gpu_errno(result);
}

/* Whether the file has no code for this driver and device; drivers differ in the result. */
static bool module_is_foreign(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
	case CUDA_ERROR_INVALID_SOURCE:
		return true;
	default:
		return false;
	}
}

static const char *module_hint(CUresult result)
{
	if (module_is_foreign(result))
		return "it has nothing that this driver and device take: build with a CUDA toolkit "
		       "that is no newer than the driver, or update the driver; devices are served "
		       "from compute capability 8.0 on";
	if (result == CUDA_ERROR_FILE_NOT_FOUND)
		return "is it there, and may we read it?";
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return "host or device memory is used up";
	return "what does the kernel's log (dmesg, NVRM: Xid) say?";
}

int mm_gpu_load_module(const struct mm_gpu_api *gpu, const char *path, CUmodule *ret_module,
		       char *err, size_t err_bytes)
{
	const struct gpu_report rep = { err, err_bytes };
	CUresult result = gpu->cuModuleLoad(ret_module, path);
	int version = 0;

	if (result == CUDA_SUCCESS)
		return 0;
	(void)gpu->cuDriverGetVersion(&version);
	gpu_report(&rep, "%s cannot be loaded by the driver (CUDA %d.%d): %s (%d): %s", path,
		   version / 1000, version % 1000 / 10, mm_gpu_strerror(gpu, result), (int)result,
		   module_hint(result));
	return module_is_foreign(result) ? -ENOEXEC : mm_gpu_errno(result);
}

CUresult mm_gpu_kernel(const struct mm_gpu_api *gpu, CUmodule module, const char *name,
		       CUfunction *ret_function)
{
	CUresult result = gpu->cuModuleGetFunction(ret_function, module, name);

	return result || !gpu->cuFuncLoad ? result : gpu->cuFuncLoad(*ret_function);
}

void mm_gpu_close(struct mm_gpu_api *gpu)
{
	if (gpu->library)
		dlclose(gpu->library);
	*gpu = (struct mm_gpu_api){ 0 };
}

const char *mm_gpu_strerror(const struct mm_gpu_api *gpu, CUresult result)
{
	const char *name = NULL;

	if (!gpu->cuGetErrorName || gpu->cuGetErrorName(result, &name) || !name)
		return "unknown CUDA error";
	return name;
}

int mm_gpu_errno(CUresult result)
{
	switch ((int)result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
		return -EINVAL;
	case CUDA_ERROR_NOT_READY:
		return -EBUSY;
	case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
	case CUDA_ERROR_ALREADY_MAPPED:
		return -EEXIST;
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
		return -EFAULT;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_SYSTEM_NOT_READY:
	case CUDA_ERROR_MPS_SERVER_NOT_READY:
		return -ENODEV;
	case CUDA_ERROR_NOT_PERMITTED:
		return -EPERM;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	case CUDA_ERROR_NOT_FOUND:
	case CUDA_ERROR_FILE_NOT_FOUND:
		return -ENOENT;
	case CUDA_ERROR_TIMEOUT:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}
