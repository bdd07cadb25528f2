/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/honest.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"

#define REQUESTS   20000
#define PROMPT_MAX 24
#define VOCABULARY 256
#define PLAIN_NS   (180 * MM_NS_PER_S)
#define BATCH      "2"
#define QUANTUM_MS "40"

/* The tokens that the answer to a prompt has: fewer than MM_HONEST_TOKENS for most. */
static uint32_t answer_tokens(uint32_t prompt)
{
	return MM_HONEST_TOKENS - 2 * prompt;
}

static int requests_write(const struct mm_honest *honest, uint32_t n, uint64_t seed)
{
	mm_cleanup(mm_close_file) FILE *file = fopen(honest->requests, "we");

	if (!file)
		return -errno;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t prompt = i % MM_HONEST_PROMPTS;
		uint64_t random = mm_random_seed(seed, 'p', prompt);
		const uint64_t length = 4 + mm_random_below(&random, PROMPT_MAX - 4);

		fprintf(file, "{\"id\":%u,\"arrival_s\":0,\"max_tokens\":%u,\"prompt\":[", i,
			answer_tokens(prompt));
		for (uint64_t k = 0; k < length; k++)
			fprintf(file, "%s%" PRIu64, k ? "," : "",
				mm_random_below(&random, VOCABULARY));
		fprintf(file, "]}\n");
	}
	return fflush(file) ? -EIO : 0;
}

/* ---- what it says ---- */

static void gap_add(struct mm_honest *honest, uint64_t end_ns, uint64_t gap_ns)
{
	if (honest->n_gaps == honest->room) {
		const size_t room = honest->room ? 2 * honest->room : 4096;
		struct mm_honest_gap *more = realloc(honest->gap, room * sizeof(*more));

		if (!more)
			return;
		honest->gap = more;
		honest->room = room;
	}
	honest->gap[honest->n_gaps++] =
		(struct mm_honest_gap){ .end_ns = end_ns, .gap_ns = gap_ns };
}

static void answer_take(struct mm_honest *honest, const json_t *line, bool is_truth)
{
	const json_t *ids = json_object_get(line, "ids"), *times = json_object_get(line, "times");
	const uint32_t prompt = (uint32_t)(mm_json_u64(line, "id") % MM_HONEST_PROMPTS);
	uint64_t before_ns = 0;

	if (json_object_get(line, "summary"))
		return;
	if (json_object_get(line, "error") || json_array_size(ids) != answer_tokens(prompt)) {
		honest->refused++;
		return;
	}
	for (uint32_t i = 0; i < answer_tokens(prompt); i++) {
		const uint32_t id = (uint32_t)json_integer_value(json_array_get(ids, i));
		const uint64_t at_ns =
			honest->start_ns +
			(uint64_t)(json_number_value(json_array_get(times, i)) * 1e9);

		if (is_truth)
			honest->want[prompt][i] = id;
		honest->mismatches += id != honest->want[prompt][i];
		honest->tokens++;
		if (i && !is_truth)
			gap_add(honest, at_ns, at_ns - before_ns);
		before_ns = at_ns;
	}
}

/* Takes the whole lines that there are. */
static void output_take(struct mm_honest *honest, bool is_truth)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	size_t room = 0;
	ssize_t n;

	if (!honest->file)
		honest->file = fopen(honest->output, "re");
	if (!honest->file)
		return;
	clearerr(honest->file);
	for (long at = ftell(honest->file); (n = getline(&text, &room, honest->file)) > 0;
	     at = ftell(honest->file)) {
		mm_cleanup(mm_json_done) json_t *line = NULL;

		if (text[n - 1] != '\n') { /* it is being written */
			fseek(honest->file, at, SEEK_SET);
			break;
		}
		line = json_loads(text, 0, NULL);
		if (line)
			answer_take(honest, line, is_truth);
		else
			honest->mismatches++;
	}
}

/* ---- the engine ---- */

static int engine_start(struct mm_honest *honest, bool plain)
{
	char program[PATH_MAX + 16];
	char *argv[] = { program,
			 "--model",
			 (char *)honest->arena->model,
			 "--requests",
			 honest->requests,
			 "--output",
			 honest->output,
			 "--name",
			 honest->name,
			 "--driver",
			 "software",
			 "--max-batch",
			 (char *)(honest->batch ? honest->batch : BATCH),
			 "--kv-timeout",
			 "3600000",
			 plain ? "--plain" : "--sync",
			 plain ? NULL : "--verify",
			 "--socket",
			 (char *)honest->arena->mmd.socket,
			 honest->turns ? "--turns" : NULL,
			 "quantum",
			 "--quantum",
			 QUANTUM_MS,
			 NULL };

	snprintf(program, sizeof(program), "%s/mmserve", honest->arena->bin_dir);
	honest->child = (struct mm_child){ .name = honest->name,
					   .err_path = honest->log,
					   .processor = honest->processor };
	honest->ready = honest->done = false;
	remove(honest->output);
	return mm_child_start(&honest->child, argv);
}

/* The answers, computed from memory of its own. */
static int truth_compute(struct mm_honest *honest, char *err)
{
	int r = engine_start(honest, true);

	if (!r && (!mm_child_wait(&honest->child, mm_now_ns() + PLAIN_NS) || honest->child.status))
		r = -ECHILD;
	output_take(honest, true);
	mm_child_done(&honest->child);
	mm_close_file(&honest->file);
	if (!r && honest->refused)
		r = -EBADMSG;
	if (r)
		snprintf(err, MM_SERVE_ERROR_BYTES, "%s: no answers without mmd: see %s",
			 honest->name, honest->log);
	honest->tokens = 0;
	return r;
}

int mm_honest_init(struct mm_honest *honest, const struct mm_arena *arena, const char *name,
		   uint64_t seed, char *err)
{
	int r;

	*honest = (struct mm_honest){ .arena = arena };
	snprintf(honest->name, sizeof(honest->name), "%s", name);
	snprintf(honest->requests, sizeof(honest->requests), "%.200s/%s.jsonl", arena->dir, name);
	snprintf(honest->output, sizeof(honest->output), "%.200s/%s.out", arena->dir, name);
	snprintf(honest->log, sizeof(honest->log), "%.200s/%s.log", arena->dir, name);
	r = requests_write(honest, MM_HONEST_PROMPTS, seed);
	if (!r)
		r = truth_compute(honest, err);
	return r ? r : requests_write(honest, REQUESTS, seed);
}

int mm_honest_start(struct mm_honest *honest, char *err)
{
	int r;

	mm_honest_stop(honest);
	r = engine_start(honest, false);
	honest->starts++;
	if (r)
		snprintf(err, MM_SERVE_ERROR_BYTES, "%s: cannot start: %s", honest->name,
			 strerror(-r));
	return r;
}

static void honest_begin(struct mm_honest *honest)
{
	char line[48];

	honest->ready = true;
	honest->start_ns = mm_now_ns();
	snprintf(line, sizeof(line), "start %" PRIu64, honest->start_ns);
	mm_child_send(&honest->child, line);
}

int mm_honest_poll(struct mm_honest *honest, char *err)
{
	char line[64], how[64], words[512];

	while (mm_child_line(&honest->child, line, sizeof(line)) > 0) {
		if (!strcmp(line, "ready"))
			honest_begin(honest);
		honest->done = honest->done || !strcmp(line, "done");
	}
	output_take(honest, false);
	if (mm_child_ended(&honest->child)) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "%s: %s: %s", honest->name,
			 mm_child_how(&honest->child, how, sizeof(how)),
			 mm_child_last_words(&honest->child, words, sizeof(words)));
		return -ECHILD;
	}
	return honest->done ? -ENODATA : honest->ready;
}

void mm_honest_stop(struct mm_honest *honest)
{
	mm_child_done(&honest->child);
	output_take(honest, false);
	mm_close_file(&honest->file);
}

void mm_honest_done(struct mm_honest *honest)
{
	if (!honest->arena)
		return;
	mm_honest_stop(honest);
	free(honest->gap);
	honest->gap = NULL;
	honest->n_gaps = honest->room = 0;
}

static int gap_compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

size_t mm_honest_gaps(const struct mm_honest *honest, uint64_t from_ns, uint64_t to_ns,
		      double *into, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < honest->n_gaps && n < max; i++) {
		const struct mm_honest_gap *gap = &honest->gap[i];

		if (gap->end_ns < to_ns && gap->end_ns - gap->gap_ns >= from_ns)
			into[n++] = (double)gap->gap_ns / 1e9;
	}
	qsort(into, n, sizeof(*into), gap_compare);
	return n;
}
