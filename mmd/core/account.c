/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/account.h"

#include "mm/base.h"

struct mm_account *mm_account_find(struct mm_account *table, uint64_t key)
{
	for (uint32_t i = 0; i < MM_ACCOUNTS_MAX; i++)
		if (table[i].used && table[i].key == key)
			return &table[i];
	return NULL;
}

struct mm_account *mm_account_open(struct mm_account *table, uint64_t key, uint64_t max_pages)
{
	for (uint32_t i = 0; i < MM_ACCOUNTS_MAX; i++) {
		if (table[i].used)
			continue;
		table[i] = (struct mm_account){ .used = true, .key = key, .max_pages = max_pages };
		return &table[i];
	}
	return NULL;
}

uint64_t mm_account_room(const struct mm_account *a)
{
	uint64_t held = (uint64_t)a->charged + a->quarantined;

	return held >= a->max_pages ? 0 : a->max_pages - held;
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
