/* SPDX-License-Identifier: Apache-2.0 */
/* list - `mmctl list`: the tenants, a line each */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "tools/mmctl/ctl.h"
#include "tools/mmctl/frame.h"

#define NAME_COLUMNS 24
#define LINE_BYTES   81 /* with the NUL: numbers of a mmd that lies are cut, too */

static int name_order(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;

	return strcmp(mm_json_text(x, "name"), mm_json_text(y, "name"));
}

static void tenant_print(const json_t *t)
{
	char name[NAME_COLUMNS + 1], account[NAME_COLUMNS + 1], line[LINE_BYTES];

	snprintf(line, sizeof(line),
		 "%-*s %10" PRIu64 " %3" PRIu64 " %8" PRIu64 " %3" PRIu64 "/%-3" PRIu64 " %-9s %s",
		 NAME_COLUMNS, mmctl_frame_name(mm_json_text(t, "name"), name, NAME_COLUMNS),
		 mm_json_u64(t, "tenant"), mm_json_u64(t, "device"), mm_json_u64(t, "pid"),
		 mm_json_u64(t, "alpha"), mm_json_u64(t, "layers"), mmctl_frame_state(t),
		 mmctl_frame_name(mm_json_text(t, "account"), account, NAME_COLUMNS));
	puts(line);
}

static int list_print(const json_t *tenants)
{
	const size_t n = json_array_size(tenants);
	mm_cleanup(mm_free_ptr) const json_t **row = calloc(n + 1, sizeof(*row));

	if (!row)
		return mmctl_error(MM_EXIT_FAILED, "out of memory");
	for (size_t i = 0; i < n; i++)
		row[i] = json_array_get(tenants, i);
	qsort(row, n, sizeof(*row), name_order);
	printf("%-*s %10s %3s %8s %7s %-9s %s\n", NAME_COLUMNS, "NAME", "ID", "DEV", "PID", "AWAY",
	       "STATE", "ACCOUNT");
	for (size_t i = 0; i < n; i++)
		tenant_print(row[i]);
	return MM_EXIT_DONE;
}

int mmctl_list_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *status = NULL, *answer = NULL;
	int r = mmctl_request(ctl, "status", NULL, &status);

	(void)argc;
	(void)argv;
	if (r != MM_EXIT_DONE)
		return r;
	if (!ctl->json)
		return list_print(json_object_get(status, "tenants"));
	answer = json_pack("{s:i,s:O}", "schema", 1, "tenants", json_object_get(status, "tenants"));
	return mmctl_print_json(answer);
}
