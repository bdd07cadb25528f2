/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight - whether this build can go on from what another one has
 *
 * Concept:   An export has the tables of the book's structs, a copy of its front, and an image of
 *            each pool's core, but no descriptors. The role preflight reads it in a process of its
 *            own, before the running core gives way: the front must convert (kept_layout.h), each
 *            image must load, and what it saves of a core must load again and be the same; and it
 *            must be able to read what keeper would leave to it. It changes nothing and reaches
 *            nothing.
 * Trust:     The export comes from core, and the answer goes to keeper, which believes no more of
 *            it than a sentence.
 * Threading: one thread.
 */
#pragma once

#include <stddef.h>

struct mm_shell;

/* Makes an export of the cores as they are between two events. Return: an fd; negative errno. */
int mm_preflight_export(const struct mm_shell *shell);

/* Tries to read an export. @why: MM_TEXT_BYTES, written on failure. Return: 0; negative errno. */
int mm_preflight_try(const void *export, size_t bytes, char *why);

/**
 * mm_preflight_main() - run the role
 * @fd:     has the export; the next one takes the build, if it is one that can go on, and a
 *          sentence, a line each; the one after that has what keeper would leave
 * @keeper: tries to read that, and writes a sentence if it cannot
 *
 * Return: the exit status.
 */
int mm_preflight_main(int fd, int (*keeper)(int fd, char *why, size_t why_bytes));
