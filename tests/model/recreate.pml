/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RECREATE: the memory of a page goes from one domain to another while its fd is in keeper, core,
 * xfer, messages between them, a tenant, and in processes that a dead tenant has left behind. Core
 * is killed between any two of its steps, and so is xfer.
 *
 * The book (state, tail of jobs, position of completions) survives core, and so do the queue of
 * messages to keeper, which keeper reads to its end before it starts another core, xfer's socket,
 * of which keeper has a dup, and the rings. Memory is created only when all of the one before is
 * free, as by a driver whose device is used up: no object is alive beside another.
 *
 * @property domains: a page that is FREE, or is granted, has no holder of another domain
 * @property kept: keeper has the fd of a page that is FREE or in use, or it is in keeper's queue
 * @property same: core's fd is of the memory that xfer has mapped
 * @property no_doubt: RECREATE lacks memory only because a dead tenant's processes hold it
 * @property goes_on: no state is a dead end
 * @property granted: (fair liveness) after the last kill, the page is granted again and again
 *
 * @switch NO_RECREATE domains: the proof of a tenant's death alone makes a page FREE
 * @switch NO_DROP no_doubt: keeper is not asked to drop the fd
 * @switch NO_ACK no_doubt: RECREATE is pushed before keeper has acknowledged that (R3: job_send())
 * @switch NO_CLOSE no_doubt: core does not close its own fd before the push (mm_worker_job())
 * @switch NO_UNMAP no_doubt: xfer does not unmap what it had (job_run_recreate())
 * @switch NO_AGAIN no_doubt: for a job that is issued again to a new xfer, nothing is dropped
 * @switch PUSH_TWICE no_doubt: after a restart the job is pushed though the ring has it (R8:
 *	mm_pushed_adopt())
 * @switch NO_HOLD kept: the completion is journaled before keeper was sent the fd (R2:
 *	job_pages_collect())
 * @switch NO_PEEK goes_on: xfer's message with the fd is consumed before keeper was sent it
 *	(message_receive())
 * @switch HEAD_FIRST goes_on: the ring's head is published before the completion is journaled (R11)
 * @switch NO_EOF no_doubt: keeper starts another core before it has read what the one before sent
 * @switch COMPLETE_FIRST goes_on: xfer completes the job before it sends the fd
 */
#ifdef LONG
#define KILLS 3
#else
#define KILLS 2
#endif

#define MUST(property, condition) assert((condition) || PROPERTY_##property == 0)

/* Holders of an object of memory: bits. */
#define CORE   1
#define KEEPER 2
#define XFER   4
#define SOCKET 8
#define QUEUE  16
#define TENANT 32
#define FORK   64

#define NONE 2 /* no object */

#define FREE       0
#define USED       1
#define RECREATING 2

byte holders[2];
byte core_fd = NONE, keeper_fd = NONE, newest = 0;

/* The book. */
byte state = FREE;
bool job_pushed;     /* the tail of the ring of jobs: the job is in it */
bool reissued;       /* it was given to an xfer that died */
bool done_journaled; /* the position of the journal's last completion: it is that in the ring */

/* What survives core: the rings, xfer's socket, the queue to keeper. */
bool job_waits;
bool done_waits, done_good;
byte sock_fd = NONE;
chan queue = [3] of { byte }; /* an object to hold, or NONE: drop */
bool dropped;                 /* keeper's acknowledgement */

bool core_killed, xfer_killed, xfer_up = true;
byte kills;
bool tenant_dead;
bool grant; /* just granted */

#define ALIVE (holders[0] || holders[1])

inline hold(object, who)   { holders[object] = holders[object] | (who) }
inline let_go(object, who) { holders[object] = holders[object] & (127 - (who)) }

/* ---- tenants, and what they leave behind ---- */

active proctype tenant()
{
	do
	:: state == USED && core_fd != NONE && (holders[core_fd] & TENANT) && !tenant_dead ->
		if
		:: d_step { let_go(0, TENANT); let_go(1, TENANT); tenant_dead = true }
		:: d_step {
			if
			:: holders[0] & TENANT -> let_go(0, TENANT); hold(0, FORK)
			:: else -> let_go(1, TENANT); hold(1, FORK)
			fi;
			tenant_dead = true
		   }
		fi
	:: d_step { (holders[0] | holders[1]) & FORK -> let_go(0, FORK); let_go(1, FORK) }
	od
}

/* ---- keeper ---- */

active proctype keeper()
{
	byte object;

	do
	:: atomic {
		queue ? object ->
		if
		:: keeper_fd != NONE -> let_go(keeper_fd, KEEPER)
		:: else
		fi;
		keeper_fd = object;
		if
		:: object != NONE -> let_go(object, QUEUE); hold(object, KEEPER)
		:: else -> dropped = true
		fi;
		object = 0
	   }
	od
}

/* ---- xfer ---- */

inline xfer_complete(good)
{
	d_step { done_good = good; done_waits = true }
}

active proctype xfer()
{
again:
	do
	:: {
		do
		:: job_waits && !done_waits ->
			job_waits = false;
#ifndef NO_UNMAP
			d_step { let_go(0, XFER); let_go(1, XFER) }
#endif
			if
			:: atomic { !ALIVE -> newest = 1 - newest; hold(newest, XFER) }
#ifdef COMPLETE_FIRST
				xfer_complete(true);
#endif
				d_step { hold(newest, SOCKET); sock_fd = newest }
#ifndef COMPLETE_FIRST
				xfer_complete(true)
#endif
			:: atomic {
				ALIVE -> MUST(no_doubt, (holders[0] | holders[1]) & (TENANT | FORK))
			   }
				xfer_complete(false)
			fi
		od
	   } unless { xfer_killed };
	   d_step { let_go(0, XFER); let_go(1, XFER); xfer_up = false; xfer_killed = false };
	   xfer_up /* worker_start(): core has another one started */
	od
}

/* ---- core ---- */

/* R3: keeper acknowledges, and our own fd is closed, before the job is pushed. */
inline core_push()
{
#ifndef NO_DROP
	d_step { dropped = false };
#ifdef NO_AGAIN
	if
	:: reissued
	:: !reissued -> queue ! NONE; dropped
	fi;
#else
	queue ! NONE;
#ifndef NO_ACK
	dropped;
#endif
#endif
#endif
#ifndef NO_CLOSE
	d_step {
		if
		:: core_fd != NONE -> let_go(core_fd, CORE); core_fd = NONE
		:: else
		fi
	};
#endif
	/* The tail is published in one store, and tells a successor that the job is in the ring. */
	d_step { job_waits = true; job_pushed = true }
}

inline core_take_fd()
{
	atomic {
		if
		:: core_fd != NONE -> let_go(core_fd, CORE)
		:: else
		fi;
		core_fd = sock_fd;
		hold(core_fd, CORE)
	}
}

inline core_hold_fd()
{
	atomic { nfull(queue) -> hold(core_fd, QUEUE); queue ! core_fd }
}

inline socket_consume()
{
	d_step {
		if
		:: sock_fd != NONE -> let_go(sock_fd, SOCKET); sock_fd = NONE
		:: else
		fi
	}
}

/* The journal's record: state and position in one store. */
inline core_journal_done()
{
	atomic {
		if
		:: done_good -> state = FREE
		:: else /* quarantined, and tried again after a while */
		fi;
		job_pushed = false;
		reissued = false;
		done_journaled = true
	}
}

inline core_on_done()
{
	if
	:: sock_fd != NONE && done_good ->
		core_take_fd();
#ifdef NO_PEEK
		socket_consume();
#endif
#ifdef NO_HOLD
		core_journal_done();
#endif
		core_hold_fd();
		socket_consume();
	:: sock_fd == NONE && done_good ->
		core_fd != NONE /* consumed before a restart: the inventory has it */
	:: !done_good
	fi;
#ifdef HEAD_FIRST
	done_waits = false;
	core_journal_done();
	done_journaled = false
#else
#ifndef NO_HOLD
	core_journal_done();
#else
	if
	:: !done_journaled -> core_journal_done()
	:: else
	fi;
#endif
	d_step { done_waits = false; done_journaled = false }
#endif
}

/* Keeper has the fd for as long as the page is anybody's. */
#define KEPT (core_fd != NONE && (holders[core_fd] & (KEEPER | QUEUE)))

inline core_grant()
{
	atomic {
		MUST(kept, KEPT);
		MUST(same, !xfer_up || (holders[core_fd] & XFER));
		MUST(domains, !(holders[core_fd] & (TENANT | FORK)));
		state = USED;
		tenant_dead = false;
		hold(core_fd, TENANT);
		grant = true
	}
	grant = false
}

inline core_on_xfer_down()
{
	/* worker_disconnect(): its last messages count for nothing, its pages are created anew. */
	socket_consume();
	d_step {
		reissued = job_pushed;
		job_waits = false;
		done_waits = false;
		done_journaled = false;
		job_pushed = false
	};
	/* worker_on_up(): it adopts pages from their fds. */
	d_step {
		if
		:: state != RECREATING && core_fd != NONE -> hold(core_fd, XFER)
		:: else
		fi;
		xfer_up = true
	}
}

inline core_run()
{
	do
	:: !xfer_up -> core_on_xfer_down()
	:: xfer_up && !xfer_killed && state == FREE && !done_waits -> core_grant()
	:: state == USED && tenant_dead ->
#ifdef NO_RECREATE
		state = FREE
#else
		state = RECREATING
#endif
	:: xfer_up && state == RECREATING && !job_pushed && !done_waits -> core_push()
	:: xfer_up && done_waits && !done_journaled -> core_on_done()
	:: xfer_up && done_waits && done_journaled ->
		d_step { done_waits = false; done_journaled = false }
	od
}

inline core_recover()
{
#ifndef NO_EOF
	empty(queue);
#endif
	d_step {
		dropped = false;
		core_fd = keeper_fd;
		if
		:: core_fd != NONE -> hold(core_fd, CORE)
		:: else
		fi
	}
}

active proctype core()
{
	/* The first page is there. */
	d_step { holders[0] = CORE | KEEPER | XFER; core_fd = 0; keeper_fd = 0 };
	do
	:: { core_run() } unless { core_killed };
	   d_step {
		if
		:: core_fd != NONE -> let_go(core_fd, CORE); core_fd = NONE
		:: else
		fi;
		grant = false;
#ifdef PUSH_TWICE
		job_pushed = false;
#endif
		core_killed = false
	   };
	   core_recover()
	od
}

active proctype killer()
{
	do
	:: kills < KILLS ->
		if
		:: d_step { !core_killed -> core_killed = true; kills++ }
		:: d_step { xfer_up && !xfer_killed -> xfer_killed = true; kills++ }
		fi
	:: true -> break
	od
}

ltl granted { []<> grant }
