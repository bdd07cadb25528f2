/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_files - the files that a tenant passed
 *
 * Concept:   An fd shows that the tenant may read the file, if it was opened for reading. The file
 *            is reopened for O_DIRECT with mmd's rights, so a write-only or O_PATH fd is refused. A
 *            file system that its owner implements (FUSE) could make any call on it hang: its type
 *            is read from the mount table, without a call on it, and only known local types pass.
 * Ownership: struct mm_files owns its fds; mm_files_done() accepts zeroed ones.
 * Threading: one thread.
 * Limits:    MM_LOAD_FILES_MAX files, 16 TiB each; 10 s between two messages of the tenant, and
 *            60 s in all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"
#include "libclient/model/pack.h"
#include "libclient/model/why.h"

/* Values of which at least one changes when the file is written to. */
struct mm_file_stamp {
	uint64_t device, inode, bytes;
	int64_t mtime_s, ctime_s;
	uint64_t mtime_ns, ctime_ns;
};

/* The evidence that two files have the same bytes. */
enum mm_file_proof {
	MM_FILE_STAMPED, /* its stamp */
	MM_FILE_SEALED,  /* its content, which nobody can change: a sealed memfd */
	MM_FILE_PRIVATE  /* nothing does: a memfd that can be written to, with no stamp of it */
};

struct mm_file {
	char name[MM_FILE_NAME_BYTES];
	uint32_t kind; /* enum mm_load_kind */
	int fd;        /* the fd that the tenant passed */
	int direct_fd; /* reopened with O_DIRECT; -1 where that is refused */
	struct mm_file_stamp stamp;
	enum mm_file_proof proof;
};

struct mm_files {
	/*
	 * After mm_files_receive(): config, weights by name, the index of shards if there is one.
	 */
	struct mm_file file[MM_LOAD_FILES_MAX];
	size_t count;
	size_t n_weights;
	struct mm_packs packs; /* sorted */
	/* The model's; its kind is 0 if it has none. With MM_LOAD_KEY_ATTACH no files come. */
	struct mm_load_key key;
};

/**
 * mm_files_receive() - receive and check the tenant's files, packing list and key, up to
 * MM_LOAD_END
 * @files:     zeroed
 * @tenant_fd: socket
 *
 * Return: 0; -ECONNRESET the tenant is gone; else a refusal.
 */
int mm_files_receive(struct mm_files *files, int tenant_fd, struct mm_why *why);
void mm_files_done(struct mm_files *files);

/* 0, or a refusal if the file has changed since it was received. */
int mm_file_check_unchanged(const struct mm_file *file, struct mm_why *why);

/**
 * mm_files_identity() - hash that only the same files and packing lists have in common
 * @layout_version: version of the format of their store
 * @ret_identity:   written only on success
 * @read_bytes:     incremented by the bytes that were read for it
 * @why:            of a refusal
 *
 * SHA-256 over the version, the packing list and, of each file in order, kind, name and what proves
 * it: its stamp, or the digest of its content (content.h), or a random number. The hash does not
 * say who may read the files: each tenant shows that by passing fds.
 * Return: 0, or a refusal.
 */
int mm_files_identity(const struct mm_files *files, uint32_t layout_version,
		      uint8_t ret_identity[32], uint64_t *read_bytes, struct mm_why *why);
