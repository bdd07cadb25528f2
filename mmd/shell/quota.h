/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota - the account that a session is charged to, and charges outside of the pools
 *
 * Concept:   Each core keeps the accounts of its own pool. This part has what they have in common:
 *            the account that a process belongs to, its name, its connections and its host memory,
 *            both over all devices. A host copy that several accounts use is charged to the one
 *            whose load filled it; when that account no longer uses it, to another that does, even
 *            beyond that one's limit.
 * Keys:      a named account's key is MM_QUOTA_NAMED + its index in the configuration, another's
 *            its uid.
 * Threading: core's thread.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "mmd/config/accounts.h"
#include "mmd/core/core.h"
#include "mmd/shell/rpc.h"

#define MM_QUOTA_NAMED (UINT64_C(1) << 32)

struct mm_pool;
struct mm_session;
struct mm_shell;
struct mm_store;

/* Adds the named accounts to the pool's new core. Return: 0; negative errno, then mmd ends. */
int mm_quota_setup(struct mm_pool *pool);

/* The quota that the settings of a named account are on this pool. */
void mm_quota_of(const struct mm_pool *pool, const struct mm_account_config *account,
		 struct mm_core_quota *ret_quota);

/* The key of the first account in the same domain as that at @index. */
uint64_t mm_quota_domain(const struct mm_accounts *accounts, uint32_t index);

/**
 * mm_quota_resolve() - which account a session's process belongs to
 * @session:    has its pid, pidfd and uid; gets its account
 * @ret_reason: why not, a static string
 *
 * Return: 0; -ESRCH it is dead; negative errno.
 */
int mm_quota_resolve(struct mm_session *session, const char **ret_reason);

/*
 * Whether the session belongs to the user that mmd runs as: that user could end mmd, so no limit
 * binds it.
 */
bool mm_quota_is_ours(const struct mm_session *session);

/**
 * mm_quota_may_connect() - whether the session's account may have one more connection
 * @session:    has its account and its pool
 * @ret_reason: MM_REASON_BYTES: why not, with the limit and what to do
 *
 * An account with a connections_max is held to it over all devices. Any other account has a share
 * of the places of each device (mm_accounts_share()); mmd's own user is not limited.
 */
bool mm_quota_may_connect(const struct mm_session *session, char *ret_reason);

/* Whether the session's account may run one more load beside those that run. */
bool mm_quota_may_load(const struct mm_session *session);

/* The account's name, written to @text of MM_ACCOUNT_NAME_BYTES. */
const char *mm_quota_name(const struct mm_shell *shell, uint64_t account, char *text);

/* Host memory that the account may still be charged; MM_ACCOUNT_ANY: it has no limit of its own. */
uint64_t mm_quota_host_room(struct mm_shell *shell, uint64_t account);

/* Methods of the admin socket. */
json_t *mm_quota_show(void *context, const json_t *params, struct mm_rpc_error *error);
json_t *mm_quota_set(void *context, const json_t *params, struct mm_rpc_error *error);
