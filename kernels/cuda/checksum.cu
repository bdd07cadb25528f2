/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum of kernels/host/checksum.h. Eight threads share a piece of 4096 bytes, a lane each,
 * so a warp reads runs of 64 bytes of four pieces; a lane's loads do not depend on each other and
 * are unrolled by eight, its products do. The lanes are mixed in order by shuffles. Each warp adds
 * up the shares of its pieces and adds one sum to the result; the order of these integer additions
 * does not matter. Unaligned data, and the end of the last piece, are read byte by byte.
 * Bound: memory.
 */
#include "kernels/cuda/vector.h"
#include "kernels/host/checksum.h"
#include "kernels/host/checksum_mix.h"

/* Return: up to @left bytes from @p on, as a word padded with zeros. */
MM_DEVICE uint64_t checksum_word(const char *p, uint64_t left)
{
	uint64_t word = 0;

	for (uint32_t i = 0; i < 8 && i < left; i++)
		word |= (uint64_t)(uint8_t)p[i] << 8 * i;
	return word;
}

/* Return: this lane's hash of a piece of @n bytes. */
MM_DEVICE uint64_t checksum_lane(const char *p, uint32_t n, uint32_t lane)
{
	const uint32_t whole =
		mm_aligned(p, 8) ? n / (MM_CHECKSUM_LANES * 8) * (MM_CHECKSUM_LANES * 8) : 0;
	uint64_t hash = mm_checksum_begin(lane);

	MM_UNROLL(8)
	for (uint32_t i = lane * 8; i < whole; i += MM_CHECKSUM_LANES * 8)
		hash = mm_checksum_absorb(hash, *(const uint64_t *)(p + i));
	for (uint32_t i = whole; i < n; i += MM_CHECKSUM_LANES * 8) {
		const uint32_t at = i + lane * 8;

		hash = mm_checksum_absorb(hash, at < n ? checksum_word(p + at, n - at) : 0);
	}
	return hash;
}

MM_KERNEL(checksum, MM_FLAT_THREADS)
{
	const uint64_t pieces =
		(a.length_bytes + MM_CHECKSUM_PIECE_BYTES - 1) / MM_CHECKSUM_PIECE_BYTES;
	const uint64_t step = (uint64_t)gridDim.x * MM_CHECKSUM_PIECES;
	const uint32_t lane = threadIdx.x % MM_CHECKSUM_LANES;
	uint64_t total = blockIdx.x + threadIdx.x ? 0 : mm_checksum_mix(a.length_bytes);

	/* All threads of a warp do as many rounds as its first piece: they shuffle together. */
	for (uint64_t first = (uint64_t)blockIdx.x * MM_CHECKSUM_PIECES +
			      threadIdx.x / MM_WARP_THREADS * (MM_WARP_THREADS / MM_CHECKSUM_LANES);
	     first < pieces; first += step) {
		const uint64_t index = first + threadIdx.x % MM_WARP_THREADS / MM_CHECKSUM_LANES;
		const uint64_t at = index * MM_CHECKSUM_PIECE_BYTES;
		const uint64_t left = index < pieces ? a.length_bytes - at : 0;
		const uint32_t n =
			left < MM_CHECKSUM_PIECE_BYTES ? (uint32_t)left : MM_CHECKSUM_PIECE_BYTES;
		const uint64_t hash = checksum_lane(MM_AT(const char, a.data_va) + at, n, lane);
		uint64_t sum = n;

		MM_UNROLL(8)
		for (uint32_t i = 0; i < MM_CHECKSUM_LANES; i++)
			sum = mm_checksum_mix(sum ^
					      __shfl_sync(MM_WARP_ALL, hash, i, MM_CHECKSUM_LANES));
		if (lane == 0 && n)
			total += mm_checksum_share(sum, index);
	}
	MM_UNROLL(5)
	for (uint32_t i = MM_WARP_THREADS / 2; i > 0; i /= 2)
		total += __shfl_xor_sync(MM_WARP_ALL, total, i);
	if (threadIdx.x % MM_WARP_THREADS == 0 && total)
		atomicAdd(MM_AT(uint64_t, a.out_va), total);
}
