/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

static void print_slots(const json_t *plan)
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

static void print_waste(const json_t *plan)
{
	uint64_t bytes = mm_u64(plan, "weights_device_bytes");
	uint64_t waste = mm_u64(plan, "weights_waste_bytes");
	char device[MM_SIZE_TEXT_BYTES], wasted[MM_SIZE_TEXT_BYTES];

	printf("  weights: %s in whole pages, of which rounding wastes %s (%.2f %%)\n",
	       mm_size_print(bytes, device), mm_size_print(waste, wasted),
	       bytes ? 100.0 * (double)waste / (double)bytes : 0);
}

static void print_plan(const json_t *plan)
{
	const json_t *by_hand = json_object_get(plan, "alpha_by_hand");
	char text[MM_SIZE_TEXT_BYTES];

	printf("%s (tenant %" PRIu64 ", device %" PRIu64 "): ", mm_text(plan, "name"),
	       mm_u64(plan, "tenant"), mm_u64(plan, "device"));
	if (mm_u64(plan, "layers") == 0) {
		puts("no model");
		return;
	}
	printf("%" PRIu64 " of %" PRIu64 " layers away, %" PRIu64 " cycle through %" PRIu64
	       " slots; epoch %" PRIu64 ", %s, %s; %s streamed\n",
	       mm_u64(plan, "alpha"), mm_u64(plan, "layers"), mm_u64(plan, "m"),
	       mm_u64(plan, "beta"), mm_u64(plan, "plan_epoch"), mm_text(plan, "plan_phase"),
	       json_is_null(by_hand) ? "automatic" : "by hand",
	       mm_size_print(mm_u64(plan, "bytes_streamed"), text));
	print_waste(plan);
	print_slots(plan);
}

int mm_plan_show_run(const struct mm_ctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	const json_t *plan;
	size_t i;
	int r;

	if (argc > 1)
		return mm_unexpected("plan show", argv[1]);
	r = mm_ask(ctl, "plan.show", argc ? json_pack("{s:s}", "name", argv[0]) : NULL, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mm_print_json(result);
	json_array_foreach(json_object_get(result, "plans"), i, plan)
		print_plan(plan);
	return MM_EXIT_DONE;
}
