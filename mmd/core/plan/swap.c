/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suspended KV: lists of pieces that are copied between a tenant's chunks and its swap space. A
 * list is checked when it arrives, cut into jobs that each stay within a page, as xfer has room for
 * them, and answered when the last job is done. Until then the tenant keeps the chunks that the
 * list names, and no page of a tenant is proven free while one of its jobs runs.
 */
#include "mmd/core/plan/swap.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/plan/plans.h"
#include "mmd/core/book/emit.h"

#define JOBS_EACH 16 /* jobs of one tenant that may be outstanding at once */

static struct mm_swap_piece *lot_pieces(const struct mm_core *c, const struct mm_c_tenant *t,
					uint32_t lot)
{
	return c->plans->swap_pieces +
	       ((size_t)mm_c_index(c, t) * MM_SWAP_LOTS + lot) * MM_SWAP_PIECES;
}

/* ---- opening ---- */

/* Returns the swap space of all tenants of @account; MM_DOMAIN_NONE: of all accounts. */
static uint64_t swap_bytes(const struct mm_core *c, uint32_t account)
{
	uint64_t sum = 0;

	MM_FOREACH_TENANT(c, t)
		if (account == MM_DOMAIN_NONE || t->account == account)
			sum += t->swap->bytes;
	return sum;
}

static bool swap_fits(uint64_t used, uint64_t bytes, uint64_t max)
{
	return used <= max && bytes <= max - used;
}

int mm_c_swap_open(const struct mm_core *c, struct mm_c_tenant *t, uint64_t bytes)
{
	if (t->swap->bytes)
		return -EEXIST;
	if (!swap_fits(swap_bytes(c, MM_DOMAIN_NONE), bytes, c->opts.swap_max_bytes) ||
	    !swap_fits(swap_bytes(c, t->account), bytes, c->opts.swap_account_max_bytes))
		return -EDQUOT;
	t->swap->bytes = bytes;
	return 0;
}

/* ---- accepting a list ---- */

static uint64_t swap_chunk_bytes(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->kv.chunk_pages / t->kv.ranges * c->opts.page_bytes;
}

/*
 * For each word of the map of held chunks: the first word from it on that has a gap. A piece may be
 * as long as the arena, and a list has hundreds of pieces, so no piece may walk the map.
 */
struct gaps {
	uint16_t word[MM_KV_ENTRIES / 64 + 1];
};

static void gaps_find(const struct mm_c_tenant *t, struct gaps *ret_gaps)
{
	uint16_t end = (uint16_t)mm_div_up(t->kv.chunks_max, 64);

	ret_gaps->word[end] = end;
	for (uint16_t i = end; i-- > 0;)
		ret_gaps->word[i] = ~t->kv.held_map[i] ? i : ret_gaps->word[i + 1];
}

static bool chunks_all_held(const struct mm_c_tenant *t, const struct gaps *gaps, uint64_t first,
			    uint64_t last)
{
	const uint64_t i = first / 64, end = last / 64;
	const uint64_t from = UINT64_MAX << first % 64, to = UINT64_MAX >> (63 - last % 64);

	if (i == end)
		return !(from & to & ~t->kv.held_map[i]);
	return !(from & ~t->kv.held_map[i]) && gaps->word[i + 1] >= end &&
	       !(to & ~t->kv.held_map[end]);
}

static int lot_piece_check(const struct mm_core *c, const struct mm_c_tenant *t,
			   const struct gaps *gaps, const struct mm_swap_piece *p)
{
	uint64_t chunk = swap_chunk_bytes(c, t), range = chunk * t->kv.chunks_max;
	uint64_t first, last;

	if (p->range >= t->kv.ranges || !p->bytes || p->arena_offset > range ||
	    p->bytes > range - p->arena_offset ||
	    !swap_fits(p->swap_offset, p->bytes, t->swap->bytes))
		return -ERANGE;
	first = p->arena_offset / chunk;
	last = (p->arena_offset + p->bytes - 1) / chunk;
	if (!chunks_all_held(t, gaps, first, last))
		return -ENOENT;
	return mm_c_kv_in_window(t, first, last + 1) ? -EBUSY : 0;
}

/* True if @p begins where @last ends, in the arena and in the swap space. */
static bool piece_continues(const struct mm_swap_piece *last, const struct mm_swap_piece *p)
{
	return p->range == last->range && p->arena_offset == last->arena_offset + last->bytes &&
	       p->swap_offset == last->swap_offset + last->bytes &&
	       p->bytes <= UINT32_MAX - last->bytes;
}

static int pieces_take(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t lot,
		       const struct mm_swap_piece *pieces, uint32_t n, uint32_t *ret_n)
{
	struct mm_swap_piece *own = lot_pieces(c, t, lot);
	struct gaps gaps;
	uint32_t kept = 0;

	gaps_find(t, &gaps);
	for (uint32_t i = 0; i < n; i++) {
		int r = lot_piece_check(c, t, &gaps, &pieces[i]);

		if (r < 0)
			return r;
		if (kept && piece_continues(&own[kept - 1], &pieces[i]))
			own[kept - 1].bytes += pieces[i].bytes;
		else
			own[kept++] = pieces[i];
	}
	*ret_n = kept;
	return 0;
}

static void swap_done_send(struct mm_core *c, const struct mm_c_tenant *t, uint32_t lot,
			   uint64_t user_data, int result)
{
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_SWAPPED,
					  .result = result,
					  .user_data = user_data,
					  .arg = { lot } });
}

int mm_c_swap_list(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg,
		   const struct mm_swap_piece *pieces)
{
	uint32_t lot = (uint32_t)msg->arg[0];
	struct mm_c_swap_list *list;
	uint32_t n;
	int r;

	if (!t->swap->bytes || msg->arg[0] >= MM_SWAP_LOTS || !msg->arg[1] ||
	    msg->arg[1] > MM_SWAP_PIECES || msg->arg[2] > 1 || t->swap->list[lot].used)
		return MM_E_PROTOCOL;
	list = &t->swap->list[lot];
	r = pieces_take(c, t, lot, pieces, (uint32_t)msg->arg[1], &n);
	if (r < 0)
		swap_done_send(c, t, lot, msg->user_data, r);
	else
		*list = (struct mm_c_swap_list){
			.used = true, .in = msg->arg[2], .user_data = msg->user_data, .n = n
		};
	return 0;
}

/* ---- jobs ---- */

bool mm_c_swap_uses_chunks(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t chunk,
			   uint32_t chunks)
{
	uint64_t first, end;

	if (!t->swap->bytes)
		return false;
	first = chunk * swap_chunk_bytes(c, t);
	end = first + chunks * swap_chunk_bytes(c, t);
	for (uint32_t lot = 0; lot < MM_SWAP_LOTS; lot++) {
		const struct mm_c_swap_list *list = &t->swap->list[lot];
		const struct mm_swap_piece *p = lot_pieces(c, t, lot);

		for (uint32_t i = 0; list->used && i < list->n; i++)
			if (p[i].arena_offset < end && p[i].arena_offset + p[i].bytes > first)
				return true;
	}
	return false;
}

/* Returns how many bytes one job may copy, from byte @done of the piece. */
static uint64_t piece_job_bytes(const struct mm_core *c, const struct mm_swap_piece *p,
				uint64_t done)
{
	uint64_t page = c->opts.page_bytes;
	uint64_t bytes = MM_MIN(p->bytes - done, MM_SWAP_JOB_BYTES);

	bytes = MM_MIN(bytes, page - (p->arena_offset + done) % page);
	return MM_MIN(bytes, MM_SWAP_PART_BYTES - (p->swap_offset + done) % MM_SWAP_PART_BYTES);
}

static uint64_t piece_pool_byte(const struct mm_core *c, const struct mm_c_tenant *t,
				const struct mm_swap_piece *p, uint64_t done)
{
	uint64_t at = p->arena_offset + done, chunk = swap_chunk_bytes(c, t);
	uint32_t per_range = t->kv.chunk_pages / t->kv.ranges;
	uint32_t page = (uint32_t)(at % chunk / c->opts.page_bytes);

	page = mm_c_kv_chunk_page(t, (uint32_t)(at / chunk), p->range * per_range + page);
	return page * c->opts.page_bytes + at % c->opts.page_bytes;
}

static void swap_job_issue(struct mm_core *c, struct mm_c_tenant *t, uint32_t lot)
{
	struct mm_c_swap_list *list = &t->swap->list[lot];
	const struct mm_swap_piece *p = &lot_pieces(c, t, lot)[list->at];
	uint64_t bytes = piece_job_bytes(c, p, list->done);
	struct mm_msg msg = { .opcode = list->in ? MM_XOP_SWAP_IN : MM_XOP_SWAP_OUT,
			      .arg = { t->id | (uint64_t)lot << 32,
				       piece_pool_byte(c, t, p, list->done),
				       p->swap_offset + list->done, bytes } };

	mm_c_job_issue(c, mm_c_index(c, t), &msg);
	t->swap->jobs++;
	list->jobs++;
	list->done += bytes;
	if (list->done == p->bytes) {
		list->at++;
		list->done = 0;
	}
}

/*
 * A quarter of the job slots is left for copies and scrubs; each tenant may have the same number.
 */
static bool swap_may_issue(struct mm_core *c, const struct mm_c_tenant *t)
{
	return c->xfer_up && t->swap->jobs < JOBS_EACH &&
	       c->jobs.bulk_used < c->opts.jobs_max - c->opts.jobs_max / 4 && mm_c_burst(c);
}

void mm_c_swap_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	for (uint32_t i = 0; i < MM_SWAP_LOTS; i++) {
		uint32_t lot = (t->swap->next_lot + i) % MM_SWAP_LOTS;
		struct mm_c_swap_list *list = &t->swap->list[lot];

		while (list->used && list->at < list->n) {
			if (!swap_may_issue(c, t)) {
				t->swap->next_lot = lot; /* the next call begins with this list */
				return;
			}
			swap_job_issue(c, t, lot);
		}
	}
}

void mm_c_swap_job_done(struct mm_core *c, const struct mm_msg *job, struct mm_c_tenant *t,
			int result)
{
	uint32_t lot = (uint32_t)(job->arg[0] >> 32);
	struct mm_c_swap_list *list = &t->swap->list[lot];

	mm_assert(list->used && list->jobs && t->swap->jobs);
	t->swap->jobs--;
	list->jobs--;
	if (!result && job->opcode == MM_XOP_SWAP_OUT)
		mm_c_tally_add(c, t, swapped_out_bytes, job->arg[3]);
	else if (!result)
		mm_c_tally_add(c, t, swapped_in_bytes, job->arg[3]);
	if (result && !list->error) {
		list->error = result;
		list->at = list->n;
	}
	if (list->jobs || (list->at < list->n && t->life == MM_LIFE_LIVE))
		return;
	list->used = false;
	if (t->life == MM_LIFE_LIVE && !t->bye)
		swap_done_send(c, t, lot, list->user_data, list->error);
}

void mm_c_swap_end(struct mm_c_tenant *t)
{
	for (uint32_t lot = 0; lot < MM_SWAP_LOTS; lot++) {
		struct mm_c_swap_list *list = &t->swap->list[lot];

		list->at = list->n;
		list->used = list->jobs != 0;
	}
}
