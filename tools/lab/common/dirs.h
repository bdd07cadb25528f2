/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dirs - the folder of the programs, and the folder for a benchmark's files
 *
 * Concept:   A benchmark starts programs that lie beside its own, and puts sockets and files into
 *            a folder that it removes at the end, unless --keep names one that stays.
 * Errors:    a sentence on stderr and negative errno.
 * Threading: any.
 */
#pragma once

#include <limits.h>

/* Finds the folder of the running program. @ret_dir: PATH_MAX. Return: 0 or negative errno. */
int mm_bin_dir(char *ret_dir);

/**
 * mm_work_dir_make() - create a folder for sockets and files
 * @keep:    path of a folder that stays, at most 64 characters; NULL: a temporary one
 * @ret_dir: PATH_MAX; "" on failure
 *
 * Errors are reported on stderr. Return: 0 or negative errno.
 */
int mm_work_dir_make(const char *keep, char *ret_dir);

/* Removes the folder with everything in it. */
void mm_work_dir_remove(const char *dir);
