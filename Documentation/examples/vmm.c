/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm - code that manages GPU memory, as one would test it without a GPU
 *
 * Takes all memory of the device in handles of the minimal size, maps them in a row, writes and
 * reads each, and gives all back. `softgpu-run --memory 64M ./vmm` needs neither a GPU nor a
 * toolkit; on a GPU the same program runs by itself. Who has cuda.h needs no declarations.
 */
#include <dlfcn.h>
#include <err.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct location {
	int type; /* 1: a device */
	int id;
};

struct properties { /* CUmemAllocationProp of CUDA 13 */
	int type;   /* 1: pinned */
	int handle_types;
	struct location location;
	void *win32;
	struct {
		unsigned char compression, rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct access {
	struct location location;
	int flags; /* 3: read and write */
};

enum {
	OUT_OF_MEMORY = 2,
	HANDLES_MAX = 4096,
};

static void *driver;

/* Calls entry NAME of the driver with arguments of the types in TYPES. */
#define CALL(name, types, ...) ((int(*) types)driver_entry(name))(__VA_ARGS__)

static void *driver_entry(const char *name)
{
	void *entry = dlsym(driver, name);

	if (!entry)
		errx(1, "the driver has no %s", name);
	return entry;
}

static void result_check(int result, const char *what)
{
	if (result)
		errx(1, "%s: CUDA error %d", what, result);
}

static size_t handles_create(const struct properties *prop, size_t bytes, uint64_t *handles)
{
	for (size_t n = 0; n < HANDLES_MAX; n++) {
		int r = CALL("cuMemCreate", (uint64_t *, size_t, const void *, uint64_t),
			     &handles[n], bytes, prop, 0);

		if (r == OUT_OF_MEMORY)
			return n;
		result_check(r, "cuMemCreate");
	}
	return HANDLES_MAX;
}

static void handles_use(uint64_t va, const uint64_t *handles, size_t n, size_t bytes)
{
	const struct access access = { .location = { .type = 1 }, .flags = 3 };

	for (size_t i = 0; i < n; i++)
		result_check(CALL("cuMemMap", (uint64_t, size_t, size_t, uint64_t, uint64_t),
				  va + i * bytes, bytes, 0, handles[i], 0),
			     "cuMemMap");
	result_check(CALL("cuMemSetAccess", (uint64_t, size_t, const void *, size_t), va, n * bytes,
			  &access, 1),
		     "cuMemSetAccess");
	for (size_t i = 0; i < n; i++) {
		uint64_t written = i + 1, read = 0;

		result_check(CALL("cuMemcpyHtoD_v2", (uint64_t, const void *, size_t),
				  va + i * bytes, &written, sizeof(written)),
			     "cuMemcpyHtoD");
		result_check(CALL("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), &read,
				  va + i * bytes, sizeof(read)),
			     "cuMemcpyDtoH");
		if (read != written)
			errx(1, "handle %zu: wrote %ju, read %ju", i, (uintmax_t)written,
			     (uintmax_t)read);
	}
	result_check(CALL("cuMemUnmap", (uint64_t, size_t), va, n * bytes), "cuMemUnmap");
}

int main(void)
{
	static uint64_t handles[HANDLES_MAX];
	struct properties prop = { .type = 1, .location = { .type = 1 } };
	size_t bytes, n;
	uint64_t va;
	void *context;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver)
		errx(1, "%s; without a GPU: softgpu-run ./vmm", dlerror());
	result_check(CALL("cuInit", (unsigned), 0), "cuInit");
	result_check(CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, 0),
		     "cuDevicePrimaryCtxRetain");
	result_check(CALL("cuCtxSetCurrent", (void *), context), "cuCtxSetCurrent");
	result_check(CALL("cuMemGetAllocationGranularity", (size_t *, const void *, int), &bytes,
			  &prop, 0),
		     "cuMemGetAllocationGranularity");

	n = handles_create(&prop, bytes, handles);
	if (!n)
		errx(1, "the device has no memory for a handle of %zu bytes", bytes);
	result_check(CALL("cuMemAddressReserve", (uint64_t *, size_t, size_t, uint64_t, uint64_t),
			  &va, n * bytes, 0, 0, 0),
		     "cuMemAddressReserve");
	handles_use(va, handles, n, bytes);
	result_check(CALL("cuMemAddressFree", (uint64_t, size_t), va, n * bytes),
		     "cuMemAddressFree");
	for (size_t i = 0; i < n; i++)
		result_check(CALL("cuMemRelease", (uint64_t), handles[i]), "cuMemRelease");
	printf("%zu handles of %zu bytes: all mapped, written, read and given back\n", n, bytes);
	return 0;
}
