/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/fdtab.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"

#define FIRST_CAPACITY 64

void mm_fdtab_init(struct mm_fdtab *tab)
{
	*tab = (struct mm_fdtab){ 0 };
}

void mm_fdtab_done(struct mm_fdtab *tab)
{
	for (size_t i = 0; i < tab->capacity; i++) {
		if (tab->entry[i].name.kind)
			mm_close_fd(&tab->entry[i].fd);
	}
	free(tab->entry);
	mm_fdtab_init(tab);
}

static bool names_are_equal(const struct mm_held_name *a, const struct mm_held_name *b)
{
	return a->kind == b->kind && a->index == b->index && a->id == b->id;
}

/* The entry where a search for @name begins. The factors are odd, and random but for that. */
static size_t name_home(const struct mm_fdtab *tab, const struct mm_held_name *name)
{
	uint64_t hash = name->id * UINT64_C(0x9e3779b97f4a7c15);

	hash ^= ((uint64_t)name->kind << 32 | name->index) * UINT64_C(0xc2b2ae3d27d4eb4f);
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	return (size_t)(hash >> 32) & (tab->capacity - 1);
}

/* The entry that has @name, or the free one where it would be. The table has a free entry. */
static struct mm_fdtab_entry *slot_find(const struct mm_fdtab *tab, const struct mm_held_name *name)
{
	size_t i = name_home(tab, name);

	while (tab->entry[i].name.kind && !names_are_equal(&tab->entry[i].name, name))
		i = (i + 1) & (tab->capacity - 1);
	return &tab->entry[i];
}

static int fdtab_grow(struct mm_fdtab *tab)
{
	struct mm_fdtab more = { .capacity = tab->capacity ? 2 * tab->capacity : FIRST_CAPACITY,
				 .count = tab->count };

	if (mm_fault("fdtab.grow"))
		return -ENOMEM;
	more.entry = calloc(more.capacity, sizeof(*more.entry));
	if (!more.entry)
		return -ENOMEM;
	for (size_t i = 0; i < tab->capacity; i++) {
		if (tab->entry[i].name.kind)
			*slot_find(&more, &tab->entry[i].name) = tab->entry[i];
	}
	free(tab->entry);
	*tab = more;
	return 0;
}

int mm_fdtab_put(struct mm_fdtab *tab, struct mm_held_name name, int fd, int *ret_old)
{
	struct mm_fdtab_entry *entry;
	int r = 0;

	mm_assert(name.kind);
	if (tab->count >= tab->capacity / 4 * 3)
		r = fdtab_grow(tab);
	if (r < 0) {
		mm_close_fd(&fd);
		return r;
	}
	entry = slot_find(tab, &name);
	*ret_old = entry->name.kind ? entry->fd : -1;
	tab->count += !entry->name.kind;
	*entry = (struct mm_fdtab_entry){ .name = name, .fd = fd };
	return 0;
}

int mm_fdtab_find(const struct mm_fdtab *tab, struct mm_held_name name)
{
	const struct mm_fdtab_entry *entry = tab->capacity ? slot_find(tab, &name) : NULL;

	return entry && entry->name.kind ? entry->fd : -1;
}

/*
 * Frees entry @hole. Each entry behind it, up to the next free one, moves into the hole if a search
 * that begins at its home would otherwise end there.
 */
static void entry_free(struct mm_fdtab *tab, size_t hole)
{
	const size_t mask = tab->capacity - 1;

	for (size_t i = (hole + 1) & mask; tab->entry[i].name.kind; i = (i + 1) & mask) {
		size_t home = name_home(tab, &tab->entry[i].name);

		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		tab->entry[hole] = tab->entry[i];
		hole = i;
	}
	tab->entry[hole] = (struct mm_fdtab_entry){ .fd = -1 };
	tab->count--;
}

int mm_fdtab_take(struct mm_fdtab *tab, struct mm_held_name name)
{
	struct mm_fdtab_entry *entry = tab->capacity ? slot_find(tab, &name) : NULL;
	int fd;

	if (!entry || !entry->name.kind)
		return -1;
	fd = entry->fd;
	entry_free(tab, (size_t)(entry - tab->entry));
	return fd;
}

const struct mm_fdtab_entry *mm_fdtab_next(const struct mm_fdtab *tab, size_t *at)
{
	while (*at < tab->capacity) {
		const struct mm_fdtab_entry *entry = &tab->entry[(*at)++];

		if (entry->name.kind)
			return entry;
	}
	return NULL;
}
