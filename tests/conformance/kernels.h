/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tests' own kernels (kernels.cu): nvcc makes a fatbin of them, the C compiler a module of the
 * software GPU, which runs the whole grid as one thread. Each takes one structure.
 */
#pragma once

#include <stdint.h>

/*
 * Runs until the word at @flag_va is @stop, or @ns have passed. Meanwhile it reads or writes the
 * @bytes at @va, over and over, or computes where there are none. Then adds its rounds to the
 * 64-bit word at @rounds_va, in device memory: not every link carries a device's atomic operations
 * to the host's. Any address but @rounds_va may be 0: then it does without.
 */
struct conf_loop_args {
	uint64_t started_va; /* a 32-bit word, set to 1 when the first thread begins */
	uint64_t flag_va;
	uint64_t va, bytes;
	uint64_t rounds_va;
	uint64_t ns;
	uint32_t stop;
	uint32_t writes;
};

/* 64-bit words of a pattern; no word is 0. */
struct conf_fill_args {
	uint64_t va, words, seed;
};

/*
 * Adds to the 64-bit words at @ret_va, in device memory, how many words are of the pattern, and how
 * many are not 0.
 */
struct conf_count_args {
	uint64_t va, words, seed, ret_va;
};
