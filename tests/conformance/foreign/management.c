/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that looks at devices and knows nothing else: it loads libnvidia-ml.so.1, begins with
 * flags, as pynvml does, and asks for memory by the first ABI. It knows nothing of this project.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/foreign/check.h"

static void *lib;

static void *find(const char *name)
{
	void *fn = dlsym(lib, name);

	if (!fn)
		fprintf(stderr, "%s: not there\n", name);
	REQUIRE(fn);
	return fn;
}

int main(void)
{
	struct {
		unsigned long long total, free, used;
	} memory = { 0 };
	int (*init)(unsigned int flags), (*shut_down)(void), (*count)(unsigned int *n);
	int (*by_index)(unsigned int index, void **device),
		(*memory_info)(void *device, void *memory);
	int (*driver_version)(char *version, unsigned int length);
	const char *(*error_string)(int result);
	char version[80] = "";
	unsigned int n = 0;
	void *device;

	lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&init = find("nvmlInitWithFlags");
	*(void **)&shut_down = find("nvmlShutdown");
	*(void **)&count = find("nvmlDeviceGetCount_v2");
	*(void **)&by_index = find("nvmlDeviceGetHandleByIndex_v2");
	*(void **)&memory_info = find("nvmlDeviceGetMemoryInfo");
	*(void **)&driver_version = find("nvmlSystemGetDriverVersion");
	*(void **)&error_string = find("nvmlErrorString");
	REQUIRE(init(0) == 0);
	REQUIRE(driver_version(version, sizeof(version)) == 0 && version[0]);
	REQUIRE(driver_version(version, 2) == 7); /* INSUFFICIENT_SIZE */
	REQUIRE(count(&n) == 0 && n >= 1);
	REQUIRE(by_index(0, &device) == 0);
	REQUIRE(memory_info(device, &memory) == 0);
	REQUIRE(memory.total && memory.used <= memory.total && memory.free <= memory.total);
	REQUIRE(memory_info(device, NULL) == 2); /* INVALID_ARGUMENT */
	REQUIRE(error_string(2) && error_string(999));
	REQUIRE(shut_down() == 0);
	return 0;
}
