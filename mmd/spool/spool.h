/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool - holds the file of one store on disk
 *
 * Concept:   One process per store on disk. It creates a file without a name in --store-dir,
 *            allocates all blocks that the store will need, sends core a descriptor to write and
 *            one to read, and keeps the file open until core closes the socket. Opening,
 *            allocating and the last close, which frees the blocks, may take as long as a disk
 *            takes, and core must not wait for a disk. When the load that wrote the file is gone,
 *            it proves that no process can write it any more: a read lease is granted only on a
 *            file that is not open for writing anywhere. Of root's rights it uses only that to
 *            make the file, and gives them up then.
 * Threading: one thread.
 * Life:      ends when core closes the socket.
 */
#pragma once

#include "mmd/config/config.h"

/**
 * mm_spool_main() - run the role
 * @core_fd: socket with core (struct mm_smsg); taken over
 * @config:  its store_dir is the directory of the file
 *
 * Return: the exit status: 0 core is done with the file; 1 there is none, and a message to core
 * says why.
 */
int mm_spool_main(int core_fd, const struct mm_config *config);
