/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and gates: PREPARE waits for the step, streams wait for layers and never for ever. */
#undef NDEBUG
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "mm/client_model.h"
#include "libclient/client/internal.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"

#define STREAMS 17 /* one more than a step may have */

static void enqueue_layers(struct fixture *f, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		assert_int_equal(mm_layer_begin(f->model, i, f->stream), 0);
		assert_int_equal(mm_layer_end(f->model, i, f->stream), 0);
	}
}

/* Waits until the library has handled PREPARE: before, a step may still begin. */
static void await_prepare(struct fixture *f)
{
	bool preparing = false;

	for (uint32_t ms = 0; !preparing; ms++) {
		assert_true(ms < 180000);
		pause_ms(1);
		mm_client_lock_take(&f->client->lock);
		preparing = f->client->steps.state != MM_STEPS_RUN;
		mm_client_lock_give(&f->client->lock);
	}
}

static void test_parked_after_the_step(void **state)
{
	struct fixture *f = *state;
	struct call begin = { 0 };

	assert_int_equal(mm_step_begin(f->client), 0);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	await_prepare(f);
	peer_absent(f->peer, MM_OP_PARKED, 20);
	/* Writer-preferring: no other step begins, though one is open. */
	call_start(&begin, f, call_step_begin);
	pause_ms(20);
	assert_int_equal(shared(&f->peer->tenant->stats.step_seq), 1);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_PARKED).epoch, 2);
	assert_int_equal(shared(&f->peer->tenant->stats.step_seq), 2);
	pause_ms(20);
	assert_int_equal(shared(&f->peer->gates->step_seq), 2);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2 });
	assert_int_equal(call_join(&begin), 0);
	assert_int_equal(shared(&f->peer->gates->step_seq), 3);
	/* The other thread's step can be ended here: it is the only one. */
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), -EINVAL);
}

/* Keeps the peer's thread from the ring once it has read PARKED, until the test releases it. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool held;
} reader = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void hold_reader(struct peer *peer, const struct mm_msg *msg)
{
	(void)peer;
	pthread_mutex_lock(&reader.lock);
	while (reader.held && msg->opcode == MM_OP_PARKED)
		pthread_cond_wait(&reader.changed, &reader.lock);
	pthread_mutex_unlock(&reader.lock);
}

static void let_reader_go(void)
{
	pthread_mutex_lock(&reader.lock);
	reader.held = false;
	pthread_cond_broadcast(&reader.changed);
	pthread_mutex_unlock(&reader.lock);
}

/* Fills the ring of requests, and drains the doorbells of them. */
static void fill_requests(struct fixture *f)
{
	const struct mm_msg nop = { .opcode = MM_OP_NOP };
	uint8_t byte;
	size_t len;
	int r;

	mm_client_lock_take(&f->client->lock);
	do
		r = mm_ring_push(&f->client->sq, &nop);
	while (!r);
	mm_client_lock_give(&f->client->lock);
	assert_int_equal(r, MM_E_FULL);
	while (!mm_sock_recv_nofds(f->peer->sock, &byte, sizeof(byte), &len))
		;
}

/* While COMMITTED has no room in the ring no step begins, though everything is mapped. */
static void test_no_step_before_committed(void **state)
{
	struct fixture *f = *state;
	struct call begin = { 0 };
	enum mm_steps_may may;
	uint64_t seq;
	int rang;

	reader.held = true;
	__atomic_store_n(&f->peer->on_request, hold_reader, __ATOMIC_RELEASE);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	peer_expect(f->peer, MM_OP_PARKED);
	peer_drained(f->peer);
	fill_requests(f);
	call_start(&begin, f, call_step_begin);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2 });
	/*
	 * A sender that finds the ring full rings the doorbell; it can only be that of COMMITTED.
	 */
	rang = mm_sock_wait(f->peer->sock, POLLIN, mm_deadline_ns(180 * MM_NS_PER_S));
	mm_client_lock_take(&f->client->lock);
	may = mm_steps_may_begin(&f->client->steps, false);
	mm_client_lock_give(&f->client->lock);
	seq = shared(&f->peer->gates->step_seq);
	/* The threads are released before any assertion: a failure could not stop them. */
	let_reader_go();
	call_join(&begin);
	assert_int_equal(rang, 0);
	assert_int_equal(may, MM_STEPS_MUST_WAIT);
	assert_int_equal(seq % 2, 0);
	assert_int_equal(begin.result, 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
	assert_int_equal(shared(&f->peer->gates->step_seq) % 2, 1);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

/* Waits until a thread ends the step that is open. */
static void await_closing(struct fixture *f)
{
	bool closing = false;

	for (uint32_t ms = 0; !closing; ms++) {
		assert_true(ms < 180000);
		pause_ms(1);
		mm_client_lock_take(&f->client->lock);
		closing = f->client->step_list->closing;
		mm_client_lock_give(&f->client->lock);
	}
}

/* A step that is being ended cannot be ended by another thread, though it is the only one. */
static void test_ended_by_two(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 };

	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	call_start(&end, f, call_step_end);
	await_closing(f);
	assert_int_equal(mm_step_abandon(f->client, f->stream), -EINVAL);
	peer_gate(f->peer, 3, MM_GATE_READY);
	assert_int_equal(call_join(&end), 0);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	assert_int_equal(peer_expect(f->peer, MM_OP_PARKED).epoch, 3);
}

static void test_idle_tenant_answers(void **state)
{
	struct fixture *f = *state;

	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	assert_int_equal(peer_expect(f->peer, MM_OP_PARKED).epoch, 2);
}

static void test_stream_waits_for_its_layer(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 };
	const struct mm_tenant_stats *stats = &f->peer->tenant->stats;

	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	call_start(&end, f, call_step_end);
	/* mmd's part: it reads DONE of layer 1, copies layer 3 in, and writes READY. */
	while (!(shared(&f->peer->gates->gate[1].word) & MM_GATE_DONE))
		pause_ms(1);
	pause_ms(40);
	assert_int_equal(shared(&f->peer->gates->gate[3].word), MM_GATE_EMPTY);
	assert_int_equal(shared(&stats->steps), 0);
	peer_gate(f->peer, 3, MM_GATE_READY);
	assert_int_equal(call_join(&end), 0);
	assert_int_equal(shared(&f->peer->gates->gate[3].word), MM_GATE_DONE);
	assert_int_equal(shared(&f->peer->gates->gate[0].word), MM_GATE_RESIDENT | MM_GATE_DONE);
	assert_int_equal(end.info.gated, 2);
	/* The part of the pause that counts depends on when the stream ran. */
	assert_in_range(end.info.stall_ns, 1, end.info.step_ns);
	assert_int_equal(shared(&stats->steps), 1);
	assert_int_equal(shared(&stats->step_ns), end.info.step_ns);
	assert_int_equal(shared(&stats->stall_ns), end.info.stall_ns);
	assert_int_equal(shared(&stats->stall_total_ns), end.info.stall_ns);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
}

static void test_aborted(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 }, begin = { 0 };

	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	call_start(&end, f, call_step_end);
	pause_ms(20);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		__atomic_fetch_or(&f->peer->gates->gate[i].word, MM_GATE_ABORT, __ATOMIC_SEQ_CST);
	assert_int_equal(call_join(&end), -ECANCELED);
	/* No step until the gates are in order again. */
	call_start(&begin, f, call_step_begin);
	pause_ms(20);
	assert_int_equal(shared(&f->peer->gates->step_seq) % 2, 0);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	peer_expect(f->peer, MM_OP_PARKED);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i, MM_GATE_READY);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 3 });
	assert_int_equal(call_join(&begin), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

/* The engine gets the reason that mmd sends at the end. */
static void test_mmd_says_why_it_ends(void **state)
{
	struct fixture *f = *state;
	struct mm_end end = { .magic = MM_ABI_MAGIC,
			      .kind = MM_END_KIND,
			      .reason = "it was\nidle" };

	assert_int_equal(mm_sock_send(f->peer->sock, &end, sizeof(end), NULL, 0), 0);
	peer_disconnect(f->peer);
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -ECONNRESET);
	assert_string_equal(mm_client_error(f->client), "mmd ended the connection: it was?idle");
	assert_int_equal(mm_step_begin(f->client), -ECONNRESET);
	assert_string_equal(mm_client_error(f->client), "mmd ended the connection: it was?idle");
}

static void test_mmd_dies_in_a_wait(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 };
	struct mm_client_info info = { .size = sizeof(info) };

	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	call_start(&end, f, call_step_end);
	pause_ms(20);
	peer_disconnect(f->peer);
	assert_int_equal(call_join(&end), -ECONNRESET);
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -ECONNRESET);
	assert_int_equal(mm_step_begin(f->client), -ECONNRESET);
	assert_int_equal(mm_client_info(f->client, &info), -ECONNRESET);
	assert_string_equal(mm_client_error(f->client), "mmd closed the connection");
	/* Mappings stay until the client is closed. */
	assert_int_equal(fixture_read(f, ({
					      struct mm_tensor t = { .size = sizeof(t) };
					      mm_model_tensor(f->model, "layer.0", &t);
					      t.va;
				      })),
			 0x11);
}

static void test_layers_in_order(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), -EINVAL); /* no step */
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_end(f->model, 0, f->stream), -EINVAL);
	assert_int_equal(mm_layer_begin(f->model, PEER_LAYERS, f->stream), -EINVAL);
	assert_int_equal(mm_layer_begin(f->model, 1, f->stream), 0);
	assert_int_equal(mm_layer_begin(f->model, 2, f->stream), -EINVAL);
	assert_int_equal(mm_layer_end(f->model, 2, f->stream), -EINVAL);
	assert_int_equal(mm_layer_end(f->model, 1, f->stream), 0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), -EINVAL);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

static void test_layer_at_home(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(mm_layer_home(f->model, 1), -EINVAL); /* no step */
	assert_int_equal(mm_step_begin(f->client), 0);
	peer_gate(f->peer, 1, MM_GATE_RESIDENT);
	peer_gate(f->peer, 2, MM_GATE_READY);
	peer_gate(f->peer, 3, MM_GATE_ABORT);
	assert_int_equal(mm_layer_home(f->model, 1), -EINVAL);
	assert_int_equal(mm_layer_home(f->model, PEER_LAYERS), -EINVAL);
	for (uint32_t i = 1; i < 4; i++) {
		assert_int_equal(mm_layer_begin(f->model, i, f->stream), 0);
		/* READY may be of a use of the slot that has not ended yet. */
		assert_int_equal(mm_layer_home(f->model, i), i == 1);
		assert_int_equal(mm_layer_end(f->model, i, f->stream), 0);
		assert_int_equal(mm_layer_home(f->model, i), -EINVAL);
	}
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), -ECANCELED);
}

/* One at a time in each thread; refused at once, although a plan change waits for the first one. */
static void test_second_of_one_thread(void **state)
{
	struct fixture *f = *state;
	struct call begin = { 0 };

	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_begin(f->client), -EBUSY);
	assert_non_null(strstr(mm_client_error(f->client), "this thread has a step open"));
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	peer_drained(f->peer);
	assert_int_equal(mm_step_begin(f->client), -EBUSY);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	peer_expect(f->peer, MM_OP_PARKED); /* the only step was ended */
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), -EINVAL);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2 });

	/*
	 * The step of a thread that has ended: this thread may continue it, or open its own beside
	 * it.
	 */
	for (int own = 0; own <= 1; own++) {
		call_start(&begin, f, call_step_begin);
		assert_int_equal(call_join(&begin), 0);
		if (own)
			assert_int_equal(mm_step_begin(f->client), 0);
		assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
		assert_int_equal(mm_step_end(f->client, f->stream, NULL), own ? 0 : -EINVAL);
	}
}

static void test_broken_off(void **state)
{
	struct fixture *f = *state;

	/* No layer cycles: a step may use any of the layers. */
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 1);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
	cycle_two(f);
	/* A step without any layer is not broken. */
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 2);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	peer_expect(f->peer, MM_OP_RESYNC);
	/* mmd answers RESYNC with a null plan change. */
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	peer_expect(f->peer, MM_OP_PARKED);
	peer_gate(f->peer, 1, MM_GATE_READY);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 3, .arg = { 1, 2 } });
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 1);
	assert_int_equal(mm_step_abandon(f->client, f->stream), 0);
	peer_expect(f->peer, MM_OP_RESYNC);
}

/* The next step waits for the repair: without it, it would wait at layer 1 for ever. */
static void test_no_step_before_the_repair(void **state)
{
	struct fixture *f = *state;
	struct call begin = { 0 }, end = { 0 };

	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 2);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	call_start(&begin, f, call_step_begin);
	pause_ms(20);
	assert_int_equal(shared(&f->peer->gates->step_seq) % 2, 0);
	null_change(f, 3);
	assert_int_equal(call_join(&begin), 0);
	enqueue_layers(f, 0, 4);
	call_start(&end, f, call_step_end);
	bring_layer_3(f);
	assert_int_equal(call_join(&end), 0);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
}

/* The stream waits for a layer that is never copied in: an abandoned step ends all the same. */
static void test_abandoned_in_a_wait(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 };

	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	assert_int_equal(mm_step_abandon(f->client, f->stream), 0);
	null_change(f, 3);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	call_start(&end, f, call_step_end);
	bring_layer_3(f);
	assert_int_equal(call_join(&end), 0);
	assert_int_equal(end.info.gated, 2);
}

static int whole_step(struct call *call)
{
	int r = mm_step_begin(call->f->client);

	if (r)
		return r;
	enqueue_layers(call->f, 0, 4);
	return mm_step_end(call->f->client, call->f->stream, NULL);
}

/* After an exception in one thread the other's step returns -ECANCELED; repeated, it is correct. */
static void test_abandoned_beside_another(void **state)
{
	struct fixture *f = *state;
	struct call other = { 0 };
	CUstream stream;

	cycle_two(f);
	assert_int_equal(f->peer->gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(mm_step_begin(f->client), 0);
	call_start(&other, f, whole_step);
	while (!(shared(&f->peer->gates->gate[1].word) & MM_GATE_DONE))
		pause_ms(1);
	assert_int_equal(mm_step_abandon(f->client, stream), 0);
	assert_int_equal(call_join(&other), -ECANCELED);
	null_change(f, 3);
	call_start(&other, f, whole_step);
	bring_layer_3(f);
	assert_int_equal(call_join(&other), 0);
	f->peer->gpu.cuStreamDestroy(stream);
}

/* ---- steps that cannot be repeated ---- */

static int abandon_run(struct call *call)
{
	return mm_step_abandon(call->f->client, call->f->stream);
}

/* The rest is passed over as it comes; the gates stay in order for the next step. */
static void test_no_void_abandoned(void **state)
{
	struct fixture *f = *state;
	struct call abandon = { 0 }, end = { 0 };

	f->client->no_void = true;
	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 1);
	assert_int_equal(mm_layer_begin(f->model, 1, f->stream), 0); /* and no end */
	call_start(&abandon, f, abandon_run);
	bring_layer_3(f);
	assert_int_equal(call_join(&abandon), 0);
	assert_int_equal(shared(&f->peer->gates->gate[3].word), MM_GATE_DONE);
	peer_absent(f->peer, MM_OP_RESYNC, 20);
	peer_gate(f->peer, 3, MM_GATE_EMPTY);
	peer_gate(f->peer, 1, MM_GATE_READY);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	call_start(&end, f, call_step_end);
	bring_layer_3(f);
	assert_int_equal(call_join(&end), 0);
	/* A step that ends early is brought to its end, too. */
	peer_gate(f->peer, 3, MM_GATE_EMPTY);
	peer_gate(f->peer, 1, MM_GATE_READY);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 1);
	call_start(&end, f, call_step_end);
	bring_layer_3(f);
	assert_int_equal(call_join(&end), 0);
	/* One without layers has nothing to pass over. */
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_abandon(f->client, f->stream), 0);
	peer_absent(f->peer, MM_OP_RESYNC, 20);
}

/* The step of another thread goes on to its end. */
static void test_no_void_beside_another(void **state)
{
	struct fixture *f = *state;
	struct call other = { 0 };
	CUstream stream;

	f->client->no_void = true;
	cycle_two(f);
	assert_int_equal(f->peer->gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(mm_step_begin(f->client), 0);
	call_start(&other, f, whole_step);
	while (!(shared(&f->peer->gates->gate[1].word) & MM_GATE_DONE))
		pause_ms(1);
	assert_int_equal(mm_step_abandon(f->client, stream), 0);
	bring_layer_3(f);
	assert_int_equal(call_join(&other), 0);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
	f->peer->gpu.cuStreamDestroy(stream);
}

static void gates_abort(struct fixture *f)
{
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		__atomic_fetch_or(&f->peer->gates->gate[i].word, MM_GATE_ABORT, __ATOMIC_SEQ_CST);
}

static void no_void_aborted(struct fixture *f, bool ends)
{
	struct call end = { 0 };

	f->client->no_void = true;
	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	call_start(&end, f, call_step_end);
	gates_abort(f);
	if (ends) {
		pause_ms(50);
		peer_disconnect(f->peer);
	}
	assert_int_equal(call_join(&end), -ECONNRESET);
	assert_string_equal(end.error, ends ? "mmd closed the connection"
					    : "the gates were aborted, and no step may be void");
	assert_int_equal(mm_step_begin(f->client), -ECONNRESET);
}

/* mmd aborts gates of a tenant that it ends: the end is what the step returns. */
static void test_no_void_ended(void **state)
{
	no_void_aborted(*state, true);
}

static void test_no_void_end_does_not_come(void **state)
{
	no_void_aborted(*state, false);
}

/* Layers alternate on two streams; the end of the step waits for both, whichever is named. */
static void test_streams_join(void **state)
{
	struct fixture *f = *state;
	CUstream stream[2] = { f->stream };
	struct call end = { 0 };

	cycle_two(f);
	assert_int_equal(mm_step_join(f->client, f->stream), -EINVAL); /* no step */
	assert_int_equal(f->peer->gpu.cuStreamCreate(&stream[1], CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(mm_step_begin(f->client), 0);
	for (uint32_t i = 0; i < 4; i += 2) {
		assert_int_equal(mm_layer_begin(f->model, i, stream[0]), 0);
		assert_int_equal(mm_layer_begin(f->model, i + 1, stream[1]), 0);
		assert_int_equal(mm_layer_end(f->model, i, stream[1]), -EINVAL);
		assert_int_equal(mm_layer_end(f->model, i, stream[0]), 0);
		assert_int_equal(mm_layer_end(f->model, i, stream[0]), -EINVAL);
		assert_int_equal(mm_layer_end(f->model, i + 1, stream[1]), 0);
	}
	call_start(&end, f, call_step_end); /* names stream[0], which waits for nothing */
	while (!(shared(&f->peer->gates->gate[2].word) & MM_GATE_DONE))
		pause_ms(1);
	pause_ms(20);
	assert_int_equal(shared(&f->peer->tenant->stats.steps), 0);
	bring_layer_3(f);
	assert_int_equal(call_join(&end), 0);
	assert_int_equal(shared(&f->peer->gates->gate[3].word), MM_GATE_DONE);
	assert_int_equal(end.info.gated, 2);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
	f->peer->gpu.cuStreamDestroy(stream[1]);
}

/* A stream without layers joins by mm_step_join(). It waits at a gate that the test opens. */
static void test_joined_by_hand(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 };
	CUdeviceptr flag_va;
	CUstream stream[STREAMS];
	static uint64_t flag[512] __attribute__((aligned(4096)));

	__atomic_store_n(&flag[0], 0, __ATOMIC_RELEASE);
	for (size_t i = 0; i < MM_ARRAY_SIZE(stream); i++)
		assert_int_equal(f->peer->gpu.cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING),
				 0);
	assert_int_equal(
		f->peer->gpu.cuMemHostRegister(flag, sizeof(flag), CU_MEMHOSTREGISTER_DEVICEMAP),
		0);
	assert_int_equal(f->peer->gpu.cuMemHostGetDevicePointer(&flag_va, flag, 0), 0);
	assert_int_equal(mm_step_begin(f->client), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(stream); i++)
		assert_int_equal(mm_step_join(f->client, stream[i]), i < 16 ? 0 : -E2BIG);
	assert_int_equal(mm_step_join(f->client, stream[3]), 0); /* again */
	assert_int_equal(
		f->peer->gpu.cuStreamWaitValue64(stream[3], flag_va, 1, CU_STREAM_WAIT_VALUE_EQ),
		0);
	call_start(&end, f, call_step_end);
	pause_ms(20);
	assert_int_equal(shared(&f->peer->tenant->stats.steps), 0);
	__atomic_store_n(&flag[0], 1, __ATOMIC_RELEASE);
	assert_int_equal(call_join(&end), 0);
	assert_int_equal(f->peer->gpu.cuMemHostUnregister(flag), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(stream); i++)
		f->peer->gpu.cuStreamDestroy(stream[i]);
}

/* A layer that cycles and is skipped releases its slot all the same. */
static void test_layers_passed_over(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 };

	cycle_two(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 2, 4);
	call_start(&end, f, call_step_end);
	bring_layer_3(f);
	assert_int_equal(call_join(&end), 0);
	assert_int_equal(shared(&f->peer->gates->gate[0].word), MM_GATE_RESIDENT | MM_GATE_DONE);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
}

static void test_child_is_refused(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct mm_client_info info = { .size = sizeof(info) };
		struct mm_gate_times *times;
		struct mm_event event = { .size = sizeof(event) };
		int bad = mm_client_info(f->client, &info) != -ECHILD;

		bad |= mm_step_begin(f->client) != -ECHILD;
		bad |= mm_step_end(f->client, f->stream, NULL) != -ECHILD;
		bad |= mm_layer_begin(f->model, 0, f->stream) != -ECHILD;
		bad |= mm_gate_times_open(f->model, &times) != -ECHILD;
		bad |= mm_step_capture(f->client, NULL) != -ECHILD;
		bad |= mm_step_replay(f->client, NULL) != -ECHILD;
		bad |= mm_step_wants_times(f->client);
		bad |= mm_client_next_event(f->client, &event) != -ECHILD;
		mm_client_hint(f->client,
			       &(struct mm_load_hint){ .size = sizeof(struct mm_load_hint) });
		bad |= mm_client_close(f->client) != NULL;
		_exit(bad);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent is not affected. */
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f, 0, 4);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

static void test_hint(void **state)
{
	struct fixture *f = *state;
	const struct mm_load_hint hint = {
		.size = sizeof(hint),
		.kv_chunks_used = 3,
		.waiting = 2,
		.running = 1,
		.kv_chunks_queued = 4,
		.requests_done = UINT64_C(1) << 33,
		.requests_late = 5,
	};

	assert_int_equal(mm_client_hint(f->client, &hint), 0);
	assert_int_equal(shared(&f->peer->tenant->stats.kv_chunks_used), 3);
	assert_int_equal(shared(&f->peer->tenant->stats.waiting), 2);
	assert_int_equal(shared(&f->peer->tenant->stats.running), 1);
	assert_int_equal(shared(&f->peer->tenant->stats.kv_chunks_queued), 4);
	assert_int_equal(shared(&f->peer->tenant->stats.requests_done), UINT64_C(1) << 33);
	assert_int_equal(shared(&f->peer->tenant->stats.requests_late), 5);
}

#define MODEL(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_model, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MODEL(test_parked_after_the_step),
		MODEL(test_no_step_before_committed),
		MODEL(test_ended_by_two),
		MODEL(test_idle_tenant_answers),
		MODEL(test_stream_waits_for_its_layer),
		MODEL(test_aborted),
		MODEL(test_mmd_says_why_it_ends),
		MODEL(test_mmd_dies_in_a_wait),
		MODEL(test_layers_in_order),
		MODEL(test_layer_at_home),
		MODEL(test_second_of_one_thread),
		MODEL(test_broken_off),
		MODEL(test_no_step_before_the_repair),
		MODEL(test_abandoned_in_a_wait),
		MODEL(test_no_void_abandoned),
		MODEL(test_no_void_beside_another),
		MODEL(test_no_void_ended),
		MODEL(test_no_void_end_does_not_come),
		MODEL(test_abandoned_beside_another),
		MODEL(test_streams_join),
		MODEL(test_joined_by_hand),
		MODEL(test_layers_passed_over),
		MODEL(test_child_is_refused),
		MODEL(test_hint),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
