/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rights - what the core role may still do once it runs
 *
 * Concept:   core gets everything from keeper as file descriptors, so it needs no privilege at all:
 *            it is a user of its own without capabilities, and its filter allows what the shell
 *            does. The files that it opens exist already: its own memory again, and in /proc and
 *            /sys what shows a tenant's state.
 * Threading: the one thread of core.
 */
#pragma once

struct mm_rights;

/* Return: 0; -errno, and core must end. */
int mm_shell_rights_drop(struct mm_rights *ret_rights);
