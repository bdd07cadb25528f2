/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/number.h"
#include "mmd/keeper/state.h"

#define RETRY_NS (100 * MM_NS_PER_MS)
/* So many looks in the time that the service manager allows: core may be busy at one of them. */
#define LOOKS 4

static bool address_parse(const char *path, struct mm_notify *n)
{
	const size_t bytes = strlen(path);

	n->to.sun_family = AF_UNIX;
	if ((*path != '/' && *path != '@') || bytes < 2 || bytes >= sizeof(n->to.sun_path))
		return false;
	memcpy(n->to.sun_path, path, bytes);
	if (*path == '@')
		n->to.sun_path[0] = '\0';
	n->to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
	return true;
}

/* The time that WATCHDOG_USEC allows this very process; 0: none. */
static uint64_t watchdog_period_ns(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t value;

	if (pid && (mm_number_parse(pid, &value) || value != (uint64_t)getpid()))
		return 0;
	if (!usec || mm_number_parse(usec, &value) || !value ||
	    value > UINT64_MAX / (2 * MM_NS_PER_US))
		return 0;
	return MM_MAX(value * MM_NS_PER_US / LOOKS, MM_NS_PER_MS);
}

void mm_notify_init(struct mm_notify *n)
{
	const char *path = getenv("NOTIFY_SOCKET");

	*n = MM_NOTIFY_NULL;
	if (!path)
		return;
	if (address_parse(path, n))
		n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (n->fd < 0) {
		mm_log(MM_LOG_WARN, "notify.failed", "socket=\"%.100s\"", path);
		return;
	}
	n->period_ns = watchdog_period_ns();
	n->watchdog_ns = n->period_ns ? mm_now_ns() + n->period_ns : UINT64_MAX;
}

void mm_notify_done(struct mm_notify *n)
{
	mm_close_fd(&n->fd);
	*n = MM_NOTIFY_NULL;
}

/* Return: whether it was taken, or never will be. */
static bool text_send(const struct mm_notify *n, const char *text)
{
	const ssize_t sent = sendto(n->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
				    (const struct sockaddr *)(const void *)&n->to, n->to_bytes);

	return sent >= 0 || (errno != EAGAIN && errno != ENOBUFS && errno != EINTR);
}

static void waiting_send(struct mm_notify *n)
{
	if (text_send(n, n->waiting)) {
		*n->waiting = '\0';
		n->retry_ns = UINT64_MAX;
	} else {
		n->retry_ns = mm_now_ns() + RETRY_NS;
	}
}

static void state_send(struct mm_notify *n, const char *text)
{
	if (n->fd < 0)
		return;
	snprintf(n->waiting, sizeof(n->waiting), "%s", text);
	waiting_send(n);
}

void mm_notify_ready(struct mm_notify *n, const char *status)
{
	char text[sizeof(n->waiting)];

	snprintf(text, sizeof(text), "READY=1\nSTATUS=%.100s", status);
	state_send(n, text);
}

void mm_notify_reloading(struct mm_notify *n)
{
	char text[sizeof(n->waiting)];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=reloading",
		 mm_now_ns() / MM_NS_PER_US);
	state_send(n, text);
}

void mm_notify_stopping(struct mm_notify *n)
{
	state_send(n, "STOPPING=1\nSTATUS=stopping");
}

void mm_notify_status(struct mm_notify *n, const char *status)
{
	char text[sizeof(n->waiting)];

	/* A state that waits must not be lost for a line. */
	if (*n->waiting)
		return;
	snprintf(text, sizeof(text), "STATUS=%.100s", status);
	state_send(n, text);
}

/* Whether core serves, and went round its loop since the last look, or waits for events. */
static bool core_works(struct mm_keeper *k)
{
	const struct mm_beat *beat = k->process.beat.base;
	const uint64_t at_ns = __atomic_load_n(&beat->at_ns, __ATOMIC_RELAXED);
	const bool asleep = __atomic_load_n(&beat->asleep, __ATOMIC_RELAXED);
	const bool moved = at_ns != k->notify.beat_ns;

	k->notify.beat_ns = at_ns;
	return k->process.pid && k->process.serves && !k->process.stopped && (moved || asleep);
}

void mm_notify_service(struct mm_keeper *k)
{
	struct mm_notify *n = &k->notify;
	const uint64_t now = mm_now_ns();

	if (now >= n->retry_ns)
		waiting_send(n);
	if (now < n->watchdog_ns)
		return;
	n->watchdog_ns = now + n->period_ns;
	/* While mmd ends, another time counts, which is keeper's own. */
	if (core_works(k) || k->stopping)
		text_send(n, "WATCHDOG=1");
}

uint64_t mm_notify_due_ns(const struct mm_notify *n)
{
	return MM_MIN(n->retry_ns, n->watchdog_ns);
}
