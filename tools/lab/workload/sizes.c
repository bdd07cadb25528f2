/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/sizes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/workload/case.h"

#define GIB 0x1p30

/* Size of a CUDA context, with its loaded kernels and the allocator's slack. */
#define CONTEXT_BYTES (UINT64_C(512) << 20)

/* Size of captured graphs per layer: nodes and parameters. Intermediates count as activations. */
#define GRAPH_LAYER_BYTES (UINT64_C(4) << 20)

/*
 * Returns the most activations that are alive at once in a step of all batched tokens, in fp16: the
 * residual stream and its norm; and either q, k, v and attention's output, or the feed-forward
 * network's intermediates (gate and up if it is gated). Once per step, logits of one token per
 * sequence are added, in fp16 and as the sampler's fp32.
 */
static uint64_t activation_bytes(const struct mm_arch *a, uint32_t tokens, uint32_t seqs)
{
	const uint64_t heads = (uint64_t)(2 * a->heads + 2 * a->kv_heads) * a->head_dim;
	const uint64_t ffn = (uint64_t)a->ffn * (a->family == MM_FAMILY_OPT ? 1 : 2);
	const uint64_t layer = tokens * (UINT64_C(2) * a->hidden + MM_MAX(heads, ffn)) * 2;
	const uint64_t logits = (uint64_t)seqs * a->vocab * (2 + 4);

	return layer + logits;
}

static uint64_t page_up(uint64_t bytes, uint64_t page_bytes)
{
	return mm_div_up(bytes, page_bytes) * page_bytes;
}

static void model_weigh(const struct mm_wl_opts *opts, const struct mm_wl_tenant *tenant,
			struct mm_wl_tenant_sizes *s)
{
	const struct mm_arch *a = &tenant->shape->arch;

	s->context_bytes = CONTEXT_BYTES;
	s->activation_bytes = activation_bytes(a, opts->batched_tokens, opts->max_seqs);
	s->graph_bytes = a->layers * GRAPH_LAYER_BYTES;
	s->overhead_bytes = s->context_bytes + s->activation_bytes + s->graph_bytes;
	s->layer_bytes = mm_arch_layer_bytes(a, MM_WL_ELEMENT_BYTES);
	s->resident_bytes = mm_arch_resident_bytes(a, MM_WL_ELEMENT_BYTES);
	s->weight_bytes = mm_arch_weight_bytes(a, MM_WL_ELEMENT_BYTES);
	s->weight_pages = (mm_div_up(s->layer_bytes, opts->page_bytes) * a->layers +
			   mm_div_up(s->resident_bytes, opts->page_bytes));
	s->kv_token_bytes = mm_arch_kv_token_bytes(a, MM_WL_ELEMENT_BYTES);
}

/* Returns the bytes of a request's KV blocks. */
static uint64_t request_bytes(const struct mm_wl_opts *opts, const struct mm_wl_tenant_sizes *s,
			      uint64_t tokens)
{
	return mm_div_up(tokens, opts->block_tokens) * opts->block_tokens * s->kv_token_bytes;
}

static int pool_divide(const struct mm_wl_opts *opts, uint32_t index, struct mm_wl_tenant_sizes *s,
		       char *err, size_t err_bytes)
{
	const struct mm_wl_tenant *tenant = &opts->tenant[index];
	const uint64_t need = s->overhead_bytes + s->weight_pages * opts->page_bytes +
			      page_up(request_bytes(opts, s, tenant->tokens_max), opts->page_bytes);

	if (s->share_bytes < need) {
		snprintf(err, err_bytes,
			 "tenant %u, %s: %.1f %% of the memory are %.2f GiB; its weights (%.2f), "
			 "context, activations and graphs (%.2f) and one request of %u tokens "
			 "(%.2f) need %.2f GiB: give it a larger share, or a smaller --max-len",
			 index, tenant->shape->name, tenant->share_permille / 10.0,
			 (double)s->share_bytes / GIB,
			 (double)(s->weight_pages * opts->page_bytes) / GIB,
			 (double)s->overhead_bytes / GIB, tenant->tokens_max,
			 (double)request_bytes(opts, s, tenant->tokens_max) / GIB,
			 (double)need / GIB);
		return -ENOSPC;
	}
	s->kv_share_bytes =
		(s->share_bytes - s->overhead_bytes) / opts->page_bytes * opts->page_bytes -
		s->weight_pages * opts->page_bytes;
	return 0;
}

int mm_wl_sizes(const struct mm_wl_opts *opts, uint64_t device_bytes, struct mm_wl_sizes *ret_sizes,
		char *err, size_t err_bytes)
{
	struct mm_wl_sizes sizes = { .device_bytes =
					     opts->pool_bytes ? opts->pool_bytes : device_bytes,
				     .page_bytes = opts->page_bytes,
				     .tenants = opts->tenants };
	uint32_t permille = 0;

	for (uint32_t t = 0; t < opts->tenants; t++)
		permille += opts->tenant[t].share_permille;
	for (uint32_t t = 0; t < opts->tenants; t++) {
		struct mm_wl_tenant_sizes *s = &sizes.tenant[t];
		int e;

		model_weigh(opts, &opts->tenant[t], s);
		s->share_bytes = sizes.device_bytes / 1000 * opts->tenant[t].share_permille;
		s->fraction = opts->sharing == MM_WL_MIG
				      ? (double)opts->tenant[t].share_permille / permille
				      : 1;
		e = pool_divide(opts, t, s, err, err_bytes);
		if (e)
			return e;
		sizes.pool_bytes += s->weight_pages * opts->page_bytes + s->kv_share_bytes;
	}
	*ret_sizes = sizes;
	return 0;
}

/* Returns the KV of the largest requests, as many as may run at once. */
static uint64_t most_bytes(const struct mm_wl_opts *opts, const struct mm_wl_tenant_sizes *s,
			   const struct mm_wl_stream *stream)
{
	mm_cleanup(mm_free_ptr) uint64_t *bytes = calloc(stream->n + 1u, sizeof(*bytes));
	uint64_t sum = 0;

	if (!bytes) /* then count each request as the longest */
		return opts->max_seqs * request_bytes(opts, s, UINT32_MAX >> 8);
	for (uint32_t i = 0; i < stream->n; i++)
		bytes[i] = request_bytes(opts, s,
					 stream->request[i].prompt_tokens +
						 stream->request[i].output_tokens);
	qsort(bytes, stream->n, sizeof(*bytes), mm_u64_compare);
	for (uint32_t i = 0; i < MM_MIN(stream->n, opts->max_seqs); i++)
		sum += bytes[stream->n - 1 - i];
	return sum;
}

void mm_wl_sizes_unlimited(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			   const struct mm_wl_case *c, struct mm_wl_sizes *ret)
{
	struct mm_wl_sizes out = *sizes;

	out.pool_bytes = 0;
	for (uint32_t t = 0; t < sizes->tenants; t++) {
		struct mm_wl_tenant_sizes *s = &out.tenant[t];
		const uint64_t most = most_bytes(opts, s, &c->stream[t]);
		/* Up to 1/16 of a chunk is lost at its end, and a chunk may be half empty. */
		const uint64_t room =
			page_up(most + most / 8, opts->page_bytes) + 4 * opts->page_bytes;

		s->kv_share_bytes = MM_MAX(s->kv_share_bytes, room);
		out.pool_bytes += s->weight_pages * opts->page_bytes + s->kv_share_bytes;
	}
	*ret = out;
}

/* Returns the least memory that a model keeps on the device, in whole pages. */
static uint64_t kept_bytes(const struct mm_wl_tenant_sizes *s, uint64_t page_bytes)
{
	return page_up(s->resident_bytes, page_bytes) + page_up(s->layer_bytes, page_bytes);
}

void mm_wl_sizes_ideal(const struct mm_wl_sizes *sizes, struct mm_wl_sizes *ret)
{
	const uint64_t page = sizes->page_bytes;
	struct mm_wl_sizes out = *sizes;
	uint64_t kept = 0;

	for (uint32_t t = 0; t < sizes->tenants; t++)
		kept += kept_bytes(&sizes->tenant[t], page);
	out.pool_bytes = 0;
	for (uint32_t t = 0; t < sizes->tenants; t++) {
		struct mm_wl_tenant_sizes *s = &out.tenant[t];
		const uint64_t others = kept - kept_bytes(&sizes->tenant[t], page);
		const uint64_t weights = s->weight_pages * page;

		s->kv_share_bytes = sizes->pool_bytes - weights - others;
		out.pool_bytes += weights + s->kv_share_bytes;
	}
	*ret = out;
}
