/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/options.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/driver.h"
#include "mm/abi.h"
#include "libclient/base/base.h"
#include "libclient/support/size.h"
#include "tools/mmserve/engine/engine.h"
#include "tools/mmserve/sched/kvarena.h"
#include "tools/mmserve/engine/module.h"
#include "tools/mmserve/sched/sched.h"

#define EXIT_USAGE 2

static const char mmserve_help_text[] =
	"Usage: mmserve --model DIR (--requests FILE | --trace FILE) [options]\n"
	"\n"
	"Serves requests with a Llama, Qwen 2.5 or OPT model, from memory that mmd lends or, with\n"
	"--plain, from its own. "
	"Greedy; a request's tokens depend neither on the others nor on how\n"
	"it was batched.\n"
	"\n"
	"      --model DIR               config.json and *.safetensors\n"
	"      --socket PATH             "
	"of mmd (default: $MMD_SOCKET, then where mmd usually listens)\n"
	"      --plain                   without mmd: memory of its own, from the driver\n"
	"      --name NAME               shown by mmctl (default: mmserve)\n"
	"      --driver NAME             "
	"software, cuda, or a library's path (default: $MM_DRIVER)\n"
	"      --device N                ordinal that the driver knows the device by (default 0)\n"
	"      --kernels NAME            "
	"host, emulated (the CUDA kernels, on the software GPU), cuda,\n"
	"                                or a module's path (default: what the device runs)\n"
	"      --gemm NAME               "
	"who multiplies: kernel or cublas (default: cublas on a CUDA\n"
	"                                device, else kernel)\n"
	"      --graphs MODE             "
	"replay decode steps as graphs: on, off, or auto (default): on a\n"
	"                                CUDA device that can\n"
	"      --graphs-max N            sizes of batches that are kept as graphs (default 64)\n"
	"\n"
	"      --requests FILE           "
	"JSONL: {\"id\",\"arrival_s\",\"prompt\":[ids],\"max_tokens\"}\n"
	"                                (or \"prompt_tokens\":N, the ids made from the seed)\n"
	"      --trace FILE              CSV: arrival_s,prompt_tokens,output_tokens\n"
	"                                of either: - is standard input, read to its end first\n"
	"      --seed N                  "
	"of prompt ids of which only the number is given (default 0)\n"
	"      --vocab-limit N           a trace's ids are below this (default: the vocabulary)\n"
	"      --limit N                 only the first N requests\n"
	"      --max-prompt N            cut a trace's prompts\n"
	"      --max-output N            cut a trace's outputs\n"
	"      --time-scale X            "
	"a second of the device takes X of the host (default 1): arrivals\n"
	"                                "
	"and timers are as much later, reported times are the device's\n"
	"      --device-times            "
	"take the times of tokens and steps from the device's events\n"
	"      --ignore-arrivals         all arrive at once\n"
	"      --output FILE             a JSON line for each request, then {\"summary\": ...}\n"
	"\n"
	"      --block-tokens N          tokens of a KV block (default 16)\n"
	"      --max-batch N             sequences that run at once (default 16)\n"
	"      --max-batched-tokens N    tokens of one step (default 256)\n"
	"      --admit NAME              "
	"let in what waits when there is memory for it: whole: for its\n"
	"                                "
	"tokens and one more, taken at once (default); full: for its\n"
	"                                "
	"tokens, taken as they are computed; chunk: for those of one step\n"
	"      --kv-dtype NAME           of keys and values: f32 (default), f16 or bf16\n"
	"      --kv-layout NAME          "
	"block-major: one range, all of a block together (default);\n"
	"                                "
	"separate: a range for each layer's keys and one for its values\n"
	"      --kv-share SIZE           KV memory of a static split, such as 64M\n"
	"      --swap SIZE               "
	"host memory for KV of preempted requests, 0: none (default: under\n"
	"                                "
	"the policies remap and swap twice the share, if mmd has it,\n"
	"                                else none)\n"
	"      --swap-tokens N           "
	"a request that must leave because memory is asked back is computed\n"
	"                                again if it has fewer tokens in KV (default 128)\n"
	"      --kv-idle MS              give back chunks that stay empty so long (default 500)\n"
	"      --kv-keep PERMILLE        of --kv-share, not given back when empty (default 0)\n"
	"      --kv-timeout MS           "
	"refuse a request that gets no memory so long (default 60000)\n"
	"      --break-steps PERMILLE    "
	"break off so many of 1000 steps between two layers and repeat\n"
	"                                them: what an exception in an engine costs\n"
	"      --turns MODE              quantum or drain: compute in turn with others that do\n"
	"      --quantum MS              length of a turn when others wait (default: mmd's);\n"
	"                                the account's turn_quantum_max_ms bounds it\n"
	"      --priority N              in turns, 0 to 7; higher goes first (default 0);\n"
	"                                the account's turn_priority_max bounds it\n"
	"      --verify                  checksum each layer inside its gate in each step\n"
	"      --fused                   load q, k and v as one matrix, gate and up as one: fewer\n"
	"                                products, the same ids\n"
	"      --fast                    "
	"products of the batch's size: ids may depend on the batch\n"
	"      --deterministic           the opposite, and the default\n"
	"      --json                    print the summary as one JSON object, and no progress\n"
	"      --sync                    "
	"print \"ready\", wait for \"start NS\" (CLOCK_MONOTONIC) on stdin,\n"
	"                                "
	"print \"done\" after the last request, end when stdin ends\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Exit status: 0 done, 1 failed (mmd ended the connection, a checksum differed), 2 wrong\n"
	"arguments, 3 no mmd.\n";

enum option_kind {
	FLAG,
	TEXT,
	DRIVER,
	U32,
	U64,
	SIZE,
	REAL,
	CLEAR,
	LAYOUT,
	ADMIT,
	DTYPE,
	TURNS,
	GEMM,
	GRAPHS
};

struct option_entry {
	const char *name;
	enum option_kind kind;
	void *at;
	uint64_t min;
};

static int entry_parse_number(const char *text, uint64_t min, uint64_t max, const char **ret_end,
			      uint64_t *ret_value)
{
	char *end;
	unsigned long long value;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || value < min || value > max)
		return -EINVAL;
	*ret_end = end;
	*ret_value = value;
	return 0;
}

/* Parses a size such as 64M, 2G or 4096. */
static int option_parse_size(const char *text, uint64_t least, uint64_t *ret_bytes)
{
	uint64_t bytes;

	if (mm_size_parse(text, &bytes) || bytes < least)
		return -EINVAL;
	*ret_bytes = bytes;
	return 0;
}

static int option_parse_real(const char *text, double *ret_value)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end || !isfinite(value) || value < 0 || value > 1e6)
		return -EINVAL;
	*ret_value = value;
	return 0;
}

static const char *const layout_names[] = {
	[MM_KV_BLOCK_MAJOR] = "block-major", [MM_KV_SEPARATE] = "separate"
};
static const char *const dtype_names[] = {
	[MM_DTYPE_F32] = "f32", [MM_DTYPE_F16] = "f16", [MM_DTYPE_BF16] = "bf16"
};
static const char *const admit_names[] = {
	[MM_ADMIT_WHOLE] = "whole", [MM_ADMIT_FULL] = "full", [MM_ADMIT_CHUNK] = "chunk"
};
static const char *const turn_mode_names[] = {
	[MM_TURN_NONE] = "none", [MM_TURN_QUANTUM] = "quantum", [MM_TURN_DRAIN] = "drain"
};

static const char *const gemm_names[] = { [0] = "auto",
					  [1 + MM_GEMM_KERNEL] = "kernel",
					  [1 + MM_GEMM_CUBLAS] = "cublas" };

static const char *const graphs_names[] = {
	[MM_GRAPHS_AUTO] = "auto", [MM_GRAPHS_ON] = "on", [MM_GRAPHS_OFF] = "off"
};

/* Return: the names that an option of this kind may have; NULL if it is of another kind. */
static const char *const *names_of(enum option_kind kind, size_t *ret_n)
{
	static const struct {
		const char *const *names;
		size_t n;
	} all[] = {
		[LAYOUT] = { layout_names, MM_ARRAY_SIZE(layout_names) },
		[ADMIT] = { admit_names, MM_ARRAY_SIZE(admit_names) },
		[DTYPE] = { dtype_names, MM_ARRAY_SIZE(dtype_names) },
		[TURNS] = { turn_mode_names, MM_ARRAY_SIZE(turn_mode_names) },
		[GEMM] = { gemm_names, MM_ARRAY_SIZE(gemm_names) },
		[GRAPHS] = { graphs_names, MM_ARRAY_SIZE(graphs_names) },
	};

	*ret_n = all[kind].n;
	return all[kind].names;
}

static int option_parse_name(const char *text, enum option_kind kind, uint32_t *ret_index)
{
	size_t n;
	const char *const *names = names_of(kind, &n);

	for (uint32_t i = 0; i < n; i++) {
		if (names[i] && strcmp(text, names[i]) == 0) {
			*ret_index = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int option_refuse(const struct option_entry *entry, const char *text)
{
	size_t n;
	const char *const *names = names_of(entry->kind, &n);
	const char *between = " is none of: ";

	fprintf(stderr, "mmserve: --%s: '%s'", entry->name, text);
	if (entry->kind == DRIVER)
		fputs(" is none of: " MM_DRIVER_CHOICES, stderr);
	else if (!names)
		fputs(" is not allowed here", stderr);
	for (size_t i = 0; i < n; i++) {
		if (!names[i])
			continue;
		fprintf(stderr, "%s%s", between, names[i]);
		between = ", ";
	}
	fputs(" (see mmserve --help)\n", stderr);
	return EXIT_USAGE;
}

static int entry_set(const struct option_entry *entry, const char *text)
{
	const char *end = "";
	uint64_t value = 0;
	int r = 0;

	switch (entry->kind) {
	case FLAG:
	case CLEAR:
		*(bool *)entry->at = entry->kind == FLAG;
		return 0;
	case TEXT:
		*(const char **)entry->at = text;
		return *text ? 0 : -EINVAL;
	case DRIVER:
		*(const char **)entry->at = text;
		return mm_is_driver(text) ? 0 : -EINVAL;
	case SIZE:
		return option_parse_size(text, entry->min, entry->at);
	case REAL:
		return option_parse_real(text, entry->at);
	case LAYOUT:
	case ADMIT:
	case DTYPE:
	case TURNS:
	case GEMM:
	case GRAPHS:
		return option_parse_name(text, entry->kind, entry->at);
	case U32:
		r = entry_parse_number(text, entry->min, INT32_MAX, &end, &value);
		if (!r && !*end)
			*(uint32_t *)entry->at = (uint32_t)value;
		break;
	case U64:
		r = entry_parse_number(text, entry->min, UINT64_MAX / 2000000, &end, &value);
		if (!r && !*end)
			*(uint64_t *)entry->at = value;
		break;
	}
	return r || *end ? -EINVAL : 0;
}

static int options_usage(const char *which, const char *what)
{
	fprintf(stderr, "mmserve: %s: %s (see mmserve --help)\n", which, what);
	return EXIT_USAGE;
}

static int choice_refuse(const char *which, const char *word, const char *choices)
{
	fprintf(stderr, "mmserve: %s: '%s' is none of: %s (see mmserve --help)\n", which, word,
		choices);
	return EXIT_USAGE;
}

/*
 * True for the name of a module, and for a word that looks like a path or is one: to open it later
 * fails with a better message. Any other word is a mistake.
 */
static bool is_kernels_name(const char *word)
{
	return mm_serve_module_known(word) || strpbrk(word, "/.") || access(word, F_OK) == 0;
}

static int check_driver(const struct mm_serve_options *o)
{
	const char *named = secure_getenv("MM_DRIVER");

	if (!o->driver && named && *named && !mm_is_driver(named))
		return choice_refuse("MM_DRIVER", named, MM_DRIVER_CHOICES);
	if (o->kernels && !is_kernels_name(o->kernels))
		return choice_refuse("--kernels", o->kernels,
				     "host, emulated, cuda, or the path of a module");
	return -1;
}

static int options_check(const struct mm_serve_options *o)
{
	if (!o->model)
		return options_usage("--model", "is missing");
	if (!o->requests == !o->trace)
		return options_usage("--requests, --trace", "give one of them");
	if (o->sync && !strcmp(o->requests ? o->requests : o->trace, "-"))
		return options_usage("--sync", "standard input cannot be the requests' as well");
	if (o->plain && o->socket)
		return options_usage("--plain, --socket", "exclude each other");
	if (o->turn_priority > MM_TURN_PRIORITY_MAX)
		return options_usage("--priority", "at most 7");
	if (o->plain && o->turn_mode != MM_TURN_NONE)
		return options_usage("--plain, --turns", "exclude each other");
	if (o->max_batched_tokens < o->max_batch)
		return options_usage("--max-batched-tokens", "must be at least --max-batch");
	if (!(o->time_scale > 0))
		return options_usage("--time-scale", "must be above 0");
	if (o->kv_keep_permille > 1000)
		return options_usage("--kv-keep", "needs 0 to 1000");
	if (o->break_permille > 999)
		return options_usage("--break-steps", "at most 999 of 1000");
	if (o->graphs_max > 4096)
		return options_usage("--graphs-max", "at most 4096");
	if (o->max_batch > 4096 || o->max_batched_tokens > 1u << 20 || o->block_tokens > 4096)
		return options_usage("--max-batch, --max-batched-tokens, --block-tokens",
				     "at most 4096, 1048576, 4096");
	return check_driver(o);
}

#define ENTRIES_MAX 48

static size_t options_add_entries(struct mm_serve_options *o, struct option_entry *ret)
{
	const struct option_entry all[] = {
		{ "model", TEXT, &o->model, 0 },
		{ "socket", TEXT, &o->socket, 0 },
		{ "plain", FLAG, &o->plain, 0 },
		{ "name", TEXT, &o->name, 0 },
		{ "driver", DRIVER, &o->driver, 0 },
		{ "kernels", TEXT, &o->kernels, 0 },
		{ "gemm", GEMM, &o->gemm, 0 },
		{ "graphs", GRAPHS, &o->graphs, 0 },
		{ "graphs-max", U32, &o->graphs_max, 1 },
		{ "requests", TEXT, &o->requests, 0 },
		{ "trace", TEXT, &o->trace, 0 },
		{ "seed", U64, &o->seed, 0 },
		{ "vocab-limit", U32, &o->vocab_limit, 1 },
		{ "limit", U32, &o->limit, 1 },
		{ "device", U32, &o->device, 0 },
		{ "max-prompt", U32, &o->max_prompt, 1 },
		{ "max-output", U32, &o->max_output, 1 },
		{ "time-scale", REAL, &o->time_scale, 0 },
		{ "device-times", FLAG, &o->device_times, 0 },
		{ "ignore-arrivals", FLAG, &o->ignore_arrivals, 0 },
		{ "output", TEXT, &o->output, 0 },
		{ "block-tokens", U32, &o->block_tokens, 1 },
		{ "max-batch", U32, &o->max_batch, 1 },
		{ "max-batched-tokens", U32, &o->max_batched_tokens, 1 },
		{ "admit", ADMIT, &o->admit, 0 },
		{ "kv-dtype", DTYPE, &o->kv_dtype, 0 },
		{ "kv-layout", LAYOUT, &o->kv_order, 0 },
		{ "kv-share", SIZE, &o->kv_share_bytes, 1 },
		{ "swap", SIZE, &o->swap_bytes, 0 },
		{ "swap-tokens", U32, &o->swap_tokens, 0 },
		{ "kv-idle", U64, &o->kv_idle_ms, 0 },
		{ "kv-keep", U64, &o->kv_keep_permille, 0 },
		{ "kv-timeout", U64, &o->kv_timeout_ms, 1 },
		{ "break-steps", U32, &o->break_permille, 0 },
		{ "turns", TURNS, &o->turn_mode, 0 },
		{ "quantum", U64, &o->turn_quantum_ms, 1 },
		{ "priority", U32, &o->turn_priority, 0 },
		{ "verify", FLAG, &o->verify, 0 },
		{ "fused", FLAG, &o->fused, 0 },
		{ "fast", FLAG, &o->fast, 0 },
		{ "deterministic", CLEAR, &o->fast, 0 },
		{ "json", FLAG, &o->json, 0 },
		{ "sync", FLAG, &o->sync, 0 },
	};

	static_assert(MM_ARRAY_SIZE(all) <= ENTRIES_MAX, "");
	for (size_t i = 0; i < MM_ARRAY_SIZE(all); i++)
		ret[i] = all[i];
	return MM_ARRAY_SIZE(all);
}

enum { OPT_VERSION = 256, OPT_FIRST };

static int options_parse(int argc, char **argv, const struct option_entry *e,
			 const struct option *longs)
{
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		if (c == 'h') {
			fputs(mmserve_help_text, stdout);
			return EXIT_SUCCESS;
		}
		if (c == OPT_VERSION) {
			puts("mmserve " MM_VERSION);
			return EXIT_SUCCESS;
		}
		if (c == '?' || c == ':')
			return options_usage(argv[optind - 1],
					     c == '?' ? "unknown option" : "needs a value");
		if (entry_set(&e[c - OPT_FIRST], optarg))
			return option_refuse(&e[c - OPT_FIRST], optarg);
	}
	return optind < argc ? options_usage(argv[optind], "unexpected argument") : -1;
}

int mm_serve_options_parse(int argc, char **argv, struct mm_serve_options *o)
{
	struct option longs[ENTRIES_MAX + 3] = { 0 };
	struct option_entry e[ENTRIES_MAX];
	size_t n;
	int r;

	*o = (struct mm_serve_options){ .name = "mmserve",
					.kv_idle_ms = 500,
					.kv_timeout_ms = 60000,
					.block_tokens = 16,
					.kv_dtype = MM_DTYPE_F32,
					.swap_bytes = MM_SWAP_AUTO,
					.swap_tokens = MM_KVMAN_SWAP_TOKENS,
					.graphs_max = 64,
					.max_batch = 16,
					.max_batched_tokens = 256,
					.time_scale = 1 };
	n = options_add_entries(o, e);
	for (size_t i = 0; i < n; i++)
		longs[i] = (struct option){ e[i].name,
					    e[i].kind == FLAG || e[i].kind == CLEAR
						    ? no_argument
						    : required_argument,
					    NULL, OPT_FIRST + (int)i };
	longs[n] = (struct option){ "help", no_argument, NULL, 'h' };
	longs[n + 1] = (struct option){ "version", no_argument, NULL, OPT_VERSION };
	r = options_parse(argc, argv, e, longs);
	return r >= 0 ? r : options_check(o);
}
