/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

static void print_account(const json_t *a)
{
	char min[MM_SIZE_TEXT_BYTES], max[MM_SIZE_TEXT_BYTES], used[MM_SIZE_TEXT_BYTES],
		host[MM_SIZE_TEXT_BYTES];

	printf("%-16s %6" PRIu64 " %10s %10s %10s %6" PRIu64 " %8" PRIu64 " %7" PRIu64 " %9" PRIu64
	       " %-10s %10s %5" PRIu64 " %8" PRIu64 " %s\n",
	       mm_text(a, "account"), mm_u64(a, "device"),
	       mm_size_print(mm_u64(a, "used_bytes"), used),
	       mm_size_print(mm_u64(a, "min_bytes"), min),
	       mm_size_print(mm_u64(a, "max_bytes"), max), mm_u64(a, "weight"),
	       mm_u64(a, "priority"), mm_u64(a, "turn_quantum_max_ms"),
	       mm_u64(a, "turn_priority_max"), mm_text(a, "on_timeout"),
	       mm_size_print(mm_u64(a, "host_bytes"), host), mm_u64(a, "connections"),
	       mm_u64(a, "revision"), mm_text(a, "state"));
}

int mm_quota_show_run(const struct mm_ctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	const json_t *account;
	size_t i;
	int r;

	if (argc > 0)
		return mm_unexpected("quota show", argv[0]);
	r = mm_ask(ctl, "quota.show", NULL, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mm_print_json(result);
	printf("%-16s %6s %10s %10s %10s %6s %8s %7s %9s %-10s %10s %5s %8s %s\n", "ACCOUNT",
	       "DEVICE", "USED", "MIN", "MAX", "WEIGHT", "PRIORITY", "TURN MS", "TURN PRIO",
	       "ON TIMEOUT", "HOST", "CONN", "REVISION", "STATE");
	json_array_foreach(json_object_get(result, "accounts"), i, account)
		print_account(account);
	return MM_EXIT_DONE;
}
