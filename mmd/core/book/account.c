/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/account.h"

#include "libclient/base/base.h"

struct mm_account *mm_account_find(struct mm_account *table, uint32_t n, uint64_t key)
{
	for (uint32_t i = 0; i < n; i++)
		if (table[i].used && table[i].key == key)
			return &table[i];
	return NULL;
}

struct mm_account *mm_account_open(struct mm_account *table, uint32_t max, uint64_t key,
				   const struct mm_core_quota *quota)
{
	for (uint32_t i = 0; i < max; i++) {
		if (table[i].used)
			continue;
		table[i] = (struct mm_account){
			.used = true, .key = key, .domain = i, .quota = *quota
		};
		return &table[i];
	}
	return NULL;
}

uint64_t mm_account_use(const struct mm_account *a)
{
	return (uint64_t)a->charged + a->quarantined;
}

uint64_t mm_account_room(const struct mm_account *a)
{
	uint64_t use = mm_account_use(a);

	return use >= a->quota.max_pages ? 0 : a->quota.max_pages - use;
}

uint64_t mm_account_unused_min(const struct mm_account *a)
{
	uint64_t use = mm_account_use(a);

	return a->used && use < a->quota.min_pages ? a->quota.min_pages - use : 0;
}

int mm_account_charge(struct mm_account *a, uint32_t pages)
{
	if (mm_account_room(a) < pages)
		return MM_E_QUOTA;
	a->charged += pages;
	return 0;
}

void mm_account_uncharge(struct mm_account *a, uint32_t pages)
{
	mm_assert(a->charged >= pages);
	a->charged -= pages;
}

void mm_account_quarantine(struct mm_account *a, bool charged)
{
	if (charged)
		mm_account_uncharge(a, 1);
	a->quarantined++;
}

void mm_account_unquarantine(struct mm_account *a)
{
	mm_assert(a->quarantined);
	a->quarantined--;
}

void mm_account_serve(struct mm_account *a, uint32_t pages, uint64_t *served)
{
	a->served += (uint64_t)pages * MM_WEIGHT_MAX / a->quota.weight;
	*served = MM_MAX(*served, a->served);
}

void mm_account_wait(struct mm_account *a, uint64_t served)
{
	a->served = MM_MAX(a->served, served);
}
