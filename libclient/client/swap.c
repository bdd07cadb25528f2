/* SPDX-License-Identifier: Apache-2.0 */
/* Swap space: lists of pieces of the arena that mmd copies out and in. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/client/internal.h"
#include "libclient/support/fault.h"

enum lot_state { LOT_FREE, LOT_FLYING, LOT_DONE };

struct lot {
	enum lot_state state;
	uint32_t n;
	uint64_t user_data;
	uint64_t order; /* number of the list in order of completion */
	int error;
};

struct mm_swap {
	struct mm_client *client;
	struct mm_kv *kv;
	uint64_t bytes;
	uint64_t finished MM_GUARDED_BY(mm_client_lock);
	struct lot lot[MM_SWAP_LOTS] MM_GUARDED_BY(mm_client_lock);
	/* A private copy: mmd reads the shared region, and the process may write to it. */
	struct mm_swap_piece pieces[MM_SWAP_LOTS][MM_SWAP_PIECES] MM_GUARDED_BY(mm_client_lock);
};

/* ---- events of mmd ---- */

int mm_swap_on_swapped(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	struct mm_swap *s;
	struct lot *lot = NULL;

	mm_client_lock_take(&client->lock);
	s = client->swap;
	if (s && msg->arg[0] < MM_SWAP_LOTS)
		lot = &s->lot[msg->arg[0]];
	if (!lot || lot->state != LOT_FLYING || msg->result > 0) {
		mm_client_lock_give(&client->lock);
		*ret_text = "mmd swapped a list that nobody gave it";
		return -EPROTO;
	}
	lot->state = LOT_DONE;
	lot->error = msg->result;
	lot->order = s->finished++;
	mm_event_push(client, &(struct mm_event){ .kind = MM_EVENT_SWAPPED, .count = 1 });
	pthread_cond_broadcast(&client->changed);
	mm_client_lock_give(&client->lock);
	return 0;
}

bool mm_swap_names(const struct mm_swap *s, uint32_t chunk)
{
	uint64_t first, end;

	if (!s)
		return false;
	first = chunk * s->kv->chunk_bytes;
	end = first + s->kv->chunk_bytes;
	for (uint32_t lot = 0; lot < MM_SWAP_LOTS; lot++) {
		const struct mm_swap_piece *p = s->pieces[lot];

		for (uint32_t i = 0; s->lot[lot].state == LOT_FLYING && i < s->lot[lot].n; i++)
			if (p[i].arena_offset < end && p[i].arena_offset + p[i].bytes > first)
				return true;
	}
	return false;
}

/* ---- opening and freeing ---- */

void mm_swap_destroy(struct mm_swap *swap)
{
	free(swap);
}

/* Return: 0; -EEXIST the client has a swap space; -EINVAL it has no arena. */
static int swap_install(struct mm_client *c, struct mm_swap *s) MM_REQUIRES(mm_client_lock)
{
	if (c->swap)
		return -EEXIST;
	if (!c->kv)
		return -EINVAL;
	s->kv = c->kv;
	c->swap = s;
	return 0;
}

/*
 * Requests the space from mmd. It is installed already; no list can end before the first is given.
 */
static int swap_declare(struct mm_client *c, uint64_t bytes)
{
	struct mm_msg msg = { .opcode = MM_OP_SWAP_OPEN, .arg = { bytes } };
	int r = mm_link_call(c, &msg);

	if (r)
		return mm_fail(c, r, "mmd did not answer: %s", strerror(-r));
	if (msg.result == -EDQUOT)
		return mm_fail(
			c, -EDQUOT,
			"mmd refused %llu bytes of swap space: over its --swap-max, or what the "
			"account may have",
			(unsigned long long)bytes);
	if (msg.result < 0)
		return mm_fail(c, msg.result, "mmd refused the swap space: %s",
			       strerror(-msg.result));
	return 0;
}

int mm_swap_open(struct mm_client *client, uint64_t bytes, struct mm_swap **ret_swap)
{
	struct mm_swap *s;
	int r = mm_enter(client);

	if (r)
		return r;
	if (!bytes || bytes > INT64_MAX)
		return mm_fail(client, -EINVAL, "bytes: not a size");
	s = mm_fault("swap.open") ? NULL : calloc(1, sizeof(*s));
	if (!s)
		return mm_fail(client, -ENOMEM, "out of memory");
	s->client = client;
	s->bytes = bytes;
	mm_client_lock_take(&client->lock);
	r = swap_install(client, s);
	mm_client_lock_give(&client->lock);
	if (r) {
		free(s);
		return mm_fail(client, r,
			       r == -EEXIST ? "this client has a swap space already"
					    : "open the arena first");
	}
	r = swap_declare(client, bytes);
	/* After -ETIMEDOUT mmd may still open the space: it stays, unused, until the end. */
	if (r && r != -ETIMEDOUT) {
		mm_client_lock_take(&client->lock);
		client->swap = NULL;
		mm_client_lock_give(&client->lock);
		free(s);
	}
	if (r)
		return r;
	*ret_swap = s;
	return 0;
}

uint64_t mm_swap_bytes(const struct mm_swap *swap)
{
	return swap->bytes;
}

/* ---- lists ---- */

static int swap_piece_check(const struct mm_swap *s, const struct mm_swap_piece *p)
	MM_REQUIRES(mm_client_lock)
{
	const struct mm_kv *kv = s->kv;
	uint64_t range = kv->chunk_bytes * kv->chunks_max;

	if (p->range >= kv->ranges || !p->bytes || p->arena_offset > range ||
	    p->bytes > range - p->arena_offset || p->swap_offset > s->bytes ||
	    p->bytes > s->bytes - p->swap_offset)
		return -ERANGE;
	for (uint64_t c = p->arena_offset / kv->chunk_bytes;
	     c <= (p->arena_offset + p->bytes - 1) / kv->chunk_bytes; c++) {
		if (!mm_kv_is_usable(kv, (uint32_t)c))
			return -ENOENT;
		if (mm_cold_names(s->client->cold, (uint32_t)c))
			return -EBUSY;
	}
	return 0;
}

/* Puts the list into a free lot. Return: 0; -EAGAIN no lot is free; -ERANGE; -ENOENT; -EBUSY. */
static int lot_take(struct mm_swap *s, const struct mm_swap_piece *pieces, uint32_t n,
		    uint64_t user_data, uint32_t *ret_lot) MM_REQUIRES(mm_client_lock)
{
	struct mm_swap_piece *shared;
	uint32_t lot = 0;

	while (lot < MM_SWAP_LOTS && s->lot[lot].state != LOT_FREE)
		lot++;
	if (lot == MM_SWAP_LOTS)
		return -EAGAIN;
	for (uint32_t i = 0; i < n; i++) {
		int r = swap_piece_check(s, &pieces[i]);

		if (r)
			return r;
	}
	shared = s->client->tenant->swap[lot];
	memcpy(s->pieces[lot], pieces, n * sizeof(*pieces));
	memcpy(shared, pieces, n * sizeof(*pieces));
	s->lot[lot] = (struct lot){ .state = LOT_FLYING, .n = n, .user_data = user_data };
	*ret_lot = lot;
	return 0;
}

static const char *swap_refusal_text(int error)
{
	if (error == -EAGAIN)
		return "all lists are under way or not yet taken: mm_swap_next()";
	if (error == -EBUSY)
		return "a piece lies in the window of cold blocks";
	return error == -ENOENT ? "a piece lies in a chunk that is not usable"
				: "a piece leaves its range or the swap space";
}

static int swap_start(struct mm_swap *s, bool in, const struct mm_swap_piece *pieces, uint32_t n,
		      uint64_t user_data)
{
	struct mm_client *c = s->client;
	struct mm_msg msg = { .opcode = MM_OP_SWAP, .user_data = user_data, .arg = { 0, n, in } };
	uint32_t lot = 0;
	int r = mm_enter(c);

	if (r)
		return r;
	if (!n || n > MM_SWAP_PIECES)
		return mm_fail(c, -EINVAL, "%u pieces: a list has 1 to %d", n, MM_SWAP_PIECES);
	mm_client_lock_take(&c->lock);
	r = lot_take(s, pieces, n, user_data, &lot);
	mm_client_lock_give(&c->lock);
	if (r)
		return mm_fail(c, r, "%s", swap_refusal_text(r));
	msg.arg[0] = lot;
	r = mm_link_push(c, &msg);
	if (!r)
		return 0;
	mm_client_lock_take(&c->lock);
	s->lot[lot].state = LOT_FREE;
	mm_client_lock_give(&c->lock);
	return mm_fail(c, r, "mmd takes no requests: %s", strerror(-r));
}

int mm_swap_out(struct mm_swap *swap, const struct mm_swap_piece *pieces, uint32_t n,
		uint64_t user_data)
{
	return swap_start(swap, false, pieces, n, user_data);
}

int mm_swap_in(struct mm_swap *swap, const struct mm_swap_piece *pieces, uint32_t n,
	       uint64_t user_data)
{
	return swap_start(swap, true, pieces, n, user_data);
}

/* The list that was finished first among those not taken yet, or NULL. */
static struct lot *lot_done(struct mm_swap *s) MM_REQUIRES(mm_client_lock)
{
	struct lot *first = NULL;

	for (uint32_t i = 0; i < MM_SWAP_LOTS; i++)
		if (s->lot[i].state == LOT_DONE && (!first || s->lot[i].order < first->order))
			first = &s->lot[i];
	return first;
}

int mm_swap_next(struct mm_swap *swap, struct mm_swap_done *ret_done)
{
	struct mm_client *c = swap->client;
	struct mm_swap_done done = { 0 };
	struct lot *lot;
	int r = mm_enter(c);

	if (r == -ECHILD)
		return r;
	if (mm_size_check(c, ret_done, MM_V1_SWAP_DONE))
		return -EINVAL;
	mm_client_lock_take(&c->lock);
	lot = lot_done(swap);
	if (lot) {
		done.user_data = lot->user_data;
		done.error = lot->error;
		lot->state = LOT_FREE;
	}
	mm_client_lock_give(&c->lock);
	if (!lot)
		return r ? r : -EAGAIN;
	mm_sized_write(ret_done, &done, sizeof(done));
	return 0;
}
