/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tell - what tenants and xfer are told, and who a tenant is
 *
 * Concept:    Actions, with what the books keep of them: the table as it was given out, who was
 *             kicked.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* NULL: there is none of this id. */
struct mm_c_tenant *mm_c_tenant(const struct mm_core *c, uint32_t id);

/* Room for a unit of settling? If not, settling is repeated when the queue is empty. */
bool mm_c_burst(struct mm_core *c);
struct mm_action *mm_c_emit(struct mm_core *c, enum mm_action_kind kind,
			    const struct mm_c_tenant *t);
void mm_c_event(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *msg);
/* Answers a request. */
void mm_c_reply(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *request,
		int result);
/* The page of an entry of its table; MM_NO_PAGE: none. */
void mm_c_map(struct mm_core *c, struct mm_c_tenant *t, uint32_t entry, uint32_t page);
void mm_c_fds(struct mm_core *c, const struct mm_c_tenant *t, uint32_t page);
void mm_c_kick(struct mm_core *c, struct mm_c_tenant *t, const char *reason);

bool mm_c_job_room(const struct mm_core *c);
/* @tenant: its index, MM_NOBODY. xfer is up. Return: the job. */
uint32_t mm_c_job_issue(struct mm_core *c, uint32_t tenant, const struct mm_msg *msg);
