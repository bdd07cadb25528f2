/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/config/reload.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "mmd/config/table.h"

static bool option_is_listed(const struct mm_opt *o)
{
	return !o->line_only && !mm_config_is_accounts(o) && !mm_config_is_knobs(o);
}

/* ---- origins ---- */

static const char *origin_text(const struct mm_config *c, const struct mm_origin *origin,
			       char *text, size_t bytes)
{
	if (origin->kind == MM_ORIGIN_FILE)
		snprintf(text, bytes, "%s:%u", c->sources.path[origin->file], origin->line);
	else
		snprintf(text, bytes, "%s",
			 origin->kind == MM_ORIGIN_LINE ? "command line" : "default");
	return text;
}

static const struct mm_origin *origin_of(const struct mm_config *c, const struct mm_opt *o)
{
	return &c->sources.option[o - mm_config_options];
}

static void json_put_text_or_null(json_t *object, const char *key, const char *text)
{
	mm_json_put(object, key, text && *text ? json_string(text) : json_null());
}

/* ---- changes ---- */

struct config_merge {
	const struct mm_config *now, *read;
	struct mm_config *next;
	json_t *changes;
};

static void change_add(const struct config_merge *m, const char *key, const char *from,
		       const char *to, bool applied, const struct mm_origin *origin)
{
	char text[MM_CONFIG_FILE_BYTES + 16];
	json_t *change = json_object();

	mm_json_put_text(change, "key", key);
	json_put_text_or_null(change, "from", from);
	json_put_text_or_null(change, "to", to);
	mm_json_put_flag(change, "applied", applied);
	mm_json_put_text(change, "origin", origin_text(m->read, origin, text, sizeof(text)));
	json_array_append_new(m->changes, change);
}

static const char *shown_value(const struct mm_opt *o, const char *value)
{
	if (value && *value)
		return value;
	return o->preset ? o->preset : o->otherwise;
}

static int option_merge(const struct config_merge *m, const struct mm_opt *o)
{
	mm_cleanup(mm_free_ptr) char *now = mm_config_value(m->now, o);
	mm_cleanup(mm_free_ptr) char *read = mm_config_value(m->read, o);

	if (!now || !read)
		return -ENOMEM;
	if (strcmp(now, read) == 0)
		return 0;
	if (o->live)
		memcpy((char *)m->next + o->at, (const char *)m->read + o->at, o->bytes);
	change_add(m, o->name, shown_value(o, now), shown_value(o, read), o->live,
		   origin_of(m->read, o));
	return 0;
}

/* ---- knobs ---- */

static void knob_text(const struct mm_knob *k, const struct mm_core_opts *opts, char text[32])
{
	const char *choice = mm_knob_choice(k, opts);

	if (choice)
		snprintf(text, 32, "%s", choice);
	else
		snprintf(text, 32, "%llu", (unsigned long long)mm_knob_value(k, opts));
}

static void knobs_parse(const struct mm_config *c, struct mm_core_opts *ret)
{
	char why[MM_TUNE_ERROR_BYTES];

	*ret = (struct mm_core_opts){ 0 };
	if (*c->controller)
		mm_assert(mm_tune_parse(c->controller, ret, why) == 0);
}

/* Writes the knobs that are set in @opts. */
static int knobs_format(const struct mm_core_opts *opts, char text[MM_TUNE_TEXT_BYTES])
{
	const struct mm_knob *k;
	char value[32];
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t i = 0; (k = mm_knob_at(i)) && at < MM_TUNE_TEXT_BYTES; i++) {
		if (!mm_knob_value(k, opts))
			continue;
		knob_text(k, opts, value);
		at += (size_t)snprintf(text + at, MM_TUNE_TEXT_BYTES - at, "%s%s=%s", at ? "," : "",
				       k->name, value);
	}
	return at < MM_TUNE_TEXT_BYTES ? 0 : -ENOMEM;
}

static int knobs_merge(const struct config_merge *m, const struct mm_opt *o)
{
	struct mm_core_opts now, read, next, now_all, read_all;
	const struct mm_knob *k;

	knobs_parse(m->now, &now);
	knobs_parse(m->read, &read);
	now_all = now;
	next = read_all = read;
	mm_knobs_set_defaults(&now_all);
	mm_knobs_set_defaults(&read_all);
	for (uint32_t i = 0; (k = mm_knob_at(i)); i++) {
		char key[64], from[32], to[32];

		if (k->fixed)
			mm_knob_set(k, mm_knob_value(k, &now), &next);
		if (mm_knob_value(k, &now_all) == mm_knob_value(k, &read_all))
			continue;
		snprintf(key, sizeof(key), "controller.%s", k->name);
		knob_text(k, &now_all, from);
		knob_text(k, &read_all, to);
		change_add(m, key, from, to, !k->fixed, origin_of(m->read, o));
	}
	return knobs_format(&next, m->next->controller);
}

/* ---- accounts ---- */

/* Compares two accounts of one name by what the list would show of them. */
static void account_compare(const struct config_merge *m, const struct mm_account_config *now,
			    const struct mm_account_config *read, const struct mm_origin *origin)
{
	mm_cleanup(mm_json_done) json_t *from = mm_accounts_json(now);
	mm_cleanup(mm_json_done) json_t *to = mm_accounts_json(read);
	char key[96];

	for (const struct mm_opt *o = mm_accounts_opts(); o->name; o++) {
		mm_cleanup(mm_free_ptr) char *a = NULL;
		mm_cleanup(mm_free_ptr) char *b = NULL;
		const json_t *va = json_object_get(from, o->name);
		const json_t *vb = json_object_get(to, o->name);

		if ((!va && !vb) || json_equal((json_t *)(uintptr_t)va, (json_t *)(uintptr_t)vb))
			continue;
		a = va ? json_dumps(va, JSON_ENCODE_ANY) : NULL;
		b = vb ? json_dumps(vb, JSON_ENCODE_ANY) : NULL;
		snprintf(key, sizeof(key), "accounts.%s.%s", now->name, o->name);
		change_add(m, key, a, b, o->live, origin);
	}
}

static int account_merge_one(const struct config_merge *m, uint32_t index, char *error)
{
	const struct mm_account_config *read = &m->read->accounts.account[index];
	const struct mm_origin *origin = &m->read->sources.account[index];
	struct mm_accounts *next = &m->next->accounts;
	int at = mm_accounts_find(next, read->name);
	char key[96];

	if (at < 0 && next->n == MM_ACCOUNTS_NAMED_MAX) {
		snprintf(error, MM_CONFIG_ERROR_BYTES,
			 "accounts: '%s': there is no room until a restart: of the %d accounts, "
			 "those that the files no longer have stay until then",
			 read->name, MM_ACCOUNTS_NAMED_MAX);
		return -EINVAL;
	}
	if (at < 0) {
		at = (int)next->n++;
		next->account[at] = *read;
		snprintf(key, sizeof(key), "accounts.%s", read->name);
		change_add(m, key, NULL, "added", true, origin);
	} else {
		struct mm_account_config *to = &next->account[at];
		char domain[MM_ACCOUNT_NAME_BYTES];

		account_compare(m, to, read, origin);
		strcpy(domain, to->domain);
		*to = *read;
		strcpy(to->domain, domain);
	}
	m->next->sources.account[at] = *origin;
	return 0;
}

/* Accounts that the files no longer have. */
static void accounts_left_list(const struct config_merge *m)
{
	const struct mm_origin nowhere = { .kind = MM_ORIGIN_DEFAULT };
	char key[96];

	for (uint32_t i = 0; i < m->now->accounts.n; i++) {
		const char *name = m->now->accounts.account[i].name;

		if (mm_accounts_find(&m->read->accounts, name) >= 0)
			continue;
		snprintf(key, sizeof(key), "accounts.%s", name);
		change_add(m, key, "there", "removed", false, &nowhere);
		m->next->sources.account[i] = nowhere;
	}
}

/* Two accounts must not match the same, as where one that stays was given another name. */
static int accounts_check(const struct mm_accounts *accounts, char *error)
{
	mm_cleanup(mm_free_ptr) char *text = mm_accounts_format(accounts);
	struct mm_accounts again;
	char why[MM_ACCOUNT_ERROR_BYTES];

	if (!text)
		return -ENOMEM;
	if (mm_accounts_parse_text(text, &again, why) == 0)
		return 0;
	snprintf(error, MM_CONFIG_ERROR_BYTES,
		 "accounts: %s; accounts that the files no longer have stay until a restart", why);
	return -EINVAL;
}

/* ---- all of it ---- */

static int config_merge_all(const struct config_merge *m, char *error)
{
	int r = 0;

	for (const struct mm_opt *o = mm_config_options; o->name && r == 0; o++) {
		if (mm_config_is_knobs(o))
			r = knobs_merge(m, o);
		else if (option_is_listed(o))
			r = option_merge(m, o);
	}
	for (uint32_t i = 0; i < m->read->accounts.n && r == 0; i++)
		r = account_merge_one(m, i, error);
	if (r < 0)
		return r;
	accounts_left_list(m);
	r = accounts_check(&m->next->accounts, error);
	return r < 0 ? r : mm_config_check(m->next, error);
}

int mm_config_merge(const struct mm_config *now, const struct mm_config *read,
		    struct mm_config *ret_next, json_t **ret_changes, char *error)
{
	mm_cleanup(mm_free_ptr) struct mm_config *next = malloc(sizeof(*next));
	mm_cleanup(mm_json_done) json_t *changes = json_array();
	const struct config_merge m = { now, read, next, changes };
	int r;

	snprintf(error, MM_CONFIG_ERROR_BYTES, "no memory is left");
	if (!next || !changes)
		return -ENOMEM;
	*next = *now;
	next->sources = read->sources;
	memset(next->sources.account, 0, sizeof(next->sources.account));
	r = config_merge_all(&m, error);
	if (r < 0)
		return r;
	*ret_next = *next;
	*ret_changes = mm_json_take(&changes);
	return 0;
}

/* ---- show ---- */

static void value_show(const struct mm_config *c, const struct mm_config *read,
		       const struct mm_opt *o, json_t *values)
{
	mm_cleanup(mm_free_ptr) char *now = mm_config_value(c, o);
	mm_cleanup(mm_free_ptr) char *later = mm_config_value(read, o);
	char text[MM_CONFIG_FILE_BYTES + 16];
	json_t *value = json_object();

	mm_json_put_text(value, "key", o->name);
	mm_json_put_text(value, "value", shown_value(o, now) ? shown_value(o, now) : "");
	mm_json_put_text(value, "origin",
			 origin_text(read, origin_of(read, o), text, sizeof(text)));
	mm_json_put_flag(value, "live", o->live);
	if (now && later && strcmp(now, later) != 0 && !mm_config_is_knobs(o))
		mm_json_put_text(value, "after_restart", shown_value(o, later));
	json_array_append_new(values, value);
}

static void accounts_show(const struct mm_config *c, json_t *values)
{
	for (uint32_t i = 0; i < c->accounts.n; i++) {
		const struct mm_account_config *a = &c->accounts.account[i];
		json_t *json = mm_accounts_json(a);
		char key[64], origin[MM_CONFIG_FILE_BYTES + 16];
		json_t *value = json_object();

		json_object_del(json, "name");
		snprintf(key, sizeof(key), "accounts.%s", a->name);
		mm_json_put_text(value, "key", key);
		mm_json_put(value, "value", json);
		mm_json_put_text(
			value, "origin",
			c->sources.account[i].kind == MM_ORIGIN_DEFAULT
				? "no longer there"
				: origin_text(c, &c->sources.account[i], origin, sizeof(origin)));
		mm_json_put_flag(value, "live", true);
		json_array_append_new(values, value);
	}
}

json_t *mm_config_show(const struct mm_config *c, const struct mm_config *read)
{
	json_t *show = json_object(), *files = json_array(), *values = json_array();

	for (uint32_t i = 0; i < read->sources.n; i++)
		json_array_append_new(files, json_string(read->sources.path[i]));
	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		if (option_is_listed(o) || mm_config_is_knobs(o))
			value_show(c, read, o, values);
	}
	accounts_show(c, values);
	mm_json_put(show, "files", files);
	json_put_text_or_null(show, "dropins", read->sources.dropins);
	mm_json_put(show, "values", values);
	return show;
}
