/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/config/accounts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"
#include "libclient/support/options.h"
#include "libclient/support/size.h"
#include "mmd/core/core.h"

#define SIZE_MAX_BYTES (UINT64_C(1) << 50)

enum field_type { TYPE_NAME, TYPE_PATH, TYPE_ID, TYPE_SIZE, TYPE_NUMBER, TYPE_TIMEOUT };

static const struct account_field {
	const char *key;
	enum field_type type;
	size_t offset;
	uint64_t min, max; /* TYPE_NUMBER */
	enum mm_account_by by;
	const char *value, *help, *otherwise; /* as those of struct mm_opt */
} fields[] = {
#define AT(field) .offset = offsetof(struct mm_account_config, field)
#define NUMBER    .type = TYPE_NUMBER, .value = "N"
#define SIZE      .type = TYPE_SIZE, .value = "SIZE"
	{ .key = "name",
	  .type = TYPE_NAME,
	  AT(name),
	  .value = "NAME",
	  .help = "up to 31 letters, digits and -_. that no other account has; required" },
	{ .key = "domain",
	  .type = TYPE_NAME,
	  AT(domain),
	  .value = "NAME",
	  .help = "accounts with the same word trust each other: pages pass between them after a "
		  "scrub, and need not be created anew",
	  .otherwise = "a domain of its own" },
	{ .key = "cgroup",
	  .type = TYPE_PATH,
	  AT(cgroup),
	  .by = MM_BY_CGROUP,
	  .value = "PATH",
	  .help = "whom it is for: processes in this cgroup (v2) and below; an account has exactly "
		  "one of cgroup, uid and gid" },
	{ .key = "uid",
	  .type = TYPE_ID,
	  AT(id),
	  .by = MM_BY_UID,
	  .value = "N",
	  .help = "whom it is for: processes of this user" },
	{ .key = "gid",
	  .type = TYPE_ID,
	  AT(id),
	  .by = MM_BY_GID,
	  .value = "N",
	  .help = "whom it is for: processes in this group" },
	{ .key = "min",
	  SIZE,
	  AT(min_bytes),
	  .help = "memory of each device that is kept for it: granted to nobody else, and lent to "
		  "nobody. All mins together are at most the pool",
	  .otherwise = "0" },
	{ .key = "max",
	  SIZE,
	  AT(max_bytes),
	  .help = "most memory of each device; 0 is the pool",
	  .otherwise = "0" },
	{ .key = "weight",
	  NUMBER,
	  AT(weight),
	  .min = 1,
	  .max = MM_WEIGHT_MAX,
	  .help = "how accounts of one priority share KV memory that is scarce, and turns; and who "
		  "of the active lends more",
	  .otherwise = "100" },
	{ .key = "priority",
	  NUMBER,
	  AT(priority),
	  .max = MM_PRIORITY_MAX,
	  .help = "the higher one is served first and lends last; a lower one may wait as long "
		  "as a "
		  "higher one wants",
	  .otherwise = "0" },
	{ .key = "host_max",
	  SIZE,
	  AT(host_max_bytes),
	  .help = "most host memory for weights and swap spaces",
	  .otherwise = "no limit" },
	{ .key = "connections_max",
	  NUMBER,
	  AT(connections_max),
	  .max = 1u << 20,
	  .help = "tenants at once, over all devices",
	  .otherwise = "half of the places of each device that others leave" },
	{ .key = "turn_quantum_max_ms",
	  NUMBER,
	  AT(turn_quantum_max_ms),
	  .min = 1,
	  .max = MM_TURN_QUANTUM_LIMIT_NS / MM_NS_PER_MS,
	  .help = "longest turn, in ms, that its tenants may request while others wait",
	  .otherwise = "turn-quantum-max" },
	{ .key = "turn_priority_max",
	  NUMBER,
	  AT(turn_priority_max),
	  .max = MM_TURN_PRIORITY_MAX,
	  .help = "highest priority among turns that its tenants may request",
	  .otherwise = "turn-priority-max" },
	{ .key = "goal_ttft_ms",
	  NUMBER,
	  AT(goal_ttft_ms),
	  .max = MM_GOAL_NS_MAX / MM_NS_PER_MS,
	  .help = "time to the first token, in ms, that each request of its tenants is to reach; 0 "
		  "is no goal",
	  .otherwise = "0" },
	{ .key = "goal_tpot_us",
	  NUMBER,
	  AT(goal_tpot_us),
	  .max = MM_GOAL_NS_MAX / MM_NS_PER_US,
	  .help = "time for each further token, in us; 0 is no goal",
	  .otherwise = "0" },
	{ .key = "on_timeout",
	  .type = TYPE_TIMEOUT,
	  AT(on_timeout),
	  .value = "NAME",
	  .help = "what happens to processes that do not give pages back in time: kill, or "
		  "quarantine, where the account is charged until they are back",
	  .otherwise = "kill" },
};

static_assert(MM_WEIGHT_DEFAULT == 100, "weight");

static const char *const account_timeout_names[MM_ON_TIMEOUTS] = {
	[MM_ON_TIMEOUT_KILL] = "kill",
	[MM_ON_TIMEOUT_QUARANTINE] = "quarantine",
};

const char *mm_on_timeout_name(uint64_t on_timeout)
{
	return on_timeout < MM_ON_TIMEOUTS ? account_timeout_names[on_timeout] : NULL;
}

bool mm_on_timeout_parse(const char *word, uint64_t *ret_on_timeout)
{
	for (uint64_t i = 0; i < MM_ON_TIMEOUTS; i++) {
		if (strcmp(word, account_timeout_names[i]) == 0) {
			*ret_on_timeout = i;
			return true;
		}
	}
	return false;
}

static int accounts_fail(char *error, const char *fmt, ...) MM_PRINTF(2, 3);
static int accounts_fail(char *error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, MM_ACCOUNT_ERROR_BYTES, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* ---- one value ---- */

/*
 * Names appear in logs and on the command line. ':' is excluded: "uid:N" is the name of an account
 * that is not in the list.
 */
static bool account_name_is_valid(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n >= MM_ACCOUNT_NAME_BYTES)
		return false;
	for (size_t i = 0; i < n; i++) {
		bool letter =
			(name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z');

		if (!letter && !(name[i] >= '0' && name[i] <= '9') && !strchr("-_.", name[i]))
			return false;
	}
	return true;
}

static bool cgroup_path_is_valid(const char *path)
{
	size_t n = strlen(path);

	return path[0] == '/' && n < MM_ACCOUNT_PATH_BYTES && (n == 1 || path[n - 1] != '/') &&
	       !strstr(path, "//") && !strstr(path, "/..");
}

static int field_set_text(const struct account_field *f, struct mm_account_config *a,
			  const char *text, char *error)
{
	if (!text ||
	    !(f->type == TYPE_NAME ? account_name_is_valid(text) : cgroup_path_is_valid(text)))
		return accounts_fail(
			error, "%s: is not %s", f->key,
			f->type == TYPE_NAME
				? "1 to 31 letters, digits, '-', '_' and '.'"
				: "an absolute path below the cgroup root, without '/' at its end");
	strcpy((char *)a + f->offset, text);
	return 0;
}

static int field_set_size(const struct account_field *f, const json_t *value, uint64_t *to,
			  char *error)
{
	const char *text = json_string_value(value);
	uint64_t bytes;

	if (text ? mm_size_parse(text, &bytes) != 0
		 : !mm_json_is_whole(value, 0, INT64_MAX, &bytes))
		return accounts_fail(
			error, "%s: is not a size, as a number or as \"512M\" or \"2G\"", f->key);
	if (bytes > SIZE_MAX_BYTES)
		return accounts_fail(error, "%s: more than %" PRIu64 " bytes", f->key,
				     SIZE_MAX_BYTES);
	*to = bytes;
	return 0;
}

static int field_set_number(const struct account_field *f, const json_t *value, uint64_t *to,
			    char *error)
{
	if (!mm_json_is_whole(value, f->min, f->max, to))
		return accounts_fail(error, "%s: is not a number, %" PRIu64 " to %" PRIu64, f->key,
				     f->min, f->max);
	return 0;
}

static int field_set_id(const struct account_field *f, const json_t *value, uint32_t *to,
			char *error)
{
	uint64_t number;

	if (!mm_json_is_whole(value, 0, UINT32_MAX - 1, &number))
		return accounts_fail(error, "%s: is not a number, 0 to %u", f->key, UINT32_MAX - 1);
	*to = (uint32_t)number;
	return 0;
}

static int field_set_value(const struct account_field *f, struct mm_account_config *a,
			   const json_t *value, char *error)
{
	char *to = (char *)a + f->offset;
	const char *word = json_string_value(value);

	switch (f->type) {
	case TYPE_NAME:
	case TYPE_PATH:
		return field_set_text(f, a, word, error);
	case TYPE_ID:
		return field_set_id(f, value, (uint32_t *)(void *)to, error);
	case TYPE_SIZE:
		return field_set_size(f, value, (uint64_t *)(void *)to, error);
	case TYPE_NUMBER:
		return field_set_number(f, value, (uint64_t *)(void *)to, error);
	case TYPE_TIMEOUT:
		break;
	}
	if (!word || !mm_on_timeout_parse(word, (uint64_t *)(void *)to))
		return accounts_fail(error, "%s: is not \"kill\" or \"quarantine\"", f->key);
	return 0;
}

/* ---- one account ---- */

static const struct account_field *field_find(const char *key)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(fields); i++) {
		if (strcmp(fields[i].key, key) == 0)
			return &fields[i];
	}
	return NULL;
}

static int field_unknown(const char *key, char *error)
{
	struct mm_opt_near near = { .word = key, .bytes = strlen(key) };

	for (size_t i = 0; i < MM_ARRAY_SIZE(fields); i++)
		mm_opt_near_offer(&near, fields[i].key);
	return accounts_fail(error, "unknown key '%.64s'%s%s%s", key,
			     near.best ? "; did you mean " : "", near.best ? near.best : "",
			     near.best ? "?" : "");
}

/* Stores in @at the value that is wrong. */
static int keys_parse(const json_t *json, struct mm_account_config *a, char *error,
		      const json_t **at)
{
	const struct account_field *f;
	const char *key;
	json_t *value;
	int r;

	json_object_foreach((json_t *)(uintptr_t)json, key, value) {
		*at = value;
		f = field_find(key);
		if (!f)
			return field_unknown(key, error);
		if (f->by && a->by)
			return accounts_fail(error, "more than one of cgroup, uid and gid");
		r = field_set_value(f, a, value, error);
		if (r < 0)
			return r;
		a->by = f->by ? f->by : a->by;
	}
	/* An item of the file that is merged from others is no value of it, but its name is. */
	*at = json_object_get(json, "name");
	if (!a->name[0])
		return accounts_fail(error, "name is missing");
	if (!a->by)
		return accounts_fail(error, "one of cgroup, uid and gid is missing");
	if (a->max_bytes && a->min_bytes > a->max_bytes)
		return accounts_fail(error, "min is more than max");
	return 0;
}

static bool account_matches_same(const struct mm_account_config *a,
				 const struct mm_account_config *b)
{
	if (a->by != b->by)
		return false;
	return a->by == MM_BY_CGROUP ? strcmp(a->cgroup, b->cgroup) == 0 : a->id == b->id;
}

static int unique_check(const struct mm_accounts *accounts, const struct mm_account_config *a,
			char *error)
{
	for (uint32_t i = 0; i < accounts->n; i++) {
		if (strcmp(accounts->account[i].name, a->name) == 0)
			return accounts_fail(error, "the name is there twice");
		if (account_matches_same(&accounts->account[i], a))
			return accounts_fail(error, "matches the same as account '%s'",
					     accounts->account[i].name);
	}
	return 0;
}

static int account_parse(const json_t *json, struct mm_accounts *accounts, char *error,
			 const json_t **at)
{
	struct mm_account_config a = {
		.weight = MM_WEIGHT_DEFAULT,
		.host_max_bytes = MM_ACCOUNT_ANY,
		.connections_max = MM_ACCOUNT_ANY,
		.on_timeout = MM_ON_TIMEOUT_KILL,
		.turn_quantum_max_ms = MM_ACCOUNT_ANY,
		.turn_priority_max = MM_ACCOUNT_ANY,
	};
	char why[MM_ACCOUNT_ERROR_BYTES];
	int r;

	if (!json_is_object(json))
		return accounts_fail(error, "number %u is no object", accounts->n + 1);
	r = keys_parse(json, &a, why, at);
	if (r == 0)
		r = unique_check(accounts, &a, why);
	if (r < 0 && a.name[0])
		return accounts_fail(error, "'%s': %.*s", a.name, MM_ACCOUNT_ERROR_BYTES - 64, why);
	if (r < 0)
		return accounts_fail(error, "number %u: %.*s", accounts->n + 1,
				     MM_ACCOUNT_ERROR_BYTES - 64, why);
	accounts->account[accounts->n++] = a;
	return 0;
}

/* ---- the list ---- */

int mm_accounts_parse(const json_t *json, struct mm_accounts *ret, char *error,
		      const json_t **ret_at)
{
	struct mm_accounts accounts = { .n = 0 };
	const json_t *account, *at = json;
	size_t i;
	int r;

	if (!json_is_array(json) || json_array_size(json) > MM_ACCOUNTS_NAMED_MAX)
		return accounts_fail(error, "not a list of at most %d objects",
				     MM_ACCOUNTS_NAMED_MAX);
	json_array_foreach(json, i, account) {
		at = account;
		r = account_parse(account, &accounts, error, &at);
		if (r < 0 && ret_at)
			*ret_at = at;
		if (r < 0)
			return r;
	}
	*ret = accounts;
	return 0;
}

int mm_accounts_parse_text(const char *text, struct mm_accounts *ret, char *error)
{
	json_error_t e;
	mm_cleanup(mm_json_done) json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &e);

	if (!json)
		return accounts_fail(error, "column %d: %.100s", e.column, e.text);
	return mm_accounts_parse(json, ret, error, NULL);
}

static json_t *value_format(const struct account_field *f, const struct mm_account_config *a)
{
	const char *from = (const char *)a + f->offset;
	uint64_t number;
	uint32_t id;

	switch (f->type) {
	case TYPE_NAME:
	case TYPE_PATH:
		return *from ? json_string(from) : NULL;
	case TYPE_ID:
		memcpy(&id, from, sizeof(id));
		return a->by == f->by ? json_integer((json_int_t)id) : NULL;
	default:
		memcpy(&number, from, sizeof(number));
	}
	if (f->type == TYPE_TIMEOUT)
		return json_string(mm_on_timeout_name(number));
	return number == MM_ACCOUNT_ANY ? NULL : json_integer((json_int_t)number);
}

json_t *mm_accounts_json(const struct mm_account_config *account)
{
	json_t *json = json_object();

	for (size_t k = 0; k < MM_ARRAY_SIZE(fields); k++) {
		json_t *value = value_format(&fields[k], account);

		if (value)
			mm_json_put(json, fields[k].key, value);
	}
	return json;
}

char *mm_accounts_format(const struct mm_accounts *accounts)
{
	mm_cleanup(mm_json_done) json_t *list = json_array();

	for (uint32_t i = 0; i < accounts->n; i++)
		json_array_append_new(list, mm_accounts_json(&accounts->account[i]));
	return json_dumps(list, JSON_COMPACT);
}

const char *mm_accounts_check(const struct mm_accounts *accounts, uint64_t pool_bytes, char *error)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < accounts->n; i++)
		sum += accounts->account[i].min_bytes; /* each is at most 2^50: no overflow */
	if (sum <= pool_bytes)
		return NULL;
	accounts_fail(error,
		      "accounts: the mins sum up to %" PRIu64 " bytes, the pool has %" PRIu64
		      "; lower them or enlarge the pool",
		      sum, pool_bytes);
	return error;
}

/* ---- the account of a process ---- */

static bool path_is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strcmp(top, "/") == 0 ||
	       (strncmp(path, top, n) == 0 && (path[n] == 0 || path[n] == '/'));
}

/* How specific the match is: the higher the better; 0: the account does not match. */
static uint64_t account_match_rank(const struct mm_account_config *a,
				   const struct mm_account_peer *peer)
{
	switch (a->by) {
	case MM_BY_CGROUP:
		return peer->cgroup && path_is_below(peer->cgroup, a->cgroup)
			       ? 4 + strlen(a->cgroup)
			       : 0;
	case MM_BY_UID:
		return a->id == peer->uid ? 3 : 0;
	case MM_BY_GID:
		if (a->id == peer->gid)
			return 2;
		for (uint32_t i = 0; i < peer->n_groups; i++) {
			if (peer->groups[i] == a->id)
				return 1;
		}
		return 0;
	case MM_BY_NONE:
		break;
	}
	return 0;
}

int mm_accounts_match(const struct mm_accounts *accounts, const struct mm_account_peer *peer)
{
	uint64_t best = 0;
	int found = -1;

	for (uint32_t i = 0; i < accounts->n; i++) {
		uint64_t how = account_match_rank(&accounts->account[i], peer);

		if (how > best) {
			best = how;
			found = (int)i;
		}
	}
	return found;
}

uint64_t mm_accounts_share(uint64_t places, uint64_t used, uint64_t own)
{
	uint64_t left = places - used + own;

	return own || left != 1 ? left / 2 : 1;
}

const struct mm_opt *mm_accounts_opts(void)
{
	static struct mm_opt opts[MM_ARRAY_SIZE(fields) + 1];

	for (size_t i = 0; i < MM_ARRAY_SIZE(fields); i++) {
		const struct account_field *f = &fields[i];

		opts[i] = (struct mm_opt){
			.name = f->key,
			.value = f->value,
			.help = f->help,
			.type = f->type == TYPE_NUMBER ? MM_OPT_NUMBER : MM_OPT_CALL,
			.min = f->min,
			.max = f->max,
			.otherwise = f->otherwise,
			.live = f->type != TYPE_NAME,
		};
	}
	return opts;
}

int mm_accounts_find(const struct mm_accounts *accounts, const char *name)
{
	for (uint32_t i = 0; i < accounts->n; i++) {
		if (strcmp(accounts->account[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}
