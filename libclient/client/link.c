/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to mmd, the calls that wait for replies, and the end of the connection. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libclient/client/internal.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/fault.h"

/* ---- patience ---- */

static uint64_t core_beat(const struct mm_client *c)
{
	return __atomic_load_n(&c->mmd->state.beat_ns, __ATOMIC_RELAXED);
}

struct mm_patience mm_patience_of(uint64_t timeout_ns)
{
	return (struct mm_patience){ .deadline_ns = mm_deadline_ns(timeout_ns),
				     .spare_ns = timeout_ns };
}

/* Rings when it is time to. Return: whether mmd has left a ring unanswered for too long. */
static bool mmd_is_silent(struct mm_client *c, struct mm_patience *p, uint64_t now_ns)
{
	uint64_t beat_ns = core_beat(c);

	if (beat_ns != p->beat_ns)
		p->asked_ns = 0;
	p->beat_ns = beat_ns;
	if (now_ns - p->rung_ns >= MM_RING_NS) {
		mm_sock_doorbell(c->sock); /* the service thread ends a broken connection */
		p->rung_ns = now_ns;
		if (!p->asked_ns)
			p->asked_ns = now_ns;
	}
	return beat_ns && p->asked_ns && now_ns - p->asked_ns > MM_SILENT_NS;
}

int mm_patience_check(struct mm_client *client, struct mm_patience *p)
{
	uint64_t now_ns = mm_now_ns();
	bool silent;

	if (!p->looked_ns)
		p->looked_ns = p->rung_ns = now_ns;
	silent = mmd_is_silent(client, p, now_ns);
	if (silent && p->deadline_ns != UINT64_MAX) {
		uint64_t more_ns = MM_MIN(now_ns - p->looked_ns, p->spare_ns);

		p->spare_ns -= more_ns;
		p->deadline_ns += more_ns;
	}
	p->looked_ns = now_ns;
	if (now_ns < p->deadline_ns)
		return 0;
	if (silent)
		__atomic_store_n(&client->silent_beat_ns, p->beat_ns, __ATOMIC_RELAXED);
	return -ETIMEDOUT;
}

bool mm_link_is_silent(const struct mm_client *client)
{
	uint64_t beat_ns = __atomic_load_n(&client->silent_beat_ns, __ATOMIC_RELAXED);

	return beat_ns && beat_ns == core_beat(client);
}

/* ---- requests ---- */

static int link_try_push(struct mm_client *c, const struct mm_msg *msg)
{
	int r;

	mm_client_lock_take(&c->lock);
	r = c->dead ? c->dead : mm_ring_push(&c->sq, msg);
	mm_client_lock_give(&c->lock);
	return r;
}

int mm_link_push(struct mm_client *client, const struct mm_msg *msg)
{
	struct mm_patience patience = mm_patience_of(client->timeout_ns);
	const struct timespec pause = mm_timespec(MM_LINK_RETRY_NS);
	int r;

	if (mm_fault("link.push"))
		return -ETIMEDOUT;
	for (;;) {
		r = link_try_push(client, msg);
		if (r == MM_E_PROTOCOL)
			mm_link_fail(client, -EPROTO, "mmd scribbled over its cursor of requests");
		if (r != MM_E_FULL)
			break;
		if (mm_sock_doorbell(client->sock))
			return -ECONNRESET; /* the service thread ends the connection */
		if (mm_patience_check(client, &patience))
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	if (r)
		return r == MM_E_PROTOCOL ? -EPROTO : r;
	mm_sock_doorbell(client->sock);
	return 0;
}

static void wait_unlink(struct mm_client *c, const struct mm_wait *wait)
{
	for (struct mm_wait **at = &c->waits; *at; at = &(*at)->next) {
		if (*at == wait) {
			*at = wait->next;
			return;
		}
	}
}

int mm_link_call(struct mm_client *client, struct mm_msg *msg)
{
	return mm_link_call_for(client, msg, client->timeout_ns);
}

int mm_link_call_for(struct mm_client *client, struct mm_msg *msg, uint64_t timeout_ns)
{
	struct mm_patience patience = mm_patience_of(timeout_ns);
	struct mm_wait wait = { 0 };
	int r;

	mm_client_lock_take(&client->lock);
	wait.id = msg->user_data = ++client->last_wait_id;
	wait.next = client->waits;
	client->waits = &wait;
	mm_client_lock_give(&client->lock);

	r = mm_link_push(client, msg);

	mm_client_lock_take(&client->lock);
	while (!r && !wait.done)
		r = mm_link_wait_for_mmd(client, &patience);
	wait_unlink(client, &wait);
	mm_client_lock_give(&client->lock);
	if (wait.done) {
		*msg = wait.reply;
		return 0;
	}
	return r;
}

void mm_link_reply(struct mm_client *client, const struct mm_msg *reply)
{
	mm_client_lock_take(&client->lock);
	for (struct mm_wait *wait = client->waits; wait; wait = wait->next) {
		if (wait->id != reply->user_data)
			continue;
		wait->reply = *reply;
		wait->done = true;
		pthread_cond_broadcast(&client->changed);
	}
	mm_client_lock_give(&client->lock);
}

void mm_link_abort_gates(struct mm_client *c)
{
	for (uint32_t i = 0; i < MM_LAYERS_MAX; i++)
		__atomic_fetch_or(&c->gates->gate[i].high, (uint32_t)(MM_GATE_ABORT >> 32),
				  __ATOMIC_SEQ_CST);
}

void mm_link_fail(struct mm_client *client, int error, const char *text)
{
	struct mm_steps_out out = { 0 };

	mm_client_lock_take(&client->lock);
	if (!client->dead) {
		snprintf(client->dead_text, sizeof(client->dead_text), "%s", text);
		/* A caller may repeat what returned -ETIMEDOUT; here that would be for ever. */
		client->dead = error == -ETIMEDOUT ? -ECONNRESET : error;
		mm_steps_on_dead(&client->steps, &out);
		mm_step_out_perform(client, &out);
		mm_event_push(client, &(struct mm_event){ .kind = MM_EVENT_DISCONNECTED,
							  .error = client->dead });
	}
	mm_client_lock_give(&client->lock);
}

int mm_link_wait(struct mm_client *client, uint64_t deadline_ns)
{
	const struct timespec deadline = mm_timespec(deadline_ns);
	int r = 0;

	if (client->dead)
		return client->dead;
	if (deadline_ns == UINT64_MAX)
		mm_client_lock_wait(&client->lock, &client->changed);
	else
		r = mm_client_lock_wait_until(&client->lock, &client->changed, &deadline);
	return r == ETIMEDOUT ? -ETIMEDOUT : 0;
}

int mm_link_wait_for_mmd(struct mm_client *client, struct mm_patience *p)
{
	int r = client->dead ? client->dead : mm_patience_check(client, p);

	if (r)
		return r;
	r = mm_link_wait(client, MM_MIN(p->deadline_ns, p->looked_ns + MM_RING_NS));
	return r == -ETIMEDOUT ? 0 : r; /* the next check decides */
}
