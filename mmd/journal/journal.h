/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_journal - events of a core, written down before they happen
 *
 * Concept:    Records lie one behind the other in memory of the caller. Whoever has an image of a
 *             core (mmd/core/image.h) and the events since has the same core again: replaying takes
 *             out the same actions, of which those that were performed are dropped. With a new
 *             image the journal is emptied; records that are left behind an image that has them
 *             already are passed over by their numbers.
 * Order:      A record counts from one store on, of the bytes in use. A process may be killed
 *             between any two instructions: its successor finds a record whole or not at all.
 * Ownership:  the caller owns the memory, which outlives the process.
 * Threading:  one thread.
 * Trust:      The memory may be damaged. Each record has its number, its length, and a checksum,
 *             and its event is read as mm_event_unpack() does; what does not fit is refused.
 */
#pragma once

#include "mmd/core/core.h"
#include "mmd/core/event.h"

/* The memory of a journal that has room for any event is at least so large. */
#define MM_JOURNAL_BYTES_MIN    (64 + MM_JOURNAL_RECORD_BYTES + MM_EVENT_BYTES_MAX)
#define MM_JOURNAL_RECORD_BYTES 48

struct mm_journal {
	struct mm_journal_head *head;
	uint64_t room; /* for records */
};

struct mm_journal_record {
	uint64_t seq;       /* number of the event */
	uint64_t performed; /* actions that had been performed before it */
	/* Where the event came from, and its position there: the caller's matter. */
	uint32_t place, position;
	bool skipped; /* the event is not to happen again */
	bool within;  /* it came before all actions of the event before it had been taken out */
};

/* Makes an empty journal in @memory, aligned to 8. */
void mm_journal_create(void *memory, size_t bytes, struct mm_journal *ret_journal);
/* Takes over a journal. Return: 0; -EBADMSG: there is none, or a record is damaged. */
int mm_journal_open(void *memory, size_t bytes, struct mm_journal *ret_journal);

/* Writes an event down. Return: 0; MM_E_FULL: an image is due. */
int mm_journal_append(struct mm_journal *journal, const struct mm_journal_record *record,
		      const struct mm_event *event);
/* Forgets all records. */
void mm_journal_empty(struct mm_journal *journal);
/* Returns the bytes of all records. */
uint64_t mm_journal_used(const struct mm_journal *journal);

/*
 * Gets the record at *@at, 0 at first, and advances *@at behind it. @stats: room for the event's
 * statistics, which stay valid with it until the journal changes. Return: 0; MM_E_EMPTY: no more;
 * -EBADMSG.
 */
int mm_journal_next(const struct mm_journal *journal, uint64_t *at,
		    struct mm_journal_record *ret_record, struct mm_tenant_stats *stats,
		    struct mm_event *ret_event);
/* Marks the event with this number: replaying leaves it out. Returns whether there is one. */
bool mm_journal_skip(struct mm_journal *journal, uint64_t seq);

struct mm_journal_replay {
	uint64_t seq;       /* in: of the first event that the core lacks; out: of the next one */
	uint64_t taken;     /* in: actions performed before the image; out: dropped in all */
	uint64_t performed; /* in: actions that were performed in all */
	bool any;           /* out: the core lacked an event; then the last one: */
	enum mm_event_kind kind;
	struct mm_journal_record record;
	struct mm_event_result result;
};

/*
 * Lets the events happen to @core which it lacks, and drops the actions that were performed; those
 * that were not are left in its queue. Return: 0; -EBADMSG: the records do not continue what the
 * core has.
 */
int mm_journal_replay(const struct mm_journal *journal, struct mm_core *core,
		      struct mm_journal_replay *replay);
