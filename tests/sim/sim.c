/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core-sim - runs any number of seeded histories of the core. Each history is checked after every
 * event (history.h). Processes share the seeds out; for one that fails, the program prints the seed
 * and how to run it again. At the end it reports how many events of each kind happened: over many
 * histories every kind must, or the histories prove little.
 */
#undef NDEBUG
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/support/options.h"
#include "tests/sim/history.h"
#include "tests/sim/runner.h"

#define SEEDS_DEFAULT   1000
#define NOT_GIVEN       UINT64_MAX
#define ALL_KINDS_SEEDS 1000 /* so many histories must contain each kind */
#define HASHES_MAX      (UINT64_C(1) << 24)
#define IMAGES_EACH     100 /* events between images of cores that die, on average */
#define HANGS_S         120 /* limit of computing time for one history, in seconds */

struct total {
	uint64_t events, histories;
};

/* Counts of one process, in memory that all share. */
struct tally {
	struct total kind[H_COUNT];
	uint64_t policy[MM_POLICY_COUNT];
	struct cover_counts cover;
	struct w_mortality mortality;
};

static struct sim_options {
	uint64_t first, seeds, steps, jobs, failures_max, die_event, die_action;
	enum h_history history;
	bool json;
	const char *hashes; /* file, or NULL */
} opt = { .first = NOT_GIVEN, .seeds = NOT_GIVEN };

static const struct mm_opt_choice history_choices[] = {
	{ "ordinary", H_ORDINARY, "everything that may happen to a core" },
	{ "plans", H_PLANS, "plans change all the time" },
	{ "acts", H_ACTS,
	  "one or the other, and xfer is killed between any two acts on its slots" },
	{ "late", H_LATE, "messages of a tenant's threads overtake each other" },
	{ "modes", H_MODES, "turns open and close all the time" },
	{ "still", H_STILL, "claims stand still for a while: memory must, too" },
	{ "mem", H_MEM, "tenants have memory that is neither weights nor KV" },
	{ "unload", H_UNLOAD, "tenants give models back and load others" },
	{ "steer", H_STEER, "the operator revokes, drains, activates and pins" },
	{ "cool", H_COOL, "tenants stream cold blocks, and xfer is killed between any two acts" },
	{ NULL, 0, NULL },
};
static_assert(MM_ARRAY_SIZE(history_choices) == H_HISTORIES + 1, "each kind has its row");

static struct tally *tally;    /* by job */
static uint64_t *actions_hash; /* by history; NULL: not requested */
static struct world world;
static struct runner_result result;

static void mortality_add(struct w_mortality *to, const struct w_mortality *of)
{
	to->events += of->events;
	to->actions += of->actions;
	to->images += of->images;
	to->replayed += of->replayed;
	to->dropped += of->dropped;
}

static void history_run(void *context, uint32_t job, uint64_t seed)
{
	struct tally *to = &tally[job];
	static struct h_counts counts;

	(void)context;
	h_run(&world, opt.history, seed, opt.steps, &counts);
	for (uint32_t i = 0; i < H_COUNT; i++) {
		to->kind[i].events += counts.kind[i];
		to->kind[i].histories += counts.kind[i] != 0;
	}
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++)
		to->policy[i] += counts.policy[i];
	cover_add(&to->cover, &counts.cover);
	mortality_add(&to->mortality, &counts.mortality);
	if (actions_hash)
		actions_hash[seed - opt.first] = counts.actions_hash;
}

static bool run_all(void)
{
	char again[200];
	const struct runner_opts opts = {
		.first = opt.first,
		.seeds = opt.seeds,
		.jobs = (uint32_t)opt.jobs,
		.failures_max = (uint32_t)opt.failures_max,
		.hangs_s = HANGS_S,
		.again = again,
	};

	snprintf(again, sizeof(again),
		 "commit=" MM_COMMIT "; again: core-sim --kind %s --die-event %" PRIu64
		 " --die-action %" PRIu64 " --steps %" PRIu64 " --seed",
		 mm_opt_choice_name(history_choices, opt.history), opt.die_event, opt.die_action,
		 opt.steps);
	return runner_run(&opts, history_run, NULL, &result);
}

/* ---- the report ---- */

static struct total total_of(uint32_t kind)
{
	struct total sum = { 0 };

	for (uint32_t i = 0; i < opt.jobs; i++) {
		sum.events += tally[i].kind[kind].events;
		sum.histories += tally[i].kind[kind].histories;
	}
	return sum;
}

static uint64_t policy_of(uint32_t policy)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < opt.jobs; i++)
		n += tally[i].policy[policy];
	return n;
}

/* A core that differs from its twin fails its history. */
static struct w_mortality mortality_of_all(void)
{
	struct w_mortality sum = { 0 };

	for (uint32_t i = 0; i < opt.jobs; i++)
		mortality_add(&sum, &tally[i].mortality);
	return sum;
}

static void report_mortality(void)
{
	const struct w_mortality m = mortality_of_all();

	if (opt.json)
		printf(",\"deaths\":{\"events\":%" PRIu64 ",\"actions\":%" PRIu64
		       ",\"images\":%" PRIu64 ",\"replayed\":%" PRIu64 ",\"compared\":%" PRIu64 "}",
		       m.events, m.actions, m.images, m.replayed, m.dropped);
	else if (opt.die_event || opt.die_action)
		printf("deaths after events=%" PRIu64 " between actions=%" PRIu64 " images=%" PRIu64
		       " events replayed=%" PRIu64 " actions skipped=%" PRIu64 "\n",
		       m.events, m.actions, m.images, m.replayed, m.dropped);
}

static void cover_of_all(struct cover_counts *ret)
{
	*ret = (struct cover_counts){ 0 };
	for (uint32_t i = 0; i < opt.jobs; i++)
		cover_add(ret, &tally[i].cover);
}

/* Prints how often an event came in a state of a plan's change, and the states that followed. */
static void report_cover_of(const struct cover_counts *c, uint32_t state, uint32_t event)
{
	uint64_t n = cover_times(c, state, event);

	if (!n)
		return;
	printf("%-14s %-17s %9" PRIu64 " ", cover_state_name[state], cover_event_name[event], n);
	for (uint32_t i = 0; i < COVER_STATE_COUNT; i++)
		if (c->next[state][event][i])
			printf(" %s:%" PRIu64, cover_state_name[i], c->next[state][event][i]);
	printf("\n");
}

static void report_cover(void)
{
	static struct cover_counts c;

	cover_of_all(&c);
	printf("%-14s %-17s %9s  %s\n", "plan change", "event", "times", "state at the next event");
	for (uint32_t s = 0; s < COVER_STATE_COUNT; s++)
		for (uint32_t e = 0; e < COVER_EVENT_COUNT; e++)
			report_cover_of(&c, s, e);
}

static void report_cover_json(void)
{
	static struct cover_counts c;
	const char *comma = "";

	cover_of_all(&c);
	printf(",\"changes\":[");
	for (uint32_t s = 0; s < COVER_STATE_COUNT; s++)
		for (uint32_t e = 0; e < COVER_EVENT_COUNT; e++)
			for (uint32_t n = 0; n < COVER_STATE_COUNT; n++) {
				if (!c.next[s][e][n])
					continue;
				printf("%s{\"state\":\"%s\",\"event\":\"%s\",\"next\":\"%s\","
				       "\"times\":%" PRIu64 "}",
				       comma, cover_state_name[s], cover_event_name[e],
				       cover_state_name[n], c.next[s][e][n]);
				comma = ",";
			}
	printf("]");
}

static void report_json(void)
{
	printf("{\"schema\":1,\"kind\":\"%s\",\"first\":%" PRIu64 ",\"histories\":%" PRIu64
	       ",\"steps\":%" PRIu64 ",\"failed\":[",
	       mm_opt_choice_name(history_choices, opt.history), opt.first,
	       result.done + result.n_failed, opt.steps);
	for (uint32_t i = 0; i < result.n_failed; i++)
		printf("%s%" PRIu64, i ? "," : "", result.failed[i]);
	printf("],\"policies\":[");
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++)
		printf("%s%" PRIu64, i ? "," : "", policy_of(i));
	printf("],\"kinds\":{");
	for (uint32_t i = 0; i < H_COUNT; i++) {
		struct total t = total_of(i);

		printf("%s\"%s\":{\"events\":%" PRIu64 ",\"histories\":%" PRIu64 "}", i ? "," : "",
		       h_kind_name[i], t.events, t.histories);
	}
	printf("}");
	report_mortality();
	report_cover_json();
	printf("}\n");
}

static void report_text(void)
{
	printf("kind=%s seeds=%" PRIu64 " to %" PRIu64 " steps=%" PRIu64 " failed=%" PRIu32 "\n",
	       mm_opt_choice_name(history_choices, opt.history), opt.first,
	       opt.first + opt.seeds - 1, opt.steps, result.n_failed);
	printf("%-24s %14s %14s\n", "kind", "events", "histories");
	for (uint32_t i = 0; i < H_COUNT; i++) {
		struct total t = total_of(i);

		printf("%-24s %14" PRIu64 " %14" PRIu64 "\n", h_kind_name[i], t.events,
		       t.histories);
	}
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++)
		printf("policy %-17" PRIu32 " %14s %14" PRIu64 "\n", i, "", policy_of(i));
	report_mortality();
	report_cover();
	for (uint32_t i = 0; i < result.n_failed; i++)
		printf("failed: core-sim --kind %s --seed %" PRIu64 " --steps %" PRIu64 "\n",
		       mm_opt_choice_name(history_choices, opt.history), result.failed[i],
		       opt.steps);
}

/*
 * Writes a line per history: its seed and the hash of the core's actions. Returns false if it could
 * not be written.
 */
static bool write_hashes(void)
{
	FILE *file = fopen(opt.hashes, "we");
	bool good = file != NULL;

	for (uint64_t i = 0; good && i < opt.seeds; i++)
		good = fprintf(file, "%" PRIu64 " %016" PRIx64 "\n", opt.first + i,
			       actions_hash[i]) > 0;
	if (file && fclose(file))
		good = false;
	if (!good)
		perror(opt.hashes);
	return good;
}

/* Returns false if a kind of event happened in none of many histories. */
static bool all_kinds(void)
{
	bool all = true;

	if (opt.seeds < ALL_KINDS_SEEDS || result.n_failed)
		return true;
	for (uint32_t i = 0; i < H_COUNT; i++) {
		if (!h_demanded(opt.history, i) || total_of(i).events)
			continue;
		fprintf(stderr, "core-sim: no history contained '%s'\n", h_kind_name[i]);
		all = false;
	}
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++) {
		if (policy_of(i))
			continue;
		fprintf(stderr, "core-sim: no history had policy %" PRIu32 "\n", i);
		all = false;
	}
	return all;
}

/* ---- the program ---- */

#define AT(field) MM_OPT_AT(struct sim_options, field)

static const struct mm_opt sim_opts[] = {
	{ "kind", "KIND", "kind of histories", MM_OPT_CHOICE, AT(history),
	  .choices = history_choices, .preset = "ordinary" },
	{ "seed", "N", "seed of the first history; without --seeds, of the only one", MM_OPT_NUMBER,
	  AT(first), .max = UINT64_MAX / 2, .otherwise = "1" },
	{ "seeds", "COUNT", "how many histories", MM_OPT_NUMBER, AT(seeds), .max = UINT64_MAX / 4,
	  .otherwise = "1 with --seed, else 1000" },
	{ "steps", "N", "events in each history", MM_OPT_NUMBER, AT(steps), .preset = "400" },
	{ "jobs", "N", "processes that share the seeds", MM_OPT_NUMBER, AT(jobs), .min = 1,
	  .max = RUNNER_JOBS_MAX, .preset = "1" },
	{ "failures", "N", "stop at so many failed histories", MM_OPT_NUMBER, AT(failures_max),
	  .min = 1, .max = RUNNER_FAILURES_MAX, .preset = "1" },
	{ "die-event", "P", "the core dies after one event in P, and is restored; 0: never",
	  MM_OPT_NUMBER, AT(die_event), .preset = "0" },
	{ "die-action", "P", "the same before one action in P", MM_OPT_NUMBER, AT(die_action),
	  .preset = "0" },
	{ "hashes", "FILE",
	  "write a line for each history: its seed, and a hash of all actions of the core",
	  MM_OPT_TEXT, AT(hashes), .otherwise = "none" },
	{ "json", NULL, "print the report as one JSON object", MM_OPT_FLAG, AT(json) },
	{ .name = NULL },
};

static const struct mm_opt_command sim_command = {
	.name = "",
	.arguments = "",
	.sets = { { sim_opts, 0 } },
};

static const struct mm_opt_program sim_program = {
	.name = "core-sim",
	.summary = "run random histories of the core, each checked after every event",
	.commands = &sim_command,
	.n_commands = 1,
	.exits = "Exit status: 0 done, 1 a history failed or many histories lack a kind of event, "
		 "2 wrong arguments.",
	.man_section = "1",
	.version = MM_COMMIT,
};

/* Returns the exit status, or -1 to run. */
static int sim_options(int argc, char **argv)
{
	struct mm_opt_line line;
	const int status = mm_opt_main(&sim_program, argc, argv, &opt, &line);

	if (status >= 0)
		return status;
	if (opt.seeds == NOT_GIVEN)
		opt.seeds = opt.first == NOT_GIVEN ? SEEDS_DEFAULT : 1;
	if (opt.first == NOT_GIVEN)
		opt.first = 1;
	if (opt.hashes && opt.seeds > HASHES_MAX)
		return mm_opt_refuse(&sim_program, 0, "--hashes: takes up to %" PRIu64 " seeds",
				     HASHES_MAX);
	return -1;
}

/* Maps zeroed memory that the processes of a run share. */
static void *shared_map(uint64_t bytes)
{
	void *memory = mmap(NULL, MM_MAX(bytes, 1), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory != MAP_FAILED)
		return memory;
	perror("core-sim: mmap");
	exit(MM_EXIT_FAILED);
}

int main(int argc, char **argv)
{
	int r = sim_options(argc, argv);

	if (r >= 0)
		return r;
	opt.jobs = MM_MIN(opt.jobs, MM_MAX(opt.seeds, 1));
	h_let_die(&(struct w_odds){ opt.die_event, opt.die_action, IMAGES_EACH });
	tally = shared_map(opt.jobs * sizeof(*tally));
	if (opt.hashes)
		actions_hash = shared_map(opt.seeds * sizeof(*actions_hash));
	if (!run_all() || (opt.hashes && !write_hashes()))
		return MM_EXIT_FAILED;
	opt.json ? report_json() : report_text();
	return mm_opt_flush(&sim_program,
			    result.n_failed || !all_kinds() ? MM_EXIT_FAILED : MM_EXIT_DONE);
}
