/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uring - a ring of io_uring that can do nothing but read
 *
 * Concept:   What a process does through a ring passes none of its filters, so a ring is restricted
 *            while it is still disabled: to reads, and to what its owner registers later. That
 *            holds for code that an attacker runs in this process, too.
 * Threading: none of its own.
 */
#pragma once

#include <stdbool.h>

/**
 * mm_uring_restrict() - restrict a ring to reads, and enable it
 * @ring_fd:     of a ring that was made with IORING_SETUP_R_DISABLED
 * @fixed_files: files may be registered later, and be read by their place in that table
 *
 * Return: 0; -errno, and the ring is still disabled.
 */
int mm_uring_restrict(int ring_fd, bool fixed_files);
