/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pace - how often a peer is served that achieves nothing
 *
 * Concept:    Token buckets. Each request that a tenant may repeat at will, each doorbell behind
 *             which there is no request, and each hello has a price in time; a peer that has spent
 *             its burst is served again when as much time has passed. It loses nothing: requests
 *             stay in its ring, hellos in its socket. What ends something that mmd has given costs
 *             nothing, as there is only so much of it. So a tenant that asks for nothing without
 *             end, or joins and leaves without end, takes a small part of core, and no engine comes
 *             near a limit. A hello is charged to its user, as no account is known yet; users that
 *             find no bucket of their own share one. A connection has no user before it is
 *             accepted: keeper accepts those of all users from one bucket, in the order in which
 *             they came.
 * Ownership:  plain memory: of requests in the session, of hellos in struct mm_shell, of
 *             connections in struct mm_keeper. A role that takes over from another begins with full
 *             buckets.
 * Threading:  the thread of the role. There is no timer but for a peer that waits.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/base/base.h"

#define MM_PACE_USERS 64

#define MM_PACE_BURST_NS (200 * MM_NS_PER_MS) /* of requests; of hellos ten times as much */
#define MM_PACE_ASK_NS   (200 * MM_NS_PER_US) /* a request that an engine makes now and then */
#define MM_PACE_WANT_NS  (50 * MM_NS_PER_US)  /* one that says what it wants now */
#define MM_PACE_BELL_NS  (500 * MM_NS_PER_US) /* to be woken for nothing */
#define MM_PACE_HELLO_NS (2500 * MM_NS_PER_US)
#define MM_PACE_JOIN_NS  (7500 * MM_NS_PER_US) /* of a hello that is welcomed, besides */
#define MM_PACE_CONN_NS  (500 * MM_NS_PER_US)  /* to be accepted, at each socket for anybody */

/* A bucket: how much a peer has spent. A zeroed one is full. */
struct mm_pace {
	uint64_t paid_ns; /* the time up to which it is paid for */
};

struct mm_pace_users {
	struct {
		struct mm_pace pace;
		uint32_t uid;
	} user[MM_PACE_USERS + 1]; /* the last one is shared */
};

/*
 * Spends @price_ns. Return: 0; the time at which it can be spent: nothing was. A price of 0 can
 * always be.
 */
uint64_t mm_pace_spend(struct mm_pace *pace, uint64_t price_ns, uint64_t burst_ns, uint64_t now_ns);

/* Returns when something can be spent; 0: now. It spends nothing. */
uint64_t mm_pace_due(const struct mm_pace *pace, uint64_t burst_ns, uint64_t now_ns);

/* Spends what was granted in any case, so that the next one waits for as much longer. */
void mm_pace_charge(struct mm_pace *pace, uint64_t price_ns, uint64_t now_ns);

/* The price of a request, by its opcode. */
uint64_t mm_pace_price(uint16_t opcode);

/* The bucket of a user's hellos. */
struct mm_pace *mm_pace_of_user(struct mm_pace_users *users, uint32_t uid, uint64_t now_ns);
