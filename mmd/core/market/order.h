/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order - sorts tenants
 *
 * Concept:   A stable merge sort of runs that are in order already. A function compares tenants.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Returns whether @a precedes @b. */
typedef bool mm_c_before(const struct mm_core *c, const struct mm_c_tenant *a,
			 const struct mm_c_tenant *b);
/* Sorts @n tenants; those of which neither precedes the other keep their order. */
void mm_c_sort(const struct mm_core *c, struct mm_c_tenant **item, uint32_t n, mm_c_before *before);
