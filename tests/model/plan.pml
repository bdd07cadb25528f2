/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The change of a plan: core (mmd/core/plan/change_rows.c), a tenant with an engine's thread and a
 * service thread (libclient/protocol/steps.c, libclient/client/plan.c), xfer, which is killed
 * between any two of its acts (libclient/protocol/cycle.c), and the device's copies.
 *
 * Layers 1 and 2 always cycle in a slot, the page S. Layer 0 is in a page of its own, P, or cycles
 * with them: the plans alternate. When it joins the cycle, P goes to somebody else; when it comes
 * home, its bytes are brought to P before PREPARE. A step may break off between two layers; then
 * the gates are out of order until a change in full. What two threads of the tenant say arrives in
 * any order.
 *
 * @variant FULL: no step runs until all is done (MM_FEAT_PARTIAL is missing, --plan-change full)
 * @variant PART: steps go on, and wait at layer 0 only; after a step that broke off it is in full
 * @variant KICK: as PART, and core may end the connection at any time
 *
 * @property bytes: while a layer's kernels run, its bytes are where it is mapped
 * @property mapped: no kernel runs on an address where nothing is mapped
 * @property left: a page that goes to somebody else is not mapped by the tenant any more
 * @property ready_once: READY is written once per occupancy of the slot
 * @property allowed: no message or job comes where the protocol forbids it
 * @property needed: a change to the same plan begins only when gates are out of order
 * @property goes_on: no state is a dead end
 * @property steps_go_on: (liveness) after the last accident and change, steps go on for ever
 *
 * @switch NO_PARKED bytes: core goes on at PREPARE, without the tenant's PARKED
 * @switch OPEN_STEP bytes: mm_steps_on_prepare() says PARKED while a step is open
 * @switch QUIESCE_EARLY goes_on FULL: xfer is quiesced before the tenant has parked
 * @switch NO_QUIESCE allowed FULL: gates, cursor and plan are reset while xfer serves the old plan
 * @switch NO_RESET bytes FULL: gates stay as the plan before has left them
 * @switch EARLY_LEFT left: a page is dropped at SWITCH, not at COMMITTED
 * @switch AGAIN bytes FULL PART: an ACTIVATE of the active plan begins it anew
 *	(mm_xtenant_activate())
 * @switch WAKE_FIRST goes_on FULL: steps may begin before COMMITTED was pushed (switch_perform())
 * @switch NO_BROKEN allowed PART: PARKED does not say that a step broke off (MM_PARKED_BROKEN)
 * @switch NO_EPOCH needed FULL PART: RESYNC of a plan that is gone begins a change
 *	(mm_c_change_resync())
 * @switch IN_PART allowed PART: a change in part follows a step that broke off
 * @switch NO_CLOSED bytes PART: a layer that joins is handed over before the tenant has mapped it
 * @switch HOME_EARLY bytes PART: gates of layers that come home are emptied before REPLAN is done
 * @switch HOME_READY bytes PART: they are not emptied at all before SWITCH
 * @switch NO_REPLAN bytes PART: SWITCH is sent before REPLAN is done
 * @switch NO_LAND bytes PART: mm_cycles_replan() does not wait until a copy has landed
 * @switch EPOCH_FIRST goes_on PART: slot_begin() writes the cursor's epoch before the gates
 * @switch NO_WAIT allowed PART: core changes the plan region while an ACTIVATE is under way
 * @switch ABORT_IN_WINDOW mapped KICK: core aborts gates while layers are mapped elsewhere
 */
#define CHANGES 2
/* Kills, jobs that come twice, and steps that break off. */
#ifdef KICK
#define ACCIDENTS 0
#elif defined(LONG)
#define ACCIDENTS 2
#else
#define ACCIDENTS 1
#endif

#define MUST(property, condition) assert((condition) || PROPERTY_##property == 0)

#define X 0 /* the layer that changes */

/* Where a layer is. */
#define S       0
#define P       1
#define NOWHERE 2

#define EMPTY 0
#define READY 1
#define DONE  2

/* Contents other than a layer's, and copies other than of a layer. */
#define NOBODY  100
#define PARTLY  101
#define FOREIGN 102

/* Messages and jobs. */
mtype = { PREPARE, SWITCH, PARKED, RESYNC, MAPPED, COMMITTED, ACTIVATE, QUIESCE, REPLAN };
/* States of the change. */
mtype = { STEADY, PREPARED, FULL_QUIESCE, FULL_SWITCHED, PART_SWITCH, PART_REPLAN, PART_WINDOW };
/* States of the tenant's steps. */
mtype = { RUN, DRAIN, HALTED, MAP, WINDOW };
/* States of a slot and of its cursor. */
mtype = { VOID, HELD, COPYING, LANDED };

/* Nothing of the slot's first bytes is used: its first layer is copied in. */
byte content[2] = X;
byte copy[2] = NOBODY; /* what the device copies, for this xfer and for the one before */
byte engine_at;        /* which of the two is this xfer's */

/* Shared with the tenant. */
byte gate[3];
bool resident = true, aborted;
byte map_table = P;

/* Shared by core and xfer: the plan region and the cursor. */
byte plan_epoch = 1, plan_first = 1, open_epoch;
bool plan_closed;
mtype cursor_state = COPYING;
byte cursor_pos = 1, cursor_epoch = 1;
bool handed;

chan events = [3] of { mtype, byte, bool };
/* The threads decide under a lock, and push after they have let go of it. */
chan says = [3] of { mtype, byte, bool };
chan job = [1] of { mtype, byte };
chan job_done = [1] of { mtype, byte };

/* Core. */
mtype state = STEADY;
byte epoch = 1, served;
bool cycles, next_cycles, noted, left, control;
mtype control_kind;
byte control_epoch;
byte changes;
bool p_free;

/* Tenant. */
mtype steps = RUN;
byte plan = 1, next_plan;
bool step_open, broken;
byte map_x = P;
bool stepped;

bool killed, xfer_up = true;
byte accidents;
bool kicked, dead;

/* ---- the device ---- */

active [2] proctype device()
{
	byte layer;

end_idle:
	do
	:: d_step { copy[_pid] != NOBODY -> layer = copy[_pid]; content[S] = PARTLY }
	   d_step { content[S] = layer; copy[_pid] = NOBODY; layer = 0 }
	od
}

/* ---- the tenant ---- */

#define MAY_BEGIN ((steps == RUN || steps == WINDOW) && !broken && !aborted)
#define PASSES(layer) (gate[layer] == READY || (layer == X && resident) || aborted)
#define HAS_BYTES(layer) \
	(aborted || (layer == X && map_x != NOWHERE && content[map_x] == X) || \
	 (layer != X && content[S] == layer))

inline kernels_run(layer)
{
	d_step {
		MUST(mapped, layer != X || map_x != NOWHERE);
		MUST(bytes, HAS_BYTES(layer))
	};
	d_step {
		MUST(mapped, layer != X || map_x != NOWHERE);
		MUST(bytes, HAS_BYTES(layer));
		gate[layer] = DONE
	}
}

active proctype engine()
{
	byte layer, ran;
	bool off, parks;

	do
	:: aborted && !step_open -> break
	:: atomic { MAY_BEGIN -> step_open = true; ran = plan }
	   do
	   :: layer < 3 && !off ->
		PASSES(layer);
		kernels_run(layer);
		layer++;
		if
		:: d_step { accidents < ACCIDENTS && layer < 3 -> accidents++; off = true }
		:: true
		fi
	   :: layer == 3 || off -> break
	   od;
	   atomic {
		step_open = false;
		broken = broken || off;
		parks = (steps == DRAIN);
		if
		:: parks -> steps = HALTED
		:: else
		fi
	   }
	   if
	   :: off -> says ! RESYNC, ran, false
	   :: else
	   fi;
	   if
#ifdef NO_BROKEN
	   :: parks -> says ! PARKED, next_plan, false
#else
	   :: parks -> says ! PARKED, next_plan, broken
#endif
	   :: else
	   fi;
	   if
	   :: !off && !aborted -> stepped = true; stepped = false
	   :: else
	   fi;
	   d_step { layer = 0; ran = 0; off = false; parks = false }
	od
}

/* Elsewhere is unmapped first: a handle is mapped at one address only. */
inline map_plan()
{
	if
	:: map_x != map_table -> map_x = NOWHERE; map_x = map_table
	:: else
	fi
}

inline on_prepare()
{
	atomic {
		steps = DRAIN;
		next_plan = number;
#ifdef OPEN_STEP
		parks = true;
#else
		parks = !step_open;
#endif
		if
		:: parks -> steps = HALTED
		:: else
		fi
	};
	if
#ifdef NO_BROKEN
	:: parks -> says ! PARKED, number, false
#else
	:: parks -> says ! PARKED, number, broken
#endif
	:: else
	fi
}

inline plan_put_in_force(how)
{
	d_step { steps = how; plan = number; broken = false }
}

inline on_switch()
{
	MUST(allowed, !part || !broken); /* switch_is_due() */
	if
	:: part ->
		plan_put_in_force(WINDOW);
		map_plan();
		says ! MAPPED, number, false;
		steps = RUN;
		says ! COMMITTED, number, false
	:: !part ->
		steps = MAP;
		map_plan();
#ifdef WAKE_FIRST
		plan_put_in_force(RUN);
		says ! COMMITTED, number, false
#else
		says ! COMMITTED, number, false;
		plan_put_in_force(RUN)
#endif
	fi
}

active proctype service()
{
	byte number;
	bool part, parks;

end_idle:
	do
	:: events ? PREPARE, number, part -> on_prepare(); d_step { number = 0; parks = false }
	:: events ? SWITCH, number, part -> on_switch(); d_step { number = 0; part = false }
	/* mm_link_fail(); after the mapping, if one is under way. */
	:: empty(events) && dead && !aborted -> aborted = true
	od
}

/* ---- xfer ---- */

inline gate_ready(pos)
{
	atomic {
		MUST(ready_once, !handed);
		handed = true;
		gate[pos] = READY
	}
}

inline layer_hand_over()
{
	gate_ready(pos);
	d_step { cursor_state = HELD; cursor_pos = pos; slot = HELD }
}

inline layer_bring_in()
{
	d_step {
		copy[engine_at] == NOBODY ->
		copy[engine_at] = pos;
		handed = false;
		slot = COPYING
	}
}

#define NEXT(pos)   (pos == 2 -> first : pos + 1)
#define BEFORE(pos) (pos == first -> 2 : pos - 1)

inline slot_begin()
{
	pos = first;
#ifdef EPOCH_FIRST
	cursor_epoch = serves;
#endif
	d_step {
		gate[2] = EMPTY;
		if
		:: first == 0 -> gate[1] = EMPTY
		:: else
		fi
	};
	gate[first] = EMPTY;
	d_step { cursor_state = COPYING; cursor_pos = first };
#ifndef EPOCH_FIRST
	cursor_epoch = serves;
#endif
	layer_bring_in()
}

inline slot_resume()
{
	d_step { pos = cursor_pos; slot = HELD };
	if
	:: cursor_state == HELD
	:: cursor_state != HELD && gate[pos] != EMPTY -> d_step { cursor_state = HELD }
	:: cursor_state != HELD && gate[pos] == EMPTY ->
		if
		:: gate[BEFORE(pos)] == DONE ->
			gate[BEFORE(pos)] = EMPTY
		:: else
		fi;
		layer_bring_in()
	fi
}

inline plan_read()
{
	d_step { serves = plan_epoch; first = plan_first; closed = plan_closed; serving = true }
}

inline plan_serve()
{
	plan_read();
	if
	:: cursor_epoch == serves && cursor_pos >= first -> slot_resume()
	:: else -> slot_begin()
	fi
}

inline on_activate()
{
	if
#ifndef AGAIN
	:: serving && serves == number
#endif
	:: else ->
		MUST(allowed, plan_epoch == number);
#ifdef AGAIN
		if
		:: serving -> copy[engine_at] == NOBODY; slot_begin()
		:: else -> plan_serve()
		fi
#else
		MUST(allowed, !serving && cursor_epoch == number);
		plan_serve()
#endif
	fi
}

inline on_replan()
{
	MUST(allowed, plan_epoch == number);
	if
	:: serving && serves == number
	:: serving && serves != number ->
#ifdef NO_LAND
		engine_at = 1 - engine_at;
#else
		copy[engine_at] == NOBODY;
#endif
		plan_read();
		slot_begin()
	:: !serving -> plan_serve()
	fi
}

inline job_run()
{
	if
	:: what == ACTIVATE -> on_activate()
	:: what == REPLAN -> on_replan()
	:: what == QUIESCE ->
		d_step { serving = false; slot = VOID };
		copy[engine_at] == NOBODY
	fi;
	job_done ! what, number;
	number = 0
}

inline xfer_serve()
{
	do
	:: job ? what, number -> job_run()
	:: serving && slot == HELD && gate[pos] == DONE ->
		d_step {
			cursor_state = COPYING;
			cursor_pos = NEXT(pos)
		};
		gate[pos] = EMPTY;
		pos = NEXT(pos);
		layer_bring_in()
	:: serving && slot == COPYING && copy[engine_at] == NOBODY ->
#ifndef NO_CLOSED
		if
		:: closed && pos == X && open_epoch < serves -> slot = LANDED
		:: else -> layer_hand_over()
		fi
#else
		layer_hand_over()
#endif
	:: serving && slot == LANDED && open_epoch >= serves -> layer_hand_over()
	:: kicked && empty(job) -> goto done
	od
}

active proctype xfer()
{
	byte pos, serves, first = 1, number;
	bool serving, closed;
	mtype slot = VOID, what;

	do
	:: { xfer_serve() } unless { killed };
	   copy[engine_at] == NOBODY; /* keeper has reaped it */
	   d_step {
		pos = 0; serves = 0; first = 1; number = 0;
		serving = false; closed = false; slot = VOID; what = ACTIVATE;
		xfer_up = false
	   };
	   xfer_up
	od;
done:	skip
}

/* ---- core ---- */

#ifdef FULL
#define IN_FULL true
#else
#ifdef IN_PART
#define IN_FULL (cycles == next_cycles)
#else
#define IN_FULL noted
#endif
#endif

inline change_begin()
{
	if
	:: noted ->
		MUST(needed, broken || kicked);
		next_cycles = cycles
	:: !noted && changes < CHANGES ->
		changes++;
		next_cycles = !cycles;
		/* Coming home: the bytes are brought in first. */
		if
		:: cycles -> content[P] = X; p_free = false
		:: else
		fi
	fi;
	events ! PREPARE, epoch + 1, false;
#ifdef NO_PARKED
	on_parked()
#else
	state = PREPARED
#endif
}

inline on_parked()
{
	if
	:: IN_FULL -> state = FULL_QUIESCE
	:: !(IN_FULL) -> state = PART_SWITCH
	fi
}

inline plan_enter()
{
	epoch++;
	left = next_cycles && !cycles;
	map_table = (next_cycles -> S : P);
	plan_epoch = epoch;
	plan_first = (next_cycles -> 0 : 1)
}

inline switch_full()
{
	plan_enter();
	noted = false;
	plan_closed = false;
#ifndef NO_RESET
	gate[X] = EMPTY;
	gate[1] = EMPTY;
	gate[2] = EMPTY;
#endif
	resident = !next_cycles;
	cursor_state = COPYING;
	cursor_pos = plan_first;
	cursor_epoch = epoch;
	cycles = next_cycles;
	events ! SWITCH, epoch, false;
	state = FULL_SWITCHED;
	page_left_early()
}

inline switch_part()
{
	plan_enter();
	plan_closed = next_cycles && !cycles;
	if
	:: next_cycles && !cycles -> gate[X] = EMPTY; resident = false
#ifdef HOME_EARLY
	:: !next_cycles && cycles -> gate[X] = EMPTY
#endif
	:: else
	fi;
	cycles = next_cycles;
	state = PART_REPLAN
#ifdef NO_REPLAN
	;
	part_resume()
#endif
}

inline part_resume()
{
#if !defined(HOME_EARLY) && !defined(HOME_READY)
	if
	:: !cycles -> gate[X] = EMPTY
	:: else
	fi;
#endif
	events ! SWITCH, epoch, true;
	state = PART_WINDOW;
	page_left_early()
}

inline page_left()
{
	if
	:: left ->
		MUST(left, map_x != P);
		left = false;
		content[P] = FOREIGN;
		p_free = true
	:: else
	fi
}

inline page_left_early()
{
#ifdef EARLY_LEFT
	page_left()
#else
	skip
#endif
}

inline layer_open()
{
	if
	:: cycles -> open_epoch = epoch
	:: else -> resident = true
	fi
}

inline on_request()
{
	if
	:: kind == PARKED ->
#ifndef NO_PARKED
		MUST(allowed, state == PREPARED && number == epoch + 1);
		noted = noted || flag;
		on_parked()
#else
		skip
#endif
	:: kind == RESYNC ->
		if
#ifndef NO_EPOCH
		:: number < epoch
#endif
		:: else ->
			noted = noted || (state != FULL_QUIESCE && state != FULL_SWITCHED)
		fi
	:: kind == MAPPED ->
		MUST(allowed, state == PART_WINDOW && number == epoch);
		layer_open()
	:: kind == COMMITTED ->
		MUST(allowed, (state == PART_WINDOW || state == FULL_SWITCHED) && number == epoch);
		page_left();
		state = STEADY
	fi;
	number = 0;
	flag = false
}

inline on_job_done()
{
	control = false;
	served = (kind == QUIESCE -> 0 : number);
	if
	:: kind == QUIESCE && state == FULL_QUIESCE -> switch_full()
	:: kind == REPLAN && state == PART_REPLAN -> part_resume()
	:: else
	fi;
	number = 0
}

inline control_issue(what)
{
	control = true;
	control_kind = what;
	control_epoch = epoch;
	job ! what, epoch
}

#define ACTIVATES \
	(served != epoch && (state == STEADY || state == PREPARED || state == FULL_SWITCHED || \
			     state == PART_WINDOW))

#ifdef QUIESCE_EARLY
#define QUIESCES ((state == FULL_QUIESCE || state == PREPARED) && served == epoch)
#else
#define QUIESCES (state == FULL_QUIESCE)
#endif

active proctype core()
{
	mtype kind;
	byte number;
	bool flag;

end_idle:
	do
	:: atomic { !kicked && state == STEADY &&
		    (noted || (changes < CHANGES && (!cycles || p_free))) -> change_begin() }
	:: atomic { !kicked && nempty(says) -> says ? kind, number, flag; on_request() }
	:: atomic { kicked && nempty(says) ->
		    says ? kind, number, flag; number = 0; flag = false }
	:: atomic { job_done ? kind, number -> on_job_done() }
	:: atomic { xfer_up && !control && QUIESCES ->
#ifdef NO_QUIESCE
		    switch_full()
#else
		    control_issue(QUIESCE)
#endif
	   }
	:: atomic { xfer_up && !control && state == PART_REPLAN -> control_issue(REPLAN) }
	:: atomic { xfer_up && !control && ACTIVATES -> control_issue(ACTIVATE) }
	/* A core that has taken over may not know that it was done. */
	:: atomic { xfer_up && !control && state == STEADY && served == epoch &&
		    accidents < ACCIDENTS -> accidents++; control_issue(ACTIVATE) }
#ifdef NO_WAIT
	:: atomic { state == PART_SWITCH -> switch_part() }
#else
	:: atomic { !control && state == PART_SWITCH -> switch_part() }
#endif
	/* What the dead xfer had not done is given to the next one again. */
	:: atomic { !xfer_up ->
		if
		:: job ? kind, number
		:: empty(job)
		fi;
		if
		:: job_done ? kind, number
		:: empty(job_done)
		fi;
		number = 0;
		served = 0;
		killed = false;
		xfer_up = true;
		if
		:: control -> job ! control_kind, control_epoch
		:: else
		fi
	   }
	od
}

active proctype killer()
{
	do
	:: d_step { xfer_up && !killed && accidents < ACCIDENTS -> killed = true; accidents++ }
	:: true -> break
	od
}

#ifdef KICK
/* Core ends the connection for a reason of its own. */
active proctype kicker()
{
	atomic {
		kicked = true;
		if
#ifdef ABORT_IN_WINDOW
		:: true -> aborted = true
#else
		:: state == PART_WINDOW -> dead = true
		:: state != PART_WINDOW -> aborted = true
#endif
		fi
	}
}
#endif

ltl steps_go_on { []<> (stepped || kicked) }
