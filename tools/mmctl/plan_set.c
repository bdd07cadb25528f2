/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/abi.h"
#include "tools/mmctl/ctl.h"

struct wish {
	const char *model, *layers, *slots;
};

static json_t *number_parse(const char *word, long min, long max)
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

/* `--name VALUE` or `--name=VALUE`; *i ends on the last word used. */
static bool option(int argc, char **argv, int *i, const char *name, const char **ret_value)
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

/* MODEL --layers N [--slots N], in any order. */
static int arguments(int argc, char **argv, struct wish *wish)
{
	*wish = (struct wish){ .slots = "auto" };
	for (int i = 0; i < argc; i++) {
		if (option(argc, argv, &i, "--layers", &wish->layers) ||
		    option(argc, argv, &i, "--slots", &wish->slots))
			continue;
		if (argv[i][0] == '-' || wish->model)
			return mm_unexpected("plan set", argv[i]);
		wish->model = argv[i];
	}
	if (!wish->model)
		return mm_complain(MM_EXIT_USAGE,
				   "plan set: MODEL is missing: a tenant's name or id");
	if (!wish->layers)
		return mm_complain(MM_EXIT_USAGE,
				   "plan set: --layers N or --layers auto is missing");
	return MM_EXIT_DONE;
}

int mm_plan_set_run(const struct mm_ctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL, *layers = NULL, *slots = NULL;
	struct wish wish;
	int r = arguments(argc, argv, &wish);

	if (r != MM_EXIT_DONE)
		return r;
	layers = number_parse(wish.layers, 0, MM_LAYERS_MAX);
	if (!layers)
		return mm_complain(MM_EXIT_USAGE, "plan set: --layers: '%s' is not 0 to %d or auto",
				   wish.layers, MM_LAYERS_MAX);
	slots = number_parse(wish.slots, 1, 2);
	if (!slots)
		return mm_complain(MM_EXIT_USAGE, "plan set: --slots: '%s' is not 1, 2 or auto",
				   wish.slots);
	r = mm_ask(ctl, "plan.set",
		   json_pack("{s:s,s:O,s:O}", "name", wish.model, "layers", layers, "slots", slots),
		   &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mm_print_json(result);
	printf("%s: %s%s\n", mm_text(result, "name"), wish.layers,
	       strcmp(wish.layers, "auto") == 0 ? "" : " layers away, by hand");
	return MM_EXIT_DONE;
}
