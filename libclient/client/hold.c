/* SPDX-License-Identifier: Apache-2.0 */
/* A model that is held: its layers are at home, and stay there. */
#include <errno.h>
#include <string.h>

#include "libclient/client/internal.h"
#include "mm/client_model.h"

static int hold_send(struct mm_client *c, bool hold, uint64_t timeout_ns)
{
	struct mm_msg msg = { .opcode = MM_OP_HOLD, .arg = { hold } };
	int r = mm_link_call_for(c, &msg, timeout_ns);

	return r ? r : msg.result;
}

/* Only one call at a time holds, or lets go. */
static int hold_begin(struct mm_client *c)
{
	int r = 0;

	mm_client_lock_take(&c->lock);
	if (c->hold != MM_CLIENT_HOLD_NONE)
		r = -EALREADY;
	else if (c->model_phase == MM_CLIENT_MODEL_UNLOADING)
		r = -ENOENT;
	else if (c->steps.open)
		r = -EBUSY;
	else
		c->hold = MM_CLIENT_HOLD_CHANGING;
	mm_client_lock_give(&c->lock);
	return r;
}

static void hold_set(struct mm_client *c, enum mm_client_hold hold)
{
	mm_client_lock_take(&c->lock);
	c->hold = hold;
	mm_client_lock_give(&c->lock);
}

static int hold_failed(struct mm_client *c, int r)
{
	switch (r) {
	case -EALREADY:
		return mm_fail(c, r, "the model is held already");
	case -EBUSY:
		return mm_fail(c, r, "a step is open: its plan cannot change");
	case -ENOENT:
		return mm_fail(c, r, "the model is being unloaded");
	case -EDQUOT:
		return mm_fail(c, r, "the account has no room for the layers that are away");
	case -ETIMEDOUT:
		return mm_fail(c, r, "the layers were not home in time");
	default:
		return mm_fail(c, r, "mmd did not hold the model: %s", strerror(-r));
	}
}

int mm_model_hold(struct mm_model *model, uint64_t timeout_ns)
{
	struct mm_client *c = model->client;
	int r = mm_enter(c);

	if (r)
		return r;
	if (!(c->welcome.features & MM_FEAT_HOLD))
		return mm_fail(c, -EOPNOTSUPP, "this mmd holds no models");
	r = hold_begin(c);
	if (r)
		return hold_failed(c, r);
	r = hold_send(c, true, timeout_ns);
	/* mmd may bring them home later: nobody would tell it to stop. */
	if (r == -ETIMEDOUT && hold_send(c, false, c->timeout_ns) == -ETIMEDOUT)
		mm_link_fail(c, r, "mmd did not say whether the model is held");
	hold_set(c, r ? MM_CLIENT_HOLD_NONE : MM_CLIENT_HOLD_ON);
	return r ? hold_failed(c, r) : 0;
}

int mm_model_release(struct mm_model *model)
{
	struct mm_client *c = model->client;
	bool held;
	int r = mm_enter(c);

	if (r)
		return r;
	mm_client_lock_take(&c->lock);
	held = c->hold == MM_CLIENT_HOLD_ON;
	if (held)
		c->hold = MM_CLIENT_HOLD_CHANGING;
	mm_client_lock_give(&c->lock);
	if (!held)
		return mm_fail(c, -EINVAL, "the model is not held");
	r = hold_send(c, false, c->timeout_ns);
	hold_set(c, MM_CLIENT_HOLD_NONE);
	return r ? mm_fail(c, r, "mmd did not answer: %s", strerror(-r)) : 0;
}
