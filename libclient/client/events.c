/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of events for the engine, and the fd that is readable while it is not empty. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libclient/client/internal.h"

#define CROWDED (MM_EVENTS_MAX - MM_EVENT_COLD)

static struct mm_event *event_at(struct mm_client *c, uint32_t i) MM_REQUIRES(mm_client_lock)
{
	return &c->events[(c->events_first + i) % MM_EVENTS_MAX];
}

/* Whether events of this kind count something; of the other kinds only the newest is valid. */
static bool counts_add_up(enum mm_event_kind kind)
{
	return kind == MM_EVENT_KV_GRANTED || kind == MM_EVENT_SWAPPED ||
	       kind == MM_EVENT_STEP_ENDED;
}

/* Merges @event into an unread one, so that the queue of an idle engine does not grow. */
static void event_merge(struct mm_event *into, const struct mm_event *event)
{
	const struct mm_event before = *into;

	*into = *event;
	if (counts_add_up(event->kind))
		into->count += before.count;
	/* A limit does not take the place of the answer to a window. */
	if (event->kind == MM_EVENT_COLD && !event->count) {
		into->count = before.count;
		into->error = before.error;
	}
}

/*
 * The last event that @event can be merged into, or NULL. A crowded queue merges over events of
 * other kinds, and a reclaim always does: it is queued once.
 */
static struct mm_event *event_like(struct mm_client *c, const struct mm_event *event)
	MM_REQUIRES(mm_client_lock)
{
	bool anywhere = c->events_n >= CROWDED || event->kind == MM_EVENT_KV_RECLAIM;

	for (uint32_t i = c->events_n; i-- > 0;) {
		struct mm_event *last = event_at(c, i);

		if (last->kind == event->kind)
			return last;
		if (!anywhere)
			return NULL;
	}
	return NULL;
}

void mm_event_push(struct mm_client *client, const struct mm_event *event)
{
	struct mm_event *like = event_like(client, event);

	if (like) {
		event_merge(like, event);
		return;
	}
	/* In a crowded queue each kind takes at most one more place. */
	mm_assert(client->events_n < MM_EVENTS_MAX);
	*event_at(client, client->events_n++) = *event;
	eventfd_write(client->event_fd, 1);
}

/* Resets the fd when the queue is empty: it is readable only while an event is there. */
static void event_fd_settle(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	eventfd_t count;

	if (!c->events_n)
		eventfd_read(c->event_fd, &count);
}

static void event_remove(struct mm_client *c, uint32_t i) MM_REQUIRES(mm_client_lock)
{
	for (; i + 1 < c->events_n; i++)
		*event_at(c, i) = *event_at(c, i + 1);
	c->events_n--;
}

void mm_event_drop(struct mm_client *client, enum mm_event_kind kind, uint64_t count)
{
	for (uint32_t i = client->events_n; i-- > 0 && count;) {
		struct mm_event *event = event_at(client, i);
		const uint64_t counted = counts_add_up(kind) ? event->count : 1;

		if (event->kind != kind)
			continue;
		if (counted > count)
			event->count -= (uint32_t)count;
		else
			event_remove(client, i);
		count -= MM_MIN(counted, count);
	}
	event_fd_settle(client);
}

static void event_take(struct mm_client *c, struct mm_event *ret_event) MM_REQUIRES(mm_client_lock)
{
	*ret_event = *event_at(c, 0);
	c->events_first = (c->events_first + 1) % MM_EVENTS_MAX;
	c->events_n--;
}

/*
 * Brings a reclaim up to date: chunks may have been released since mmd sent it. Return: false if
 * the event has become void.
 */
static bool event_update(const struct mm_client *c, struct mm_event *event)
	MM_REQUIRES(mm_client_lock)
{
	if (event->kind != MM_EVENT_KV_RECLAIM)
		return true;
	event->count = mm_kv_count_owed(c->kv);
	return event->count != 0;
}

int mm_client_event_fd(const struct mm_client *client)
{
	return client->event_fd;
}

int mm_client_next_event(struct mm_client *client, struct mm_event *ret_event)
{
	struct mm_event event;
	int r = -EAGAIN;

	/* Not mm_enter(): events before the end of the connection, and of the end, can be read. */
	if (mm_fork_is_child(client))
		return mm_fail(client, -ECHILD, "the client belongs to the parent process");
	if (mm_size_check(client, ret_event, MM_V1_EVENT))
		return -EINVAL;
	mm_client_lock_take(&client->lock);
	while (r && client->events_n) {
		event_take(client, &event);
		if (event_update(client, &event))
			r = 0;
	}
	if (!r)
		mm_sized_write(ret_event, &event, sizeof(event));
	event_fd_settle(client);
	if (!r && event.kind == MM_EVENT_DISCONNECTED)
		mm_fail(client, event.error, "%s", client->dead_text); /* for mm_client_error() */
	mm_client_lock_give(&client->lock);
	return r;
}
