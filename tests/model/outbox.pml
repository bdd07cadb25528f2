/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes to a tenant: batches of fds by the socket, events by the ring, acknowledgements by the
 * other ring (mmd/shell/outbox.c, libclient/client/service.c). Core is killed between any two of
 * its steps; the outbox's items and its batch are in the book, and so are the numbers of what was
 * pushed and taken.
 *
 * There are PAGES pages, of each an item with its fd and, behind it, an event that needs it. A
 * batch has up to two fds, taken ahead of events between them.
 *
 * @property fd_first: no event is handled before the fd of its page has come
 * @property once: the fd of each page is imported once
 * @property events: events are handled in order, each once
 * @property heard: core answers no acknowledgement with the end of the session
 * @property goes_on: no state is a dead end before all events were handled
 * @property all: (liveness) all events are handled
 *
 * @switch TAIL_LAST fd_first: service_iterate() reads the ring's tail after it has emptied the
 *	socket
 * @switch EVENT_AHEAD fd_first: mm_outbox_flush() pushes an event while its batch waits to be sent
 * @switch NO_AGAIN fd_first: after a restart, a batch that is not known to have been sent is not
 *	sent (again): with the same number this is harmless, so no more needs to be known of it (R6)
 * @switch LATE_AGAIN heard: after a restart, acknowledgements are taken before it is sent again
 * @switch NEW_SEQ once: a batch that is sent again gets another number
 * @switch NO_SEQ once: service_on_batch() imports what comes again
 * @switch MARK_FIRST fd_first: an item is marked as gone before it is in the batch
 * @switch NO_SERIAL once: after a restart, items that are in the batch and not marked are not found
 * @switch NO_NUMBER events: an event that may have been pushed is pushed again at the tail, not
 *	where its number says (R7)
 * @switch DROP_FIRST events: the item of an event is dropped before it is pushed
 * @switch ACK_LOST goes_on: the head of the requests is published before the book has their effect
 * @switch ACK_ONCE heard: an acknowledgement that comes again breaks the protocol (mm_outbox_ack())
 * @switch NO_BELL goes_on: after a restart no doorbell is rung (mm_outbox_resume())
 */
#define PAGES   3
#ifdef LONG
#define KILLS 2
#else
#define KILLS 1
#endif
#define BATCHED 2

#define MUST(property, condition) assert((condition) || PROPERTY_##property == 0)

#define ITEMS (2 * PAGES) /* item 2p is the fd of page p, item 2p + 1 its event */
#define IS_EVENT(item) ((item) % 2)
#define PAGE_OF(item)  ((item) / 2)

/* The book. */
byte items;               /* how many were dropped from the head */
byte gone;                /* a bit per page: its item is marked as gone */
byte batch, seq = 0;      /* a bit per page of the batch; number of the last batch that was sent */
bool unacked;             /* the batch was sent for sure */
byte acked;               /* number of the batch that was acknowledged last */
byte pushed;              /* events that were pushed: by their number */
byte acks_taken;          /* position in the ring of requests */

/* Shared with the tenant. */
byte tail;                                 /* of the ring of events */
byte event[PAGES + KILLS];                        /* its slots; here it never wraps */
chan sock = [4] of { byte, byte };         /* number, pages: each message has fds */
byte ack[8], ack_tail, ack_head;           /* the ring of requests; ack_head as published */
bool bell;

bool killed;
byte kills;
byte handled;                              /* events, by the tenant */

/* ---- tenant ---- */

inline ack_push(number)
{
	d_step { ack[ack_tail % 8] = number; ack_tail++ }
}

inline batch_on(number, pages)
{
#ifdef NO_SEQ
	if
	:: true ->
#else
	if
	:: number <= batches -> ack_push(number)
	:: number > batches ->
#endif
		MUST(once, !(imported & pages));
		imported = imported | pages;
		batches = number;
		ack_push(number)
	fi
}

inline socket_drain()
{
	do
	:: sock ? number, pages -> batch_on(number, pages)
	:: empty(sock) -> break
	od
}

active proctype tenant()
{
	byte ready, at, number, pages, batches, imported;

	do
	:: handled == PAGES -> break
	:: else ->
		if
		:: tail > at
		:: tail <= at -> bell || nempty(sock)
		fi;
		bell = false;
#ifdef TAIL_LAST
		socket_drain();
		ready = tail;
#else
		ready = tail;
		socket_drain();
#endif
		do
		:: at < ready ->
			MUST(events, event[at] == handled);
			MUST(fd_first, imported & (1 << event[at]));
			at++;
			handled++
		:: else -> break
		od
	od
}

/* ---- core ---- */

inline batch_put(page)
{
#ifdef MARK_FIRST
	gone = gone | (1 << page);
	batch = batch | (1 << page)
#else
	batch = batch | (1 << page);
	gone = gone | (1 << page)
#endif
}

/* The head's page and the next, ahead of the event between them. */
inline batch_fill()
{
	page = PAGE_OF(items);
	batch_put(page);
	if
	:: page + 1 < PAGES -> page++; batch_put(page)
	:: else
	fi
}

/* sendmsg() has sent all of a message or nothing: the order of the marks is what tells. */
inline batch_send()
{
	sock ! seq + 1, batch;
	d_step { seq++; unacked = true };
	bell = true
}

inline event_push()
{
#ifdef DROP_FIRST
	items++;
#endif
#ifdef NO_NUMBER
	/* The ring has room for one more. */
	d_step { event[tail] = PAGE_OF(items); tail++ };
#else
	event[pushed] = PAGE_OF(items);
	tail = pushed + 1; /* release: the slot is complete */
#endif
#ifdef DROP_FIRST
	pushed++;
#else
	d_step { pushed++; items++ };
#endif
	bell = true
}

inline outbox_flush()
{
	if
	:: IS_EVENT(items) -> event_push()
	:: !IS_EVENT(items) && (gone & (1 << PAGE_OF(items))) -> items++
	:: !IS_EVENT(items) && !(gone & (1 << PAGE_OF(items))) ->
		batch_fill();
#ifdef EVENT_AHEAD
		items++;
		event_push();
#endif
		batch_send()
	fi
}

inline ack_take()
{
	number = ack[acks_taken % 8];
#ifdef ACK_LOST
	ack_head = acks_taken + 1;
	acks_taken++;
#endif
	if
	:: number <= acked ->
#ifdef ACK_ONCE
		MUST(heard, false);
#endif
		d_step { acks_taken = (acks_taken < ack_head -> ack_head : acks_taken + 1) }
	:: number > acked ->
		MUST(heard, unacked && number == seq);
		/* The journal's record: effect and position in one store. */
		d_step {
			acked = number;
			unacked = false;
			batch = 0;
#ifndef ACK_LOST
			acks_taken++;
#endif
		}
	fi;
	ack_head = acks_taken;
	number = 0
}

#define MAY_FLUSH (items < ITEMS && \
	(IS_EVENT(items) || (gone & (1 << PAGE_OF(items))) || !unacked))

inline core_run()
{
	do
	:: handled == PAGES && acks_taken == ack_tail -> goto done
	:: acks_taken < ack_tail -> ack_take()
	:: acks_taken == ack_tail && MAY_FLUSH -> outbox_flush()
#ifdef LATE_AGAIN
	:: batch && !unacked -> batch_send()
#endif
	od
}

/* Afterwards each doorbell is rung once. */
inline outbox_recover()
{
	/* An item in the batch that was not marked yet is found by its serial. */
#ifndef NO_SERIAL
	gone = gone | batch;
#endif
	/* An event that the tail has passed was pushed. */
#ifndef NO_NUMBER
	if
	:: tail > pushed -> d_step { pushed++; items++ }
	:: else
	fi;
#endif
#if !defined(NO_AGAIN) && !defined(LATE_AGAIN)
	if
	:: batch && !unacked ->
#ifdef NEW_SEQ
		seq++;
#endif
		batch_send()
	:: else
	fi;
#endif
#ifndef NO_BELL
	bell = true
#else
	skip
#endif
}

active proctype core()
{
	byte page, number;

	do
	:: { core_run() } unless { killed };
	   d_step { page = 0; number = 0; killed = false };
	   { outbox_recover() } unless { killed };
	od;
done:	skip
}

active proctype killer()
{
	do
	:: d_step { kills < KILLS && !killed && handled < PAGES -> killed = true; kills++ }
	:: true -> break
	od
}

ltl all { <> (handled == PAGES) }
