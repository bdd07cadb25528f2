/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept - the memory that outlives core: the book
 *
 * Concept:    A core that dies is followed by another one, and no tenant notices. What the next one
 *             needs lies in one memfd, the book, and in descriptors that keeper holds by name
 *             (held.h). A pool's pure core is kept as an image and a journal of the events since;
 *             the shell's state is kept as structs that are written in place. Each struct is
 *             declared by its own module, as struct mm_<noun>_kept, and has no pointers and no
 *             descriptors: indices, ids and names only. What a module can find out again (loop
 *             sources, mappings, rings, what a pidfd says) it does not keep.
 * Ownership:  core writes the book; its successor gets it from keeper.
 * Order:      core may die between any two instructions, but its stores stay, in the order of the
 *             program (only the compiler must not change it: mm_kept_publish()). So each change is
 *             one store that publishes what was written before, and each effect outside of the book
 *             stands between two such stores, or can be repeated:
 *               session   FREE -> (all fields) -> JOINING -> event JOIN -> OPEN -> hello received
 *                         -> welcome sent -> welcomed; CLOSED after its socket was shut down, and
 *                         before the event DISCONNECT; FREE before keeper drops its descriptors
 *               request   event journaled, or all that the shell does for it -> sq_head
 *               action    its effect, or its item in the outbox with its serial -> performed
 *               outbox    item -> items_tail; batch: ids -> batch.count -> items are marked ->
 *                         sending -> (sent) -> unacked; event: slot -> cq_tail -> ring's tail
 *               image     half written -> image_valid -> journal emptied
 *             What follows an event in the same call is done before the next event of any pool. So
 *             at most one event, one action and one request are not complete when core dies.
 * Threading:  core's thread; keeper reads the head.
 * Builds:     A book has the layout of its structs in it. A core of a build in which it is another
 *             one makes a new book from it (kept_layout.h).
 * Limits:     The book is sparse, and most of it never exists. Areas that have become empty are
 *             given back by mm_kept_release().
 */
#pragma once

#include <stdbool.h>

#include "mmd/common/book.h"
#include "mmd/shell/groups.h"
#include "mmd/shell/outbox.h"
#include "mmd/shell/pool.h"
#include "mmd/shell/session.h"
#include "mmd/shell/store.h"

#define MM_KEPT_JOURNAL_BYTES (UINT64_C(8) << 20)
#define MM_KEPT_IMAGE_BYTES   (UINT64_C(64) << 20)
#define MM_KEPT_IMAGES        2 /* per pool: the valid one, and one that is being written */

/* The part of fixed size at the book's beginning. */
struct mm_kept_front {
	struct mm_book_head head;
	struct mm_pool_kept pool[MM_DEVICES_MAX];
	struct mm_worker_kept worker[MM_DEVICES_MAX];
	struct mm_stores_kept stores;
	struct mm_session_kept session[MM_SESSIONS_MAX];
	struct mm_group_kept group[MM_GROUPS_MAX];
};

struct mm_kept {
	int fd;
	size_t bytes;
	struct mm_kept_front *front; /* the mapping; NULL: none */
	bool left;                   /* its last core gave way, and did not die */
};
#define MM_KEPT_NULL ((struct mm_kept){ .fd = -1 })

/* Stores a word after everything that precedes in the program. */
#define mm_kept_publish(at, value) __atomic_store_n((at), (value), __ATOMIC_RELEASE)

/**
 * mm_kept_create() - make an empty book
 * @n_pools:    how many there are
 * @n_sessions: places for sessions
 * @ret_kept:   written only on success; undo with mm_kept_done()
 *
 * Return: 0; negative errno.
 */
int mm_kept_create(uint32_t n_pools, uint32_t n_sessions, struct mm_kept *ret_kept);

/**
 * mm_kept_head() - read what all builds have at the beginning of a book
 * @fd:         of a book, or not
 * @n_pools:    as it was
 * @n_sessions: as it was
 * @ret_head:   of it counts what ends with its parts; the rest is as in the build that wrote it
 *
 * Return: 0: its structs are laid out as here; -ESTALE: they are not (kept_layout.h); -EBADMSG it
 * is no book, or was never complete; other negative errno.
 */
int mm_kept_head(int fd, uint32_t n_pools, uint32_t n_sessions, struct mm_book_head *ret_head);

/**
 * mm_kept_open() - take over the book of a core that has died
 * @fd:         taken over, also on failure
 * @n_pools:    as it was
 * @n_sessions: as it was
 * @ret_kept:   written only on success; undo with mm_kept_done()
 *
 * Return: 0; else as mm_kept_head().
 */
int mm_kept_open(int fd, uint32_t n_pools, uint32_t n_sessions, struct mm_kept *ret_kept);

void mm_kept_done(struct mm_kept *kept);

/* The areas behind the front: of a pool, MM_KEPT_JOURNAL_BYTES and MM_KEPT_IMAGE_BYTES each. */
void *mm_kept_journal(const struct mm_kept *kept, uint32_t pool);
void *mm_kept_image(const struct mm_kept *kept, uint32_t pool, uint32_t half);
/* The outbox of a session's place. */
struct mm_outbox_kept *mm_kept_outbox(const struct mm_kept *kept, uint32_t session);

/* Gives back the memory behind whole pages of an area: they read as 0 then. */
void mm_kept_release(void *area, size_t bytes);
