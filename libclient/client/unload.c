/* SPDX-License-Identifier: Apache-2.0 */
/* A model that is given back: mmd has it unmapped by a change of its plan, and takes its pages. */
#include <errno.h>
#include <string.h>

#include "libclient/client/internal.h"
#include "mm/client_model.h"

/*
 * From here on no step has layers: one that is begun meanwhile is a step without a model.
 * @ret_again: an earlier call has sent the request, and has timed out.
 */
static int unload_begin(struct mm_client *c, bool *ret_again)
{
	int r = 0;

	mm_client_lock_take(&c->lock);
	*ret_again = c->model_phase == MM_CLIENT_MODEL_UNLOADING;
	if (c->unloading)
		r = -EALREADY;
	else if (c->hold != MM_CLIENT_HOLD_NONE || (c->steps.open && !*ret_again))
		r = -EBUSY;
	else if (c->model_phase != MM_CLIENT_MODEL_READY && !*ret_again)
		r = -ENOENT;
	if (!r) {
		c->unloading = true;
		mm_model_phase_set(c, MM_CLIENT_MODEL_UNLOADING);
	}
	mm_client_lock_give(&c->lock);
	return r;
}

static int unload_send(struct mm_client *c)
{
	struct mm_msg msg = { .opcode = MM_OP_UNLOAD };
	int r = mm_link_call(c, &msg);

	return r ? r : MM_MIN(msg.result, 0);
}

/* mmd has not begun to unload: the model stays as it is. */
static void unload_take_back(struct mm_client *c)
{
	mm_client_lock_take(&c->lock);
	c->unloading = false;
	mm_model_phase_set(c, MM_CLIENT_MODEL_READY);
	mm_client_lock_give(&c->lock);
}

static void unload_wait_later(struct mm_client *c)
{
	mm_client_lock_take(&c->lock);
	c->unloading = false;
	mm_client_lock_give(&c->lock);
}

/* The weights of mm_model_compute() and gate times are of the layers that are gone. */
static void unload_finish(struct mm_client *c)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(c->tenant->stats.compute); i++)
		__atomic_store_n(&c->tenant->stats.compute[i], 0, __ATOMIC_RELAXED);
	mm_times_destroy(c);
	mm_cold_drop(c);
	mm_model_drop(c);
	unload_wait_later(c);
}

static int unload_failed(struct mm_client *c, int r)
{
	switch (r) {
	case -EALREADY:
		return mm_fail(c, r, "another thread unloads the model");
	case -EBUSY:
		return mm_fail(c, r, "a step is open, or the model is held");
	case -ETIMEDOUT:
		return mm_fail(c, r, "mmd has not taken the model back in time: call again");
	default:
		return mm_fail(c, r, "mmd did not take the model back: %s", strerror(-r));
	}
}

int mm_model_unload(struct mm_model *model)
{
	struct mm_client *c = model->client;
	bool again;
	int r = mm_enter(c);

	if (r)
		return r;
	if (!(c->welcome.features & MM_FEAT_UNLOAD))
		return mm_fail(c, -EOPNOTSUPP, "this mmd takes no models back");
	r = unload_begin(c, &again);
	if (r)
		return unload_failed(c, r);
	r = unload_send(c);
	/* The request that had timed out may have been done meanwhile. */
	if (!r || (again && r == -ENOENT)) {
		unload_finish(c);
		return 0;
	}
	if (r == -ENOENT || r == -EBUSY)
		unload_take_back(c);
	else
		unload_wait_later(c);
	return unload_failed(c, r);
}
