/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps as graphs: captured once, correct under every plan, and with the right times of their
 * waits.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/base/base.h"

#define SAMPLES_FIRST 16 /* libclient/client/times.c */
#define SAMPLE_EACH   8

struct graphs { /* of all layers, without and with events */
	struct fixture *f;
	struct mm_gate_times *times;
	CUgraphExec exec[2];
};

static const struct mm_gpu_api *gpu_of(const struct graphs *g)
{
	return &g->f->peer->gpu;
}

/* A step is open. */
static void graph_capture(struct graphs *g, bool timed)
{
	const struct mm_gpu_api *gpu = gpu_of(g);
	CUstream stream = g->f->stream;
	CUgraph graph;

	assert_int_equal(mm_step_capture(g->f->client, timed ? g->times : NULL), 0);
	assert_int_equal(gpu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
	for (uint32_t i = 0; i < PEER_LAYERS; i++) {
		assert_int_equal(mm_layer_begin(g->f->model, i, stream), 0);
		assert_int_equal(mm_layer_end(g->f->model, i, stream), 0);
	}
	assert_int_equal(gpu->cuStreamEndCapture(stream, &graph), 0);
	assert_int_equal(gpu->cuGraphInstantiateWithFlags(&g->exec[timed], graph, 0), 0);
	assert_int_equal(gpu->cuGraphDestroy(graph), 0);
}

/* Captures both graphs, in a step that launches neither. */
static void graph_make(struct graphs *g, struct fixture *f)
{
	const uint64_t before = shared(&f->peer->gates->gate[0].word);

	*g = (struct graphs){ .f = f };
	assert_int_equal(mm_gate_times_open(f->model, &g->times), 0);
	assert_int_equal(mm_step_begin(f->client), 0);
	graph_capture(g, false);
	graph_capture(g, true);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	/* None of the captured work has run. */
	assert_int_equal(shared(&f->peer->gates->gate[0].word), before);
}

static void graph_done(struct graphs *g)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(gpu_of(g)->cuGraphExecDestroy(g->exec[i]), 0);
}

static void graph_launch(struct graphs *g, bool timed)
{
	assert_int_equal(mm_step_replay(g->f->client, timed ? g->times : NULL), 0);
	assert_int_equal(gpu_of(g)->cuGraphLaunch(g->exec[timed], g->f->stream), 0);
}

/* mmd's part in a step: once layer 3 was used, layer 1 is copied in again. */
static void bring_layer_1(struct fixture *f)
{
	while (!(shared(&f->peer->gates->gate[3].word) & MM_GATE_DONE))
		pause_ms(1);
	peer_gate(f->peer, 3, MM_GATE_EMPTY);
	peer_gate(f->peer, 1, MM_GATE_READY);
}

/* Ends the open step, under the plan of cycle_two(). */
static struct mm_step_info end_cycling(struct fixture *f)
{
	struct call end = { 0 };

	call_start(&end, f, call_step_end);
	bring_layer_3(f);
	bring_layer_1(f);
	assert_int_equal(call_join(&end), 0);
	return end.info;
}

static struct mm_step_info graph_replay(struct graphs *g, bool timed)
{
	assert_int_equal(mm_step_begin(g->f->client), 0);
	graph_launch(g, timed);
	return end_cycling(g->f);
}

/*
 * A graph that was captured before any layer cycled waits for the layers that cycle later, and no
 * longer waits when they stop.
 */
static void test_one_graph_fits_all_plans(void **state)
{
	struct fixture *f = *state;
	struct mm_step_info info = { .size = sizeof(info) };
	struct graphs g;

	graph_make(&g, f);
	assert_int_equal(mm_step_begin(f->client), 0);
	graph_launch(&g, false);
	assert_int_equal(mm_step_end(f->client, f->stream, &info), 0);
	assert_int_equal(info.gated, 0);
	assert_int_equal(shared(&f->peer->gates->gate[3].word), MM_GATE_RESIDENT | MM_GATE_DONE);
	cycle_two(f);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(graph_replay(&g, false).gated, 2);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	peer_expect(f->peer, MM_OP_PARKED);
	peer_pages(f->peer, (const uint32_t[]){ 4 }, 1);
	peer_map(f->peer, 4, 5);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i, MM_GATE_RESIDENT);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 3 });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
	assert_int_equal(mm_step_begin(f->client), 0);
	graph_launch(&g, false);
	assert_int_equal(mm_step_end(f->client, f->stream, &info), 0);
	assert_int_equal(info.gated, 0);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
	graph_done(&g);
}

/* A graph with events reports its waits; one without reports nothing, and is no sample. */
static void test_who_knows_its_waits_is_a_sample(void **state)
{
	struct fixture *f = *state;
	const struct mm_tenant_stats *stats = &f->peer->tenant->stats;
	struct call end = { 0 };
	struct mm_step_info info = { .size = sizeof(info) };
	struct graphs g;
	uint64_t samples;

	graph_make(&g, f);
	/* The step contains the capturing: it is no sample, although no layer cycled. */
	assert_int_equal(shared(&stats->steps), 1);
	assert_int_equal(shared(&stats->samples), 0);
	/* No layer cycles: there are no waits. */
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_false(mm_step_wants_times(f->client));
	graph_launch(&g, false);
	assert_int_equal(mm_step_end(f->client, f->stream, &info), 0);
	assert_int_equal(info.timed, 1);
	assert_int_equal(shared(&stats->samples), 1);
	cycle_two(f);
	samples = shared(&stats->samples);
	info = graph_replay(&g, false);
	assert_int_equal(info.timed, 0);
	assert_int_equal(info.stall_ns, 0);
	assert_int_equal(shared(&stats->samples), samples);
	assert_int_equal(mm_step_begin(f->client), 0);
	graph_launch(&g, true);
	call_start(&end, f, call_step_end);
	while (!(shared(&f->peer->gates->gate[1].word) & MM_GATE_DONE))
		pause_ms(1);
	pause_ms(20);
	bring_layer_3(f);
	bring_layer_1(f);
	assert_int_equal(call_join(&end), 0);
	info = end.info;
	assert_int_equal(info.timed, 1);
	/* The part of the pause that counts depends on when the stream ran. */
	assert_in_range(info.stall_ns, 1, info.step_ns);
	assert_int_equal(shared(&stats->samples), samples + 1);
	assert_int_equal(shared(&stats->step_ns), info.step_ns);
	assert_int_equal(shared(&stats->stall_ns), info.stall_ns);
	assert_int_equal(shared(&stats->stall_total_ns), info.stall_ns);
	/* A step without times counts as the last one with times. */
	graph_replay(&g, false);
	assert_int_equal(shared(&stats->samples), samples + 1);
	assert_int_equal(shared(&stats->stall_total_ns), 2 * info.stall_ns);
	assert_int_equal(shared(&stats->steps), 5);
	graph_done(&g);
}

/*
 * Graphs without mm_step_replay() look like steps without layers: they must not count as samples
 * either.
 */
static void test_unsaid_replays_are_no_samples(void **state)
{
	struct fixture *f = *state;
	const struct mm_tenant_stats *stats = &f->peer->tenant->stats;
	struct graphs g;
	uint64_t samples;

	graph_make(&g, f);
	cycle_two(f);
	samples = shared(&stats->samples);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(gpu_of(&g)->cuGraphLaunch(g.exec[0], f->stream), 0);
	assert_int_equal(end_cycling(f).timed, 0);
	assert_int_equal(shared(&stats->samples), samples);
	graph_done(&g);
}

static struct mm_step_info one_by_one(struct fixture *f)
{
	assert_int_equal(mm_step_begin(f->client), 0);
	for (uint32_t i = 0; i < PEER_LAYERS; i++) {
		assert_int_equal(mm_layer_begin(f->model, i, f->stream), 0);
		assert_int_equal(mm_layer_end(f->model, i, f->stream), 0);
	}
	return end_cycling(f);
}

/* The first steps of a plan are to be timed, then one in eight; a new plan begins anew. */
static void test_which_steps_are_wanted(void **state)
{
	struct fixture *f = *state;
	const struct mm_tenant_stats *stats = &f->peer->tenant->stats;
	uint32_t wanted = 0;
	struct graphs g;
	uint64_t samples;

	graph_make(&g, f);
	cycle_two(f);
	for (uint32_t i = 0; i < SAMPLES_FIRST + 3 * SAMPLE_EACH; i++) {
		bool wants;

		assert_int_equal(mm_step_begin(f->client), 0);
		wants = mm_step_wants_times(f->client);
		assert_int_equal(wants, i < SAMPLES_FIRST || (i - SAMPLES_FIRST) % SAMPLE_EACH ==
								     SAMPLE_EACH - 1);
		wanted += wants;
		graph_launch(&g, wants);
		end_cycling(f);
	}
	samples = shared(&stats->samples);
	assert_int_equal(samples, wanted);
	/*
	 * Steps of prompts run no graphs and have times always; they are not counted more often for
	 * that.
	 */
	for (uint32_t i = 0; i < 2 * SAMPLE_EACH; i++)
		assert_int_equal(one_by_one(f).timed, 1);
	assert_int_equal(shared(&stats->samples), samples + 2);
	/* An abandoned step leads to a null change, whose plan counts as new. */
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_false(mm_step_wants_times(f->client));
	assert_int_equal(mm_step_abandon(f->client, f->stream), 0);
	null_change(f, 3);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_true(mm_step_wants_times(f->client));
	graph_launch(&g, true);
	end_cycling(f);
	graph_done(&g);
}

/* A graph that waits cannot be cancelled, but aborted gates free it; repeated, it is correct. */
static void test_aborted_while_it_waits(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 };
	struct graphs g;

	graph_make(&g, f);
	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	graph_launch(&g, true);
	call_start(&end, f, call_step_end);
	while (!(shared(&f->peer->gates->gate[1].word) & MM_GATE_DONE))
		pause_ms(1);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		__atomic_fetch_or(&f->peer->gates->gate[i].word, MM_GATE_ABORT, __ATOMIC_SEQ_CST);
	assert_int_equal(call_join(&end), -ECANCELED);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	peer_expect(f->peer, MM_OP_PARKED);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i,
			  i == 1   ? MM_GATE_READY
			  : i == 3 ? MM_GATE_EMPTY
				   : MM_GATE_RESIDENT);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 3, .arg = { 1, 2 } });
	assert_int_equal(graph_replay(&g, true).gated, 2);
	graph_done(&g);
}

/* An exception between two layers of a capture: no work ran, and nothing is left over. */
static void test_capture_breaks_off(void **state)
{
	struct fixture *f = *state;
	struct graphs g;
	CUgraph graph = NULL;

	graph_make(&g, f);
	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_capture(f->client, NULL), 0);
	assert_int_equal(
		gpu_of(&g)->cuStreamBeginCapture(f->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
		0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), 0);
	assert_int_equal(gpu_of(&g)->cuStreamEndCapture(f->stream, &graph), 0);
	assert_int_equal(gpu_of(&g)->cuGraphDestroy(graph), 0);
	assert_int_equal(mm_step_abandon(f->client, f->stream), 0);
	assert_int_equal(shared(&f->peer->gates->gate[0].word) & MM_GATE_DONE, 0);
	null_change(f, 3);
	assert_int_equal(graph_replay(&g, false).gated, 2);
	graph_done(&g);
}

static void test_what_is_refused(void **state)
{
	struct fixture *f = *state;
	struct mm_gate_times *times;

	assert_int_equal(mm_gate_times_open(f->model, &times), 0);
	assert_int_equal(mm_step_capture(f->client, times), -EINVAL); /* no step */
	assert_int_equal(mm_step_replay(f->client, times), -EINVAL);
	assert_false(mm_step_wants_times(f->client));
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_begin(f->model, 1, f->stream), 0);
	assert_int_equal(mm_step_capture(f->client, NULL), -EINVAL);
	assert_string_equal(mm_client_error(f->client), "layer 1 has no end");
	assert_int_equal(mm_layer_end(f->model, 1, f->stream), 0);
	assert_int_equal(mm_step_capture(f->client, NULL), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

#define MODEL(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_model, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MODEL(test_one_graph_fits_all_plans),
		MODEL(test_who_knows_its_waits_is_a_sample),
		MODEL(test_unsaid_replays_are_no_samples),
		MODEL(test_which_steps_are_wanted),
		MODEL(test_aborted_while_it_waits),
		MODEL(test_capture_breaks_off),
		MODEL(test_what_is_refused),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
