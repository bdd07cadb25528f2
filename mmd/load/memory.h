/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_memory - the memory of a store: mapped, on the right node, faulted in before it is written
 *
 * Concept:   Core gives an empty memfd, of huge pages if it found enough. Faulting its memory in at
 *            once, by several threads, keeps page faults out of the copying, and turns a lack of
 *            memory into an error instead of a SIGBUS. Ranges that stay zero, because files have
 *            holes there, are not faulted in.
 * Ownership: the caller unmaps what these functions mapped; fds stay the caller's.
 * Threading: one thread calls; mm_memory_populate() starts others and joins them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "libclient/model/why.h"

struct mm_memory_map {
	void *base;
	uint64_t bytes; /* bytes that are mapped: at least as many as requested */
};

/**
 * mm_memory_map() - map a store
 * @fd:        memfd of at least @bytes
 * @numa_node: whose memory is preferred; -1: any
 * @ret_map:   written only on success; undo with mm_memory_unmap()
 *
 * A node that has no memory left is passed over; one that does not exist is refused. Pages of the
 * usual size stay so (no transparent huge pages). Return: 0; -ENOMEM; -EINVAL no such node; -EPROTO
 * the memfd is too short.
 */
int mm_memory_map(int fd, uint64_t bytes, int numa_node, struct mm_memory_map *ret_map,
		  struct mm_why *why);

/**
 * mm_memory_populate() - fault in a part of a mapping
 * @map:   from mm_memory_map()
 * @from:  in bytes, rounded down to a page
 * @bytes: rounded up, but not past the end of the mapping
 *
 * Return: 0; -ENOMEM.
 */
int mm_memory_populate(const struct mm_memory_map *map, uint64_t from, uint64_t bytes,
		       struct mm_why *why);

/**
 * mm_memory_map_file() - map a store's file to write it
 * @fd:      regular, of at least @bytes, with its blocks allocated
 * @ret_map: written only on success; undo with mm_memory_unmap()
 *
 * Writes pass through the page cache; mm_memory_flush() bounds what it holds. Return: 0; -EPROTO
 * too short; the errno of mmap().
 */
int mm_memory_map_file(int fd, uint64_t bytes, struct mm_memory_map *ret_map, struct mm_why *why);
/* Writes the mapping to disk; frees its pages and their cache. Return: 0; -EIO, -ENOSPC. */
int mm_memory_flush(const struct mm_memory_map *map, int fd, struct mm_why *why);
void mm_memory_unmap(struct mm_memory_map *map);
