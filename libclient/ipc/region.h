/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region - a sealed memfd and our mapping of it
 *
 * Concept:   Memory that two processes share. The size is sealed at birth, so no peer can truncate
 *            it under the other (SIGBUS); MM_REGION_READONLY also seals against new writable
 *            mappings, so that the MMU, not goodwill, keeps the peer from writing.
 * Ownership: struct mm_region owns its fd and its mapping; mm_region_done() accepts MM_REGION_NULL
 *            and half-built ones.
 * Threading: none of its own.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

struct mm_region {
	void *base;
	size_t size_bytes;
	int fd;
};
#define MM_REGION_NULL ((struct mm_region){ .fd = -EBADF })

enum mm_region_kind {
	MM_REGION_SHARED,   /* a peer that gets the fd may write */
	MM_REGION_READONLY, /* only the mapping made here can be written, by its creator */
};

/**
 * mm_region_create() - a new zeroed memfd, mapped writable here, then sealed
 * @size_bytes: not 0
 * @kind:       what a peer may do
 * @name:       shown in /proc; static
 * @ret_region: written only on success; give back with mm_region_done()
 *
 * Return: 0; -ENOMEM, -EMFILE, -ENFILE, -EINVAL.
 */
int mm_region_create(size_t size_bytes, enum mm_region_kind kind, const char *name,
		     struct mm_region *ret_region);

struct stat;

/* How much of a file must be mapped to map @bytes: whole huge pages, where it is made of those. */
size_t mm_region_map_bytes(const struct stat *st, size_t bytes);

/**
 * mm_region_open() - map a region that a peer created
 * @fd:         taken over, also on failure
 * @size_bytes: to be mapped; the file must be at least as long and sealed against shrinking
 * @writable:   map for writing
 * @ret_region: written only on success; give back with mm_region_done(). Its size is @size_bytes,
 *              rounded up where the file is made of huge pages
 *
 * Return: 0; -EPROTO not a memfd of that size that cannot shrink; -EPERM, -EACCES it cannot be
 * written; -ENOMEM.
 */
int mm_region_open(int fd, size_t size_bytes, bool writable, struct mm_region *ret_region);

void mm_region_done(struct mm_region *region);
