/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checksum - checks that a tensor's bytes on the device are those of its file
 *
 * Concept:    64 bits, not cryptographic: it finds wrong, stale or torn layers, not forgeries.
 *             Pieces of MM_CHECKSUM_PIECE_BYTES are hashed separately, so that a device can do them
 *             in parallel, mixed with their index and added up.
 * Threading:  pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MM_CHECKSUM_PIECE_BYTES 4096u

/**
 * mm_checksum_bytes() - checksum of a range
 * @data:         any alignment
 * @length_bytes: 0 is allowed
 *
 * Return: the checksum.
 */
uint64_t mm_checksum_bytes(const void *data, size_t length_bytes);
