/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight - whether this build can go on from what another one has
 *
 * Concept:   An export has the tables of the book's structs, a copy of its front, and an image of
 *            each pool's core, but no descriptors. The role preflight reads it in a process of its
 *            own, before the running core gives way: the front must convert (kept_layout.h), each
 *            image must load, and what it saves of a core must load again and be the same. It
 *            changes nothing and reaches nothing.
 * Trust:     The export comes from core, and the answer goes to keeper, which believes no more of
 *            it than a sentence.
 * Threading: one thread.
 */
#pragma once

struct mm_shell;

/* Makes an export of the cores as they are between two events. Return: an fd; negative errno. */
int mm_preflight_export(const struct mm_shell *shell);

/* The role: @fd has the export, the next one takes a sentence. Return: the exit status. */
int mm_preflight_main(int fd);
