/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cleanup - functions for mm_cleanup() of base.h: they release a variable at the end of its scope
 *
 * Concept:   A function gets the address of the variable, and leaves a value that needs no release.
 * Threading: any.
 */
#pragma once

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Closes @fd unless it is negative, and leaves -1. errno may change. */
static inline void mm_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Closes @file unless it is NULL, and leaves NULL. What was written must have been flushed. */
static inline void mm_close_file(FILE **file)
{
	if (*file)
		fclose(*file);
	*file = NULL;
}

/* Closes @dir unless it is NULL, and leaves NULL. */
static inline void mm_close_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
	*dir = NULL;
}

/* Frees the pointer that @p points to, of any type, and leaves NULL. */
static inline void mm_free_ptr(void *p)
{
	free(*(void **)p);
	*(void **)p = NULL;
}
