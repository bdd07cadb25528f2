/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "mm/abi.h"
#include "tools/mmctl/ctl.h"

static json_t *layers_parse(const char *word)
{
	char *end;
	long number;

	if (strcmp(word, "auto") == 0)
		return json_string(word);
	errno = 0;
	number = strtol(word, &end, 10);
	if (errno || *end || end == word || number < 0 || number > MM_LAYERS_MAX)
		return NULL;
	return json_integer(number);
}

/* MODEL --layers N, in either order, also as --layers=N. */
static int arguments(int argc, char **argv, const char **ret_model, const char **ret_layers)
{
	*ret_model = *ret_layers = NULL;
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--layers") == 0 && i + 1 < argc)
			*ret_layers = argv[++i];
		else if (strncmp(argv[i], "--layers=", 9) == 0)
			*ret_layers = argv[i] + 9;
		else if (argv[i][0] == '-' || *ret_model)
			return mm_unexpected("plan set", argv[i]);
		else
			*ret_model = argv[i];
	}
	if (!*ret_model)
		return mm_complain(MM_EXIT_USAGE,
				   "plan set: MODEL is missing: a tenant's name or id");
	if (!*ret_layers)
		return mm_complain(MM_EXIT_USAGE,
				   "plan set: --layers N or --layers auto is missing");
	return MM_EXIT_DONE;
}

int mm_plan_set_run(const struct mm_ctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	const char *model, *word;
	json_t *layers;
	int r = arguments(argc, argv, &model, &word);

	if (r != MM_EXIT_DONE)
		return r;
	layers = layers_parse(word);
	if (!layers)
		return mm_complain(MM_EXIT_USAGE, "plan set: --layers: '%s' is not 0 to %d or auto",
				   word, MM_LAYERS_MAX);
	r = mm_ask(ctl, "plan.set", json_pack("{s:s,s:o}", "name", model, "layers", layers),
		   &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mm_print_json(result);
	printf("%s: %s%s\n", mm_text(result, "name"), word,
	       strcmp(word, "auto") == 0 ? "" : " layers away, by hand");
	return MM_EXIT_DONE;
}
