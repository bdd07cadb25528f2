/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/chaos_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"

void mm_chaos_result_done(struct mm_chaos_result *result)
{
	mm_series_done(&result->recovery_ms);
	mm_series_done(&result->xfer_recovery_ms);
}

void mm_chaos_note(struct mm_chaos_result *result, const char *format, ...)
{
	va_list args;

	if (*result->first)
		return;
	va_start(args, format);
	vsnprintf(result->first, sizeof(result->first), format, args);
	va_end(args);
}

bool mm_chaos_is_clean(const struct mm_chaos_result *r)
{
	return !r->token_mismatches && !r->refused && !r->engine_ends && !r->pages_leaked &&
	       !r->pages_unread && !r->foreign_bytes && !r->lost_bytes && !r->hostile_unexpected &&
	       !r->canary_ends && !r->witness_ends;
}

void mm_chaos_print(const struct mm_chaos_result *r)
{
	printf("killed: %" PRIu64 " tenants, %" PRIu64 " times xfer, %" PRIu64
	       " times core; %" PRIu64 " were gone already\n",
	       r->tenant_kills, r->xfer_kills, r->core_kills, r->kills_missed);
	printf("hostile: %" PRIu64 " acts in %" PRIu64 " rounds, %" PRIu64
	       " with an outcome that was not expected; %" PRIu64 " faults of the device, %" PRIu64
	       " plans set\n",
	       r->hostile_acts, r->hostile_rounds, r->hostile_unexpected, r->driver_faults,
	       r->plan_changes);
	printf("engines: %" PRIu64 " tokens, %" PRIu64 " differ, %" PRIu64
	       " requests refused, %" PRIu64 " engines ended\n",
	       r->tokens, r->token_mismatches, r->refused, r->engine_ends);
	printf("pages: %" PRIu64 " read, %" PRIu64 " bytes of others in them, %" PRIu64
	       " bytes changed, %" PRIu64 " pages not free at the end, %" PRIu64
	       " connections lost\n",
	       r->pages_read, r->foreign_bytes, r->lost_bytes, r->pages_leaked,
	       r->canary_ends + r->witness_ends);
	printf("core answers again after %.1f ms (P50), %.1f ms (P99); xfer after %.1f, %.1f ms\n",
	       mm_series_percentile(&r->recovery_ms, 50), mm_series_percentile(&r->recovery_ms, 99),
	       mm_series_percentile(&r->xfer_recovery_ms, 50),
	       mm_series_percentile(&r->xfer_recovery_ms, 99));
	printf("engines' steps over those beside busy loops in place of hostile tenants: P50 %.3f, "
	       "P99 %.3f; over those of engines alone: %.3f, %.3f\n",
	       r->step_p50_ratio, r->stall_p99_ratio, r->step_p50_over_calm,
	       r->stall_p99_over_calm);
	if (*r->first)
		printf("first: %s\n", r->first);
}

int mm_chaos_print_json(const struct mm_chaos_result *r)
{
	const struct {
		const char *key;
		uint64_t value;
	} counts[] = {
		{ "schema", 1 },
		{ "tenant_kills", r->tenant_kills },
		{ "xfer_kills", r->xfer_kills },
		{ "core_kills", r->core_kills },
		{ "hostile_acts", r->hostile_acts },
		{ "driver_faults", r->driver_faults },
		{ "token_mismatches", r->token_mismatches },
		{ "pages_leaked", r->pages_leaked },
		{ "foreign_bytes_read", r->foreign_bytes },
		{ "tokens", r->tokens },
		{ "kills_missed", r->kills_missed },
		{ "pages_read", r->pages_read },
		{ "pages_unread", r->pages_unread },
		{ "hostile_rounds", r->hostile_rounds },
		{ "hostile_unexpected", r->hostile_unexpected },
		{ "plans_set", r->plan_changes },
		{ "requests_refused", r->refused },
		{ "engines_ended", r->engine_ends },
		{ "canaries_ended", r->canary_ends },
		{ "witnesses_ended", r->witness_ends },
		{ "bytes_changed", r->lost_bytes },
		{ "seed", r->seed },
	};
	mm_cleanup(mm_json_done) json_t *json = json_object();

	for (size_t i = 0; i < MM_ARRAY_SIZE(counts); i++)
		if (mm_json_put_u64(json, counts[i].key, counts[i].value))
			return -ENOMEM;
	if (mm_json_put_real(json, "recovery_p99_ms", mm_series_percentile(&r->recovery_ms, 99)) ||
	    mm_json_put_real(json, "recovery_p50_ms", mm_series_percentile(&r->recovery_ms, 50)) ||
	    mm_json_put_real(json, "xfer_recovery_p99_ms",
			     mm_series_percentile(&r->xfer_recovery_ms, 99)) ||
	    mm_json_put_real(json, "honest_stall_p99_ratio", r->stall_p99_ratio) ||
	    mm_json_put_real(json, "honest_step_p50_ratio", r->step_p50_ratio) ||
	    mm_json_put_real(json, "step_p50_over_calm", r->step_p50_over_calm) ||
	    mm_json_put_real(json, "stall_p99_over_calm", r->stall_p99_over_calm) ||
	    mm_json_put_real(json, "seconds", r->seconds) ||
	    mm_json_put_text(json, "first", r->first))
		return -ENOMEM;
	return mm_json_print(json, JSON_COMPACT);
}
