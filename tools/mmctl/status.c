/* SPDX-License-Identifier: Apache-2.0 */
/* status - `mmctl status`: device, pool, tenants and stores at a glance */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

#define MMCTL_LINE_BYTES 64 /* a tenant's name and what follows it */

static void status_print_pool(const json_t *result)
{
	const json_t *device = json_object_get(result, "device");
	const json_t *pages = json_object_get(result, "pages");
	const json_t *xfer = json_object_get(result, "xfer");
	uint64_t page_bytes = mm_json_u64(result, "page_bytes");
	char pool[MM_SIZE_TEXT_BYTES], page[MM_SIZE_TEXT_BYTES], streamed[MM_SIZE_TEXT_BYTES];

	printf("device: %s (%s)\n", mm_json_text(device, "name"), mm_json_text(device, "driver"));
	printf("pool: %s in %" PRIu64 " pages of %s; free %" PRIu64 ", weights %" PRIu64
	       ", slots %" PRIu64 ", kv %" PRIu64 ", mem %" PRIu64 ", other %" PRIu64 "\n",
	       mm_size_print(mm_json_u64(result, "pool_pages") * page_bytes, pool),
	       mm_json_u64(result, "pool_pages"), mm_size_print(page_bytes, page),
	       mm_json_u64(pages, "free"), mm_json_u64(pages, "param"), mm_json_u64(pages, "slot"),
	       mm_json_u64(pages, "kv"), mm_json_u64(pages, "mem"),
	       mm_json_u64(result, "pool_pages") - mm_json_u64(pages, "free") -
		       mm_json_u64(pages, "param") - mm_json_u64(pages, "slot") -
		       mm_json_u64(pages, "kv") - mm_json_u64(pages, "mem"));
	printf("layers away: %" PRIu64 " (at most %" PRIu64 "), plan changes %" PRIu64
	       ", streamed %s\n",
	       mm_json_u64(result, "alpha_sum"), mm_json_u64(result, "alpha_sum_max"),
	       mm_json_u64(result, "plan_changes"),
	       mm_size_print(mm_json_u64(result, "bytes_streamed"), streamed));
	printf("turns: %s\n", mm_json_text(result, "turn_mode_why"));
	printf("xfer: %s, restarts %" PRIu64 "\n", mm_json_flag(xfer, "up") ? "up" : "down",
	       mm_json_u64(xfer, "restarts"));
}

static void status_print_tenants(const json_t *result)
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
		       mm_json_u64(t, "tenant"), mm_json_text(t, "name"), mm_json_u64(t, "device"),
		       mm_json_u64(t, "pid"), mm_json_u64(t, "account_uid"),
		       mm_json_u64(t, "pages"), mm_json_u64(t, "kv_chunks"),
		       mm_json_u64(t, "alpha"), mm_json_u64(t, "layers"), mm_json_u64(t, "steps"),
		       mm_json_flag(t, "idle") ? "yes" : "no");
}

/* Prints nothing where all is as it should be. A mmd of before has no such answer. */
static void status_print_rights(const json_t *rights)
{
	if (!rights)
		return;
	if (strcmp(mm_json_text(rights, "sandbox"), "on") != 0)
		printf("sandbox: %s; mmd is being debugged\n", mm_json_text(rights, "sandbox"));
	if (mm_json_flag(rights, "core_stays_root"))
		printf("rights: core could not become another user; see mmd's log\n");
}

/* A tenant that was refused a swap space computes again what it evicts: nothing else shows it. */
static void status_print_swap(const json_t *result)
{
	char used[MM_SIZE_TEXT_BYTES], max[MM_SIZE_TEXT_BYTES], wanted[MM_SIZE_TEXT_BYTES];
	const json_t *t;
	size_t i;

	if (!mm_json_u64(result, "swap_max_bytes"))
		return;
	printf("swap space: %s of %s are given out\n",
	       mm_size_print(mm_json_u64(result, "swap_bytes"), used),
	       mm_size_print(mm_json_u64(result, "swap_max_bytes"), max));
	json_array_foreach(json_object_get(result, "tenants"), i, t)
		if (mm_json_u64(t, "swap_refused_bytes"))
			printf("  %s has none: it was refused %s, and computes again what it "
			       "evicts\n",
			       mm_json_text(t, "name"),
			       mm_size_print(mm_json_u64(t, "swap_refused_bytes"), wanted));
}

static void status_print_cold(const json_t *result)
{
	const json_t *t;
	size_t i;

	json_array_foreach(json_object_get(result, "tenants"), i, t) {
		char begin[MMCTL_LINE_BYTES];

		snprintf(begin, sizeof(begin), "%s: ", mm_json_text(t, "name"));
		mmctl_cold_print(begin, t);
	}
}

static void status_print_stores(const json_t *result)
{
	char text[MM_SIZE_TEXT_BYTES];
	const json_t *s, *key;
	size_t i, k;

	if (json_array_size(json_object_get(result, "stores")) == 0)
		return;
	printf("\n%-6s %-16s %10s %-6s %5s %s\n", "STORE", "IDENTITY", "BYTES", "TIER", "REFS",
	       "STATE");
	json_array_foreach(json_object_get(result, "stores"), i, s) {
		printf("%-6" PRIu64 " %-16s %10s %-6s %5" PRIu64 " %s\n", mm_json_u64(s, "store"),
		       mm_json_text(s, "identity"), mm_size_print(mm_json_u64(s, "bytes"), text),
		       mm_json_text(s, "tier"), mm_json_u64(s, "refs"),
		       mm_json_flag(s, "ready") ? "ready" : "loading");
		json_array_foreach(json_object_get(s, "keys"), k, key)
			printf("       key of %s: %s\n", mm_json_text(key, "account"),
			       mm_json_text(key, "key"));
	}
}

int mmctl_status_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	int r;

	(void)argc;
	(void)argv;
	r = mmctl_request(ctl, "status", NULL, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_json(result);
	printf("mmd %s, policy %s, up %" PRIu64 " s\n", mm_json_text(result, "version"),
	       mm_json_text(result, "policy"), mm_json_u64(result, "uptime_ns") / MM_NS_PER_S);
	status_print_rights(json_object_get(result, "rights"));
	mmctl_each_device(result, status_print_pool);
	status_print_swap(result);
	status_print_cold(result);
	status_print_tenants(result);
	status_print_stores(result);
	return MM_EXIT_DONE;
}
