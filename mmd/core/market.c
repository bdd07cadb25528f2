/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market.h"

#include <stdlib.h>

struct mm_market *mm_market_create(uint32_t tenants)
{
	struct mm_market *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->wish = calloc(tenants, sizeof(*m->wish));
	if (m->wish)
		return m;
	mm_market_destroy(m);
	return NULL;
}

void mm_market_destroy(struct mm_market *m)
{
	if (!m)
		return;
	free(m->wish);
	free(m);
}
