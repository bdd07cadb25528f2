/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each fault point in a client's life fails once: open, model, arena, a grant, a step, a release,
 * the model's end, close. The client runs in a process of its own, so that only its own fault
 * points count and its exit status shows a leak (ASan) or a crash; another process plays mmd.
 */
#undef NDEBUG
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/fault.h"
#include "mm/client_cold.h"
#include "mm/client_model.h"
#include "tests/unit/libclient/client/peer.h"

#define POINTS_MAX 400
#define KV_PAGE    9
#define FILLER     10

enum { UNTOUCHED = 0, FAILED_CLEANLY = 1, CALL_LIED = 2 };

/* ---- mmd: it answers without the test, one batch at a time ---- */

static struct {
	int stage; /* of a model: what the next acknowledgement is for */
	int channel;
	struct mm_fd_batch batch;
	int fds[1 + PEER_LAYERS];
	struct mm_msg mem;    /* the request for the page that backs the arena, or 0 */
	struct mm_msg unload; /* the request to take the model back, or 0 */
} mmd;

static void send_batch(struct peer *p)
{
	mmd.batch.magic = MM_ABI_MAGIC;
	mmd.batch.seq = ++p->seq;
	mm_sock_send(p->sock, &mmd.batch, sizeof(mmd.batch), mmd.fds, mmd.batch.count);
}

static void send_one(struct peer *p, enum mm_fd_kind kind, int fd)
{
	mmd.batch = (struct mm_fd_batch){ .kind = kind, .count = 1 };
	mmd.fds[0] = fd;
	send_batch(p);
}

static void send_pages(struct peer *p, uint32_t first, uint32_t n, uint32_t entry)
{
	mmd.batch = (struct mm_fd_batch){ .kind = MM_FD_PAGES, .count = n };
	for (uint32_t i = 0; i < n; i++) {
		mmd.batch.page_id[i] = first + i;
		mmd.fds[i] = peer_export(p, first + i);
		peer_map(p, entry + i, first + i + 1);
	}
	send_batch(p);
}

/* The result of the load is in the channel before the client sends its first file. */
static void open_channel(struct peer *p)
{
	int fds[2];

	assert_int_equal(mm_sock_pair(fds), 0);
	mmd.channel = fds[0];
	peer_load_status(mmd.channel, 0, "");
	mmd.stage = 1;
	send_one(p, MM_FD_LOAD, fds[1]);
}

static void on_ack(struct peer *p, const struct mm_msg *ack)
{
	static uint64_t store_bytes;

	if (ack->result) {
		send_batch(p);
		return;
	}
	for (uint32_t i = 0; i < mmd.batch.count; i++)
		mm_close_fd(&mmd.fds[i]);
	if (mmd.mem.opcode) {
		peer_event(p, &(struct mm_msg){ .opcode = MM_EV_REPLY,
						.user_data = mmd.mem.user_data,
						.arg = { mmd.mem.opcode } });
		mmd.mem.opcode = 0;
		return;
	}
	switch (mmd.stage++) {
	case 1:
		send_one(p, MM_FD_STORE, peer_store(&store_bytes));
		break;
	case 2:
		peer_event(p, &(struct mm_msg){
				      .opcode = MM_EV_MODEL_LOADED,
				      .arg = { 1 + PEER_LAYERS, 1 + PEER_LAYERS, store_bytes } });
		for (uint32_t i = 0; i < PEER_LAYERS; i++)
			peer_gate(p, i, MM_GATE_RESIDENT);
		send_pages(p, 0, 1 + PEER_LAYERS, 0);
		break;
	case 3:
		peer_event(p, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 1 });
		break;
	default:
		peer_event(p, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT });
	}
}

static void take_model_back(struct peer *p, const struct mm_msg *msg)
{
	if (msg->opcode == MM_OP_UNLOAD) {
		mmd.unload = *msg;
		peer_event(p, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	} else if (msg->opcode == MM_OP_PARKED) {
		for (uint32_t i = 0; i <= PEER_LAYERS; i++)
			peer_map(p, i, 0);
		peer_event(p, &(struct mm_msg){ .opcode = MM_EV_SWITCH,
						.epoch = 2,
						.arg = { 0, 0, MM_SWITCH_EMPTY } });
	} else if (msg->opcode == MM_OP_COMMITTED) {
		peer_event(p, &(struct mm_msg){ .opcode = MM_EV_REPLY,
						.user_data = mmd.unload.user_data,
						.arg = { MM_OP_UNLOAD } });
		mmd.unload.opcode = 0;
	}
}

static void on_request(struct peer *p, const struct mm_msg *msg)
{
	if (msg->opcode == MM_OP_MODEL_OPEN)
		open_channel(p);
	else if (msg->opcode == MM_OP_FDS_ACK)
		on_ack(p, msg);
	else if (msg->opcode == MM_OP_UNLOAD || (mmd.unload.opcode && !msg->result))
		take_model_back(p, msg);
	else if (msg->opcode == MM_OP_COMMITTED && !msg->result)
		peer_event(p, &(struct mm_msg){ .opcode = MM_EV_MODEL_READY });
	else if (msg->opcode == MM_OP_COMMITTED)
		peer_disconnect(p);
	else if (msg->opcode == MM_OP_MEM_ALLOC) {
		mmd.mem = *msg;
		send_pages(p, FILLER, 1, (uint32_t)msg->arg[0]);
	} else if (msg->opcode == MM_OP_COLD_WINDOW)
		peer_event(p, &(struct mm_msg){ .opcode = MM_EV_REPLY,
						.user_data = msg->user_data,
						.arg = { MM_OP_COLD_WINDOW } });
	else if (msg->opcode == MM_OP_KV_WANT && msg->arg[0])
		send_pages(p, KV_PAGE, 1, MM_MAP_KV_BASE);
}

static void play_mmd(int report, int stop)
{
	struct pollfd end = { .fd = stop, .events = POLLIN };
	struct peer *p;

	peer_environment();
	p = peer_start();
	/* The client connects again after a connection that ended too early. */
	__atomic_store_n(&p->again, true, __ATOMIC_RELEASE);
	__atomic_store_n(&p->on_request, on_request, __ATOMIC_RELEASE);
	dprintf(report, "%s %s %s", p->path, p->model_dir, getenv("MM_SOFTGPU_DIR"));
	close(report);
	poll(&end, 1, -1);
	peer_stop(p);
	exit(0);
}

/* ---- the client ---- */

/* A window of so many chunks, until it is in force. */
static int window_use(struct mm_cold *cold, uint32_t chunks)
{
	struct mm_cold_state state = { .size = sizeof(state), .pending = 1 };
	const struct timespec pause = mm_timespec(MM_NS_PER_MS);
	int r = mm_cold_window(cold, 0, chunks);

	while (!r && state.pending) {
		nanosleep(&pause, NULL);
		r = mm_cold_state(cold, &state);
	}
	return r ? r : state.error;
}

/* The arena has one chunk. */
static int cold_use(struct mm_client *client)
{
	const struct mm_cold_opts opts = { .size = sizeof(opts),
					   .unit_bytes = PEER_PAGE_BYTES / PEER_LAYERS / 4,
					   .layers = PEER_LAYERS,
					   .entries_max = 4 };
	struct mm_cold *cold;
	int r = mm_cold_open(client, &opts, &cold);

	if (!r)
		r = window_use(cold, 1);
	if (!r)
		r = mm_cold_set(cold, 3, true);
	if (!r && !mm_cold_commit(cold))
		r = CALL_LIED;
	return r ? r : window_use(cold, 0);
}

static int client_use(struct mm_client *client, const char *model_dir, CUstream stream)
{
	struct mm_kv_opts kv_opts = { .size = sizeof(kv_opts),
				      .chunk_bytes = PEER_PAGE_BYTES,
				      .chunks_max = 2,
				      .flags = MM_KV_BACKED };
	struct mm_gate_times *times;
	struct mm_model *model;
	struct mm_swap *swap;
	struct mm_kv *kv;
	int r = mm_model_load(client, model_dir, NULL, &model);

	if (!r)
		r = mm_kv_open(client, &kv_opts, &kv);
	if (!r)
		r = mm_swap_open(client, PEER_PAGE_BYTES, &swap);
	if (!r)
		r = mm_kv_want(kv, 1, 60 * MM_NS_PER_S);
	if (!r)
		r = cold_use(client);
	if (!r)
		r = mm_gate_times_open(model, &times);
	if (!r)
		r = mm_step_begin(client);
	if (r)
		return r;
	for (uint32_t i = 0; i < PEER_LAYERS && !r; i++) {
		r = mm_layer_begin(model, i, stream);
		if (!r)
			r = mm_layer_end(model, i, stream);
	}
	r = mm_step_end(client, stream, NULL);
	if (!r)
		r = mm_kv_release(kv, 0);
	return r ? r : mm_model_unload(model);
}

static int client_live(const char *path, const char *model_dir)
{
	struct mm_client_opts opts = { .size = sizeof(opts),
				       .socket_path = path,
				       .timeout_ns = 60 * MM_NS_PER_S };
	struct mm_client *client = NULL;
	CUstream stream = NULL;
	char err[200] = "";
	int r = mm_client_open(&opts, &client, err, sizeof(err));

	if (r)
		return client || !*err ? CALL_LIED : FAILED_CLEANLY;
	r = client_use(client, model_dir, stream);
	/* Every failure has a sentence. */
	if (r)
		r = *mm_client_error(client) ? FAILED_CLEANLY : CALL_LIED;
	if (mm_client_close(client))
		return CALL_LIED;
	return r;
}

/* The n-th point fails. A client may also survive a fault (it requests a batch again). */
static void play_client(uint64_t nth, const char *path, const char *model_dir)
{
	int r;

	mm_fault_arm(nth);
	r = client_live(path, model_dir);
	if (r == CALL_LIED || (r == FAILED_CLEANLY && !mm_fault_fired()))
		exit(CALL_LIED);
	exit(mm_fault_fired() ? FAILED_CLEANLY : UNTOUCHED);
}

static int child_run(uint64_t nth)
{
	char report[300] = "", path[100], model_dir[100], gpu_dir[100], bytes[24];
	int to_us[2], to_mmd[2], status = -1, mmd_status = -1;
	ssize_t n;
	pid_t daemon, client;

	assert_int_equal(pipe2(to_us, 0) | pipe2(to_mmd, 0), 0);
	daemon = fork();
	if (daemon == 0) {
		close(to_us[0]);
		close(to_mmd[1]);
		play_mmd(to_us[1], to_mmd[0]);
	}
	close(to_us[1]);
	close(to_mmd[0]);
	n = read(to_us[0], report, sizeof(report) - 1);
	assert_true(n > 0);
	assert_int_equal(sscanf(report, "%99s %99s %99s", path, model_dir, gpu_dir), 3);
	client = fork();
	if (client == 0) {
		snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)PEER_PAGE_BYTES);
		setenv("MM_SOFTGPU_DIR", gpu_dir, 1);
		setenv("MM_SOFTGPU_GRANULARITY", bytes, 1);
		close(to_mmd[1]);
		close(to_us[0]);
		play_client(nth, path, model_dir);
	}
	waitpid(client, &status, 0);
	close(to_mmd[1]);
	waitpid(daemon, &mmd_status, 0);
	close(to_us[0]);
	assert_int_equal(mmd_status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) > FAILED_CLEANLY)
		fail_msg("point %llu: the client ended with status %#x", (unsigned long long)nth,
			 (unsigned int)status);
	return WEXITSTATUS(status);
}

static void test_every_point(void **state)
{
	uint64_t n;

	(void)state;
	for (n = 1; n < POINTS_MAX && child_run(n) != UNTOUCHED; n++)
		;
	print_message("%llu points\n", (unsigned long long)(n - 1));
	assert_in_range(n, 20, POINTS_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_point) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
