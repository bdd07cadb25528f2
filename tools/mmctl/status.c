/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

static void print_pool(const json_t *result)
{
	const json_t *device = json_object_get(result, "device");
	const json_t *pages = json_object_get(result, "pages");
	const json_t *xfer = json_object_get(result, "xfer");
	uint64_t page_bytes = mm_u64(result, "page_bytes");
	char pool[MM_SIZE_TEXT_BYTES], page[MM_SIZE_TEXT_BYTES], streamed[MM_SIZE_TEXT_BYTES];

	printf("device: %s (%s)\n", mm_text(device, "name"), mm_text(device, "driver"));
	printf("pool: %s in %" PRIu64 " pages of %s; free %" PRIu64 ", weights %" PRIu64
	       ", slots %" PRIu64 ", kv %" PRIu64 ", other %" PRIu64 "\n",
	       mm_size_print(mm_u64(result, "pool_pages") * page_bytes, pool),
	       mm_u64(result, "pool_pages"), mm_size_print(page_bytes, page), mm_u64(pages, "free"),
	       mm_u64(pages, "param"), mm_u64(pages, "slot"), mm_u64(pages, "kv"),
	       mm_u64(result, "pool_pages") - mm_u64(pages, "free") - mm_u64(pages, "param") -
		       mm_u64(pages, "slot") - mm_u64(pages, "kv"));
	printf("layers away: %" PRIu64 " (at most %" PRIu64 "), plan changes %" PRIu64
	       ", streamed %s\n",
	       mm_u64(result, "alpha_sum"), mm_u64(result, "alpha_sum_max"),
	       mm_u64(result, "plan_changes"),
	       mm_size_print(mm_u64(result, "bytes_streamed"), streamed));
	printf("xfer: %s, restarts %" PRIu64 "\n",
	       json_is_true(json_object_get(xfer, "up")) ? "up" : "down", mm_u64(xfer, "restarts"));
}

static void print_tenants(const json_t *result)
{
	const json_t *t;
	size_t i;

	if (json_array_size(json_object_get(result, "tenants")) == 0)
		return;
	printf("\n%-10s %-16s %3s %8s %6s %8s %8s %6s %10s %5s\n", "TENANT", "NAME", "DEV", "PID",
	       "UID", "PAGES", "KV", "AWAY", "STEPS", "IDLE");
	json_array_foreach(json_object_get(result, "tenants"), i, t)
		printf("%-10" PRIu64 " %-16s %3" PRIu64 " %8" PRIu64 " %6" PRIu64 " %8" PRIu64
		       " %8" PRIu64 " %3" PRIu64 "/%-3" PRIu64 " %9" PRIu64 " %5s\n",
		       mm_u64(t, "tenant"), mm_text(t, "name"), mm_u64(t, "device"),
		       mm_u64(t, "pid"), mm_u64(t, "account_uid"), mm_u64(t, "pages"),
		       mm_u64(t, "kv_chunks"), mm_u64(t, "alpha"), mm_u64(t, "layers"),
		       mm_u64(t, "steps"), json_is_true(json_object_get(t, "idle")) ? "yes" : "no");
}

static void print_stores(const json_t *result)
{
	char text[MM_SIZE_TEXT_BYTES];
	const json_t *s;
	size_t i;

	if (json_array_size(json_object_get(result, "stores")) == 0)
		return;
	printf("\n%-6s %-16s %10s %-6s %5s %s\n", "STORE", "IDENTITY", "BYTES", "TIER", "REFS",
	       "STATE");
	json_array_foreach(json_object_get(result, "stores"), i, s)
		printf("%-6" PRIu64 " %-16s %10s %-6s %5" PRIu64 " %s\n", mm_u64(s, "store"),
		       mm_text(s, "identity"), mm_size_print(mm_u64(s, "bytes"), text),
		       mm_text(s, "tier"), mm_u64(s, "refs"),
		       json_is_true(json_object_get(s, "ready")) ? "ready" : "loading");
}

int mm_status_run(const struct mm_ctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	int r;

	if (argc > 0)
		return mm_unexpected("status", argv[0]);
	r = mm_ask(ctl, "status", NULL, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mm_print_json(result);
	printf("mmd %s, policy %s, up %" PRIu64 " s\n", mm_text(result, "version"),
	       mm_text(result, "policy"), mm_u64(result, "uptime_ns") / MM_NS_PER_S);
	mm_each_device(result, print_pool);
	print_tenants(result);
	print_stores(result);
	return MM_EXIT_DONE;
}
