/* SPDX-License-Identifier: Apache-2.0 */
/* Turns: who may compute now, of those tenants that share the device's time (mmd/core/turn.c). */
#include <errno.h>

#include "libclient/internal.h"
#include "libclient/ipc/clock.h"

/* With lock: in turns, and it is somebody else's. */
bool mm_turn_waits(const struct mm_client *client)
{
	return client->turn.mode != MM_TURN_NONE && !client->turn.serial;
}

/* Its event would tell it once more. One that was promised to another call stays: a lost one is worse. */
void mm_turn_told(struct mm_client *client)
{
	if (!client->turn.watched)
		mm_event_drop(client, MM_EVENT_TURN_BEGIN, 1);
}

/* With lock, which is let go meanwhile. Says once that there is work. */
int mm_turn_ask(struct mm_client *client)
{
	const struct mm_msg want = { .opcode = MM_OP_TURN_WANT };
	int r;

	client->turn.asked = true;
	pthread_mutex_unlock(&client->lock);
	r = mm_link_push(client, &want);
	pthread_mutex_lock(&client->lock);
	if (r)
		client->turn.asked = false; /* mmd did not hear it: the next one asks again */
	return r;
}

/* With lock: the serial of a turn that is to be given back now; 0: none. It is no longer held then. */
uint64_t mm_turn_leave(struct mm_client *client)
{
	uint64_t serial = client->turn.serial;

	if (client->steps_open)
		return 0;
	client->turn.serial = 0;
	client->turn.ending = false;
	client->turn.watched &= !serial;
	return serial;
}

void mm_turn_give_back(struct mm_client *client, uint64_t serial)
{
	const struct mm_msg done = { .opcode = MM_OP_TURN_DONE, .arg = { serial } };

	if (serial)
		mm_link_push(client, &done);
}

/* ---- what mmd says ---- */

int mm_turn_on_begin(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	(void)ret_text;
	pthread_mutex_lock(&client->lock);
	client->turn.serial = msg->arg[0];
	client->turn.ending = client->turn.asked = client->turn.used = false;
	mm_event_push(client, &(struct mm_event){ .kind = MM_EVENT_TURN_BEGIN });
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);
	return 0;
}

int mm_turn_on_end(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	uint64_t serial = 0;

	(void)ret_text;
	pthread_mutex_lock(&client->lock);
	if (client->turn.serial && client->turn.serial == msg->arg[0]) {
		client->turn.ending = true;
		if (msg->result) { /* too late: it is somebody else's already */
			client->turn.serial = 0;
			client->turn.watched = false;
		} else if (client->turn.used) { /* else one step runs first: each turn gets us on */
			serial = mm_turn_leave(client);
		}
		mm_event_push(client, &(struct mm_event){ .kind = MM_EVENT_TURN_END,
							  .error = msg->result,
							  .deadline_ns = msg->arg[1] });
	}
	pthread_mutex_unlock(&client->lock);
	mm_turn_give_back(client, serial);
	return 0;
}

/* ---- what the engine says ---- */

int mm_turn_join(struct mm_client *client, const struct mm_turn_opts *opts)
{
	struct mm_msg msg = { .opcode = MM_OP_TURN_JOIN };
	int r = mm_enter(client);

	if (r)
		return r;
	if (!opts || opts->size != sizeof(*opts) || opts->mode >= MM_TURN_MODES ||
	    opts->priority > MM_TURN_PRIORITY_MAX)
		return mm_fail(client, -EINVAL, "turns: unknown size or mode, or priority above %d",
			       MM_TURN_PRIORITY_MAX);
	msg.arg[0] = opts->mode;
	msg.arg[1] = opts->quantum_ns;
	msg.arg[2] = opts->priority;
	r = mm_link_call(client, &msg);
	if (r || msg.result)
		return mm_fail(client, r ? r : msg.result, "mmd did not take us into its turns");
	pthread_mutex_lock(&client->lock);
	client->turn.mode = opts->mode;
	/* mmd forgets the wish of one that leaves; who joins again must ask again. */
	if (opts->mode == MM_TURN_NONE) {
		client->turn.serial = 0;
		client->turn.asked = client->turn.ending = client->turn.watched = false;
	}
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);
	return 0;
}

int mm_turn_want(struct mm_client *client, uint64_t timeout_ns)
{
	uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	bool waited = false;
	int r = mm_enter(client);

	if (r)
		return r;
	pthread_mutex_lock(&client->lock);
	while (!r && mm_turn_waits(client)) {
		waited = timeout_ns != 0;
		if (!client->turn.asked)
			r = mm_turn_ask(client);
		else if (!timeout_ns)
			r = -EAGAIN;
		else
			r = mm_link_wait(client, deadline_ns);
	}
	client->turn.watched |= r == -EAGAIN;
	if (!r && waited)
		mm_turn_told(client);
	pthread_mutex_unlock(&client->lock);
	if (!r || r == -EAGAIN)
		return r;
	return mm_fail(client, r, "%s",
		       r == -ETIMEDOUT ? "our turn did not come in time" : client->dead_text);
}

int mm_turn_yield(struct mm_client *client)
{
	uint64_t serial;
	int r = mm_enter(client);

	if (r)
		return r;
	pthread_mutex_lock(&client->lock);
	r = client->steps_open && client->turn.serial ? -EBUSY : 0;
	serial = mm_turn_leave(client);
	pthread_mutex_unlock(&client->lock);
	mm_turn_give_back(client, serial);
	return r ? mm_fail(client, r, "a step is open: end it first") : 0;
}
