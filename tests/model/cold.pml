/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers that wait for two cursors: for their weights in a slot, and for the rows of cold blocks in
 * their class's part of the window. A tenant whose steps go through them, and xfer, which is killed
 * between any two of its acts and started again (libclient/protocol/cycle.c; mmd/xfer/tenant.c
 * performs its acts, Documentation/protocol.md, Two cursors of one layer).
 *
 * Layers 0, 1 and 2 share the slot. While cold blocks are streamed, layers 0 and 2 are of one class
 * and 1 and 3 of the other; else layer 3 is resident. The live entries are a number, which the
 * tenant counts up before it counts up the version: rows that were chosen at n have all that was
 * live at n. A change of the plan begins or ends the streaming, or moves the window, or nothing.
 *
 * @variant STILL: no change of the plan, no entry comes; the most kills
 * @variant ROWS: entries come, bits and version one by one
 * @variant PART: xfer goes over while it serves (REPLAN)
 * @variant KEEP: as PART, entries come; kills only with MM_TEST_LONG
 * @variant FULL: xfer is quiesced, and core writes gates and cursors
 *
 * @property bytes: while a layer's kernels run, all of its weights and of its rows are there
 * @property rows: the rows have all entries that the step counts on
 * @property ready_once: READY is written where the gate is EMPTY
 * @property left: nothing is copied into a window that is not of the plan in force
 * @property goes_on: no state is a dead end
 * @property steps: (liveness) after the last kill and change, steps go on for ever
 *
 * @switch ONE_INTENT goes_on STILL: mm_cycle_saw_gate() clears DONE when one of two cursors is
 *	written
 * @switch ONE_LANDED bytes: READY is written when one of two has landed
 * @switch HELD_FIRST goes_on STILL: layer_hand_over() writes one cursor before READY
 * @switch INTENTS_FIRST goes_on STILL: cursors_resume() writes intents before it has found whose
 *	READY was written
 * @switch EMPTY_FIRST goes_on STILL: cursors_resume() clears gates before it has written all
 *	intents
 * @switch ONE_BY_ONE goes_on STILL: each cursor is resumed by itself, as a slot is
 * @switch READ_TWICE goes_on STILL: each cursor reads the gate of its layer by itself
 * @switch NO_PREVIOUS goes_on STILL: cursors_resume() does not clear gates of layers before
 * @switch COPY_ANYWAY bytes STILL: cursors_resume() copies though the gate is not EMPTY
 * @switch NO_ACK rows ROWS: a step counts on all that is live, acknowledged or not
 * @switch BITS_FIRST rows ROWS: xfer reads the live bits before the version
 * @switch COMMIT_FIRST rows ROWS: the tenant counts up the version before it sets the bits
 * @switch ACK_ONE rows ROWS: what one class has is acknowledged, not what all have
 * @switch KEEP_NEW rows KEEP: a class that keeps its rows over a change gets the version of now
 * @switch KEEP_WINDOW bytes PART: a class keeps its rows though the window is another one
 * @switch NO_LAND left PART: mm_cycles_replan() does not wait for copies that are of no use
 * @switch READY_FIRST goes_on PART: READY is written before all cursors have the epoch
 * @switch GATES_LAST goes_on PART: gates are cleared after the cursors have the epoch
 * @switch NO_WAIT left FULL: QUIESCE is done before the copies have ended
 */
#ifdef LONG
#define MORE 1
#else
#define MORE 0
#endif
#ifdef STILL
#define KILLS   (2 + MORE)
#define CHANGES 0
#define COMMITS 0
#elif defined(ROWS)
#define KILLS   (1 + MORE)
#define CHANGES 0
#define COMMITS 1
#elif defined(KEEP)
#define KILLS   MORE
#define CHANGES 1
#define COMMITS 1
#else
#define KILLS   1
#define CHANGES (1 + MORE)
#define COMMITS MORE
#endif
#if CHANGES
#define MAY_DIE (changes > 0 && (parked || job != NOTHING)) /* elsewhere: STILL, and gates.pml */
#else
#define MAY_DIE true
#endif

#define MUST(property, condition) assert((condition) || PROPERTY_##property == 0)

#define LAYERS  4
#define CURSORS 3
#define SLOT    0 /* then two classes */

#define EMPTY 0
#define READY 1
#define DONE  2

#define NOBODY 100 /* no copy */
#define PARTLY 101 /* some bytes of one layer and some of another */

#define OF_SLOT(layer) (layer < 3)
#define CLASS(layer)   (1 + layer % 2)
#define FIRST(c)       (c == 2 -> 1 : 0)
#define NEXT(c, layer) (c == SLOT -> (layer + 1) % 3 : (layer + 2) % 4)
#define BEFORE(c, layer) (c == SLOT -> (layer + 2) % 3 : (layer + 2) % 4)
#define LEAST (version[1] < version[2] -> version[1] : version[2])

mtype = { VOID, HELD, COPYING, LANDED };
mtype = { NOTHING, ACTIVATE, REPLAN, QUIESCE };

/* Shared with the tenant. */
byte gate[LAYERS]; /* low halves; all EMPTY */
byte live, live_version, acked;

/* Shared by core and xfer. The window of the plan; 0: no cold blocks are streamed. */
byte plan_epoch = 1, plan_window = 1;
mtype cursor[CURSORS] = COPYING;
byte at[CURSORS] = { 0, 0, 1 };
byte epoch[CURSORS] = 1;
byte version[CURSORS];
mtype job = (CHANGES -> NOTHING : ACTIVATE);
bool quiet = (CHANGES > 0); /* core resets gates and cursors: no plan is to be served */

/* What is where: a layer; and the rows of which entries. */
byte slot = PARTLY;
byte rows[CURSORS] = PARTLY, rows_live[CURSORS];

/* Copies on the device: of which layer, of which entries, into which window. */
byte copy[CURSORS] = NOBODY, copy_live[CURSORS], copy_window[CURSORS];

/* xfer: the plan that it serves (0: none), and struct mm_cycles. */
byte serves, window;
mtype state[CURSORS] = VOID;
byte pos[CURSORS];
bool keep[CURSORS], fits[CURSORS];
byte seen[LAYERS]; /* gates, as a new xfer has found them */
byte chosen_version;
byte chosen[CURSORS]; /* the entries of the copy that follows */

byte kills, changes;
bool killed, parked = (CHANGES > 0), step_open, stepped;

/* ---- the device ---- */

#define LANDS(c) copy[c] != NOBODY

inline lands_rows(c)
{
	d_step {
		LANDS(c) ->
		MUST(left, copy_window[c] == plan_window || job == REPLAN || job == QUIESCE);
		if
		:: copy_window[c] == plan_window -> rows[c] = copy[c]; rows_live[c] = copy_live[c]
		:: else
		fi;
		copy[c] = NOBODY; copy_live[c] = 0; copy_window[c] = 0
	}
}

active proctype device()
{
end_idle:
	do
	:: d_step { LANDS(SLOT) -> slot = copy[SLOT]; copy[SLOT] = NOBODY }
	:: lands_rows(1)
	:: lands_rows(2)
	od
}

/* From its begin on, a copy spoils what was there. */
inline copy_begin(c)
{
	d_step {
		copy[c] == NOBODY;
		copy[c] = pos[c];
		state[c] = COPYING;
		if
		:: c == SLOT -> slot = PARTLY
		:: else ->
			copy_live[c] = chosen[c];
			copy_window[c] = window;
			chosen[c] = 0;
			rows[c] = PARTLY
		fi
	}
}

/* ---- the tenant: WaitValue64(READY), kernels, WriteValue32(DONE) ---- */

#define RESIDENT(layer) (plan_window == 0 && layer == 3)
#define HAS_WEIGHTS(layer) (!OF_SLOT(layer) || slot == layer)
#define HAS_ROWS(layer) (plan_window == 0 || rows[CLASS(layer)] == layer)

inline kernels_see(layer)
{
	MUST(bytes, HAS_WEIGHTS(layer) && HAS_ROWS(layer));
	MUST(rows, plan_window == 0 || rows_live[CLASS(layer)] >= needs)
}

active proctype tenant()
{
	byte layer, needs;

	do
	:: d_step {
		!parked -> step_open = true;
#ifdef NO_ACK
		needs = live_version
#else
		needs = acked
#endif
	   }
	   do
	   :: layer < LAYERS ->
		atomic { (gate[layer] == READY || RESIDENT(layer)) -> kernels_see(layer) };
		d_step { kernels_see(layer); gate[layer] = DONE; layer++ }
	   :: layer == LAYERS -> break
	   od;
	   atomic { layer = 0; needs = 0; step_open = false; stepped = true };
	   stepped = false
	od
}

/* A block becomes cold: its bit, then the version. */
active proctype engine()
{
end_idle:
	do
	:: live < COMMITS && live_version < COMMITS ->
#if defined(COMMIT_FIRST)
		live_version++;
		live++
#elif defined(ROWS)
		live++;
		live_version++
#else
		d_step { live++; live_version++ }
#endif
	od
}

/* ---- xfer: acts ---- */

inline gate_ready(layer)
{
	d_step {
		MUST(ready_once, gate[layer] == EMPTY);
		gate[layer] = READY
	}
}

/* CURSOR with COPYING: of a class with the rows that are chosen now. */
inline cursor_copying(c)
{
	if
	:: c == SLOT -> d_step { cursor[c] = COPYING; at[c] = pos[c] }
	:: c != SLOT ->
#if defined(BITS_FIRST)
		chosen[c] = live;
		chosen_version = live_version;
#elif defined(ROWS)
		chosen_version = live_version;
		chosen[c] = live;
#else
		d_step { chosen_version = live_version; chosen[c] = live };
#endif
		d_step { cursor[c] = COPYING; at[c] = pos[c] };
		d_step { version[c] = chosen_version; chosen_version = 0 };
#ifdef ACK_ONE
		d_step { acked = (version[c] > acked -> version[c] : acked) }
#else
		d_step { acked = (LEAST > acked -> LEAST : acked) }
#endif
	fi
}

inline cursor_held(c)
{
	d_step { cursor[c] = HELD; at[c] = pos[c] }
}

/* ---- xfer: mm_cycles ---- */

#define HAS(c)	     (c == SLOT || window != 0)
#define IS(c, layer, what) (state[c] == what && pos[c] == layer)
#define SLOT_HAS(layer, what) (!OF_SLOT(layer) || IS(SLOT, layer, what))
#define CLASS_HAS(layer, what) (window == 0 || IS(CLASS(layer), layer, what))
#ifdef ONE_LANDED
#define COMPLETE(layer) true
#else
#define COMPLETE(layer) (SLOT_HAS(layer, LANDED) && CLASS_HAS(layer, LANDED))
#endif

inline layer_hand_over(layer)
{
#ifdef HELD_FIRST
	if
	:: OF_SLOT(layer) && state[SLOT] == LANDED -> cursor_held(SLOT)
	:: else
	fi;
#endif
	gate_ready(layer);
	if
	:: OF_SLOT(layer) && IS(SLOT, layer, LANDED) -> cursor_held(SLOT); state[SLOT] = HELD
	:: else
	fi;
	if
	:: window != 0 && IS(CLASS(layer), layer, LANDED) ->
		cursor_held(CLASS(layer));
		state[CLASS(layer)] = HELD
	:: else
	fi
}

inline layer_try(layer)
{
	if
	:: COMPLETE(layer) -> layer_hand_over(layer)
	:: else
	fi
}

inline copied(c)
{
	d_step { state[c] == COPYING && copy[c] == NOBODY -> state[c] = LANDED };
	layer_try(pos[c])
}

/* The class has seen DONE in the gate of its layer; without classes the slot has. */
inline saw_done(c)
{
	used = pos[c];
	both = (c != SLOT && OF_SLOT(used) && IS(SLOT, used, HELD));
	if
	:: both -> d_step { pos[SLOT] = NEXT(SLOT, used) }; cursor_copying(SLOT)
	:: else
	fi;
#ifdef ONE_INTENT
	gate[used] = EMPTY;
#endif
	d_step { pos[c] = NEXT(c, used) };
	cursor_copying(c);
#ifndef ONE_INTENT
	gate[used] = EMPTY;
#endif
	if
	:: both -> copy_begin(SLOT)
	:: else
	fi;
	copy_begin(c);
	d_step { used = 0; both = false }
}

/* Each gate is read once, for both of its cursors. */
inline gates_read()
{
	seen[0] = gate[0];
	seen[1] = gate[1];
	seen[2] = gate[2];
	seen[3] = gate[3]
}

#ifdef READ_TWICE
#define SEEN(layer) gate[layer]
#else
#define SEEN(layer) seen[layer]
#endif

/* Those in COPYING whose READY was written hold their layers; the others are VOID. */
inline resume_state(c)
{
	d_step { pos[c] = at[c]; state[c] = HELD };
	if
	:: cursor[c] == HELD
#ifdef COPY_ANYWAY
	:: cursor[c] != HELD -> state[c] = VOID
#else
	:: cursor[c] != HELD && SEEN(pos[c]) == EMPTY -> state[c] = VOID
	:: cursor[c] != HELD && SEEN(pos[c]) != EMPTY -> cursor_held(c)
#endif
	fi
}

inline resume_intent(c)
{
	if
	:: state[c] == HELD && SEEN(pos[c]) == DONE ->
		d_step { pos[c] = NEXT(c, pos[c]) };
		cursor_copying(c);
		state[c] = VOID
	:: else
	fi
}

inline resume_empty(c)
{
	if
#ifndef NO_PREVIOUS
	:: state[c] == VOID && SEEN(BEFORE(c, pos[c])) == DONE -> gate[BEFORE(c, pos[c])] = EMPTY
#endif
	:: else
	fi
}

#define EACH(what, condition) \
	if \
	:: condition(SLOT) -> what(SLOT) \
	:: else \
	fi; \
	if \
	:: condition(1) -> what(1) \
	:: else \
	fi; \
	if \
	:: condition(2) -> what(2) \
	:: else \
	fi

#define FITS(c)     fits[c]
#define IS_VOID(c)  (HAS(c) && state[c] == VOID)
#define IS_THERE(c) (HAS(c) && state[c] == LANDED)

inline gates_all_empty()
{
	gate[0] = EMPTY;
	gate[1] = EMPTY;
	gate[2] = EMPTY;
	if
	:: window != 0 -> gate[3] = EMPTY
	:: else
	fi
}

inline cursors_resume()
{
#ifdef ONE_BY_ONE
	EACH(resume_alone, FITS)
#elif defined(INTENTS_FIRST)
	EACH(resume_intents_first, FITS);
	EACH(resume_empty, FITS);
	EACH(resume_state_last, FITS)
#elif defined(EMPTY_FIRST)
	EACH(resume_state, FITS);
	EACH(resume_empty_first, FITS);
	EACH(resume_intent, FITS);
	EACH(resume_empty, FITS)
#else
	EACH(resume_state, FITS);
	EACH(resume_intent, FITS);
	EACH(resume_empty, FITS)
#endif
}

#ifdef ONE_BY_ONE
inline resume_alone(c)
{
	resume_state(c);
	resume_intent(c);
	resume_empty(c)
}
#endif

#ifdef INTENTS_FIRST
inline resume_intents_first(c)
{
	d_step { pos[c] = at[c]; state[c] = (cursor[c] == HELD -> HELD : VOID) };
	resume_intent(c)
}

inline resume_state_last(c)
{
	if
	:: state[c] == VOID && SEEN(pos[c]) != EMPTY -> cursor_held(c); state[c] = HELD
	:: else
	fi
}
#endif

#ifdef EMPTY_FIRST
/* Of layers that were used, whether a cursor is at them or past them. */
inline resume_empty_first(c)
{
	if
	:: SEEN(pos[c]) == DONE && state[c] == HELD ->
		d_step { pos[c] = NEXT(c, pos[c]); state[c] = VOID };
		gate[BEFORE(c, pos[c])] = EMPTY;
		cursor_copying(c)
	:: else -> resume_empty(c)
	fi
}
#endif

/* A cursor of another plan begins at its first layer. */
inline serve_cursor(c)
{
	if
	:: !fits[c] -> d_step { pos[c] = FIRST(c); state[c] = VOID }
	:: else
	fi;
	if
	:: state[c] == VOID -> cursor_copying(c)
	:: else
	fi;
	if
	:: !fits[c] -> epoch[c] = serves
	:: else
	fi
}

inline serve_end()
{
	d_step {
		seen[0] = EMPTY; seen[1] = EMPTY; seen[2] = EMPTY; seen[3] = EMPTY;
		fits[SLOT] = false; fits[1] = false; fits[2] = false
	}
}

inline cursors_serve()
{
	gates_read();
	d_step {
		fits[SLOT] = (epoch[SLOT] == serves);
		fits[1] = (window != 0 && epoch[1] == serves);
		fits[2] = (window != 0 && epoch[2] == serves)
	};
	if
	:: !fits[SLOT] && !fits[1] && !fits[2] -> gates_all_empty()
	:: else
	fi;
	cursors_resume();
	EACH(serve_cursor, HAS);
	EACH(copy_begin, IS_VOID);
	serve_end()
}

/* ---- xfer: jobs ---- */

#define PLAN_READ d_step { serves = plan_epoch; window = plan_window }

/* It is there, or on its way, and the next step needs it first. */
#define UNUSED(c) (state[c] != HELD || gate[pos[c]] == READY)
#ifdef KEEP_WINDOW
#define SAME_PLACE(c) (HAS(c) && plan_window != 0)
#else
#define SAME_PLACE(c) (HAS(c) && window == plan_window)
#endif
#define STAYS(c) \
	((c == SLOT || SAME_PLACE(c)) && state[c] != VOID && pos[c] == FIRST(c) && UNUSED(c))
#define STILL_OR_STAYS(c) (copy[c] == NOBODY || STAYS(c))

inline go_over_cursor(c)
{
	pos[c] = FIRST(c);
	if
	:: keep[c] && c != SLOT ->
		d_step { cursor[c] = COPYING; at[c] = pos[c] };
#ifdef KEEP_NEW
		version[c] = live_version;
		acked = (LEAST > acked -> LEAST : acked);
#endif
	:: !keep[c] || c == SLOT -> cursor_copying(c)
	fi;
	epoch[c] = serves;
#ifdef READY_FIRST
	go_over_layer(c)
#endif
}

inline go_over_state(c)
{
	d_step {
		keep[c] = STAYS(c);
		if
		:: !keep[c] -> state[c] = VOID
		:: keep[c] && state[c] == HELD -> state[c] = LANDED
		:: else
		fi
	}
}

inline go_over_layer(c)
{
	if
	:: state[c] == LANDED -> layer_try(pos[c])
	:: else
	fi
}

inline cursors_go_over()
{
#ifndef NO_LAND
	STILL_OR_STAYS(SLOT) && STILL_OR_STAYS(1) && STILL_OR_STAYS(2);
#endif
	go_over_state(SLOT);
	go_over_state(1);
	go_over_state(2);
	PLAN_READ;
#ifndef GATES_LAST
	gates_all_empty();
#endif
	EACH(go_over_cursor, HAS);
#ifdef GATES_LAST
	gates_all_empty();
#endif
	EACH(copy_begin, IS_VOID);
	EACH(go_over_layer, IS_THERE);
	d_step { keep[SLOT] = false; keep[1] = false; keep[2] = false }
}

inline job_run()
{
	if
	:: job == QUIESCE ->
		d_step { serves = 0; state[SLOT] = VOID; state[1] = VOID; state[2] = VOID };
#ifndef NO_WAIT
		copy[SLOT] == NOBODY && copy[1] == NOBODY && copy[2] == NOBODY
#endif
	:: job != QUIESCE && serves == 0 -> PLAN_READ; cursors_serve()
	:: job == REPLAN && serves != 0 && serves != plan_epoch -> cursors_go_over()
	:: else
	fi;
	job = NOTHING
}

#define LANDED_NOW(c) (state[c] == COPYING && copy[c] == NOBODY)
#define SEES_DONE(c) \
	(serves != 0 && (window == 0 || c != SLOT) && state[c] == HELD && gate[pos[c]] == DONE)

inline xfer_serve()
{
	do
	:: job != NOTHING -> job_run()
	:: LANDED_NOW(SLOT) -> copied(SLOT)
	:: LANDED_NOW(1) -> copied(1)
	:: LANDED_NOW(2) -> copied(2)
	:: SEES_DONE(SLOT) -> saw_done(SLOT)
	:: SEES_DONE(1) -> saw_done(1)
	:: SEES_DONE(2) -> saw_done(2)
	od
}

active proctype xfer()
{
	byte used;
	bool both;

	do
	:: { xfer_serve() } unless { killed };
	   /* mm_worker_gone(): keeper has reaped it, and nothing of it is under way. */
	   copy[SLOT] == NOBODY && copy[1] == NOBODY && copy[2] == NOBODY;
	   d_step {
		serves = 0; window = 0; used = 0; both = false; chosen_version = 0;
		state[SLOT] = VOID; pos[SLOT] = 0; keep[SLOT] = false; fits[SLOT] = false;
		state[1] = VOID; pos[1] = 0; keep[1] = false; fits[1] = false; chosen[1] = 0;
		state[2] = VOID; pos[2] = 0; keep[2] = false; fits[2] = false; chosen[2] = 0;
		seen[0] = EMPTY; seen[1] = EMPTY; seen[2] = EMPTY; seen[3] = EMPTY;
		killed = false;
		if
		:: job == NOTHING && !quiet -> job = ACTIVATE
		:: else
		fi
	   }
	od
}

active proctype killer()
{
end_idle:
	do
	:: kills < KILLS -> d_step { !killed && MAY_DIE -> killed = true; kills++ }
	od
}

/* ---- core ---- */

inline plan_write()
{
	plan_epoch++;
	if
	:: next != plan_window ->
		rows[1] = PARTLY; rows_live[1] = 0;
		rows[2] = PARTLY; rows_live[2] = 0
	:: else
	fi;
	plan_window = next
}

inline change_part()
{
	d_step {
		job == NOTHING && !killed ->
		/* Layer 3 joins. */
		if
		:: plan_window == 0 && next != 0 -> gate[3] = EMPTY
		:: else
		fi;
		plan_write();
		job = REPLAN
	};
	job == NOTHING;
	/* Layer 3 comes home. */
	if
	:: plan_window == 0 -> gate[3] = EMPTY
	:: else
	fi
}

inline cursor_reset(c)
{
	cursor[c] = COPYING; at[c] = FIRST(c); epoch[c] = plan_epoch; version[c] = 0
}

inline change_full()
{
	d_step { job == NOTHING && !killed -> job = QUIESCE; quiet = true };
	job == NOTHING;
	d_step {
		plan_write();
		gate[0] = EMPTY; gate[1] = EMPTY; gate[2] = EMPTY; gate[3] = EMPTY;
		cursor_reset(SLOT);
		cursor_reset(1);
		cursor_reset(2);
		quiet = false;
		job = ACTIVATE
	}
}

active proctype core()
{
	byte next;

#if CHANGES
	atomic {
		if
		:: plan_window = 0
		:: plan_window = 1
		fi;
		parked = false;
		quiet = false;
		job = ACTIVATE
	};
#endif
end_idle:
	do
	:: changes < CHANGES ->
		changes++;
		if
		:: next = 0
		:: next = 1
		:: next = 2
		fi;
		parked = true;
		!step_open;
#ifdef FULL
		change_full();
#else
		change_part();
#endif
		d_step { next = 0; parked = false }
	od
}

ltl steps { []<> stepped }
