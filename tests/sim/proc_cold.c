/* SPDX-License-Identifier: Apache-2.0 */
/* Cold blocks of a tenant process. */
#include "tests/sim/world.h"

void w_cold_open(struct world *w, struct w_proc *p, uint64_t unit_bytes, uint32_t entries,
		 uint32_t floor)
{
	p->cold.unit_bytes = unit_bytes;
	p->cold.entries_max = entries;
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_COLD_OPEN,
				 .user_data = 5,
				 .arg = { unit_bytes, p->n_groups - 1, entries, floor } });
}

void w_cold_window(struct world *w, struct w_proc *p, uint32_t first, uint32_t chunks)
{
	p->cold.asked = true;
	p->cold.next_first = first;
	p->cold.next_chunks = chunks;
	w_send(w, p,
	       &(struct mm_msg){
		       .opcode = MM_OP_COLD_WINDOW, .user_data = 6, .arg = { first, chunks } });
}

void w_cold_replied(struct w_proc *p, const struct mm_msg *msg)
{
	struct w_cold *cold = &p->cold;

	if (msg->arg[0] == MM_OP_COLD_OPEN) {
		mm_assert(p->hostile || msg->user_data == 5);
		cold->open_answers++;
		cold->open_result = msg->result;
		cold->classes = msg->result ? cold->classes : (uint32_t)msg->arg[1];
		return;
	}
	mm_assert(p->hostile || (msg->user_data == 6 && cold->asked));
	cold->window_answers++;
	cold->window_result = msg->result;
	cold->asked = false;
	if (msg->result)
		return;
	cold->first = cold->next_chunks ? cold->next_first : 0;
	cold->chunks = cold->next_chunks;
}

void w_cold_limited(struct w_proc *p, const struct mm_msg *msg)
{
	/* The declaration is answered before its limit is told. */
	mm_assert(p->hostile || (p->cold.classes && msg->arg[0] <= p->cold.entries_max));
	p->cold.limit = (uint32_t)msg->arg[0];
	p->cold.deadline_ns = msg->arg[1];
	p->cold.limits++;
}

bool w_cold_names(const struct w_proc *p, uint32_t chunk)
{
	const struct w_cold *cold = &p->cold;

	return (chunk >= cold->first && chunk - cold->first < cold->chunks) ||
	       (cold->asked && chunk >= cold->next_first &&
		chunk - cold->next_first < cold->next_chunks);
}
