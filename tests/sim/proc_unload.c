/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant process gives its model back. */
#include "tests/sim/world.h"

#include <errno.h>

bool w_unload(struct world *w, struct w_proc *p)
{
	if (p->unloading || !p->model_ready || p->machine.open)
		return false;
	/* As libclient does it: from here on no step has layers. */
	p->unloading = true;
	p->model_ready = false;
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_UNLOAD, .user_data = 98 });
	return true;
}

void w_unloaded(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	struct mm_steps_out out = { 0 };

	p->unload_result = msg->result;
	/* A process may have sent requests that w_unload() does not know of. */
	if (msg->result || !p->unloading)
		return;
	/* Its pages are the core's again: the process maps none of them any more. */
	for (uint32_t i = 0; i < p->entries; i++)
		mm_assert(p->hostile || (p->view[i] == MM_NO_PAGE && p->map[i] == MM_NO_PAGE));
	mm_steps_drop_plan(&p->machine, &out);
	w_cold_end(p);
	p->unloading = p->model_asked = false;
	p->n_groups = p->entries = 0;
	p->unloads++;
	w->unloads++;
}

void w_unload_check_drop(const struct world *w, const struct w_proc *p)
{
	if (!p->unloading)
		return;
	/* xfer serves nothing of the model when its store is dropped, and no job copies from it. */
	mm_assert(!w->xfer_up || !p->cycles.active);
	for (uint32_t i = 0; i < w->jobs; i++) {
		uint32_t owner = MM_NO_PAGE;

		if (w->job[i].opcode != MM_XOP_COPY)
			continue;
		mm_core_page(w->core, (uint32_t)w->job[i].arg[0], &owner);
		mm_assert(owner != p->tenant);
	}
}
