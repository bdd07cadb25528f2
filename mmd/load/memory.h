/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_memory - the memory of a store: mapped, on the right node, faulted in before it is written
 *
 * Concept: core gives an empty memfd. Faulting it in at once, by several threads, takes page
 *          faults out of the copying, and turns "no memory" into an error instead of a SIGBUS.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mmd/load/why.h"

/**
 * mm_memory_map() - map and populate a store
 * @fd:        memfd of at least @bytes
 * @numa_node: where the memory should come from; -1 = anywhere
 * @ret_base:  written only on success; munmap() it
 *
 * A node that has no memory left is not insisted on. Return: 0; -ENOMEM; -EPROTO the memfd is too short.
 */
int mm_memory_map(int fd, uint64_t bytes, int numa_node, void **ret_base, struct mm_why *why);
