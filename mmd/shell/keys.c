/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/fault.h"
#include "libclient/support/json.h"
#include "mmd/shell/shell.h"

struct mm_scope mm_session_scope(const struct mm_session *s)
{
	return (struct mm_scope){ .account = s->account, .uid = s->uid };
}

bool mm_scope_equal(const struct mm_scope *a, const struct mm_scope *b)
{
	return a->account == b->account && a->uid == b->uid;
}

static bool key_is(const struct mm_store_key *have, const struct mm_scope *scope,
		   const struct mm_load_key *key)
{
	return mm_scope_equal(&have->scope, scope) && have->bytes == key->key_bytes &&
	       memcmp(have->key, key->key, sizeof(have->key)) == 0;
}

static bool store_has_key(const struct mm_store *store, const struct mm_scope *scope,
			  const struct mm_load_key *key)
{
	for (const struct mm_store_key *k = store->keys; k; k = k->next)
		if (key_is(k, scope, key))
			return true;
	return false;
}

struct mm_store *mm_key_find(struct mm_shell *shell, const struct mm_scope *scope,
			     const struct mm_load_key *key)
{
	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		struct mm_store *store = &shell->stores.store[i];

		if (store->id && store_has_key(store, scope, key))
			return store;
	}
	return NULL;
}

int mm_key_may_add(const struct mm_store *store, const struct mm_scope *scope,
		   const struct mm_load_key *key)
{
	unsigned int n = 0;

	for (const struct mm_store_key *k = store->keys; k; k = k->next)
		n += mm_scope_equal(&k->scope, scope);
	return n < MM_STORE_KEYS_MAX || store_has_key(store, scope, key) ? 0 : -ENOSPC;
}

int mm_key_add(struct mm_store *store, const struct mm_scope *scope, const struct mm_load_key *key)
{
	struct mm_store_key *made;
	int r = mm_key_may_add(store, scope, key);

	if (r < 0 || store_has_key(store, scope, key))
		return r;
	made = mm_fault("key.add") ? NULL : malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	*made = (struct mm_store_key){ .next = store->keys,
				       .scope = *scope,
				       .bytes = key->key_bytes };
	memcpy(made->key, key->key, sizeof(made->key));
	store->keys = made;
	return 0;
}

/* Drops the keys of @scope; NULL: all. */
static void keys_drop(struct mm_store *store, const struct mm_scope *scope)
{
	struct mm_store_key **at = &store->keys;

	while (*at) {
		struct mm_store_key *k = *at;

		if (scope && !mm_scope_equal(&k->scope, scope)) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		free(k);
	}
}

void mm_keys_leave(struct mm_shell *shell, struct mm_store *store, const struct mm_scope *scope)
{
	MM_FOREACH_SESSION(shell, s) {
		struct mm_scope theirs = mm_session_scope(s);

		if (s->state >= MM_SESSION_OPEN && s->store == store &&
		    mm_scope_equal(&theirs, scope))
			return;
	}
	keys_drop(store, scope);
}

void mm_keys_done(struct mm_store *store)
{
	keys_drop(store, NULL);
}

json_t *mm_keys_json(const struct mm_shell *shell, const struct mm_store *store)
{
	char text[MM_KEY_TEXT_BYTES], account[MM_ACCOUNT_NAME_BYTES];
	json_t *keys = json_array();

	for (const struct mm_store_key *k = store->keys; k; k = k->next) {
		json_t *key = json_object();

		mm_json_put_text(key, "key", mm_key_print(k->key, k->bytes, text));
		mm_json_put_text(key, "account", mm_quota_name(shell, k->scope.account, account));
		mm_json_put_u64(key, "account_uid", k->scope.uid);
		json_array_append_new(keys, key);
	}
	return keys;
}
