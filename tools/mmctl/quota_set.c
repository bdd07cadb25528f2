/* SPDX-License-Identifier: Apache-2.0 */
/* quota_set - `mmctl quota set`: changes what an account may have */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

enum quota_type { TYPE_SIZE, TYPE_NUMBER, TYPE_TIMEOUT };

static const struct {
	const char *flag, *key;
	enum quota_type quota_type;
} quota_flags[] = {
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

static const char *const quota_type_names[] = { [TYPE_SIZE] = "a size; write 65536, 512M or 2G",
						[TYPE_NUMBER] = "a number",
						[TYPE_TIMEOUT] = "kill or quarantine" };

static json_t *quota_value_parse(enum quota_type quota_type, const char *word)
{
	uint64_t number;
	char *end;

	if (quota_type == TYPE_TIMEOUT)
		return strcmp(word, "kill") == 0 || strcmp(word, "quarantine") == 0
			       ? json_string(word)
			       : NULL;
	if (quota_type == TYPE_SIZE)
		return mm_size_parse(word, &number) == 0 && number <= INT64_MAX
			       ? json_integer((json_int_t)number)
			       : NULL;
	if (*word < '0' || *word > '9')
		return NULL;
	errno = 0;
	number = strtoull(word, &end, 10);
	return errno || *end || number > INT64_MAX ? NULL : json_integer((json_int_t)number);
}

/* Takes `--flag WORD` or `--flag=WORD`. Return: its index in the table; -1: it is no such flag. */
static int flag_of(int argc, char **argv, int *i, const char **ret_word)
{
	for (size_t k = 0; k < MM_ARRAY_SIZE(quota_flags); k++) {
		size_t n = strlen(quota_flags[k].flag);

		if (strncmp(argv[*i], quota_flags[k].flag, n) != 0)
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

static int quota_arguments_parse(int argc, char **argv, json_t *params)
{
	const char *word = NULL;

	for (int i = 0; i < argc; i++) {
		int k = flag_of(argc, argv, &i, &word);
		json_t *value;

		if (k < 0 && (argv[i][0] == '-' || json_object_get(params, "account")))
			return mmctl_unexpected("quota set", argv[i]);
		value = k < 0 ? json_string(argv[i])
			      : quota_value_parse(quota_flags[k].quota_type, word);
		if (!value)
			return mmctl_error(
				MM_EXIT_USAGE, "quota set: %s: '%s' is not %s",
				k < 0 ? "ACCOUNT" : quota_flags[k].flag, k < 0 ? argv[i] : word,
				k < 0 ? "text" : quota_type_names[quota_flags[k].quota_type]);
		json_object_set_new(params, k < 0 ? "account" : quota_flags[k].key, value);
	}
	if (!json_object_get(params, "account"))
		return mmctl_error(MM_EXIT_USAGE,
				   "quota set: ACCOUNT is missing: a name, or uid:N");
	return MM_EXIT_DONE;
}

/* Fails if nothing was changed, so that a script sees it by the exit status. */
static int outcome_check(const json_t *result)
{
	const char *outcome = mmctl_text(result, "outcome");

	if (strcmp(outcome, "stale") == 0 || strcmp(outcome, "conflict") == 0)
		return mmctl_error(MM_EXIT_FAILED, "quota set: %s: %s", outcome,
				   mmctl_text(result, "reason"));
	return MM_EXIT_DONE;
}

/* Prints a size in the form that the options take: "512M", "65536". */
static const char *size_option_text(uint64_t bytes, char *text, size_t room)
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

/* Prints the values in force, and beside each that mmd adjusted the one that was requested. */
static void quota_print_set(const json_t *result)
{
	const json_t *adjusted = json_object_get(result, "adjusted"), *a;
	char set[32], requested[32];
	size_t i;

	printf("%s: %s, revision %" PRIu64 ": min %s, max %s, weight %" PRIu64 ", priority %" PRIu64
	       ", on-timeout %s\n",
	       mmctl_text(result, "account"), mmctl_text(result, "outcome"),
	       mmctl_u64(result, "revision"),
	       size_option_text(mmctl_u64(result, "min_bytes"), requested, sizeof(requested)),
	       size_option_text(mmctl_u64(result, "max_bytes"), set, sizeof(set)),
	       mmctl_u64(result, "weight"), mmctl_u64(result, "priority"),
	       mmctl_text(result, "on_timeout"));
	json_array_foreach(adjusted, i, a)
		printf("  %.3s is %s, not %s: %s\n", mmctl_text(a, "key"),
		       size_option_text(mmctl_u64(a, "set"), set, sizeof(set)),
		       size_option_text(mmctl_u64(a, "asked"), requested, sizeof(requested)),
		       mmctl_text(a, "reason"));
}

int mmctl_quota_set_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mmctl_json_done) json_t *result = NULL;
	json_t *params = json_object();
	int r = quota_arguments_parse(argc, argv, params);

	if (r != MM_EXIT_DONE) {
		json_decref(params);
		return r;
	}
	r = mmctl_request(ctl, "quota.set", params, &result);
	if (r != MM_EXIT_DONE)
		return r;
	r = ctl->json ? mmctl_print_json(result) : MM_EXIT_DONE;
	if (r == MM_EXIT_DONE)
		r = outcome_check(result);
	if (r == MM_EXIT_DONE && !ctl->json)
		quota_print_set(result);
	return r;
}
