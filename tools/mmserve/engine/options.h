/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - mmserve's command line
 *
 * Concept:   parsed once, by a table (libclient/support/options.h), into a plain struct.
 * Ownership: a plain value; its strings point into argv.
 * Threading: none; the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Tokens of a step if --max-batched-tokens does not say (Documentation/baseline.md). */
#define MM_STEP_TOKENS          512u
#define MM_STEP_TOKENS_SOFTWARE 256u

enum mm_serve_graphs { MM_GRAPHS_AUTO, MM_GRAPHS_ON, MM_GRAPHS_OFF };

struct mm_serve_options {
	const char *model;
	const char *socket; /* NULL: libclient's default */
	const char *name;
	const char *driver;
	/* host, emulated, cuda, or a path; NULL: chosen by the driver's kind (module.h) */
	const char *kernels;
	uint32_t gemm; /* 1 + enum mm_gemm_kind; 0: chosen by the driver's kind */
	const char *requests;
	const char *trace;
	const char *output;         /* NULL: none */
	const char *listen;         /* NULL: requests come from a file */
	const char *served_name;    /* NULL: the folder's */
	const char *api_keys;       /* NULL: everybody is let in */
	uint32_t queue, max_length; /* 0: the model's */
	uint32_t connections;
	uint64_t body_max, http_timeout_ms;
	bool anywhere, chat_plain;
	uint32_t device;
	uint64_t seed;
	uint32_t graphs; /* enum mm_serve_graphs */
	uint32_t graphs_max;
	uint32_t admit;    /* enum mm_admit */
	uint32_t kv_dtype; /* enum mm_dtype */
	uint32_t kv_order; /* enum mm_kv_order */
	uint64_t kv_share_bytes;
	uint64_t swap_bytes; /* MM_SWAP_AUTO: chosen by the memory's policy */
	uint32_t cold;       /* entries; 0: no block is cold */
	uint32_t swap_tokens, slice_tokens;
	uint64_t kv_idle_ms, kv_keep_permille;
	uint64_t kv_timeout_ms;
	uint64_t ttft_goal_ms, tpot_goal_us; /* 0: none */
	uint32_t break_permille;
	uint32_t limit;
	uint32_t max_prompt;
	uint32_t max_output;
	uint32_t vocab_limit;
	uint32_t block_tokens;
	uint32_t max_batch;
	uint32_t max_batched_tokens; /* 0: chosen by the driver's kind */
	uint32_t turn_mode;          /* enum mm_turn_mode */
	uint32_t turn_priority;
	uint64_t turn_quantum_ms; /* 0: mmd's */
	double time_scale;        /* seconds of the host in a second of the device */
	bool device_times;
	bool plain;
	bool ignore_arrivals;
	bool verify;
	bool fused;
	bool fast;
	bool json;
	bool sync;
};

/**
 * mm_serve_options_parse() - parse and check the command line
 * @ret_options: always written; valid if the return is -1
 *
 * Return: -1: serve; else the status to exit with.
 */
int mm_serve_options_parse(int argc, char **argv, struct mm_serve_options *ret_options);
