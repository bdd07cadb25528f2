/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify - tells a service manager how mmd is
 *
 * Concept:   The protocol of sd_notify(3): datagrams of lines KEY=VALUE to the socket that
 *            NOTIFY_SOCKET names. They say when mmd serves, when it reads its files again, when it
 *            ends, and, as often as WATCHDOG_USEC asks for it, that it works: that is said only
 *            while core does. These are thirty lines, for which no library is linked into a
 *            process that must not fail.
 * Blocking:  never. What the socket does not take is sent again a little later; only the last state
 *            counts.
 * Threading: keeper's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct mm_keeper;

struct mm_notify {
	int fd; /* -1: no service manager wants to know */
	struct sockaddr_un to;
	socklen_t to_bytes;
	char waiting[160];    /* what the socket did not take; "": nothing */
	uint64_t retry_ns;    /* when it is sent again; UINT64_MAX: nothing waits */
	uint64_t period_ns;   /* of the watchdog; 0: there is none */
	uint64_t watchdog_ns; /* when core is looked at next; UINT64_MAX: never */
	uint64_t beat_ns;     /* core's beat at the last look */
};
#define MM_NOTIFY_NULL \
	((struct mm_notify){ .fd = -1, .retry_ns = UINT64_MAX, .watchdog_ns = UINT64_MAX })

/* Reads the environment; what is wrong in it is logged, and then nobody is told anything. */
void mm_notify_init(struct mm_notify *notify);
void mm_notify_done(struct mm_notify *notify);

/* mmd serves, for the first time or again; it reads its files; it ends. */
void mm_notify_ready(struct mm_notify *notify, const char *status);
void mm_notify_reloading(struct mm_notify *notify);
void mm_notify_stopping(struct mm_notify *notify);
/* A line for those who ask how mmd is. */
void mm_notify_status(struct mm_notify *notify, const char *status);

/* Sends what waits, and the sign of life, if it is due and core works. */
void mm_notify_service(struct mm_keeper *keeper);

/* When mm_notify_service() has something to do; UINT64_MAX: never. */
uint64_t mm_notify_due_ns(const struct mm_notify *notify);
