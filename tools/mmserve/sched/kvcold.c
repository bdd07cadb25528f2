/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/sched/kvcold.h"

#include <errno.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "tools/mmserve/sched/kvblocks.h"

#define COLD_BITS 64u

static bool cold_bit(const uint64_t *bits, uint32_t i)
{
	return bits[i / COLD_BITS] >> i % COLD_BITS & 1;
}

static void cold_put_bit(uint64_t *bits, uint32_t i, bool value)
{
	const uint64_t bit = UINT64_C(1) << i % COLD_BITS;

	bits[i / COLD_BITS] = value ? bits[i / COLD_BITS] | bit : bits[i / COLD_BITS] & ~bit;
}

int mm_kvcold_init(struct mm_kvcold *c, uint32_t entries)
{
	const size_t words = mm_div_up(entries, COLD_BITS);

	*c = (struct mm_kvcold){ .n_entries = entries, .n_free = entries };
	c->entries = calloc(entries, sizeof(*c->entries));
	c->pending = calloc(entries, sizeof(*c->pending));
	c->free = calloc(words, sizeof(*c->free));
	c->live = calloc(words, sizeof(*c->live));
	c->sent = calloc(words, sizeof(*c->sent));
	if (!c->entries || !c->pending || !c->free || !c->live || !c->sent) {
		mm_kvcold_done(c);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < entries; i++)
		cold_put_bit(c->free, i, true);
	return 0;
}

void mm_kvcold_done(struct mm_kvcold *c)
{
	free(c->entries);
	free(c->pending);
	free(c->free);
	free(c->live);
	free(c->sent);
	*c = (struct mm_kvcold){ 0 };
}

uint32_t mm_kvcold_lowest(const struct mm_kvcold *c)
{
	for (uint32_t word = 0; word < mm_div_up(c->room, COLD_BITS); word++) {
		if (c->free[word]) {
			const uint32_t entry =
				word * COLD_BITS + (uint32_t)__builtin_ctzll(c->free[word]);

			return entry < c->room ? entry : MM_KV_NONE;
		}
	}
	return MM_KV_NONE;
}

static void entry_take(struct mm_kvcold *c, uint32_t entry, enum mm_kvcold_state state)
{
	mm_assert(entry < c->n_entries && c->entries[entry].state == MM_KVCOLD_FREE);
	cold_put_bit(c->free, entry, false);
	c->n_free--;
	c->entries[entry] = (struct mm_kvcold_entry){ .state = state, .seq = MM_KV_NONE };
}

uint32_t mm_kvcold_take_slot(struct mm_kvcold *c)
{
	uint32_t word = (uint32_t)mm_div_up(c->n_entries, COLD_BITS) - 1, entry;

	mm_assert(c->n_free);
	while (!c->free[word])
		word--;
	entry = word * COLD_BITS + 63 - (uint32_t)__builtin_clzll(c->free[word]);
	entry_take(c, entry, MM_KVCOLD_SLOT);
	return entry;
}

void mm_kvcold_copy(struct mm_kvcold *c, uint32_t entry, uint32_t seq, uint32_t index,
		    uint32_t block)
{
	struct mm_kvcold_entry *e = &c->entries[entry];

	entry_take(c, entry, MM_KVCOLD_COPYING);
	e->seq = seq;
	e->index = index;
	e->block = block;
	e->at = c->n_pending;
	c->pending[c->n_pending++] = entry;
}

static void set_live(struct mm_kvcold *c, uint32_t entry, bool live)
{
	c->n_live += live;
	c->n_live -= cold_bit(c->live, entry);
	cold_put_bit(c->live, entry, live);
}

void mm_kvcold_land(struct mm_kvcold *c, uint32_t entry)
{
	mm_assert(c->entries[entry].state == MM_KVCOLD_COPYING);
	c->entries[entry].state = MM_KVCOLD_LANDED;
	c->unversioned++;
	set_live(c, entry, true);
	/* The bit may be set from an earlier use, but its new version is not committed. */
	cold_put_bit(c->sent, entry, false);
}

/* Takes an entry off the list of those that are on their way, if it is one. */
static void entry_settle(struct mm_kvcold *c, uint32_t entry)
{
	const struct mm_kvcold_entry *e = &c->entries[entry];
	uint32_t last;

	if (e->state < MM_KVCOLD_COPYING || e->state > MM_KVCOLD_LIVE)
		return;
	c->unversioned -= e->state == MM_KVCOLD_LANDED;
	last = c->pending[--c->n_pending];
	c->pending[e->at] = last;
	c->entries[last].at = e->at;
}

void mm_kvcold_use(struct mm_kvcold *c, uint32_t entry)
{
	struct mm_kvcold_entry *e = &c->entries[entry];

	mm_assert(e->state == MM_KVCOLD_LIVE && e->version <= c->acked);
	entry_settle(c, entry);
	e->state = MM_KVCOLD_USABLE;
}

void mm_kvcold_park(struct mm_kvcold *c, uint32_t entry)
{
	mm_assert(c->entries[entry].state > MM_KVCOLD_COPYING);
	entry_settle(c, entry);
	set_live(c, entry, false);
	c->entries[entry].state = MM_KVCOLD_SLOT;
}

void mm_kvcold_put(struct mm_kvcold *c, uint32_t entry)
{
	mm_assert(c->entries[entry].state != MM_KVCOLD_FREE);
	entry_settle(c, entry);
	set_live(c, entry, false);
	cold_put_bit(c->free, entry, true);
	c->n_free++;
	c->entries[entry].state = MM_KVCOLD_FREE;
}

bool mm_kvcold_changed(struct mm_kvcold *c, uint32_t *ret_entry, bool *ret_live)
{
	for (uint32_t word = 0; word < mm_div_up(c->n_entries, COLD_BITS); word++) {
		const uint64_t bits = c->live[word] ^ c->sent[word];

		if (!bits)
			continue;
		*ret_entry = word * COLD_BITS + (uint32_t)__builtin_ctzll(bits);
		*ret_live = cold_bit(c->live, *ret_entry);
		cold_put_bit(c->sent, *ret_entry, *ret_live);
		return true;
	}
	return false;
}

void mm_kvcold_committed(struct mm_kvcold *c, uint64_t version)
{
	for (uint32_t i = 0; i < c->n_pending && c->unversioned; i++) {
		struct mm_kvcold_entry *e = &c->entries[c->pending[i]];

		if (e->state != MM_KVCOLD_LANDED)
			continue;
		e->state = MM_KVCOLD_LIVE;
		e->version = version;
		c->unversioned--;
	}
}

const char *mm_kvcold_check(const struct mm_kvcold *c)
{
	uint32_t n_free = 0, live = 0, pending = 0, landed = 0;

	for (uint32_t i = 0; i < c->n_entries; i++) {
		const struct mm_kvcold_entry *e = &c->entries[i];
		const bool is_pending = e->state >= MM_KVCOLD_COPYING && e->state <= MM_KVCOLD_LIVE;

		if (cold_bit(c->free, i) != (e->state == MM_KVCOLD_FREE))
			return "an entry's free bit is not its state";
		if (cold_bit(c->live, i) != (e->state >= MM_KVCOLD_LANDED))
			return "an entry's live bit is not its state";
		if (is_pending && (e->at >= c->n_pending || c->pending[e->at] != i))
			return "an entry on its way is not in its list";
		if (e->state == MM_KVCOLD_USABLE && (!e->version || e->version > c->acked))
			return "a usable entry's version is not acknowledged";
		n_free += e->state == MM_KVCOLD_FREE;
		live += e->state >= MM_KVCOLD_LANDED;
		pending += is_pending;
		landed += e->state == MM_KVCOLD_LANDED;
	}
	return n_free == c->n_free && live == c->n_live && pending == c->n_pending &&
			       landed == c->unversioned
		       ? NULL
		       : "the sums are not those of the entries";
}
