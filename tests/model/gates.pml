/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gates and the cursor of one slot in which LAYERS layers follow each other: a tenant whose
 * steps go through them, and xfer, which is killed between any two of its acts and started again
 * (libclient/protocol/cycle.c; mmd/xfer/tenant.c performs its acts, Documentation/protocol.md,
 * Streaming). The device copies in two chunks and goes on when xfer is killed, until xfer is
 * reaped.
 *
 * @property bytes: while a layer's kernels run, its bytes are in the slot, all of them
 * @property ready_once: READY is written once per occupancy of the slot
 * @property goes_on: no state is a dead end
 * @property steps: (liveness) after the last kill, steps go on for ever
 *
 * @switch NO_INTENT goes_on: mm_cycle_saw_gate() clears DONE before it writes the cursor
 * @switch NO_DONE bytes: mm_cycle_saw_gate() does not wait for DONE
 * @switch READY_EARLY bytes: READY is written when the copy was begun, not when it has landed
 * @switch HELD_FIRST goes_on: layer_hand_over() writes the cursor before READY
 * @switch COPY_ANYWAY bytes: mm_cycle_resume() copies though the gate is not EMPTY
 * @switch READY_ANYWAY ready_once: mm_cycle_resume() writes READY though the gate is not EMPTY
 * @switch NO_PREVIOUS goes_on: mm_cycle_resume() does not clear the gate of the layer before
 * @switch RESTART bytes: a new xfer begins at the first layer, whatever the cursor says
 * @switch NO_REAP bytes: a new xfer starts before the one before is reaped
 */
#define LAYERS 3
#ifdef LONG
#define KILLS 3
#else
#define KILLS 2
#endif

#define MUST(property, condition) assert((condition) || PROPERTY_##property == 0)

#define EMPTY 0
#define READY 1
#define DONE  2

#define HELD    0
#define COPYING 1

#define NOBODY  100 /* no copy */
#define PARTLY  101 /* the slot has some chunks of one layer and some of another */

#define NEXT(layer)   ((layer + 1) % LAYERS)
#define BEFORE(layer) ((layer + LAYERS - 1) % LAYERS)

byte gate[LAYERS]; /* low halves; all EMPTY */
byte cursor_state = COPYING, cursor_pos;
byte slot = PARTLY;    /* whose bytes are in it */
byte copy[2] = NOBODY; /* what the device copies, for this xfer and for the one before */
byte engine;           /* which of the two is this xfer's */
bool handed;           /* READY was written for this occupancy */
byte kills;
bool killed;
bool stepped; /* the tenant has just ended a step */

/* ---- the device ---- */

active [2] proctype device()
{
	byte layer;

end_idle:
	do
	:: d_step { copy[_pid] != NOBODY -> layer = copy[_pid]; slot = PARTLY }
	   d_step { slot = layer; copy[_pid] = NOBODY; layer = 0 }
	od
}

/* ---- the tenant: WaitValue64(READY), kernels, WriteValue32(DONE) ---- */

active proctype tenant()
{
	byte layer;

	do
	:: gate[layer] == READY ->
		MUST(bytes, slot == layer);
		MUST(bytes, slot == layer); /* the kernels' end */
		gate[layer] = DONE;
		layer = NEXT(layer);
		if
		:: layer == 0 -> stepped = true; stepped = false
		:: else
		fi
	od
}

/* ---- xfer ---- */

inline gate_ready(layer)
{
	atomic {
		MUST(ready_once, !handed);
		handed = true;
		gate[layer] = READY
	}
}

inline layer_hand_over()
{
#ifdef HELD_FIRST
	d_step { cursor_state = HELD; cursor_pos = pos }
	gate_ready(pos)
#else
	gate_ready(pos);
	d_step { cursor_state = HELD; cursor_pos = pos }
#endif
}

/* COPY; the end of the copy; mm_cycle_copied(). */
inline layer_bring_in()
{
	d_step { copy[engine] == NOBODY -> copy[engine] = pos; handed = false }
#ifndef READY_EARLY
	copy[engine] == NOBODY;
#endif
	layer_hand_over()
}

inline cycle_resume()
{
#ifdef RESTART
	pos = 0;
	layer_bring_in();
#else
	pos = cursor_pos;
	if
	:: cursor_state == HELD
	:: else ->
		if
#ifdef COPY_ANYWAY
		:: true ->
#else
		:: gate[pos] == EMPTY ->
#endif
#ifndef NO_PREVIOUS
			if
			:: gate[BEFORE(pos)] == DONE -> gate[BEFORE(pos)] = EMPTY
			:: else
			fi;
#endif
			layer_bring_in()
#ifndef COPY_ANYWAY
		:: gate[pos] != EMPTY ->
#ifdef READY_ANYWAY
			gate_ready(pos);
#endif
			d_step { cursor_state = HELD }
#endif
		fi
	fi
#endif
}

inline cycle_serve()
{
	do
#ifdef NO_DONE
	:: gate[pos] != EMPTY ->
#else
	:: gate[pos] == DONE ->
#endif
		used = pos;
		pos = NEXT(pos);
#ifdef NO_INTENT
		gate[used] = EMPTY;
		d_step { cursor_state = COPYING; cursor_pos = pos }
#else
		d_step { cursor_state = COPYING; cursor_pos = pos }
		gate[used] = EMPTY;
#endif
		layer_bring_in()
	od
}

active proctype xfer()
{
	byte pos, used;

again:
	{
		cycle_resume();
		cycle_serve()
	} unless { killed };
#ifndef NO_REAP
	/* mm_worker_gone(): keeper has reaped it, and nothing of it is under way. */
	copy[engine] == NOBODY;
#endif
	/* What was begun goes on: the device does not know of processes. */
	d_step { engine = 1 - engine; pos = 0; used = 0; killed = false }
	goto again
}

active proctype killer()
{
	do
	:: kills < KILLS -> atomic { !killed -> killed = true; kills++ }
	:: true -> break
	od
}

ltl steps { []<> stepped }
