/* SPDX-License-Identifier: Apache-2.0 */
/* mmserve's command lines: which are refused, and what the others set. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "kernels/blas/backend.h"
#include "mm/abi.h"
#include "tools/mmserve/engine/engine.h"
#include "tools/mmserve/engine/options.h"

static int line_parse(const char *line, struct mm_serve_options *ret)
{
	static char text[1024];
	char *argv[64] = { (char *)"mmserve" }, *save;
	int argc = 1;

	snprintf(text, sizeof(text), "%s", line);
	for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return mm_serve_options_parse(argc, argv, ret);
}

#define GOOD "--model m --trace t "

static const struct {
	const char *line;
	int status; /* -1: it would serve */
} command_lines[] = {
	{ GOOD, -1 },
	{ "--model m --requests t --kv-share 64M --plain", -1 },
	{ GOOD "--kv-layout separate", -1 },
	{ GOOD "--kv-layout diagonal", 2 },
	{ GOOD "--kv-dtype f16", -1 },
	{ GOOD "--kv-dtype f8", 2 },
	{ GOOD "--admit full", -1 },
	{ GOOD "--admit nobody", 2 },
	{ GOOD "--driver sofware", 2 },
	{ GOOD "--driver ./libsofware.so", -1 },
	{ GOOD "--kernels hots", 2 },
	{ GOOD "--kernels ./hots.so", -1 },
	{ "--help", 0 },
	{ "--version", 0 },
	{ "", 2 },
	{ "--model m", 2 },
	{ "--trace t", 2 },
	{ GOOD "--requests r", 2 },
	{ GOOD "--frob", 2 },
	{ "--model m --listen 127.0.0.1:0", -1 },
	{ GOOD "--listen 127.0.0.1:0", 2 },
	{ "--model m --listen unix:s --sync", 2 },
	{ "--model m --listen unix:s --time-scale 2", 2 },
	{ "--model m --listen unix:s --connections 0", 2 },
	{ GOOD "--max-prom 5", 2 },
	{ "--model m --trace", 2 },
	{ GOOD "more", 2 },
	{ GOOD "--limit -1", 2 },
	{ GOOD "--limit 0", 2 },
	{ GOOD "--limit 1x", 2 },
	{ GOOD "--limit 4294967296", 2 },
	{ GOOD "--kv-share 64Q", 2 },
	{ GOOD "--kv-share 0", 2 },
	{ GOOD "--kv-share 99999999999999T", 2 },
	{ GOOD "--kv-idle 9223372036854", -1 },
	{ GOOD "--kv-idle 9223372036855", 2 },
	{ GOOD "--kv-keep 1001", 2 },
	{ GOOD "--slice-tokens 4294967296", 2 },
	{ GOOD "--ttft-goal 0", 2 },
	{ GOOD "--tpot-goal 86400000001", 2 },
	{ GOOD "--break-steps 1000", 2 },
	{ GOOD "--priority 8", 2 },
	{ GOOD "--graphs-max 4097", 2 },
	{ GOOD "--block-tokens 4097", 2 },
	{ GOOD "--max-batch 4097", 2 },
	{ GOOD "--max-batched-tokens 1048577", 2 },
	{ GOOD "--max-batched-tokens 3", 2 },
	{ GOOD "--time-scale inf", 2 },
	{ GOOD "--time-scale 0", 2 },
	{ GOOD "--time-scale 1000001", 2 },
	{ GOOD "--time-scale 2.5 --device-times", -1 },
	{ GOOD "--plain --socket s", 2 },
	{ GOOD "--plain --turns drain", 2 },
	{ GOOD "--plain --turns none", -1 },
	{ "--model m --requests - --sync", 2 },
	{ "--model m --requests -", -1 },
	{ "--model= --trace t", 2 },
};

static void test_command_lines(void **state)
{
	struct mm_serve_options o;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(command_lines); i++) {
		print_message("%s\n", command_lines[i].line);
		assert_int_equal(line_parse(command_lines[i].line, &o), command_lines[i].status);
	}
}

static void test_defaults(void **state)
{
	struct mm_serve_options o;

	(void)state;
	assert_int_equal(line_parse(GOOD, &o), -1);
	assert_string_equal(o.model, "m");
	assert_string_equal(o.trace, "t");
	assert_string_equal(o.name, "mmserve");
	assert_true(!o.socket && !o.driver && !o.kernels && !o.requests && !o.output);
	assert_true(o.gemm == 0 && o.device == 0 && o.seed == 0 && o.graphs == MM_GRAPHS_AUTO);
	assert_true(o.graphs_max == 64 && o.admit == MM_ADMIT_WHOLE);
	assert_true(o.kv_dtype == MM_DTYPE_F32 && o.kv_order == MM_KV_BLOCK_MAJOR);
	assert_true(o.kv_share_bytes == 0 && o.swap_bytes == MM_SWAP_AUTO);
	assert_true(o.swap_tokens == MM_KVMAN_SWAP_TOKENS && o.kv_idle_ms == 500);
	assert_true(o.kv_keep_permille == 0 && o.kv_timeout_ms == 60000 && o.break_permille == 0);
	assert_true(!o.limit && !o.max_prompt && !o.max_output && !o.vocab_limit);
	assert_true(o.block_tokens == 16 && o.max_batch == 16 && o.max_batched_tokens == 0);
	assert_true(o.turn_mode == MM_TURN_NONE && !o.turn_priority && !o.turn_quantum_ms);
	assert_true(o.time_scale == 1 && !o.device_times && !o.plain && !o.ignore_arrivals);
	assert_true(!o.verify && !o.fused && !o.fast && !o.json && !o.sync);
}

static void test_settings(void **state)
{
	struct mm_serve_options o;

	(void)state;
	assert_int_equal(line_parse("--model=m --requests r --socket s --name n --driver cuda "
				    "--kernels cuda --gemm kernel --device 3 --graphs on "
				    "--graphs-max 7 --seed 18446744073709551615 --limit 5 "
				    "--max-prompt 6 --max-output 8 --vocab-limit 9 "
				    "--block-tokens 32 --max-batch 4 --max-batched-tokens 2048 "
				    "--admit chunk --kv-dtype bf16 --kv-layout separate "
				    "--kv-share 64M --swap 2G --swap-tokens 1 --kv-idle 10 "
				    "--kv-keep 125 --kv-timeout 11 --break-steps 12 "
				    "--ttft-goal 250 --tpot-goal 40000 --slice-tokens 256",
				    &o),
			 -1);
	assert_string_equal(o.requests, "r");
	assert_string_equal(o.socket, "s");
	assert_string_equal(o.name, "n");
	assert_string_equal(o.driver, "cuda");
	assert_string_equal(o.kernels, "cuda");
	assert_true(o.gemm == 1 + MM_GEMM_KERNEL && o.device == 3 && o.graphs == MM_GRAPHS_ON);
	assert_true(o.graphs_max == 7 && o.seed == UINT64_MAX && o.limit == 5);
	assert_true(o.max_prompt == 6 && o.max_output == 8 && o.vocab_limit == 9);
	assert_true(o.block_tokens == 32 && o.max_batch == 4 && o.max_batched_tokens == 2048);
	assert_true(o.admit == MM_ADMIT_CHUNK && o.kv_dtype == MM_DTYPE_BF16);
	assert_true(o.kv_order == MM_KV_SEPARATE && o.kv_share_bytes == 64u << 20);
	assert_true(o.swap_bytes == UINT64_C(2) << 30 && o.swap_tokens == 1 && o.kv_idle_ms == 10);
	assert_true(o.kv_keep_permille == 125 && o.kv_timeout_ms == 11 && o.break_permille == 12);
	assert_true(o.ttft_goal_ms == 250 && o.tpot_goal_us == 40000 && o.slice_tokens == 256);

	assert_int_equal(line_parse(GOOD "--turns quantum --quantum 13 --priority 7 --json --sync "
					 "--time-scale 2.5 --device-times --ignore-arrivals "
					 "--verify --fused --fast --output o --gemm cublas",
				    &o),
			 -1);
	assert_true(o.turn_mode == MM_TURN_QUANTUM && o.turn_quantum_ms == 13);
	assert_true(o.turn_priority == 7 && o.time_scale == 2.5 && o.device_times && o.json);
	assert_true(o.ignore_arrivals && o.verify && o.fused && o.fast && o.sync);
	assert_string_equal(o.output, "o");
	assert_int_equal(o.gemm, 1 + MM_GEMM_CUBLAS);
	assert_int_equal(line_parse(GOOD "--fast --deterministic --swap 0", &o), -1);
	assert_true(!o.fast && o.swap_bytes == 0);
	assert_int_equal(line_parse(GOOD "--swap 1G --swap auto", &o), -1);
	assert_true(o.swap_bytes == MM_SWAP_AUTO);
}

/* MM_DRIVER is checked only if there is no --driver. */
static void test_environment(void **state)
{
	struct mm_serve_options o;

	(void)state;
	setenv("MM_DRIVER", "sofware", 1);
	assert_int_equal(line_parse(GOOD, &o), 2);
	assert_int_equal(line_parse(GOOD "--driver software", &o), -1);
	setenv("MM_DRIVER", "", 1);
	assert_int_equal(line_parse(GOOD, &o), -1);
	unsetenv("MM_DRIVER");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_command_lines),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_environment),
	};

	unsetenv("MM_DRIVER");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
