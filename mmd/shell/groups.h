/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups - sessions that are ranks of one model (tensor parallelism)
 *
 * Concept:    The ranks of a group are sessions of one account that have joined it by its name
 *             (MM_OP_GROUP_JOIN), each on whatever device it lives. What concerns their chunks is
 *             decided by mmd/core/group.h. They also share a small region, in which each tells the
 *             others how its steps ended; mmd makes it and reads nothing of it.
 * End:        If the connection of a rank ends without BYE, those of the others are ended, too: a
 *             rank cannot go on alone, and may wait for the dead one on its device for ever, which
 *             only the deadline for its pages ends. After BYE the others keep what they have, but
 *             the group grants nothing any more. A name is free again once its group is not whole.
 * Limits:     MM_GROUPS_MAX groups, of which an account can have MM_GROUPS_ACCOUNT_MAX.
 * Ownership:  struct mm_shell owns the groups; a group lives as long as a rank of it.
 * Threading:  core's thread.
 */
#pragma once

#include <jansson.h>

#include "mmd/core/group.h"

struct mm_session;
struct mm_shell;
struct mm_shell_group;

#define MM_GROUPS_MAX         64
#define MM_GROUPS_ACCOUNT_MAX 16

/* The part of a group that outlives core (kept.h). */
struct mm_group_kept {
	uint32_t used;    /* stored last; 0: no group is here */
	uint32_t leaving; /* a rank that is being taken out + 1; 0: none */
	uint32_t died;    /* it left without BYE, so that the others end */
	uint32_t reserved;
	uint64_t account;
	char name[MM_GROUP_NAME_BYTES + 1];
	struct mm_group group; /* its pointers are set anew by each core */
};

struct mm_groups {
	struct mm_shell_group *group[MM_GROUPS_MAX]; /* NULL: unused */
	bool again;                                  /* a group is to be settled again at once */
};

/* Handles MM_OP_GROUP_JOIN and MM_OP_GROUP_MAPPED. Return: 0; MM_E_PROTOCOL: end the connection. */
int mm_session_group_request(struct mm_session *session, const struct mm_msg *msg);

/* The session is no rank any more, if it was one. @died: without BYE, so that the others end. */
void mm_session_group_leave(struct mm_session *session, bool died);

/*
 * Makes the groups that a core which died has left; sessions are there, and all actions were
 * performed. Return: 0; -ENOMEM.
 */
int mm_groups_resume(struct mm_shell *shell);

/* Settles all groups. Return: whether something was changed that makes work for sessions. */
bool mm_groups_settle(struct mm_shell *shell, uint64_t now_ns);

/*
 * Has @alpha layers of the session's model kept away, and of those of all ranks of its group, or of
 * none. Return: as mm_core_plan_set(); *ret_of is the session that was refused.
 */
int mm_session_plan_set(struct mm_session *session, int32_t alpha, uint32_t slots,
			uint32_t *ret_max, struct mm_session **ret_of);

/* The session's group, for status; JSON null: it has none. */
json_t *mm_session_group_json(const struct mm_session *session);
