/* SPDX-License-Identifier: Apache-2.0 */
/*
 * book - the head of core's kept memory, which keeper reads, too
 *
 * Concept:   What core must not lose when it dies lies in one memfd, the book (mmd/shell/kept.h).
 *            keeper holds its descriptor, and gives it to the next core. Of its bytes keeper reads
 *            only this head: whether core still goes round its loop. A core of another build finds
 *            in it how the one before laid the rest out.
 * Threading: core alone writes; keeper reads single words. A process that is killed has done all
 *            stores that precede its death in the program's order, so that stores need an order of
 *            the compiler only.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

#define MM_BOOK_MAGIC      UINT32_C(0x4b424d4d) /* "MMBK" in memory */
#define MM_BOOK_FORMAT     2
#define MM_BOOK_HEAD_BYTES 4096

enum mm_book_state {
	MM_BOOK_FRESH,   /* being made: nothing in it counts */
	MM_BOOK_RUNNING, /* a core runs with it, or has died */
	MM_BOOK_LEFT,    /* its core gave way to another build: all journals are empty */
};

/* Where the parts of a book are. Its beginning is the same in all builds. */
struct mm_book_parts {
	uint64_t layout;                  /* its number (mm_layout_number()) */
	uint64_t schema_at, schema_bytes; /* the layout of all structs (mmd/fields/layout.h) */
	uint64_t front_bytes;             /* struct mm_kept_front */
	uint64_t pools_at, pool_bytes;    /* areas of pools: a journal, then images */
	uint64_t journal_bytes, image_bytes;
	uint64_t outboxes_at, outbox_bytes; /* areas of sessions */
};

struct mm_book_head {
	uint32_t magic;
	uint32_t format;
	uint32_t state;      /* enum mm_book_state; stored last */
	uint32_t generation; /* of the core that runs: 1, and one more for each successor */
	uint64_t bytes;      /* of the whole book */
	uint32_t n_pools, n_sessions;
	struct mm_book_parts parts;
	/*
	 * When core last began an iteration of its loop, CLOCK_MONOTONIC, and whether it waits for
	 * events now, which may take any time.
	 */
	uint64_t beat_ns;
	uint32_t sleeping;
	uint32_t ready;      /* all pools were complete once, so that tenants are accepted */
	uint64_t started_ns; /* when the first core started */
	/*
	 * The pool of the event under way + 1; 0: there is none. While there is one, a death by
	 * core's own fault counts against it (recover.h).
	 */
	uint32_t busy;
	uint32_t deaths;     /* in a row, at the place that follows */
	uint64_t death_seq;  /* the event */
	uint64_t death_done; /* actions that had been performed */
	uint32_t death_pool;
	uint32_t unfit;       /* the tenant of the last event that was left out + 1; 0: none */
	uint64_t leave_by_ns; /* tenants have to leave by then, CLOCK_MONOTONIC; 0: they may stay */
	uint64_t reserved[(MM_BOOK_HEAD_BYTES - 176) / 8];
};
static_assert(sizeof(struct mm_book_head) == MM_BOOK_HEAD_BYTES, "the layout of the book");
