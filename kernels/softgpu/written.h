/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_written - when streams wrote the values that other streams wait for, in timed mode
 *
 * Concept:    a wait that finds its value there cannot tell since when. Where a stream wrote it, in
 *             whichever process, the time is known exactly: a table in the shared timeline has, for
 *             a word, what was written to it last, and when. Who finds another value there than the
 *             table says (the host wrote it, or two words share a place) knows nothing.
 * Words:      32 bits, named by the file behind them and the offset in it, so that processes that
 *             map it at different addresses mean the same.
 * Threading:  safe from any thread; the table is shared by processes, and not believed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SG_WRITTEN_WORDS 1024

struct sg_written { /* atomic, all of it */
	uint64_t key;
	uint64_t value;
	uint64_t time_ns;
};

/* Before the value itself is there. */
void sg_written_put(unsigned int device, uint64_t va, uint64_t value, bool is_64, uint64_t time_ns);

/* When what was found there was written; 0: not known. Host code: mm/softgpu.h. */
uint64_t sg_written_when(unsigned int device, uint64_t va, uint64_t value, bool is_64);
