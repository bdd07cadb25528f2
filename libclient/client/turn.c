/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns: the right to compute now, among the tenants that share a device in time
 * (mmd/core/market/turn.c).
 */
#include <errno.h>

#include "libclient/client/internal.h"
#include "libclient/support/clock.h"

void mm_turn_event_drop(struct mm_client *client)
{
	if (!client->turn_event_due)
		mm_event_drop(client, MM_EVENT_TURN_BEGIN, 1);
}

int mm_turn_request(struct mm_client *client)
{
	struct mm_steps_out out = { 0 };
	int r;

	mm_steps_request_turn(&client->steps, &out);
	r = mm_step_unlock(client, &out);
	mm_client_lock_take(&client->lock);
	if (r)
		mm_steps_turn_request_lost(&client->steps);
	return r;
}

/* ---- events of mmd ---- */

int mm_turn_on_begin(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	struct mm_steps_out out = { 0 };

	(void)ret_text;
	mm_client_lock_take(&client->lock);
	mm_steps_on_turn_begin(&client->steps, msg->arg[0], &out);
	mm_event_push(client, &(struct mm_event){ .kind = MM_EVENT_TURN_BEGIN });
	mm_step_unlock(client, &out);
	return 0;
}

int mm_turn_on_end(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	struct mm_steps_out out = { 0 };

	(void)ret_text;
	mm_client_lock_take(&client->lock);
	if (mm_steps_on_turn_end(&client->steps, msg->arg[0], msg->result != 0, &out)) {
		if (msg->result)
			client->turn_event_due = false;
		mm_event_push(client, &(struct mm_event){ .kind = MM_EVENT_TURN_END,
							  .error = msg->result,
							  .deadline_ns = msg->arg[1] });
	}
	mm_step_unlock(client, &out);
	return 0;
}

/* ---- calls of the engine ---- */

int mm_turn_join(struct mm_client *client, const struct mm_turn_opts *opts)
{
	struct mm_msg msg = { .opcode = MM_OP_TURN_JOIN };
	struct mm_steps_out out = { 0 };
	struct mm_turn_opts copy;
	int r = mm_enter(client);

	if (r)
		return r;
	if (mm_sized_read(opts, MM_V1_TURN_OPTS, &copy, sizeof(copy)))
		return mm_fail(client, -EINVAL, "turns: " MM_SIZE_TEXT);
	if (copy.mode >= MM_TURN_MODES || copy.priority > MM_TURN_PRIORITY_MAX)
		return mm_fail(client, -EINVAL, "turns: unknown mode, or priority above %d",
			       MM_TURN_PRIORITY_MAX);
	msg.arg[0] = copy.mode;
	msg.arg[1] = copy.quantum_ns;
	msg.arg[2] = copy.priority;
	r = mm_link_call(client, &msg);
	if (r || msg.result)
		return mm_fail(client, r ? r : msg.result, "mmd did not take us into its turns");
	mm_client_lock_take(&client->lock);
	mm_steps_join_turns(&client->steps, (enum mm_turn_mode)copy.mode, &out);
	client->turn_event_due &= copy.mode != MM_TURN_NONE;
	mm_step_unlock(client, &out);
	return 0;
}

int mm_turn_want(struct mm_client *client, uint64_t timeout_ns)
{
	uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	bool waited = false;
	int r = mm_enter(client);

	if (r)
		return r;
	mm_client_lock_take(&client->lock);
	while (!r && mm_steps_lacks_turn(&client->steps)) {
		waited = timeout_ns != 0;
		if (!client->steps.turn.requested)
			r = mm_turn_request(client);
		else if (!timeout_ns)
			r = -EAGAIN;
		else
			r = mm_link_wait(client, deadline_ns);
	}
	client->turn_event_due |= r == -EAGAIN;
	if (!r && waited)
		mm_turn_event_drop(client);
	mm_client_lock_give(&client->lock);
	if (!r || r == -EAGAIN)
		return r;
	return mm_fail(client, r, "%s",
		       r == -ETIMEDOUT ? "our turn did not come in time" : client->dead_text);
}

/* Return: as mm_steps_yield_turn(). */
static int turn_yield(struct mm_client *c)
{
	struct mm_steps_out out = { 0 };
	int r;

	mm_client_lock_take(&c->lock);
	r = mm_steps_yield_turn(&c->steps, &out);
	mm_step_unlock(c, &out);
	return r;
}

/* The turn stays while a step is open, which the thread that gave the hint may not know. */
void mm_turn_out_of_work(struct mm_client *client)
{
	turn_yield(client);
}

int mm_turn_yield(struct mm_client *client)
{
	int r = mm_enter(client);

	if (r)
		return r;
	r = turn_yield(client);
	return r ? mm_fail(client, r, "a step is open: end it first") : 0;
}
