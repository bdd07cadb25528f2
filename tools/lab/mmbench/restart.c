/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/restart.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "tools/lab/common/series.h"
#include "tools/lab/hostile/raw.h"
#include "tools/lab/mmbench/arena.h"
#include "tools/lab/mmbench/handover.h"

#define PAGE_BYTES       UINT64_C(16384)
#define TENANT_PAGES_MAX 64
#define PATIENCE_NS      (60 * MM_NS_PER_S)
#define QUIET_MS         20 /* between two kills, beside what the hand-over takes */
#define GOAL_RATIO       8.0

struct restart {
	const struct mm_restart_opts *opts;
	struct mm_arena arena;
	struct mm_handover handover;
	struct mm_raw *tenant;
	struct mm_series recovery_ms, bare_ms;
	uint64_t lost; /* connections */
};

static int restart_fail(struct restart *b, int error, const char *what)
{
	snprintf(b->arena.err, sizeof(b->arena.err), "%s: %s", what, strerror(-error));
	return error;
}

static int tenants_open(struct restart *b)
{
	uint64_t each = b->opts->pages / 2 / b->opts->tenants;
	char name[24];

	b->tenant = calloc(b->opts->tenants, sizeof(*b->tenant));
	if (!b->tenant)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->opts->tenants; i++) {
		int r;

		snprintf(name, sizeof(name), "tenant%u", i);
		r = mm_raw_open(&b->tenant[i], b->arena.mmd.socket, name, MM_FEAT_RESUME);
		if (!r)
			r = mm_raw_take_pages(&b->tenant[i],
					      (uint32_t)MM_MIN(each, (uint64_t)TENANT_PAGES_MAX),
					      PATIENCE_NS);
		if (r)
			return restart_fail(b, r, name);
		/* Core has its own; these would only count against our limit. */
		mm_raw_drop_fds(&b->tenant[i]);
	}
	return 0;
}

/* Kills core; all tenants ask, and have their answers. Return: 0; negative errno. */
static int restart_once(struct restart *b)
{
	const pid_t pid = mm_arena_role(&b->arena, "core");
	uint64_t began_ns = mm_now_ns();
	int r = 0;

	if (!pid || kill(pid, SIGKILL) < 0)
		return restart_fail(b, -ESRCH, "core");
	for (uint32_t i = 0; !r && i < b->opts->tenants; i++)
		r = mm_raw_ping(&b->tenant[i], PATIENCE_NS);
	if (r) {
		b->lost += r == -ECONNRESET;
		return restart_fail(b, r, "a tenant after core was killed");
	}
	mm_series_add(&b->recovery_ms, (double)(mm_now_ns() - began_ns) / 1e6);
	return 0;
}

static int restart_run(struct restart *b)
{
	const struct mm_arena_opts opts = { .keep_dir = b->opts->keep_dir,
					    .pool_bytes = b->opts->pages * PAGE_BYTES,
					    .page_bytes = PAGE_BYTES,
					    .honest_bytes = b->opts->pages / 2 * PAGE_BYTES,
					    .seed = 1 };
	int r = mm_arena_open(&b->arena, &opts);

	if (!r)
		r = tenants_open(b);
	if (!r) {
		r = mm_handover_init(&b->handover, b->opts->pages, b->opts->tenants);
		if (r)
			restart_fail(b, r, "descriptors for the hand-over");
	}
	for (uint32_t i = 0; !r && i < b->opts->kills; i++) {
		double ms = 0;

		r = restart_once(b);
		if (!r)
			r = mm_arena_pause(&b->arena, QUIET_MS);
		if (!r)
			r = mm_handover_run(&b->handover, &ms);
		if (!r)
			mm_series_add(&b->bare_ms, ms);
	}
	return r;
}

static int restart_report(const struct restart *b)
{
	const double p50 = mm_series_percentile(&b->recovery_ms, 50);
	const double p99 = mm_series_percentile(&b->recovery_ms, 99);
	const double bare = mm_series_percentile(&b->bare_ms, 50);
	const double ratio = bare > 0 ? p50 / bare : 0;
	mm_cleanup(mm_json_done) json_t *json = NULL;

	if (!b->opts->json) {
		printf("%" PRIu64 " pages, %u tenants, %u times core was killed\n", b->opts->pages,
		       b->opts->tenants, b->recovery_ms.n);
		printf("all tenants are served again after %.1f ms (P50), %.1f ms (P99)\n", p50,
		       p99);
		printf("%zu descriptors handed over and mapped take %.1f ms (P50): ratio %.2f "
		       "(goal: at most %.0f)\n",
		       b->handover.n, bare, ratio, GOAL_RATIO);
		return 0;
	}
	json = json_pack("{s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I}", "schema", 1, "pages",
			 (json_int_t)b->opts->pages, "tenants", (json_int_t)b->opts->tenants,
			 "kills", (json_int_t)b->recovery_ms.n, "descriptors",
			 (json_int_t)b->handover.n, "recovery_p50_ms", p50, "recovery_p99_ms", p99,
			 "bare_p50_ms", bare, "ratio", ratio, "connections_lost",
			 (json_int_t)b->lost);
	return json ? mm_json_print(json, JSON_COMPACT) : -ENOMEM;
}

int mm_bench_restart(const struct mm_restart_opts *opts)
{
	struct restart b = { .opts = opts };
	int r = restart_run(&b);

	if (r)
		fprintf(stderr, "mmbench: restart: %s\n", b.arena.err);
	else
		r = restart_report(&b);
	for (uint32_t i = 0; b.tenant && i < opts->tenants; i++)
		mm_raw_done(&b.tenant[i]);
	free(b.tenant);
	mm_handover_done(&b.handover);
	mm_arena_close(&b.arena);
	mm_series_done(&b.recovery_ms);
	mm_series_done(&b.bare_ms);
	return r ? 1 : 0;
}

#define AT(field) MM_OPT_AT(struct mm_restart_opts, field)

const struct mm_opt mm_restart_options[] = {
	{ "pages", "N", "pages of the pool", MM_OPT_NUMBER, AT(pages), .preset = "1000", .min = 64,
	  .max = 100000 },
	{ "tenants", "T", "tenants that hold half of them", MM_OPT_NUMBER, AT(tenants),
	  .preset = "8", .min = 1, .max = 64 },
	{ "kills", "K", "times that core is killed", MM_OPT_NUMBER, AT(kills), .preset = "50",
	  .min = 1, .max = 100000 },
	{ "keep", "DIR", "leave logs in DIR", MM_OPT_TEXT, AT(keep_dir) },
	{ "json", NULL, "print one JSON object instead of sentences", MM_OPT_FLAG, AT(json) },
	{ 0 },
};
