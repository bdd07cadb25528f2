/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/options.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/driver.h"
#include "mm/abi.h"
#include "tools/mmserve/engine/engine.h"
#include "tools/mmserve/engine/module.h"
#include "tools/mmserve/sched/kvarena.h"
#include "tools/mmserve/sched/kvman.h"
#include "tools/mmserve/sched/sched.h"

#define AT(field)          MM_OPT_AT(struct mm_serve_options, field)
#define SERVE_MS_MAX       (UINT64_MAX / (2 * MM_NS_PER_MS)) /* so that two can be added, in ns */
#define GOAL_MAX_MS        (UINT64_C(24) * 3600 * 1000)
#define GOAL_MAX_US        (GOAL_MAX_MS * 1000)
#define TIME_SCALE_MAX     1e6
#define GRAPHS_MAX         4096
#define BATCH_MAX          4096
#define BATCHED_TOKENS_MAX (UINT64_C(1) << 20)
#define BLOCK_TOKENS_MAX   4096
#define QUEUE_MAX          65536
#define CONNECTIONS_MAX    65536
#define BODY_MAX           (UINT64_C(1) << 30)

static const struct mm_opt_choice kv_order_choices[] = {
	{ "block-major", MM_KV_BLOCK_MAJOR, "one range, all of a block together" },
	{ "separate", MM_KV_SEPARATE, "a range for each layer's keys and one for its values" },
	{ NULL, 0, NULL },
};
static const struct mm_opt_choice kv_dtype_choices[] = {
	{ "f32", MM_DTYPE_F32, NULL },
	{ "f16", MM_DTYPE_F16, NULL },
	{ "bf16", MM_DTYPE_BF16, NULL },
	{ NULL, 0, NULL },
};
static const struct mm_opt_choice serve_swap_choices[] = {
	{ "auto", MM_SWAP_AUTO,
	  "under the policies remap and swap eight times the share, or what mmd has of it" },
	{ NULL, 0, NULL },
};
static_assert(MM_STEP_TOKENS == 512 && MM_STEP_TOKENS_SOFTWARE == 256, "the help of auto");
static const struct mm_opt_choice step_tokens_choices[] = {
	{ "auto", 0, "512, on the software GPU 256, or --max-batch if that is more" },
	{ NULL, 0, NULL },
};
static const struct mm_opt_choice admit_choices[] = {
	{ "whole", MM_ADMIT_WHOLE, "for its tokens and one more, taken at once" },
	{ "full", MM_ADMIT_FULL, "for its tokens, taken as they are computed" },
	{ "chunk", MM_ADMIT_CHUNK, "for those of one step" },
	{ NULL, 0, NULL },
};
static const struct mm_opt_choice turn_choices[] = {
	{ "none", MM_TURN_NONE, "at any time" },
	{ "quantum", MM_TURN_QUANTUM, "for a time at once when others wait" },
	{ "drain", MM_TURN_DRAIN, "until there is no more work" },
	{ NULL, 0, NULL },
};
static const struct mm_opt_choice gemm_choices[] = {
	{ "auto", 0, "cublas on a CUDA device, else kernel" },
	{ "kernel", 1 + MM_GEMM_KERNEL, "the module's own" },
	{ "cublas", 1 + MM_GEMM_CUBLAS, NULL },
	{ NULL, 0, NULL },
};
static const struct mm_opt_choice graphs_choices[] = {
	{ "auto", MM_GRAPHS_AUTO, "on a CUDA device that can" },
	{ "on", MM_GRAPHS_ON, NULL },
	{ "off", MM_GRAPHS_OFF, NULL },
	{ NULL, 0, NULL },
};

/*
 * Takes the name of a module, and a word that looks like a path or is one: to open it later fails
 * with a better message. Any other word is a mistake.
 */
static int kernels_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	uint64_t module;

	if (!strpbrk(text, "/.") && (!*text || access(text, F_OK) != 0) &&
	    mm_opt_choice(opt, text, strlen(text), &module, why)) {
		const size_t at = strlen(why);

		snprintf(why + at, MM_OPT_ERROR_BYTES - at, "; or give the path of a module");
		return -EINVAL;
	}
	memcpy((char *)into + opt->at, &text, sizeof(text));
	return 0;
}

static_assert(MM_KVMAN_SWAP_TOKENS == 128, "the preset of --swap-tokens");
static const struct mm_opt serve_opts[] = {
	{ "model", "DIR", "folder of config.json and *.safetensors", MM_OPT_TEXT, AT(model),
	  .required = true },
	{ "socket", "PATH", "socket of mmd", MM_OPT_TEXT, AT(socket),
	  .otherwise = "$MMD_SOCKET, then where mmd usually listens" },
	{ "plain", NULL, "serve without mmd, from memory of the driver's", MM_OPT_FLAG, AT(plain) },
	{ "name", "NAME", "name that mmctl shows", MM_OPT_TEXT, AT(name), .preset = "mmserve" },
	MM_DRIVER_OPT(struct mm_serve_options, driver),
	{ "device", "N", "ordinal by which the driver knows the device", MM_OPT_NUMBER, AT(device),
	  .preset = "0" },
	{ "kernels", "NAME", "kernels, by name or by the path of a module", MM_OPT_CALL,
	  AT(kernels), .choices = mm_serve_module_choices, .parse = kernels_parse,
	  .otherwise = "what the device runs" },
	{ "gemm", "NAME", "computes matrix products", MM_OPT_CHOICE, AT(gemm),
	  .choices = gemm_choices, .preset = "auto" },
	{ "graphs", "MODE", "replay decode steps as graphs", MM_OPT_CHOICE, AT(graphs),
	  .choices = graphs_choices, .preset = "auto" },
	{ "graphs-max", "N", "sizes of batches that are kept as graphs", MM_OPT_NUMBER,
	  AT(graphs_max), .min = 1, .max = GRAPHS_MAX, .preset = "64" },

	{ "requests", "FILE",
	  "JSON lines: {\"id\",\"arrival_s\",\"prompt\":[ids],\"max_tokens\"}, or "
	  "\"prompt_tokens\":N instead of the ids; - is standard input, read to its end "
	  "first",
	  MM_OPT_TEXT, AT(requests), .group = "Requests" },
	{ "trace", "FILE",
	  "CSV instead: arrival_s,prompt_tokens,output_tokens; - is standard input", MM_OPT_TEXT,
	  AT(trace) },
	{ "seed", "N", "seed of prompts of which only the number of tokens is given", MM_OPT_NUMBER,
	  AT(seed), .preset = "0" },
	{ "vocab-limit", "N", "a trace's ids are below this", MM_OPT_NUMBER, AT(vocab_limit),
	  .min = 1, .otherwise = "the vocabulary" },
	{ "limit", "N", "serve the first N requests only", MM_OPT_NUMBER, AT(limit), .min = 1,
	  .otherwise = "all" },
	{ "max-prompt", "N", "cut a trace's prompts to N tokens", MM_OPT_NUMBER, AT(max_prompt),
	  .min = 1, .otherwise = "not cut" },
	{ "max-output", "N", "cut a trace's outputs to N tokens", MM_OPT_NUMBER, AT(max_output),
	  .min = 1, .otherwise = "not cut" },
	{ "time-scale", "X",
	  "a second of the device takes X of the host, above 0: arrivals and timers are as much "
	  "later, reported times are the device's",
	  MM_OPT_REAL, AT(time_scale), .most = TIME_SCALE_MAX, .preset = "1" },
	{ "device-times", NULL, "take the times of tokens and steps from the device's events",
	  MM_OPT_FLAG, AT(device_times) },
	{ "ignore-arrivals", NULL, "all requests arrive at once", MM_OPT_FLAG,
	  AT(ignore_arrivals) },

	{ "listen", "ADDRESS",
	  "serve HTTP, as OpenAI's API has it, in place of a file: HOST:PORT of this machine, or "
	  "unix:PATH; port 0 takes one that is free",
	  MM_OPT_TEXT, AT(listen), .group = "HTTP" },
	{ "anywhere", NULL,
	  "allow addresses that other machines reach: nothing is encrypted, so that is for behind "
	  "a proxy",
	  MM_OPT_FLAG, AT(anywhere) },
	{ "served-name", "NAME", "the model's name in the API", MM_OPT_TEXT, AT(served_name),
	  .otherwise = "that of its folder" },
	{ "api-keys", "FILE", "keys, one in a line, one of which a request must have", MM_OPT_TEXT,
	  AT(api_keys), .otherwise = "none is needed" },
	{ "queue", "N", "requests that may wait besides --max-batch that run; others get 429",
	  MM_OPT_NUMBER, AT(queue), .max = QUEUE_MAX, .preset = "256" },
	{ "max-length", "N", "tokens of a request, prompt and output", MM_OPT_NUMBER,
	  AT(max_length), .min = 2, .otherwise = "the model's" },
	{ "chat-plain", NULL,
	  "chats of a model that has a template of its own, which mmserve cannot run, are the "
	  "messages one below the other",
	  MM_OPT_FLAG, AT(chat_plain) },
	{ "connections", "N", "connections at once; others are refused", MM_OPT_NUMBER,
	  AT(connections), .min = 1, .max = CONNECTIONS_MAX, .preset = "512" },
	{ "body-max", "SIZE", "bytes of a request's body", MM_OPT_SIZE, AT(body_max), .min = 1,
	  .max = BODY_MAX, .preset = "4M" },
	{ "http-timeout", "MS",
	  "a client has so long to send a request, and so long to take what is left of an answer",
	  MM_OPT_NUMBER, AT(http_timeout_ms), .min = 1, .max = SERVE_MS_MAX, .unit = "ms",
	  .preset = "30000" },

	{ "block-tokens", "N", "tokens of a KV block", MM_OPT_NUMBER, AT(block_tokens), .min = 1,
	  .max = BLOCK_TOKENS_MAX, .preset = "16", .group = "Batches and memory" },
	{ "max-batch", "N", "sequences that run at once", MM_OPT_NUMBER, AT(max_batch), .min = 1,
	  .max = BATCH_MAX, .preset = "16" },
	{ "max-batched-tokens", "N", "tokens of one step, at least --max-batch", MM_OPT_NUMBER,
	  AT(max_batched_tokens), .min = 1, .max = BATCHED_TOKENS_MAX, .preset = "auto",
	  .choices = step_tokens_choices },
	{ "admit", "NAME", "let in a request that waits when there is memory", MM_OPT_CHOICE,
	  AT(admit), .choices = admit_choices, .preset = "whole" },
	{ "kv-dtype", "NAME", "type of keys and values", MM_OPT_CHOICE, AT(kv_dtype),
	  .choices = kv_dtype_choices, .preset = "f32" },
	{ "kv-layout", "NAME", "where keys and values lie", MM_OPT_CHOICE, AT(kv_order),
	  .choices = kv_order_choices, .preset = "block-major" },
	{ "kv-share", "SIZE", "KV memory of a static split, such as 64M", MM_OPT_SIZE,
	  AT(kv_share_bytes), .min = 1, .otherwise = "no split" },
	{ "swap", "SIZE", "host memory for KV of preempted requests, 0 for none", MM_OPT_SIZE,
	  AT(swap_bytes), .choices = serve_swap_choices, .preset = "auto" },
	{ "cold", "N",
	  "full blocks that may stay in --swap while they are read: mmd streams them in each step",
	  MM_OPT_NUMBER, AT(cold), .max = MM_COLD_MAX, .preset = "0" },
	{ "swap-tokens", "N",
	  "a request that must leave because memory is asked back is computed again if it "
	  "has fewer tokens in KV",
	  MM_OPT_NUMBER, AT(swap_tokens), .preset = "128" },
	{ "slice-tokens", "N",
	  "a request that waits and does not fit takes the place of those that have had N tokens "
	  "since they were let in; these go on later, from --swap: 64 on links of 150 GB/s and "
	  "more, 256 on others",
	  MM_OPT_NUMBER, AT(slice_tokens), .max = UINT32_MAX, .otherwise = "never" },
	{ "kv-idle", "MS", "give back chunks that stay empty so long", MM_OPT_NUMBER,
	  AT(kv_idle_ms), .max = SERVE_MS_MAX, .unit = "ms", .preset = "500" },
	{ "kv-keep", "PERMILLE", "part of --kv-share that is not given back when it is empty",
	  MM_OPT_NUMBER, AT(kv_keep_permille), .max = 1000, .unit = "permille", .preset = "0" },
	{ "kv-timeout", "MS", "refuse a request that gets no memory so long", MM_OPT_NUMBER,
	  AT(kv_timeout_ms), .min = 1, .max = SERVE_MS_MAX, .unit = "ms", .preset = "60000" },
	{ "ttft-goal", "MS",
	  "a request whose first token comes later than so long after its arrival is late, which "
	  "is reported to mmd",
	  MM_OPT_NUMBER, AT(ttft_goal_ms), .min = 1, .max = GOAL_MAX_MS, .unit = "ms",
	  .otherwise = "none" },
	{ "tpot-goal", "US", "a request with a longer mean time per further token is late",
	  MM_OPT_NUMBER, AT(tpot_goal_us), .min = 1, .max = GOAL_MAX_US, .unit = "us",
	  .otherwise = "none" },
	{ "turns", "MODE", "compute in turn with others on the device that do", MM_OPT_CHOICE,
	  AT(turn_mode), .choices = turn_choices, .preset = "none" },
	{ "quantum", "MS",
	  "length of a turn when others wait; the account's turn_quantum_max_ms bounds it",
	  MM_OPT_NUMBER, AT(turn_quantum_ms), .min = 1, .max = SERVE_MS_MAX, .unit = "ms",
	  .otherwise = "mmd's" },
	{ "priority", "N",
	  "priority in turns; a higher one goes first; the account's "
	  "turn_priority_max bounds it",
	  MM_OPT_NUMBER, AT(turn_priority), .max = MM_TURN_PRIORITY_MAX, .preset = "0" },

	{ "fused", NULL,
	  "load q, k and v as one matrix, gate and up as one: fewer products, the same ids",
	  MM_OPT_FLAG, AT(fused), .group = "Computation" },
	{ "fast", NULL, "products of the batch's size: ids may depend on the batch", MM_OPT_FLAG,
	  AT(fast) },
	{ "deterministic", NULL, "the opposite of --fast, and the default", MM_OPT_FLAG, AT(fast),
	  .clears = true },
	{ "verify", NULL, "checksum each layer inside its gate in each step", MM_OPT_FLAG,
	  AT(verify) },
	{ "break-steps", "PERMILLE",
	  "break off so many of 1000 steps between two layers and repeat them: what an "
	  "exception in an engine costs",
	  MM_OPT_NUMBER, AT(break_permille), .max = 999, .unit = "permille", .preset = "0" },

	{ "output", "FILE", "file of a JSON line for each request, then {\"summary\": ...}",
	  MM_OPT_TEXT, AT(output), .otherwise = "none", .group = "Output" },
	{ "json", NULL, "print the summary as one JSON object, and no progress", MM_OPT_FLAG,
	  AT(json) },
	{ "sync", NULL,
	  "print \"ready\", wait for \"start NS\" (CLOCK_MONOTONIC) on standard input, "
	  "print \"done\" after the last request, end when standard input ends",
	  MM_OPT_FLAG, AT(sync) },
	{ .name = NULL },
};

static const struct mm_opt_command serve_command = {
	.name = "",
	.arguments = "--model DIR (--requests | --trace | --listen) WHERE",
	.sets = { { serve_opts, 0 } },
};

static const struct mm_opt_section serve_sections[] = {
	{ .title = "HTTP",
	  .text = "With --listen, POST /v1/completions and /v1/chat/completions take what "
		  "OpenAI's API has: a prompt as text or as token ids, or messages; max_tokens, "
		  "temperature, top_p, seed, stop, stream and others. GET /v1/models, /health and "
		  "/metrics, POST /tokenize and /detokenize are there as well. A request that "
		  "cannot be served is refused with one sentence that names the field.\n\n"
		  "With temperature 0 and ignore_eos the ids are those of --requests.\n\n"
		  "A client that closes its connection cancels its request. SIGINT and SIGTERM "
		  "end the server, and the summary is printed." },
	{ .title = "Environment",
	  .text = "MMD_SOCKET: the socket of mmd, if --socket does not name one.\n\n"
		  "MM_DRIVER: the driver, if --driver does not name one." },
	{ .title = NULL },
};

static const struct mm_opt_program serve_program = {
	.name = "mmserve",
	.summary = "serve requests with a Llama, Qwen 2.5 or OPT model on memory of mmd",
	.text = "With --plain the memory is mmserve's own. Sampling is greedy, but for HTTP "
		"requests with a temperature; a request's tokens depend neither on other requests "
		"nor on how it was batched.",
	.commands = &serve_command,
	.n_commands = 1,
	.exits = "Exit status: 0 done, 1 failed (mmd ended the connection, a checksum differed), "
		 "2 wrong arguments, 3 no mmd.",
	.sections = serve_sections,
	.man_section = "1",
	.see_also = "mmd(8), mmctl(1), mkmodel(1)",
};

static int options_check(const struct mm_serve_options *o)
{
	char why[MM_OPT_ERROR_BYTES];

	if ((o->requests != NULL) + (o->trace != NULL) + (o->listen != NULL) != 1)
		return mm_opt_refuse(&serve_program, 0,
				     "--requests, --trace, --listen: give one of them");
	if (o->listen && (o->sync || o->time_scale > 1 || o->time_scale < 1))
		return mm_opt_refuse(&serve_program, 0, "--listen: not with %s",
				     o->sync ? "--sync" : "--time-scale");
	if (o->sync && !strcmp(o->requests ? o->requests : o->trace, "-"))
		return mm_opt_refuse(&serve_program, 0,
				     "--sync: standard input cannot be the requests' as well");
	if (o->plain && o->socket)
		return mm_opt_refuse(&serve_program, 0, "--plain, --socket: exclude each other");
	if (o->plain && o->turn_mode != MM_TURN_NONE)
		return mm_opt_refuse(&serve_program, 0, "--plain, --turns: exclude each other");
	if (o->plain && o->cold)
		return mm_opt_refuse(&serve_program, 0, "--plain, --cold: exclude each other");
	if (o->cold && o->kv_order != MM_KV_BLOCK_MAJOR)
		return mm_opt_refuse(&serve_program, 0,
				     "--cold: only with --kv-layout block-major");
	if (o->max_batched_tokens && o->max_batched_tokens < o->max_batch)
		return mm_opt_refuse(&serve_program, 0,
				     "--max-batched-tokens: must be at least --max-batch");
	if (!(o->time_scale > 0))
		return mm_opt_refuse(&serve_program, 0, "--time-scale: must be above 0");
	if (!o->driver && mm_driver_check_environment(why))
		return mm_opt_refuse(&serve_program, 0, "%s", why);
	return -1;
}

int mm_serve_options_parse(int argc, char **argv, struct mm_serve_options *o)
{
	struct mm_opt_line line;
	int status;

	*o = (struct mm_serve_options){ 0 };
	status = mm_opt_main(&serve_program, argc, argv, o, &line);
	return status >= 0 ? status : options_check(o);
}
