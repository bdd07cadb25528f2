/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_memory - the memory of a store: mapped, on the right node, faulted in before it is written
 *
 * Concept: core gives an empty memfd, of huge pages where it found enough. Faulting it in at once,
 *          by several threads, takes page faults out of the copying, and turns "no memory" into an
 *          error instead of a SIGBUS. What stays zero, because files have holes there, is not
 *          faulted in.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "libclient/model/why.h"

struct mm_memory_map {
	void *base;
	uint64_t bytes; /* mapped: at least what was asked for */
};

/**
 * mm_memory_map() - map a store
 * @fd:        memfd of at least @bytes
 * @numa_node: where the memory should come from; -1 = anywhere
 * @ret_map:   written only on success; give back with mm_memory_unmap()
 *
 * A node that has no memory left is not insisted on, one that does not exist is refused. Usual
 * pages stay of usual size (no THP). Return: 0; -ENOMEM; -EINVAL no such node; -EPROTO the memfd is
 * too short.
 */
int mm_memory_map(int fd, uint64_t bytes, int numa_node, struct mm_memory_map *ret_map,
		  struct mm_why *why);

/**
 * mm_memory_populate() - fault a part of it in
 * @map:   of mm_memory_map()
 * @from:  in bytes, rounded down to a page
 * @bytes: rounded up, and cut at the end
 *
 * Return: 0; -ENOMEM.
 */
int mm_memory_populate(const struct mm_memory_map *map, uint64_t from, uint64_t bytes,
		       struct mm_why *why);

/**
 * mm_memory_map_file() - map a store's file to write it
 * @fd:      regular, of at least @bytes, its blocks taken
 * @ret_map: written only on success; give back with mm_memory_unmap()
 *
 * What is written passes through the page cache: mm_memory_flush() bounds it. Return: 0; -EPROTO
 * too short; -ENOMEM.
 */
int mm_memory_map_file(int fd, uint64_t bytes, struct mm_memory_map *ret_map, struct mm_why *why);
/* To the disk with it, out of our memory and the cache. Return: 0; -EIO, -ENOSPC. */
int mm_memory_flush(const struct mm_memory_map *map, int fd, struct mm_why *why);
void mm_memory_unmap(struct mm_memory_map *map);
