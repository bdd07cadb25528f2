/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libclient/internal.h"

#define CROWDED (MM_EVENTS_MAX - MM_EVENT_DISCONNECTED)

static struct mm_event *event_at(struct mm_client *c, uint32_t i)
{
	return &c->events[(c->events_first + i) % MM_EVENTS_MAX];
}

/* An engine that never looks must not make us grow: counts add up, the rest is the newest. */
static void event_merge(struct mm_event *into, const struct mm_event *event)
{
	uint32_t count = into->count;

	*into = *event;
	if (event->kind == MM_EVENT_KV_GRANTED || event->kind == MM_EVENT_KV_RECLAIM ||
	    event->kind == MM_EVENT_SWAPPED)
		into->count += count;
}

/* The last event that @event may be added to. */
static struct mm_event *event_like(struct mm_client *c, const struct mm_event *event)
{
	bool crowded = c->events_n >= CROWDED;

	for (uint32_t i = c->events_n; i-- > 0;) {
		struct mm_event *last = event_at(c, i);

		/* Reclaims have deadlines of their own: apart for as long as there is room. */
		if (last->kind == event->kind && (crowded || event->kind != MM_EVENT_KV_RECLAIM))
			return last;
		if (!crowded)
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
	/* Once it is crowded, each kind takes at most one place more. */
	mm_assert(client->events_n < MM_EVENTS_MAX);
	*event_at(client, client->events_n++) = *event;
	eventfd_write(client->event_fd, 1);
}

int mm_client_event_fd(const struct mm_client *client)
{
	return client->event_fd;
}

int mm_client_next_event(struct mm_client *client, struct mm_event *ret_event)
{
	eventfd_t count;
	int r = -EAGAIN;

	/* Not mm_enter(): what happened before the end, and the end itself, can still be read. */
	if (mm_fork_is_child(client))
		return mm_fail(client, -ECHILD, "the client belongs to the parent process");
	pthread_mutex_lock(&client->lock);
	if (client->events_n) {
		*ret_event = *event_at(client, 0);
		client->events_first = (client->events_first + 1) % MM_EVENTS_MAX;
		client->events_n--;
		r = 0;
	}
	if (!client->events_n)
		eventfd_read(client->event_fd, &count);
	pthread_mutex_unlock(&client->lock);
	return r;
}
