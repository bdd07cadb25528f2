/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cold_liar MODEL ACT: a tenant with cold blocks, which then does what libclient would refuse, or
 * writes what it likes where xfer reads. Prints a line for each thing: what it was, and what came
 * of it: 0, a negative errno, or the number of steps.
 *
 * numbers: declarations and windows with each wrong number; releases a chunk of the window
 * swaps:   has a list that names a chunk of the window; libclient ends at the answer
 * bits:    all bits live, bits and versions changing while xfer reads them
 * silent:  a window and live entries, and never a step
 * broken:  marks layers as used out of order
 * cooling: is killed while its blocks are copied out
 */
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/random.h"
#include "libclient/client/internal.h"
#include "libclient/protocol/xplan.h"
#include "libclient/support/clock.h"
#include "mm/client_cold.h"
#include "mm/client_model.h"

#define UNIT    4096
#define LAYERS  8
#define ENTRIES 4
#define CHUNKS  5000 /* more than a window may have */
#define HELD    8
#define WINDOW  5 /* chunks, with room for all entries */
#define STEPS   40

static struct mm_client *client;
static struct mm_model *model;
static struct mm_kv *kv;
static struct mm_swap *swap_space;
static struct mm_cold *cold;
static bool scribbles = true;

static void result_check(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: %s: %s", what, strerror(-r), mm_client_error(client));
}

static void line_put(const char *what, long long result)
{
	printf("%s %lld\n", what, result);
	fflush(stdout);
}

/* Pushes the request as it is, and prints the answer. */
static void ask(const char *what, enum mm_op op, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	struct mm_msg msg = { .opcode = (uint16_t)op, .arg = { a, b, c, d } };
	int r = mm_link_call(client, &msg);

	line_put(what, r ? r : msg.result);
}

static void tenant_open(const char *dir, uint64_t space)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .name = "liar" };
	struct mm_kv_opts kv_opts = { .size = sizeof(kv_opts), .chunks_max = CHUNKS };
	char why[256] = "";

	if (mm_client_open(&opts, &client, why, sizeof(why)) < 0)
		errx(1, "%s", why);
	result_check(mm_model_load(client, dir, NULL, &model), "load");
	kv_opts.chunk_bytes = client->welcome.page_bytes;
	result_check(mm_kv_open(client, &kv_opts, &kv), "arena");
	result_check(mm_kv_want(kv, HELD, 60 * MM_NS_PER_S), "chunks");
	if (space)
		result_check(mm_swap_open(client, space, &swap_space), "swap space");
}

static void liar_declare(void)
{
	struct mm_cold_opts opts = { .size = sizeof(opts),
				     .unit_bytes = UNIT,
				     .layers = LAYERS,
				     .entries_max = ENTRIES,
				     .floor = ENTRIES };

	result_check(mm_cold_open(client, &opts, &cold), "cold");
}

static void window_request(uint32_t chunks)
{
	struct mm_cold_state state = { .size = sizeof(state), .pending = 1 };

	result_check(mm_cold_window(cold, 0, chunks), "window");
	while (state.pending) {
		usleep(1000);
		result_check(mm_cold_state(cold, &state), "state");
	}
	result_check(state.error, "window");
}

static void liar_begin(void)
{
	liar_declare();
	window_request(WINDOW);
}

/* Return: whether the step went well. */
static bool step_run(void)
{
	int r = mm_step_begin(client);

	for (uint32_t l = 0; l < LAYERS && !r; l++) {
		r = mm_layer_begin(model, l, NULL);
		if (!r)
			r = mm_layer_end(model, l, NULL);
	}
	return !r && !mm_step_end(client, NULL, NULL);
}

static void steps_run(const char *what)
{
	int steps = 0;

	for (int i = 0; i < STEPS; i++)
		steps += step_run();
	line_put(what, steps);
}

/* ---- acts ---- */

static void opens_ask(void)
{
	const uint64_t high = UINT64_C(1) << 63;

	ask("window-first", MM_OP_COLD_WINDOW, 0, 1, 0, 0);
	ask("no-swap", MM_OP_COLD_OPEN, UNIT, LAYERS, 1, 0);
	result_check(mm_swap_open(client, ENTRIES * LAYERS * UNIT, &swap_space), "swap space");
	ask("unit-0", MM_OP_COLD_OPEN, 0, LAYERS, ENTRIES, 0);
	ask("unit-odd", MM_OP_COLD_OPEN, UNIT + 1, LAYERS, ENTRIES, 0);
	ask("unit-wraps", MM_OP_COLD_OPEN, high, LAYERS, ENTRIES, 0);
	ask("layers-0", MM_OP_COLD_OPEN, UNIT, 0, ENTRIES, 0);
	ask("layers-more", MM_OP_COLD_OPEN, UNIT, LAYERS + 1, ENTRIES, 0);
	ask("layers-huge", MM_OP_COLD_OPEN, UNIT, UINT64_MAX, ENTRIES, 0);
	ask("entries-0", MM_OP_COLD_OPEN, UNIT, LAYERS, 0, 0);
	ask("entries-max", MM_OP_COLD_OPEN, UNIT, LAYERS, MM_COLD_MAX + 1, 0);
	ask("entries-wrap", MM_OP_COLD_OPEN, UNIT, LAYERS, high + 1, 0);
	ask("entries-space", MM_OP_COLD_OPEN, UNIT, LAYERS, ENTRIES + 1, 0);
	ask("floor", MM_OP_COLD_OPEN, UNIT, LAYERS, ENTRIES, ENTRIES + 1);
	ask("floor-wraps", MM_OP_COLD_OPEN, UNIT, LAYERS, ENTRIES, high + 1);
	liar_declare();
	ask("twice", MM_OP_COLD_OPEN, UNIT, LAYERS, ENTRIES, ENTRIES);
}

static void windows_ask(void)
{
	ask("beyond", MM_OP_COLD_WINDOW, CHUNKS, 1, 0, 0);
	ask("beyond-far", MM_OP_COLD_WINDOW, UINT64_MAX, 2, 0, 0);
	ask("beyond-wraps", MM_OP_COLD_WINDOW, 1, UINT64_MAX, 0, 0);
	ask("unheld", MM_OP_COLD_WINDOW, HELD, WINDOW, 0, 0);
	ask("unheld-part", MM_OP_COLD_WINDOW, HELD - 1, 2, 0, 0);
	ask("small", MM_OP_COLD_WINDOW, 0, 1, 0, 0);
	ask("pages", MM_OP_COLD_WINDOW, 0, MM_SLOT_PAGES_MAX + 1, 0, 0);
	window_request(WINDOW);
	ask("release", MM_OP_KV_RELEASE, WINDOW - 1, 0, 0, 0);
	steps_run("steps");
	window_request(0);
}

static void *region_scribble(void *unused)
{
	struct mm_cold_live *live = &client->gates->cold;
	uint64_t random = 7;

	(void)unused;
	while (__atomic_load_n(&scribbles, __ATOMIC_RELAXED)) {
		const uint64_t word = mm_random_next(&random);

		for (uint32_t i = 0; i < 64; i++)
			__atomic_store_n(&live->live[mm_random_below(&random, MM_COLD_MAX / 64)],
					 word & 1 ? UINT64_MAX : mm_random_next(&random),
					 __ATOMIC_RELAXED);
		/* Forwards, back, and by half of all numbers. */
		__atomic_store_n(&live->version,
				 word & 2 ? word : live->version + (UINT64_C(1) << 63),
				 __ATOMIC_RELAXED);
		usleep(50);
	}
	return NULL;
}

static void act_bits(void)
{
	pthread_t thread;

	liar_begin();
	memset(client->gates->cold.live, 0xff, sizeof(client->gates->cold.live));
	steps_run("all");
	if (pthread_create(&thread, NULL, region_scribble, NULL))
		errx(1, "no thread");
	steps_run("changing");
	__atomic_store_n(&scribbles, false, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	window_request(0);
}

static void act_swaps(void)
{
	struct mm_msg msg = { .opcode = MM_OP_SWAP, .arg = { 0, 1, 0 } };

	liar_begin();
	client->tenant->swap[0][0] = (struct mm_swap_piece){ .bytes = UNIT };
	line_put("pushed", mm_link_push(client, &msg));
	while (step_run())
		;
	line_put("ended", mm_step_begin(client));
}

static void act_silent(void)
{
	liar_begin();
	memset(client->gates->cold.live, 0xff, sizeof(client->gates->cold.live));
	for (uint32_t i = 0; i < 100; i++) {
		__atomic_fetch_add(&client->gates->cold.version, 1, __ATOMIC_RELEASE);
		usleep(2000);
	}
	line_put("silent", 0);
}

/* MM_GATE_DONE and anything else, in gates that xfer looks at. */
static void act_broken(void)
{
	uint64_t random = 5;

	liar_begin();
	for (uint32_t i = 0; i < 2000; i++) {
		const uint32_t layer = (uint32_t)mm_random_below(&random, LAYERS);

		*(volatile uint32_t *)&client->gates->gate[layer] =
			i % 4 ? (uint32_t)MM_GATE_DONE : (uint32_t)mm_random_next(&random);
		usleep(100);
	}
	line_put("broken", 0);
}

static void act_cooling(void)
{
	struct mm_swap_piece pieces[ENTRIES];

	liar_begin();
	for (uint32_t e = 0; e < ENTRIES; e++)
		pieces[e] =
			(struct mm_swap_piece){ .arena_offset = WINDOW * client->welcome.page_bytes,
						.swap_offset = (uint64_t)e * LAYERS * UNIT,
						.bytes = LAYERS * UNIT };
	result_check(mm_swap_out(swap_space, pieces, ENTRIES, 3), "swap out");
	line_put("cooling", 0);
	raise(SIGKILL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} acts[] = {
		{ "bits", act_bits },     { "swaps", act_swaps },     { "silent", act_silent },
		{ "broken", act_broken }, { "cooling", act_cooling },
	};
	const bool numbers = argc == 3 && !strcmp(argv[2], "numbers");

	if (argc != 3)
		errx(2, "usage: cold_liar MODEL ACT");
	tenant_open(argv[1], numbers ? 0 : ENTRIES * LAYERS * UNIT);
	if (numbers) {
		opens_ask();
		windows_ask();
	}
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
		if (!strcmp(argv[2], acts[i].name))
			acts[i].run();
	mm_client_close(client);
	return 0;
}
