/* SPDX-License-Identifier: Apache-2.0 */
/* quota_set - `mmctl quota set`: changes what an account may have */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tools/mmctl/ctl.h"

static const struct {
	const char *key, *saved; /* of the request; of the file, NULL: there is none */
	size_t at;               /* of the option's field */
} quota_numbers[] = {
	{ "min_bytes", "min", offsetof(struct mmctl_options, min_bytes) },
	{ "max_bytes", "max", offsetof(struct mmctl_options, max_bytes) },
	{ "weight", "weight", offsetof(struct mmctl_options, weight) },
	{ "priority", "priority", offsetof(struct mmctl_options, priority) },
	{ "revision", NULL, offsetof(struct mmctl_options, revision) },
	{ "turn_quantum_max_ms", "turn_quantum_max_ms",
	  offsetof(struct mmctl_options, turn_quantum_max_ms) },
	{ "turn_priority_max", "turn_priority_max",
	  offsetof(struct mmctl_options, turn_priority_max) },
	{ "goal_ttft_ms", "goal_ttft_ms", offsetof(struct mmctl_options, goal_ttft_ms) },
	{ "goal_tpot_us", "goal_tpot_us", offsetof(struct mmctl_options, goal_tpot_us) },
};

/* Only what the options set. */
static json_t *quota_params(const struct mmctl_options *options, const char *account)
{
	json_t *params = json_pack("{s:s}", "account", account);

	for (size_t i = 0; i < MM_ARRAY_SIZE(quota_numbers); i++) {
		uint64_t value;

		memcpy(&value, (const char *)options + quota_numbers[i].at, sizeof(value));
		if (value != MMCTL_UNSET)
			json_object_set_new(params, quota_numbers[i].key,
					    json_integer((json_int_t)value));
	}
	if (options->on_timeout != MMCTL_UNSET)
		json_object_set_new(params, "on_timeout",
				    json_string(mm_opt_choice_name(mmctl_timeout_choices,
								   options->on_timeout)));
	return params;
}

/* Returns the keys that the options set, as the file has them. */
static json_t *quota_saved(const json_t *params)
{
	json_t *keys = json_object(), *on_timeout = json_object_get(params, "on_timeout");

	for (size_t i = 0; i < MM_ARRAY_SIZE(quota_numbers); i++) {
		json_t *value = json_object_get(params, quota_numbers[i].key);

		if (value && quota_numbers[i].saved)
			json_object_set(keys, quota_numbers[i].saved, value);
	}
	if (on_timeout)
		json_object_set(keys, "on_timeout", on_timeout);
	return keys;
}

/* A file names accounts, and what they may have of each device. */
static int save_check(const struct mmctl *ctl, const char *account)
{
	if (strncmp(account, "uid:", 4) == 0)
		return mmctl_error(MM_EXIT_FAILED,
				   "--save: %s has no name; add an account with that uid to mmd's "
				   "file, and reload",
				   account);
	if (ctl->device >= 0 || ctl->uuid)
		return mmctl_error(
			MM_EXIT_FAILED,
			"--save: the file has one limit for all devices; write it there, "
			"and reload");
	return MM_EXIT_DONE;
}

/* Fails if nothing was changed, so that a script sees it by the exit status. */
static int outcome_check(const json_t *result)
{
	const char *outcome = mm_json_text(result, "outcome");

	if (strcmp(outcome, "stale") == 0 || strcmp(outcome, "conflict") == 0)
		return mmctl_error(MM_EXIT_FAILED, "quota set: %s: %s", outcome,
				   mm_json_text(result, "reason"));
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

/*
 * Prints the account as `mmctl quota show` does, and each value that mmd adjusted beside the one
 * that was requested.
 */
static void quota_print_set(const json_t *result)
{
	const json_t *adjusted = json_object_get(result, "adjusted"), *a;
	char set[32], requested[32];
	size_t i;

	printf("%s: %s\n", mm_json_text(result, "account"), mm_json_text(result, "outcome"));
	mmctl_quota_print_head();
	mmctl_quota_print(result);
	json_array_foreach(adjusted, i, a)
		printf("  %.3s is %s, not %s: %s\n", mm_json_text(a, "key"),
		       size_option_text(mm_json_u64(a, "set"), set, sizeof(set)),
		       size_option_text(mm_json_u64(a, "requested"), requested, sizeof(requested)),
		       mm_json_text(a, "reason"));
}

int mmctl_quota_set_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	mm_cleanup(mm_json_done) json_t *saved = NULL;
	json_t *params = quota_params(ctl->options, argv[0]);
	const bool save = ctl->options->save;
	int r = save ? save_check(ctl, argv[0]) : MM_EXIT_DONE;

	(void)argc;
	if (!params)
		return mm_opt_refuse(&mmctl_program, MMCTL_QUOTA_SET, "ACCOUNT: not a text");
	saved = quota_saved(params);
	if (r == MM_EXIT_DONE)
		r = mmctl_request(ctl, "quota.set", params, &result);
	else
		json_decref(params);
	if (r != MM_EXIT_DONE)
		return r;
	r = ctl->json ? mmctl_print_json(result) : MM_EXIT_DONE;
	if (r == MM_EXIT_DONE)
		r = outcome_check(result);
	if (r == MM_EXIT_DONE && !ctl->json)
		quota_print_set(result);
	if (r == MM_EXIT_DONE && save)
		r = mmctl_config_save(ctl, argv[0], saved);
	return r;
}
