/* SPDX-License-Identifier: Apache-2.0 */
/* plan_show - `mmctl plan show`: which layers cycle, and in which slots */
#include <inttypes.h>
#include <stdio.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

static void plan_print_slots(const json_t *plan)
{
	const json_t *slot, *layer;
	size_t i, k;

	json_array_foreach(json_object_get(plan, "slots"), i, slot) {
		printf("  slot %zu: %zu pages, layers", i,
		       json_array_size(json_object_get(slot, "pages")));
		json_array_foreach(json_object_get(slot, "layers"), k, layer)
			printf(" %" JSON_INTEGER_FORMAT, json_integer_value(layer));
		putchar('\n');
	}
}

static void plan_print_waste(const json_t *plan)
{
	uint64_t bytes = mmctl_u64(plan, "weights_device_bytes");
	uint64_t waste = mmctl_u64(plan, "weights_waste_bytes");
	char device[MM_SIZE_TEXT_BYTES], wasted[MM_SIZE_TEXT_BYTES];

	printf("  weights: %s in whole pages, of which rounding wastes %s (%.2f %%)\n",
	       mm_size_print(bytes, device), mm_size_print(waste, wasted),
	       bytes ? 100.0 * (double)waste / (double)bytes : 0);
}

static void plan_print(const json_t *plan)
{
	const json_t *by_hand = json_object_get(plan, "alpha_by_hand");
	char text[MM_SIZE_TEXT_BYTES];

	printf("%s (tenant %" PRIu64 ", device %" PRIu64 "): ", mmctl_text(plan, "name"),
	       mmctl_u64(plan, "tenant"), mmctl_u64(plan, "device"));
	if (mmctl_u64(plan, "layers") == 0) {
		puts("no model");
		return;
	}
	printf("%" PRIu64 " of %" PRIu64 " layers away, %" PRIu64 " cycle through %" PRIu64
	       " slots; epoch %" PRIu64 ", %s, %s; %s streamed\n",
	       mmctl_u64(plan, "alpha"), mmctl_u64(plan, "layers"), mmctl_u64(plan, "m"),
	       mmctl_u64(plan, "beta"), mmctl_u64(plan, "plan_epoch"),
	       mmctl_text(plan, "plan_phase"), json_is_null(by_hand) ? "automatic" : "by hand",
	       mm_size_print(mmctl_u64(plan, "bytes_streamed"), text));
	plan_print_waste(plan);
	plan_print_slots(plan);
}

int mmctl_plan_show_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mmctl_json_done) json_t *result = NULL;
	const json_t *plan;
	size_t i;
	int r;

	if (argc > 1)
		return mmctl_unexpected("plan show", argv[1]);
	r = mmctl_request(ctl, "plan.show", argc ? json_pack("{s:s}", "name", argv[0]) : NULL,
			  &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_json(result);
	json_array_foreach(json_object_get(result, "plans"), i, plan)
		plan_print(plan);
	return MM_EXIT_DONE;
}
