/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluation's conclusions from runs, and how it runs jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "tools/lab/evaluate/evaluate.h"
#include "tools/lab/evaluate/figures.h"
#include "tools/lab/evaluate/points.h"
#include "tools/lab/evaluate/targets.h"
#include "tools/lab/evaluate/jobs.h"
#include "tools/lab/common/procs.h"
#include "tools/lab/workload/stats.h"

/* Makes JSON with these throughputs of recompute, remap and unlimited, in two windows. */
static json_t *run_json(double recompute, double remap, double unlimited, double peak)
{
	const double all[] = { recompute, remap, unlimited };
	static const char *const names[] = { "recompute", "remap", "unlimited" };
	json_t *results = json_object();

	for (int i = 0; i < 3; i++)
		json_object_set_new(results, names[i],
				    json_pack("{s:f s:f s:f s:I s:I s:I s:f s:[{s:f},{s:f}]}",
					      "throughput_tok_s", all[i], "ttft_p99_s",
					      all[i] > 0 ? 100 / all[i] : 0.0, "tbt_p99_s", 0.5,
					      "preemptions", (json_int_t)(i == 0), "bytes_streamed",
					      (json_int_t)0, "plan_changes", (json_int_t)0,
					      "kv_peak_bytes", peak, "windows", "throughput_tok_s",
					      0.9 * all[i], "throughput_tok_s", 1.1 * all[i]));
	return json_pack("{s:o}", "results", results);
}

static struct mm_eval one_point(struct mm_eval_point *p, json_t *json)
{
	*p = (struct mm_eval_point){ .section = MM_EVAL_FIG8,
				     .id = "the-id",
				     .chart = "drain-C1-alpaca",
				     .rate = 4,
				     .json = json,
				     .bound_tok_s = 400,
				     .kv_fits_bytes = 1000 };
	return (struct mm_eval){ .point = p, .n = 1 };
}

static void test_numbers(void **state)
{
	struct mm_eval_point p;
	struct mm_ratio r;

	(void)state;
	one_point(&p, run_json(100, 190, 200, 999));
	assert_true(mm_eval_value(&p, "remap", "throughput_tok_s") == 190);
	assert_true(isnan(mm_eval_value(&p, "remap", "nothing")));
	assert_true(isnan(mm_eval_value(&p, "naive", "throughput_tok_s")));
	assert_true(fabs(mm_eval_gain(&p, "remap") - 0.9) < 1e-9);
	assert_true(mm_eval_fits(&p));
	r = mm_eval_ratio(&p, "remap", "recompute", "throughput_tok_s");
	assert_true(r.n == 2 && fabs(r.ratio - 1.9) < 1e-9 && fabs(r.low - 1.9) < 1e-9);
	json_decref(p.json);
	one_point(&p, run_json(100, 101, 101, 1001));
	assert_true(isnan(mm_eval_gain(&p, "remap"))); /* nothing to gain */
	assert_false(mm_eval_fits(&p));
	json_decref(p.json);
}

/* Returns the table of targets as text. */
static char *targets_text(const struct mm_eval *eval)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	mm_eval_targets(eval, out);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void test_targets(void **state)
{
	struct mm_eval_point p;
	struct mm_eval eval;
	char *text;

	(void)state;
	eval = one_point(&p, run_json(100, 196, 200, 999));
	text = targets_text(&eval);
	assert_non_null(strstr(text, "G ≥ 0.95 | reached | 1 of 1 | 0.960 at `the-id`"));
	assert_non_null(strstr(text, "1.10 × unlimited | reached | 1 of 1"));
	assert_non_null(strstr(text, "never worse than recompute: throughput, lower bound of the "
				     "paired ratio ≥ 0.99 | reached | 1 of 1"));
	assert_non_null(strstr(text,
			       "never worse than elastic: throughput, lower bound of the paired "
			       "ratio ≥ 0.99 | – |"));
	free(text);
	json_decref(p.json);
	eval = one_point(&p, run_json(100, 90, 200, 1001));
	text = targets_text(&eval);
	assert_non_null(strstr(text, "G ≥ 0.95 | – |"));
	assert_non_null(strstr(text, "bound | **not reached** | 0 of 1 | 0.225 at `the-id`"));
	assert_non_null(strstr(text, "never worse than recompute: throughput, lower bound of the "
				     "paired ratio ≥ 0.99 | **not reached** | 0 of 1 | 0.900"));
	free(text);
	json_decref(p.json);
	/* Windows in which remap serves no request count as lost. */
	eval = one_point(&p, run_json(100, 0, 200, 1001));
	text = targets_text(&eval);
	assert_non_null(strstr(text, "never worse than recompute: throughput, lower bound of the "
				     "paired ratio ≥ 0.99 | **not reached** | 0 of 1 | 0.000"));
	free(text);
	json_decref(p.json);
}

static void test_figures(void **state)
{
	struct mm_eval_point p;
	struct mm_eval eval = one_point(&p, run_json(100, 150, 200, 999));
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	(void)state;
	assert_non_null(out);
	assert_int_equal(mm_eval_figures(&eval, out), 0);
	assert_int_equal(fclose(out), 0);
	assert_non_null(strstr(text, "## Figure 8"));
	assert_null(strstr(text, "## Figure 9"));
	assert_non_null(strstr(text, "| C1, short | 1 | +50.0 % | -33.3 % | +0.0 % |"));
	assert_non_null(strstr(text, "| requests/s | recompute | remap | unlimited | G |"));
	assert_non_null(strstr(text, "| 4 | 100.0 | 150.0 | 200.0 | 0.500 | 0.375 | yes |"));
	free(text);
	json_decref(p.json);
}

/* Every line can be parsed, has a bound, and its rates increase with its loads. */
static void test_points(void **state)
{
	struct mm_eval eval = { .opts = { .quick = true,
					  .alpaca = "alpaca",
					  .only = "fig9,fig17,pcie",
					  .windows = 1,
					  .seconds = 2,
					  .seed = 1 } };
	uint32_t of[MM_EVAL_SECTIONS] = { 0 };

	(void)state;
	assert_int_equal(mm_eval_points(&eval), 0);
	for (size_t i = 0; i < eval.n; i++) {
		const struct mm_eval_point *p = &eval.point[i], *before = p - 1;

		of[p->section]++;
		assert_true(p->rate > 0);
		if (i && !strcmp(before->chart, p->chart) && !strcmp(before->variant, p->variant))
			assert_true(p->rate > before->rate);
	}
	assert_int_equal(of[MM_EVAL_FIG9], 9);
	assert_int_equal(of[MM_EVAL_FIG17], 6);
	assert_int_equal(of[MM_EVAL_FIG9] + of[MM_EVAL_FIG17] + of[MM_EVAL_PCIE], eval.n);
	assert_int_equal(mm_eval_check(&eval.point[0]), 0);
	assert_true(eval.point[0].bound_tok_s > 0 && eval.point[0].kv_fits_bytes > 0);
	mm_eval_done(&eval);
}

/* ---- jobs ---- */

struct seen {
	size_t ended;
	int codes;
};

static void job_note(void *user, const struct mm_eval_job *job, size_t ended)
{
	struct seen *seen = user;

	assert_int_equal(ended, ++seen->ended);
	seen->codes += WEXITSTATUS(job->status);
}

static void test_jobs(void **state)
{
	char *argv[5][4];
	struct mm_eval_job jobs[5];
	struct seen seen = { 0 };
	char line[64] = "", script[5][64], out_path[] = "/tmp/mm-jobs-XXXXXX";
	int signals = mm_signals_open();
	FILE *file;

	(void)state;
	assert_true(signals >= 0);
	assert_int_equal(close(mkstemp(out_path)), 0);
	for (int i = 0; i < 5; i++) {
		snprintf(script[i], sizeof(script[i]), "echo out %d; echo err >&2; exit %d", i, i);
		argv[i][0] = (char *)"/bin/sh";
		argv[i][1] = (char *)"-c";
		argv[i][2] = script[i];
		argv[i][3] = NULL;
		jobs[i] = (struct mm_eval_job){ .argv = argv[i],
						.out_path = i == 3 ? out_path : "/dev/null",
						.err_path = "/dev/null" };
	}
	assert_int_equal(mm_eval_jobs_run(jobs, 5, 2, signals, job_note, &seen), 0);
	assert_int_equal(seen.ended, 5);
	assert_int_equal(seen.codes, 0 + 1 + 2 + 3 + 4);
	assert_int_equal(WEXITSTATUS(jobs[4].status), 4);
	file = fopen(out_path, "re");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	fclose(file);
	unlink(out_path);
	assert_string_equal(line, "out 3\n");
	/* A program that does not exist makes its job fail, but not the call. */
	argv[0][0] = (char *)"/nowhere/program";
	assert_int_equal(mm_eval_jobs_run(jobs, 1, 1, signals, NULL, NULL), 0);
	assert_int_equal(WEXITSTATUS(jobs[0].status), 127);
	/* A signal ends the running jobs. */
	argv[0][0] = (char *)"/bin/sh";
	snprintf(script[0], sizeof(script[0]), "sleep 1000");
	kill(getpid(), SIGTERM);
	assert_int_equal(mm_eval_jobs_run(jobs, 1, 1, signals, NULL, NULL), -EINTR);
	close(signals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers), cmocka_unit_test(test_targets),
		cmocka_unit_test(test_figures), cmocka_unit_test(test_points),
		cmocka_unit_test(test_jobs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
