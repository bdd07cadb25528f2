/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/libclient/client/fixture.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "libclient/base/base.h"

/* ---- calls that block ---- */

static void *call_main(void *arg)
{
	struct call *call = arg;

	call->result = call->run(call);
	snprintf(call->error, sizeof(call->error), "%s", mm_client_error(call->f->client));
	return NULL;
}

void call_start(struct call *call, struct fixture *f, int (*run)(struct call *))
{
	call->f = f;
	call->run = run;
	assert_int_equal(pthread_create(&call->thread, NULL, call_main, call), 0);
}

int call_join(struct call *call)
{
	pthread_join(call->thread, NULL);
	return call->result;
}

int call_load(struct call *call)
{
	return mm_model_load(call->f->client, call->dir ? call->dir : call->f->peer->model_dir,
			     call->opts, &call->f->model);
}

int call_want(struct call *call)
{
	return mm_kv_want(call->kv, call->chunks, call->timeout_ns);
}

int call_step_begin(struct call *call)
{
	return mm_step_begin(call->f->client);
}

int call_step_end(struct call *call)
{
	call->info.size = sizeof(call->info);
	return mm_step_end(call->f->client, call->f->stream, &call->info);
}

/* ---- the fixture ---- */

int fixture_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct mm_client_opts opts;
	char err[320];

	assert_non_null(f);
	f->peer = peer_start();
	opts = peer_client_opts(f->peer);
	if (mm_client_open(&opts, &f->client, err, sizeof(err)))
		fail_msg("%s", err);
	peer_await_connection(f->peer);
	assert_int_equal(f->peer->gpu.cuStreamCreate(&f->stream, CU_STREAM_NON_BLOCKING), 0);
	*state = f;
	return 0;
}

void fixture_load(struct fixture *f)
{
	struct call load = { 0 };
	unsigned int files;
	uint64_t bytes;
	int channel, fd;

	call_start(&load, f, call_load);
	peer_expect(f->peer, MM_OP_MODEL_OPEN);
	channel = peer_open_channel(f->peer);
	peer_take_files(channel, &files);
	assert_int_equal(files, 3);
	peer_load_status(channel, 0, "");
	close(channel);
	fd = peer_store(&bytes);
	peer_send_store(f->peer, (const uint64_t[]){ 1 + PEER_LAYERS, 1 + PEER_LAYERS, bytes }, fd);
	peer_place_model(f->peer);
	if (call_join(&load))
		fail_msg("%s", load.error);
}

int fixture_setup_model(void **state)
{
	fixture_setup(state);
	fixture_load(*state);
	return 0;
}

int fixture_teardown(void **state)
{
	struct fixture *f = *state;

	f->peer->gpu.cuStreamDestroy(f->stream);
	assert_null(mm_client_close(f->client));
	peer_stop(f->peer);
	free(f);
	return 0;
}

struct mm_event fixture_event(struct fixture *f, enum mm_event_kind kind)
{
	struct pollfd fd = { .fd = mm_client_event_fd(f->client), .events = POLLIN };
	struct mm_event event = { .size = sizeof(event) };

	assert_int_equal(poll(&fd, 1, 180000), 1);
	assert_int_equal(mm_client_next_event(f->client, &event), 0);
	assert_int_equal(event.kind, kind);
	return event;
}

uint8_t fixture_read(struct fixture *f, CUdeviceptr va)
{
	uint8_t byte = 0;

	assert_int_equal(mm_client_gpu(f->client)->cuMemcpyDtoH(&byte, va, 1), 0);
	return byte;
}

void fixture_write(struct fixture *f, CUdeviceptr va, uint8_t byte)
{
	assert_int_equal(mm_client_gpu(f->client)->cuMemcpyHtoD(va, &byte, 1), 0);
	assert_int_equal(mm_client_gpu(f->client)->cuStreamSynchronize(NULL), 0);
}

uint64_t shared(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void pause_ms(uint64_t ms)
{
	const struct timespec t = mm_timespec(ms * MM_NS_PER_MS);

	nanosleep(&t, NULL);
}

/* Layers 1 and 3 share page 2. Layer 1 is in the slot. */
void cycle_two(struct fixture *f)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	peer_expect(f->peer, MM_OP_PARKED);
	peer_map(f->peer, 4, 3);
	peer_gate(f->peer, 1, MM_GATE_READY);
	peer_gate(f->peer, 3, MM_GATE_EMPTY);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2, .arg = { 1, 2 } });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
	fixture_event(f, MM_EVENT_PLAN_CHANGED);
}

/* mmd's answer to RESYNC: the same plan, layer 1 in the slot. */
void null_change(struct fixture *f, uint64_t epoch)
{
	assert_int_equal(peer_expect(f->peer, MM_OP_RESYNC).epoch, epoch - 1);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = epoch });
	assert_int_equal(peer_expect(f->peer, MM_OP_PARKED).epoch, epoch);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i, MM_GATE_RESIDENT);
	peer_gate(f->peer, 1, MM_GATE_READY);
	peer_gate(f->peer, 3, MM_GATE_EMPTY);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = epoch, .arg = { 1, 2 } });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
}

/* mmd's part in a step: once layer 1 was used, layer 3 is copied in. */
void bring_layer_3(struct fixture *f)
{
	while (!(shared(&f->peer->gates->gate[1].word) & MM_GATE_DONE))
		pause_ms(1);
	peer_gate(f->peer, 1, MM_GATE_EMPTY);
	peer_gate(f->peer, 3, MM_GATE_READY);
}
