/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xstore - a model's copy on the host, in memory or on disk
 *
 * Concept:   In memory: a sealed memfd mapped read-only and registered with the driver in pieces of
 *            at most 128 MiB, each when it is first read. One registration of a large store would
 *            take minutes, hold a driver-wide lock, and be refused at 512 GiB; while one lasts, a
 *            fraction of a second per GiB, the loop serves no tenant. Where the driver pins only
 *            writable memory, core sends the memfd unsealed; it is mapped writable, though it is
 *            only read. A piece that the driver does not register is copied unregistered: slower,
 *            and logged once. On disk: a file that no process can write any more, read through the
 *            ring of stage.h.
 * Ownership: struct mm_xstores owns its stores; a store is named by the id that core gave it.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/ipc/region.h"
#include "mmd/xfer/device.h"
#include "mmd/xfer/stage.h"

#define MM_XSTORE_PIECE_BYTES (UINT64_C(128) << 20)

struct mm_xstore {
	uint64_t id;
	uint64_t bytes;
	struct mm_region region; /* in memory: the mapping */
	struct mm_xfile disk;    /* on disk: fd >= 0 */
	uint8_t *piece;          /* enum piece_state of each piece */
	bool writable;           /* the region is mapped writable, so that it can be pinned */
	uint64_t pieces;
	struct mm_xstore *next;
};

struct mm_xstores {
	struct mm_xdev *dev;
	struct mm_xstage *stage;
	struct mm_xstore *first;
};

/* Takes over @fd. -EEXIST; -EPROTO: not a sealed memfd of @bytes; -ENOMEM. */
int mm_xstores_add(struct mm_xstores *stores, uint64_t id, uint64_t bytes, int fd);
/*
 * Takes over @fd, a file of at least @bytes, open for reading only. As mm_xstores_add(); -ENOTSUP:
 * there is no ring.
 */
int mm_xstores_add_disk(struct mm_xstores *stores, uint64_t id, uint64_t bytes, int fd);
struct mm_xstore *mm_xstores_find(const struct mm_xstores *stores, uint64_t id);
/* No read of @store may be under way. */
void mm_xstores_drop(struct mm_xstores *stores, struct mm_xstore *store);
void mm_xstores_done(struct mm_xstores *stores);

static inline bool mm_xstore_on_disk(const struct mm_xstore *store)
{
	return store->disk.fd >= 0;
}

/* True if [@offset, @offset + @bytes) is inside @store. */
static inline bool mm_xstore_holds(const struct mm_xstore *store, uint64_t offset, uint64_t bytes)
{
	return offset <= store->bytes && bytes <= store->bytes - offset;
}

/**
 * mm_xstore_at() - address of bytes of the store, for a copy by the device
 * @store:     of @stores, in memory
 * @offset:    inside the store
 * @ret_bytes: bytes from there on that lie in the same registration
 *
 * Registers the piece of @offset when it is first used. Return: the address.
 */
const void *mm_xstore_at(const struct mm_xstores *stores, struct mm_xstore *store, uint64_t offset,
			 uint64_t *ret_bytes);
