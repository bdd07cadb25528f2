/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys - by which tenants find a store that was committed already
 *
 * Concept:    A tenant that commits weights of its own making may give them a key: what they were
 *             made of, in its engine's words. Another one that would make the same asks for the
 *             key, and makes nothing. A store has any number of keys, since several users and
 *             configurations may have made the same bytes; a key of a scope is of one store only.
 * Trust:      a key is a claim: nothing shows that the bytes are what it says. So it is found only
 *             in the scope in which it was committed, the same user in the same account. Others
 *             get the same answer whether it exists or not. One account may have several users, and
 *             one user's containers may be of several accounts; only both together are one scope.
 * Lifetime:   a key is there from when its store is ready until the last session of its scope has
 *             let go of the store.
 * Threading:  core's thread.
 * Ownership:  all keys are in one table, which outlives core with its stores (kept.h).
 * Limits:     MM_STORE_KEYS_MAX of one scope on one store.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mmd/common/key.h"
#include "mmd/common/proto.h"

/* Configurations that make the same bytes, such as versions of an engine. */
#define MM_STORE_KEYS_MAX 8

struct mm_session;
struct mm_shell;
struct mm_store;

struct mm_scope {
	uint64_t account;
	uid_t uid;
};

/* A key, where a session of its scope uses the store. It outlives core (kept.h). */
struct mm_store_key {
	uint64_t store; /* id; 0: the place is free. Stored last */
	uint64_t account;
	uint32_t uid;
	uint32_t bytes;
	uint8_t key[MM_MODEL_KEY_BYTES]; /* the tail is 0 */
};

/* As many as there can be: a key is there while a session of its scope uses its store. */
#define MM_KEYS_MAX (MM_SESSIONS_MAX * MM_STORE_KEYS_MAX)

struct mm_keys_kept {
	uint32_t end; /* no key is at this place or behind it */
	uint32_t reserved;
	struct mm_store_key key[MM_KEYS_MAX];
};

/* The scope of a session that has its account. */
struct mm_scope mm_session_scope(const struct mm_session *session);

bool mm_scope_equal(const struct mm_scope *a, const struct mm_scope *b);

/* The store that @key names in @scope; NULL: none. */
struct mm_store *mm_key_find(struct mm_shell *shell, const struct mm_scope *scope,
			     const struct mm_load_key *key);

/**
 * mm_key_may_add() - whether the store has this key, or may get it
 * @store: any
 * @scope: of the tenant
 * @key:   checked
 *
 * Return: 0; -ENOSPC it has as many of the scope as it may have.
 */
int mm_key_may_add(const struct mm_store *store, const struct mm_scope *scope,
		   const struct mm_load_key *key);

/*
 * Adds a key that no other store has in this scope. Return: 0, also if it is there; -ENOSPC.
 */
int mm_key_add(struct mm_store *store, const struct mm_scope *scope, const struct mm_load_key *key);

/* Drops the keys of @scope from the store, unless a session of that scope still uses it. */
void mm_keys_leave(struct mm_shell *shell, struct mm_store *store, const struct mm_scope *scope);

/* Drops all keys of the store. */
void mm_keys_done(struct mm_store *store);

/* All keys of the store, for operators: as text, with user and account. */
json_t *mm_keys_json(const struct mm_shell *shell, const struct mm_store *store);
