/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/checksum.h"

#include <string.h>

#define LANES 8u

/* Odd constants with well spread bits: the fractions of the golden ratio and of sqrt(2), made odd. */
#define MUL_LANE  UINT64_C(0x9e3779b97f4a7c15)
#define MUL_FINAL UINT64_C(0x6a09e667f3bcc909)

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 32)) * MUL_FINAL;
	x = (x ^ (x >> 29)) * MUL_LANE;
	return x ^ (x >> 32);
}

static void absorb(uint64_t lanes[LANES], const char *p)
{
	uint64_t words[LANES];

	memcpy(words, p, sizeof(words));
	for (unsigned int i = 0; i < LANES; i++) {
		/* The rotation carries high bits down: a product alone only moves them up. */
		lanes[i] = (lanes[i] ^ words[i]) * MUL_LANE;
		lanes[i] = lanes[i] << 31 | lanes[i] >> 33;
	}
}

static uint64_t piece(const char *p, size_t n)
{
	uint64_t lanes[LANES], sum = n;
	char tail[LANES * 8] = { 0 };

	for (unsigned int i = 0; i < LANES; i++)
		lanes[i] = MUL_FINAL * (i + 1);
	for (; n >= sizeof(tail); n -= sizeof(tail), p += sizeof(tail))
		absorb(lanes, p);
	if (n) {
		memcpy(tail, p, n);
		absorb(lanes, tail);
	}
	for (unsigned int i = 0; i < LANES; i++)
		sum = mix(sum ^ lanes[i]);
	return sum;
}

uint64_t mm_checksum_bytes(const void *data, size_t length_bytes)
{
	const char *p = data;
	uint64_t sum = mix(length_bytes), index = 0;

	while (length_bytes) {
		const size_t n = length_bytes < MM_CHECKSUM_PIECE_BYTES ? length_bytes
									: MM_CHECKSUM_PIECE_BYTES;

		sum += mix(piece(p, n) ^ ++index * MUL_LANE);
		p += n;
		length_bytes -= n;
	}
	return sum;
}
