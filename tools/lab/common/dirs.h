/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dirs - where our programs are, and where a benchmark's files go
 */
#pragma once

#include <limits.h>

/* The folder of this very program, PATH_MAX. Return: 0 or negative errno. */
int mm_bin_dir(char *ret_dir);

/**
 * mm_work_dir_make() - a folder for sockets and files
 * @keep:    a path of at most 64 characters that stays; NULL: a temporary one
 * @ret_dir: PATH_MAX; "" on failure
 *
 * Says on stderr what is wrong. Return: 0 or negative errno.
 */
int mm_work_dir_make(const char *keep, char *ret_dir);

/* Removes it with all that is in it. */
void mm_work_dir_remove(const char *dir);
