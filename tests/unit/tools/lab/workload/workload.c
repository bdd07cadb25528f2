/* SPDX-License-Identifier: Apache-2.0 */
/* Command line, shapes, sizes, windows and lengths of the cases of mmbench and mmsim. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "tools/lab/workload/case.h"
#include "tools/lab/workload/sizes.h"

#define GIB       UINT64_C(1073741824)
#define WORDS_MAX 48

static const char any[] = "/tmp/mm-workload-XXXXXX";
static char path[sizeof(any)]; /* empty: there is no such file */

/* Writes @text into a file, which is the same one in each call. */
static const char *write_file(const char *text)
{
	FILE *file;

	if (!*path) {
		strcpy(path, any);
		assert_int_equal(close(mkstemp(path)), 0);
	}
	file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fputs(text, file) >= 0, 1);
	assert_int_equal(fclose(file), 0);
	return path;
}

static int remove_file(void **state)
{
	(void)state;
	if (*path)
		unlink(path);
	*path = '\0';
	return 0;
}

/* ---- the command line ---- */

static char why_not[MM_OPT_ERROR_BYTES]; /* the sentence of the last line that was refused */

/* Reads @line, split at blanks, as a program of the shared options does. */
static int opts_parse(const char *line, struct mm_wl_opts *ret)
{
	static char copy[512];
	static const struct mm_opt_command command = { .name = "",
						       .sets = { { mm_wl_options, 0 } } };
	static const struct mm_opt_program program = { .name = "test",
						       .commands = &command,
						       .n_commands = 1 };
	char *argv[WORDS_MAX] = { (char *)"test" }, *rest = copy;
	struct mm_opt_line unused;
	int argc = 1, r;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *word; (word = strsep(&rest, " "));) {
		assert_true(argc < WORDS_MAX - 1);
		if (*word)
			argv[argc++] = word;
	}
	memset(ret, 0, sizeof(*ret));
	r = mm_opt_parse(&program, argc, argv, ret, &unused, why_not);
	return r == MM_OPT_RUN ? mm_wl_settle(ret, why_not) : r;
}

static void test_defaults(void **state)
{
	struct mm_wl_opts o;

	(void)state;
	assert_int_equal(opts_parse("", &o), 0);
	assert_string_equal(o.profile, "gh200-96");
	assert_string_equal(o.combo, "C1");
	assert_int_equal(o.tenants, 3);
	assert_string_equal(o.tenant[1].shape->name, "Llama-2-13B");
	assert_int_equal(o.tenant[2].share_permille, 200);
	assert_int_equal(o.tenant[0].tokens_max, 2048);
	assert_int_equal(o.tenant[2].tokens_max, 8192);
	assert_int_equal(o.policies, 4);
	assert_string_equal(o.policy[0].name, "recompute");
	assert_true(o.policy[3].unlimited && !o.policy[2].unlimited);
	assert_int_equal(o.max_seqs, 256);
	assert_int_equal(o.batched_tokens, MM_WL_TOKENS_AUTO);
	assert_int_equal(o.kv_keep_permille, 0);
	assert_true(fabs(o.tenant[0].rate - 4.0 / 3) < 1e-12);
	assert_true(o.swap_bytes == MM_WL_SWAP_AUTO);
}

static void test_all_flags(void **state)
{
	struct mm_wl_opts o;

	(void)state;
	assert_int_equal(
		opts_parse("--profile x.conf --pool 96G --combo c2 --lengths short,long --rate 1,3 "
			   "--seconds 9.5 --windows 8 --seed 7 --policy remap,recompute --sharing "
			   "mig --turns quantum",
			   &o),
		0);
	assert_string_equal(o.profile, "x.conf");
	assert_int_equal(o.pool_bytes, 96 * GIB);
	assert_int_equal(o.tenants, 2);
	assert_int_equal(o.tenant[1].share_permille, 150);
	assert_string_equal(o.tenant[1].lengths, "long");
	assert_true(o.tenant[0].rate == 1 && o.tenant[1].rate == 3 && o.seconds == 9.5);
	assert_int_equal(o.windows, 8);
	assert_int_equal(o.policies, 2);
	assert_string_equal(o.policy[0].name, "remap");
	assert_int_equal(o.sharing, MM_WL_MIG);
	assert_int_equal(o.turns, MM_WL_QUANTUM);
	assert_int_equal(
		opts_parse(
			"--shapes OPT-13B:12.5%,qwen2.5-14b,Llama-3-8B --quantum 50 --max-seqs 8 "
			"--batched-tokens 64 --page 2M --slots 2 "
			"--controller turn-cost=500,reversion=off --json "
			"--max-len 100 --swap 0 --kv-keep 125 --shares whole --arrivals steady "
			"--slo-ttft 250 --slo-factor 2.5",
			&o),
		0);
	assert_int_equal(o.tenants, 3);
	assert_int_equal(o.tenant[0].share_permille, 136); /* 125, 387, 387 of 899, to be 980 */
	assert_int_equal(o.tenant[1].share_permille, 421);
	assert_int_equal(o.tenant[2].tokens_max, 100);
	assert_true(o.kv_keep_permille == 125 && o.shares_whole && o.arrivals == MM_WL_STEADY);
	assert_true(o.goal_ttft_ms == 250 && o.goal_factor == 2.5);
	assert_int_equal(o.slots, 2);
	assert_string_equal(o.controller, "turn-cost=500,reversion=off");
	assert_true(o.json && !o.combo);
	assert_int_equal(o.swap_bytes, 0);
}

static void test_bad_flags(void **state)
{
	static const char *const lines[] = {
		"--combo C3",
		"--combo C1 --shapes OPT-13B",
		"--shapes OPT-13B --combo C1",
		"--shapes OPT-1B",
		"--shapes OPT-13B:60,OPT-13B:60",
		"--shapes OPT-13B:95,OPT-13B",
		"--shapes OPT-13B:0",
		"--shapes OPT-13B:",
		"--shapes ,",
		"--rate 0",
		"--rate 1,2",
		"--rate 1,2,3,4",
		"--rate 1,x,3",
		"--rate nan",
		"--lengths a,b",
		"--lengths a,,b",
		"--seconds 0",
		"--seconds inf",
		"--windows 0",
		"--windows 1001",
		"--seed -1",
		"--policy remap,remap",
		"--policy remap,none",
		"--policy ",
		"--sharing time",
		"--turns none",
		"--quantum 0",
		"--quantum 60001",
		"--kv-keep 1001",
		"--shares half",
		"--slo-ttft 3600001",
		"--slo-factor 0.9",
		"--max-seqs 0",
		"--batched-tokens 255",
		"--page 0",
		"--page 16X",
		"--pool 2000000T",
		"--slots 3",
		"--max-len 1",
		"--controller nothing=1",
		"--rate 1e6 --seconds 100",
		"stray",
		"--unknown",
		"--profile",
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines); i++) {
		struct mm_wl_opts o;

		print_message("%s\n", lines[i]);
		assert_int_equal(opts_parse(lines[i], &o), -EINVAL);
	}
}

/* The nearest word is named, also of a list. */
static void test_near(void **state)
{
	static const struct {
		const char *line, *says;
	} lines[] = {
		{ "--polcy remap", "did you mean --policy?" },
		{ "--policy recompute,rmap", "--policy: 'rmap' is none of: recompute, " },
		{ "--policy recompute,rmap", "did you mean remap?" },
		{ "--policy unlimted", "did you mean unlimited?" },
		{ "--shapes OPT-6.7B:50,OPT-13:40", "did you mean OPT-13B?" },
		{ "--rate 1,2,-3", "--rate: '-3' is not within 0.001 to 1e+06 requests/s" },
		{ "--rate 1,2", "--rate: 2 values for 3 tenants" },
		{ "--sharing temporl", "did you mean temporal?" },
	};
	struct mm_wl_opts o;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines); i++) {
		assert_int_equal(opts_parse(lines[i].line, &o), -EINVAL);
		print_message("%s\n", why_not);
		assert_non_null(strstr(why_not, lines[i].says));
	}
}

/* ---- shapes and sizes ---- */

/* Published sizes in fp16: a layer with norms and biases, all weights, a token's KV. */
static void test_shapes(void **state)
{
	static const struct {
		const char *name;
		uint64_t weights, kv;
	} known[] = {
		{ "OPT-6.7B", 13316947968, 524288 },    { "OPT-13B", 25706946560, 819200 },
		{ "OPT-30B", 59949080576, 1376256 },    { "Llama-2-13B", 26031728640, 819200 },
		{ "Llama-3-8B", 16060522496, 131072 },  { "Qwen2.5-3B", 6171877376, 36864 },
		{ "Qwen2.5-14B", 29540067328, 196608 }, { "Qwen2.5-72B", 145412407296, 327680 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(known); i++) {
		const struct mm_shape *s = mm_shape_find(known[i].name);

		assert_non_null(s);
		assert_int_equal(mm_arch_weight_bytes(&s->arch, 2), known[i].weights);
		assert_int_equal(mm_arch_kv_token_bytes(&s->arch, 2), known[i].kv);
	}
	assert_null(mm_shape_at(MM_ARRAY_SIZE(known)));
	/* A layer of OPT-6.7B has 4 * 4096 * 4096 + 2 * 4096 * 16384 elements. */
	assert_int_equal(mm_arch_layer_bytes(&mm_shape_find("opt-6.7b")->arch, 2), 402653184);
	assert_int_equal(mm_arch_resident_bytes(&mm_shape_find("opt-6.7b")->arch, 2),
			 13316947968 - 32 * UINT64_C(402653184));
}

static void test_sizes(void **state)
{
	struct mm_wl_opts o;
	struct mm_wl_sizes s;
	char why[512];

	(void)state;
	assert_int_equal(opts_parse("--combo C2", &o), 0);
	assert_int_equal(mm_wl_sizes(&o, 96 * GIB, &s, why, sizeof(why)), 0);
	/* The smaller share still holds the longest request: 2,048 tokens of 512 KiB. */
	assert_true(s.tenant[1].kv_share_bytes >= GIB && s.tenant[1].kv_share_bytes < 2 * GIB);
	for (uint32_t t = 0; t < 2; t++) {
		const struct mm_wl_tenant_sizes *x = &s.tenant[t];

		assert_int_equal(x->kv_share_bytes % o.page_bytes, 0);
		assert_int_equal(x->overhead_bytes,
				 x->context_bytes + x->activation_bytes + x->graph_bytes);
		assert_true(x->weight_pages * o.page_bytes >= x->weight_bytes);
		assert_true(x->overhead_bytes + x->weight_pages * o.page_bytes +
				    x->kv_share_bytes <=
			    x->share_bytes);
		assert_true(x->share_bytes - x->overhead_bytes - x->weight_pages * o.page_bytes -
				    x->kv_share_bytes <
			    o.page_bytes);
		assert_true(x->fraction == 1);
	}
	assert_int_equal(s.pool_bytes,
			 (s.tenant[0].weight_pages + s.tenant[1].weight_pages) * o.page_bytes +
				 s.tenant[0].kv_share_bytes + s.tenant[1].kv_share_bytes);
	/* With --pool the shares are parts of the pool, not of the device. */
	assert_int_equal(opts_parse("--combo C2 --pool 96G --sharing mig", &o), 0);
	assert_int_equal(mm_wl_sizes(&o, 141 * GIB, &s, why, sizeof(why)), 0);
	assert_int_equal(s.device_bytes, 96 * GIB);
	assert_true(fabs(s.tenant[0].fraction - 65.0 / 80) < 1e-12);
	/* 80 GiB are not enough. */
	assert_int_equal(mm_wl_sizes(&o, 80 * GIB, &s, why, sizeof(why)), 0);
	o.pool_bytes = 80 * GIB;
	assert_int_equal(mm_wl_sizes(&o, 141 * GIB, &s, why, sizeof(why)), -ENOSPC);
	assert_non_null(strstr(why, "OPT-30B"));
}

/*
 * The overhead of OPT-6.7B, by hand: 2048 * (2 * 4096 + 16384) * 2 + 256 * 50272 * 6, and 4 MiB for
 * each of 32 layers.
 */
static void test_overhead(void **state)
{
	struct mm_wl_opts o;
	struct mm_wl_sizes s;
	char why[512];

	(void)state;
	assert_int_equal(opts_parse("--shapes OPT-6.7B --batched-tokens 2048", &o), 0);
	assert_int_equal(mm_wl_sizes(&o, 96 * GIB, &s, why, sizeof(why)), 0);
	assert_int_equal(s.tenant[0].context_bytes, GIB / 2);
	assert_int_equal(s.tenant[0].activation_bytes, 100663296 + 77217792);
	assert_int_equal(s.tenant[0].graph_bytes, GIB / 8);
}

/* ---- lengths ---- */

static void test_lengths_rows(void **state)
{
	struct mm_wl_lengths l;
	uint64_t random = 3, filtered = 0, seen[3] = { 0 };
	char why[256];

	(void)state;
	write_file("prompt_tokens,output_tokens\n10,20\n2000,49\n1,1\n");
	assert_int_equal(mm_wl_lengths_open(path, 2048, &l, why, sizeof(why)), 0);
	assert_int_equal(l.n, 2);
	assert_int_equal(l.filtered, 1);
	for (int i = 0; i < 1000; i++) {
		struct mm_wl_length x = mm_wl_lengths_draw(&l, &random, &filtered);

		assert_true((x.prompt_tokens == 10 && x.output_tokens == 20) ||
			    (x.prompt_tokens == 1 && x.output_tokens == 1));
		seen[x.prompt_tokens == 10]++;
	}
	assert_true(seen[0] > 400 && seen[1] > 400);
	mm_wl_lengths_done(&l);
	assert_int_equal(mm_wl_lengths_open(path, 1, &l, why, sizeof(why)), -ERANGE);
	write_file("prompt_tokens\n1\n");
	assert_int_equal(mm_wl_lengths_open(path, 100, &l, why, sizeof(why)), -EBADMSG);
	assert_non_null(strstr(why, ":1: no column 'output_tokens'"));
	write_file("prompt_tokens,output_tokens\n1,1\n1,-1\n");
	assert_int_equal(mm_wl_lengths_open(path, 100, &l, why, sizeof(why)), -EBADMSG);
	assert_non_null(strstr(why, ":3: output_tokens '-1'"));
	assert_int_equal(mm_wl_lengths_open("/nowhere/x.csv", 100, &l, why, sizeof(why)), -ENOENT);
}

static void mean_of(const char *name, uint32_t tokens_max, double *ret_prompt, double *ret_output,
		    uint64_t *ret_filtered)
{
	struct mm_wl_lengths l;
	uint64_t random = 1;
	const int n = 20000;
	char why[256];

	*ret_prompt = *ret_output = 0;
	*ret_filtered = 0;
	assert_int_equal(mm_wl_lengths_open(name, tokens_max, &l, why, sizeof(why)), 0);
	for (int i = 0; i < n; i++) {
		struct mm_wl_length x = mm_wl_lengths_draw(&l, &random, ret_filtered);

		assert_true(x.prompt_tokens >= 1 && x.output_tokens >= 1);
		assert_true(x.prompt_tokens + x.output_tokens <= MM_MIN(tokens_max, 2048));
		*ret_prompt += x.prompt_tokens / (double)n;
		*ret_output += x.output_tokens / (double)n;
	}
	mm_wl_lengths_done(&l);
}

static void test_mixes(void **state)
{
	double prompt, output;
	uint64_t filtered;

	(void)state;
	mean_of("long", 4096, &prompt, &output, &filtered);
	assert_true(fabs(prompt + output - 1734) < 10 && fabs(output - 1734 * 373.0 / 2033) < 5);
	mean_of("short", 4096, &prompt, &output, &filtered);
	assert_true(fabs(prompt + output - 634) < 10);
	assert_int_equal(filtered, 0);
	mean_of("alpaca", 2048, &prompt, &output, &filtered);
	assert_true(fabs(prompt - 21) < 0.5 && fabs(output - 65.5) < 2);
	/* The caps shorten mostly prompts, whose mean is below the 1,660 of the draws. */
	mean_of("sharegpt", 4096, &prompt, &output, &filtered);
	assert_true(prompt > 1000 && prompt < 1660 && output > 330 && output < 373);
	assert_int_equal(filtered, 0);
	mean_of("sharegpt", 1000, &prompt, &output, &filtered);
	assert_true(filtered > 0);
}

/* ---- windows ---- */

#define TRACE_N 400

/* Writes a trace of bursts of four rows, 0.1 s apart, every 10 s. */
static void write_trace(void)
{
	static char text[TRACE_N * 24 + 64];
	size_t at = (size_t)sprintf(text, "arrival_s,prompt_tokens,output_tokens\n");

	for (int i = 0; i < TRACE_N; i++)
		at += (size_t)sprintf(text + at, "%.1f,%d,5\n", 10.0 * (i / 4) + 0.1 * (i % 4),
				      i + 1);
	write_file(text);
}

static void case_make(const char *line, struct mm_wl_opts *o, uint32_t window, struct mm_wl_case *c)
{
	struct mm_wl_source source;
	char why[256] = "";

	assert_int_equal(opts_parse(line, o), 0);
	assert_int_equal(mm_wl_source_open(o, &source, why, sizeof(why)), 0);
	assert_int_equal(mm_wl_case_make(o, &source, window, c, why, sizeof(why)), 0);
	mm_wl_source_done(&source);
}

static void test_windows(void **state)
{
	struct mm_wl_opts o;
	struct mm_wl_case c;
	char line[160];

	(void)state;
	write_trace();
	snprintf(line, sizeof(line),
		 "--combo C2 --trace %s --lengths trace --rate 1,2 --seconds 20", path);
	case_make(line, &o, 0, &c);
	assert_true(c.disjoint);
	for (uint32_t t = 0; t < 2; t++) {
		const struct mm_wl_stream *s = &c.stream[t];

		assert_int_equal(s->n, t ? 40 : 20);
		assert_int_equal(s->rows, s->n);
		assert_int_equal(s->wraps, 0);
		/* Windows begin with the first row of a burst, at equal distances. */
		assert_int_equal(s->first_row % 4, 0);
		assert_int_equal(s->first_row, t * TRACE_N / 2);
		for (uint32_t i = 0; i < s->n; i++) {
			assert_int_equal(s->request[i].prompt_tokens, s->first_row + i + 1);
			assert_true(s->request[i].arrival_ns < 20 * MM_NS_PER_S);
		}
		/* Bursts stay bursts: three of four gaps are short, after scaling. */
		for (uint32_t i = 1; i < s->n; i++) {
			double gap =
				(double)(s->request[i].arrival_ns - s->request[i - 1].arrival_ns) /
				1e9;

			assert_true(fabs(gap - (i % 4 ? 0.1 : 9.7) * 20 / s->trace_s) < 1e-6);
		}
		/* The window has n / 4 bursts of 10 s each, and parts of the gaps around them. */
		assert_true(s->trace_s > 10.0 * (s->n / 4 - 1) &&
			    s->trace_s < 10.0 * (s->n / 4 + 1));
	}
	mm_wl_case_done(&c);
}

static void test_windows_wrap(void **state)
{
	struct mm_wl_opts o;
	struct mm_wl_case c;
	char line[160];

	(void)state;
	write_trace();
	snprintf(line, sizeof(line),
		 "--combo C2 --trace %s --lengths trace --rate 100 --seconds 20", path);
	case_make(line, &o, 0, &c);
	assert_false(c.disjoint);
	assert_int_equal(c.stream[0].n, 1000);
	assert_int_equal(c.stream[0].wraps, 2);
	assert_int_equal(c.stream[1].request[TRACE_N / 2].prompt_tokens, 1);
	for (uint32_t i = 1; i < c.stream[1].n; i++)
		assert_true(c.stream[1].request[i].arrival_ns >=
			    c.stream[1].request[i - 1].arrival_ns);
	mm_wl_case_done(&c);
}

static void test_windows_filter(void **state)
{
	struct mm_wl_opts o;
	struct mm_wl_case c;
	char line[160];

	(void)state;
	write_trace();
	snprintf(line, sizeof(line),
		 "--shapes OPT-13B --trace %s --lengths trace --rate 10 --seconds 40 --max-len 105",
		 path);
	case_make(line, &o, 0, &c);
	assert_int_equal(c.stream[0].n, 100);
	assert_int_equal(c.stream[0].filtered, 300);
	mm_wl_case_done(&c);
}

/* A line always gives the same case; another window, seed or tenant gives another one. */
static void test_synthetic(void **state)
{
	struct mm_wl_opts o;
	struct mm_wl_case a, b, other, seeded;
	double squares = 0, gap_mean;
	const struct mm_wl_stream *s = &a.stream[0];

	(void)state;
	case_make("--rate 90 --seconds 30 --windows 2", &o, 1, &a);
	case_make("--rate 90 --seconds 30 --windows 2", &o, 1, &b);
	case_make("--rate 90 --seconds 30 --windows 2", &o, 0, &other);
	case_make("--rate 90 --seconds 30 --windows 2 --seed 2", &o, 1, &seeded);
	assert_true(a.disjoint && other.disjoint);
	for (uint32_t t = 0; t < 3; t++) {
		const size_t bytes = a.stream[t].n * sizeof(*a.stream[t].request);

		assert_int_equal(a.stream[t].n, 900);
		assert_memory_equal(a.stream[t].request, b.stream[t].request, bytes);
		assert_memory_not_equal(a.stream[t].request, other.stream[t].request, bytes);
		assert_memory_not_equal(a.stream[t].request, seeded.stream[t].request, bytes);
	}
	assert_memory_not_equal(a.stream[0].request, a.stream[1].request,
				900 * sizeof(*a.stream[0].request));
	/* Arrivals are burstier than Poisson's, whose coefficient of variation is 1. */
	gap_mean = (double)(s->request[899].arrival_ns - s->request[0].arrival_ns) / 899;
	for (uint32_t i = 1; i < s->n; i++)
		squares += pow((double)(s->request[i].arrival_ns - s->request[i - 1].arrival_ns) -
				       gap_mean,
			       2);
	assert_true(sqrt(squares / 898) / gap_mean > 2);
	mm_wl_case_done(&a);
	mm_wl_case_done(&b);
	mm_wl_case_done(&other);
	mm_wl_case_done(&seeded);
}

/* Returns the variance of the requests in each second over their mean: 1 for a Poisson process. */
static double dispersion(const struct mm_wl_stream *s, uint32_t bins, double bin_s)
{
	double *count = calloc(bins, sizeof(*count)), squares = 0, mean = (double)s->n / bins;

	assert_non_null(count);
	for (uint32_t i = 0; i < s->n; i++) {
		const size_t bin = (size_t)((double)s->request[i].arrival_ns / 1e9 / bin_s);

		assert_true(bin < bins);
		assert_true(!i || s->request[i].arrival_ns >= s->request[i - 1].arrival_ns);
		count[bin]++;
	}
	for (uint32_t b = 0; b < bins; b++)
		squares += (count[b] - mean) * (count[b] - mean);
	free(count);
	return squares / bins / mean;
}

static void test_arrivals(void **state)
{
	struct mm_wl_case a, b, other;
	struct mm_wl_opts o;
	char line[160];
	/* How irregular they are, in seconds; of a day, in its 288 parts of 5 minutes. */
	const struct {
		const char *name;
		double seconds, least, most;
	} cases[] = {
		{ "steady", 1000, 0.8, 1.2 },
		{ "bursts", 1000, 5, 60 },
		{ "day", 288, 5, 100 },
		{ "day", 86400, 5, 100 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		const double d = cases[i].seconds == 1000 ? 1 : cases[i].seconds / 288;
		const uint32_t bins = cases[i].seconds == 1000 ? 1000 : 288;

		snprintf(line, sizeof(line), "--combo C2 --arrivals %s --rate %g,%g --seconds %g",
			 cases[i].name, 4000 / cases[i].seconds, 8000 / cases[i].seconds,
			 cases[i].seconds);
		case_make(line, &o, 0, &a);
		case_make(line, &o, 0, &b);
		assert_true(a.disjoint && a.stream[0].n == 4000 && a.stream[1].n == 8000);
		for (uint32_t t = 0; t < 2; t++) {
			const double found = dispersion(&a.stream[t], bins, d);

			assert_true(found > cases[i].least && found < cases[i].most);
			assert_memory_equal(a.stream[t].request, b.stream[t].request,
					    a.stream[t].n * sizeof(*a.stream[t].request));
		}
		snprintf(line + strlen(line), sizeof(line) - strlen(line), " --seed 2");
		case_make(line, &o, 0, &other);
		assert_memory_not_equal(a.stream[0].request, other.stream[0].request,
					4000 * sizeof(*a.stream[0].request));
		mm_wl_case_done(&a);
		mm_wl_case_done(&b);
		mm_wl_case_done(&other);
	}
	assert_int_not_equal(opts_parse("--arrivals day --trace x", &o), 0);
	assert_int_not_equal(opts_parse("--arrivals night", &o), 0);
}

static void test_bad_sources(void **state)
{
	struct mm_wl_source source;
	struct mm_wl_opts o;
	char why[256], line[160];

	(void)state;
	write_file("arrival_s,prompt_tokens,output_tokens\n0,1,1\n0,2,2\n");
	snprintf(line, sizeof(line), "--trace %s", path);
	assert_int_equal(opts_parse(line, &o), 0);
	assert_int_equal(mm_wl_source_open(&o, &source, why, sizeof(why)), -ERANGE);
	assert_non_null(strstr(why, "second 0"));
	write_file("arrival_s,prompt_tokens,output_tokens\n1,1,1\n0,2,2\n");
	assert_int_equal(mm_wl_source_open(&o, &source, why, sizeof(why)), -EBADMSG);
	assert_non_null(strstr(why, ":3: arrival_s"));
	write_file("prompt_tokens,output_tokens\n1,1\n");
	assert_int_equal(mm_wl_source_open(&o, &source, why, sizeof(why)), -EBADMSG);
	assert_int_equal(opts_parse("--lengths trace", &o), 0);
	assert_int_equal(mm_wl_source_open(&o, &source, why, sizeof(why)), -EINVAL);
	assert_int_equal(opts_parse("--lengths /nowhere/x", &o), 0);
	assert_int_equal(mm_wl_source_open(&o, &source, why, sizeof(why)), -ENOENT);
}

/* All KV that the case can need at once fits, so no request is preempted. */
static void test_unlimited(void **state)
{
	struct mm_wl_sizes sizes, unlimited;
	struct mm_wl_opts o;
	struct mm_wl_case c;
	char why[512];

	(void)state;
	case_make("--combo C2 --rate 400 --seconds 2 --max-seqs 100", &o, 0, &c);
	assert_int_equal(mm_wl_sizes(&o, 96 * GIB, &sizes, why, sizeof(why)), 0);
	mm_wl_sizes_unlimited(&o, &sizes, &c, &unlimited);
	for (uint32_t t = 0; t < 2; t++) {
		uint64_t all = 0;

		assert_true(unlimited.tenant[t].kv_share_bytes >= sizes.tenant[t].kv_share_bytes);
		for (uint32_t i = 0; i < c.stream[t].n; i++)
			all += c.stream[t].request[i].prompt_tokens +
			       c.stream[t].request[i].output_tokens;
		/* A quarter of the requests needs more than a quarter of the sum, but not all. */
		assert_true(unlimited.tenant[t].kv_share_bytes >
			    all / 4 * sizes.tenant[t].kv_token_bytes);
		assert_true(unlimited.tenant[t].kv_share_bytes <
			    all * sizes.tenant[t].kv_token_bytes);
	}
	mm_wl_case_done(&c);
}

/* The holder of a turn has all but its weights and what the others must keep. */
static void test_ideal(void **state)
{
	struct mm_wl_sizes sizes, ideal;
	struct mm_wl_opts o;
	char why[512];

	(void)state;
	assert_int_equal(opts_parse("--combo C2 --policy ideal", &o), 0);
	assert_true(o.policy[0].ideal && o.policy[0].simulated && !o.policy[0].unlimited);
	assert_int_equal(mm_wl_sizes(&o, 96 * GIB, &sizes, why, sizeof(why)), 0);
	mm_wl_sizes_ideal(&sizes, &ideal);
	for (uint32_t t = 0; t < 2; t++) {
		const struct mm_wl_tenant_sizes *s = &ideal.tenant[t], *other = &sizes.tenant[!t];
		const uint64_t kept = mm_round_up(other->resident_bytes, o.page_bytes) +
				      mm_round_up(other->layer_bytes, o.page_bytes);

		assert_int_equal(s->kv_share_bytes + s->weight_pages * o.page_bytes + kept,
				 sizes.pool_bytes);
	}
	assert_int_not_equal(opts_parse("--policy ideal --sharing mig", &o), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_all_flags),
		cmocka_unit_test(test_bad_flags),
		cmocka_unit_test(test_near),
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_overhead),
		cmocka_unit_test_teardown(test_lengths_rows, remove_file),
		cmocka_unit_test(test_mixes),
		cmocka_unit_test_teardown(test_windows, remove_file),
		cmocka_unit_test_teardown(test_windows_wrap, remove_file),
		cmocka_unit_test_teardown(test_windows_filter, remove_file),
		cmocka_unit_test(test_synthetic),
		cmocka_unit_test(test_arrivals),
		cmocka_unit_test_teardown(test_bad_sources, remove_file),
		cmocka_unit_test(test_unlimited),
		cmocka_unit_test(test_ideal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
