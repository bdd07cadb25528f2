/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "mmd/shell/shell.h"

#define SCHEMA             1
#define DOCUMENT_BYTES_MAX (4 << 20)

/* Reads what keeper wrote. NULL: it is no JSON, or no memory is left. */
static json_t *document_read(int fd)
{
	struct stat st;
	mm_cleanup(mm_free_ptr) char *bytes = NULL;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > DOCUMENT_BYTES_MAX)
		return NULL;
	bytes = malloc((size_t)st.st_size);
	if (!bytes || pread(fd, bytes, (size_t)st.st_size, 0) != st.st_size)
		return NULL;
	return json_loadb(bytes, (size_t)st.st_size, 0, NULL);
}

void mm_settings_init(struct mm_shell *shell)
{
	const struct mm_held_name shown = { .kind = MM_HELD_CONFIG, .index = 0 };
	const struct mm_held_name words = { .kind = MM_HELD_CONFIG, .index = 1 };
	mm_cleanup(mm_close_fd) int fd = mm_held_take(&shell->held, shown);
	/* This one is for keeper itself. */
	const int unused = mm_held_take(&shell->held, words);

	if (unused >= 0)
		close(unused);
	shell->reload.show = document_read(fd);
}

void mm_settings_done(struct mm_shell *shell)
{
	mm_json_done(&shell->reload.show);
	mm_json_done(&shell->reload.changes);
}

/* ---- what it would be ---- */

/* Reads the command line of a core. */
static int settings_parse(const json_t *args, struct mm_config *ret, char *error)
{
	char *argv[MM_CONFIG_ARGS_MAX + 1] = { NULL };
	const size_t n = json_array_size(args);
	struct mm_opt_line line;

	snprintf(error, MM_CONFIG_ERROR_BYTES, "keeper sent no settings");
	if (n == 0 || n > MM_CONFIG_ARGS_MAX)
		return -EPROTO;
	for (size_t i = 0; i < n; i++)
		argv[i] = (char *)(uintptr_t)json_string_value(json_array_get(args, i));
	*ret = (struct mm_config){ .role = 0 };
	return mm_opt_parse(&mm_config_program, (int)n, argv, ret, &line, error);
}

/* Whether the quota of an account differs; other limits are looked up when they are needed. */
static bool account_differs(const struct mm_account_config *a, const struct mm_account_config *b)
{
	return a->min_bytes != b->min_bytes || a->max_bytes != b->max_bytes ||
	       a->weight != b->weight || a->priority != b->priority ||
	       a->on_timeout != b->on_timeout || a->turn_quantum_max_ms != b->turn_quantum_max_ms ||
	       a->turn_priority_max != b->turn_priority_max || a->goal_ttft_ms != b->goal_ttft_ms ||
	       a->goal_tpot_us != b->goal_tpot_us;
}

static bool account_is_changed(const struct mm_shell *shell, const struct mm_config *next,
			       uint32_t index)
{
	const struct mm_accounts *now = &shell->config->accounts;

	return index >= now->n ||
	       account_differs(&now->account[index], &next->accounts.account[index]);
}

/* The min that an account will have: that of the settings, or what was set by hand. */
static uint64_t account_min_pages(const struct mm_pool *pool, const struct mm_config *next,
				  const struct mm_core_account *a)
{
	const uint64_t index = a->account - MM_QUOTA_NAMED;
	struct mm_core_quota quota;

	if (a->account < MM_QUOTA_NAMED || index >= next->accounts.n ||
	    !account_is_changed(pool->shell, next, (uint32_t)index))
		return a->quota.min_pages;
	mm_quota_of(pool, &next->accounts.account[index], &quota);
	return quota.min_pages;
}

/* All mins of the pool as they will be, of accounts that it has and new ones. */
static uint64_t mins_sum(const struct mm_pool *pool, const struct mm_config *next)
{
	struct mm_core_account a;
	struct mm_core_quota quota;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < mm_core_accounts_end(pool->core); i++) {
		if (mm_core_account(pool->core, i, &a))
			sum += account_min_pages(pool, next, &a);
	}
	for (uint32_t i = 0; i < next->accounts.n; i++) {
		if (mm_core_account_find(pool->core, MM_QUOTA_NAMED + i, &a))
			continue;
		mm_quota_of(pool, &next->accounts.account[i], &quota);
		sum += quota.min_pages;
	}
	return sum;
}

/* Checks the settings against a pool. Return: 0; -EINVAL with the sentence. */
static int pool_settings_check(const struct mm_pool *pool, const struct mm_config *next,
			       char *error)
{
	const uint64_t page = pool->worker.device.page_bytes, pages = pool->worker.device.pages;
	uint64_t sum;

	for (uint32_t i = 0; i < next->accounts.n; i++) {
		const struct mm_account_config *a = &next->accounts.account[i];
		struct mm_core_quota quota;

		mm_quota_of(pool, a, &quota);
		if (a->max_bytes && !quota.max_pages) {
			snprintf(error, MM_CONFIG_ERROR_BYTES,
				 "accounts: '%s': max is less than one page of %" PRIu64 " bytes",
				 a->name, page);
			return -EINVAL;
		}
		if (quota.max_pages && quota.min_pages > quota.max_pages) {
			snprintf(error, MM_CONFIG_ERROR_BYTES,
				 "accounts: '%s': in pages of %" PRIu64
				 " bytes min is more than max",
				 a->name, page);
			return -EINVAL;
		}
	}
	if (next->account_max_bytes && next->account_max_bytes < page) {
		snprintf(error, MM_CONFIG_ERROR_BYTES,
			 "account-max: less than one page of %" PRIu64 " bytes", page);
		return -EINVAL;
	}
	sum = mins_sum(pool, next);
	if (sum <= pages)
		return 0;
	snprintf(error, MM_CONFIG_ERROR_BYTES,
		 "accounts: the mins, those set by hand too, sum up to %" PRIu64
		 " pages, the pool of device %" PRIu64 " has %" PRIu64,
		 sum, pool->ordinal, pages);
	return -EINVAL;
}

/* ---- applying ---- */

static void pool_tune(struct mm_pool *pool, const struct mm_config *next)
{
	struct mm_event event = { .kind = MM_EVENT_TUNE, .now_ns = mm_now_ns() };
	struct mm_event_result result;

	mm_pool_opts(pool, next, &event.tune);
	mm_pool_event(pool, &event, NULL, &result);
	if (result.r)
		mm_log(MM_LOG_ERROR, "config.not_applied", "device=%" PRIu64 " knobs=%d",
		       pool->ordinal, result.r);
}

/* The names by which the core knows the domains are those of the accounts' indices. */
static void account_set(struct mm_pool *pool, const struct mm_config *next, uint32_t index)
{
	const uint64_t key = MM_QUOTA_NAMED + index;
	struct mm_event event = { .kind = MM_EVENT_QUOTA_SET, .now_ns = mm_now_ns() };
	struct mm_core_account now;
	struct mm_event_result result;
	bool failed;

	event.quota.account = key;
	event.quota.domain = mm_quota_domain(&next->accounts, index);
	mm_quota_of(pool, &next->accounts.account[index], &event.quota.quota);
	if (!mm_core_account_find(pool->core, key, &now))
		event.kind = MM_EVENT_ACCOUNT_ADD;
	mm_pool_event(pool, &event, NULL, &result);
	failed = event.kind == MM_EVENT_ACCOUNT_ADD
			 ? result.r != 0
			 : result.r == MM_QUOTA_CONFLICT || result.r == MM_QUOTA_STALE;
	if (failed)
		mm_log(MM_LOG_ERROR, "config.not_applied",
		       "device=%" PRIu64 " account=%s event=%s result=%d", pool->ordinal,
		       next->accounts.account[index].name, mm_event_name(event.kind), result.r);
}

/* Whether the account's min becomes smaller, which must come first: others may get what it had. */
static bool account_shrinks(const struct mm_pool *pool, const struct mm_config *next,
			    uint32_t index)
{
	struct mm_core_account now;
	struct mm_core_quota quota;

	mm_quota_of(pool, &next->accounts.account[index], &quota);
	return mm_core_account_find(pool->core, MM_QUOTA_NAMED + index, &now) &&
	       quota.min_pages < now.quota.min_pages;
}

static void pool_apply(struct mm_pool *pool, const struct mm_config *next)
{
	pool_tune(pool, next);
	for (int grows = 0; grows < 2; grows++) {
		for (uint32_t i = 0; i < next->accounts.n; i++) {
			if (account_is_changed(pool->shell, next, i) &&
			    account_shrinks(pool, next, i) == !grows)
				account_set(pool, next, i);
		}
	}
}

static int settings_apply(struct mm_shell *shell, const json_t *document, char *error)
{
	mm_cleanup(mm_free_ptr) struct mm_config *next = malloc(sizeof(*next));
	int r = next ? settings_parse(json_object_get(document, "args"), next, error) : -ENOMEM;

	for (uint32_t i = 0; i < shell->n_pools && r == 0; i++)
		r = shell->pool[i].core ? pool_settings_check(&shell->pool[i], next, error) : 0;
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		if (shell->pool[i].core)
			pool_apply(&shell->pool[i], next);
	}
	mm_log_set_level((enum mm_log_level)next->log_level);
	shell->reload.config = *next;
	shell->config = &shell->reload.config;
	return 0;
}

/* ---- keeper's message ---- */

static void answer_send(struct mm_shell *shell, uint64_t id, int result)
{
	struct mm_kmsg msg = { .op = MM_K_RELOAD, .result = result, .id = id };

	/* Without keeper core ends anyway, once it reads from it. */
	(void)mm_kchan_send(&shell->keeper, &msg, NULL, 0);
}

static size_t changes_count(const json_t *changes, bool applied)
{
	const json_t *change;
	size_t i, n = 0;

	json_array_foreach(changes, i, change)
		n += mm_json_flag(change, "applied") == applied;
	return n;
}

void mm_settings_on_keeper(struct mm_shell *shell, struct mm_kpacket *packet)
{
	mm_cleanup(mm_close_fd) int fd = mm_kpacket_take(packet, 0);
	mm_cleanup(mm_json_done) json_t *document = document_read(fd);
	struct mm_settings *reload = &shell->reload;
	const char *failed = mm_json_text(document, "error");
	char error[MM_CONFIG_ERROR_BYTES] = "";
	int r = 0;

	if (*failed) {
		snprintf(error, sizeof(error), "%s", failed);
		r = -EINVAL;
	} else {
		r = settings_apply(shell, document, error);
	}
	mm_json_done(&reload->changes);
	reload->serial = mm_now_ns();
	strcpy(reload->error, error);
	if (r == 0) {
		*reload->error = '\0';
		reload->changes = json_incref(json_object_get(document, "changes"));
		json_decref(reload->show);
		reload->show = json_incref(json_object_get(document, "show"));
		mm_log(MM_LOG_INFO, "config.reloaded", "applied=%zu need_restart=%zu",
		       changes_count(reload->changes, true), changes_count(reload->changes, false));
	} else {
		mm_log(MM_LOG_ERROR, "config.refused", "reason=\"%s\"", reload->error);
	}
	answer_send(shell, packet->msg.id, r);
}

/* ---- methods ---- */

json_t *mm_settings_begin(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	struct mm_kmsg msg = { .op = MM_K_RELOAD };
	json_t *json;

	(void)params;
	if (!shell->ready)
		return mm_rpc_fail(error, MM_RPC_FAILED, "mmd is not ready yet");
	if (mm_kchan_send(&shell->keeper, &msg, NULL, 0) < 0)
		return mm_rpc_fail(error, MM_RPC_FAILED, "keeper cannot be reached");
	json = json_object();
	mm_json_put_u64(json, "schema", SCHEMA);
	mm_json_put_u64(json, "serial", shell->reload.serial);
	return json;
}

json_t *mm_settings_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	const struct mm_settings *reload = &shell->reload;
	json_t *json = json_object(), *last = json_object();

	(void)params;
	(void)error;
	mm_json_put_u64(json, "schema", SCHEMA);
	json_object_update(json, reload->show);
	mm_json_put_u64(last, "serial", reload->serial);
	mm_json_put(last, "error", *reload->error ? json_string(reload->error) : json_null());
	mm_json_put(last, "changes", reload->changes ? json_incref(reload->changes) : json_array());
	mm_json_put(json, "reload", last);
	return json;
}
