/* SPDX-License-Identifier: Apache-2.0 */
/* Which store a key finds, for whom, how many there can be, and when they go. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mmd/shell/shell.h"

static const struct mm_scope ours = { .account = 1000, .uid = 1000 };

static int setup(void **state)
{
	struct mm_shell *shell = calloc(1, sizeof(*shell));

	assert_non_null(shell);
	assert_int_equal(mm_kept_create(1, MM_SESSIONS_MAX, &shell->kept), 0);
	mm_stores_init(shell);
	for (size_t i = 0; i < 2; i++)
		shell->stores.store[i].id = 1 + i;
	shell->n_sessions = MM_SESSIONS_MAX;
	*state = shell;
	return 0;
}

static int teardown(void **state)
{
	struct mm_shell *shell = *state;

	for (size_t i = 0; i < MM_STORES_MAX; i++)
		mm_keys_done(&shell->stores.store[i]);
	mm_kept_done(&shell->kept);
	free(shell);
	return 0;
}

static struct mm_load_key key_of(const void *bytes, size_t n)
{
	struct mm_load_key key = { .magic = MM_ABI_MAGIC,
				   .kind = MM_LOAD_KEY,
				   .key_bytes = (uint32_t)n };

	memcpy(key.key, bytes, n);
	return key;
}

static void test_scope(void **state)
{
	static const struct mm_scope others[] = {
		{ .account = 1000, .uid = 1001 },
		{ .account = 1001, .uid = 1000 },
		{ .account = MM_QUOTA_NAMED, .uid = 1000 },
		{ .account = 0, .uid = 0 },
	};
	struct mm_shell *shell = *state;
	struct mm_store *store = shell->stores.store;
	const struct mm_load_key key = key_of("key", 3), other = key_of("kez", 3);

	assert_null(mm_key_find(shell, &ours, &key));
	assert_int_equal(mm_key_add(&store[1], &ours, &key), 0);
	assert_ptr_equal(mm_key_find(shell, &ours, &key), &store[1]);
	assert_null(mm_key_find(shell, &ours, &other));
	for (size_t i = 0; i < MM_ARRAY_SIZE(others); i++)
		assert_null(mm_key_find(shell, &others[i], &key));
	/* Each scope has its own. */
	assert_int_equal(mm_key_add(&store[0], &others[0], &key), 0);
	assert_ptr_equal(mm_key_find(shell, &others[0], &key), &store[0]);
	assert_ptr_equal(mm_key_find(shell, &ours, &key), &store[1]);
}

static void test_any_bytes(void **state)
{
	struct mm_shell *shell = *state;
	struct mm_store *store = shell->stores.store;
	const struct mm_load_key a = key_of("a", 1), nul = key_of("a\0", 2),
				 nuls = key_of("a\0\0", 3);

	assert_int_equal(mm_key_add(&store[0], &ours, &nul), 0);
	assert_null(mm_key_find(shell, &ours, &a));
	assert_null(mm_key_find(shell, &ours, &nuls));
	assert_ptr_equal(mm_key_find(shell, &ours, &nul), &store[0]);
}

static void test_limit(void **state)
{
	struct mm_shell *shell = *state;
	struct mm_store *store = shell->stores.store;
	const struct mm_scope other = { .account = 1000, .uid = 7 };
	struct mm_load_key key = { 0 };

	for (uint32_t i = 0; i < 1000; i++) {
		int want = i < MM_STORE_KEYS_MAX ? 0 : -ENOSPC;

		key = key_of(&i, sizeof(i));
		assert_int_equal(mm_key_may_add(store, &ours, &key), want);
		assert_int_equal(mm_key_add(store, &ours, &key), want);
	}
	assert_null(mm_key_find(shell, &ours, &key));
	/* One that is there is there, and other users and stores have their own. */
	key = key_of(&(uint32_t){ 0 }, sizeof(uint32_t));
	assert_int_equal(mm_key_add(store, &ours, &key), 0);
	assert_int_equal(mm_key_add(store, &other, &key), 0);
	key = key_of("x", 1);
	assert_int_equal(mm_key_add(&store[1], &ours, &key), 0);
}

static struct mm_session *session_make(struct mm_shell *shell, size_t i, struct mm_scope scope,
				       struct mm_store *store)
{
	struct mm_session *s = &shell->session[i];

	s->state = MM_SESSION_OPEN;
	s->account = scope.account;
	s->uid = scope.uid;
	s->store = store;
	return s;
}

static void test_leave(void **state)
{
	struct mm_shell *shell = *state;
	struct mm_store *store = shell->stores.store;
	const struct mm_scope other = { .account = 1000, .uid = 7 };
	struct mm_session *first = session_make(shell, 0, ours, store);
	struct mm_session *last = session_make(shell, 1, ours, store);
	const struct mm_load_key key = key_of("key", 3);

	session_make(shell, 2, other, store);
	session_make(shell, 3, ours, &store[1]);
	assert_int_equal(mm_key_add(store, &ours, &key), 0);
	assert_int_equal(mm_key_add(store, &other, &key), 0);
	first->store = NULL;
	mm_keys_leave(shell, store, &ours);
	assert_ptr_equal(mm_key_find(shell, &ours, &key), store);
	/* A connection that is closed may still use it. */
	last->state = MM_SESSION_CLOSED;
	mm_keys_leave(shell, store, &ours);
	assert_ptr_equal(mm_key_find(shell, &ours, &key), store);
	last->store = NULL;
	mm_keys_leave(shell, store, &ours);
	assert_null(mm_key_find(shell, &ours, &key));
	assert_ptr_equal(mm_key_find(shell, &other, &key), store);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_scope),
		T(test_any_bytes),
		T(test_limit),
		T(test_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
