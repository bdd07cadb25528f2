/* SPDX-License-Identifier: Apache-2.0 */
/* narrow - converts F32 to F16 and BF16. */
#include "tools/lab/mkmodel/narrow.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int narrow_f16(uint32_t bits, uint16_t *ret_bits)
{
	const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	uint32_t magnitude = bits & 0x7fffffff;
	float value;

	if (magnitude < 0x38800000) { /* below the smallest normal number: count units of 2^-24 */
		memcpy(&value, &magnitude, sizeof(value));
		*ret_bits = sign | (uint16_t)lrintf(value * 0x1p24f);
		return 0;
	}
	magnitude += 0xfff + (magnitude >> 13 & 1);
	magnitude = (magnitude >> 13) - ((127 - 15) << 10);
	if (magnitude >= 0x7c00)
		return -ERANGE;
	*ret_bits = sign | (uint16_t)magnitude;
	return 0;
}

int mk_narrow(float value, enum mm_dtype dtype, uint16_t *ret_bits)
{
	uint32_t bits;

	if (!isfinite(value))
		return -ERANGE;
	memcpy(&bits, &value, sizeof(bits));
	if (dtype == MM_DTYPE_F16)
		return narrow_f16(bits, ret_bits);
	bits += 0x7fff + (bits >> 16 & 1);
	if ((bits & 0x7f800000) == 0x7f800000)
		return -ERANGE;
	*ret_bits = (uint16_t)(bits >> 16);
	return 0;
}
