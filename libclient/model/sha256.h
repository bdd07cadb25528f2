/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_sha256 - SHA-256 (FIPS 180-4), for the identity of a store
 *
 * Concept:   Init, update as often as needed, final. Inputs are a few kilobytes, so it is not
 *            optimised for speed.
 * Ownership: a plain value.
 * Threading: none shared.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MM_SHA256_BYTES 32

struct mm_sha256 {
	uint32_t state[8];
	uint64_t bytes;
	uint8_t block[64];
};

void mm_sha256_init(struct mm_sha256 *sha);
void mm_sha256_update(struct mm_sha256 *sha, const void *data, size_t bytes);
void mm_sha256_final(struct mm_sha256 *sha, uint8_t ret_digest[MM_SHA256_BYTES]);
