/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant - the smallest engine that runs a model on memory that mmd lends
 *
 * tenant MODEL_DIR STEPS: each step reads one tensor of each layer of a Llama model and compares it
 * with the host's copy. Every layer has its own bytes when it is read, whatever mmd did with the
 * pages before.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mm/client.h>
#include <mm/gpu.h>

static struct mm_client *client;

static void check(int r)
{
	if (r < 0)
		errx(1, "%s", mm_client_error(client));
}

static const char *tensor_name(uint32_t layer)
{
	static char name[MM_TENSOR_NAME_BYTES];

	snprintf(name, sizeof(name), "model.layers.%u.mlp.down_proj.weight", layer);
	return name;
}

/* [step] */
static int step(struct mm_model *model, uint32_t n_layers, CUstream stream, char *out)
{
	struct mm_tensor t = { .size = sizeof(t) };

	check(mm_step_begin(client)); /* until its end no mapping that a layer needs changes */
	for (uint32_t layer = 0; layer < n_layers; layer++) {
		check(mm_model_tensor(model, tensor_name(layer), &t));
		check(mm_layer_begin(model, layer, stream)); /* the stream waits for its bytes */
		mm_client_gpu(client)->cuMemcpyDtoHAsync(out + layer * t.bytes, t.va, t.bytes,
							 stream);
		check(mm_layer_end(model, layer, stream)); /* from now on mmd may overwrite them */
	}
	return mm_step_end(client, stream, NULL); /* -ECANCELED: results are void, repeat it */
}
/* [end] */

static int wrong_layers(struct mm_model *model, uint32_t n_layers, const char *out)
{
	uint64_t bytes;
	int wrong = 0;

	for (uint32_t layer = 0; layer < n_layers; layer++) {
		const void *host = mm_model_store(model, tensor_name(layer), &bytes);

		if (!host)
			errx(1,
			     "mmd keeps the weights on a disk: there is nothing to compare with");
		wrong += memcmp(out + layer * bytes, host, bytes) != 0;
	}
	return wrong;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: tenant MODEL_DIR STEPS");
	/* [open] */
	struct mm_client_opts opts = { .size = sizeof(opts), .name = "tenant" };
	struct mm_model_info info = { .size = sizeof(info) };
	struct mm_model *model;
	char why[256];

	if (mm_client_open(&opts, &client, why, sizeof(why)) < 0)
		errx(3, "%s", why);
	check(mm_model_load(client, argv[1], NULL,
			    &model)); /* returns when every byte is in place */
	check(mm_model_info(model, &info));
	/* [stream] */
	const struct mm_gpu_api *gpu = mm_client_gpu(client);
	CUcontext context;
	CUstream stream;

	if (gpu->cuDevicePrimaryCtxRetain(&context, 0) || gpu->cuCtxSetCurrent(context) ||
	    gpu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		errx(1, "the driver gives no stream");
	/* [loop] */
	char *out = malloc(info.n_layers * info.layer_bytes);
	int wrong = 0, steps = out ? atoi(argv[2]) : 0;

	for (int r; steps > 0; steps -= r == 0) {
		check((r = step(model, info.n_layers, stream, out)) == -ECANCELED ? 0 : r);
		if (r == 0) /* the results of the step are valid now */
			wrong += wrong_layers(model, info.n_layers, out);
	}
	/* [close] */
	gpu->cuStreamDestroy(stream);
	mm_client_close(client); /* unmaps and gives everything back */
	/* [end] */
	free(out);
	printf("%d layers were wrong\n", wrong);
	return wrong > 0;
}
