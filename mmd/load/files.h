/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_files - the files that a tenant passed
 *
 * Concept:   An fd is evidence that the tenant may read the file, if it was opened for reading: the
 *            file is reopened for O_DIRECT with our rights, so a write-only or O_PATH fd is
 *            refused. A file system that its owner implements (FUSE) could make any call on it
 *            hang; its type is found in the mount table without asking it, and only known local
 *            ones pass.
 * Ownership: struct mm_files owns its fds; mm_files_done() accepts zeroed ones.
 * Limits:    MM_LOAD_FILES_MAX files, 16 TiB each; the tenant may be silent for 10 s, and take 60 s
 *            in all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"
#include "libclient/model/pack.h"
#include "libclient/model/why.h"

struct mm_file_stamp { /* what changes when somebody writes to the file */
	uint64_t device, inode, bytes;
	int64_t mtime_s, ctime_s;
	uint64_t mtime_ns, ctime_ns;
};

struct mm_file {
	char name[MM_FILE_NAME_BYTES];
	uint32_t kind; /* enum mm_load_kind */
	int fd;        /* as passed */
	int direct_fd; /* reopened with O_DIRECT; -1 where that is refused */
	struct mm_file_stamp stamp;
};

struct mm_files {
	/* After receiving: config, weights by name, the index of shards if there is one. */
	struct mm_file file[MM_LOAD_FILES_MAX];
	size_t count;
	size_t n_weights;
	struct mm_packs packs; /* sorted */
};

/**
 * mm_files_receive() - take the tenant's files and packing list up to MM_LOAD_END, check each
 * @files:     zeroed
 * @tenant_fd: socket
 *
 * Return: 0; -ECONNRESET the tenant is gone; else a refusal.
 */
int mm_files_receive(struct mm_files *files, int tenant_fd, struct mm_why *why);
void mm_files_done(struct mm_files *files);

/* Has the file changed since it was received? A refusal if so. */
int mm_file_check_unchanged(const struct mm_file *file, struct mm_why *why);

/**
 * mm_files_identity() - what the same files and packing lists, and only they, have in common
 * @layout_version: of the store that they become
 *
 * SHA-256 over version, the packing list and, of each file in order, kind, name and stamp. It says
 * nothing about who may read them: that each tenant shows by passing fds.
 */
void mm_files_identity(const struct mm_files *files, uint32_t layout_version,
		       uint8_t ret_identity[32]);
