/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emit - actions for tenants and xfer, and tenants by their id
 *
 * Concept:    Each function queues an action and records it in the book: the map table as it was
 *             given out, tenants that were kicked, jobs that were issued.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Returns the tenant with this id; NULL: there is none. */
struct mm_c_tenant *mm_c_tenant(const struct mm_core *c, uint32_t id);

/*
 * True if there is room for a unit of settling; else settling is repeated when the queue is empty.
 */
bool mm_c_burst(struct mm_core *c);
/* Queues an action; @t is NULL where it concerns no tenant. */
struct mm_action *mm_c_emit(struct mm_core *c, enum mm_action_kind kind,
			    const struct mm_c_tenant *t);
/* Sends the tenant an event. */
void mm_c_event_send(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *msg);
/* Sends the reply to a request. */
void mm_c_reply(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *request,
		int result);
/* Sets the page of an entry of its map table; MM_NO_PAGE: none. */
void mm_c_map_set(struct mm_core *c, struct mm_c_tenant *t, uint32_t entry, uint32_t page);
/* Sends the tenant the fd of a page. */
void mm_c_fds_send(struct mm_core *c, const struct mm_c_tenant *t, uint32_t page);
/* Closes the connection of the tenant, because of what it did. */
void mm_c_kick(struct mm_core *c, struct mm_c_tenant *t, const char *reason);

/* True if there is room for another bulk job. */
bool mm_c_job_room(const struct mm_core *c);
/* Issues a job; xfer is up. @tenant: its index, or MM_NO_OWNER. Returns the job. */
uint32_t mm_c_job_issue(struct mm_core *c, uint32_t tenant, const struct mm_msg *msg);
