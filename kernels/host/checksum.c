/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/checksum.h"
#include "kernels/host/checksum_mix.h"

#include <string.h>

#define LANES MM_CHECKSUM_LANES

static void lanes_absorb(uint64_t lanes[LANES], const char *p)
{
	uint64_t words[LANES];

	memcpy(words, p, sizeof(words));
	for (unsigned int i = 0; i < LANES; i++)
		lanes[i] = mm_checksum_absorb(lanes[i], words[i]);
}

static uint64_t piece_sum(const char *p, size_t n)
{
	uint64_t lanes[LANES], sum = n;
	char tail[LANES * 8] = { 0 };

	for (unsigned int i = 0; i < LANES; i++)
		lanes[i] = mm_checksum_begin(i);
	for (; n >= sizeof(tail); n -= sizeof(tail), p += sizeof(tail))
		lanes_absorb(lanes, p);
	if (n) {
		memcpy(tail, p, n);
		lanes_absorb(lanes, tail);
	}
	for (unsigned int i = 0; i < LANES; i++)
		sum = mm_checksum_mix(sum ^ lanes[i]);
	return sum;
}

uint64_t mm_checksum_bytes(const void *data, size_t length_bytes)
{
	const char *p = data;
	uint64_t sum = mm_checksum_mix(length_bytes), index = 0;

	while (length_bytes) {
		const size_t n = length_bytes < MM_CHECKSUM_PIECE_BYTES ? length_bytes
									: MM_CHECKSUM_PIECE_BYTES;

		sum += mm_checksum_share(piece_sum(p, n), index++);
		p += n;
		length_bytes -= n;
	}
	return sum;
}
