/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core-sim - runs any number of seeded histories of the core. Each history is checked after every
 * event (history.h). Processes share the seeds out; for one that fails, the program prints the seed
 * and how to run it again. At the end it reports how many events of each kind happened: over many
 * histories every kind must, or the histories prove little.
 */
#undef NDEBUG
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/sim/history.h"
#include "tests/sim/runner.h"

#define STEPS_DEFAULT   400
#define SEEDS_DEFAULT   1000
#define ALL_KINDS_SEEDS 1000 /* so many histories must contain each kind */
#define HASHES_MAX      (UINT64_C(1) << 24)
#define HANGS_S         120 /* limit of computing time for one history, in seconds */

struct total {
	uint64_t events, histories;
};

/* Counts of one process, in memory that all share. */
struct tally {
	struct total kind[H_COUNT];
	uint64_t policy[MM_POLICY_COUNT];
	struct cover_counts cover;
};

static struct {
	uint64_t first, seeds, steps, jobs, failures_max;
	enum h_history history;
	bool json;
	const char *hashes; /* file, or NULL */
} opt = { 1, SEEDS_DEFAULT, STEPS_DEFAULT, 1, 1, H_ORDINARY, false, NULL };

static struct tally *tally;    /* by job */
static uint64_t *actions_hash; /* by history; NULL: not requested */
static struct world world;
static struct runner_result result;

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
	if (actions_hash)
		actions_hash[seed - opt.first] = counts.actions_hash;
}

static bool run_all(void)
{
	char again[160];
	const struct runner_opts opts = {
		.first = opt.first,
		.seeds = opt.seeds,
		.jobs = (uint32_t)opt.jobs,
		.failures_max = (uint32_t)opt.failures_max,
		.hangs_s = HANGS_S,
		.again = again,
	};

	snprintf(again, sizeof(again),
		 "commit=" MM_COMMIT "; again: core-sim --kind %s --steps %" PRIu64 " --seed",
		 h_history_name[opt.history], opt.steps);
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
	       h_history_name[opt.history], opt.first, result.done + result.n_failed, opt.steps);
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
	report_cover_json();
	printf("}\n");
}

static void report_text(void)
{
	printf("kind=%s seeds=%" PRIu64 " to %" PRIu64 " steps=%" PRIu64 " failed=%" PRIu32 "\n",
	       h_history_name[opt.history], opt.first, opt.first + opt.seeds - 1, opt.steps,
	       result.n_failed);
	printf("%-24s %14s %14s\n", "kind", "events", "histories");
	for (uint32_t i = 0; i < H_COUNT; i++) {
		struct total t = total_of(i);

		printf("%-24s %14" PRIu64 " %14" PRIu64 "\n", h_kind_name[i], t.events,
		       t.histories);
	}
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++)
		printf("policy %-17" PRIu32 " %14s %14" PRIu64 "\n", i, "", policy_of(i));
	report_cover();
	for (uint32_t i = 0; i < result.n_failed; i++)
		printf("failed: core-sim --kind %s --seed %" PRIu64 " --steps %" PRIu64 "\n",
		       h_history_name[opt.history], result.failed[i], opt.steps);
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

static void sim_help(void)
{
	puts("usage: core-sim [--kind ordinary|plans|acts|late] [--seed N] [--seeds COUNT] "
	     "[--steps N] [--jobs N] [--failures N] [--hashes FILE] [--json]\n"
	     "\n"
	     "Random histories of the core, each checked after every event.\n"
	     "\n"
	     "  --kind KIND   of histories: ordinary (default); plans: they change all the time; "
	     "acts: one or\n"
	     "                the other, and xfer is killed between any two acts on its slots; "
	     "late: what\n"
	     "                threads of a tenant say overtakes each other\n"
	     "  --seed N      the first one; without --seeds, the only one (1)\n"
	     "  --seeds COUNT histories (1000)\n"
	     "  --steps N     events in each (400)\n"
	     "  --jobs N      processes (1)\n"
	     "  --failures N  stop at so many failed histories (1)\n"
	     "  --hashes FILE a line for each history: seed, hash of all actions of the core\n"
	     "  --json        the report as one JSON object\n"
	     "  --version     the commit");
}

static int sim_usage(const char *what)
{
	fprintf(stderr, "core-sim: %s; try --help\n", what);
	return 2;
}

static bool sim_number_parse(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && !*end;
}

static bool history_named(const char *name, enum h_history *ret)
{
	for (uint32_t i = 0; i < H_HISTORIES; i++) {
		if (strcmp(name, h_history_name[i]))
			continue;
		*ret = (enum h_history)i;
		return true;
	}
	return false;
}

/* Returns the exit status, or -1 to run. */
static int sim_options(int argc, char **argv)
{
	static const struct option names[] = { { "seed", required_argument, NULL, 'S' },
					       { "seeds", required_argument, NULL, 'n' },
					       { "steps", required_argument, NULL, 't' },
					       { "jobs", required_argument, NULL, 'j' },
					       { "failures", required_argument, NULL, 'f' },
					       { "hashes", required_argument, NULL, 'H' },
					       { "kind", required_argument, NULL, 'k' },
					       { "json", no_argument, NULL, 'J' },
					       { "help", no_argument, NULL, 'h' },
					       { "version", no_argument, NULL, 'V' },
					       { 0 } };
	bool seeds = false, seed = false;
	int o;

	while ((o = getopt_long(argc, argv, "", names, NULL)) != -1) {
		uint64_t *to = o == 'S'   ? &opt.first
			       : o == 'n' ? &opt.seeds
			       : o == 't' ? &opt.steps
			       : o == 'j' ? &opt.jobs
			       : o == 'f' ? &opt.failures_max
					  : NULL;

		if (o == 'h' || o == 'V') {
			o == 'h' ? sim_help() : (void)puts("core-sim " MM_COMMIT);
			return 0;
		}
		if (o == '?')
			return 2;
		if (to && !sim_number_parse(optarg, to))
			return sim_usage("not a number");
		if (o == 'k' && !history_named(optarg, &opt.history))
			return sim_usage("no such kind of histories");
		if (o == 'H')
			opt.hashes = optarg;
		opt.json |= o == 'J';
		seed |= o == 'S';
		seeds |= o == 'n';
	}
	if (optind < argc)
		return sim_usage("no arguments but options");
	if (!opt.jobs || opt.jobs > RUNNER_JOBS_MAX || !opt.failures_max ||
	    opt.failures_max > RUNNER_FAILURES_MAX || opt.first > UINT64_MAX / 2 ||
	    opt.seeds > UINT64_MAX / 4)
		return sim_usage(
			"out of range: --jobs up to 64, --failures up to 1000, seeds below 2^63");
	if (opt.hashes && opt.seeds > HASHES_MAX)
		return sim_usage("out of range: --hashes takes up to 2^24 seeds");
	if (seed && !seeds)
		opt.seeds = 1;
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
	exit(1);
}

int main(int argc, char **argv)
{
	int r = sim_options(argc, argv);

	if (r >= 0)
		return r;
	opt.jobs = MM_MIN(opt.jobs, MM_MAX(opt.seeds, 1));
	tally = shared_map(opt.jobs * sizeof(*tally));
	if (opt.hashes)
		actions_hash = shared_map(opt.seeds * sizeof(*actions_hash));
	if (!run_all() || (opt.hashes && !write_hashes()))
		return 1;
	opt.json ? report_json() : report_text();
	return result.n_failed || !all_kinds() ? 1 : 0;
}
