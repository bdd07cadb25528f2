/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region - a sealed memfd and our mapping of it
 *
 * Concept:   Memory that two processes share. The size is sealed at creation, so no peer can
 *            truncate it under the other (SIGBUS). The fd of a MM_REGION_READONLY is open for
 *            reading only, and only the owner of the file may open it again for writing, so that
 *            the MMU keeps a peer of another user from writing. It is not sealed against writing:
 *            a process that takes over from its creator could then not write it either.
 * Trust:     a process of the same user, or root, can open such a region for writing. Its creator
 *            believes nothing that it reads back.
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
	MM_REGION_SHARED, /* a peer that gets the fd may write */
	/* a peer that gets the fd may read; the creator's mapping can be written, not its fd */
	MM_REGION_READONLY,
};

/**
 * mm_region_create() - create a zeroed memfd of mode 0600, map it writable, seal its size
 * @size_bytes: not 0
 * @kind:       whether a peer may write
 * @name:       name shown in /proc
 * @ret_region: written only on success; undo with mm_region_done()
 *
 * Return: 0; -ENOMEM, -EMFILE, -ENFILE, -EINVAL; -ENOENT there is no /proc, which READONLY needs.
 */
int mm_region_create(size_t size_bytes, enum mm_region_kind kind, const char *name,
		     struct mm_region *ret_region);

/**
 * mm_region_again() - map a region that a predecessor created, to write it
 * @fd:          as the predecessor had it, also that of a MM_REGION_READONLY; taken over in any
 *               case
 * @least_bytes: of the first version of such a region
 * @most_bytes:  of this one's; the predecessor's lies between both, and all of it is mapped
 * @ret_region:  written only on success; undo with mm_region_done(). Its size says how much the
 *               predecessor made
 *
 * Return: 0; -EPROTO it is not such a region; -EACCES it is another user's; other negative errno.
 */
int mm_region_again(int fd, size_t least_bytes, size_t most_bytes, struct mm_region *ret_region);

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

/**
 * mm_region_open_between() - map a region of a peer whose version may differ
 * @fd:          taken over, also on failure
 * @least_bytes: the file must be at least as long
 * @most_bytes:  of a longer file no more is mapped
 * @writable:    map for writing
 * @ret_region:  as mm_region_open(); its size says how much the peer has
 *
 * Return: as mm_region_open().
 */
int mm_region_open_between(int fd, size_t least_bytes, size_t most_bytes, bool writable,
			   struct mm_region *ret_region);

void mm_region_done(struct mm_region *region);
