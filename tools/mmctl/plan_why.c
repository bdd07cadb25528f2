/* SPDX-License-Identifier: Apache-2.0 */
/* plan_why - `mmctl plan why`: the last decision, in sentences */
#include <inttypes.h>
#include <stdio.h>

#include "tools/common/explained.h"
#include "tools/mmctl/ctl.h"

static void why_print_device(const json_t *device)
{
	const json_t *tenant;
	size_t i;

	printf("device %" PRIu64 ":\n", mm_json_u64(device, "device"));
	mm_explained_print(device);
	json_array_foreach(json_object_get(device, "tenants"), i, tenant) {
		printf("\n%s (tenant %" PRIu64 "):\n", mm_json_text(tenant, "name"),
		       mm_json_u64(tenant, "tenant"));
		mm_explained_print(tenant);
	}
}

int mmctl_plan_why_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	json_t *params = argc ? json_pack("{s:s}", "name", argv[0]) : NULL;
	const json_t *device;
	size_t i;
	int r;

	/* Without a name mmd would explain all. */
	if (argc && !params)
		return mm_opt_refuse(&mmctl_program, MMCTL_PLAN_WHY, "MODEL: not a text");
	r = mmctl_request(ctl, "plan.why", params, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_json(result);
	json_array_foreach(json_object_get(result, "devices"), i, device) {
		if (i)
			putchar('\n');
		why_print_device(device);
	}
	return MM_EXIT_DONE;
}
