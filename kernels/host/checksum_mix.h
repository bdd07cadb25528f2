/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checksum_mix - the arithmetic of kernels/host/checksum.h, for the host's form and the device's
 *
 * Concept:   a piece has MM_CHECKSUM_LANES lanes; each takes every MM_CHECKSUM_LANES-th word of it,
 *            the last words padded with zeros, and then they are mixed in order.
 * Threading: pure.
 */
#pragma once

#include <stdint.h>

#include "kernels/host/both.h"

#define MM_CHECKSUM_LANES 8u

/*
 * Odd constants with well spread bits: the fractions of the golden ratio and of sqrt(2), made odd.
 */
#define MM_CHECKSUM_MUL_LANE  UINT64_C(0x9e3779b97f4a7c15)
#define MM_CHECKSUM_MUL_FINAL UINT64_C(0x6a09e667f3bcc909)

MM_BOTH uint64_t mm_checksum_mix(uint64_t x)
{
	x = (x ^ (x >> 32)) * MM_CHECKSUM_MUL_FINAL;
	x = (x ^ (x >> 29)) * MM_CHECKSUM_MUL_LANE;
	return x ^ (x >> 32);
}

/* Return: the value of a lane before its first word. */
MM_BOTH uint64_t mm_checksum_begin(uint32_t lane)
{
	return MM_CHECKSUM_MUL_FINAL * (lane + 1);
}

MM_BOTH uint64_t mm_checksum_absorb(uint64_t lane, uint64_t word)
{
	/* The rotation carries high bits down: a product only moves them up. */
	lane = (lane ^ word) * MM_CHECKSUM_MUL_LANE;
	return lane << 31 | lane >> 33;
}

/* Return: the number that piece @index adds to the checksum. */
MM_BOTH uint64_t mm_checksum_share(uint64_t piece, uint64_t index)
{
	return mm_checksum_mix(piece ^ (index + 1) * MM_CHECKSUM_MUL_LANE);
}
