/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool - holds the file of one store that lies on disk
 *
 * Concept:   One process per store on disk. It makes a file without a name in --store-dir, takes
 *            all blocks that the store will need, hands core a descriptor to write and one to read,
 *            and keeps the file open until core has let go of it: opening, allocating and the last
 *            close, which frees the blocks, may take as long as a disk takes, and core must not
 *            wait for one. When the load that wrote the file is gone, it proves that nobody can
 *            write it any more: a read lease is granted only on a file that is open for writing
 *            nowhere.
 * Threading: one thread.
 * Life:      ends at the end of its socket.
 */
#pragma once

#include "mmd/config/config.h"

/**
 * mm_spool_main() - run the role
 * @core_fd: socket with core (struct mm_smsg); taken over
 * @config:  says where the file goes
 *
 * Return: the exit status: 0 core is done with the file; 1 there is none, the socket says why.
 */
int mm_spool_main(int core_fd, const struct mm_config *config);
