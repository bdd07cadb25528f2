/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/hostile.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "tools/lab/hostile/busy.h"
#include "tools/lab/hostile/perform.h"
#include "tools/lab/mmbench/arena.h"
#include "tools/lab/mmbench/honest.h"
#include "tools/lab/mmbench/report.h"

/* The act, the loops, the loops, the act, and so on: what drifts counts for both. */
#define PARTS        4
#define PARTS_MAX    64
#define PART_S       1.0 /* of more seconds there are more parts */
#define GAPS_MAX     100000
#define GAPS_LEAST   40 /* fewer say nothing */
#define POOL_BYTES   (UINT64_C(24) << 20)
#define PAGE_BYTES   (UINT64_C(64) << 10)
#define HONEST_BYTES (UINT64_C(8) << 20)
#define FLOOD_NS     (100 * MM_NS_PER_MS)
#define PATIENCE_NS  (130 * MM_NS_PER_S)
#define READY_NS     (180 * MM_NS_PER_S)
#define HOSTILE_UID  61001
#define GOAL         1.1

struct part {
	uint64_t from_ns, to_ns;
};

struct trial { /* one act */
	const struct mm_act *act;
	struct mm_act_tally tally;
	struct part part[PARTS_MAX];
	size_t parts;
	double share; /* of a processor, that the tenant took */
	uint64_t tokens, mismatches;
	double p50_ratio, p99_ratio; /* NAN: there were too few steps */
};

struct hostile {
	struct mm_hostile_opts opts;
	struct mm_arena arena;
	struct mm_honest honest;
	struct trial trial[MM_ACTS_MAX];
	size_t n;
};

/* ---- measuring ---- */

/* Lets the engine go on for a while. Return: 0; negative errno, with a sentence in the arena. */
static int hostile_wait(struct hostile *h, uint64_t until_ns)
{
	int r = 0;

	while (r >= 0 && mm_now_ns() < until_ns) {
		r = mm_arena_pause(&h->arena, 10);
		if (!r)
			r = mm_honest_poll(&h->honest, h->arena.err);
		if (r == -ENODATA)
			r = mm_honest_start(&h->honest, h->arena.err);
	}
	return r < 0 ? r : 0;
}

static int engine_await(struct hostile *h)
{
	const uint64_t by_ns = mm_now_ns() + READY_NS;
	int r = mm_honest_start(&h->honest, h->arena.err);

	while (!r && mm_now_ns() < by_ns) {
		r = mm_arena_pause(&h->arena, 10);
		if (!r)
			r = mm_honest_poll(&h->honest, h->arena.err);
	}
	return r == 1 ? 0 : r < 0 ? r : -ETIMEDOUT;
}

/* Whatever the act left behind: its pages are free again, as far as they are not the engine's. */
static int part_act(struct hostile *h, struct trial *trial, struct part *part, uint64_t part_ns)
{
	const struct mm_performer_opts opts = {
		.socket = h->arena.mmd.socket,
		.scratch = h->arena.scratch,
		.seed = h->opts.seed + (uint64_t)(part - trial->part),
		.flood_ns = MM_MIN(FLOOD_NS, part_ns),
		.uid = HOSTILE_UID + (uint32_t)h->n,
		.act = trial->act,
	};
	struct mm_performer performer;
	size_t index = 0;
	int r;

	while (mm_act_at(index) != trial->act)
		index++;
	part->from_ns = mm_now_ns();
	r = mm_performer_start(&performer, &opts);
	if (!r)
		r = hostile_wait(h, part->from_ns + part_ns);
	part->to_ns = mm_now_ns();
	mm_performer_stop(&performer, PATIENCE_NS);
	/* Its last round may take longer than the part: all that it took is for all that time. */
	trial->share = MM_MAX(trial->share,
			      (double)performer.cpu_ns / (double)(mm_now_ns() - part->from_ns));
	if (performer.shared) {
		struct mm_act_tally *from = &performer.shared->tally[index];

		trial->tally.rounds += from->rounds;
		trial->tally.operations += from->operations;
		trial->tally.unexpected += from->unexpected;
		trial->tally.skipped += from->skipped;
		trial->tally.outcomes |= from->outcomes;
		if (!*trial->tally.text)
			memcpy(trial->tally.text, from->text, sizeof(from->text));
	}
	mm_performer_done(&performer);
	return r;
}

static int part_busy(struct hostile *h, const struct trial *trial, struct part *part,
		     uint64_t part_ns)
{
	struct mm_busy busy;
	int r = mm_busy_start(&busy, trial->share);

	part->from_ns = mm_now_ns();
	if (!r)
		r = hostile_wait(h, part->from_ns + part_ns);
	part->to_ns = mm_now_ns();
	mm_busy_stop(&busy);
	return r;
}

static bool part_is_act(size_t i)
{
	return i % PARTS == 0 || i % PARTS == PARTS - 1;
}

static int trial_run(struct hostile *h, struct trial *trial)
{
	const double turns = MM_MIN(h->opts.seconds / (PARTS * PART_S), PARTS_MAX / PARTS);
	const uint64_t tokens = h->honest.tokens, mismatches = h->honest.mismatches;
	uint64_t part_ns;
	int r = 0;

	trial->parts = PARTS * MM_MAX((size_t)turns, 1u);
	part_ns = (uint64_t)(h->opts.seconds * 1e9) / trial->parts;
	for (size_t i = 0; i < trial->parts && !r; i++)
		r = part_is_act(i) ? part_act(h, trial, &trial->part[i], part_ns)
				   : part_busy(h, trial, &trial->part[i], part_ns);
	trial->tokens = h->honest.tokens - tokens;
	trial->mismatches = h->honest.mismatches - mismatches;
	return r;
}

/* Percentiles of the steps in all parts of one kind together. Return: false: too few steps. */
static bool parts_percentiles(const struct hostile *h, const struct trial *trial, bool act,
			      double *ret_p50, double *ret_p99)
{
	mm_cleanup(mm_free_ptr) double *gap = calloc(GAPS_MAX, sizeof(*gap));
	size_t n = 0;

	if (!gap)
		return false;
	for (size_t i = 0; i < trial->parts; i++)
		if (part_is_act(i) == act)
			n += mm_honest_gaps(&h->honest, trial->part[i].from_ns,
					    trial->part[i].to_ns, gap + n, GAPS_MAX - n);
	*ret_p50 = mm_percentile(gap, n, 50);
	*ret_p99 = mm_percentile(gap, n, 99);
	return n >= GAPS_LEAST;
}

static void trial_judge(const struct hostile *h, struct trial *trial)
{
	double act50, act99, busy50, busy99;
	const bool both = parts_percentiles(h, trial, true, &act50, &act99) &&
			  parts_percentiles(h, trial, false, &busy50, &busy99);

	trial->p50_ratio = both ? act50 / busy50 : NAN;
	trial->p99_ratio = both ? act99 / busy99 : NAN;
}

static void hostile_progress(const struct hostile *h, const struct trial *trial)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%3zu %-20s %-8s %10" PRIu64 " tokens   ", h->n, trial->act->name,
			mm_act_outcome_name(trial->tally.outcomes), h->honest.tokens);
}

static int hostile_measure(struct hostile *h)
{
	const struct mm_act *act;
	int r = 0;

	for (size_t i = 0; !r && (act = mm_act_at(i)); i++) {
		struct trial *trial = &h->trial[h->n];

		if (!mm_act_is_listed(act, h->opts.act))
			continue;
		trial->act = act;
		hostile_progress(h, trial);
		r = trial_run(h, trial);
		h->n++;
	}
	/* Requests that run now have steps in the last part. */
	if (!r)
		r = hostile_wait(h, mm_now_ns() + MM_NS_PER_S / 2);
	if (isatty(STDERR_FILENO))
		fputc('\n', stderr);
	mm_honest_stop(&h->honest);
	for (size_t i = 0; i < h->n; i++)
		trial_judge(h, &h->trial[i]);
	return r;
}

/* ---- the report ---- */

static void outcomes_text(unsigned int outcomes, char *text, size_t bytes)
{
	size_t at = 0;

	*text = '\0';
	for (unsigned int bit = 1; bit <= MM_ACT_FAILED; bit <<= 1) {
		if (outcomes & bit && at < bytes)
			at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? "|" : "",
					       mm_act_outcome_name(bit));
	}
}

static json_t *trial_json(const struct trial *t)
{
	char outcome[96], expected[96];
	json_t *json = json_object();

	outcomes_text(t->tally.outcomes, outcome, sizeof(outcome));
	outcomes_text(t->act->expected, expected, sizeof(expected));
	if (mm_json_put_text(json, "act", t->act->name) ||
	    mm_json_put_text(json, "outcome", outcome) ||
	    mm_json_put_text(json, "expected", expected) ||
	    mm_json_put_text(json, "text", t->tally.text) ||
	    mm_json_put_u64(json, "rounds", t->tally.rounds) ||
	    mm_json_put_u64(json, "operations", t->tally.operations) ||
	    mm_json_put_u64(json, "unexpected", t->tally.unexpected) ||
	    mm_json_put_u64(json, "skipped", t->tally.skipped) ||
	    mm_json_put_real(json, "processors", t->share) ||
	    mm_json_put_u64(json, "tokens", t->tokens) ||
	    mm_json_put_u64(json, "token_mismatches", t->mismatches) ||
	    mm_json_put(json, "step_p50_ratio",
			isnan(t->p50_ratio) ? json_null() : json_real(t->p50_ratio)) ||
	    mm_json_put(json, "stall_p99_ratio",
			isnan(t->p99_ratio) ? json_null() : json_real(t->p99_ratio))) {
		json_decref(json);
		return NULL;
	}
	return json;
}

static uint64_t unexpected_sum(const struct hostile *h)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < h->n; i++)
		sum += h->trial[i].tally.unexpected;
	return sum;
}

static int hostile_json(const struct hostile *h, uint64_t leaked)
{
	mm_cleanup(mm_json_done) json_t *json = json_object();
	json_t *acts = json_array();
	uint64_t within = 0, measured = 0;
	double worst = 0;

	for (size_t i = 0; i < h->n; i++) {
		const double ratio = h->trial[i].p50_ratio;

		json_array_append_new(acts, trial_json(&h->trial[i]));
		if (isnan(ratio))
			continue;
		measured++;
		within += ratio <= GOAL;
		worst = MM_MAX(worst, ratio);
	}
	if (mm_json_put_u64(json, "schema", 1) || mm_json_put(json, "acts", acts) ||
	    mm_json_put_u64(json, "unexpected", unexpected_sum(h)) ||
	    mm_json_put_u64(json, "tokens", h->honest.tokens) ||
	    mm_json_put_u64(json, "token_mismatches", h->honest.mismatches) ||
	    mm_json_put_u64(json, "refused", h->honest.refused) ||
	    mm_json_put_u64(json, "pages_leaked", leaked) ||
	    mm_json_put_u64(json, "measured", measured) ||
	    mm_json_put_u64(json, "within_goal", within) ||
	    mm_json_put_real(json, "step_p50_ratio_max", worst) ||
	    mm_json_put_u64(json, "seed", h->opts.seed))
		return -ENOMEM;
	return mm_json_print(json, JSON_COMPACT);
}

static void hostile_table(const struct hostile *h, uint64_t leaked)
{
	printf("%-20s %-16s %8s %9s %5s %8s %8s\n", "act", "outcome", "rounds", "doings", "CPU",
	       "step p50", "p99");
	for (size_t i = 0; i < h->n; i++) {
		const struct trial *t = &h->trial[i];
		char outcome[96];

		outcomes_text(t->tally.outcomes, outcome, sizeof(outcome));
		printf("%-20s %-16s %8" PRIu64 " %9" PRIu64 " %5.2f %8.3f %8.3f%s%s\n",
		       t->act->name, outcome, t->tally.rounds, t->tally.operations, t->share,
		       t->p50_ratio, t->p99_ratio, t->tally.unexpected ? "  UNEXPECTED " : "  ",
		       t->tally.text);
	}
	printf("\nstep, p99: over those beside busy loops that take as much\n"
	       "tokens %" PRIu64 ", of which differ %" PRIu64
	       "; outcomes that were not expected %" PRIu64 "; pages not free at the end %" PRIu64
	       "\n",
	       h->honest.tokens, h->honest.mismatches, unexpected_sum(h), leaked);
}

/* ---- the command ---- */

static void hostile_put(struct hostile **h)
{
	if (!*h)
		return;
	mm_honest_done(&(*h)->honest);
	mm_arena_close(&(*h)->arena);
	free(*h);
}

static int hostile_run(struct hostile *h, uint64_t *ret_leaked)
{
	const struct mm_arena_opts arena = { .keep_dir = h->opts.keep_dir,
					     .pool_bytes = POOL_BYTES,
					     .page_bytes = PAGE_BYTES,
					     .honest_bytes = HONEST_BYTES,
					     .seed = h->opts.seed };
	int r = mm_arena_open(&h->arena, &arena);

	if (!r)
		r = mm_honest_init(&h->honest, &h->arena, "honest", h->opts.seed, h->arena.err);
	h->honest.processor = 1;
	if (!r)
		r = engine_await(h);
	if (!r)
		r = hostile_measure(h);
	if (!r)
		r = mm_arena_drain(&h->arena, PATIENCE_NS, ret_leaked);
	if (r)
		fprintf(stderr, "mmbench: %s\n", h->arena.err);
	return r;
}

static int acts_list(void)
{
	const struct mm_act *act;
	char expected[96];

	for (size_t i = 0; (act = mm_act_at(i)); i++) {
		outcomes_text(act->expected, expected, sizeof(expected));
		printf("%-20s %-16s %s\n", act->name, expected, act->text);
	}
	return MM_EXIT_DONE;
}

int mm_bench_hostile(const struct mm_hostile_opts *opts)
{
	mm_cleanup(hostile_put) struct hostile *h = calloc(1, sizeof(*h));
	uint64_t leaked = 0;
	int r;

	if (opts->list)
		return acts_list();
	if (!h) {
		fputs("mmbench: out of memory\n", stderr);
		return MM_EXIT_FAILED;
	}
	h->opts = *opts;
	r = hostile_run(h, &leaked);
	if (!opts->json) /* also of a run that was interrupted */
		hostile_table(h, leaked);
	if (r)
		return MM_EXIT_FAILED;
	r = mm_report_end(opts->json ? hostile_json(h, leaked) : 0);
	return r || leaked || h->honest.mismatches || unexpected_sum(h) ? MM_EXIT_FAILED
									: MM_EXIT_DONE;
}

/* ---- options ---- */

/* Each word of the list has to be an act. */
int mm_hostile_settle(const struct mm_hostile_opts *opts, char *why)
{
	char name[64];

	if (!strcmp(opts->act, "all"))
		return 0;
	for (const char *word = opts->act; word; word = strchr(word, ',')) {
		word += *word == ',';
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, ","), word);
		if (mm_act_find(name))
			continue;
		snprintf(why, MM_OPT_ERROR_BYTES, "--act: there is no '%s'; --list shows all",
			 name);
		return -EINVAL;
	}
	return 0;
}

#define AT(field) MM_OPT_AT(struct mm_hostile_opts, field)

const struct mm_opt mm_hostile_options[] = {
	{ "act", "NAME,...", "these acts, or all", MM_OPT_TEXT, AT(act), .preset = "all" },
	{ "list", NULL, "print the acts and what has to come of them, and do nothing", MM_OPT_FLAG,
	  AT(list) },
	{ "seconds", "S", "for each act, half of it beside busy loops", MM_OPT_REAL, AT(seconds),
	  .preset = "4", .least = 0.1, .most = 3600, .unit = "s" },
	{ "seed", "N", "of the model, the prompts, and all that acts draw", MM_OPT_NUMBER, AT(seed),
	  .preset = "1", .max = UINT32_MAX },
	{ "keep", "DIR", "leave logs and outputs in DIR", MM_OPT_TEXT, AT(keep_dir) },
	{ "json", NULL, "print one JSON object instead of the table", MM_OPT_FLAG, AT(json) },
	{ 0 },
};
