/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/print.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"
#include "libclient/support/size.h"

#define LABEL "  %-20s "

/* Formats a time with three or four digits, in the unit that suits it. */
static const char *seconds_text(double s, char text[32])
{
	if (s >= 100)
		snprintf(text, 32, "%.0f s", s);
	else if (s >= 1)
		snprintf(text, 32, "%.2f s", s);
	else if (s >= 1e-3)
		snprintf(text, 32, "%.2f ms", s * 1e3);
	else
		snprintf(text, 32, "%.0f us", s * 1e6);
	return text;
}

static void percentiles_print(FILE *out, const json_t *summary, const char *label, const char *what)
{
	static const int percents[] = { 50, 90, 99 };
	char key[40], text[32];

	fprintf(out, LABEL, label);
	for (size_t i = 0; i < MM_ARRAY_SIZE(percents); i++) {
		snprintf(key, sizeof(key), "%s_p%d_s", what, percents[i]);
		fprintf(out, "%12s", seconds_text(mm_json_real(summary, key), text));
	}
	fputc('\n', out);
}

static void served_print(FILE *out, const json_t *s)
{
	char duration[32];

	fprintf(out, "Served\n");
	fprintf(out,
		LABEL "%" PRIu64 " served in full, %" PRIu64 " refused, thrown out %" PRIu64
		      " times\n",
		"requests", mm_json_u64(s, "requests"), mm_json_u64(s, "refused"),
		mm_json_u64(s, "preemptions"));
	if (mm_json_u64(s, "cancelled"))
		fprintf(out, LABEL "%" PRIu64 " by clients that went away\n", "cancelled",
			mm_json_u64(s, "cancelled"));
	if (mm_json_u64(s, "slices"))
		fprintf(out, LABEL "%" PRIu64 " of these for requests that waited\n", "slices",
			mm_json_u64(s, "slices"));
	if (mm_json_u64(s, "requests_late"))
		fprintf(out, LABEL "%" PRIu64 " of them or of those refused\n", "late",
			mm_json_u64(s, "requests_late"));
	fprintf(out, LABEL "%" PRIu64 " in %s: %.1f tokens/s\n", "tokens", mm_json_u64(s, "tokens"),
		seconds_text(mm_json_real(s, "duration_s"), duration),
		mm_json_real(s, "throughput_tok_s"));
}

static void latency_print(FILE *out, const json_t *s)
{
	fprintf(out, "Latency %27s%12s%12s\n", "median", "P90", "P99");
	percentiles_print(out, s, "to the first token", "ttft");
	percentiles_print(out, s, "between tokens", "tbt");
	percentiles_print(out, s, "host between steps", "gap");
}

static void steps_print(FILE *out, const json_t *s)
{
	char mean[32];

	fprintf(out, "Steps\n");
	fprintf(out, LABEL "%" PRIu64 ", %s on average, at most %" PRIu64 " requests in one\n",
		"steps", mm_json_u64(s, "steps"),
		seconds_text(mm_json_real(s, "step_mean_s"), mean), mm_json_u64(s, "batch_max"));
	fprintf(out, LABEL "%" PRIu64 " tokens, those computed again included\n", "computed",
		mm_json_u64(s, "computed_tokens"));
	if (mm_json_u64(s, "steps_void") || mm_json_u64(s, "steps_broken"))
		fprintf(out, LABEL "%" PRIu64 ", of them broken off on purpose %" PRIu64 "\n",
			"repeated", mm_json_u64(s, "steps_void"), mm_json_u64(s, "steps_broken"));
	if (mm_json_u64(s, "graph_captures") || mm_json_u64(s, "graph_launches"))
		fprintf(out, LABEL "%" PRIu64 " captured, %" PRIu64 " launches\n", "graphs",
			mm_json_u64(s, "graph_captures"), mm_json_u64(s, "graph_launches"));
	if (mm_json_u64(s, "checksum_failures"))
		fprintf(out, LABEL "%" PRIu64 " LAYERS WITH WRONG BYTES\n", "checksums",
			mm_json_u64(s, "checksum_failures"));
}

static void kv_print(FILE *out, const json_t *s)
{
	char away[32], back[32], waited[32];

	fprintf(out, "KV memory\n");
	fprintf(out,
		LABEL "%" PRIu64 " held at most, %" PRIu64 " given back, %" PRIu64
		      " blocks moved to empty them\n",
		"chunks", mm_json_u64(s, "kv_chunks_max"), mm_json_u64(s, "kv_chunks_released"),
		mm_json_u64(s, "kv_blocks_moved"));
	if (mm_json_u64(s, "swapped_out_bytes") || mm_json_u64(s, "swapped_in_bytes") ||
	    mm_json_u64(s, "swaps_failed") || mm_json_real(s, "swap_total_s") > 0)
		fprintf(out, LABEL "%s out, %s in, waited %s for it, %" PRIu64 " copies failed\n",
			"to host memory", mm_size_print(mm_json_u64(s, "swapped_out_bytes"), away),
			mm_size_print(mm_json_u64(s, "swapped_in_bytes"), back),
			seconds_text(mm_json_real(s, "swap_total_s"), waited),
			mm_json_u64(s, "swaps_failed"));
	if (mm_json_u64(s, "cold_blocks"))
		fprintf(out,
			LABEL "%" PRIu64 " permille of what steps read, %" PRIu64
			      " at most at once, %" PRIu64 " blocks (%s) copied out\n",
			"cold", mm_json_u64(s, "cold_permille"), mm_json_u64(s, "cold_entries_max"),
			mm_json_u64(s, "cold_blocks"),
			mm_size_print(mm_json_u64(s, "cold_out_bytes"), away));
}

static void layers_print(FILE *out, const json_t *s)
{
	char held[32], waited[32];

	if (!mm_json_u64(s, "layers_remapped_max") && !mm_json_u64(s, "plan_changes") &&
	    !mm_json_u64(s, "gated_steps") && !(mm_json_real(s, "plan_held_s") > 0) &&
	    !(mm_json_real(s, "stall_total_s") > 0))
		return;
	fprintf(out, "Layers that mmd took %14s%12s%12s\n", "median", "P90", "P99");
	percentiles_print(out, s, "waited, per step", "stall");
	fprintf(out,
		LABEL "%s in all, in %" PRIu64 " steps with layers away (%" PRIu64 " measured)\n",
		"waited", seconds_text(mm_json_real(s, "stall_total_s"), waited),
		mm_json_u64(s, "gated_steps"), mm_json_u64(s, "stall_samples"));
	fprintf(out,
		LABEL "%" PRIu64 " away at most, %" PRIu64
		      " changes, which kept steps out for %s\n",
		"layers", mm_json_u64(s, "layers_remapped_max"), mm_json_u64(s, "plan_changes"),
		seconds_text(mm_json_real(s, "plan_held_s"), held));
}

static void weights_print(FILE *out, const json_t *s)
{
	char tensors[32], device[32], waste[32];

	if (!json_object_get(s, "weights_device_bytes"))
		return;
	fprintf(out, "Weights\n");
	fprintf(out, LABEL "%s in whole pages: %s of tensors, %s of rounding\n", "device memory",
		mm_size_print(mm_json_u64(s, "weights_device_bytes"), device),
		mm_size_print(mm_json_u64(s, "weights_tensor_bytes"), tensors),
		mm_size_print(mm_json_u64(s, "weights_waste_bytes"), waste));
}

void mm_print_summary(FILE *out, const json_t *summary)
{
	served_print(out, summary);
	latency_print(out, summary);
	steps_print(out, summary);
	kv_print(out, summary);
	layers_print(out, summary);
	weights_print(out, summary);
}
