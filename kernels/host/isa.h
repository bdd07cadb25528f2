/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isa - the hot kernels, compiled once per instruction set
 *
 * Concept:    gemm.c and attention.c are compiled three times, with MM_ISA as a suffix;
 *             mm_isa_best() picks at run time. All give the same bits (lanes.h); the choice affects
 *             only speed.
 * Threading:  pure.
 */
#pragma once

#include "kernels/args/gemm.h"

struct mm_isa {
	const char *name;
	void (*gemm)(const struct mm_gemm_args *a);
	void (*attention)(const struct mm_paged_attention_args *a);
};

#define MM_ISA_PASTE2(name, isa) name##_##isa
#define MM_ISA_PASTE(name, isa)  MM_ISA_PASTE2(name, isa)
#define MM_ISA_NAME(name)        MM_ISA_PASTE(name, MM_ISA)

#define MM_ISA_DECLARE(isa)                                   \
	void mm_isa_gemm_##isa(const struct mm_gemm_args *a); \
	void mm_isa_attention_##isa(const struct mm_paged_attention_args *a);

MM_ISA_DECLARE(plain)
MM_ISA_DECLARE(avx2)
MM_ISA_DECLARE(avx512)

/**
 * mm_isa_nth() - the variants that this processor can run
 * @n: 0 is the variant for all processors
 *
 * Return: the variant; NULL: there are no more.
 */
const struct mm_isa *mm_isa_nth(unsigned int n);

/* Return: the fastest variant that this processor can run. */
const struct mm_isa *mm_isa_best(void);
