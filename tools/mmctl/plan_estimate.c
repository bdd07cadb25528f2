/* SPDX-License-Identifier: Apache-2.0 */
/* plan_estimate - `mmctl plan estimate`: does it pay that layers are away, without a daemon */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/model/shapes.h"
#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"
#include "tools/mmctl/estimate.h"
#include "tools/mmserve/engine/config.h"

#define HEADROOM_BYTES (UINT64_C(1) << 30)

/* MODEL is a folder if it has a slash or is there, else a built-in shape. */
static int model_find(const char *name, struct mm_arch *ret_arch)
{
	const struct mm_shape *shape = strchr(name, '/') ? NULL : mm_shape_find(name);
	char err[MM_SERVE_ERROR_BYTES], names[MM_SHAPE_NAMES_BYTES];
	int r;

	if (shape) {
		*ret_arch = shape->arch;
		return MM_EXIT_DONE;
	}
	r = mm_config_load(name, ret_arch, err);
	if (!r)
		return MM_EXIT_DONE;
	mm_shape_names(names, sizeof(names));
	if (strchr(name, '/') || r != -ENOENT)
		return mmctl_error(MM_EXIT_FAILED, "%s", err);
	return mmctl_error(
		MM_EXIT_FAILED,
		"%s: neither a folder with config.json nor a model that is built in (%s)", name,
		names);
}

static json_t *point_json(const struct mmctl_estimate_point *p)
{
	json_t *json = json_object();

	mm_json_put_u64(json, "layers_away", p->away);
	mm_json_put_u64(json, "slots", p->slots);
	mm_json_put_u64(json, "requests", p->requests);
	mm_json_put_u64(json, "step_ns", p->step_ns);
	mm_json_put_real(json, "tokens_per_s", p->tokens);
	mm_json_put_real(json, "link_part", p->link);
	return json;
}

static json_t *row_json(const struct mmctl_estimate_row *row)
{
	json_t *json = json_object();

	mm_json_put_u64(json, "batch", row->batch);
	mm_json_put(json, "home", point_json(&row->home));
	mm_json_put(json, "chosen", point_json(&row->chosen));
	mm_json_put_u64(json, "layers_hidden", row->hidden);
	mm_json_put_real(json, "link_gbps_hidden", row->hidden_gbps);
	return json;
}

static int estimate_print_json(const struct mmctl_estimate *e, const char *model,
			       const struct mmctl_estimate_row *row, size_t n)
{
	mm_cleanup(mm_json_done) json_t *json = json_object();
	json_t *rows = json_array();

	mm_json_put_u64(json, "schema", 1);
	mm_json_put_text(json, "model", model);
	mm_json_put_text(json, "profile", e->profile.name);
	mm_json_put_u64(json, "layers", e->arch.layers);
	mm_json_put_u64(json, "layer_bytes", e->layer_bytes);
	mm_json_put_u64(json, "weight_bytes", e->weight_bytes);
	mm_json_put_u64(json, "pool_bytes", e->pool_pages * e->page_bytes);
	mm_json_put_u64(json, "kv_bytes", (e->pool_pages - e->weight_pages) * e->page_bytes);
	mm_json_put_u64(json, "host_bytes", e->weight_bytes);
	mm_json_put_u64(json, "context", e->context);
	mm_json_put_u64(json, "request_bytes", e->request_bytes);
	mm_json_put_u64(json, "transfer_ns", e->transfer_ns);
	mm_json_put_u64(json, "layers_most_one_slot", e->away_one);
	mm_json_put_u64(json, "layers_most_two_slots", e->away_two);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(rows, row_json(&row[i]));
	mm_json_put(json, "batches", rows);
	return mmctl_print_json(json);
}

static double gain_percent(const struct mmctl_estimate_row *row)
{
	return row->home.tokens > 0 ? 100 * (row->chosen.tokens / row->home.tokens - 1) : 0;
}

static void facts_print(const struct mmctl_estimate *e, const char *model)
{
	char size[4][MM_SIZE_TEXT_BYTES];

	printf("%s on %s, alone, requests of %" PRIu32 " tokens\n", model, e->profile.name,
	       e->context);
	printf("pool %s: weights %s, KV cache %s; host memory %s\n",
	       mm_size_print(e->pool_pages * e->page_bytes, size[0]),
	       mm_size_print(e->weight_pages * e->page_bytes, size[1]),
	       mm_size_print((e->pool_pages - e->weight_pages) * e->page_bytes, size[2]),
	       mm_size_print(e->weight_bytes, size[3]));
	printf("a layer: %s, %.2f ms over the link; at most %" PRIu32 " of %" PRIu32
	       " can be away\n\n",
	       mm_size_print(e->layer_bytes, size[0]), (double)e->transfer_ns / MM_NS_PER_MS,
	       e->away_one, e->arch.layers);
}

static void row_print(const struct mmctl_estimate_row *row)
{
	printf("%5" PRIu32 " %4" PRIu32 " %7.2f %7.0f | %4" PRIu32 " %5" PRIu32
	       " %7.2f %7.0f %+6.1f%% %3.0f%% | %3" PRIu32 " %4.0f\n",
	       row->batch, row->home.requests, (double)row->home.step_ns / MM_NS_PER_MS,
	       row->home.tokens, row->chosen.away, row->chosen.requests,
	       (double)row->chosen.step_ns / MM_NS_PER_MS, row->chosen.tokens, gain_percent(row),
	       100 * row->chosen.link, row->hidden, row->hidden_gbps);
}

/* The answer in a sentence: the batch that gains most. */
static void verdict_print(const struct mmctl_estimate *e, const struct mmctl_estimate_row *row,
			  size_t n)
{
	const struct mmctl_estimate_row *best = &row[0];
	char size[MM_SIZE_TEXT_BYTES];
	bool is_short = false;

	for (size_t i = 0; i < n; i++) {
		is_short |= row[i].home.requests < row[i].batch;
		if (gain_percent(&row[i]) > gain_percent(best))
			best = &row[i];
	}
	if (!is_short)
		puts("\nAll of these fit without any layer away: there is nothing to gain.");
	else if (best->chosen.away)
		printf("\nIt pays: with %" PRIu32 " requests mmd would have %" PRIu32
		       " layers away (%s for KV\ncache), %" PRIu32 " requests at once in place of "
		       "%" PRIu32 ", %.1f %% more tokens.\n",
		       best->batch, best->chosen.away,
		       mm_size_print(best->chosen.away * e->layer_pages * e->page_bytes, size),
		       best->chosen.requests, best->home.requests, gain_percent(best));
	else
		printf("\nIt does not pay for this model alone: its steps would be longer by more "
		       "than the\nKV cache gains. The link has %.0f GB/s; see GB/s for what hides "
		       "one layer. What it\nlends to others while it is idle costs it nothing.\n",
		       e->profile.h2d_bps / 1e9);
}

static void estimate_print(const struct mmctl_estimate *e, const char *model,
			   const struct mmctl_estimate_row *row, size_t n)
{
	facts_print(e, model);
	printf("%-26s | %-39s |\n", "all layers at home", "as mmd would choose");
	printf("%5s %4s %7s %7s | %4s %5s %7s %7s %7s %4s | %3s %4s\n", "BATCH", "FITS", "STEP ms",
	       "TOK/s", "AWAY", "FITS", "STEP ms", "TOK/s", "", "LINK", "HID", "GB/s");
	for (size_t i = 0; i < n; i++)
		row_print(&row[i]);
	puts("HID: layers that are away without a longer step; GB/s: of a link that hides one");
	verdict_print(e, row, n);
}

int mmctl_plan_estimate_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	struct mmctl_estimate e = { .page_bytes = o->estimate_page_bytes,
				    .context = (uint32_t)o->context };
	struct mmctl_estimate_row row[MMCTL_BATCHES_MAX];
	char err[MM_PROFILE_ERROR_BYTES];
	const char *why;
	int r = mm_profile_load(o->profile, &e.profile, err, sizeof(err));

	(void)argc;
	if (r)
		return mmctl_error(MM_EXIT_FAILED, "--profile: %s", err);
	r = model_find(argv[0], &e.arch);
	if (r != MM_EXIT_DONE)
		return r;
	e.pool_bytes = o->pool_bytes;
	if (o->pool_bytes == MMCTL_UNSET)
		e.pool_bytes =
			e.profile.memory_bytes - MM_MIN(e.profile.memory_bytes / 2, HEADROOM_BYTES);
	why = mmctl_estimate_begin(&e);
	if (why)
		return mmctl_error(MM_EXIT_FAILED, "%s: %s", argv[0], why);
	for (size_t i = 0; i < o->n_batches; i++)
		mmctl_estimate_row(&e, (uint32_t)o->batch[i], &row[i]);
	if (ctl->json)
		return estimate_print_json(&e, argv[0], row, o->n_batches);
	estimate_print(&e, argv[0], row, o->n_batches);
	return MM_EXIT_DONE;
}
