/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_written - when streams wrote the values that other streams wait for, in timed mode
 *
 * Concept:    a wait that finds its value in memory does not see when it was written. Where a
 *             stream wrote the value, in any process, the time is known exactly: a table in the
 *             shared timeline has, for a word, its last value and when that was written. If the
 *             word holds another value than the table (the host wrote it, or two words share a
 *             place), the time is unknown.
 * Words:      32 bits, named by the file behind them and the offset in it, so that processes that
 *             map it at different addresses have one name for it.
 * Threading:  safe from any thread; the table is shared by processes, and its content not trusted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SG_WRITTEN_WORDS 1024

struct sg_written { /* all fields are atomic */
	uint64_t key;
	uint64_t value;
	uint64_t time_ns;
};

/* Records a value before it is written. */
void sg_written_put(unsigned int device, uint64_t va, uint64_t value, bool is_64, uint64_t time_ns);

/* Return: when the value that was found was written; 0: unknown. For host code see mm/softgpu.h. */
uint64_t sg_written_when(unsigned int device, uint64_t va, uint64_t value, bool is_64);
