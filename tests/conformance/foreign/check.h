/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - what a foreign program requires; where that does not hold it prints the line and ends
 *
 * CHECK() and EXPECT() are for calls of the driver and need the toolkit's cuda.h, which the program
 * includes first.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)        EXPECT_NAMED(call, #call, CUDA_SUCCESS)
#define EXPECT(call, want) EXPECT_NAMED(call, #call, want)
#define EXPECT_NAMED(call, text, want)                                                       \
	do {                                                                                 \
		CUresult result_ = (call);                                                   \
		const char *name_ = "?";                                                     \
                                                                                             \
		if (result_ != (want)) {                                                     \
			cuGetErrorName(result_, &name_);                                     \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, text, name_); \
			exit(1);                                                             \
		}                                                                            \
	} while (0)
#define REQUIRE(holds)                                                              \
	do {                                                                        \
		if (!(holds)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds); \
			exit(1);                                                    \
		}                                                                   \
	} while (0)
