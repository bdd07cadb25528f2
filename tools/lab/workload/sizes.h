/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizes - how the device's memory is divided among tenants
 *
 * Concept:    A tenant's share of the device holds its context, activations and graphs (the
 *             overhead, a formula in sizes.c and mmbench.md), its weights in whole pages, and
 *             KV in the rest, in whole pages. mmd manages weights and KV of all tenants as one
 *             pool; under MIG each tenant has a pool of its own. Memory of the device outside the
 *             shares is not used.
 * Ownership:  plain values.
 * Threading:  any; there is no shared state.
 * Invariants: kv_share_bytes and weight_pages are in whole pages; pool_bytes is their sum.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tools/lab/workload/options.h"

#define MM_WL_ELEMENT_BYTES 2 /* weights and KV are fp16 */

struct mm_wl_tenant_sizes {
	uint64_t share_bytes; /* the whole share */
	uint64_t context_bytes, activation_bytes, graph_bytes;
	uint64_t overhead_bytes; /* their sum */
	uint64_t layer_bytes;    /* matrices of one layer */
	uint64_t resident_bytes; /* weights that never cycle */
	uint64_t weight_bytes;   /* all weights */
	uint64_t weight_pages; /* of the layout: each layer and the resident group in whole pages */
	uint64_t kv_token_bytes;
	uint64_t kv_share_bytes;
	double fraction; /* part of compute, HBM and link that it has under MIG; else 1 */
};

struct mm_wl_sizes {
	uint64_t device_bytes; /* memory that is divided into shares */
	uint64_t page_bytes;
	uint64_t pool_bytes; /* all tenants together */
	struct mm_wl_tenant_sizes tenant[MM_WL_TENANTS_MAX];
	uint32_t tenants;
};

/**
 * mm_wl_sizes() - divide a device
 * @opts:         checked
 * @device_bytes: of the profile; --pool replaces it
 * @ret_sizes:    written only on success
 * @err:          gets one sentence
 *
 * Return: 0; -ENOSPC a tenant's share does not hold its weights and one request of tokens_max.
 */
int mm_wl_sizes(const struct mm_wl_opts *opts, uint64_t device_bytes, struct mm_wl_sizes *ret_sizes,
		char *err, size_t err_bytes);

struct mm_wl_case;

/**
 * mm_wl_sizes_unlimited() - enlarge KV shares so far that the case can never fill them
 * @opts:  of the case
 * @sizes: from mm_wl_sizes()
 * @c:     any of its requests that may run at the same time will fit
 * @ret:   may be @sizes
 */
void mm_wl_sizes_unlimited(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			   const struct mm_wl_case *c, struct mm_wl_sizes *ret);

/**
 * mm_wl_sizes_ideal() - give each tenant the KV memory that the device has while it has its turn
 * @sizes: from mm_wl_sizes()
 * @ret:   may be @sizes; the sum of the shares is more than the device has
 *
 * The whole pool but its own weights and, of each other model, what never leaves the device: the
 * resident group and one layer, which is the least that a plan keeps.
 */
void mm_wl_sizes_ideal(const struct mm_wl_sizes *sizes, struct mm_wl_sizes *ret);
