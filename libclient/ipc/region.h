/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region - a sealed memfd and our mapping of it
 *
 * Concept:   Memory that two processes share. The size is sealed at creation, so no peer can
 *            truncate it under the other (SIGBUS). MM_REGION_READONLY also seals against new
 *            writable mappings, so that the MMU keeps the peer from writing.
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
	MM_REGION_READONLY, /* only the mapping of the creator can be written */
};

/**
 * mm_region_create() - create a zeroed memfd, map it writable, seal it
 * @size_bytes: not 0
 * @kind:       whether a peer may write
 * @name:       name shown in /proc
 * @ret_region: written only on success; undo with mm_region_done()
 *
 * Return: 0; -ENOMEM, -EMFILE, -ENFILE, -EINVAL.
 */
int mm_region_create(size_t size_bytes, enum mm_region_kind kind, const char *name,
		     struct mm_region *ret_region);

struct stat;

/* Bytes of a file to be mapped for @bytes: whole huge pages, if the file is made of those. */
size_t mm_region_map_bytes(const struct stat *st, size_t bytes);

/**
 * mm_region_open() - map a region that a peer created
 * @fd:         taken over, also on failure
 * @size_bytes: bytes to map; the file must be at least as long and sealed against shrinking
 * @writable:   map for writing
 * @ret_region: written only on success; undo with mm_region_done(). Its size is @size_bytes,
 *              rounded up if the file is made of huge pages
 *
 * Return: 0; -EPROTO not a memfd of that size that cannot shrink; -EPERM, -EACCES it may not be
 * written; -ENOMEM.
 */
int mm_region_open(int fd, size_t size_bytes, bool writable, struct mm_region *ret_region);

void mm_region_done(struct mm_region *region);
