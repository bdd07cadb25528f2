/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xswap - a tenant's swap space: host memory that KV is copied to and from
 *
 * Concept:   A memfd that core made, mapped writable and registered with the driver in parts of
 *            MM_SWAP_PART_BYTES, each when it is first used: a tenant that never swaps pins
 *            nothing. A part that the driver does not register is copied unregistered: slower, and
 *            logged once. A copy is a transfer on the link, in a flow of the space's own, so that
 *            tenants share the link by bytes, whatever they move.
 * Ownership: the list owns its spaces; a space is dropped with its tenant (DETACH), when no copy of
 *            it is left.
 * Threading: one thread.
 */
#pragma once

#include <stdint.h>

#include "libclient/ipc/region.h"
#include "libclient/protocol/xplan.h"
#include "mmd/xfer/link.h"

struct mm_xswap {
	uint64_t tenant;
	uint64_t bytes;
	struct mm_region region;
	uint8_t *part; /* enum part_state of each part */
	struct mm_xflow flow;
	struct mm_xlink *link;
	uint32_t copies; /* copies that the link has */
	struct mm_xswap *next;
};

/* Takes over @fd. -EEXIST; -EPROTO: not a sealed memfd of @bytes; -ENOMEM. */
int mm_xswap_add(struct mm_xswap **list, struct mm_xlink *link, uint64_t tenant, uint64_t bytes,
		 int fd);
struct mm_xswap *mm_xswap_find(struct mm_xswap *list, uint64_t tenant);
/* No copy of @swap may be left. NULL is fine. */
void mm_xswap_drop(struct mm_xswap **list, struct mm_xswap *swap);

/**
 * mm_xswap_at() - address of a byte of the space, for a copy by the device
 * @offset:    inside the space
 * @ret_bytes: bytes from there on that lie in the same part
 *
 * Registers the part when it is first used. Return: the address.
 */
void *mm_xswap_at(struct mm_xswap *swap, uint64_t offset, uint64_t *ret_bytes);

/**
 * mm_xswap_copy() - begin a copy between a page and the swap space
 * @swap:         any
 * @transfer:     the caller's until landed(); page, page_offset, bytes, to_host and landed are set
 * @swap_offset:  of the first byte in the space
 *
 * Return: 0; -EINVAL it is not within one part of the space.
 */
int mm_xswap_copy(struct mm_xswap *swap, struct mm_xtransfer *transfer, uint64_t swap_offset);
