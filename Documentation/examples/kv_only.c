/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_only - an engine that keeps its own weights and borrows KV cache only
 *
 * kv_only CHUNKS LIVE: requests so many chunks and holds them until its input ends; the lowest LIVE
 * of them are always in use. When mmd reclaims chunks, it releases the highest that are not in use,
 * and checks at the end that the content of the others is intact. It prints how many it has when it
 * is ready, whenever more were granted, and at the end.
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <mm/client.h>
#include <mm/gpu.h>

#define CHUNKS_MAX 64

struct engine {
	struct mm_client *client;
	const struct mm_gpu_api *gpu;
	struct mm_kv *kv;
	uint64_t chunk_bytes;
	CUstream stream;
	bool mine[CHUNKS_MAX]; /* chunks that hold blocks */
	uint32_t live;         /* so many of the lowest chunks are never released */
};

static bool is_usable(struct mm_kv *kv, uint32_t chunk)
{
	uint64_t bitmap[CHUNKS_MAX / 64];

	mm_kv_usable(kv, bitmap, CHUNKS_MAX / 64);
	return bitmap[chunk / 64] >> chunk % 64 & 1;
}

/* [write] */
/* Granted chunks are zeroed, at fixed addresses, and the engine's until it releases them. */
static void use_new_chunks(struct engine *e)
{
	for (uint32_t c = 0; c < CHUNKS_MAX; c++) {
		if (e->mine[c] || !is_usable(e->kv, c))
			continue;
		e->gpu->cuMemsetD8Async(mm_kv_range_va(e->kv, 0) + c * e->chunk_bytes,
					(unsigned char)(c + 1), e->chunk_bytes, e->stream);
		e->mine[c] = true;
	}
	e->gpu->cuStreamSynchronize(e->stream);
}
/* [end] */

/* [reclaim] */
static void give_back(struct engine *e, uint32_t count)
{
	for (uint32_t c = CHUNKS_MAX; c-- > e->live && count > 0;) {
		if (!e->mine[c])
			continue;
		e->mine[c] = false;                     /* no new work may use it ... */
		e->gpu->cuStreamSynchronize(e->stream); /* ... nor work that is enqueued */
		if (mm_kv_release(e->kv, c) < 0)
			errx(1, "release: %s", mm_client_error(e->client));
		count--;
	}
}

/* All events arrive through one fd; there are no callbacks. */
static bool handle_events(struct engine *e)
{
	struct pollfd fds[] = { { .fd = mm_client_event_fd(e->client), .events = POLLIN },
				{ .fd = STDIN_FILENO, .events = POLLIN } };
	struct mm_event event = { .size = sizeof(event) };

	poll(fds, 2, -1);
	while (mm_client_next_event(e->client, &event) == 0) {
		if (event.kind == MM_EVENT_KV_GRANTED) {
			use_new_chunks(e);
			printf("more: %u chunks\n", mm_kv_usable(e->kv, NULL, 0));
		}
		if (event.kind == MM_EVENT_KV_RECLAIM) /* before event.deadline_ns */
			give_back(e, event.count);
		if (event.kind == MM_EVENT_KV_DENIED)
			printf("denied for now: serve with what there is\n");
		if (event.kind == MM_EVENT_DISCONNECTED)
			errx(1, "%s", mm_client_error(e->client));
	}
	fflush(stdout);
	return !fds[1].revents;
}
/* [end] */

static uint32_t damaged(struct engine *e)
{
	unsigned char *host = malloc(e->chunk_bytes);
	uint32_t wrong = 0;

	if (!host)
		err(1, "memory for a chunk");
	for (uint32_t c = 0; c < CHUNKS_MAX; c++) {
		if (!e->mine[c])
			continue;
		e->gpu->cuMemcpyDtoHAsync(host, mm_kv_range_va(e->kv, 0) + c * e->chunk_bytes,
					  e->chunk_bytes, e->stream);
		e->gpu->cuStreamSynchronize(e->stream);
		for (uint64_t i = 0; i < e->chunk_bytes; i++)
			wrong += host[i] != (unsigned char)(c + 1);
	}
	free(host);
	return wrong;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: kv_only CHUNKS LIVE");

	/* [arena] */
	struct mm_client_opts opts = { .size = sizeof(opts),
				       .name = "kv-only",
				       .flags = MM_CLIENT_NO_REMAP };
	struct mm_kv_opts kv_opts = { .size = sizeof(kv_opts),
				      .ranges = 1,
				      .chunks_max = CHUNKS_MAX };
	struct mm_client_info info = { .size = sizeof(info) };
	struct engine e = { .live = (uint32_t)strtoul(argv[2], NULL, 10) };
	char why[256];

	if (mm_client_open(&opts, &e.client, why, sizeof(why)) < 0)
		errx(3, "%s", why);
	if (mm_client_info(e.client, &info) < 0)
		errx(1, "%s", mm_client_error(e.client));
	kv_opts.chunk_bytes = e.chunk_bytes = info.page_bytes;
	if (mm_kv_open(e.client, &kv_opts, &e.kv) < 0)
		errx(1, "%s", mm_client_error(e.client));
	/* [end] */

	CUcontext context;

	e.gpu = mm_client_gpu(e.client);
	if (e.gpu->cuDevicePrimaryCtxRetain(&context, 0) || e.gpu->cuCtxSetCurrent(context) ||
	    e.gpu->cuStreamCreate(&e.stream, CU_STREAM_NON_BLOCKING))
		errx(1, "no stream");

	/* [want] */
	uint32_t chunks = (uint32_t)strtoul(argv[1], NULL, 10);
	int r = mm_kv_want(e.kv, chunks, 60 * UINT64_C(1000000000)); /* 0: do not wait */

	if (r == -ENOSPC || r == -EDQUOT)
		printf("not all: %s\n", mm_client_error(e.client));
	else if (r < 0)
		errx(1, "%s", mm_client_error(e.client));
	use_new_chunks(&e);
	printf("ready: %u chunks\n", mm_kv_usable(e.kv, NULL, 0));
	fflush(stdout);
	/* [end] */

	/* [hint] */
	struct mm_load_hint hint = { .size = sizeof(hint), .kv_chunks_used = e.live };

	mm_client_hint(e.client, &hint); /* reports the chunks in use; once per step is fine */
	while (handle_events(&e))
		;
	/* [end] */

	uint32_t held = mm_kv_usable(e.kv, NULL, 0), wrong = damaged(&e);

	printf("%u chunks at the end, %u bytes damaged\n", held, wrong);
	e.gpu->cuStreamDestroy(e.stream);
	e.client = mm_client_close(e.client);
	return wrong ? 1 : 0;
}
