/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/grant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"
#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "tools/lab/common/series.h"
#include "tools/lab/hostile/raw.h"
#include "tools/lab/mmbench/arena.h"
#include "tools/lab/mmbench/honest.h"
#include "tools/lab/mmbench/report.h"

#define GOAL        1.02
#define PAGE_BYTES  (UINT64_C(64) << 10)
#define POOL_BYTES  (UINT64_C(16) << 20) /* of the engines */
#define LAYERS_AWAY 4
#define WARM        50 /* grants that do not count */
#define PATIENCE_NS (180 * MM_NS_PER_S)
#define GAPS_MAX    1000000
#define STEPS_LEAST 400 /* a request reports its steps when it ends */
#define GAPS_LEAST  100

enum side_kind { SIDE_KEPT, SIDE_AGAIN, SIDE_UNKEPT, SIDES };

static const char *const side_programs[SIDES] = { [SIDE_UNKEPT] = "mmd-unkept" };

struct side { /* one mmd, and who measures it */
	struct mm_arena arena;
	struct mm_raw tenant;
	struct mm_honest engine;
	struct mm_series grant_ns, back_ns; /* of this round */
	uint64_t core_ns;
};

struct figure { /* a value of each round */
	struct mm_series value[SIDES];
};

struct grant_bench {
	const struct mm_grant_opts *opts;
	struct side side[SIDES];
	char err[MM_SERVE_ERROR_BYTES];
	uint64_t random;
	struct figure grant_p50, grant_mean, back_p50, core, step_p50, step_mean;
};

static int bench_fail(struct grant_bench *b, int error, const char *what)
{
	snprintf(b->err, sizeof(b->err), "%s: %s", what, strerror(-error));
	return error;
}

/* ---- mmds ---- */

/* All mmd end in order before the first arena ends whatever is left. */
static void sides_close(struct grant_bench *b)
{
	for (size_t i = 0; i < SIDES; i++) {
		mm_honest_done(&b->side[i].engine);
		mm_raw_done(&b->side[i].tenant);
		mm_bench_mmd_stop(&b->side[i].arena.mmd);
	}
	for (size_t i = 0; i < SIDES; i++) {
		struct side *s = &b->side[i];

		mm_arena_close(&s->arena);
		mm_series_done(&s->grant_ns);
		mm_series_done(&s->back_ns);
		*s = (struct side){ .arena = { .mmd = { .rpc = -1 }, .signals = -1 } };
	}
}

static int sides_open(struct grant_bench *b, uint64_t pool_bytes)
{
	for (size_t i = 0; i < SIDES; i++) {
		struct side *s = &b->side[i];
		const struct mm_arena_opts opts = { .pool_bytes = pool_bytes,
						    .page_bytes = PAGE_BYTES,
						    .seed = b->opts->seed,
						    .program = side_programs[i] };
		int r;

		*s = (struct side){ 0 };
		r = mm_arena_open(&s->arena, &opts);
		if (r) {
			snprintf(b->err, sizeof(b->err), "%s", s->arena.err);
			return r;
		}
	}
	return 0;
}

/* ---- grants ---- */

static int tenant_join(struct grant_bench *b, struct side *s)
{
	int r = mm_raw_open(&s->tenant, s->arena.mmd.socket, "taker", MM_FEAT_RESUME);

	s->tenant.acks = true;
	if (!r)
		r = mm_raw_op(&s->tenant, MM_OP_KV_DECLARE, PAGE_BYTES, 1, b->opts->pages, 0);
	return r ? bench_fail(b, r, "a tenant cannot join") : 0;
}

/* Asks for all pages of the pool, and waits until it holds them. */
static int pages_take(struct mm_raw *raw, uint32_t pages)
{
	struct mm_msg event = { 0 };
	int r = mm_raw_op(raw, MM_OP_KV_WANT, pages, 0, 0, 0);

	for (uint32_t n = 0; !r && n < pages; n += !r)
		r = mm_raw_await(raw, MM_EV_KV_GRANT, &event, PATIENCE_NS);
	return r;
}

/* Gives them back, and waits for the last answer. */
static int pages_give(struct mm_raw *raw, uint32_t pages)
{
	struct mm_msg event = { 0 };
	int r;

	mm_raw_drop_fds(raw);
	r = mm_raw_op(raw, MM_OP_KV_WANT, 0, 0, 0, 0);
	for (uint32_t chunk = 0; !r && chunk < pages; chunk++)
		r = mm_raw_op(raw, MM_OP_KV_RELEASE, chunk, 0, 0, 0);
	for (uint32_t n = 0; !r && n < pages;) {
		r = mm_raw_await(raw, MM_EV_REPLY, &event, PATIENCE_NS);
		n += !r && event.arg[0] == MM_OP_KV_RELEASE;
		r = r ? r : event.result;
	}
	return r;
}

static int grant_once(struct grant_bench *b, struct side *s, bool counts)
{
	const uint32_t pages = b->opts->pages;
	const uint64_t began_ns = mm_now_ns();
	uint64_t held_ns;
	int r = pages_take(&s->tenant, pages);

	held_ns = mm_now_ns();
	if (!r)
		r = pages_give(&s->tenant, pages);
	if (r)
		return bench_fail(b, r, "a grant");
	if (counts) {
		mm_series_add(&s->grant_ns, (double)(held_ns - began_ns) / pages);
		mm_series_add(&s->back_ns, (double)(mm_now_ns() - held_ns) / pages);
	}
	return 0;
}

/* One in each mmd, in an order of its own, so that what one leaves in caches meets all. */
static int grants_each(struct grant_bench *b, bool counts)
{
	size_t order[SIDES] = { SIDE_KEPT, SIDE_AGAIN, SIDE_UNKEPT };
	int r = 0;

	for (size_t left = SIDES; !r && left; left--) {
		const size_t at = mm_random_below(&b->random, left), side = order[at];

		order[at] = order[left - 1];
		r = grant_once(b, &b->side[side], counts);
	}
	return r;
}

/* The processor time that core has taken in all; waiting for a processor is not in it. */
static uint64_t core_time_ns(const struct side *s)
{
	mm_cleanup(mm_close_file) FILE *file = NULL;
	unsigned long long ns = 0;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)mm_arena_role(&s->arena, "core"));
	file = fopen(path, "re");
	return file && fscanf(file, "%llu", &ns) == 1 ? ns : 0;
}

static double series_mean(const struct mm_series *series)
{
	double sum = 0;

	for (uint32_t i = 0; i < series->n; i++)
		sum += series->at[i];
	return series->n ? sum / series->n : 0;
}

static int grants_measure(struct grant_bench *b)
{
	int r = sides_open(b, b->opts->pages * PAGE_BYTES);

	for (size_t i = 0; !r && i < SIDES; i++)
		r = tenant_join(b, &b->side[i]);
	for (uint32_t n = 0; !r && n < WARM; n++)
		r = grants_each(b, false);
	for (size_t i = 0; i < SIDES; i++)
		b->side[i].core_ns = core_time_ns(&b->side[i]);
	for (uint32_t n = 0; !r && n < b->opts->grants; n++)
		r = grants_each(b, true);
	for (size_t i = 0; !r && i < SIDES; i++) {
		const struct side *s = &b->side[i];
		const uint64_t core_ns = core_time_ns(s) - s->core_ns;

		mm_series_add(&b->grant_p50.value[i], mm_series_summary(&s->grant_ns).median);
		mm_series_add(&b->grant_mean.value[i], series_mean(&s->grant_ns));
		mm_series_add(&b->back_p50.value[i], mm_series_summary(&s->back_ns).median);
		mm_series_add(&b->core.value[i],
			      (double)core_ns / b->opts->grants / b->opts->pages);
	}
	sides_close(b);
	return r;
}

/* ---- steps ---- */

/*
 * Lets all engines go on until each serves and has @steps steps, and until @until_ns. Return: 0;
 * negative errno.
 */
static int engines_run(struct grant_bench *b, uint64_t until_ns, size_t steps)
{
	const uint64_t by_ns = MM_MAX(until_ns, mm_now_ns()) + PATIENCE_NS;

	for (size_t ready = 0; ready < SIDES || mm_now_ns() < until_ns;) {
		ready = 0;

		for (size_t i = 0; i < SIDES; i++) {
			struct side *s = &b->side[i];
			int r = mm_arena_pause(&s->arena, 2);

			if (!r)
				r = mm_honest_poll(&s->engine, s->arena.err);
			if (r < 0) {
				snprintf(b->err, sizeof(b->err), "%s", s->arena.err);
				return r;
			}
			ready += r == 1 && s->engine.n_gaps >= steps;
		}
		if (mm_now_ns() > by_ns)
			return bench_fail(b, -ETIMEDOUT, "engines");
	}
	return 0;
}

static int engine_begin(struct grant_bench *b, struct side *s)
{
	int r = mm_arena_enter(&s->arena);

	if (!r)
		r = mm_honest_init(&s->engine, &s->arena, "engine", b->opts->seed, b->err);
	return r ? r : mm_honest_start(&s->engine, b->err);
}

/* A step waits for layers that follow each other in a slot, as they do where memory is short. */
static int engine_plan(struct grant_bench *b, struct side *s)
{
	mm_cleanup(mm_json_done) json_t *done = NULL;
	json_t *params = json_pack("{s:s,s:i,s:i}", "name", s->engine.name, "layers", LAYERS_AWAY,
				   "slots", 1);
	int r = mm_arena_request(&s->arena, "plan.set", params, &done);

	if (r)
		snprintf(b->err, sizeof(b->err), "%s", s->arena.err);
	return r;
}

static int steps_count(struct grant_bench *b, uint64_t from_ns, uint64_t to_ns)
{
	mm_cleanup(mm_free_ptr) double *gap = calloc(GAPS_MAX, sizeof(*gap));

	if (!gap)
		return -ENOMEM;
	for (size_t i = 0; i < SIDES; i++) {
		const struct mm_honest *engine = &b->side[i].engine;
		const size_t n = mm_honest_gaps(engine, from_ns, to_ns, gap, GAPS_MAX);
		double sum = 0;

		if (engine->mismatches || engine->refused)
			return bench_fail(b, -EBADMSG, "tokens of an engine");
		if (n < GAPS_LEAST)
			return bench_fail(b, -ENODATA, "steps of an engine: there are too few");
		for (size_t k = 0; k < n; k++)
			sum += gap[k];
		mm_series_add(&b->step_p50.value[i], mm_percentile(gap, n, 50) * 1e9);
		mm_series_add(&b->step_mean.value[i], sum / (double)n * 1e9);
	}
	return 0;
}

static int grant_steps_measure(struct grant_bench *b)
{
	uint64_t from_ns = 0, to_ns = 0;
	size_t before = 0;
	int r = sides_open(b, POOL_BYTES);

	for (size_t i = 0; !r && i < SIDES; i++)
		r = engine_begin(b, &b->side[i]);
	if (!r)
		r = engines_run(b, 0, 0);
	for (size_t i = 0; !r && i < SIDES; i++)
		r = engine_plan(b, &b->side[i]);
	for (size_t i = 0; i < SIDES; i++)
		before = MM_MAX(before, b->side[i].engine.n_gaps);
	if (!r) {
		from_ns = mm_now_ns();
		to_ns = from_ns + (uint64_t)(b->opts->seconds * 1e9);
		r = engines_run(b, to_ns, before + STEPS_LEAST);
	}
	if (!r)
		r = steps_count(b, from_ns, MM_MAX(to_ns, mm_now_ns()));
	sides_close(b);
	return r;
}

/* ---- the report ---- */

struct figure_row {
	const char *key, *text;
	const struct figure *figure;
};

#define FIGURES 6

static void figures_list(const struct grant_bench *b, struct figure_row into[FIGURES])
{
	const struct figure_row rows[FIGURES] = {
		{ "grant", "grant, P50", &b->grant_p50 },
		{ "grant_mean", "grant, mean", &b->grant_mean },
		{ "give_back", "giving back, P50", &b->back_p50 },
		{ "core", "core's time", &b->core },
		{ "step", "step, P50", &b->step_p50 },
		{ "step_mean", "step, mean", &b->step_mean },
	};

	memcpy(into, rows, sizeof(rows));
}

static struct mm_summary figure_ratio(const struct figure *figure, enum side_kind side)
{
	return mm_series_pairs(&figure->value[side], &figure->value[SIDE_UNKEPT]);
}

/*
 * The ratio of a grant with giving back by what core's processor time adds to it: what else the
 * machine does moves the time that a tenant waits by more than a journal costs.
 */
static double grant_by_core(const struct grant_bench *b)
{
	const double unkept_ns = mm_series_summary(&b->grant_p50.value[SIDE_UNKEPT]).median +
				 mm_series_summary(&b->back_p50.value[SIDE_UNKEPT]).median;
	const double core_ns = mm_series_summary(&b->core.value[SIDE_UNKEPT]).median;
	const double ratio = (figure_ratio(&b->core, SIDE_KEPT).median +
			      figure_ratio(&b->core, SIDE_AGAIN).median) /
			     2;

	return unkept_ns > 0 ? 1 + core_ns * (ratio - 1) / unkept_ns : 0;
}

static int grant_json(const struct grant_bench *b)
{
	mm_cleanup(mm_json_done) json_t *all = NULL;
	struct figure_row rows[FIGURES];
	json_t *figures = json_object();

	figures_list(b, rows);
	for (size_t i = 0; i < FIGURES; i++) {
		const struct figure *f = rows[i].figure;
		const struct mm_summary kept = figure_ratio(f, SIDE_KEPT);
		const struct mm_summary again = figure_ratio(f, SIDE_AGAIN);
		const struct mm_summary same =
			mm_series_pairs(&f->value[SIDE_KEPT], &f->value[SIDE_AGAIN]);

		mm_json_put(figures, rows[i].key,
			    json_pack("{sf sf sf sf sf sf}", "unkept_ns",
				      mm_series_summary(&f->value[SIDE_UNKEPT]).median, "ratio",
				      (kept.median + again.median) / 2, "ratio_p10",
				      MM_MIN(kept.p10, again.p10), "ratio_p90",
				      MM_MAX(kept.p90, again.p90), "same_p10", same.p10, "same_p90",
				      same.p90));
	}
	all = json_pack("{si sI sI sI sf sf so}", "schema", 1, "rounds",
			(json_int_t)b->opts->rounds, "grants", (json_int_t)b->opts->grants, "pages",
			(json_int_t)b->opts->pages, "goal", GOAL, "grant_by_core", grant_by_core(b),
			"figures", figures);
	return all ? mm_json_print(all, JSON_COMPACT | JSON_REAL_PRECISION(6)) : -ENOMEM;
}

static void grant_table(const struct grant_bench *b)
{
	struct figure_row rows[FIGURES];

	printf("%u rounds, %u grants of %u pages in each; per page, and per step\n\n",
	       b->opts->rounds, b->opts->grants, b->opts->pages);
	printf("%-18s %12s %8s %15s %19s\n", "", "without, us", "ratio", "of rounds",
	       "of two that are kept");
	figures_list(b, rows);
	for (size_t i = 0; i < FIGURES; i++) {
		const struct figure *f = rows[i].figure;
		const struct mm_summary kept = figure_ratio(f, SIDE_KEPT);
		const struct mm_summary again = figure_ratio(f, SIDE_AGAIN);
		const struct mm_summary same =
			mm_series_pairs(&f->value[SIDE_KEPT], &f->value[SIDE_AGAIN]);

		printf("%-18s %12.2f %8.3f %7.3f-%-7.3f %11.3f-%-7.3f\n", rows[i].text,
		       mm_series_summary(&f->value[SIDE_UNKEPT]).median / 1e3,
		       (kept.median + again.median) / 2, MM_MIN(kept.p10, again.p10),
		       MM_MAX(kept.p90, again.p90), same.p10, same.p90);
	}
	printf("\nratio: with a journal and images, over without; goal: at most %.2f\n"
	       "a grant with giving back, by the processor time that core takes more: %.4f\n",
	       GOAL, grant_by_core(b));
}

/* ---- the command ---- */

static void figure_done(struct figure *figure)
{
	for (size_t i = 0; i < SIDES; i++)
		mm_series_done(&figure->value[i]);
}

int mm_bench_grant(const struct mm_grant_opts *opts)
{
	struct grant_bench *b = calloc(1, sizeof(*b));
	int r = b ? 0 : -ENOMEM;

	if (r) {
		fputs("mmbench: grant: out of memory\n", stderr);
		return MM_EXIT_FAILED;
	}
	b->opts = opts;
	b->random = mm_random_seed(opts->seed, 'g', 'r');
	for (uint32_t i = 0; !r && i < opts->rounds; i++) {
		r = grants_measure(b);
		if (!r)
			r = grant_steps_measure(b);
	}
	if (r)
		fprintf(stderr, "mmbench: grant: %s\n", *b->err ? b->err : strerror(-r));
	else if (!opts->json)
		grant_table(b);
	if (!r)
		r = mm_report_end(opts->json ? grant_json(b) : 0);
	figure_done(&b->grant_p50);
	figure_done(&b->grant_mean);
	figure_done(&b->back_p50);
	figure_done(&b->core);
	figure_done(&b->step_p50);
	figure_done(&b->step_mean);
	free(b);
	return r ? MM_EXIT_FAILED : MM_EXIT_DONE;
}

#define AT(field) MM_OPT_AT(struct mm_grant_opts, field)

const struct mm_opt mm_grant_options[] = {
	{ "rounds", "N", "times that all is started anew", MM_OPT_NUMBER, AT(rounds),
	  .preset = "10", .min = 1, .max = 1000 },
	{ "grants", "N", "in each round and each mmd", MM_OPT_NUMBER, AT(grants), .preset = "1000",
	  .min = 10, .max = 1000000 },
	{ "pages", "N", "that are asked for at once: all of the pool", MM_OPT_NUMBER, AT(pages),
	  .preset = "1", .min = 1, .max = 1000 },
	{ "seconds", "S", "of steps in each round", MM_OPT_REAL, AT(seconds), .preset = "4",
	  .least = 0.5, .most = 3600, .unit = "s" },
	{ "seed", "N", "of the model and the prompts", MM_OPT_NUMBER, AT(seed), .preset = "1",
	  .max = UINT32_MAX },
	{ "json", NULL, "print one JSON object instead of the table", MM_OPT_FLAG, AT(json) },
	{ 0 },
};
