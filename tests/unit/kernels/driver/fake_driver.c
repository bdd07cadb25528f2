/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver library with a fault, which the environment chooses. FAKE_VERSION and
 * FAKE_VERSION_RESULT are the version and the result of cuDriverGetVersion(); FAKE_LACKS lists,
 * with commas, base names that cuGetProcAddress does not find; FAKE_INIT is the result of cuInit().
 */
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mm/gpu.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuDriverGetVersion(int *version);
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **fn, int version, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *status);

static int environment_number(const char *variable, int otherwise)
{
	const char *text = getenv(variable);

	return text ? atoi(text) : otherwise;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = environment_number("FAKE_VERSION", 13000);
	return (CUresult)environment_number("FAKE_VERSION_RESULT", 0);
}

static CUresult driver_init(unsigned int flags)
{
	(void)flags;
	return (CUresult)environment_number("FAKE_INIT", 0);
}

static CUresult error_name(CUresult error, const char **name)
{
	*name = error == CUDA_ERROR_SYSTEM_NOT_READY ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* It is present and never called, because cuInit() fails before. */
static CUresult entry_anything(void)
{
	abort();
}

static bool driver_lacks(const char *name)
{
	const char *list = getenv("FAKE_LACKS");
	size_t n = strlen(name);

	for (const char *at = list; at && (at = strstr(at, name)); at += n)
		if ((at == list || at[-1] == ',') && (at[n] == ',' || !at[n]))
			return true;
	return false;
}

CUresult cuGetProcAddress_v2(const char *name, void **fn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	(void)flags;
	*fn = NULL;
	if (version > environment_number("FAKE_VERSION", 13000))
		return CUDA_ERROR_INVALID_VALUE;
	*status = driver_lacks(name) ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
				     : CU_GET_PROC_ADDRESS_SUCCESS;
	if (driver_lacks(name))
		return CUDA_SUCCESS;
	if (strcmp(name, "cuInit") == 0)
		*fn = (void *)driver_init;
	else if (strcmp(name, "cuDriverGetVersion") == 0)
		*fn = (void *)cuDriverGetVersion;
	else if (strcmp(name, "cuGetErrorName") == 0)
		*fn = (void *)error_name;
	else
		*fn = (void *)entry_anything;
	return CUDA_SUCCESS;
}
