/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan changes: handles PREPARE and SWITCH, and maps what a plan changes
 * (Documentation/protocol.md).
 */
#include <errno.h>

#include "libclient/client/internal.h"

int mm_client_plan_on_prepare(struct mm_client *client, const struct mm_msg *msg,
			      const char **ret_text)
{
	struct mm_steps_out out = { 0 };
	int r;

	mm_client_lock_take(&client->lock);
	r = mm_steps_on_prepare(&client->steps, msg->epoch, &out);
	mm_step_unlock(client, &out);
	*ret_text = "mmd prepares a plan that is not new";
	return r;
}

/* Whether a SWITCH has flags that exist, and that fit each other and the client's state. */
static bool switch_flags_fit(const struct mm_client *c, const struct mm_msg *msg)
	MM_REQUIRES(mm_client_lock)
{
	const uint64_t flags = msg->arg[2];

	if (flags & ~(MM_SWITCH_PARTIAL | MM_SWITCH_EMPTY | MM_SWITCH_COLD))
		return false;
	if (flags & MM_SWITCH_EMPTY)
		return flags == MM_SWITCH_EMPTY && c->model_phase == MM_CLIENT_MODEL_UNLOADING &&
		       !msg->arg[0] && !msg->arg[1];
	/* Gates of all layers open and close then, which steps must take into account. */
	return !(flags & MM_SWITCH_COLD) || (c->cold && msg->arg[1] == c->model->dir.n_groups - 1);
}

/* Checks the SWITCH and begins the change to its plan. */
static int plan_switch_begin(struct mm_client *c, const struct mm_msg *msg)
	MM_REQUIRES(mm_client_lock)
{
	const struct mm_steps_plan plan = { msg->epoch, (uint32_t)msg->arg[0],
					    (uint32_t)msg->arg[1] };

	if (c->model_phase != MM_CLIENT_MODEL_LOADED && c->model_phase != MM_CLIENT_MODEL_READY &&
	    c->model_phase != MM_CLIENT_MODEL_UNLOADING)
		return -EPROTO;
	if (!c->model || msg->arg[0] > MM_LAYERS_MAX || msg->arg[1] > MM_LAYERS_MAX ||
	    !switch_flags_fit(c, msg))
		return -EPROTO;
	return mm_steps_on_switch(&c->steps, &plan, msg->arg[2] & MM_SWITCH_PARTIAL);
}

/*
 * Lets steps run while the plan is mapped. Return: 0; the errno of a dead connection; -ECANCELED:
 * the model was given up meanwhile.
 */
static int window_open(struct mm_client *c)
{
	struct mm_steps_out out = { 0 };
	int r = 0;

	mm_client_lock_take(&c->lock);
	if (!mm_steps_open_window(&c->steps, &out))
		r = c->dead ? c->dead : -ECANCELED;
	mm_step_unlock(c, &out);
	return r;
}

/* Queues the event of the plan that is in force now. */
static void plan_announce(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	if (c->model_phase != MM_CLIENT_MODEL_READY)
		return;
	c->plan_changes++;
	mm_event_push(c, &(struct mm_event){ .kind = MM_EVENT_PLAN_CHANGED,
					     .count = c->steps.plan.away });
}

/*
 * Ends the mapping of a plan, with @result: steps may begin, and gates are aborted where they have
 * to be. With @announce the event is queued under the same lock: an engine that reads it finds the
 * plan in force, and a step that begins under the plan finds the event.
 */
static void switch_end(struct mm_client *c, int result, bool announce)
{
	struct mm_steps_out out = { 0 };

	mm_client_lock_take(&c->lock);
	mm_steps_mapped(&c->steps, result, &out);
	if (announce)
		plan_announce(c);
	mm_step_unlock(c, &out);
}

/*
 * Maps layers in order of execution and sends MAPPED after each, so that a running step waits for
 * one layer only.
 */
static int map_by_layer(struct mm_client *c, struct mm_model *model, uint64_t epoch)
	MM_REQUIRES(mm_map_lock)
{
	struct mm_msg msg = { .opcode = MM_OP_MAPPED, .epoch = epoch };
	const uint32_t n = model->dir.n_groups;
	int r = 0;

	for (uint32_t g = 0; g < n && !r; g++) {
		if (!mm_mapper_changes(&c->mapper, &model->spans[g]))
			continue;
		r = mm_mapper_change_part(&c->mapper, &model->spans[g], 1);
		msg.arg[0] = g; /* the number of layers mapped: group 0 is no layer */
		if (!r && g + 1 < n)
			r = mm_link_push(c, &msg);
	}
	if (r)
		mm_mapper_patch(&c->mapper, model->spans, n);
	mm_mapper_change_end(&c->mapper);
	return r;
}

/* Which layers cycle is set before a step may begin; the mapping may go on afterwards. */
static int map_plan(struct mm_client *c, struct mm_model *model, const struct mm_msg *msg,
		    bool partial) MM_REQUIRES(mm_map_lock)
{
	const uint32_t n = model->dir.n_groups;
	/* Without a table nothing is to be mapped. */
	int r = mm_mapper_read(&c->mapper, model->spans, n,
			       msg->arg[2] == MM_SWITCH_EMPTY ? NULL : c->mmd->map);

	if (r)
		return r;
	mm_mapper_shared(&c->mapper, model->spans, n, model->cycles);
	for (uint32_t g = 1; msg->arg[2] & MM_SWITCH_COLD && g < n; g++)
		model->cycles[g] = true;
	if (!partial)
		return mm_mapper_change(&c->mapper, model->spans, n);
	r = window_open(c);
	return r ? r : map_by_layer(c, model, msg->epoch);
}

/* Whether the model is still the client's: a load that is given up removes it (mm_model_drop()). */
static bool model_stays(struct mm_client *c, const struct mm_model *model) MM_REQUIRES(mm_map_lock)
{
	bool stays;

	mm_client_lock_take(&c->lock);
	stays = c->model == model;
	mm_client_lock_give(&c->lock);
	return stays;
}

static int switch_map(struct mm_client *c, struct mm_model *model, const struct mm_msg *msg,
		      bool partial)
{
	int r;

	mm_map_lock_take(&c->map_lock);
	if (c->closing)
		r = -ESHUTDOWN;
	else if (!model_stays(c, model))
		r = -ECANCELED;
	else
		r = map_plan(c, model, msg, partial);
	mm_map_lock_give(&c->map_lock);
	return r;
}

/*
 * Answers a SWITCH for a model that was given up. If the client is being closed, no answer is
 * needed: BYE states that nothing is mapped. Otherwise the answer must state that the model will
 * never be mapped, or its pages would stay with this tenant until the connection ends.
 */
static int switch_refuse(struct mm_client *c, const struct mm_msg *msg, const char **ret_text)
{
	const struct mm_msg answer = { .opcode = MM_OP_COMMITTED,
				       .result = -ECANCELED,
				       .epoch = msg->epoch };
	bool closing;

	mm_map_lock_take(&c->map_lock);
	closing = c->closing;
	mm_map_lock_give(&c->map_lock);
	*ret_text = "mmd takes no requests any more";
	return closing || !mm_link_push(c, &answer) ? 0 : -ECONNRESET;
}

/*
 * In a change in full no step runs under the plan before COMMITTED was sent: messages about such a
 * step must not precede it.
 */
static int switch_perform(struct mm_client *c, struct mm_model *model, const struct mm_msg *msg,
			  const char **ret_text)
{
	struct mm_msg answer = { .opcode = MM_OP_COMMITTED, .epoch = msg->epoch };
	const bool partial = msg->arg[2] & MM_SWITCH_PARTIAL;
	int r;

	answer.result = switch_map(c, model, msg, partial);
	if (partial || answer.result)
		switch_end(c, answer.result, false);
	/* While closing no failure is sent: mmd would end the connection before it reads BYE. */
	if (answer.result == -ESHUTDOWN)
		return 0;
	*ret_text = "mmd takes no requests any more";
	r = mm_link_push(c, &answer) ? -ECONNRESET : 0;
	/* If mapping failed, no step begins until mmd sends a new SWITCH or ends the connection. */
	if (answer.result)
		return r;
	if (!partial) {
		switch_end(c, r, !r);
	} else if (!r) {
		mm_client_lock_take(&c->lock);
		plan_announce(c);
		mm_client_lock_give(&c->lock);
	}
	return r;
}

int mm_client_plan_on_switch(struct mm_client *client, const struct mm_msg *msg,
			     const char **ret_text)
{
	struct mm_model *model;
	bool given_up;
	int r;

	mm_client_lock_take(&client->lock);
	model = client->model;
	given_up = client->model_phase == MM_CLIENT_MODEL_BROKEN;
	r = given_up ? 0 : plan_switch_begin(client, msg);
	mm_client_lock_give(&client->lock);
	if (given_up)
		return switch_refuse(client, msg, ret_text);
	*ret_text = "mmd switched plans out of order";
	return r ? r : switch_perform(client, model, msg, ret_text);
}
