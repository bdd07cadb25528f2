/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leave - mmd ends at the operator's request, after its tenants
 *
 * Concept:    Each tenant is told by when it has to leave (MM_EV_LEAVE); nobody new is welcomed.
 *             When the time is over the connections of those that are still there end, and soon
 *             afterwards their processes are killed, because they may have the device open. When
 *             all are gone, or do not go, mmd stops. Another request replaces the time.
 * Persistence: the time is in the book, so a successor of core goes on with it, and tells tenants
 *             again: of two deadlines the later message counts.
 * Threading:  core's thread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "mmd/common/proto.h"
#include "mmd/shell/rpc.h"

struct mm_shell;

struct mm_leave {
	bool told; /* this core has told all tenants about the time in the book */
	/* The processes whose connections it has ended because they were late. */
	struct mm_leave_late {
		uint64_t conn; /* their PIDFD at keeper */
		int pidfd;
	} late[MM_SESSIONS_MAX];
	uint32_t n_late;
	bool killed;  /* it has killed them */
	bool stopped; /* it has asked keeper to stop mmd */
};

/* Whether nobody new may come. */
bool mm_leave_is_on(const struct mm_shell *shell);

/* Does what is due in each iteration. */
void mm_leave_service(struct mm_shell *shell, uint64_t now_ns);
uint64_t mm_leave_deadline(const struct mm_shell *shell);

/* The admin method "shutdown". */
json_t *mm_leave_method(void *shell, const json_t *params, struct mm_rpc_error *error);
