/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox - everything that goes to one tenant, in order
 *
 * Concept:    Page fds, map entries, events and single fds wait in one queue. Page fds go out in
 *             batches, ahead of map entries and events that are queued before them. An event is
 *             pushed behind the batch that it needs. The tenant reads the ring's tail first, then
 *             takes the batches of the socket, then the events up to that tail; so no event names a
 *             page whose fd has not arrived. While a tenant cannot take a batch in it reads no
 *             event, and none is pushed; the batch is sent again. A tenant that reads nothing
 *             delays only itself. tests/model/outbox.pml has these orders, with core's death.
 * Kept:       the queue, the batch and its number are in memory that outlives core (kept.h). Each
 *             step is one store, so that a successor goes on where core died (mm_outbox_resume()).
 *             If it puts what core may have put before its death, it finds that by its serial. A
 *             batch that may have been sent is sent again with its number; the tenant takes it
 *             once.
 * Ownership:  borrows socket, ring, map table and the pool's page fds; owns single fds that wait.
 * Threading:  core's thread.
 * Invariants: at most one batch is unacknowledged. Fds that were not received yet count against one
 *             limit of the kernel, so all outboxes share one budget. A batch takes a small part of
 *             what is left of it, so that tenants that never acknowledge leave some to the others,
 *             however many they are.
 * Limits:     MM_OUTBOX_ITEMS entries, MM_OUTBOX_EVENTS events: a tenant that falls behind further
 *             is ended.
 */
#pragma once

#include <stdbool.h>

#include "libclient/ipc/ring.h"
#include "mm/abi.h"

#define MM_OUTBOX_ITEMS    (6 * MM_MAP_ENTRIES)
#define MM_OUTBOX_EVENTS   65536
#define MM_OUTBOX_RESENDS  200 /* of one batch for which the tenant has no room */
#define MM_OUTBOX_SHARES   16  /* a batch takes at most this fraction of the budget that is left */
#define MM_OUTBOX_RETRY_NS (10 * MM_NS_PER_MS)

#define MM_OUTBOX_RING (1u << 19) /* places for items: a power of two, MM_OUTBOX_ITEMS or more */

/* Something that waits; which members count depends on its kind. */
struct mm_outbox_item {
	uint8_t kind;
	uint8_t fd_kind; /* enum mm_fd_kind */
	uint16_t reserved0;
	uint32_t entry; /* of the map table */
	uint32_t value; /* page, map value, or number of the event */
	uint32_t reserved1;
	uint64_t epoch;
	uint64_t serial; /* by which who puts it again finds out that it is there; 0: none */
};
static_assert(sizeof(struct mm_outbox_item) == 32, "the layout of the book");

/* The state of the batch. */
enum mm_outbox_batch {
	MM_BATCH_NONE,
	MM_BATCH_DUE,     /* it is to be sent (again) */
	MM_BATCH_SENDING, /* it is being sent: if core dies now nobody knows whether it was */
	MM_BATCH_UNACKED, /* it was sent and is not acknowledged */
};

/* The part of an outbox that outlives core (kept.h). */
struct mm_outbox_kept {
	uint32_t items_head, items_tail; /* free-running; item n is at n mod MM_OUTBOX_RING */
	uint32_t events_put;             /* free-running; event n is at n mod MM_OUTBOX_EVENTS */
	uint32_t cq_tail;                /* events that were pushed to the tenant's ring */
	uint32_t batch_state;            /* enum mm_outbox_batch; stored after the batch */
	uint32_t resends;
	uint64_t seq; /* the last number that a batch has got; none is used twice */
	uint32_t batch_item[MM_FD_BATCH_MAX]; /* which items became the batch */
	struct mm_fd_batch batch;             /* counts while batch_state says so */
#ifdef MM_KEPT_NEXT /* in a build of tests/e2e/test_upgrade the rings have moved */
	uint64_t next_added;
#endif
	struct mm_outbox_item item[MM_OUTBOX_RING];
	struct mm_msg event[MM_OUTBOX_EVENTS];
};
static_assert(MM_OUTBOX_RING >= MM_OUTBOX_ITEMS, "the items have room");

struct mm_fd_budget {
	uint32_t used, max; /* fds in unacknowledged batches */
};

/* Single fds by enum mm_fd_kind; of each kind one can wait, and a later one takes its place. */
#define MM_OUTBOX_FDS (MM_FD_GROUP + 1)
/* Items among which mm_outbox_has() searches: all that was put for one action or request. */
#define MM_OUTBOX_RECENT 8

struct mm_outbox {
	struct mm_outbox_kept *kept; /* NULL: there is no tenant */
	int sock;
	struct mm_ring *ring;
	uint32_t *map;
	const int *page_fd;
	/*
	 * Whether the page is still the tenant's, checked when its fd is sent. NULL: it always is.
	 */
	bool (*owns_page)(const void *owner, uint32_t page);
	const void *owner;
	struct mm_fd_budget *budget;
	int fd[MM_OUTBOX_FDS]; /* -1 = none */
	uint32_t fd_gone;      /* a bit for each kind whose fd was acknowledged or is gone */
	bool maybe_sent;       /* the batch may have been sent by a predecessor */
	bool want_write;       /* the socket was full */
	bool bell;             /* the ring has new events: ring the doorbell */
	uint64_t retry_ns;     /* when to flush again; UINT64_MAX = no timer */
	/* items_tail and events_put when the memory behind them was last given back */
	uint32_t items_released, events_released;
};

/**
 * mm_outbox_init() - an empty outbox
 * @box:     written
 * @kept:    its memory; NULL: there is no tenant yet
 * @sock:    of the connection
 * @ring:    producer's end of the event ring
 * @map:     MM_MAP_ENTRIES
 * @page_fd: by page id
 * @budget:  shared by all outboxes
 */
void mm_outbox_init(struct mm_outbox *box, struct mm_outbox_kept *kept, int sock,
		    struct mm_ring *ring, uint32_t *map, const int *page_fd,
		    struct mm_fd_budget *budget);

/* As mm_outbox_init(), with what a core that has died left in @kept. */
void mm_outbox_resume(struct mm_outbox *box, struct mm_outbox_kept *kept, int sock,
		      struct mm_ring *ring, uint32_t *map, const int *page_fd,
		      struct mm_fd_budget *budget);
void mm_outbox_done(struct mm_outbox *box);

/*
 * Append to the queue. @serial: of what is done, by which mm_outbox_has() finds it; 0: none.
 * Return: 0; -ENOBUFS the tenant is too far behind.
 */
int mm_outbox_put_page(struct mm_outbox *box, uint32_t page, uint64_t epoch, uint64_t serial);
int mm_outbox_put_map(struct mm_outbox *box, uint32_t entry, uint32_t value, uint64_t serial);
int mm_outbox_put_event(struct mm_outbox *box, const struct mm_msg *msg, uint64_t serial);
/* @fd is taken over in any case. */
int mm_outbox_put_fd(struct mm_outbox *box, enum mm_fd_kind kind, int fd, uint64_t serial);

/* Whether one of the last items that were put has this serial. */
bool mm_outbox_has(const struct mm_outbox *box, uint64_t serial);

/**
 * mm_outbox_flush() - send what can be sent now
 * @box:    any
 * @now_ns: CLOCK_MONOTONIC
 *
 * Sets want_write, bell, retry_ns and fd_gone. A page that the tenant has given back before its fd
 * was sent is skipped, since it may be another tenant's by now. Return: 0; MM_E_PROTOCOL the tenant
 * broke its ring's rules; -ECONNRESET; -EBADF a page without an fd, or a batch that the tenant
 * could not take has a page that is not the tenant's any more; other negative errno of the socket.
 */
int mm_outbox_flush(struct mm_outbox *box, uint64_t now_ns);

/**
 * mm_outbox_ack() - the tenant answered a batch
 * @box:    any
 * @seq:    as the tenant sent it
 * @result: 0; -EMFILE: send it again
 * @now_ns: CLOCK_MONOTONIC
 *
 * Return: 0; MM_E_PROTOCOL no such batch, another result, or sent again too often.
 */
int mm_outbox_ack(struct mm_outbox *box, uint64_t seq, int result, uint64_t now_ns);
