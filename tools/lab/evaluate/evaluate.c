/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/evaluate/evaluate.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/evaluate/figures.h"
#include "tools/lab/evaluate/jobs.h"
#include "tools/lab/evaluate/points.h"
#include "tools/lab/evaluate/targets.h"
#include "tools/lab/common/procs.h"
#include "tools/lab/common/words.h"
#include "tools/lab/workload/stats.h"

#define WORDS_MAX     96
#define WINDOWS_CLAIM 8 /* intervals over fewer windows are too wide for a claim */

static const char evaluate_help[] =
	"usage: mmbench evaluate [options]\n"
	"\n"
	"Runs the papers' evaluation through mmsim and writes DIR/evaluation.md "
	"with tables, plots (by\n"
	"gnuplot, where it is installed) and each run's JSON beside it.\n"
	"\n"
	"  --quick            fewer loads, 4 windows of 30 s instead of 8 of 300 s\n"
	"  --out DIR          (default evaluation)\n"
	"  --trace FILE       arrivals: a CSV with arrival_s (default: bursts from the seed)\n"
	"  --alpaca FILE      lengths of the Alpaca-like load (default: a fitted log-normal)\n"
	"  --jobs N           simulators at once (default: one per processor)\n"
	"  --windows N        of the trace, for each case (default 8, quick 4)\n"
	"  --seconds S        of arrivals in each (default 300, quick 30)\n"
	"  --seed N           (default 1)\n"
	"  --only A,B,...     sections: fig8 fig9 fig10 fig11 fig12 fig13 fig15 fig16 fig17 pcie "
	"link\n"
	"                     ablation never-worse\n"
	"  --simulator FILE   (default: mmsim beside this program)\n"
	"  --list             print the simulator's command lines, run nothing\n"
	"  -h, --help, --version\n";

enum evaluate_flag {
	OPT_HELP = 'h',
	OPT_QUICK = 256,
	OPT_OUT,
	OPT_TRACE,
	OPT_ALPACA,
	OPT_JOBS,
	OPT_WINDOWS,
	OPT_SECONDS,
	OPT_SEED,
	OPT_ONLY,
	OPT_SIMULATOR,
	OPT_LIST,
	OPT_VERSION
};

static const struct option evaluate_options[] = {
	{ "quick", no_argument, NULL, OPT_QUICK },
	{ "out", required_argument, NULL, OPT_OUT },
	{ "trace", required_argument, NULL, OPT_TRACE },
	{ "alpaca", required_argument, NULL, OPT_ALPACA },
	{ "jobs", required_argument, NULL, OPT_JOBS },
	{ "windows", required_argument, NULL, OPT_WINDOWS },
	{ "seconds", required_argument, NULL, OPT_SECONDS },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "only", required_argument, NULL, OPT_ONLY },
	{ "simulator", required_argument, NULL, OPT_SIMULATOR },
	{ "list", no_argument, NULL, OPT_LIST },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ 0 },
};

struct evaluation {
	struct mm_eval eval;
	struct mm_eval_job *jobs;
	char **words; /* [points][WORDS_MAX] */
	char simulator[PATH_MAX];
	bool list;
	int signals;
};

#define wrong(...) mm_words_refuse("evaluate", __VA_ARGS__)

static int wrong_section(const char *name, size_t n)
{
	char known[256] = "";
	size_t at = 0;

	for (enum mm_eval_section s = 0; s < MM_EVAL_SECTIONS && at < sizeof(known); s++)
		at += (size_t)snprintf(known + at, sizeof(known) - at, s ? ", %s" : "%s",
				       mm_eval_section_name(s));
	return wrong("--only: '%.*s' is none of: %s", (int)n, name, known);
}

static int check_only(const char *text)
{
	for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		const size_t n = strcspn(at, ",");
		int known = 0;

		for (enum mm_eval_section s = 0; s < MM_EVAL_SECTIONS; s++)
			known |= strlen(mm_eval_section_name(s)) == n &&
				 !strncmp(at, mm_eval_section_name(s), n);
		if (!known)
			return wrong_section(at, n);
	}
	return 0;
}

static int take_number(struct evaluation *e, int opt, const char *arg)
{
	struct mm_eval_opts *o = &e->eval.opts;
	uint64_t value = 0;
	int r;

	switch (opt) {
	case OPT_JOBS:
		return mm_words_u32("evaluate", "jobs", arg, 1, 1024, &o->jobs);
	case OPT_WINDOWS:
		return mm_words_u32("evaluate", "windows", arg, 1, MM_WL_WINDOWS_MAX, &o->windows);
	case OPT_SECONDS:
		r = mm_words_number("evaluate", "seconds", arg, 1, 1000000, &value);
		o->seconds = (double)value;
		return r;
	case OPT_SEED:
		return mm_words_number("evaluate", "seed", arg, 0, UINT32_MAX, &o->seed);
	default:
		return -ENOENT;
	}
}

static int evaluate_option(struct evaluation *e, int opt, char *arg)
{
	struct mm_eval_opts *o = &e->eval.opts;

	switch (opt) {
	case OPT_QUICK:
		o->quick = true;
		return 0;
	case OPT_OUT:
		o->out_dir = arg;
		return 0;
	case OPT_TRACE:
		o->trace_path = arg;
		return 0;
	case OPT_ALPACA:
		o->alpaca = arg;
		return 0;
	case OPT_ONLY:
		o->only = arg;
		return check_only(arg);
	case OPT_SIMULATOR:
		o->simulator = arg;
		return 0;
	case OPT_LIST:
		e->list = true;
		return 0;
	case OPT_HELP:
		fputs(evaluate_help, stdout);
		return 1;
	case OPT_VERSION:
		puts("mmbench " MM_VERSION);
		return 1;
	default:
		return take_number(e, opt, arg);
	}
}

static int evaluate_parse(struct evaluation *e, int argc, char **argv)
{
	struct mm_eval_opts *o = &e->eval.opts;
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int opt, r;

	*o = (struct mm_eval_opts){ .out_dir = "evaluation",
				    .alpaca = "alpaca",
				    .seed = 1,
				    .jobs = processors > 0 ? (uint32_t)processors : 1 };
	while ((opt = getopt_long(argc, argv, "+h", evaluate_options, NULL)) != -1) {
		r = opt == '?' ? -EINVAL : evaluate_option(e, opt, optarg);
		if (r)
			return r;
	}
	if (optind < argc)
		return wrong("unexpected argument '%s'", argv[optind]);
	if (strpbrk(o->out_dir, " \t'\"") || (o->trace_path && strchr(o->trace_path, ' ')) ||
	    strchr(o->alpaca, ' '))
		return wrong(
			"paths with blanks or quotes cannot be passed on to gnuplot and mmsim");
	if (!o->windows)
		o->windows = o->quick ? 4 : WINDOWS_CLAIM;
	if (!(o->seconds > 0))
		o->seconds = o->quick ? 30 : 300;
	return 0;
}

/* ---- numbers of a point ---- */

static const json_t *of_policy(const struct mm_eval_point *point, const char *policy)
{
	return json_object_get(json_object_get(point->json, "results"), policy);
}

bool mm_eval_has(const struct mm_eval_point *point, const char *policy)
{
	return json_is_object(of_policy(point, policy));
}

double mm_eval_value(const struct mm_eval_point *point, const char *policy, const char *key)
{
	const json_t *value = json_object_get(of_policy(point, policy), key);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

struct mm_ratio mm_eval_ratio(const struct mm_eval_point *point, const char *a, const char *b,
			      const char *key)
{
	const json_t *of_a = json_object_get(of_policy(point, a), "windows");
	const json_t *of_b = json_object_get(of_policy(point, b), "windows");
	const size_t n = MM_MIN(json_array_size(of_a), json_array_size(of_b));
	double x[MM_WL_WINDOWS_MAX], y[MM_WL_WINDOWS_MAX];

	for (size_t w = 0; w < n && w < MM_WL_WINDOWS_MAX; w++) {
		x[w] = json_number_value(json_object_get(json_array_get(of_a, w), key));
		y[w] = json_number_value(json_object_get(json_array_get(of_b, w), key));
	}
	return mm_ratio_of(x, y, MM_MIN(n, (size_t)MM_WL_WINDOWS_MAX), 0.95);
}

/* A gain below this part of throughput is within the noise, and so would be a quotient by it. */
#define GAIN_LEAST 0.02

double mm_eval_gain(const struct mm_eval_point *point, const char *policy)
{
	const double low = mm_eval_value(point, "recompute", "throughput_tok_s");
	const double high = mm_eval_value(point, "unlimited", "throughput_tok_s");
	const double ours = mm_eval_value(point, policy, "throughput_tok_s");

	if (!(high - low > GAIN_LEAST * low))
		return NAN;
	return (ours - low) / (high - low);
}

bool mm_eval_fits(const struct mm_eval_point *point)
{
	return mm_eval_value(point, "unlimited", "kv_peak_bytes") <= point->kv_fits_bytes;
}

/* ---- running ---- */

static int split_line(struct evaluation *e, size_t i)
{
	struct mm_eval_point *p = &e->eval.point[i];
	char **argv = &e->words[i * WORDS_MAX], *rest = strdup(p->line);
	size_t n = 0;

	if (!rest)
		return -ENOMEM;
	argv[n++] = e->simulator;
	argv[n++] = (char *)"--json";
	argv[WORDS_MAX - 1] = rest; /* to be freed */
	for (char *word; n < WORDS_MAX - 2 && (word = strsep(&rest, " "));) {
		if (*word)
			argv[n++] = word;
	}
	argv[n] = NULL;
	return 0;
}

static int make_jobs(struct evaluation *e)
{
	struct mm_eval *v = &e->eval;

	e->jobs = calloc(v->n, sizeof(*e->jobs));
	e->words = calloc(v->n * WORDS_MAX, sizeof(*e->words));
	if (!e->jobs || !e->words)
		return -ENOMEM;
	for (size_t i = 0; i < v->n; i++) {
		char *out = NULL, *err_path = NULL;
		int r = split_line(e, i);

		if (r)
			return r;
		if (asprintf(&out, "%s/data/%s.json", v->opts.out_dir, v->point[i].id) < 0 ||
		    asprintf(&err_path, "%s/data/%s.log", v->opts.out_dir, v->point[i].id) < 0)
			return -ENOMEM;
		e->jobs[i] = (struct mm_eval_job){ .argv = &e->words[i * WORDS_MAX],
						   .out_path = out,
						   .err_path = err_path };
	}
	return 0;
}

static void progress_print(void *user, const struct mm_eval_job *job, size_t ended)
{
	const struct evaluation *e = user;
	const struct mm_eval_point *p = &e->eval.point[job - e->jobs];

	fprintf(stderr, "mmbench: %zu of %zu, %.1f s: %s%s\n", ended, e->eval.n, job->wall_s, p->id,
		job->status ? " FAILED" : "");
}

static void last_line(const char *path, char *out, size_t bytes)
{
	FILE *file = fopen(path, "re");
	char line[256];

	*out = '\0';
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (*line)
			snprintf(out, bytes, "%s", line);
	}
	if (file)
		fclose(file);
}

/* Reads the JSON that a job wrote, or notes why there is none. */
static void point_collect(struct mm_eval_point *p, const struct mm_eval_job *job)
{
	json_error_t where;

	p->wall_s = job->wall_s;
	if (!job->status)
		p->json = json_load_file(job->out_path, 0, &where);
	if (p->json)
		return;
	if (!job->status)
		snprintf(p->failure, sizeof(p->failure), "%s: no JSON: %s", job->out_path,
			 where.text);
	else
		last_line(job->err_path, p->failure, sizeof(p->failure));
	if (!*p->failure)
		snprintf(p->failure, sizeof(p->failure), "ended with status %d", job->status);
}

static int points_run(struct evaluation *e)
{
	struct mm_eval *v = &e->eval;
	const uint64_t begun_ns = mm_now_ns();
	int r;

	r = mm_eval_jobs_run(e->jobs, v->n, v->opts.jobs, e->signals, progress_print, e);
	v->wall_s = (double)(mm_now_ns() - begun_ns) / 1e9;
	for (size_t i = 0; !r && i < v->n; i++) {
		point_collect(&v->point[i], &e->jobs[i]);
		r = mm_eval_check(&v->point[i]);
	}
	return r;
}

/* ---- the report ---- */

static void write_head(const struct mm_eval *v, FILE *out)
{
	struct utsname host;

	uname(&host);
	fprintf(out,
		"# The papers' evaluation\n\n"
		"Made by `mmbench evaluate%s%s%s%s%s --windows %u --seconds %g --seed %" PRIu64
		"`, version " MM_VERSION ", commit " MM_COMMIT
		", on %s %s: %zu cases in %.0f s with %u simulators at once. Every number is of "
		"`mmsim`: modelled device time (Documentation/timing.md), mmd's own core, the "
		"engine's own scheduler.\n"
		"\n",
		v->opts.quick ? " --quick" : "", v->opts.trace_path ? " --trace " : "",
		v->opts.trace_path ? basename((char *)v->opts.trace_path) : "",
		strcmp(v->opts.alpaca, "alpaca") ? " --alpaca " : "",
		strcmp(v->opts.alpaca, "alpaca") ? basename((char *)v->opts.alpaca) : "",
		v->opts.windows, v->opts.seconds, v->opts.seed, host.sysname, host.machine, v->n,
		v->wall_s, v->opts.jobs);
	if (v->opts.windows < WINDOWS_CLAIM)
		fprintf(out,
			"**With %u windows instead of %d intervals are wide: a lower bound that "
			"is not reached here is no finding.**\n"
			"\n",
			v->opts.windows, WINDOWS_CLAIM);
}

static int write_report(struct evaluation *e)
{
	struct mm_eval *v = &e->eval;
	char path[PATH_MAX];
	FILE *out;
	int r;

	snprintf(path, sizeof(path), "%s/evaluation.md", v->opts.out_dir);
	out = fopen(path, "we");
	if (!out) {
		fprintf(stderr, "mmbench: %s: %m\n", path);
		return -errno;
	}
	write_head(v, out);
	mm_eval_targets(v, out);
	r = mm_eval_figures(v, out);
	if (fclose(out) && !r)
		r = -errno;
	if (!r)
		printf("%s\n", path);
	return r;
}

static int make_dirs(const struct evaluation *e)
{
	static const char *const dirs[] = { "", "/data", "/figures" };
	char path[PATH_MAX];

	for (size_t i = 0; i < MM_ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s%s", e->eval.opts.out_dir, dirs[i]);
		if (!mkdir(path, 0755) || errno == EEXIST)
			continue;
		fprintf(stderr, "mmbench: cannot create %s: %m\n", path);
		return -errno;
	}
	return 0;
}

static bool have_gnuplot(void)
{
	return system("gnuplot --version >/dev/null 2>&1") == 0;
}

static int find_simulator(struct evaluation *e)
{
	char self[PATH_MAX - 16] = "";

	if (e->eval.opts.simulator)
		snprintf(e->simulator, sizeof(e->simulator), "%s", e->eval.opts.simulator);
	else if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -errno;
	else
		snprintf(e->simulator, sizeof(e->simulator), "%s/mmsim", dirname(self));
	if (!access(e->simulator, X_OK))
		return 0;
	fprintf(stderr, "mmbench: %s: cannot run the simulator: %m\n", e->simulator);
	return -ENOENT;
}

static int evaluation_run(struct evaluation *e)
{
	int r = mm_eval_points(&e->eval);

	if (!r && e->list) {
		for (size_t i = 0; i < e->eval.n; i++)
			printf("mmsim %s\n", e->eval.point[i].line);
		return 0;
	}
	if (!r)
		r = find_simulator(e);
	if (!r)
		r = make_dirs(e);
	if (r)
		return r;
	e->eval.plots = have_gnuplot();
	if (!e->eval.plots)
		fprintf(stderr, "mmbench: gnuplot is not installed (Debian: gnuplot-nox): tables "
				"without plots\n");
	e->signals = mm_signals_open();
	if (e->signals < 0)
		return e->signals;
	r = make_jobs(e);
	if (!r)
		r = points_run(e);
	return r ? r : write_report(e);
}

static void evaluation_put(struct evaluation **e)
{
	for (size_t i = 0; *e && (*e)->jobs && i < (*e)->eval.n; i++) {
		free((char *)(*e)->jobs[i].out_path);
		free((char *)(*e)->jobs[i].err_path);
		free((*e)->words[i * WORDS_MAX + WORDS_MAX - 1]);
	}
	if (*e) {
		mm_eval_done(&(*e)->eval);
		mm_close_fd(&(*e)->signals);
		free((*e)->jobs);
		free((*e)->words);
	}
	free(*e);
}

int mm_bench_evaluate(int argc, char **argv)
{
	mm_cleanup(evaluation_put) struct evaluation *e = calloc(1, sizeof(*e));
	size_t failed = 0;
	int r;

	if (!e)
		return 1;
	e->signals = -1;
	r = evaluate_parse(e, argc, argv);
	if (r)
		return r < 0 ? 2 : 0;
	if (evaluation_run(e))
		return 1;
	for (size_t i = 0; i < e->eval.n; i++)
		failed += *e->eval.point[i].failure != 0;
	if (failed)
		fprintf(stderr, "mmbench: %zu of %zu cases failed; the report names them\n", failed,
			e->eval.n);
	return failed ? 1 : 0;
}
