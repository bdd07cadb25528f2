/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the third kind of a tenant process. */
#include "tests/sim/world.h"

#include <errno.h>

#define MEM_BASE (MM_MAP_ENTRIES - W_MEM)

/* Returns the first of @pages adjacent entries that are not in use; W_MEM: there are none. */
static uint32_t entries_find(const struct w_proc *p, uint32_t pages)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < W_MEM; i++) {
		run = p->mem[i] ? 0 : run + 1;
		if (run == pages)
			return i + 1 - pages;
	}
	return W_MEM;
}

bool w_mem_alloc(struct world *w, struct w_proc *p, uint32_t pages)
{
	uint32_t first = entries_find(p, pages);
	uint64_t replies;

	if (p->mem_asked || first == W_MEM)
		return false;
	p->mem_first = first;
	p->mem_asked = pages;
	replies = w->events_of[MM_EV_REPLY];
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_MEM_ALLOC,
				 .user_data = 99,
				 .arg = { MEM_BASE + first, pages } });
	w->mem_waits += w->events_of[MM_EV_REPLY] == replies;
	return true;
}

uint32_t w_mem_free(struct world *w, struct w_proc *p, uint32_t pages)
{
	uint32_t first = 0, n = 0;

	while (first < W_MEM && !p->mem[first])
		first++;
	while (first + n < W_MEM && p->mem[first + n] && n < pages)
		p->mem[first + n++] = false;
	if (!n)
		return 0;
	p->mem_held -= n;
	for (uint32_t i = first; i < first + n && !p->hostile; i++)
		w->page[p->mem_view[i]].holders &= ~w_bit_of(w, p);
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_MEM_FREE, .arg = { MEM_BASE + first, n } });
	return n;
}

static void mem_granted(struct world *w, struct w_proc *p)
{
	for (uint32_t i = p->mem_first; i < p->mem_first + p->mem_asked; i++) {
		struct w_page *page = &w->page[p->mem_view[i]];
		uint32_t owner;

		p->mem[i] = true;
		mm_core_page(w->core, p->mem_view[i], &owner);
		if (p->hostile && owner != p->tenant)
			continue;
		mm_assert(p->hostile ||
			  (page->bytes.kind == W_ZERO && page->holders & w_bit_of(w, p)));
		page->bytes = (struct w_bytes){ .kind = W_MEMDATA, .owner = p->tenant };
	}
	p->mem_held += p->mem_asked;
}

void w_mem_replied(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	if (p->hostile && !p->mem_asked)
		return; /* the hostile process has sent requests that the world does not record */
	mm_assert(p->mem_asked && (p->hostile || msg->user_data == 99));
	mm_assert(!msg->result || msg->result == -EDQUOT || msg->result == -ENOSPC);
	/* A refusal says how much would have been granted. */
	mm_assert(p->hostile || !msg->result || msg->arg[1] < p->mem_asked);
	p->mem_result = msg->result;
	p->mem_there = msg->arg[1];
	if (!msg->result)
		mem_granted(w, p);
	w->mem_grants += !msg->result;
	w->mem_quotas += msg->result == -EDQUOT;
	w->mem_refusals += msg->result == -ENOSPC;
	p->mem_asked = 0;
}

void w_mem_verify(const struct world *w, const struct w_proc *p)
{
	for (uint32_t i = 0; i < W_MEM && !p->hostile; i++) {
		if (!p->mem[i])
			continue;
		mm_assert(w->page[p->mem_view[i]].bytes.kind == W_MEMDATA);
		mm_assert(w->page[p->mem_view[i]].bytes.owner == p->tenant);
	}
}
