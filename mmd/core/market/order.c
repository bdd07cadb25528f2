/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/order.h"

#include <string.h>

#include "libclient/base/base.h"

/* Returns the end of the run that begins at @at: a part that is in order already. */
static uint32_t order_run_end(const struct mm_core *c, struct mm_c_tenant **item, uint32_t at,
			      uint32_t n, mm_c_before *before)
{
	for (at++; at < n && !before(c, item[at], item[at - 1]); at++)
		;
	return MM_MIN(at, n);
}

/*
 * Merges [first, mid) and [mid, end); of two of which neither precedes the other, the left is
 * first.
 */
static void order_merge(const struct mm_core *c, struct mm_c_tenant **item, uint32_t first,
			uint32_t mid, uint32_t end, mm_c_before *before)
{
	struct mm_c_tenant *left[MM_CORE_TENANTS_MAX];
	uint32_t n = mid - first, i = 0;

	memcpy(left, item + first, n * sizeof(struct mm_c_tenant *));
	while (i < n && mid < end)
		item[first++] = before(c, item[mid], left[i]) ? item[mid++] : left[i++];
	memcpy(item + first, left + i, (n - i) * sizeof(struct mm_c_tenant *));
}

void mm_c_sort(const struct mm_core *c, struct mm_c_tenant **item, uint32_t n, mm_c_before *before)
{
	uint32_t first, mid, end;

	do {
		for (first = 0; first < n; first = end) {
			mid = order_run_end(c, item, first, n, before);
			end = order_run_end(c, item, mid, n, before);
			if (mid < n)
				order_merge(c, item, first, mid, end, before);
		}
	} while (n && order_run_end(c, item, 0, n, before) < n);
}
