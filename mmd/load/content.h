/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_content - the identity of files that have no path
 *
 * Concept:    The stamps of a memfd prove nothing: its inode's number comes again, and who writes
 *             through a mapping leaves its times as they are. If it is sealed against writing, its
 *             content is its identity: tenants that made the same bytes share one store. If not, a
 *             tenant could show others' bytes to the digest and its own to the store, from which
 *             all who share it would compute. So it has no identity, and its store is its tenant's
 *             alone.
 * Threading:  any; the position of the fd is shared.
 * Invariants: Equal digests have equal contents behind them. Seals are never taken off.
 */
#pragma once

#include <stdint.h>

#include "mmd/load/files.h"

/* Takes the place of a stamp in the hash, and can be none, since no device has that number. */
struct mm_content {
	uint64_t device; /* UINT64_MAX */
	uint64_t proof;  /* enum mm_file_proof */
	uint64_t bytes;
	uint8_t digest[32]; /* of the data and where they are, or random */
};

/* Tells how the content of the file behind @fd, which has @links names, is proven. */
enum mm_file_proof mm_content_proof(int fd, uint32_t links);

/**
 * mm_content_read() - digest of a file that is not proven by its stamp
 * @file:        regular; its data are read, holes are not
 * @ret_content: written only on success
 * @read_bytes:  incremented by the bytes that were read
 * @why:         of a refusal
 *
 * The time that it takes is that of the memory which the tenant gave to the file, not of its size.
 * Return: 0, or a refusal.
 */
int mm_content_read(const struct mm_file *file, struct mm_content *ret_content,
		    uint64_t *read_bytes, struct mm_why *why);
