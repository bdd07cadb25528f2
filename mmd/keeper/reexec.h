/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reexec - keeper becomes another build, and stays the same process
 *
 * Concept:   keeper writes down what it has (described.h, mmd/fields/rows.h) in a memfd, lets all
 *            its fds pass, and executes the file of the other build: the same pid, the same fds,
 *            children, lock and sockets, so that nobody notices, a service manager neither. That
 *            program begins in the role keeper-again with the memfd as fd 3. It first reads
 *            everything, and makes all that may fail. If it cannot, it writes down why, and
 *            executes the old file again, of which an fd came along; that one goes on, and says so.
 * When:      core serves, no message waits, and no upgrade is under way, within
 *            MM_REEXEC_WITHIN_NS; else keeper stays what it is.
 * Signals:   those that keeper takes are blocked all the while, and so wait for the next program.
 * Rights:    A program that root executes begins with all capabilities, and gives up the same ones
 *            as any keeper (keeper.c). All else that a process inherits it inherited already.
 * Trust:     The state comes from keeper itself. What is not possible in it is an error.
 * Threading: keeper's thread, the only one.
 */
#pragma once

#include <stddef.h>

#include "mmd/keeper/state.h"

#define MM_REEXEC_WITHIN_NS (10 * MM_NS_PER_S)

/* Takes the number of the fd by which a program gets the state; nothing else may have it. */
void mm_reexec_reserve(void);

/* Writes down what keeper has. Return: a memfd; negative errno. */
int mm_reexec_save(const struct mm_keeper *keeper);

/*
 * Whether this build can read it: for preflight, in another process. @why: written on failure.
 * Return: 0; negative errno.
 */
int mm_reexec_try(int fd, char *why, size_t why_bytes);

/**
 * mm_reexec_load() - read what keeper was before it became this build
 * @fd:        the memfd; stays the caller's
 * @keeper:    initialised, and empty; its table of held fds is filled
 * @why:       written on failure: a sentence
 * @why_bytes: of @why
 *
 * Its fds still pass through an exec. Return: 0; negative errno.
 */
int mm_reexec_load(int fd, struct mm_keeper *keeper, char *why, size_t why_bytes);

/* The other build cannot go on: executes the old one again. Returns only if that fails, too. */
void mm_reexec_back(int fd, char **argv, const char *why);

/*
 * All is read: the fds do not pass through another exec. @why: why this is the old build again;
 * "": it is not. @fd is reserved again.
 */
void mm_reexec_done(int fd, struct mm_keeper *keeper, char *why, size_t why_bytes);

/* Executes the file of the other build, if that is due and possible now. Returns if it did not. */
void mm_reexec_service(struct mm_keeper *keeper);
