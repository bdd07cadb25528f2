/* SPDX-License-Identifier: Apache-2.0 */
/* upgrade - another build of mmd goes on where the one that runs is, if it can */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/support/clock.h"
#include "tools/mmctl/ctl.h"

#define POLL_NS   (50 * MM_NS_PER_MS)
#define WITHIN_NS (60 * MM_NS_PER_S)

static bool state_is_final(const char *state)
{
	return strcmp(state, "checking") != 0 && strcmp(state, "leaving") != 0 &&
	       strcmp(state, "keeper") != 0;
}

/*
 * Waits for the end of it. The core that was asked ends meanwhile, and connections with it; the
 * next one answers.
 */
static int result_await(const struct mmctl *ctl, json_t **ret_result)
{
	const uint64_t by_ns = mm_now_ns() + WITHIN_NS;
	struct mmctl quiet = *ctl;
	int r;

	quiet.quiet = true;
	for (;;) {
		r = mmctl_request(&quiet, "upgrade.show", NULL, ret_result);
		if (r == MM_EXIT_DONE && state_is_final(mm_json_text(*ret_result, "state")))
			return MM_EXIT_DONE;
		if (r == MM_EXIT_DONE)
			mm_json_done(ret_result);
		if (mm_now_ns() >= by_ns)
			return mmctl_error(MM_EXIT_UNREACHABLE,
					   "%s: no answer about the upgrade; see mmd's log",
					   ctl->socket);
		nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
	}
}

/*
 * A line for each process that runs, but for loads, which end soon. xfers and spools stay what they
 * are until they end.
 */
static void builds_print(const json_t *result)
{
	const json_t *builds = json_object_get(result, "builds"), *one;
	const char *core = mm_json_text(json_array_get(builds, 1), "build");
	size_t i;

	json_array_foreach(builds, i, one) {
		const char *role = mm_json_text(one, "role"), *build = mm_json_text(one, "build");
		const char *key = json_object_get(one, "device") ? "device" : "id";
		char name[48];

		if (strcmp(role, "load") == 0)
			continue;
		if (json_object_get(one, key))
			snprintf(name, sizeof(name), "%s %lld", role,
				 (long long)json_integer_value(json_object_get(one, key)));
		else
			snprintf(name, sizeof(name), "%s", role);
		printf("  %-12s %s%s\n", name, build,
		       strcmp(build, core) == 0 || strcmp(role, "keeper") == 0
			       ? ""
			       : "  (until it ends)");
	}
}

static int result_print(const struct mmctl *ctl, const json_t *result)
{
	const char *state = mm_json_text(result, "state"), *text = mm_json_text(result, "text");

	if (ctl->json)
		return mmctl_print_json(result);
	if (strcmp(state, "checked") == 0)
		printf("%s; now run:\n", text);
	else if (strcmp(state, "done") == 0)
		printf("mmd %s goes on:\n", mm_json_text(result, "version"));
	else
		return MM_EXIT_DONE;
	builds_print(result);
	return MM_EXIT_DONE;
}

/* The file of the build that runs, as it is now: a package may have put another one there. */
static int path_default(const struct mmctl *ctl, char *path)
{
	mm_cleanup(mm_json_done) json_t *shown = NULL;
	int r = mmctl_request(ctl, "upgrade.show", NULL, &shown);
	const char *exe = r == MM_EXIT_DONE ? mm_json_text(shown, "exe") : "";

	if (r != MM_EXIT_DONE)
		return r;
	if (!*exe || !realpath(exe, path))
		return mmctl_error(MM_EXIT_FAILED, "%s: there is no such file any more; name one",
				   *exe ? exe : "the file of mmd");
	return MM_EXIT_DONE;
}

/* Return: the exit status for what came of it. */
static int result_status(const char *path, const json_t *result)
{
	const char *state = mm_json_text(result, "state"), *keeper = mm_json_text(result, "keeper");

	if (strcmp(state, "refused") == 0)
		return mmctl_error(MM_EXIT_FAILED, "refused: %s", mm_json_text(result, "text"));
	if (strcmp(state, "taken_back") == 0 || strcmp(state, "none") == 0)
		return mmctl_error(MM_EXIT_FAILED, "%s did not go on; mmd %s does", path,
				   mm_json_text(result, "version"));
	if (strcmp(state, "done") == 0 && *keeper)
		return mmctl_error(MM_EXIT_FAILED, "keeper stays as it was: %s", keeper);
	return MM_EXIT_DONE;
}

int mmctl_upgrade_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *begun = NULL;
	mm_cleanup(mm_json_done) json_t *result = NULL;
	char path[PATH_MAX];
	int r = MM_EXIT_DONE;

	if (argc == 0)
		r = path_default(ctl, path);
	else if (!realpath(argv[0], path))
		r = mmctl_error(MM_EXIT_FAILED, "%s: there is no such file", argv[0]);
	if (r != MM_EXIT_DONE)
		return r;
	r = mmctl_request(ctl, "upgrade",
			  json_pack("{ss sb}", "exe", path, "check", ctl->options->check), &begun);
	if (r == MM_EXIT_DONE)
		r = result_await(ctl, &result);
	if (r == MM_EXIT_DONE)
		r = result_print(ctl, result);
	return r == MM_EXIT_DONE ? result_status(path, result) : r;
}
