/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fdtab - a table of named fds
 *
 * Concept:   An open-addressed hash table from struct mm_held_name to an fd, with linear probing.
 *            It grows before it is three quarters full, and never shrinks.
 * Ownership: the table owns its fds; mm_fdtab_done() closes them.
 * Threading: none of its own.
 */
#pragma once

#include <stddef.h>

#include "mmd/common/proto.h"

struct mm_fdtab_entry {
	struct mm_held_name name; /* kind 0 = free */
	int fd;
};

struct mm_fdtab {
	struct mm_fdtab_entry *entry;
	size_t capacity; /* a power of two, or 0 */
	size_t count;
};

void mm_fdtab_init(struct mm_fdtab *tab);
void mm_fdtab_done(struct mm_fdtab *tab);

/**
 * mm_fdtab_put() - name an fd
 * @tab:     any
 * @name:    its kind is not 0
 * @fd:      taken over in any case
 * @ret_old: what had the name before, the caller's now; -1: nothing had it
 *
 * Return: 0; -ENOMEM: @fd was closed.
 */
int mm_fdtab_put(struct mm_fdtab *tab, struct mm_held_name name, int fd, int *ret_old);

/* The fd of a name, still the table's; -1: there is none. */
int mm_fdtab_find(const struct mm_fdtab *tab, struct mm_held_name name);

/* Removes a name, and returns its fd, which is the caller's now; -1: there is none. */
int mm_fdtab_take(struct mm_fdtab *tab, struct mm_held_name name);

/*
 * The next entry from *@at on, which begins with 0; NULL: there is none. The table must not change
 * between two calls.
 */
const struct mm_fdtab_entry *mm_fdtab_next(const struct mm_fdtab *tab, size_t *at);
