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
	uint64_t bytes = mm_json_u64(plan, "weights_device_bytes");
	uint64_t waste = mm_json_u64(plan, "weights_waste_bytes");
	char device[MM_SIZE_TEXT_BYTES], wasted[MM_SIZE_TEXT_BYTES];

	printf("  weights: %s in whole pages, of which rounding wastes %s (%.2f %%)\n",
	       mm_size_print(bytes, device), mm_size_print(waste, wasted),
	       bytes ? 100.0 * (double)waste / (double)bytes : 0);
}

void mmctl_cold_print(const char *begin, const json_t *tenant)
{
	const json_t *cold = json_object_get(tenant, "cold");
	char window[MM_SIZE_TEXT_BYTES], streamed[MM_SIZE_TEXT_BYTES];

	if (!json_is_object(cold))
		return;
	printf("%s%" PRIu64 " of %" PRIu64 " cold blocks may be live (%s)", begin,
	       mm_json_u64(cold, "limit"), mm_json_u64(cold, "entries_max"),
	       mm_json_text(cold, "limit_why"));
	if (mm_json_u64(cold, "window_chunks"))
		printf("; the window is %" PRIu64 " chunks from %" PRIu64
		       " on, %s, with room for %" PRIu64,
		       mm_json_u64(cold, "window_chunks"), mm_json_u64(cold, "window_first"),
		       mm_size_print(mm_json_u64(cold, "window_bytes"), window),
		       mm_json_u64(cold, "window_entries"));
	else
		printf("; no window");
	printf("; %s streamed\n",
	       mm_size_print(mm_json_u64(tenant, "cold_bytes_streamed"), streamed));
}

static void plan_print(const json_t *plan)
{
	char text[MM_SIZE_TEXT_BYTES];

	printf("%s (tenant %" PRIu64 ", device %" PRIu64 "): ", mm_json_text(plan, "name"),
	       mm_json_u64(plan, "tenant"), mm_json_u64(plan, "device"));
	if (mm_json_u64(plan, "layers") == 0) {
		puts("no model");
		return;
	}
	printf("%" PRIu64 " of %" PRIu64 " layers away, %" PRIu64 " cycle through %" PRIu64
	       " slots; epoch %" PRIu64 ", %s, %s; %s streamed\n",
	       mm_json_u64(plan, "alpha"), mm_json_u64(plan, "layers"), mm_json_u64(plan, "m"),
	       mm_json_u64(plan, "beta"), mm_json_u64(plan, "plan_epoch"),
	       mm_json_text(plan, "plan_phase"),
	       mm_json_has(plan, "alpha_by_hand") ? "by hand" : "automatic",
	       mm_size_print(mm_json_u64(plan, "bytes_streamed"), text));
	mmctl_cold_print("  ", plan);
	plan_print_waste(plan);
	plan_print_slots(plan);
}

int mmctl_plan_show_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	json_t *params = argc ? json_pack("{s:s}", "name", argv[0]) : NULL;
	const json_t *plan;
	size_t i;
	int r;

	/* Without a name mmd would show the plans of all. */
	if (argc && !params)
		return mm_opt_refuse(&mmctl_program, MMCTL_PLAN_SHOW, "MODEL: not a text");
	r = mmctl_request(ctl, "plan.show", params, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_json(result);
	json_array_foreach(json_object_get(result, "plans"), i, plan)
		plan_print(plan);
	return MM_EXIT_DONE;
}
