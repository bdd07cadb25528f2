/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_devices - one process on two devices: two clients, that is two tenants of one account
 *
 * two_devices MODEL_DIR: loads the model and opens a KV arena on device 0 and on device 1, and runs
 * steps on both until its input ends. It then prints for each device how many steps there were, in
 * how many of them layers cycled, and how many layers and bytes were wrong.
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mm/client.h>
#include <mm/gpu.h>

#define DEVICES 2
#define CHUNKS  4

struct engine {
	struct mm_client *client;
	const struct mm_gpu_api *gpu;
	struct mm_model *model;
	struct mm_model_info info;
	struct mm_kv *kv;
	uint64_t chunk_bytes;
	CUcontext context;
	CUstream stream;
	char *out;
	unsigned int steps, gated, wrong;
};

static void check(const struct engine *e, int r)
{
	if (r < 0)
		errx(1, "%s", mm_client_error(e->client));
}

static const char *tensor_name(uint32_t layer)
{
	static char name[MM_TENSOR_NAME_BYTES];

	snprintf(name, sizeof(name), "model.layers.%u.mlp.down_proj.weight", layer);
	return name;
}

/* [open] */
/* The ordinal is that of this process: mmd receives the device's UUID. */
static void open_on(struct engine *e, int device, const char *model)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .name = "two", .device = device };
	struct mm_kv_opts kv = { .size = sizeof(kv), .ranges = 1, .chunks_max = CHUNKS };
	struct mm_client_info info = { .size = sizeof(info) };
	char why[256];

	if (mm_client_open(&opts, &e->client, why, sizeof(why)) < 0)
		errx(3, "device %d: %s", device, why);
	check(e, mm_model_load(e->client, model, NULL, &e->model)); /* one host copy for both */
	e->info.size = sizeof(e->info);
	check(e, mm_model_info(e->model, &e->info));
	check(e, mm_client_info(e->client, &info));
	kv.chunk_bytes = e->chunk_bytes = info.page_bytes;
	check(e, mm_kv_open(e->client, &kv, &e->kv));
	check(e, mm_kv_want(e->kv, CHUNKS, 60 * UINT64_C(1000000000)));
}
/* [end] */

static void prepare(struct engine *e, int device)
{
	e->gpu = mm_client_gpu(e->client);
	if (e->gpu->cuDevicePrimaryCtxRetain(&e->context, device) ||
	    e->gpu->cuCtxSetCurrent(e->context) ||
	    e->gpu->cuStreamCreate(&e->stream, CU_STREAM_NON_BLOCKING) ||
	    e->gpu->cuMemsetD8Async(mm_kv_range_va(e->kv, 0), (unsigned char)(device + 1),
				    CHUNKS * e->chunk_bytes, e->stream))
		errx(1, "device %d: the driver gives no stream", device);
	e->out = malloc(e->info.n_layers * e->info.layer_bytes);
	if (!e->out)
		err(1, "memory for a step");
}

/* Reads a tensor of each layer. */
static void enqueue(struct engine *e)
{
	struct mm_tensor t = { .size = sizeof(t) };

	e->gpu->cuCtxSetCurrent(e->context);
	check(e, mm_step_begin(e->client));
	for (uint32_t layer = 0; layer < e->info.n_layers; layer++) {
		check(e, mm_model_tensor(e->model, tensor_name(layer), &t));
		check(e, mm_layer_begin(e->model, layer, e->stream));
		e->gpu->cuMemcpyDtoHAsync(e->out + layer * t.bytes, t.va, t.bytes, e->stream);
		check(e, mm_layer_end(e->model, layer, e->stream));
	}
}

static void finish(struct engine *e)
{
	struct mm_step_info info = { .size = sizeof(info) };
	uint64_t bytes;
	int r = mm_step_end(e->client, e->stream, &info);

	if (r == -ECANCELED)
		return; /* the results are void; the next step repeats them */
	check(e, r);
	e->steps++;
	e->gated += info.gated > 0;
	for (uint32_t layer = 0; layer < e->info.n_layers; layer++) {
		const void *host = mm_model_store(e->model, tensor_name(layer), &bytes);

		if (!host)
			errx(1,
			     "mmd keeps the weights on a disk: there is nothing to compare with");
		e->wrong += memcmp(e->out + layer * bytes, host, bytes) != 0;
	}
}

/* Checks that the arena still holds what was written at the start. */
static void check_arena(struct engine *e, int device)
{
	unsigned char *bytes = malloc(e->chunk_bytes);

	e->gpu->cuCtxSetCurrent(e->context);
	for (uint64_t c = 0; bytes && c < CHUNKS; c++) {
		e->gpu->cuMemcpyDtoHAsync(bytes, mm_kv_range_va(e->kv, 0) + c * e->chunk_bytes,
					  e->chunk_bytes, e->stream);
		e->gpu->cuStreamSynchronize(e->stream);
		for (uint64_t i = 0; i < e->chunk_bytes; i++)
			e->wrong += bytes[i] != device + 1;
	}
	free(bytes);
}

static bool input_ended(void)
{
	struct pollfd fd = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

int main(int argc, char **argv)
{
	struct engine engines[DEVICES] = { 0 };
	unsigned int wrong = 0;

	if (argc != 2)
		errx(2, "usage: two_devices MODEL_DIR");
	for (int i = 0; i < DEVICES; i++) {
		open_on(&engines[i], i, argv[1]);
		prepare(&engines[i], i);
	}
	puts("ready");
	fflush(stdout);
	/* [loop] */
	while (!input_ended()) {
		for (int i = 0; i < DEVICES; i++)
			enqueue(&engines[i]); /* both devices compute at once */
		for (int i = 0; i < DEVICES; i++)
			finish(&engines[i]);
	}
	/* [end] */
	for (int i = 0; i < DEVICES; i++) {
		struct engine *e = &engines[i];

		check_arena(e, i);
		printf("device %d: %u steps, %u with layers cycling, %u wrong\n", i, e->steps,
		       e->gated, e->wrong);
		wrong += e->wrong;
		e->gpu->cuStreamDestroy(e->stream);
		mm_client_close(e->client);
		free(e->out);
	}
	return wrong > 0;
}
