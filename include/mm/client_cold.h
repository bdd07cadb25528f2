/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_cold - full KV blocks in host memory, read through a window of the arena
 *
 * Concept:   A cold block is a full KV block whose truth lies in the swap space. mmd streams one
 *            layer of it at a time into a small window of the client's own arena, ahead of the
 *            layer that reads it. Kernels, graphs and the block table stay as they are: a block of
 *            n layers has its layer l at l * unit from its begin, and so has a cold one.
 *            Entry: a cold block's number e, from 0 on. Its bytes lie in the swap space from
 *            e * layers * unit on, as mm_swap_out() of a whole block puts them there, and are read
 *            at window + (classes * e + l) * unit. Layers l and l + classes share that memory: each
 *            class (l mod classes) is read while the others are filled. So a window of W bytes has
 *            room for (W - layers * unit) / (classes * unit) + 1 entries, and a smaller one for
 *            none.
 * Protocol:  1. Copy a sealed block out to its entry's place (mm_swap_out(), mm_swap_next()).
 *            2. mm_cold_set() the entry live, and mm_cold_commit(): its version.
 *            3. Once mm_cold_state.acked is at least that version, steps that are begun from then
 *               on may read the entry, and the hot block is free.
 *            4. To end it: no open step reads it any more; mm_cold_set() it not live, commit. Its
 *               place may be written, and the entry be used again under a new version, at once.
 *            A version that was acked stays acked. Steps move it on: a client that runs none waits
 *            for ever, and about two of them pass between a commit and its acknowledgement.
 * Sealing:   the engine's word. A block is sealed when all of its tokens are computed in all layers
 *            and none of its bytes will ever change. Nothing is copied back from the window: what a
 *            kernel writes there is lost, or is read as another block's. An engine that
 *            rewrites KV (speculation, edited prefixes) warms the block first: mm_swap_in() to a
 *            hot block.
 * Limit:     mmd says how many entries may be live (MM_EVENT_COLD): at least mm_cold_opts.floor,
 *            unless the operator sets less or chunks of the window are owed. One with a deadline
 *            counts from some change of the plan behind that on: of more live entries, the highest
 *            are not streamed. No open step misses any, and one that was planned before such a
 *            limit was read does not begin (mm_step_begin(): -ESTALE). The engine ends the entries
 *            whose number is not below it, wherever it stands by then; they live again under a new
 *            version only. An entry that is not live any more counts until the version that says so
 *            is acked, while there is a window: mmd may see it together with one that took its
 *            place.
 * Window:    chunks in a row of the arena that the client holds, at its end as a rule
 *            (mm_kv_want_from()). They are the client's KV as before: charged, and owed in
 *            reclaims. While they are the window, or on their way to it, they are neither released
 *            nor swapped (-EBUSY), and no hot block lies in them. With a window every layer counts
 *            as cycling (mm_client_info.layers_cycling), also those whose weights are at home.
 * Ownership: the client's; mm_client_close() and mm_model_unload() free it. The swap space stays
 *            as it is.
 * Threading: as in client.h. Only mm_cold_open() waits for mmd. After the end of the connection
 *            calls return its errno, and in a child of fork() -ECHILD.
 * Trust:     entries that are live without having been written are read as they are: other blocks
 *            of this client, never another's.
 */
#pragma once

#include "mm/client.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mm_cold;

struct mm_cold_opts {
	size_t size;          /* = sizeof(struct mm_cold_opts) */
	uint64_t unit_bytes;  /* keys and values of a block in one layer; of MM_COLD_UNIT_BYTES */
	uint32_t layers;      /* those of the model, MM_COLD_CLASSES_MAX or more */
	uint32_t entries_max; /* 1 .. MM_COLD_MAX, and all of them fit into the swap space */
	uint32_t floor;       /* entries that may be live whatever mmd's policy is */
	uint32_t reserved;
};

struct mm_cold_state {
	size_t size;    /* = sizeof(struct mm_cold_state) */
	uint64_t acked; /* entries that were live in this version, or before it, can be read */
	uint64_t deadline_ns;   /* by when no more than `limit` are live; 0: those that are stay */
	uint32_t limit;         /* entries that may be live */
	uint32_t entries;       /* that have room in the window in force: lower ones can be read */
	uint32_t window_first;  /* its first chunk, */
	uint32_t window_chunks; /* and how many there are; 0: no window, nothing is streamed */
	int32_t error;          /* why the last mm_cold_window() was refused; 0: it was not */
	uint32_t pending;       /* 1: a mm_cold_window() is not answered yet */
};

/**
 * mm_cold_open() - declare cold blocks for the model that is loaded
 * @client:   has a model, an arena of one range and a swap space
 * @opts:     copied
 * @ret_cold: freed with the client or the model
 *
 * Registers the swap space with the device as far as entries reach, which takes time where it is
 * large. Nothing is streamed before mm_cold_window(). Since version 0.3. Return: 0; -EEXIST the
 * client has one; -EINVAL @opts, or no model, arena of one range or swap space; -E2BIG the entries
 * do not fit into the swap space; -EOPNOTSUPP an older mmd, a model of fewer than 4 layers, a rank
 * of a group, a client that opened with MM_CLIENT_NO_REMAP, or a device without strided copies;
 * -ENOMEM; -ETIMEDOUT: mmd may have declared it, and no other call will; -ECONNRESET.
 */
MM_API int mm_cold_open(struct mm_client *client, const struct mm_cold_opts *opts,
			struct mm_cold **ret_cold);

/**
 * mm_cold_classes() - classes of layers that take turns in the window
 * @cold: any
 *
 * Entry e begins classes * e * unit_bytes behind the window's begin: that is its place for a block
 * table. Constant. Since version 0.3. Return: 2, 3 or 4.
 */
MM_API uint32_t mm_cold_classes(const struct mm_cold *cold);

/**
 * mm_cold_state() - how far mmd is: acknowledged version, limit and window
 * @cold:      any
 * @ret_state: its size is set
 *
 * Never blocks. `acked` only grows; it is checked before each step, as it raises no event. The
 * other members change with MM_EVENT_COLD. `limit` is the least one that had a deadline since the
 * last call, since it may have counted meanwhile; the next call has the last one. Since version
 * 0.3. Return: 0; -EINVAL a size that cannot be; -ECHILD; the errno of a connection that has ended.
 */
MM_API int mm_cold_state(struct mm_cold *cold, struct mm_cold_state *ret_state);

/**
 * mm_cold_window() - have the entries streamed into these chunks, instead of those of before
 * @cold:        any
 * @first_chunk: of the arena
 * @chunks:      in a row, all usable; 0: no window, streaming ends
 *
 * A step that is begun between the call and the answer may run with either window: it reads entries
 * only if both begin with the same chunk, and only those that have room in both. Returns at once;
 * MM_EVENT_COLD comes when the window is in force or was refused, and mm_cold_state() says which.
 * No entry has to be live again: what is acked stays so in another window. Since version 0.3.
 * Return: 0 requested; -EINVAL beyond the arena, or too small for one entry; -E2BIG more pages than
 * a window may have; -ENOENT a chunk is not usable; -EBUSY a list that names one is being swapped,
 * or the window before is not answered; -ETIMEDOUT; -ECONNRESET. In the event -EBUSY also says that
 * so large a window would not leave what mmd has reclaimed.
 */
MM_API int mm_cold_window(struct mm_cold *cold, uint32_t first_chunk, uint32_t chunks);

/**
 * mm_cold_set() - make an entry live, or no longer live, with the next mm_cold_commit()
 * @cold:  any
 * @entry: < mm_cold_opts.entries_max
 * @live:  true: its block is sealed, and mm_swap_next() has reported its copy
 *
 * mmd may see the change before the commit, which harms nothing: only a version says what can be
 * read. Never blocks; for each entry in each step. Since version 0.3. Return: 0; -EINVAL no such
 * entry; -ECHILD; the errno of a connection that has ended.
 */
MM_API int mm_cold_set(struct mm_cold *cold, uint32_t entry, bool live);

/**
 * mm_cold_commit() - give the live entries of now a version
 * @cold: any
 *
 * Never blocks. Since version 0.3. Return: the version to compare with mm_cold_state.acked; the
 * last one if no entry was set since; 0 in a child of fork().
 */
MM_API uint64_t mm_cold_commit(struct mm_cold *cold);

/**
 * mm_kv_want_from() - mm_kv_want(), with the chunks to be granted first
 * @kv:           not of a rank of a group, if @first is not 0
 * @chunks_total: as of mm_kv_want()
 * @first:        free chunks of this number and above come first, the lowest of them; then the rest
 * @timeout_ns:   as of mm_kv_want()
 *
 * @first holds for this demand, also when a release lowers it; mm_kv_want() replaces it by 0.
 * Since version 0.3. Return: as mm_kv_want(); -EINVAL also @first above chunks_max; -EOPNOTSUPP an
 * older mmd, or a group.
 */
MM_API int mm_kv_want_from(struct mm_kv *kv, uint32_t chunks_total, uint32_t first,
			   uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
