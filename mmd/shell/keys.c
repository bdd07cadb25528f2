/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/keys.h"

#include <errno.h>
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

static struct mm_scope key_scope(const struct mm_store_key *key)
{
	return (struct mm_scope){ .account = key->account, .uid = key->uid };
}

static bool key_is(const struct mm_store_key *have, const struct mm_scope *scope,
		   const struct mm_load_key *key)
{
	const struct mm_scope theirs = key_scope(have);

	return mm_scope_equal(&theirs, scope) && have->bytes == key->key_bytes &&
	       memcmp(have->key, key->key, sizeof(have->key)) == 0;
}

/* The store's next key, from place *at on, which begins with 0; NULL: there is none. */
static struct mm_store_key *key_next(const struct mm_store *store, uint32_t *at)
{
	while (*at < store->keys->end) {
		struct mm_store_key *k = &store->keys->key[(*at)++];

		if (k->store == store->id)
			return k;
	}
	return NULL;
}

static bool store_has_key(const struct mm_store *store, const struct mm_scope *scope,
			  const struct mm_load_key *key)
{
	const struct mm_store_key *k;
	uint32_t at = 0;

	while ((k = key_next(store, &at)))
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
	const struct mm_store_key *k;
	unsigned int n = 0;
	uint32_t at = 0;

	while ((k = key_next(store, &at))) {
		const struct mm_scope theirs = key_scope(k);

		n += mm_scope_equal(&theirs, scope);
	}
	return n < MM_STORE_KEYS_MAX || store_has_key(store, scope, key) ? 0 : -ENOSPC;
}

/* A free place; NULL: there is none. */
static struct mm_store_key *key_place(struct mm_keys_kept *keys)
{
	uint32_t i = 0;

	while (i < keys->end && keys->key[i].store)
		i++;
	if (i == MM_KEYS_MAX)
		return NULL;
	/* A place that counts without a key is free. */
	if (i == keys->end)
		mm_kept_publish(&keys->end, i + 1);
	return &keys->key[i];
}

int mm_key_add(struct mm_store *store, const struct mm_scope *scope, const struct mm_load_key *key)
{
	struct mm_store_key *k;
	int r = mm_key_may_add(store, scope, key);

	if (r < 0 || store_has_key(store, scope, key))
		return r;
	k = mm_fault("key.add") ? NULL : key_place(store->keys);
	if (!k)
		return -ENOSPC;
	k->account = scope->account;
	k->uid = scope->uid;
	k->bytes = key->key_bytes;
	memcpy(k->key, key->key, sizeof(k->key));
	mm_kept_publish(&k->store, store->id);
	return 0;
}

/* Drops the keys of @scope; NULL: all. */
static void keys_drop(struct mm_store *store, const struct mm_scope *scope)
{
	struct mm_store_key *k;
	uint32_t at = 0;

	while ((k = key_next(store, &at))) {
		const struct mm_scope theirs = key_scope(k);

		if (!scope || mm_scope_equal(&theirs, scope))
			mm_kept_publish(&k->store, (uint64_t)0);
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
	if (store->id)
		keys_drop(store, NULL);
}

json_t *mm_keys_json(const struct mm_shell *shell, const struct mm_store *store)
{
	char text[MM_KEY_TEXT_BYTES], account[MM_ACCOUNT_NAME_BYTES];
	json_t *keys = json_array();
	const struct mm_store_key *k;
	uint32_t at = 0;

	while ((k = key_next(store, &at))) {
		json_t *key = json_object();

		mm_json_put_text(key, "key", mm_key_print(k->key, k->bytes, text));
		mm_json_put_text(key, "account", mm_quota_name(shell, k->account, account));
		mm_json_put_u64(key, "account_uid", k->uid);
		json_array_append_new(keys, key);
	}
	return keys;
}
