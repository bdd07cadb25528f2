/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

enum type { TYPE_SIZE, TYPE_NUMBER, TYPE_TIMEOUT };

static const struct {
	const char *flag, *key;
	enum type type;
} flags[] = {
	{ "--min", "min_bytes", TYPE_SIZE },
	{ "--max", "max_bytes", TYPE_SIZE },
	{ "--weight", "weight", TYPE_NUMBER },
	{ "--priority", "priority", TYPE_NUMBER },
	{ "--on-timeout", "on_timeout", TYPE_TIMEOUT },
	{ "--revision", "revision", TYPE_NUMBER },
	{ "--device", "device", TYPE_NUMBER },
	{ "--turn-quantum-max", "turn_quantum_max_ms", TYPE_NUMBER },
	{ "--turn-priority-max", "turn_priority_max", TYPE_NUMBER },
};

static const char *const want_names[] = { [TYPE_SIZE] = "a size; write 65536, 512M or 2G",
					  [TYPE_NUMBER] = "a number",
					  [TYPE_TIMEOUT] = "kill or quarantine" };

static json_t *value_parse(enum type type, const char *word)
{
	uint64_t number;
	char *end;

	if (type == TYPE_TIMEOUT)
		return strcmp(word, "kill") == 0 || strcmp(word, "quarantine") == 0
			       ? json_string(word)
			       : NULL;
	if (type == TYPE_SIZE)
		return mm_size_parse(word, &number) == 0 && number <= INT64_MAX
			       ? json_integer((json_int_t)number)
			       : NULL;
	if (*word < '0' || *word > '9')
		return NULL;
	errno = 0;
	number = strtoull(word, &end, 10);
	return errno || *end || number > INT64_MAX ? NULL : json_integer((json_int_t)number);
}

/* `--flag WORD` or `--flag=WORD`. Return: its place in the table; -1: another word. */
static int flag_of(int argc, char **argv, int *i, const char **ret_word)
{
	for (size_t k = 0; k < MM_ARRAY_SIZE(flags); k++) {
		size_t n = strlen(flags[k].flag);

		if (strncmp(argv[*i], flags[k].flag, n) != 0)
			continue;
		if (argv[*i][n] == '=') {
			*ret_word = argv[*i] + n + 1;
			return (int)k;
		}
		if (!argv[*i][n] && *i + 1 < argc) {
			*ret_word = argv[++*i];
			return (int)k;
		}
	}
	return -1;
}

static int arguments(int argc, char **argv, json_t *params)
{
	const char *word = NULL;

	for (int i = 0; i < argc; i++) {
		int k = flag_of(argc, argv, &i, &word);
		json_t *value;

		if (k < 0 && (argv[i][0] == '-' || json_object_get(params, "account")))
			return mm_unexpected("quota set", argv[i]);
		value = k < 0 ? json_string(argv[i]) : value_parse(flags[k].type, word);
		if (!value)
			return mm_complain(MM_EXIT_USAGE, "quota set: %s: '%s' is not %s",
					   k < 0 ? "ACCOUNT" : flags[k].flag,
					   k < 0 ? argv[i] : word,
					   k < 0 ? "text" : want_names[flags[k].type]);
		json_object_set_new(params, k < 0 ? "account" : flags[k].key, value);
	}
	if (!json_object_get(params, "account"))
		return mm_complain(MM_EXIT_USAGE,
				   "quota set: ACCOUNT is missing: a name, or uid:N");
	return MM_EXIT_DONE;
}

/* Whoever scripts it wants to know that nothing was changed. */
static int verdict(const json_t *result)
{
	const char *outcome = mm_text(result, "outcome");

	if (strcmp(outcome, "stale") == 0 || strcmp(outcome, "conflict") == 0)
		return mm_complain(MM_EXIT_FAILED, "quota set: %s: %s", outcome,
				   mm_text(result, "reason"));
	return MM_EXIT_DONE;
}

/* As it is said on the command line: "512M", "65536". */
static const char *size_text(uint64_t bytes, char *text, size_t room)
{
	static const char units[] = "KMGT";
	size_t u = 0;

	while (u < strlen(units) && bytes && bytes % 1024 == 0) {
		bytes /= 1024;
		u++;
	}
	snprintf(text, room, "%" PRIu64 "%.1s", bytes, u ? units + u - 1 : "");
	return text;
}

/* What is in force is not always what was asked for: whoever asked wants to know. */
static void print_set(const json_t *result)
{
	const json_t *adjusted = json_object_get(result, "adjusted"), *a;
	char set[32], asked[32];
	size_t i;

	printf("%s: %s, revision %" PRIu64 ": min %s, max %s, weight %" PRIu64 ", priority %" PRIu64
	       ", on-timeout %s\n",
	       mm_text(result, "account"), mm_text(result, "outcome"), mm_u64(result, "revision"),
	       size_text(mm_u64(result, "min_bytes"), asked, sizeof(asked)),
	       size_text(mm_u64(result, "max_bytes"), set, sizeof(set)), mm_u64(result, "weight"),
	       mm_u64(result, "priority"), mm_text(result, "on_timeout"));
	json_array_foreach(adjusted, i, a)
		printf("  %.3s is %s, not %s: %s\n", mm_text(a, "key"),
		       size_text(mm_u64(a, "set"), set, sizeof(set)),
		       size_text(mm_u64(a, "asked"), asked, sizeof(asked)), mm_text(a, "reason"));
}

int mm_quota_set_run(const struct mm_ctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	json_t *params = json_object();
	int r = arguments(argc, argv, params);

	if (r != MM_EXIT_DONE) {
		json_decref(params);
		return r;
	}
	r = mm_ask(ctl, "quota.set", params, &result);
	if (r != MM_EXIT_DONE)
		return r;
	r = ctl->json ? mm_print_json(result) : MM_EXIT_DONE;
	if (r == MM_EXIT_DONE)
		r = verdict(result);
	if (r == MM_EXIT_DONE && !ctl->json)
		print_set(result);
	return r;
}
