/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order - tenants sorted by whatever decides
 *
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

typedef bool mm_c_before(const struct mm_core *c, const struct mm_c_tenant *a,
			 const struct mm_c_tenant *b);
/* Sorts @n tenants; those of whom neither is before the other stay as they are. */
void mm_c_sort(const struct mm_core *c, struct mm_c_tenant **item, uint32_t n, mm_c_before *before);
