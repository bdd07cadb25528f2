/* SPDX-License-Identifier: Apache-2.0 */
/* plan_set - `mmctl plan set`: sets by hand how many layers of a tenant are away */
#include <inttypes.h>
#include <stdio.h>

#include "tools/mmctl/ctl.h"

static json_t *number_or_auto(uint64_t value)
{
	return value == MMCTL_AUTO ? json_string("auto") : json_integer((json_int_t)value);
}

int mmctl_plan_set_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	mm_cleanup(mm_json_done) json_t *result = NULL;
	json_t *params = json_pack("{s:s,s:o,s:o}", "name", argv[0], "layers",
				   number_or_auto(o->layers), "slots", number_or_auto(o->slots));
	int r;

	(void)argc;
	if (!params)
		return mm_opt_refuse(&mmctl_program, MMCTL_PLAN_SET, "MODEL: not a text");
	r = mmctl_request(ctl, "plan.set", params, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_json(result);
	if (o->layers == MMCTL_AUTO)
		printf("%s: auto\n", mm_json_text(result, "name"));
	else
		printf("%s: %" PRIu64 " layers away, by hand\n", mm_json_text(result, "name"),
		       o->layers);
	if (json_is_true(json_object_get(result, "model_held")))
		printf("%s holds its model: that is in force when it lets go\n",
		       mm_json_text(result, "name"));
	return MM_EXIT_DONE;
}
