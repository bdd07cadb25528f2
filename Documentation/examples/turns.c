/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turns - an engine that computes in turns with others, and reports what it could use
 *
 * turns REQUESTS: so many requests are there at the begin. Each takes a chunk for STEPS steps. The
 * engine demands chunks for those that run and wait, gives the turn back where it was denied what
 * it cannot run without, and begins a request anew whose chunk mmd reclaimed. It prints how many
 * requests it served, how many of them late, and how often it gave its turn back.
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <mm/client.h>
#include <mm/gpu.h>

#define CHUNKS_MAX 64
#define STEPS      20
#define GOAL_NS    UINT64_C(200000000) /* from the begin to the end of a request */
#define STEP_NS    2000000
#define RETRY_MS   20

struct engine {
	struct mm_client *client;
	const struct mm_gpu_api *gpu;
	struct mm_kv *kv;
	uint64_t chunk_bytes, began_ns;
	CUstream stream;
	uint32_t left[CHUNKS_MAX]; /* steps that the chunk's request still takes; 0: it is empty */
	uint32_t running, waiting, given_back;
	uint64_t done, late;
	bool denied;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void check(const struct engine *e, int r)
{
	if (r < 0)
		errx(1, "%s", mm_client_error(e->client));
}

static bool is_usable(struct mm_kv *kv, uint32_t chunk)
{
	uint64_t bitmap[CHUNKS_MAX / 64];

	mm_kv_usable(kv, bitmap, CHUNKS_MAX / 64);
	return bitmap[chunk / 64] >> chunk % 64 & 1;
}

static uint32_t batch_room(const struct engine *e)
{
	return e->waiting < CHUNKS_MAX - e->running ? e->waiting : CHUNKS_MAX - e->running;
}

/* [report] */
/* Before each step, and whenever requests come or end. */
static void report(struct engine *e)
{
	struct mm_load_hint hint = { .size = sizeof(hint),
				     .kv_chunks_used = e->running,
				     .running = e->running,
				     .waiting = e->waiting,
				     .kv_chunks_queued = batch_room(e),
				     .requests_done = e->done,
				     .requests_late = e->late };
	int r;

	check(e, mm_client_hint(e->client, &hint));
	/* All that runs and waits is counted: else memory comes a request at a time. */
	r = mm_kv_want(e->kv, e->running + batch_room(e), 0);
	check(e, r == -EAGAIN ? 0 : r); /* an event answers */
}
/* [end] */

static void give_back(struct engine *e, uint32_t count)
{
	for (int empty = 1; empty >= 0; empty--)
		for (uint32_t c = CHUNKS_MAX; c-- > 0 && count > 0;) {
			if (!is_usable(e->kv, c) || (empty && e->left[c]))
				continue;
			e->running -= e->left[c] != 0;
			e->waiting += e->left[c] != 0; /* it begins anew */
			e->left[c] = 0;
			check(e, mm_kv_release(e->kv, c));
			count--;
		}
}

static void handle_events(struct engine *e, int wait_ms)
{
	struct pollfd fd = { .fd = mm_client_event_fd(e->client), .events = POLLIN };
	struct mm_event event = { .size = sizeof(event) };

	poll(&fd, 1, wait_ms);
	while (mm_client_next_event(e->client, &event) == 0) {
		if (event.kind == MM_EVENT_KV_RECLAIM)
			give_back(e, event.count);
		if (event.kind == MM_EVENT_KV_DENIED || event.kind == MM_EVENT_KV_GRANTED)
			e->denied = event.kind == MM_EVENT_KV_DENIED;
		if (event.kind == MM_EVENT_DISCONNECTED)
			errx(1, "%s", mm_client_error(e->client));
	}
}

static void admit(struct engine *e)
{
	for (uint32_t c = 0; c < CHUNKS_MAX && e->waiting; c++) {
		if (e->left[c] || !is_usable(e->kv, c))
			continue;
		e->left[c] = STEPS;
		e->running++;
		e->waiting--;
	}
}

static void step(struct engine *e)
{
	int r;

	do {
		check(e, mm_step_begin(e->client));
		for (uint32_t c = 0; c < CHUNKS_MAX; c++)
			if (e->left[c])
				e->gpu->cuMemsetD8Async(
					mm_kv_range_va(e->kv, 0) + c * e->chunk_bytes,
					(unsigned char)c, e->chunk_bytes, e->stream);
		nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL); /* a forward pass */
		r = mm_step_end(e->client, e->stream, NULL);
	} while (r == -ECANCELED);
	check(e, r);
	for (uint32_t c = 0; c < CHUNKS_MAX; c++) {
		if (!e->left[c])
			continue;
		if (--e->left[c])
			continue;
		e->running--;
		e->done++;
		e->late += now_ns() - e->began_ns > GOAL_NS;
	}
}

/* [turn] */
static void serve(struct engine *e)
{
	while (e->running || e->waiting) {
		handle_events(e, 0);
		admit(e);
		report(e);
		if (mm_turn_want(e->client, 0) == -EAGAIN) {
			handle_events(e, 1000); /* the turn, or a request to give memory back */
			e->denied = false;      /* what is denied off turn, the turn may bring */
		} else if (e->running) {
			step(e); /* with what there is, also when more was denied */
		} else if (e->denied) {
			/* It can run nothing in this turn: others may, and set memory free. */
			check(e, mm_turn_yield(e->client));
			e->given_back++;
			e->denied = false;
			handle_events(e, RETRY_MS);
		} else {
			handle_events(e, 1000); /* an answer comes: chunks, or a denial */
		}
	}
	report(e); /* no work: the turn goes back, and what it holds may be reclaimed */
}
/* [end] */

int main(int argc, char **argv)
{
	struct mm_client_opts opts = { .size = sizeof(opts),
				       .name = "turns",
				       .flags = MM_CLIENT_NO_REMAP };
	struct mm_turn_opts turn_opts = { .size = sizeof(turn_opts), .mode = MM_TURN_QUANTUM };
	struct mm_kv_opts kv_opts = { .size = sizeof(kv_opts),
				      .ranges = 1,
				      .chunks_max = CHUNKS_MAX };
	struct mm_client_info info = { .size = sizeof(info) };
	struct engine e = { 0 };
	CUcontext context;
	char why[256];

	if (argc != 2)
		errx(2, "usage: turns REQUESTS");
	e.waiting = (uint32_t)strtoul(argv[1], NULL, 10);
	if (mm_client_open(&opts, &e.client, why, sizeof(why)) < 0)
		errx(3, "%s", why);
	check(&e, mm_client_info(e.client, &info));
	kv_opts.chunk_bytes = e.chunk_bytes = info.page_bytes;
	check(&e, mm_kv_open(e.client, &kv_opts, &e.kv));
	check(&e, mm_turn_join(e.client, &turn_opts));
	e.gpu = mm_client_gpu(e.client);
	if (e.gpu->cuDevicePrimaryCtxRetain(&context, 0) || e.gpu->cuCtxSetCurrent(context) ||
	    e.gpu->cuStreamCreate(&e.stream, CU_STREAM_NON_BLOCKING))
		errx(1, "no stream");
	e.began_ns = now_ns();
	serve(&e);
	printf("%llu served, %llu late, %u turns given back\n", (unsigned long long)e.done,
	       (unsigned long long)e.late, e.given_back);
	e.gpu->cuStreamDestroy(e.stream);
	e.client = mm_client_close(e.client);
	return 0;
}
