/* SPDX-License-Identifier: Apache-2.0 */
/* KV and swap of a tenant process. */
#include "tests/sim/world.h"
#include "tests/sim/mortal.h"

#include <string.h>

/* ---- KV ---- */

void w_kv_declare(struct world *w, struct w_proc *p, uint32_t range_pages, uint32_t ranges,
		  uint32_t chunks_max, uint32_t share)
{
	p->kv_declared = true;
	p->chunk_pages = range_pages * ranges;
	p->range_pages = range_pages;
	p->chunks_max = chunks_max;
	p->share = share;
	mm_assert(p->chunk_pages * chunks_max <= W_KV);
	w_send(w, p,
	       &(struct mm_msg){
		       .opcode = MM_OP_KV_DECLARE,
		       .arg = { range_pages * w->opts.page_bytes, ranges, chunks_max, share } });
}

void w_kv_want(struct world *w, struct w_proc *p, uint32_t chunks)
{
	p->want = chunks;
	p->denied = 0;
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_KV_WANT, .arg = { chunks } });
}

static bool chunk_is_swapped(const struct w_proc *p, uint32_t chunk)
{
	for (uint32_t lot = 0; lot < MM_SWAP_LOTS; lot++)
		if (p->lot[lot] && p->lot_chunks[lot][chunk / 64] >> chunk % 64 & 1)
			return true;
	return false;
}

bool w_kv_release(struct world *w, struct w_proc *p)
{
	uint32_t chunk = 0;

	while (chunk < p->chunks_max &&
	       (!p->chunk[chunk] ||
		(!p->hostile && (chunk_is_swapped(p, chunk) || w_cold_names(p, chunk)))))
		chunk++;
	if (chunk == p->chunks_max)
		return false;
	w_kv_release_chunk(w, p, chunk);
	return true;
}

void w_kv_release_chunk(struct world *w, struct w_proc *p, uint32_t chunk)
{
	p->chunk[chunk] = false;
	p->held--;
	p->want -= p->want != 0;
	p->reclaim -= p->reclaim != 0;
	p->releases++;
	for (uint32_t i = 0; i < p->chunk_pages && !p->hostile; i++)
		w->page[p->kv_view[chunk * p->chunk_pages + i]].holders &= ~w_bit_of(w, p);
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_KV_RELEASE, .arg = { chunk } });
}

void w_kv_granted(struct world *w, struct w_proc *p, uint32_t chunk)
{
	if (p->hostile && (chunk >= p->chunks_max || p->chunk[chunk]))
		/* the hostile process has sent releases that the world does not record */
		return;
	mm_assert(chunk < p->chunks_max && !p->chunk[chunk]);
	p->chunk[chunk] = true;
	p->held++;
	p->grants++;
	for (uint32_t i = 0; i < p->chunk_pages; i++) {
		struct w_page *page = &w->page[p->kv_view[chunk * p->chunk_pages + i]];
		uint32_t owner;

		mm_core_page(w->core, (uint32_t)(page - w->page), &owner);
		/*
		 * A page that it released without a record may belong to another tenant of the
		 * domain by now, which trusts this one.
		 */
		if (p->hostile && owner != p->tenant)
			continue;
		mm_assert(p->hostile ||
			  (page->bytes.kind == W_ZERO && page->holders & w_bit_of(w, p)));
		page->bytes = (struct w_bytes){ .kind = W_KVDATA, .owner = p->tenant };
	}
}

void w_kv_verify(const struct world *w, const struct w_proc *p)
{
	for (uint32_t i = 0; i < p->chunks_max * p->chunk_pages; i++) {
		if (p->hostile || !p->chunk[i / p->chunk_pages])
			continue;
		mm_assert(w->page[p->kv_view[i]].bytes.kind == W_KVDATA);
		mm_assert(w->page[p->kv_view[i]].bytes.owner == p->tenant);
	}
}

/* ---- swap ---- */

int w_swap_open(struct world *w, struct w_proc *p, uint64_t bytes)
{
	int r = w_event(w, (struct mm_event){ .kind = MM_EVENT_SWAP_OPEN,
					      .tenant = p->tenant,
					      .swap_bytes = bytes })
			.r;

	w_drain(w);
	if (!r)
		p->swap_bytes = bytes;
	return r;
}

bool w_swap_piece(struct world *w, struct w_proc *p, struct mm_swap_piece *ret_piece)
{
	uint64_t chunk_bytes = p->range_pages * w->opts.page_bytes, at, most;
	uint32_t chunk = p->chunks_max ? w_below(w, p->chunks_max) : 0;

	if (!p->held || !p->swap_bytes)
		return false;
	while (!p->chunk[chunk])
		chunk = (chunk + 1) % p->chunks_max;
	at = w_below(w, (uint32_t)chunk_bytes);
	most = MM_MIN(chunk_bytes - at, p->swap_bytes);
	*ret_piece = (struct mm_swap_piece){ .arena_offset = chunk * chunk_bytes + at,
					     .bytes = 1 + w_below(w, (uint32_t)most),
					     .range = w_below(w, p->chunk_pages / p->range_pages) };
	ret_piece->swap_offset = w_below(w, (uint32_t)(p->swap_bytes - ret_piece->bytes) + 1);
	return true;
}

static void lot_note(struct world *w, struct w_proc *p, uint32_t lot,
		     const struct mm_swap_piece *pieces, uint32_t n)
{
	uint64_t chunk_bytes = p->range_pages * w->opts.page_bytes;

	p->lot[lot] = true;
	p->lot_bytes[lot] = p->lot_copied[lot] = 0;
	memset(p->lot_chunks[lot], 0, sizeof(p->lot_chunks[lot]));
	for (uint32_t i = 0; i < n; i++) {
		uint64_t chunk = pieces[i].arena_offset / chunk_bytes;

		p->lot_bytes[lot] += pieces[i].bytes;
		for (; chunk <= (pieces[i].arena_offset + pieces[i].bytes - 1) / chunk_bytes &&
		       chunk < W_KV;
		     chunk++)
			p->lot_chunks[lot][chunk / 64] |= UINT64_C(1) << chunk % 64;
	}
}

bool w_swap(struct world *w, struct w_proc *p, bool in, const struct mm_swap_piece *pieces,
	    uint32_t n)
{
	struct mm_msg msg = { .opcode = MM_OP_SWAP, .user_data = 77, .arg = { 0, n, in } };
	uint32_t lot = 0;
	int r;

	while (lot < MM_SWAP_LOTS && p->lot[lot])
		lot++;
	if (lot == MM_SWAP_LOTS)
		return false;
	lot_note(w, p, lot, pieces, n);
	msg.arg[0] = lot;
	r = w_event(w, (struct mm_event){ .kind = MM_EVENT_SWAP,
					  .tenant = p->tenant,
					  .msg = msg,
					  .pieces = pieces })
		    .r;
	mm_assert(r == 0 || p->hostile);
	w_drain(w);
	return true;
}

void w_swapped(const struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	uint32_t lot = (uint32_t)msg->arg[0];

	(void)w;
	if (p->hostile && (lot >= MM_SWAP_LOTS || !p->lot[lot]))
		return; /* the hostile process has sent lists that the world does not record */
	mm_assert(lot < MM_SWAP_LOTS && p->lot[lot] && (p->hostile || msg->user_data == 77));
	mm_assert(p->hostile || msg->result || p->lot_copied[lot] == p->lot_bytes[lot]);
	p->lot[lot] = false;
	p->swapped++;
	p->swap_result = msg->result;
}
