/* SPDX-License-Identifier: Apache-2.0 */
/* plan_set - `mmctl plan set`: sets by hand how many layers of a tenant are away */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/abi.h"
#include "tools/mmctl/ctl.h"

struct plan_arguments {
	const char *model, *layers, *slots;
};

static json_t *layers_parse(const char *word, long min, long max)
{
	char *end;
	long number;

	if (strcmp(word, "auto") == 0)
		return json_string(word);
	errno = 0;
	number = strtol(word, &end, 10);
	if (errno || *end || end == word || number < min || number > max)
		return NULL;
	return json_integer(number);
}

/* Takes `--name VALUE` or `--name=VALUE`; *i is left at the last word that was used. */
static bool plan_option_take(int argc, char **argv, int *i, const char *name,
			     const char **ret_value)
{
	const size_t n = strlen(name);

	if (strncmp(argv[*i], name, n) != 0)
		return false;
	if (argv[*i][n] == '=') {
		*ret_value = argv[*i] + n + 1;
		return true;
	}
	if (argv[*i][n] || *i + 1 >= argc)
		return false;
	*ret_value = argv[++*i];
	return true;
}

/* Parses MODEL --layers N [--slots N], in any order. */
static int plan_arguments_parse(int argc, char **argv, struct plan_arguments *args)
{
	*args = (struct plan_arguments){ .slots = "auto" };
	for (int i = 0; i < argc; i++) {
		if (plan_option_take(argc, argv, &i, "--layers", &args->layers) ||
		    plan_option_take(argc, argv, &i, "--slots", &args->slots))
			continue;
		if (argv[i][0] == '-' || args->model)
			return mmctl_unexpected("plan set", argv[i]);
		args->model = argv[i];
	}
	if (!args->model)
		return mmctl_error(MM_EXIT_USAGE,
				   "plan set: MODEL is missing: a tenant's name or id");
	if (!args->layers)
		return mmctl_error(MM_EXIT_USAGE,
				   "plan set: --layers N or --layers auto is missing");
	return MM_EXIT_DONE;
}

int mmctl_plan_set_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mmctl_json_done) json_t *result = NULL, *layers = NULL, *slots = NULL;
	struct plan_arguments args;
	int r = plan_arguments_parse(argc, argv, &args);

	if (r != MM_EXIT_DONE)
		return r;
	layers = layers_parse(args.layers, 0, MM_LAYERS_MAX);
	if (!layers)
		return mmctl_error(MM_EXIT_USAGE, "plan set: --layers: '%s' is not 0 to %d or auto",
				   args.layers, MM_LAYERS_MAX);
	slots = layers_parse(args.slots, 1, 2);
	if (!slots)
		return mmctl_error(MM_EXIT_USAGE, "plan set: --slots: '%s' is not 1, 2 or auto",
				   args.slots);
	r = mmctl_request(
		ctl, "plan.set",
		json_pack("{s:s,s:O,s:O}", "name", args.model, "layers", layers, "slots", slots),
		&result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_json(result);
	printf("%s: %s%s\n", mmctl_text(result, "name"), args.layers,
	       strcmp(args.layers, "auto") == 0 ? "" : " layers away, by hand");
	return MM_EXIT_DONE;
}
