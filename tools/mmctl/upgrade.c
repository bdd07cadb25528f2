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
	return strcmp(state, "checking") != 0 && strcmp(state, "leaving") != 0;
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

static int result_print(const struct mmctl *ctl, const json_t *result)
{
	const char *state = mm_json_text(result, "state"), *text = mm_json_text(result, "text");

	if (ctl->json)
		return mmctl_print_json(result);
	if (strcmp(state, "checked") == 0)
		printf("%s\n", text);
	else if (strcmp(state, "done") == 0)
		printf("mmd %s goes on\n", mm_json_text(result, "version"));
	return MM_EXIT_DONE;
}

int mmctl_upgrade_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *begun = NULL;
	mm_cleanup(mm_json_done) json_t *result = NULL;
	char path[PATH_MAX];
	const char *state;
	int r;

	(void)argc;
	if (!realpath(argv[0], path))
		return mmctl_error(MM_EXIT_FAILED, "%s: there is no such file", argv[0]);
	r = mmctl_request(ctl, "upgrade",
			  json_pack("{ss sb}", "exe", path, "check", ctl->options->check), &begun);
	if (r == MM_EXIT_DONE)
		r = result_await(ctl, &result);
	if (r == MM_EXIT_DONE)
		r = result_print(ctl, result);
	if (r != MM_EXIT_DONE)
		return r;
	state = mm_json_text(result, "state");
	if (strcmp(state, "refused") == 0)
		return mmctl_error(MM_EXIT_FAILED, "refused: %s", mm_json_text(result, "text"));
	if (strcmp(state, "taken_back") == 0 || strcmp(state, "none") == 0)
		return mmctl_error(MM_EXIT_FAILED, "%s did not go on; mmd %s does", path,
				   mm_json_text(result, "version"));
	return MM_EXIT_DONE;
}
