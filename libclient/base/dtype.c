/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/base/dtype.h"

#include <stddef.h>
#include <string.h>

#include "libclient/base/base.h"

static const struct {
	const char *name;
	uint32_t bits;
} types[] = {
	[MM_DTYPE_F32] = { "F32", 32 },        [MM_DTYPE_F16] = { "F16", 16 },
	[MM_DTYPE_BF16] = { "BF16", 16 },      [MM_DTYPE_F64] = { "F64", 64 },
	[MM_DTYPE_F8_E4M3] = { "F8_E4M3", 8 }, [MM_DTYPE_F8_E5M2] = { "F8_E5M2", 8 },
	[MM_DTYPE_F8_E8M0] = { "F8_E8M0", 8 }, [MM_DTYPE_F6_E2M3] = { "F6_E2M3", 6 },
	[MM_DTYPE_F6_E3M2] = { "F6_E3M2", 6 }, [MM_DTYPE_F4] = { "F4", 4 },
	[MM_DTYPE_I8] = { "I8", 8 },           [MM_DTYPE_U8] = { "U8", 8 },
	[MM_DTYPE_I16] = { "I16", 16 },        [MM_DTYPE_U16] = { "U16", 16 },
	[MM_DTYPE_I32] = { "I32", 32 },        [MM_DTYPE_U32] = { "U32", 32 },
	[MM_DTYPE_I64] = { "I64", 64 },        [MM_DTYPE_U64] = { "U64", 64 },
	[MM_DTYPE_BOOL] = { "BOOL", 8 },       [MM_DTYPE_C64] = { "C64", 64 },
};

uint32_t mm_dtype_find(const char *name)
{
	for (uint32_t i = 1; i < MM_ARRAY_SIZE(types); i++)
		if (strcmp(name, types[i].name) == 0)
			return i;
	return 0;
}

const char *mm_dtype_name(uint32_t dtype)
{
	return dtype < MM_ARRAY_SIZE(types) ? types[dtype].name : NULL;
}

uint32_t mm_dtype_bits(uint32_t dtype)
{
	return dtype < MM_ARRAY_SIZE(types) ? types[dtype].bits : 0;
}

uint32_t mm_dtype_alignment(uint32_t dtype)
{
	return MM_MAX(mm_dtype_bits(dtype) / 8, 1u);
}
