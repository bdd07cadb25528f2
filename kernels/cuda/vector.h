/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector - four elements at a time, whatever their alignment
 *
 * Concept:    rows have any length, stride and base, so each access checks the address whether four
 *             neighbours can be loaded as one. The result is the same for all threads of a row,
 *             except for its last elements, which are loaded one by one. Elements beyond the row
 *             read as zeros and are not stored.
 * Threading:  a kernel's.
 */
#pragma once

#include "kernels/cuda/device.h"

MM_DEVICE uint32_t mm_element_bytes(uint32_t dtype)
{
	return dtype == MM_DTYPE_F32 ? 4 : 2;
}

MM_DEVICE int mm_aligned(const void *p, uint32_t bytes)
{
	return ((uintptr_t)p & (bytes - 1)) == 0;
}

MM_DEVICE float mm_widen(uint16_t h, uint32_t dtype)
{
	return dtype == MM_DTYPE_F16 ? mm_widen_f16(h) : mm_widen_bf16(h);
}

MM_DEVICE uint16_t mm_round(float v, uint32_t dtype)
{
	return dtype == MM_DTYPE_F16 ? mm_round_f16(v) : mm_round_bf16(v);
}

MM_DEVICE float mm_load1(const char *row, uint32_t i, uint32_t dtype)
{
	if (dtype == MM_DTYPE_F32)
		return ((const float *)row)[i];
	return mm_widen(((const uint16_t *)row)[i], dtype);
}

MM_DEVICE float4 mm_widen4(uint2 h, uint32_t dtype)
{
	float4 v;

	v.x = mm_widen((uint16_t)h.x, dtype);
	v.y = mm_widen((uint16_t)(h.x >> 16), dtype);
	v.z = mm_widen((uint16_t)h.y, dtype);
	v.w = mm_widen((uint16_t)(h.y >> 16), dtype);
	return v;
}

/* Return: elements i .. i + 3 of a row of @n, widened. */
MM_DEVICE float4 mm_load4(const char *row, uint32_t i, uint32_t n, uint32_t dtype)
{
	const char *p = row + (uint64_t)i * mm_element_bytes(dtype);
	const uint32_t left = i < n ? n - i : 0;
	float4 v;

	if (left >= 4 && dtype == MM_DTYPE_F32 && mm_aligned(p, 16))
		return *(const float4 *)p;
	if (left >= 4 && dtype != MM_DTYPE_F32 && mm_aligned(p, 8))
		return mm_widen4(*(const uint2 *)p, dtype);
	v.x = left > 0 ? mm_load1(p, 0, dtype) : 0.0f;
	v.y = left > 1 ? mm_load1(p, 1, dtype) : 0.0f;
	v.z = left > 2 ? mm_load1(p, 2, dtype) : 0.0f;
	v.w = left > 3 ? mm_load1(p, 3, dtype) : 0.0f;
	return v;
}

MM_DEVICE float4 mm_load4_f32(const float *row, uint32_t i, uint32_t n)
{
	return mm_load4((const char *)row, i, n, MM_DTYPE_F32);
}

MM_DEVICE void mm_store4_f32(float *row, uint32_t i, uint32_t n, float4 v)
{
	const uint32_t left = i < n ? n - i : 0;

	if (left >= 4 && mm_aligned(row + i, 16)) {
		*(float4 *)(row + i) = v;
		return;
	}
	if (left > 0)
		row[i] = v.x;
	if (left > 1)
		row[i + 1] = v.y;
	if (left > 2)
		row[i + 2] = v.z;
	if (left > 3)
		row[i + 3] = v.w;
}

/* Stores elements i .. i + 3 of a row of @n in a dtype of 16 bits, rounded. */
MM_DEVICE void mm_store4_narrow(uint16_t *row, uint32_t i, uint32_t n, uint32_t dtype, float4 v)
{
	const uint16_t x = mm_round(v.x, dtype), y = mm_round(v.y, dtype);
	const uint16_t z = mm_round(v.z, dtype), w = mm_round(v.w, dtype);
	const uint32_t left = i < n ? n - i : 0;

	if (left >= 4 && mm_aligned(row + i, 8)) {
		uint2 h;

		h.x = x | (uint32_t)y << 16;
		h.y = z | (uint32_t)w << 16;
		*(uint2 *)(row + i) = h;
		return;
	}
	if (left > 0)
		row[i] = x;
	if (left > 1)
		row[i + 1] = y;
	if (left > 2)
		row[i + 2] = z;
	if (left > 3)
		row[i + 3] = w;
}

MM_DEVICE void mm_store4(char *row, uint32_t i, uint32_t n, uint32_t dtype, float4 v)
{
	if (dtype == MM_DTYPE_F32)
		mm_store4_f32((float *)row, i, n, v);
	else
		mm_store4_narrow((uint16_t *)row, i, n, dtype, v);
}

MM_DEVICE float4 mm_add4(float4 a, float4 b)
{
	a.x += b.x;
	a.y += b.y;
	a.z += b.z;
	a.w += b.w;
	return a;
}
