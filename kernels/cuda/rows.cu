/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that take rows element by element. A block has one row, or MM_ROW_COLUMNS columns of it:
 * each thread eight, in two groups of four, whose loads are all under way before the first store.
 * They move each byte once, 16 bytes an instruction (8 of a 16-bit dtype) where the row's base
 * allows; there is no shared memory and no barrier. Bound: memory.
 */
#include "kernels/cuda/vector.h"
#include "kernels/host/exp.h"

#define ROW_GROUP (MM_ROW_THREADS * 4)

/*
 * A thread has columns c .. c + 3 and c + ROW_GROUP .. c + ROW_GROUP + 3, where c starts here and
 * goes on by row_step().
 */
MM_DEVICE uint32_t row_first(void)
{
	return blockIdx.y * MM_ROW_COLUMNS + threadIdx.x * 4;
}

MM_DEVICE uint32_t row_step(void)
{
	return gridDim.y * MM_ROW_COLUMNS;
}

MM_DEVICE void row_copy(float *out, const char *row, uint32_t n, uint32_t dtype)
{
	for (uint64_t c = row_first(); c < n; c += row_step()) {
		const float4 v = mm_load4(row, (uint32_t)c, n, dtype);
		const float4 w = mm_load4(row, (uint32_t)c + ROW_GROUP, n, dtype);

		mm_store4_f32(out, (uint32_t)c, n, v);
		mm_store4_f32(out, (uint32_t)c + ROW_GROUP, n, w);
	}
}

MM_DEVICE void row_add(float *x, const char *row, uint32_t n, uint32_t dtype)
{
	for (uint64_t c = row_first(); c < n; c += row_step()) {
		const float4 v = mm_load4(row, (uint32_t)c, n, dtype);
		const float4 w = mm_load4(row, (uint32_t)c + ROW_GROUP, n, dtype);
		const float4 x0 = mm_load4_f32(x, (uint32_t)c, n);
		const float4 x1 = mm_load4_f32(x, (uint32_t)c + ROW_GROUP, n);

		mm_store4_f32(x, (uint32_t)c, n, mm_add4(x0, v));
		mm_store4_f32(x, (uint32_t)c + ROW_GROUP, n, mm_add4(x1, w));
	}
}

MM_DEVICE const char *row_at(uint64_t table_va, uint64_t row, uint32_t n, uint32_t dtype)
{
	return MM_AT(const char, table_va) + row * n * mm_element_bytes(dtype);
}

MM_KERNEL(embed, MM_ROW_THREADS)
{
	const uint32_t t = blockIdx.x, id = MM_AT(const uint32_t, a.ids_va)[t];

	row_copy(MM_AT(float, a.out_va) + (uint64_t)t * a.hidden,
		 row_at(a.table_va, id, a.hidden, a.dtype), a.hidden, a.dtype);
}

MM_KERNEL(position_embed, MM_ROW_THREADS)
{
	const uint32_t t = blockIdx.x, position = MM_AT(const uint32_t, a.positions_va)[t];

	row_add(MM_AT(float, a.x_va) + (uint64_t)t * a.hidden,
		row_at(a.table_va, position + a.offset, a.hidden, a.dtype), a.hidden, a.dtype);
}

MM_KERNEL(gather, MM_ROW_THREADS)
{
	const uint32_t i = blockIdx.x, row = MM_AT(const uint32_t, a.rows_va)[i];

	row_copy(MM_AT(float, a.out_va) + (uint64_t)i * a.hidden,
		 row_at(a.x_va, row, a.hidden, MM_DTYPE_F32), a.hidden, MM_DTYPE_F32);
}

MM_KERNEL(bias_add, MM_ROW_THREADS)
{
	row_add(MM_AT(float, a.x_va) + (uint64_t)blockIdx.x * a.stride,
		MM_AT(const char, a.bias_va), a.n, a.dtype);
}

MM_DEVICE float swiglu(float gate, float up)
{
	return gate / (1.0f + mm_exp(-gate)) * up;
}

MM_DEVICE float4 swiglu4(float4 gate, float4 up)
{
	gate.x = swiglu(gate.x, up.x);
	gate.y = swiglu(gate.y, up.y);
	gate.z = swiglu(gate.z, up.z);
	gate.w = swiglu(gate.w, up.w);
	return gate;
}

MM_KERNEL(swiglu, MM_ROW_THREADS)
{
	const uint64_t r = blockIdx.x;
	const float *gate = MM_AT(const float, a.gate_va) + r * a.stride;
	const float *up = MM_AT(const float, a.up_va) + r * a.stride;
	float *out = MM_AT(float, a.out_va) + r * a.n;

	for (uint64_t at = row_first(); at < a.n; at += row_step()) {
		const uint32_t c = (uint32_t)at;
		const float4 g0 = mm_load4_f32(gate, c, a.n), u0 = mm_load4_f32(up, c, a.n);
		const float4 g1 = mm_load4_f32(gate, c + ROW_GROUP, a.n);
		const float4 u1 = mm_load4_f32(up, c + ROW_GROUP, a.n);

		mm_store4_f32(out, c, a.n, swiglu4(g0, u0));
		mm_store4_f32(out, c + ROW_GROUP, a.n, swiglu4(g1, u1));
	}
}

/* Blocks in plane 0 of the grid write keys, those in plane 1 values. */
MM_KERNEL(kv_write, MM_ROW_THREADS)
{
	const uint32_t t = blockIdx.x, n = a.kv.kv_dim;
	const uint32_t seq = MM_AT(const uint32_t, a.kv.seqs_va)[t];
	const uint32_t position = MM_AT(const uint32_t, a.kv.positions_va)[t];
	const uint32_t *table =
		MM_AT(const uint32_t, a.kv.tables_va) + (uint64_t)seq * a.kv.table_stride;
	const uint64_t block = (uint64_t)table[position / a.kv.block_tokens] * MM_KV_UNIT_BYTES;
	const uint64_t row = (uint64_t)(position % a.kv.block_tokens) * n;
	const float *x = MM_AT(const float, blockIdx.z ? a.v_va : a.k_va) + (uint64_t)t * a.stride;
	char *out = MM_AT(char, (blockIdx.z ? a.kv.v_va : a.kv.k_va) + block) +
		    row * mm_element_bytes(a.kv.dtype);

	for (uint64_t c = row_first(); c < n; c += row_step()) {
		const float4 v = mm_load4_f32(x, (uint32_t)c, n);
		const float4 w = mm_load4_f32(x, (uint32_t)c + ROW_GROUP, n);

		mm_store4(out, (uint32_t)c, n, a.kv.dtype, v);
		mm_store4(out, (uint32_t)c + ROW_GROUP, n, a.kv.dtype, w);
	}
}

/* Rows beyond the last one become zeros. */
MM_KERNEL(narrow, MM_ROW_THREADS)
{
	const uint32_t r = blockIdx.x, n = r < a.rows ? a.n : 0;
	const float *x = MM_AT(const float, a.x_va) + (uint64_t)r * a.stride;
	uint16_t *out = MM_AT(uint16_t, a.out_va) + (uint64_t)r * a.n;

	for (uint64_t c = row_first(); c < a.n; c += row_step()) {
		const float4 v = mm_load4_f32(x, (uint32_t)c, n);
		const float4 w = mm_load4_f32(x, (uint32_t)c + ROW_GROUP, n);

		mm_store4_narrow(out, (uint32_t)c, a.n, a.dtype, v);
		mm_store4_narrow(out, (uint32_t)c + ROW_GROUP, a.n, a.dtype, w);
	}
}
