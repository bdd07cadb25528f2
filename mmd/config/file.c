/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file - the configuration file and its drop-ins: objects with keys of the table, and "devices"
 *
 * Files are applied in order, and what a later one has counts: a key as a whole, an account and the
 * controller's knobs key by key. Accounts and knobs are complete only behind the last file, so that
 * their trees stay until then, for the lines of what is wrong.
 */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "mmd/config/table.h"
#include "mmd/config/tree.h"

struct config_files {
	struct mm_config *c;
	char *error;
	struct mm_tree tree[MM_CONFIG_FILES_MAX]; /* of c->sources.path[] */
	uint32_t now;                             /* the file that is being applied */
	json_t *accounts;                         /* copies of the accounts' objects, merged */
	json_t *knobs;                            /* of the controller, merged */
};

/* ---- errors ---- */

/* The line of a value, and the file that it is in; 0: it is not known. */
static uint32_t value_line(const struct config_files *f, const json_t *value, uint32_t *ret_file)
{
	for (uint32_t i = 0; value && i < f->c->sources.n; i++) {
		uint32_t line = mm_tree_line(&f->tree[i], value);

		if (line) {
			*ret_file = i;
			return line;
		}
	}
	*ret_file = f->now;
	return 0;
}

static int file_fail(const struct config_files *f, const json_t *at, const char *fmt, ...)
	MM_PRINTF(3, 4);
static int file_fail(const struct config_files *f, const json_t *at, const char *fmt, ...)
{
	char what[MM_OPT_ERROR_BYTES];
	uint32_t file, line = value_line(f, at, &file);
	const char *path = f->c->sources.path[file];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (line)
		snprintf(f->error, MM_OPT_ERROR_BYTES, "%.180s:%u: %.300s", path, line, what);
	else
		snprintf(f->error, MM_OPT_ERROR_BYTES, "%.180s: %.300s", path, what);
	return -EINVAL;
}

static int key_unknown(const struct config_files *f, const char *key, const json_t *value)
{
	const char *now = mm_opt_renamed(mm_config_program.renamed, key, strlen(key));
	struct mm_opt_near near = { .word = key, .bytes = strlen(key) };

	if (now)
		return file_fail(f, value, "'%.64s' is now '%s'", key, now);
	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		if (!o->line_only)
			mm_opt_near_offer(&near, o->name);
	}
	mm_opt_near_offer(&near, "devices");
	return file_fail(f, value, "%.64s: unknown key%s%s%s", key,
			 near.best ? "; did you mean " : "", near.best ? near.best : "",
			 near.best ? "?" : "");
}

/* ---- values ---- */

static struct mm_origin origin_at(const struct config_files *f, const json_t *value)
{
	uint32_t file, line = value_line(f, value, &file);

	return (struct mm_origin){ .kind = MM_ORIGIN_FILE, .file = (uint8_t)file, .line = line };
}

/* Whether the key's value may be a number. */
static bool option_is_number(const struct mm_opt *o)
{
	return o->type == MM_OPT_SIZE || o->type == MM_OPT_NUMBER || mm_config_is_list(o);
}

/* Writes a scalar, or the scalars of a list between commas. Return: whether it was one. */
static bool value_text(const struct mm_opt *o, const json_t *value, char text[MM_OPT_ERROR_BYTES])
{
	const bool list = json_is_array(value) && mm_config_is_list(o);
	const size_t n = list ? json_array_size(value) : 1;
	size_t at = 0;

	text[0] = '\0';
	for (size_t i = 0; i < n && at < MM_OPT_ERROR_BYTES; i++) {
		const json_t *one = list ? json_array_get(value, i) : value;
		const char *comma = i ? "," : "";

		if (json_is_string(one))
			at += (size_t)snprintf(text + at, MM_OPT_ERROR_BYTES - at, "%s%s", comma,
					       json_string_value(one));
		else if (json_is_integer(one) && option_is_number(o))
			at += (size_t)snprintf(text + at, MM_OPT_ERROR_BYTES - at,
					       "%s%" JSON_INTEGER_FORMAT, comma,
					       json_integer_value(one));
		else
			return false;
	}
	return at < MM_OPT_ERROR_BYTES;
}

static int file_set_key(const struct config_files *f, struct mm_config *c, const struct mm_opt *o,
			const json_t *value)
{
	char text[MM_OPT_ERROR_BYTES], why[MM_OPT_ERROR_BYTES];

	if (!value_text(o, value, text))
		return file_fail(f, value, "%s: is not a %sstring%s", o->name,
				 option_is_number(o) ? "number or a " : "",
				 mm_config_is_list(o) ? ", nor a list of them" : "");
	if (mm_opt_store(o, text, c, "", why) < 0)
		return file_fail(f, value, "%s", why);
	return 0;
}

/* ---- knobs of the controller ---- */

/* Adds the pairs of KEY=VALUE,KEY=VALUE, which were checked, to the knobs. */
static void knobs_split(const char *text, json_t *knobs)
{
	while (*text) {
		const size_t pair = strcspn(text, ","), name = strcspn(text, "=");
		char key[MM_TUNE_TEXT_BYTES];

		snprintf(key, sizeof(key), "%.*s", (int)name, text);
		mm_json_put(knobs, key, json_stringn(text + name + 1, pair - name - 1));
		text += pair + (text[pair] != '\0');
	}
}

static int knob_set(struct config_files *f, const char *key, const json_t *value)
{
	char pair[MM_TUNE_TEXT_BYTES], why[MM_TUNE_ERROR_BYTES];
	struct mm_core_opts opts = { 0 };
	int n;

	if (json_is_integer(value))
		n = snprintf(pair, sizeof(pair), "%s=%" JSON_INTEGER_FORMAT, key,
			     json_integer_value(value));
	else if (json_is_string(value))
		n = snprintf(pair, sizeof(pair), "%s=%s", key, json_string_value(value));
	else
		return file_fail(f, value, "controller: %.64s: is not a number or a string", key);
	if (n >= (int)sizeof(pair))
		return file_fail(f, value, "controller: a knob is longer than %d bytes",
				 MM_TUNE_TEXT_BYTES - 1);
	/* The text is one knob only if neither part has what separates knobs. */
	if (strchr(pair, ',') || strchr(key, '='))
		return file_fail(f, value, "controller: '%.64s' is no knob", pair);
	if (mm_tune_parse(pair, &opts, why) < 0)
		return file_fail(f, value, "controller: %s", why);
	knobs_split(pair, f->knobs);
	return 0;
}

/* The knobs as an object, one by one; or all of them as text. */
static int knobs_apply(struct config_files *f, const json_t *value)
{
	char why[MM_TUNE_ERROR_BYTES];
	struct mm_core_opts opts = { 0 };
	const char *key;
	json_t *knob;
	int r = 0;

	if (json_is_string(value)) {
		if (mm_tune_parse(json_string_value(value), &opts, why) < 0)
			return file_fail(f, value, "controller: %s", why);
		json_object_clear(f->knobs);
		knobs_split(json_string_value(value), f->knobs);
		return 0;
	}
	if (!json_is_object(value))
		return file_fail(f, value,
				 "controller: is neither an object of knobs nor a string");
	json_object_foreach((json_t *)(uintptr_t)value, key, knob) {
		if (r == 0)
			r = knob_set(f, key, knob);
	}
	return r;
}

static int knobs_end(struct config_files *f)
{
	char text[MM_TUNE_TEXT_BYTES] = "";
	const char *key;
	json_t *value;
	size_t at = 0;

	json_object_foreach(f->knobs, key, value) {
		if (at < sizeof(text))
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s=%s",
					       at ? "," : "", key, json_string_value(value));
	}
	if (at >= sizeof(text))
		return file_fail(f, NULL, "controller: the knobs are longer than %d bytes",
				 MM_TUNE_TEXT_BYTES - 1);
	if (at)
		strcpy(f->c->controller, text);
	return 0;
}

/* ---- accounts ---- */

static json_t *account_named(const json_t *accounts, const char *name, size_t *ret_index)
{
	const size_t n = json_array_size(accounts);

	for (*ret_index = 0; *ret_index < n; (*ret_index)++) {
		json_t *account = json_array_get(accounts, *ret_index);

		if (strcmp(mm_json_text(account, "name"), name) == 0)
			return account;
	}
	return NULL;
}

/* Sets the keys of @from in @to; of cgroup, uid and gid only those of @from remain. */
static void account_merge(json_t *to, const json_t *from)
{
	static const char *const by[] = { "cgroup", "uid", "gid" };
	bool matches = false;

	for (size_t i = 0; i < MM_ARRAY_SIZE(by); i++)
		matches |= json_object_get(from, by[i]) != NULL;
	for (size_t i = 0; matches && i < MM_ARRAY_SIZE(by); i++)
		json_object_del(to, by[i]);
	json_object_update(to, (json_t *)(uintptr_t)from);
}

static int account_apply(struct config_files *f, const json_t *list, const json_t *one)
{
	const char *name = mm_json_text(one, "name");
	json_t *known;
	size_t i;

	if (!json_is_object(one))
		return file_fail(f, one, "accounts: an item is no object");
	if (!*name)
		return file_fail(f, one, "accounts: name is missing");
	if (account_named(list, name, &i) != one)
		return file_fail(f, one, "accounts: '%.64s': the name is there twice", name);
	known = account_named(f->accounts, name, &i);
	if (known)
		account_merge(known, one);
	else if (i == MM_ACCOUNTS_NAMED_MAX)
		return file_fail(f, one, "accounts: more than %d", MM_ACCOUNTS_NAMED_MAX);
	else
		json_array_append_new(f->accounts, json_copy((json_t *)(uintptr_t)one));
	f->c->sources.account[i] = origin_at(f, one);
	return 0;
}

static int accounts_apply(struct config_files *f, const json_t *value)
{
	const json_t *account;
	size_t i;
	int r = 0;

	if (!json_is_array(value))
		return file_fail(f, value, "accounts: is not a list of objects");
	json_array_foreach(value, i, account) {
		if (r == 0)
			r = account_apply(f, value, account);
	}
	return r;
}

static int accounts_end(struct config_files *f)
{
	char why[MM_ACCOUNT_ERROR_BYTES];
	const json_t *at = NULL;

	if (!json_array_size(f->accounts) ||
	    mm_accounts_parse(f->accounts, &f->c->accounts, why, &at) == 0)
		return 0;
	return file_fail(f, at, "accounts: %s", why);
}

/* ---- sections of devices ---- */

/* Stores the values of one device's section at @index of their lists. */
static int section_parse(struct config_files *f, uint32_t index, const json_t *section)
{
	struct mm_config *c = f->c, one = *f->c;
	const struct mm_opt *o;
	const char *key;
	json_t *value;
	int r;

	if (!json_is_object(section) || !json_object_get(section, "device"))
		return file_fail(f, section, "devices: number %u is no object with a key 'device'",
				 index + 1);
	json_object_foreach((json_t *)(uintptr_t)section, key, value) {
		o = mm_opt_find(mm_config_options, key, strlen(key));
		if (!o || !mm_config_is_list(o))
			return file_fail(f, value,
					 "devices: '%.64s' is no key of a device; there are: "
					 "device, pool, headroom, page",
					 key);
		mm_config_list(&one, o)->n = 1;
		r = file_set_key(f, &one, o, value);
		if (r == 0 && mm_config_list(&one, o)->n != 1)
			r = file_fail(f, value, "devices: %s: is not one value", key);
		if (r < 0)
			return r;
		mm_config_list(c, o)->value[index] = mm_config_list(&one, o)->value[0];
		*mm_config_origin(c, o) = origin_at(f, value);
		if (!mm_config_is_device(o))
			continue;
		strcpy(c->device_uuid[index], one.device_uuid[0]);
		if (*one.device_uuid[0])
			mm_config_list(c, o)->value[index] = index;
	}
	return 0;
}

/* Parses "devices": a key that a section lacks has the value of the whole file. */
static int sections_parse(struct config_files *f, const json_t *devices)
{
	size_t n = json_array_size(devices);
	struct mm_config *c = f->c;
	int r = 0;

	if (n == 0 || n > MM_DEVICES_MAX)
		return file_fail(f, devices, "devices: is not a list of 1 to %d objects",
				 MM_DEVICES_MAX);
	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		struct mm_config_list *list = mm_config_list(c, o);

		if (!mm_config_is_list(o))
			continue;
		if (list->n > 1)
			return file_fail(f, devices,
					 "%s: a list; with 'devices' it must stand there", o->name);
		for (uint32_t k = 1; k < n; k++)
			list->value[k] = list->value[0];
		list->n = (uint32_t)n;
	}
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = section_parse(f, i, json_array_get(devices, i));
	return r;
}

/* ---- files ---- */

static int key_apply(struct config_files *f, const char *key, const json_t *value)
{
	const struct mm_opt *o = mm_opt_find(mm_config_options, key, strlen(key));
	int r;

	if (!o || o->line_only)
		return key_unknown(f, key, value);
	if (mm_config_is_accounts(o))
		r = accounts_apply(f, value);
	else if (mm_config_is_knobs(o))
		r = knobs_apply(f, value);
	else
		r = file_set_key(f, f->c, o, value);
	if (r == 0)
		*mm_config_origin(f->c, o) = origin_at(f, value);
	return r;
}

static int tree_apply(struct config_files *f, const json_t *root)
{
	const json_t *devices = json_object_get(root, "devices");
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)root, key, value) {
		if (strcmp(key, "devices") != 0 && key_apply(f, key, value) < 0)
			return -EINVAL;
	}
	return devices ? sections_parse(f, devices) : 0;
}

static int path_is_dropin(const struct dirent *entry)
{
	const size_t n = strlen(entry->d_name);

	return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0;
}

static void dropins_free(struct dirent **names, int n)
{
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int path_add(struct config_files *f, const char *folder, const char *name)
{
	struct mm_config_sources *s = &f->c->sources;

	if (s->n == MM_CONFIG_FILES_MAX)
		return file_fail(f, NULL, "there are more than %d drop-ins",
				 MM_CONFIG_FILES_MAX - 1);
	if (snprintf(s->path[s->n], sizeof(s->path[0]), "%s%s%s", folder, *folder ? "/" : "",
		     name) >= (int)sizeof(s->path[0]))
		return file_fail(f, NULL, "its path is longer than %d bytes",
				 MM_CONFIG_FILE_BYTES - 1);
	s->n++;
	return 0;
}

/* The path from the root on: a reload must find the same file, and others than mmd must. */
static int path_make_whole(struct config_files *f, const char *path, char *ret_whole, size_t bytes)
{
	char here[MM_CONFIG_FILE_BYTES] = "";

	snprintf(f->c->sources.path[0], sizeof(f->c->sources.path[0]), "%.200s", path);
	if (*path != '/' && !getcwd(here, sizeof(here)))
		return file_fail(f, NULL, "the current folder is not known: %s", strerror(errno));
	if (snprintf(ret_whole, bytes, "%s%s%s", here, *here ? "/" : "", path) >= (int)bytes)
		return file_fail(f, NULL, "its path is longer than %zu bytes", bytes - 1);
	return 0;
}

/* Lists the main file, and behind it its drop-ins in the order of their names' bytes. */
static int paths_list(struct config_files *f, const char *main)
{
	struct mm_config_sources *s = &f->c->sources;
	/* A drop-in may be 63 bytes longer. */
	char whole[MM_CONFIG_FILE_BYTES - 64];
	struct dirent **names = NULL;
	int n, r;

	s->n = 0;
	r = path_make_whole(f, main, whole, sizeof(whole));
	if (r < 0)
		return r;
	main = whole;
	r = path_add(f, "", main);
	snprintf(s->dropins, sizeof(s->dropins), "%s.d", main);
	n = scandir(s->dropins, &names, path_is_dropin, by_bytes);
	if (n < 0 && errno != ENOENT && errno != ENOTDIR)
		return file_fail(f, NULL, "its folder %s: %s", s->dropins, strerror(errno));
	for (int i = 0; r == 0 && i < n; i++)
		r = path_add(f, s->dropins, names[i]->d_name);
	dropins_free(names, n);
	return r;
}

static int files_apply(struct config_files *f, const char *main)
{
	struct mm_config_sources *s = &f->c->sources;
	int r = paths_list(f, main);

	for (uint32_t i = 0; r == 0 && i < s->n; i++) {
		f->now = i;
		r = mm_tree_read(s->path[i], &f->tree[i], f->error);
		/* Where there are drop-ins no other file is needed. */
		if (r == -ENOENT && i == 0 && s->n > 1)
			r = 0;
		else if (r == 0)
			r = tree_apply(f, f->tree[i].root);
	}
	f->now = s->n ? s->n - 1 : 0;
	if (r == 0)
		r = accounts_end(f);
	return r == 0 ? knobs_end(f) : -EINVAL;
}

/* A key or a value may have what a terminal obeys, or a second line. */
static void sentence_make_plain(char *why)
{
	for (char *c = why; *c; c++)
		*c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
}

int mm_config_file_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct config_files *f = calloc(1, sizeof(*f));
	int r = -EINVAL;

	(void)opt;
	snprintf(why, MM_OPT_ERROR_BYTES, "%.200s: no memory is left", text);
	if (!f)
		return r;
	f->c = into;
	f->error = why;
	f->accounts = json_array();
	f->knobs = json_object();
	if (f->accounts && f->knobs)
		r = files_apply(f, text);
	for (uint32_t i = 0; i < MM_CONFIG_FILES_MAX; i++)
		mm_tree_done(&f->tree[i]);
	json_decref(f->accounts);
	json_decref(f->knobs);
	free(f);
	if (r < 0)
		sentence_make_plain(why);
	return r;
}
