/* SPDX-License-Identifier: Apache-2.0 */
/* config_show - `mmctl config show` and `config reload`: mmd's settings */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libclient/support/clock.h"
#include "tools/mmctl/ctl.h"

#define POLL_NS   (20 * MM_NS_PER_MS)
#define WITHIN_NS (15 * MM_NS_PER_S)

/* ---- show ---- */

static bool key_is_meant(const json_t *value, const char *beginning)
{
	return strncmp(mm_json_text(value, "key"), beginning, strlen(beginning)) == 0;
}

/* Leaves only the values whose keys begin with @beginning. Return: how many these are. */
static size_t values_select(json_t *result, const char *beginning)
{
	json_t *values = json_object_get(result, "values");

	for (size_t i = json_array_size(values); i > 0; i--) {
		if (!key_is_meant(json_array_get(values, i - 1), beginning))
			json_array_remove(values, i - 1);
	}
	return json_array_size(values);
}

/* Prints the keys of an account; what is 0 is not set. */
static void account_print(const json_t *account)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)(uintptr_t)account, key, value) {
		if (json_is_string(value))
			printf("    %s: %s\n", key, json_string_value(value));
		else if (json_integer_value(value))
			printf("    %s: %" JSON_INTEGER_FORMAT "\n", key,
			       json_integer_value(value));
	}
}

static void settings_print(const json_t *result)
{
	const json_t *value, *file;
	size_t i;

	json_array_foreach(json_object_get(result, "files"), i, file)
		printf("# %s\n", json_string_value(file));
	json_array_foreach(json_object_get(result, "values"), i, value) {
		const char *later = mm_json_text(value, "after_restart");

		printf("%s: %s\n    # %s\n", mm_json_text(value, "key"),
		       mm_json_text(value, "value"), mm_json_text(value, "origin"));
		account_print(json_object_get(value, "value"));
		if (*later)
			printf("    # after a restart: %s\n", later);
	}
}

int mmctl_config_show_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	const char *beginning = argc ? argv[0] : "";
	int r = mmctl_request(ctl, "config.show", NULL, &result);

	if (r != MM_EXIT_DONE)
		return r;
	if (!values_select(result, beginning))
		return mmctl_error(MM_EXIT_FAILED, "%s: no key begins so", beginning);
	if (ctl->json)
		return mmctl_print_json(result);
	settings_print(result);
	return MM_EXIT_DONE;
}

/* ---- reload ---- */

/* The number of the last reload; a core that follows another one begins with 0 again. */
static int serial_get(const struct mmctl *ctl, uint64_t *ret_serial)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	int r = mmctl_request(ctl, "config.show", NULL, &result);

	if (r == MM_EXIT_DONE)
		*ret_serial = mm_json_u64(json_object_get(result, "reload"), "serial");
	return r;
}

/* Waits for a reload after @serial. */
static int reload_await(const struct mmctl *ctl, uint64_t serial, json_t **ret_reload)
{
	const uint64_t by_ns = mm_now_ns() + WITHIN_NS;

	for (;;) {
		mm_cleanup(mm_json_done) json_t *result = NULL;
		int r = mmctl_request(ctl, "config.show", NULL, &result);
		json_t *reload = json_object_get(result, "reload");

		if (r != MM_EXIT_DONE)
			return r;
		if (mm_json_u64(reload, "serial") > serial) {
			*ret_reload = json_incref(reload);
			return MM_EXIT_DONE;
		}
		if (mm_now_ns() >= by_ns)
			return mmctl_error(MM_EXIT_FAILED,
					   "%s: no answer about the reload; see mmd's log",
					   ctl->socket);
		nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
	}
}

static const char *text_or_nothing(const json_t *change, const char *key)
{
	const char *text = mm_json_text(change, key);

	return *text ? text : "-";
}

static void changes_print(const json_t *changes)
{
	const json_t *change;
	size_t i;

	if (!json_array_size(changes))
		printf("nothing has changed\n");
	json_array_foreach(changes, i, change)
		printf("%-8s %s: %s -> %s\n",
		       mm_json_flag(change, "applied") ? "applied" : "restart",
		       mm_json_text(change, "key"), text_or_nothing(change, "from"),
		       text_or_nothing(change, "to"));
}

int mmctl_config_reload_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *begun = NULL;
	mm_cleanup(mm_json_done) json_t *reload = NULL;
	uint64_t serial = 0;
	int r = serial_get(ctl, &serial);

	(void)argc;
	(void)argv;
	if (r == MM_EXIT_DONE)
		r = mmctl_request(ctl, "config.reload", NULL, &begun);
	if (r == MM_EXIT_DONE)
		r = reload_await(ctl, serial, &reload);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		r = mmctl_print_json(reload);
	if (r == MM_EXIT_DONE && *mm_json_text(reload, "error"))
		return mmctl_error(MM_EXIT_FAILED, "nothing has changed: %s",
				   mm_json_text(reload, "error"));
	if (r == MM_EXIT_DONE && !ctl->json)
		changes_print(json_object_get(reload, "changes"));
	return r;
}
