/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_of_test - small kernels that try the emulation, for cuda-emulate */
#pragma once

#include "kernels/cuda/device.h"

#define TEST_THREADS 96u

enum test_what {
	TEST_RIGHT,
	TEST_NO_FIRST_BARRIER,
	TEST_NO_SECOND_BARRIER,
	TEST_BEYOND,
	TEST_ENDED,
	TEST_TWO_BARRIERS,
	TEST_LANE_ENDED,
	TEST_NOT_IN_MASK,
	TEST_OUTSIDE_OF_MASK,
	TEST_NO_SUCH_LANE,
	TEST_FOR_EVER,
};

struct mm_test_args {
	uint64_t in_va;
	uint64_t out_va;
	uint32_t what;
	uint32_t reserved;
};

#define mm_test_reverse_args   mm_test_args
#define mm_test_warp_swap_args mm_test_args
#define mm_test_lanes_args     mm_test_args
#define mm_test_places_args    mm_test_args
#define mm_test_dynamic_args   mm_test_args
#define mm_test_wrong_args     mm_test_args
