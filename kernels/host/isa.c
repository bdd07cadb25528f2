/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/isa.h"

#include <stdbool.h>
#include <stddef.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct mm_isa isas[] = {
	{ "plain", mm_isa_gemm_plain, mm_isa_attention_plain },
#if defined(__x86_64__)
	{ "avx2", mm_isa_gemm_avx2, mm_isa_attention_avx2 },
	{ "avx512", mm_isa_gemm_avx512, mm_isa_attention_avx512 },
#endif
};

#if defined(__x86_64__)
/* Clang 14 does not know "f16c" in __builtin_cpu_supports(). */
static bool has_f16c(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

static bool isa_runs(unsigned int n)
{
#if defined(__x86_64__)
	if (n == 1)
		return __builtin_cpu_supports("avx2") && has_f16c();
	if (n == 2)
		return isa_runs(1) && __builtin_cpu_supports("avx512f") &&
		       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
	return n == 0;
}

const struct mm_isa *mm_isa_nth(unsigned int n)
{
	return n < sizeof(isas) / sizeof(isas[0]) && isa_runs(n) ? &isas[n] : NULL;
}

const struct mm_isa *mm_isa_best(void)
{
	const struct mm_isa *best = &isas[0];

	for (unsigned int n = 1; mm_isa_nth(n); n++)
		best = mm_isa_nth(n);
	return best;
}
