/* SPDX-License-Identifier: Apache-2.0 */
/* A library that can be loaded and is no driver; and one entry of a driver that is too old. */
#include "libclient/base/base.h"
#include "mm/gpu.h"

MM_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **fn, int version, cuuint64_t flags,
				       CUdriverProcAddressQueryResult *status);

CUresult cuGetProcAddress_v2(const char *name, void **fn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	(void)name;
	(void)version;
	(void)flags;
	*fn = NULL;
	*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}
