/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "libclient/base/base.h"
#include "mmd/config/config.h"
#include "libclient/support/json.h"
#include "tools/lab/common/device.h"
#include "tools/lab/mmbench/verdict.h"

#define MIB (1024.0 * 1024.0)

static void run_print(const struct mm_run_result *r)
{
	const struct mm_latency *l = &r->latency;

	printf("%-10s %5" PRIu64 " %7" PRIu64 " %8.1f %8.3f %8.3f %8.4f %8.4f %8" PRIu64
	       " %6" PRIu64 " %9.1f %9.4f %8.1f\n",
	       mm_policy_name(r->policy), l->requests, l->tokens, l->throughput_tok_s,
	       l->ttft_p50_s, l->ttft_p99_s, l->tbt_p50_s, l->tbt_p99_s, r->preemptions,
	       r->layers_remapped_max, (double)r->bytes_streamed / MIB, r->stall_p99_s,
	       (double)(r->swapped_out_bytes + r->swapped_in_bytes) / MIB);
}

void mm_report_table(const struct mm_report *report)
{
	const struct mm_bench_opts *opts = report->opts;

	printf("%u %s%s, %u tenants, pool %.1f MiB in pages of %.0f KiB, KV share %.1f MiB, "
	       "seed %" PRIu64 "\n\n",
	       opts->devices, mm_device_is_software(opts->driver) ? "software GPU" : "GPU",
	       opts->devices > 1 ? "s" : "", opts->shape.tenants, (double)report->pool_bytes / MIB,
	       (double)opts->page_bytes / 1024, (double)report->kv_share_bytes / MIB,
	       opts->shape.seed);
	printf("%-10s %5s %7s %8s %8s %8s %8s %8s %8s %6s %9s %9s %8s\n", "policy", "reqs",
	       "tokens", "tok/s", "TTFT p50", "p99 s", "TBT p50", "p99 s", "preempt.", "layers",
	       "streamed", "stall p99", "swapped");
	for (uint32_t i = 0; i < opts->n_policies; i++)
		run_print(&report->result[i]);
	printf("\n"
	       "layers: most given away at one time; streamed, swapped: MiB; stall: s per step\n");
	printf("tokens that differ between policies: %" PRIu64 "\n", report->token_mismatches);
	if (opts->verify)
		printf("layers with wrong bytes where they were used: %" PRIu64 "\n",
		       report->checksum_failures);
	mm_verdict_print(stdout, report);
}

/* Adds the counts of swapping to @json, which is taken over and may be NULL. */
static json_t *swapped_json(json_t *json, const struct mm_run_result *r)
{
	if (!mm_json_put_u64(json, "swapped_out_bytes", r->swapped_out_bytes) &&
	    !mm_json_put_u64(json, "swapped_in_bytes", r->swapped_in_bytes))
		return json;
	json_decref(json);
	return NULL;
}

static json_t *result_json(const struct mm_run_result *r)
{
	const struct mm_latency *l = &r->latency;
	json_t *json = json_pack(
		"{s:I s:I s:f s:f s:f s:f s:f s:I s:I s:I}", "requests", (json_int_t)l->requests,
		"tokens", (json_int_t)l->tokens, "throughput_tok_s", l->throughput_tok_s,
		"ttft_p50_s", l->ttft_p50_s, "ttft_p99_s", l->ttft_p99_s, "tbt_p50_s", l->tbt_p50_s,
		"tbt_p99_s", l->tbt_p99_s, "preemptions", (json_int_t)r->preemptions, "steps",
		(json_int_t)r->steps, "checksum_failures", (json_int_t)r->checksum_failures);

	if (!json || r->policy == MM_POLICY_SWAP)
		return swapped_json(json, r);
	if (r->policy != MM_POLICY_REMAP)
		return json;
	if (mm_json_put_u64(json, "layers_remapped_max", r->layers_remapped_max) ||
	    mm_json_put_u64(json, "bytes_streamed", r->bytes_streamed) ||
	    mm_json_put_u64(json, "plan_changes", r->plan_changes) ||
	    mm_json_put_real(json, "stall_p99_s", r->stall_p99_s)) {
		json_decref(json);
		return NULL;
	}
	return json;
}

static json_t *runs_json(const struct mm_report *report)
{
	mm_cleanup(mm_json_done) json_t *results = json_object();

	for (uint32_t i = 0; i < report->opts->n_policies; i++) {
		const struct mm_run_result *r = &report->result[i];

		if (mm_json_put(results, mm_policy_name(r->policy), result_json(r)))
			return NULL;
	}
	return mm_json_take(&results);
}

int mm_report_json(const struct mm_report *report)
{
	const struct mm_run_result *base = &report->result[mm_verdict_base(report)];
	const struct mm_bench_opts *opts = report->opts;
	struct utsname host;
	mm_cleanup(mm_json_done) json_t *json = NULL;

	uname(&host);
	json = json_pack(
		"{s:i s:s s:s s:i s:i s:I s:I s:o s:I s:I s:I s:I s:i s:b s:s s:s s:s s:s}",
		"schema", 1, "device", opts->driver, "mode", "functional", "devices",
		(int)opts->devices, "tenants", (int)opts->shape.tenants, "token_mismatches",
		(json_int_t)report->token_mismatches, "checksum_failures",
		(json_int_t)report->checksum_failures, "results", runs_json(report), "seed",
		(json_int_t)opts->shape.seed, "pool_bytes", (json_int_t)report->pool_bytes,
		"page_bytes", (json_int_t)opts->page_bytes, "kv_share_bytes",
		(json_int_t)report->kv_share_bytes, "repeat", (int)opts->repeat, "verify",
		(int)opts->verify, "version", MM_VERSION, "commit", MM_COMMIT, "machine",
		host.machine, "kernel", host.release);
	if (mm_json_put_text(json, "ratios_to", mm_policy_name(base->policy)) ||
	    mm_json_put(json, "ratios", mm_verdict_json(report)))
		return -ENOMEM;
	return mm_json_print(json, JSON_COMPACT);
}

int mm_report_end(int r)
{
	if (!r && (fflush(stdout) || ferror(stdout)))
		r = errno ? -errno : -EIO;
	if (r)
		fprintf(stderr, "mmbench: the report: %s\n", strerror(-r));
	return r;
}
