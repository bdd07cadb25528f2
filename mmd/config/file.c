/* SPDX-License-Identifier: Apache-2.0 */
/* file - the configuration file: a JSON object with keys of the table, and "devices" */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/json.h"
#include "mmd/config/table.h"

static int file_fail(char *error, const char *fmt, ...) MM_PRINTF(2, 3);
static int file_fail(char *error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, MM_OPT_ERROR_BYTES, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static int key_unknown(const char *key, char *why)
{
	const char *now = mm_opt_renamed(mm_config_program.renamed, key, strlen(key));
	struct mm_opt_near near = { .word = key, .bytes = strlen(key) };

	if (now)
		return file_fail(why, "'%.64s' is now '%s'", key, now);
	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		if (!o->line_only)
			mm_opt_near_offer(&near, o->name);
	}
	mm_opt_near_offer(&near, "devices");
	return file_fail(why, "unknown key '%.64s'%s%s%s", key, near.best ? "; did you mean " : "",
			 near.best ? near.best : "", near.best ? "?" : "");
}

/* Whether the key's value may be a number of JSON. */
static bool option_is_number(const struct mm_opt *o)
{
	return o->type == MM_OPT_SIZE || o->type == MM_OPT_NUMBER || mm_config_is_list(o);
}

static int file_set_key(struct mm_config *c, const char *key, const json_t *value, char *why)
{
	const struct mm_opt *o = mm_opt_find(mm_config_options, key, strlen(key));
	char number[32];

	if (!o || o->line_only)
		return key_unknown(key, why);
	if (mm_config_is_accounts(o)) {
		char sentence[MM_ACCOUNT_ERROR_BYTES];

		return mm_accounts_parse(value, &c->accounts, sentence) < 0
			       ? file_fail(why, "%s: %s", key, sentence)
			       : 0;
	}
	if (json_is_string(value))
		return mm_opt_store(o, (char *)(uintptr_t)json_string_value(value), c, "", why);
	if (!json_is_integer(value) || !option_is_number(o))
		return file_fail(why, "%s: is not a %sstring", key,
				 option_is_number(o) ? "number or a " : "");
	snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	return mm_opt_store(o, number, c, "", why);
}

/* Stores the values of one device's section at @index of their lists. */
static int section_parse(struct mm_config *c, uint32_t index, const json_t *section, char *why)
{
	struct mm_config one = *c;
	const struct mm_opt *o;
	const char *key;
	json_t *value;
	int r;

	if (!json_is_object(section) || !json_object_get(section, "device"))
		return file_fail(why, "devices: number %u is no object with a key 'device'",
				 index + 1);
	json_object_foreach((json_t *)(uintptr_t)section, key, value) {
		o = mm_opt_find(mm_config_options, key, strlen(key));
		if (!o || !mm_config_is_list(o))
			return file_fail(why,
					 "devices: '%.64s' is no key of a device; there are: "
					 "device, pool, headroom, page",
					 key);
		mm_config_list(&one, o)->n = 1;
		r = file_set_key(&one, key, value, why);
		if (r == 0 && mm_config_list(&one, o)->n != 1)
			r = file_fail(why, "devices: %s: is not one value", key);
		if (r < 0)
			return r;
		mm_config_list(c, o)->value[index] = mm_config_list(&one, o)->value[0];
		if (!mm_config_is_device(o))
			continue;
		strcpy(c->device_uuid[index], one.device_uuid[0]);
		if (*one.device_uuid[0])
			mm_config_list(c, o)->value[index] = index;
	}
	return 0;
}

/* Parses "devices": a key that a section lacks has the value of the whole file. */
static int sections_parse(struct mm_config *c, const json_t *devices, char *why)
{
	size_t n = json_array_size(devices);
	int r = 0;

	if (n == 0 || n > MM_DEVICES_MAX)
		return file_fail(why, "devices: is not a list of 1 to %d objects", MM_DEVICES_MAX);
	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		struct mm_config_list *list = mm_config_list(c, o);

		if (!mm_config_is_list(o))
			continue;
		if (list->n > 1)
			return file_fail(why, "%s: a list; with 'devices' it must stand there",
					 o->name);
		for (uint32_t k = 1; k < n; k++)
			list->value[k] = list->value[0];
		list->n = (uint32_t)n;
	}
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = section_parse(c, i, json_array_get(devices, i), why);
	return r;
}

static int keys_store(struct mm_config *c, const json_t *root, char *why)
{
	const json_t *devices = json_object_get(root, "devices");
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)root, key, value) {
		if (strcmp(key, "devices") != 0 && file_set_key(c, key, value, why) < 0)
			return -EINVAL;
	}
	return devices ? sections_parse(c, devices, why) : 0;
}

int mm_config_file_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	json_error_t e;
	mm_cleanup(mm_json_done) json_t *root = json_load_file(text, JSON_REJECT_DUPLICATES, &e);
	char sentence[MM_OPT_ERROR_BYTES];

	(void)opt;
	if (!root && e.line < 0) /* the file could not be read at all; e.text names it */
		return file_fail(why, "%s", e.text);
	if (!root)
		return file_fail(why, "%.100s: line %d: %s", text, e.line, e.text);
	if (!json_is_object(root))
		return file_fail(why, "%.100s: is not one JSON object", text);
	if (keys_store(into, root, sentence) < 0)
		return file_fail(why, "%.100s: %.400s", text, sentence);
	return 0;
}
