/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant - an engine of a few lines, built with this libclient and with that of another version
 *
 * Concept:   usage: wire-tenant SOCKET TIMEOUT_MS CHUNK_BYTES. It opens a client, prints what the
 *            client says of mmd, gets two chunks of KV memory, writes and reads them, and gives one
 *            back. Then for each line of its input it makes a call that waits for mmd, and prints
 *            the result. At the end of its input it closes the client and prints "closed".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/client.h"
#include "mm/gpu.h"

#define CHUNKS 2

static int say_failed(const char *what, int error, const char *why)
{
	printf("failed %s %d %s\n", what, error, why);
	return 1;
}

/* Return: 0 what was written is read back. */
static int chunks_use(struct mm_client *client, const struct mm_kv *kv, size_t chunk_bytes)
{
	const struct mm_gpu_api *gpu = mm_client_gpu(client);
	size_t bytes = CHUNKS * chunk_bytes;
	unsigned char *out = malloc(bytes), *in = calloc(1, bytes);
	CUdeviceptr va = mm_kv_range_va(kv, 0);
	CUcontext context;
	int r = 1;

	if (out && in && !gpu->cuDevicePrimaryCtxRetain(&context, 0) &&
	    !gpu->cuCtxSetCurrent(context)) {
		memset(out, 0x5a, bytes);
		r = gpu->cuMemcpyHtoD(va, out, bytes) || gpu->cuMemcpyDtoH(in, va, bytes) ||
		    memcmp(in, out, bytes);
	}
	free(out);
	free(in);
	return r;
}

static int arena_use(struct mm_client *client, size_t chunk_bytes)
{
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = chunk_bytes,
				   .ranges = 1,
				   .chunks_max = 8,
				   .share_chunks = CHUNKS };
	struct mm_kv *kv;
	int r = mm_kv_open(client, &opts, &kv);

	if (!r)
		r = mm_kv_want(kv, CHUNKS, UINT64_C(60000000000));
	if (r)
		return say_failed("kv", r, mm_client_error(client));
	if (chunks_use(client, kv, chunk_bytes))
		return say_failed("memory", 0, "the bytes differ");
	r = mm_kv_release(kv, 1);
	return r ? say_failed("release", r, mm_client_error(client)) : 0;
}

static void calls_make(struct mm_client *client)
{
	struct mm_turn_opts opts = { .size = sizeof(opts), .mode = MM_TURN_NONE };

	while (getchar() != EOF) {
		int r = mm_turn_join(client, &opts);

		printf("call %d %s\n", r, r ? mm_client_error(client) : "");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .name = "tenant" };
	struct mm_client_info info = { .size = sizeof(info) };
	struct mm_client *client;
	char err[320];
	int r;

	if (argc != 4)
		return 2;
	opts.socket_path = argv[1];
	opts.timeout_ns = strtoull(argv[2], NULL, 10) * 1000000;
	r = mm_client_open(&opts, &client, err, sizeof(err));
	if (r)
		return say_failed("open", r, err);
	r = mm_client_info(client, &info);
	if (r)
		return say_failed("info", r, mm_client_error(client));
	printf("info %s %s %" PRIx64 "\n", info.policy, info.driver, info.features);
	if (arena_use(client, strtoull(argv[3], NULL, 10)))
		return 1;
	puts("ready");
	fflush(stdout);
	calls_make(client);
	mm_client_close(client);
	puts("closed");
	return 0;
}
