/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/told.h"

#include <stddef.h>

#include "libclient/base/base.h"

/* The entries of a kind; *@ret_n: how many. */
static const uint64_t *told_entries(const struct mm_told_kept *told, enum mm_told_kind kind,
				    size_t *ret_n)
{
	*ret_n = kind == MM_TOLD_STORE ? MM_TOLD_STORES : MM_TOLD_TENANTS;
	if (kind == MM_TOLD_STORE)
		return told->store;
	return kind == MM_TOLD_SWAP ? told->swap : told->tenant;
}

/* Where @entry is noted, or NULL. */
static uint64_t *told_find(const struct mm_told_kept *told, enum mm_told_kind kind, uint64_t entry)
{
	size_t n;
	const uint64_t *entries = told_entries(told, kind, &n);

	for (size_t i = 0; i < n; i++)
		if (entries[i] == entry)
			return (uint64_t *)&entries[i];
	return NULL;
}

bool mm_told_has(const struct mm_told_kept *told, enum mm_told_kind kind, uint64_t id)
{
	return told_find(told, kind, id + 1);
}

bool mm_told_has_room(const struct mm_told_kept *told, enum mm_told_kind kind)
{
	return told_find(told, kind, 0);
}

void mm_told_add(struct mm_told_kept *told, enum mm_told_kind kind, uint64_t id)
{
	uint64_t *entry = told_find(told, kind, 0);

	if (mm_told_has(told, kind, id))
		return;
	mm_assert(entry);
	__atomic_store_n(entry, id + 1, __ATOMIC_RELEASE);
}

void mm_told_remove(struct mm_told_kept *told, enum mm_told_kind kind, uint64_t id)
{
	uint64_t *entry = told_find(told, kind, id + 1);

	if (entry)
		__atomic_store_n(entry, 0, __ATOMIC_RELEASE);
}

bool mm_told_next(const struct mm_told_kept *told, enum mm_told_kind kind, size_t *at,
		  uint64_t *ret_id)
{
	size_t n;
	const uint64_t *entries = told_entries(told, kind, &n);

	while (*at < n) {
		uint64_t entry = entries[(*at)++];

		if (entry) {
			*ret_id = entry - 1;
			return true;
		}
	}
	return false;
}
