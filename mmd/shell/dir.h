/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir - the check of a store's directory
 *
 * Concept:   A store begins with a directory of its groups and tensors (mm/abi.h), which a load has
 *            written. The core lays out device memory by it, so nothing in it is used unchecked.
 * Trust:     the load may be hostile: every offset, size and count is checked against the store.
 *            It is read with pread() into private memory; what follows uses that copy.
 * Ownership: the table of groups that is returned is the caller's.
 * Threading: any.
 */
#pragma once

#include <stdint.h>

#include "mmd/core/core.h"

struct mm_store;

/**
 * mm_dir_check() - check a store's directory, which a hostile load may have written
 * @fd:         the sealed store
 * @store:      its size and identity as announced
 * @ret_groups: malloc'ed, written only on success
 * @ret_n:      number of @ret_groups
 * @ret_tensor_bytes: of all tensors, without padding; for display only
 *
 * Return: NULL; else the fault, a static string, and errno is ENOMEM if it is mmd's own.
 */
const char *mm_dir_check(int fd, const struct mm_store *store, struct mm_core_group **ret_groups,
			 uint32_t *ret_n, uint64_t *ret_tensor_bytes);
