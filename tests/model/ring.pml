/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a ring (libclient/ipc/ring.c) with its doorbell: a producer and a consumer that
 * sleeps. The consumer is either libclient's service thread or xfer (TAIL_FIRST: tail,
 * socket, ring up to that tail, look again, sleep) or core (socket, then the ring until it is
 * empty).
 *
 * A barrier that a switch removes is modelled by the order that it had forbidden: the two accesses
 * are made the other way round. Cursors are free-running and wrap, here at 16.
 *
 * @variant TAIL_FIRST: service_iterate() of libclient/client/service.c, xfer_serve() of mmd/xfer
 * @variant SOCKET_FIRST: doorbells_take() and requests_handle() of mmd/shell/session.c
 *
 * @property whole: the words of a message that is taken are of one message
 * @property order: messages are taken in order, each once
 * @property goes_on: nobody sleeps for good while a message waits
 * @property taken: (liveness) each message is taken
 *
 * @switch NO_R1 order: mm_ring_push() publishes the tail before the slot is complete
 * @switch NO_A2 order: mm_ring_pop() reads the slot before it has read the tail
 * @switch NO_R2 whole: mm_ring_pop() publishes the head before it has read the slot
 * @switch NO_A1 whole: mm_ring_push() writes the slot before it has read the head
 * @switch NO_FULL whole: mm_ring_push() does not look whether the ring is full
 * @switch BELL_FIRST goes_on: the doorbell is rung before the message is pushed
 * @switch NO_BELL goes_on: it is not rung at all
 * @switch NO_LOOK goes_on TAIL_FIRST: the consumer does not look at the ring again before it sleeps
 *	(events_are_waiting(), the mm_ring_ready() before xfer_wait())
 * @switch DRAIN_LAST goes_on SOCKET_FIRST: core empties the socket after it has emptied the ring
 */
#define CAPACITY 2
#define MESSAGES 5
#define WRAP     16

/* run.py numbers the properties, and looks for the number of a broken one in pan's words. */
#define MUST(property, condition) assert((condition) || PROPERTY_##property == 0)

byte slot_a[CAPACITY], slot_b[CAPACITY]; /* the two words of a message */
/* The published cursors, shortly before they wrap. */
byte head = WRAP - 2, tail = WRAP - 2;
bool bell;                               /* the socket has a doorbell: a full one has one as well */
byte last; /* the message that was taken last */

inline slot_write(at, value)
{
	slot_a[(at) % CAPACITY] = value;
	slot_b[(at) % CAPACITY] = value
}

/* In one step: the peer's cursor. The subtraction wraps, as that of uint32_t does. */
#define USED(mine) ((mine + WRAP - head) % WRAP)
#define READY(mine) ((tail + WRAP - mine) % WRAP)

active proctype producer()
{
	byte mine = WRAP - 2, n = 1;

	do
	:: n <= MESSAGES ->
#ifdef NO_A1
		slot_write(mine, n);
#endif
#ifndef NO_FULL
		/* mm_link_push() tries again, and so does mm_outbox_flush(). */
		USED(mine) < CAPACITY;
#endif
#ifdef BELL_FIRST
		bell = true;
#endif
#if defined(NO_R1)
		mine = (mine + 1) % WRAP;
		tail = mine;
		slot_write(mine + WRAP - 1, n);
#else
#ifndef NO_A1
		slot_write(mine, n);
#endif
		mine = (mine + 1) % WRAP;
		tail = mine; /* R1 */
#endif
#if !defined(BELL_FIRST) && !defined(NO_BELL)
		bell = true;
#endif
		n++
	:: else -> break
	od
}

byte consumed = WRAP - 2; /* the consumer's own cursor */
byte a, b;          /* the words of the message that it has read */

inline pop()
{
#if !defined(NO_A2)
#ifdef NO_R2
	consumed = (consumed + 1) % WRAP;
	head = consumed;
	a = slot_a[(consumed + WRAP - 1) % CAPACITY];
	b = slot_b[(consumed + WRAP - 1) % CAPACITY];
#else
	a = slot_a[consumed % CAPACITY];
	b = slot_b[consumed % CAPACITY];
	consumed = (consumed + 1) % WRAP;
	head = consumed; /* R2 */
#endif
#else
	consumed = (consumed + 1) % WRAP;
	head = consumed;
#endif
	MUST(whole, a == b);
	MUST(order, a == last + 1);
	last = a
}

inline sleep_until_bell()
{
	if
	:: bell
	:: last == MESSAGES -> break
	fi
}

active proctype consumer()
{
	byte ready;

#ifdef TAIL_FIRST
	do
	:: true ->
		if
#ifndef NO_LOOK
		:: READY(consumed) > 0
		:: READY(consumed) == 0 -> sleep_until_bell()
#else
		:: true -> sleep_until_bell()
#endif
		:: last == MESSAGES -> break
		fi;
#ifdef NO_A2
		/* The words were read ahead of the tail. */
		a = slot_a[consumed % CAPACITY];
		b = slot_b[consumed % CAPACITY];
#endif
		ready = READY(consumed);
		bell = false;
#ifdef NO_A2
		ready = (ready > 1 -> 1 : ready);
#endif
		do
		:: ready > 0 -> pop(); ready--
		:: else -> break
		od
	od
#else
	do
	:: true ->
		sleep_until_bell();
#ifndef DRAIN_LAST
		bell = false;
#endif
		do
		:: true ->
#ifdef NO_A2
			a = slot_a[consumed % CAPACITY];
			b = slot_b[consumed % CAPACITY];
#endif
			if
			:: READY(consumed) > 0 -> pop()
			:: READY(consumed) == 0 -> break
			fi
		od;
#ifdef DRAIN_LAST
		bell = false
#endif
	od
#endif
}

ltl taken { <> (last == MESSAGES) }
