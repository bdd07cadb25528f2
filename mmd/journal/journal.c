/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/journal/journal.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"

#define MARK         UINT64_C(0x31306c72756f6a6d) /* "mjourl01" */
#define PRIME        UINT64_C(0x9e3779b97f4a7c15)
#define FLAG_SKIPPED 1u
#define FLAG_WITHIN  2u

struct mm_journal_head {
	uint64_t mark;
	uint64_t used; /* bytes of whole records; stored behind a record */
	uint64_t reserved[6];
	unsigned char records[];
};

/* As it lies in memory, before the packed event. */
struct journal_record {
	uint32_t bytes; /* of all of it */
	uint32_t flags; /* FLAG_SKIPPED is not in the checksum, since it changes later */
	uint64_t checksum;
	uint64_t seq, performed;
	uint32_t place, position;
	uint64_t reserved;
};
static_assert(sizeof(struct journal_record) == MM_JOURNAL_RECORD_BYTES, "no padding");
static_assert(sizeof(struct journal_record) % MM_EVENT_ALIGN == 0, "events are aligned");

/* Stores behind everything that precedes it in the program: a kill stops a process at once. */
static void word_publish(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static uint64_t words_sum(uint64_t sum, const void *from, size_t bytes)
{
	const unsigned char *at = from;

	for (; bytes >= 8; bytes -= 8, at += 8) {
		uint64_t word;

		memcpy(&word, at, 8);
		sum = (sum ^ word) * PRIME;
		sum ^= sum >> 32;
	}
	return sum;
}

/* @event: the packed event, behind the record. */
static uint64_t record_checksum(const struct journal_record *r, const void *event)
{
	const uint64_t words[] = { (uint64_t)(r->flags & ~FLAG_SKIPPED) << 32 | r->bytes, r->seq,
				   r->performed, (uint64_t)r->place << 32 | r->position,
				   r->reserved };

	return words_sum(words_sum(1, words, sizeof(words)), event, r->bytes - sizeof(*r));
}

/* ---- writing ---- */

void mm_journal_create(void *memory, size_t bytes, struct mm_journal *ret)
{
	struct mm_journal_head *head = memory;

	mm_assert(bytes >= MM_JOURNAL_BYTES_MIN);
	memset(head, 0, sizeof(*head));
	word_publish(&head->mark, MARK);
	*ret = (struct mm_journal){ .head = head, .room = bytes - sizeof(*head) };
}

int mm_journal_append(struct mm_journal *journal, const struct mm_journal_record *record,
		      const struct mm_event *event)
{
	struct mm_journal_head *head = journal->head;
	struct journal_record r = {
		.flags = (record->skipped ? FLAG_SKIPPED : 0) | (record->within ? FLAG_WITHIN : 0),
		.seq = record->seq,
		.performed = record->performed,
		.place = record->place,
		.position = record->position,
	};
	const uint64_t left = journal->room - head->used;
	unsigned char *to = head->records + head->used;

	/* How long an event is, is computed only where that matters. */
	if (left < sizeof(r) + MM_EVENT_BYTES_MAX &&
	    (left < sizeof(r) || left - sizeof(r) < mm_event_bytes(event)))
		return MM_E_FULL;
	r.bytes = (uint32_t)(sizeof(r) + mm_event_pack(event, to + sizeof(r)));
	r.checksum = record_checksum(&r, to + sizeof(r));
	memcpy(to, &r, sizeof(r));
	/* The event has happened now. */
	word_publish(&head->used, head->used + r.bytes);
	return 0;
}

void mm_journal_empty(struct mm_journal *journal)
{
	word_publish(&journal->head->used, 0);
}

uint64_t mm_journal_used(const struct mm_journal *journal)
{
	return journal->head->used;
}

/* ---- reading ---- */

int mm_journal_next(const struct mm_journal *journal, uint64_t *at, struct mm_journal_record *ret,
		    struct mm_tenant_stats *stats, struct mm_event *ret_event)
{
	const struct mm_journal_head *head = journal->head;
	const uint64_t used = head->used;
	struct journal_record r;

	if (*at == used)
		return MM_E_EMPTY;
	if (used > journal->room || *at > used || used - *at < sizeof(r))
		return -EBADMSG;
	memcpy(&r, head->records + *at, sizeof(r));
	if (r.bytes < sizeof(r) || r.bytes > used - *at || r.bytes % MM_EVENT_ALIGN ||
	    r.flags & ~(FLAG_SKIPPED | FLAG_WITHIN) || r.reserved ||
	    r.checksum != record_checksum(&r, head->records + *at + sizeof(r)))
		return -EBADMSG;
	if (mm_event_unpack(head->records + *at + sizeof(r), r.bytes - sizeof(r), stats,
			    ret_event) < 0)
		return -EBADMSG;
	*ret = (struct mm_journal_record){ .seq = r.seq,
					   .performed = r.performed,
					   .place = r.place,
					   .position = r.position,
					   .skipped = r.flags & FLAG_SKIPPED,
					   .within = r.flags & FLAG_WITHIN };
	*at += r.bytes;
	return 0;
}

/* The numbers of records follow each other. */
int mm_journal_open(void *memory, size_t bytes, struct mm_journal *ret)
{
	struct mm_journal journal = { .head = memory };
	struct mm_journal_record record;
	struct mm_tenant_stats stats;
	struct mm_event event;
	uint64_t at = 0, seq = 0, performed = 0;
	int r;

	if (bytes < MM_JOURNAL_BYTES_MIN || journal.head->mark != MARK)
		return -EBADMSG;
	journal.room = bytes - sizeof(*journal.head);
	while ((r = mm_journal_next(&journal, &at, &record, &stats, &event)) == 0) {
		if ((seq && record.seq != seq) || record.performed < performed)
			return -EBADMSG;
		seq = record.seq + 1;
		performed = record.performed;
	}
	if (r != MM_E_EMPTY)
		return r;
	*ret = journal;
	return 0;
}

bool mm_journal_skip(struct mm_journal *journal, uint64_t seq)
{
	struct mm_journal_head *head = journal->head;
	struct journal_record r;

	for (uint64_t at = 0; at < head->used; at += r.bytes) {
		memcpy(&r, head->records + at, sizeof(r));
		if (r.seq != seq)
			continue;
		r.flags |= FLAG_SKIPPED;
		memcpy(head->records + at + offsetof(struct journal_record, flags), &r.flags,
		       sizeof(r.flags));
		return true;
	}
	return false;
}

/* ---- replaying ---- */

/*
 * Takes out all actions of an event, up to the end that mm_core_next() reports: only then has the
 * core settled, as it had before the next event.
 */
static uint64_t actions_drop_all(struct mm_core *core, uint64_t taken)
{
	struct mm_action action;

	while (mm_core_next(core, &action))
		taken++;
	return taken;
}

/* Takes out the actions that were performed of an event that is not at its end. */
static uint64_t actions_drop(struct mm_core *core, uint64_t taken, uint64_t until)
{
	struct mm_action action;

	while (taken < until && mm_core_next(core, &action))
		taken++;
	return taken;
}

int mm_journal_replay(const struct mm_journal *journal, struct mm_core *core,
		      struct mm_journal_replay *replay)
{
	struct mm_journal_record record;
	struct mm_tenant_stats stats;
	struct mm_event event;
	uint64_t at = 0;
	int r;

	replay->any = false;
	while ((r = mm_journal_next(journal, &at, &record, &stats, &event)) == 0) {
		if (record.seq < replay->seq)
			continue;
		if (record.seq != replay->seq || record.performed > replay->performed)
			return -EBADMSG;
		replay->taken = record.within ? actions_drop(core, replay->taken, record.performed)
					      : actions_drop_all(core, replay->taken);
		if (replay->taken != record.performed)
			return -EBADMSG;
		replay->seq++;
		if (record.skipped)
			continue;
		replay->any = true;
		replay->kind = event.kind;
		replay->record = record;
		mm_core_event(core, &event, &replay->result);
	}
	if (r != MM_E_EMPTY)
		return r;
	replay->taken = actions_drop(core, replay->taken, replay->performed);
	return replay->taken == replay->performed ? 0 : -EBADMSG;
}
