/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build - which build of mmd a process runs
 *
 * Concept:   The version, and the beginning of the number that the linker gives to each build:
 *            "0.1.0 5ad4770c". Processes of one mmd may run several builds after an upgrade.
 * Threading: any.
 */
#pragma once

#include <stddef.h>

#define MM_BUILD_BYTES 32

/* This process's build; constant. */
const char *mm_build_name(void);

/* The path from which it was started, also if another file is there now; "": not known. */
void mm_build_exe(char *path, size_t bytes);
