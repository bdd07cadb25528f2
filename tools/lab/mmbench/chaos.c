/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/chaos.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"
#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "tools/lab/hostile/canary.h"
#include "tools/lab/mmbench/alternate.h"
#include "tools/lab/mmbench/arena.h"
#include "tools/lab/mmbench/chaos_report.h"
#include "tools/lab/mmbench/honest.h"
#include "tools/lab/mmbench/report.h"

#define ENGINES       3 /* the last of them is killed now and then */
#define VICTIM        (ENGINES - 1)
#define STEADY        0 /* its steps are compared: it computes without turns, on one processor */
#define CANARIES      4
#define HOSTILES_MAX  MM_ALTERNATE_HOSTILES_MAX
#define PERIOD_MAX_S  5
#define PERIODS_LEAST 4
#define PERIODS_MAX   300
#define LAYERS        8
#define POOL_BYTES    (UINT64_C(24) << 20)
#define PAGE_BYTES    (UINT64_C(16) << 10)
#define HONEST_BYTES  (UINT64_C(14) << 20)
#define CANARY_PAGES  48
#define FLOOD_NS      (20 * MM_NS_PER_MS)
#define PATIENCE_NS   (180 * MM_NS_PER_S)
#define CALM_MAX_S    12
#define GAPS_MAX      2000000
#define GAPS_LEAST    100
#define HOSTILE_UID   61001
#define CANARY_UID    62001

/* A copy and a scrub of each xfer fail, late enough for it to have proven itself. */
#define FAILS "cuMemcpyHtoDAsync:150000:719,cuMemsetD32Async:5000:719"

enum deed_kind { DEED_TENANT, DEED_XFER, DEED_CORE, DEED_PLAN, DEED_DEVICE, DEED_KINDS };

/* So many of each a second; those of core are an option. */
static const double deed_rates[DEED_KINDS] = {
	[DEED_TENANT] = 2.0, [DEED_XFER] = 0.5, [DEED_PLAN] = 4, [DEED_DEVICE] = 0.5
};

struct deed {
	double at_s;
	enum deed_kind kind;
};

struct chaos {
	struct mm_chaos_opts opts;
	struct mm_arena arena;
	struct mm_honest engine[ENGINES];
	struct mm_canary canary[CANARIES];
	struct mm_canary_opts canary_opts[CANARIES];
	struct mm_alternate alternate;
	struct mm_raw witness;
	struct deed *deed;
	size_t n_deeds;
	uint64_t random;
	uint64_t begun_ns, ended_ns, calm_ns, calmed_ns;
	struct mm_chaos_result result;
};

/* ---- what happens when ---- */

static int deed_compare(const void *a, const void *b)
{
	const struct deed *x = a, *y = b;

	return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

static size_t deeds_count(const struct chaos *c, size_t kind)
{
	const double rate = kind == DEED_CORE ? c->opts.core_rate : deed_rates[kind];

	if (kind == DEED_CORE && c->opts.no_core_kills)
		return 0;
	return (size_t)(rate * c->opts.rate * c->opts.seconds) + 1;
}

static int deeds_draw(struct chaos *c)
{
	size_t room = 0;

	for (size_t kind = 0; kind < DEED_KINDS; kind++)
		room += deeds_count(c, kind);
	c->deed = calloc(room, sizeof(*c->deed));
	if (!c->deed)
		return -ENOMEM;
	for (size_t kind = 0; kind < DEED_KINDS; kind++)
		for (size_t i = 0; i < deeds_count(c, kind); i++)
			c->deed[c->n_deeds++] = (struct deed){
				.at_s = mm_random_unit(&c->random) * c->opts.seconds,
				.kind = (enum deed_kind)kind,
			};
	qsort(c->deed, c->n_deeds, sizeof(*c->deed), deed_compare);
	return 0;
}

/* ---- who takes part ---- */

static int engines_poll(struct chaos *c)
{
	int r = 0;

	for (size_t i = 0; i < ENGINES && r >= 0; i++) {
		char why[MM_SERVE_ERROR_BYTES];

		r = mm_honest_poll(&c->engine[i], why);
		if (r == -ECHILD) {
			c->result.engine_ends++;
			mm_chaos_note(&c->result, "%s", why);
		}
		if (r == -ECHILD || r == -ENODATA)
			r = mm_honest_start(&c->engine[i], c->arena.err);
	}
	return r < 0 ? r : 0;
}

static void canaries_poll(struct chaos *c)
{
	for (size_t i = 0; i < CANARIES; i++) {
		int status = mm_canary_wait(&c->canary[i], 0);

		if (status == -1)
			continue;
		c->result.canary_ends++;
		mm_chaos_note(&c->result, "canary %zu: its connection ended: %s", i,
			      c->canary[i].counts->reason);
		mm_canary_start(&c->canary[i], &c->canary_opts[i]);
	}
}

static int chaos_wait(struct chaos *c, uint64_t until_ns, bool wild)
{
	int r = 0;

	while (!r && mm_now_ns() < until_ns) {
		r = mm_arena_pause(&c->arena, 5);
		if (!r)
			r = engines_poll(c);
		if (wild)
			canaries_poll(c);
		if (!r && wild)
			r = mm_alternate_poll(&c->alternate);
	}
	return r;
}

static int engines_start(struct chaos *c)
{
	char name[24];
	int r = 0;

	for (size_t i = 0; i < ENGINES && !r; i++) {
		snprintf(name, sizeof(name), i == VICTIM ? "victim" : "honest-%zu", i);
		r = mm_honest_init(&c->engine[i], &c->arena, name, c->opts.seed + i, c->arena.err);
		c->engine[i].turns = i != STEADY;
		c->engine[i].processor = i == STEADY;
		c->engine[i].batch = "6";
		if (!r)
			r = mm_honest_start(&c->engine[i], c->arena.err);
	}
	for (uint64_t by_ns = mm_now_ns() + PATIENCE_NS; !r && mm_now_ns() < by_ns;) {
		size_t ready = 0;

		r = chaos_wait(c, mm_now_ns() + 20 * MM_NS_PER_MS, false);
		for (size_t i = 0; i < ENGINES; i++)
			ready += c->engine[i].ready;
		if (ready == ENGINES)
			return r;
	}
	return r ? r : -ETIMEDOUT;
}

static int others_start(struct chaos *c)
{
	int r = 0;

	for (uint32_t i = 0; i < CANARIES && !r; i++) {
		c->canary_opts[i] = (struct mm_canary_opts){ .socket = c->arena.mmd.socket,
							     .seed = c->opts.seed + i,
							     .uid = CANARY_UID + i,
							     .pages = CANARY_PAGES };
		r = mm_canary_start(&c->canary[i], &c->canary_opts[i]);
	}
	c->alternate.n = c->opts.hostiles;
	c->alternate.period_ns = (uint64_t)(1e9 * MM_MAX(MM_MIN((double)PERIOD_MAX_S,
								c->opts.seconds / PERIODS_LEAST),
							 c->opts.seconds / PERIODS_MAX));
	for (uint32_t i = 0; i < c->opts.hostiles; i++)
		c->alternate.opts[i] = (struct mm_performer_opts){ .socket = c->arena.mmd.socket,
								   .scratch = c->arena.scratch,
								   .seed = c->opts.seed + i,
								   .flood_ns = FLOOD_NS,
								   .uid = HOSTILE_UID + i,
								   .slow = true };
	return r ? r : mm_alternate_begin(&c->alternate);
}

/* Ends them, and takes their counts. */
static void others_stop(struct chaos *c)
{
	for (uint32_t i = 0; i < CANARIES; i++)
		mm_canary_stop(&c->canary[i], PATIENCE_NS);
	mm_alternate_end(&c->alternate, PATIENCE_NS);
}

/* ---- kills ---- */

static bool role_kill(struct chaos *c, const char *role)
{
	const pid_t pid = mm_arena_role(&c->arena, role);

	if (pid && kill(pid, SIGKILL) == 0)
		return true;
	c->result.kills_missed++;
	return false;
}

static void tenant_kill(struct chaos *c)
{
	const size_t i = mm_random_below(&c->random, CANARIES);

	if (mm_random_below(&c->random, 4) == 0) {
		if (mm_child_ended(&c->engine[VICTIM].child))
			return;
		mm_honest_stop(&c->engine[VICTIM]);
		mm_honest_start(&c->engine[VICTIM], c->arena.err);
	} else if (mm_canary_kill(&c->canary[i])) {
		mm_canary_start(&c->canary[i], &c->canary_opts[i]);
	} else {
		c->result.kills_missed++;
		return;
	}
	c->result.tenant_kills++;
}

/* Waits until the next xfer serves. Return: 0; negative errno. */
static int xfer_await(struct chaos *c, pid_t old)
{
	const uint64_t by_ns = mm_now_ns() + PATIENCE_NS;
	int r = 0;

	while (!r && mm_now_ns() < by_ns) {
		mm_cleanup(mm_json_done) json_t *status = NULL;
		const json_t *xfer;

		r = mm_arena_request(&c->arena, "status", NULL, &status);
		xfer = json_object_get(status, "xfer");
		if (!r && json_is_true(json_object_get(xfer, "proven")) &&
		    (pid_t)mm_json_u64(xfer, "pid") != old)
			return 0;
		if (!r)
			r = chaos_wait(c, mm_now_ns() + 1, true);
	}
	return r ? r : -ETIMEDOUT;
}

static int xfer_kill(struct chaos *c)
{
	const pid_t old = mm_arena_role(&c->arena, "xfer");
	const uint64_t at_ns = mm_now_ns();
	int r;

	if (!role_kill(c, "xfer"))
		return 0;
	c->result.xfer_kills++;
	r = xfer_await(c, old);
	if (!r)
		mm_series_add(&c->result.xfer_recovery_ms, (double)(mm_now_ns() - at_ns) / 1e6);
	return r;
}

/* Asks until there is an answer. Return: 0; negative errno. */
static int witness_ask(struct chaos *c)
{
	int r = c->witness.tenant ? mm_raw_ping(&c->witness, PATIENCE_NS) : -ECONNRESET;

	if (r == -ECONNRESET) {
		if (c->witness.tenant && !c->result.witness_ends++)
			mm_chaos_note(&c->result, "a connection that only asks has ended: %s",
				      c->witness.reason);
		mm_raw_done(&c->witness);
		r = mm_raw_open(&c->witness, c->arena.mmd.socket, "witness", MM_FEAT_RESUME);
	}
	if (r) {
		int stop = mm_arena_pause(&c->arena, 0);

		r = stop ? stop : r;
		if (!stop)
			snprintf(c->arena.err, sizeof(c->arena.err), "no answer: %s", strerror(-r));
	}
	return r;
}

static int core_kill(struct chaos *c)
{
	const uint64_t at_ns = mm_now_ns();
	int r;

	if (!role_kill(c, "core"))
		return 0;
	c->result.core_kills++;
	r = witness_ask(c);
	if (!r)
		mm_series_add(&c->result.recovery_ms, (double)(mm_now_ns() - at_ns) / 1e6);
	return r;
}

/* ---- what else happens ---- */

/* Sets a plan of one of the engines. It may be refused: then there is no room, or no model. */
static int plan_put(struct chaos *c)
{
	const char *name = c->engine[mm_random_below(&c->random, VICTIM)].name;
	mm_cleanup(mm_json_done) json_t *done = NULL;
	json_t *params = json_pack("{s:s,s:i,s:i}", "name", name, "layers",
				   (int)mm_random_below(&c->random, LAYERS - 1), "slots",
				   1 + (int)mm_random_below(&c->random, 2));
	int r = mm_arena_request(&c->arena, "plan.set", params, &done);

	c->result.plan_changes += r == 0;
	return r == -EREMOTEIO ? 0 : r;
}

/* Something that the device says, as its driver would. */
static int device_fault(struct chaos *c)
{
	static const char *const lines[] = { "xid 94", "xid 31", "sbe", "xid 13", "xid 94" };
	char path[MM_ARENA_PATH_BYTES + 16];
	mm_cleanup(mm_close_file) FILE *events = NULL;

	snprintf(path, sizeof(path), "%s/events", c->arena.gpu);
	events = fopen(path, "ae");
	if (events &&
	    fprintf(events, "%s\n", lines[mm_random_below(&c->random, MM_ARRAY_SIZE(lines))]) > 0)
		c->result.driver_faults++;
	return 0;
}

static int deed_do(struct chaos *c, enum deed_kind kind)
{
	switch (kind) {
	case DEED_TENANT:
		tenant_kill(c);
		return 0;
	case DEED_XFER:
		return xfer_kill(c);
	case DEED_CORE:
		return core_kill(c);
	case DEED_PLAN:
		return plan_put(c);
	case DEED_DEVICE:
		return device_fault(c);
	case DEED_KINDS:
		break;
	}
	return 0;
}

static void chaos_progress(const struct chaos *c, size_t done)
{
	static uint64_t last_ns;

	if (!isatty(STDERR_FILENO) || mm_now_ns() - last_ns < 100 * MM_NS_PER_MS)
		return;
	last_ns = mm_now_ns();
	fprintf(stderr,
		"\r%5.1f s, %zu of %zu deeds; killed %" PRIu64 " tenants, %" PRIu64
		" xfers, %" PRIu64 " cores   ",
		(double)(last_ns - c->begun_ns) / 1e9, done, c->n_deeds, c->result.tenant_kills,
		c->result.xfer_kills, c->result.core_kills);
}

static int deeds_do(struct chaos *c)
{
	int r = 0;

	c->begun_ns = mm_now_ns();
	for (size_t i = 0; i < c->n_deeds && !r; i++) {
		const uint64_t at_ns = c->begun_ns + (uint64_t)(c->deed[i].at_s * 1e9);

		chaos_progress(c, i);
		r = chaos_wait(c, MM_MAX(at_ns, mm_now_ns() + 1), true);
		if (!r)
			r = deed_do(c, c->deed[i].kind);
	}
	if (!r)
		r = chaos_wait(c, c->begun_ns + (uint64_t)(c->opts.seconds * 1e9), true);
	c->ended_ns = mm_now_ns();
	if (isatty(STDERR_FILENO))
		fputc('\n', stderr);
	return r;
}

/* ---- afterwards ---- */

/* The engines alone, beside loops that take what the hostile tenants took. */
static int chaos_calm(struct chaos *c)
{
	const double seconds = MM_MIN((double)CALM_MAX_S, MM_MAX(c->opts.seconds / 6, 1));
	struct mm_busy busy;
	int r = mm_busy_start(&busy, mm_alternate_share(&c->alternate));

	c->calm_ns = mm_now_ns();
	if (!r)
		r = chaos_wait(c, c->calm_ns + (uint64_t)(seconds * 1e9), false);
	c->calmed_ns = mm_now_ns();
	mm_busy_stop(&busy);
	return r;
}

/* P50 and P99 of steps. Return: false: too few. */
static bool steps_percentiles(double *gap, size_t n, double ret[2])
{
	ret[0] = mm_percentile(gap, n, 50);
	ret[1] = mm_percentile(gap, n, 99);
	return n >= GAPS_LEAST;
}

static bool steps_of_kind(const struct chaos *c, enum mm_alternate_kind kind, double *gap,
			  double ret[2])
{
	return steps_percentiles(
		gap, mm_alternate_gaps(&c->alternate, kind, &c->engine[STEADY], gap, GAPS_MAX),
		ret);
}

static void steps_compare(struct chaos *c)
{
	mm_cleanup(mm_free_ptr) double *gap = calloc(GAPS_MAX, sizeof(*gap));
	double wild[2], loops[2], calm[2];
	size_t n;

	if (!gap || !steps_of_kind(c, MM_ALTERNATE_HOSTILES, gap, wild))
		return;
	if (steps_of_kind(c, MM_ALTERNATE_LOOPS, gap, loops)) {
		c->result.step_p50_ratio = wild[0] / loops[0];
		c->result.stall_p99_ratio = wild[1] / loops[1];
	}
	n = mm_honest_gaps(&c->engine[STEADY], c->calm_ns, c->calmed_ns, gap, GAPS_MAX);
	if (steps_percentiles(gap, n, calm)) {
		c->result.step_p50_over_calm = wild[0] / calm[0];
		c->result.stall_p99_over_calm = wild[1] / calm[1];
	}
}

static void counts_take(struct chaos *c)
{
	struct mm_chaos_result *r = &c->result;

	for (size_t i = 0; i < ENGINES; i++) {
		r->tokens += c->engine[i].tokens;
		r->token_mismatches += c->engine[i].mismatches;
		r->refused += c->engine[i].refused;
	}
	for (size_t i = 0; i < MM_ACTS_MAX; i++) {
		const struct mm_act_tally *t = &c->alternate.tally[i];

		r->hostile_acts += t->operations;
		r->hostile_rounds += t->rounds;
		r->hostile_unexpected += t->unexpected;
		if (t->unexpected)
			mm_chaos_note(r, "act %s: %s", mm_act_at(i)->name, t->text);
	}
	for (size_t i = 0; i < CANARIES && c->canary[i].counts; i++) {
		r->pages_read += c->canary[i].counts->pages_read;
		r->foreign_bytes += c->canary[i].counts->foreign_bytes;
		r->lost_bytes += c->canary[i].counts->lost_bytes;
	}
}

/* Our own user, for whom memory was kept, takes every page that there is and reads it. */
static int pages_read_all(struct chaos *c)
{
	const struct mm_canary_opts opts = { .socket = c->arena.mmd.socket,
					     .seed = c->opts.seed,
					     .pages = (uint32_t)(POOL_BYTES / PAGE_BYTES),
					     .once = true };
	struct mm_canary reader = { 0 };
	int r = mm_canary_start(&reader, &opts);

	if (!r && mm_canary_wait(&reader, PATIENCE_NS) == -1)
		r = -ETIMEDOUT;
	if (!r) {
		c->result.pages_read += reader.counts->pages_read;
		c->result.pages_unread = POOL_BYTES / PAGE_BYTES - reader.counts->pages_read;
		c->result.foreign_bytes += reader.counts->foreign_bytes;
	}
	mm_canary_done(&reader);
	return r;
}

/* Faults that made an xfer fail by itself. */
static void xfer_faults_count(struct chaos *c)
{
	mm_cleanup(mm_json_done) json_t *status = NULL;
	uint64_t restarts;

	if (mm_arena_request(&c->arena, "status", NULL, &status))
		return;
	restarts = mm_json_u64(json_object_get(status, "xfer"), "restarts");
	c->result.driver_faults +=
		restarts > c->result.xfer_kills ? restarts - c->result.xfer_kills : 0;
}

static int chaos_end(struct chaos *c)
{
	int r;

	others_stop(c);
	r = chaos_calm(c);
	xfer_faults_count(c);
	for (size_t i = 0; i < ENGINES; i++)
		mm_honest_stop(&c->engine[i]);
	mm_raw_bye(&c->witness);
	mm_raw_done(&c->witness);
	if (!r)
		r = mm_arena_drain(&c->arena, PATIENCE_NS, &c->result.pages_leaked);
	if (!r)
		r = pages_read_all(c);
	if (!r)
		r = mm_arena_drain(&c->arena, PATIENCE_NS, &c->result.pages_leaked);
	counts_take(c);
	steps_compare(c);
	return r;
}

static int chaos_run(struct chaos *c)
{
	const struct mm_arena_opts arena = { .keep_dir = c->opts.keep_dir,
					     .pool_bytes = POOL_BYTES,
					     .page_bytes = PAGE_BYTES,
					     .honest_bytes = HONEST_BYTES,
					     .seed = c->opts.seed,
					     .fail = FAILS };
	int r = mm_arena_open(&c->arena, &arena);

	if (!r)
		r = deeds_draw(c);
	if (!r)
		r = engines_start(c);
	if (!r)
		r = witness_ask(c);
	if (!r)
		r = others_start(c);
	if (!r)
		r = deeds_do(c);
	if (!r)
		r = chaos_end(c);
	if (r)
		fprintf(stderr, "mmbench: %s\n", *c->arena.err ? c->arena.err : strerror(-r));
	return r;
}

static void chaos_put(struct chaos **chaos)
{
	struct chaos *c = *chaos;

	if (!c)
		return;
	mm_alternate_done(&c->alternate);
	for (size_t i = 0; i < CANARIES; i++)
		mm_canary_done(&c->canary[i]);
	for (size_t i = 0; i < ENGINES; i++)
		mm_honest_done(&c->engine[i]);
	mm_raw_done(&c->witness);
	mm_arena_close(&c->arena);
	mm_chaos_result_done(&c->result);
	free(c->deed);
	free(c);
}

int mm_bench_chaos(const struct mm_chaos_opts *opts)
{
	mm_cleanup(chaos_put) struct chaos *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		fputs("mmbench: out of memory\n", stderr);
		return MM_EXIT_FAILED;
	}
	c->opts = *opts;
	c->random = mm_random_seed(opts->seed, 'd', 'e');
	c->result.seed = opts->seed;
	c->result.seconds = opts->seconds;
	r = chaos_run(c);
	if (r)
		return MM_EXIT_FAILED;
	if (!opts->json)
		mm_chaos_print(&c->result);
	r = mm_report_end(opts->json ? mm_chaos_print_json(&c->result) : 0);
	return r || !mm_chaos_is_clean(&c->result) ? MM_EXIT_FAILED : MM_EXIT_DONE;
}

/* ---- options ---- */

#define AT(field) MM_OPT_AT(struct mm_chaos_opts, field)

const struct mm_opt mm_chaos_options[] = {
	{ "seconds", "S", "of chaos; what comes before and behind it is not in them", MM_OPT_REAL,
	  AT(seconds), .preset = "120", .least = 1, .most = 86400, .unit = "s" },
	{ "rate", "F", "kills, plans and faults come F times as often", MM_OPT_REAL, AT(rate),
	  .preset = "1", .least = 0, .most = 100 },
	{ "seed", "N", "of all that is drawn", MM_OPT_NUMBER, AT(seed), .preset = "1",
	  .max = UINT32_MAX },
	{ "hostiles", "N", "hostile tenants at one time", MM_OPT_NUMBER, AT(hostiles),
	  .max = HOSTILES_MAX, .preset = "3" },
	{ "core-rate", "F", "kills of core a second", MM_OPT_REAL, AT(core_rate), .preset = "0.5",
	  .least = 0, .most = 1000 },
	{ "no-core-kills", NULL, "core is not killed", MM_OPT_FLAG, AT(no_core_kills) },
	{ "keep", "DIR", "leave logs and outputs in DIR", MM_OPT_TEXT, AT(keep_dir) },
	{ "json", NULL, "print one JSON object instead of sentences", MM_OPT_FLAG, AT(json) },
	{ 0 },
};
