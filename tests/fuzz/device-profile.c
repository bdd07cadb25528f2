/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of device profiles: times computed from any profile must be valid times. */
#include "kernels/timing/cost.h"
#include "tests/fuzz/input.h"

#define LARGE      (UINT64_C(1) << 50)
#define LONGEST_NS UINT64_C(2000000000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	const struct mm_cost costs[] = { { 0, 0 }, { 1, 1 }, { 1e18, 0 }, { 0, 1e24 } };
	char path[INPUT_PATH_BYTES], err[MM_PROFILE_ERROR_BYTES] = "";
	struct mm_profile p = { .memory_bytes = 1 };

	input_path(data, size_bytes, path);
	if (mm_profile_load(path, &p, err, sizeof(err)) < 0) {
		mm_assert(err[0] && p.memory_bytes == 1);
		return 0;
	}
	mm_assert(!err[0] && p.memory_bytes >= UINT64_C(16) << 20);
	for (size_t i = 0; i < MM_ARRAY_SIZE(costs); i++) {
		const uint64_t ns = mm_cost_ns(&p, &costs[i]);

		mm_assert(ns >= p.kernel_ns && ns < LONGEST_NS);
	}
	for (int both = 0; both < 2; both++) {
		mm_assert(mm_cost_copy_ns(&p, MM_LINK_H2D, LARGE, both) < LONGEST_NS);
		mm_assert(mm_cost_copy_ns(&p, MM_LINK_D2H, 1, both) >= p.copy_ns);
	}
	mm_assert(mm_cost_slowdown(&p, 1, 0) >= 1 && mm_cost_slowdown(&p, 0, 1) >= 1);
	mm_assert(p.rho > 0 && p.rho <= 1);
	return 0;
}
