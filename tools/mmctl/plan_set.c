/* SPDX-License-Identifier: Apache-2.0 */
/* plan_set - `mmctl plan set`: sets by hand how many layers are away, and blocks may be cold */
#include <inttypes.h>
#include <stdio.h>

#include "tools/mmctl/ctl.h"

static json_t *number_or_auto(uint64_t value)
{
	return value == MMCTL_AUTO ? json_string("auto") : json_integer((json_int_t)value);
}

/* Makes a request, and adds the members of its result to @result. */
static int plan_request(const struct mmctl *ctl, const char *method, json_t *params, json_t *result)
{
	mm_cleanup(mm_json_done) json_t *part = NULL;
	int r;

	if (!params)
		return mm_opt_refuse(&mmctl_program, MMCTL_PLAN_SET, "MODEL: not a text");
	r = mmctl_request(ctl, method, params, &part);
	if (r == MM_EXIT_DONE)
		json_object_update(result, part);
	return r;
}

static int layers_set(const struct mmctl *ctl, const char *model, json_t *result)
{
	const struct mmctl_options *o = ctl->options;
	json_t *params = json_pack("{s:s,s:o,s:o}", "name", model, "layers",
				   number_or_auto(o->layers), "slots", number_or_auto(o->slots));
	int r = plan_request(ctl, "plan.set", params, result);
	const char *name = mm_json_text(result, "name");

	if (r != MM_EXIT_DONE || ctl->json)
		return r;
	if (o->layers == MMCTL_AUTO)
		printf("%s: auto\n", name);
	else
		printf("%s: %" PRIu64 " layers away, by hand\n", name, o->layers);
	if (json_is_true(json_object_get(result, "model_held")))
		printf("%s holds its model: that is in force when it lets go\n", name);
	return MM_EXIT_DONE;
}

static int cold_set(const struct mmctl *ctl, const char *model, json_t *result)
{
	const struct mmctl_options *o = ctl->options;
	json_t *params = json_pack("{s:s,s:o}", "name", model, "cold", number_or_auto(o->cold));
	int r = plan_request(ctl, "plan.cold", params, result);
	const char *name = mm_json_text(result, "name");

	if (r != MM_EXIT_DONE || ctl->json)
		return r;
	if (o->cold == MMCTL_AUTO)
		printf("%s: cold blocks auto, at most %" PRIu64 " now\n", name,
		       mm_json_u64(result, "cold_limit"));
	else
		printf("%s: at most %" PRIu64 " cold blocks, by hand\n", name, o->cold);
	return MM_EXIT_DONE;
}

int mmctl_plan_set_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	mm_cleanup(mm_json_done) json_t *result = json_object();
	int r = MM_EXIT_DONE;

	(void)argc;
	if (o->layers == MMCTL_UNSET && o->cold == MMCTL_UNSET)
		return mm_opt_refuse(&mmctl_program, MMCTL_PLAN_SET,
				     "give --layers, --cold or both");
	if (o->layers == MMCTL_UNSET && o->slots != MMCTL_AUTO)
		return mm_opt_refuse(&mmctl_program, MMCTL_PLAN_SET,
				     "--slots: only together with --layers");
	if (o->layers != MMCTL_UNSET)
		r = layers_set(ctl, argv[0], result);
	if (r == MM_EXIT_DONE && o->cold != MMCTL_UNSET)
		r = cold_set(ctl, argv[0], result);
	return r == MM_EXIT_DONE && ctl->json ? mmctl_print_json(result) : r;
}
