/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate - words in registered memory that streams and processors wait for and write
 *
 * Concept: a line of 64 bytes for each, in a page that processes share. A gate's has two writers
 *          and two widths (Documentation/protocol.md): the low half is the stream's and xfer's, the
 *          high half mmd's.
 */
#pragma once

#include <stdint.h>

#define PAGE 4096u
#define LINE 64u

#define READY    UINT64_C(1)
#define DONE     UINT64_C(2)
#define EMPTY    UINT64_C(4)
#define RESIDENT (UINT64_C(1) << 32)
#define ABORT    (UINT64_C(1) << 33)
#define MAY_RUN  (READY | RESIDENT | ABORT)

static inline uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint64_t *line(void *page, unsigned int i)
{
	return (uint64_t *)page + i * (LINE / sizeof(uint64_t));
}
