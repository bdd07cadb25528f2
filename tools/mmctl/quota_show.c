/* SPDX-License-Identifier: Apache-2.0 */
/* quota_show - `mmctl quota show`: what accounts use and may have */
#include <inttypes.h>
#include <stdio.h>

#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

void mmctl_quota_print_head(void)
{
	printf("%-16s %6s %10s %10s %10s %6s %8s %7s %9s %7s %7s %-10s %10s %5s %8s %s\n",
	       "ACCOUNT", "DEVICE", "USED", "MIN", "MAX", "WEIGHT", "PRIORITY", "TURN MS",
	       "TURN PRIO", "TTFT MS", "TPOT US", "ON TIMEOUT", "HOST", "CONN", "REVISION",
	       "STATE");
}

void mmctl_quota_print(const json_t *a)
{
	char min[MM_SIZE_TEXT_BYTES], max[MM_SIZE_TEXT_BYTES], used[MM_SIZE_TEXT_BYTES],
		host[MM_SIZE_TEXT_BYTES];

	printf("%-16s %6" PRIu64 " %10s %10s %10s %6" PRIu64 " %8" PRIu64 " %7" PRIu64 " %9" PRIu64
	       " %7" PRIu64 " %7" PRIu64 " %-10s %10s %5" PRIu64 " %8" PRIu64 " %s\n",
	       mm_json_text(a, "account"), mm_json_u64(a, "device"),
	       mm_size_print(mm_json_u64(a, "used_bytes"), used),
	       mm_size_print(mm_json_u64(a, "min_bytes"), min),
	       mm_size_print(mm_json_u64(a, "max_bytes"), max), mm_json_u64(a, "weight"),
	       mm_json_u64(a, "priority"), mm_json_u64(a, "turn_quantum_max_ms"),
	       mm_json_u64(a, "turn_priority_max"), mm_json_u64(a, "goal_ttft_ms"),
	       mm_json_u64(a, "goal_tpot_us"), mm_json_text(a, "on_timeout"),
	       mm_size_print(mm_json_u64(a, "host_bytes"), host), mm_json_u64(a, "connections"),
	       mm_json_u64(a, "revision"), mm_json_text(a, "state"));
}

int mmctl_quota_show_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = NULL;
	const json_t *account;
	size_t i;
	int r;

	(void)argc;
	(void)argv;
	r = mmctl_request(ctl, "quota.show", NULL, &result);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_json(result);
	mmctl_quota_print_head();
	json_array_foreach(json_object_get(result, "accounts"), i, account)
		mmctl_quota_print(account);
	return MM_EXIT_DONE;
}
