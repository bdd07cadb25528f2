/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accounts - the operator's list of accounts and their limits
 *
 * Concept:   A list of accounts, each named and matched by a cgroup (a path and all below it), a
 *            user or a group. A process belongs to the most specific one that matches: the longest
 *            cgroup path, then the user, then its groups, its primary one first. A process that
 *            none matches belongs to the account of its user, "uid:N". Accounts of one domain trust
 *            each other.
 * Format:    a JSON array of objects, in the configuration file or as the flag's text; keeper
 *            checks it once and passes it on as text.
 * Ownership: plain struct.
 * Threading: none of its own.
 * Errors:    one sentence that names the account and the key, and what would be right.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "libclient/support/options.h"

#define MM_ACCOUNTS_NAMED_MAX  32
#define MM_ACCOUNT_NAME_BYTES  32
#define MM_ACCOUNT_PATH_BYTES  256
#define MM_ACCOUNT_ERROR_BYTES 200
#define MM_ACCOUNT_ANY         UINT64_MAX /* the operator set no such limit */

enum mm_account_by { MM_BY_NONE, MM_BY_CGROUP, MM_BY_UID, MM_BY_GID };

struct mm_account_config {
	char name[MM_ACCOUNT_NAME_BYTES];
	char domain[MM_ACCOUNT_NAME_BYTES]; /* "": a domain of its own */
	enum mm_account_by by;
	uint32_t id; /* for MM_BY_UID, MM_BY_GID */
	char cgroup[MM_ACCOUNT_PATH_BYTES];
	uint64_t min_bytes;
	uint64_t max_bytes; /* of each device, as min_bytes; 0 = the pool */
	uint64_t weight, priority;
	uint64_t host_max_bytes;  /* or MM_ACCOUNT_ANY */
	uint64_t connections_max; /* or MM_ACCOUNT_ANY */
	uint64_t on_timeout;      /* enum mm_on_timeout */
	uint64_t turn_quantum_max_ms,
		turn_priority_max;           /* MM_ACCOUNT_ANY: as accounts that are not named */
	uint64_t goal_ttft_ms, goal_tpot_us; /* 0: no goal */
};

struct mm_accounts {
	struct mm_account_config account[MM_ACCOUNTS_NAMED_MAX];
	uint32_t n;
};

/* The kernel's facts about a process; @cgroup is NULL when it is not known. */
struct mm_account_peer {
	uint32_t uid;
	uint32_t gid;
	const uint32_t *groups;
	uint32_t n_groups;
	const char *cgroup;
};

/**
 * mm_accounts_parse() - read a list
 * @json:   an array
 * @ret:    written only on success
 * @error:  MM_ACCOUNT_ERROR_BYTES: the sentence on failure
 * @ret_at: on failure the value that is wrong, or the account; may be NULL
 *
 * Return: 0; -EINVAL.
 */
int mm_accounts_parse(const json_t *json, struct mm_accounts *ret, char *error,
		      const json_t **ret_at);
int mm_accounts_parse_text(const char *text, struct mm_accounts *ret, char *error);

/* The list as text that mm_accounts_parse_text() takes; free() it. NULL: out of memory. */
char *mm_accounts_format(const struct mm_accounts *accounts);

/*
 * Checks the sum of the minima against the pool of a device. Return: NULL; else the sentence in
 * @error.
 */
const char *mm_accounts_check(const struct mm_accounts *accounts, uint64_t pool_bytes, char *error);

/* Index of the account that the process belongs to; -1: no named one matches. */
int mm_accounts_match(const struct mm_accounts *accounts, const struct mm_account_peer *peer);

/**
 * mm_accounts_share() - the number of places that an account without a limit may take
 * @places: in all
 * @used:   of them, by any account; at most @places
 * @own:    of those, by the account
 *
 * Half of what the other accounts have left, and at least one while none is its own. So an account
 * that has places always leaves at least one, and as many as it has itself, to newcomers.
 * Return: how many; if that is more than @own the account may take one more now.
 */
uint64_t mm_accounts_share(uint64_t places, uint64_t used, uint64_t own);

/* One account as an object of the list. */
json_t *mm_accounts_json(const struct mm_account_config *account);

/* The keys of an account as a table of options, for help; nothing is stored. */
const struct mm_opt *mm_accounts_opts(void);

/* Index of the account with that name; -1: none. */
int mm_accounts_find(const struct mm_accounts *accounts, const char *name);

/* "kill" or "quarantine"; NULL: there is no such value. */
const char *mm_on_timeout_name(uint64_t on_timeout);
/* Return: whether @word names a value; if so it is stored. */
bool mm_on_timeout_parse(const char *word, uint64_t *ret_on_timeout);
