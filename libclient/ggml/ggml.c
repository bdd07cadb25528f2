/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF model on mmd, from its opening to its end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/ggml/internal.h"

static int client_check(struct mm_ggml *g)
{
	struct mm_client_info info = { .size = sizeof(info) };
	int r = mm_client_info(g->client, &info);

	if (r)
		return mm_ggml_fail(g, r, "%s", mm_client_error(g->client));
	if (strcmp(info.driver, "software") != 0)
		return mm_ggml_fail(g, -ENOTSUP,
				    "the device's driver is %s: only the CPU backend of llama.cpp "
				    "can use mmd, with the software GPU",
				    info.driver);
	return 0;
}

/*
 * llama.cpp reads weights as it likes, also while their layer is away: from the host's copy, which
 * a model has that mmd does not keep on a disk.
 */
static int store_check(struct mm_ggml *g, const char *path)
{
	char name[MM_TENSOR_NAME_BYTES];
	struct mm_tensor tensor = { .size = sizeof(tensor) };
	uint64_t bytes;
	int r = mm_model_tensor_at(g->model, 0, name, sizeof(name), &tensor);

	if (r)
		return mm_ggml_fail(g, r, "%s: the model has no tensor", path);
	if (!mm_model_store(g->model, name, &bytes))
		return mm_ggml_fail(g, -ENOTSUP,
				    "%s: mmd keeps this model on a disk: host memory for it "
				    "(--host-store-max) is needed",
				    path);
	return 0;
}

int mm_ggml_open(struct mm_client *client, const char *path, struct mm_ggml **ret_ggml,
		 char *errbuf, size_t errbuf_bytes)
{
	struct mm_ggml *g = calloc(1, sizeof(*g));
	int r;

	if (!g) {
		if (errbuf && errbuf_bytes)
			snprintf(errbuf, errbuf_bytes, "%s: out of memory", path);
		return -ENOMEM;
	}
	g->client = client;
	g->gpu = mm_client_gpu(client);
	g->loading = true;
	r = client_check(g);
	if (!r)
		r = mm_ggml_weights_load(g, path);
	if (!r)
		r = store_check(g, path);
	if (r) {
		if (errbuf && errbuf_bytes)
			snprintf(errbuf, errbuf_bytes, "%s", g->error);
		mm_ggml_close(g);
		return r;
	}
	mm_ggml_type_init(g);
	*ret_ggml = g;
	return 0;
}

struct mm_ggml *mm_ggml_close(struct mm_ggml *ggml)
{
	free(ggml);
	return NULL;
}

const char *mm_ggml_error(const struct mm_ggml *ggml)
{
	return ggml->error;
}

struct mm_model *mm_ggml_model(const struct mm_ggml *ggml)
{
	return ggml->model;
}

void mm_ggml_model_params(struct mm_ggml *ggml, struct llama_model_params *params)
{
	params->tensor_buft_overrides = ggml->overrides;
	params->n_gpu_layers = 0;
}

int mm_ggml_loaded(struct mm_ggml *ggml)
{
	if (ggml->error[0])
		return -EBADMSG; /* a tensor was refused; the sentence is there */
	if (!ggml->compared)
		return mm_ggml_fail(ggml, -ENOENT, "llama.cpp has loaded no tensor of the model");
	if (ggml->differs[0])
		return mm_ggml_fail(ggml, -EBADMSG,
				    "%s: llama.cpp read other bytes than mmd was given: another "
				    "file, or a changed one",
				    ggml->differs);
	ggml->loading = false;
	return 0;
}
