/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_reader - many aligned reads in flight, scattered into the store
 *
 * Concept:   The tensors of a file lie at any offset, but O_DIRECT needs aligned offsets and
 *            memory. So the data of a file are read in aligned blocks of 1 MiB into a ring of
 *            buffers, and each part of a block is copied to its place. There are three ways, each
 *            reported by a flag: io_uring with O_DIRECT; io_uring with the page cache, where the
 *            file system refuses O_DIRECT; pread where there is no io_uring (containers block it).
 *            pread finishes any block that a read did not fill (short reads, EINTR, O_DIRECT
 *            refused by the read); its result decides on errors and on files that end too early.
 *            Holes are skipped: the store is zero there.
 * Safety:    a process with an io_uring could open files and sockets despite a seccomp filter, so
 *            the ring is restricted to reads before the sandbox closes.
 * Ownership: struct mm_reader owns ring and buffers.
 * Threading: one thread.
 */
#pragma once

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mmd/load/files.h"
#include "libclient/model/layout.h"
#include "libclient/model/why.h"

#define MM_READER_BLOCKS      16
#define MM_READER_BLOCK_BYTES (UINT64_C(1) << 20)

struct mm_block {        /* one buffer */
	uint64_t offset; /* offset in the file */
	uint64_t bytes;  /* bytes to read: a whole block, or up to the end of the data */
};

struct mm_reader {
	bool has_ring;
	bool registered; /* the buffers are registered with the ring */
	struct io_uring ring;
	char *buffers; /* MM_READER_BLOCKS buffers */
	struct mm_block block[MM_READER_BLOCKS];
	uint32_t flags; /* MM_LOAD_F_BUFFERED, MM_LOAD_F_PREAD, once they apply */
	uint64_t bytes_done;
	void (*progress)(void *arg); /* called after every block */
	void *arg;
};

/**
 * mm_reader_init() - make the buffers and, where possible, the ring; before the sandbox
 * @reader: written
 *
 * Return: 0; -ENOMEM. That there is no ring is not a failure.
 */
int mm_reader_init(struct mm_reader *reader);
void mm_reader_done(struct mm_reader *reader);

/* Bytes of @file that mm_reader_fill() will read, or skip because they are holes. */
uint64_t mm_reader_bytes(const struct mm_file *file, const struct mm_placed *placed,
			 size_t n_placed);

/**
 * mm_reader_fill() - read every tensor of @file to its place
 * @placed:  tensors of @file, by offset
 * @store:   the mapping
 *
 * Return: 0; -EIO and others: a refusal that names the file and the byte.
 */
int mm_reader_fill(struct mm_reader *reader, const struct mm_file *file,
		   const struct mm_placed *placed, size_t n_placed, void *store,
		   struct mm_why *why);
