/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_reader - many aligned reads in flight, scattered into the store
 *
 * Concept:   A file's tensors lie anywhere, O_DIRECT wants aligned offsets and memory: so the data
 *            of a file is read in aligned blocks of 1 MiB into a ring of buffers, and what lies in
 *            a block is copied to its places. Three ways, each reported: io_uring with O_DIRECT;
 *            with the page cache where the file system refuses O_DIRECT; pread where there is no
 *            io_uring (containers block it). Whatever a block's read does not deliver (short reads,
 *            EINTR, O_DIRECT refused after all) is finished by pread, which also has the last word
 *            on errors and on files that end too early. Holes are passed over: the store is zero
 *            there.
 * Safety:    an io_uring would be a hole in a seccomp filter (it opens files and sockets itself),
 *            so before the sandbox closes the ring is restricted to reads.
 * Ownership: struct mm_reader owns ring and buffers.
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
	uint64_t offset; /* in the file */
	uint64_t bytes;  /* wanted: a whole block, or up to the file's end */
};

struct mm_reader {
	bool has_ring;
	bool registered; /* the buffers, with the ring */
	struct io_uring ring;
	char *buffers; /* MM_READER_BLOCKS of them */
	struct mm_block block[MM_READER_BLOCKS];
	uint32_t flags; /* MM_LOAD_F_BUFFERED, MM_LOAD_F_PREAD as they come to apply */
	uint64_t bytes_done;
	void (*progress)(void *arg); /* after every block */
	void *arg;
};

/**
 * mm_reader_init() - make buffers and, where possible, the ring; before the sandbox
 * @reader: written
 *
 * Return: 0; -ENOMEM. No ring is no failure.
 */
int mm_reader_init(struct mm_reader *reader);
void mm_reader_done(struct mm_reader *reader);

/* How many bytes mm_reader_fill() will read of @file, or pass over because they are holes. */
uint64_t mm_reader_bytes(const struct mm_file *file, const struct mm_placed *placed,
			 size_t n_placed);

/**
 * mm_reader_fill() - read every tensor of @file to its place
 * @placed:  of this file, by offset
 * @store:   the mapping
 *
 * Return: 0; -EIO and others: a refusal that names file and byte.
 */
int mm_reader_fill(struct mm_reader *reader, const struct mm_file *file,
		   const struct mm_placed *placed, size_t n_placed, void *store,
		   struct mm_why *why);
