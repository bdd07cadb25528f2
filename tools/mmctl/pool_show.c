/* SPDX-License-Identifier: Apache-2.0 */
/* pool_show - `mmctl pool show`: the pages of each device by state */
#include <inttypes.h>
#include <stdio.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

static void pool_print_states(const json_t *device)
{
	uint64_t page_bytes = mm_json_u64(device, "page_bytes");
	char text[MM_SIZE_TEXT_BYTES];
	const char *state;
	json_t *n;

	printf("%-12s %10s %12s\n", "STATE", "PAGES", "BYTES");
	json_object_foreach(json_object_get(device, "pages"), state, n) {
		uint64_t count = (uint64_t)json_integer_value(n);

		printf("%-12s %10" PRIu64 " %12s\n", state, count,
		       mm_size_print(count * page_bytes, text));
	}
	printf("%-12s %10" PRIu64 " %12s\n", "pool", mm_json_u64(device, "pool_pages"),
	       mm_size_print(mm_json_u64(device, "pool_pages") * page_bytes, text));
	if (mm_json_has(device, "numa_node"))
		printf("memory for weights: NUMA node %" PRIu64 "\n",
		       mm_json_u64(device, "numa_node"));
	else
		printf("memory for weights: any NUMA node\n");
}

int mmctl_pool_show_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	char text[MM_SIZE_TEXT_BYTES];
	int r;

	(void)argc;
	(void)argv;
	r = mmctl_request(ctl, "pool.show", NULL, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_json(result);
	mmctl_each_device(result, pool_print_states);
	printf("huge pages for weights: %s, %s in use\n", mm_json_text(result, "hugepages"),
	       mm_size_print(mm_json_u64(result, "hugepages_bytes"), text));
	if (!mm_json_flag(result, "pages_accounted"))
		return mmctl_error(MM_EXIT_FAILED, "the states do not sum up to the pool");
	return MM_EXIT_DONE;
}
