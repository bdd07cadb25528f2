/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_bundles - a packing list applied to the tensors of a model
 *
 * Concept:   Each rule becomes a bundle per layer (or one, without a wildcard): its tensors, found
 *            and compared. The list comes from the tenant and the tensors from files, so everything
 *            about them is checked.
 * Ownership: struct mm_bundles owns its array; mm_bundles_done() accepts a zeroed one. Rules and
 *            tensors are borrowed.
 * Threading: none shared.
 * Invariants: a source is in at most one bundle; the members of a bundle are not empty and agree in
 *            group, dtype, rank and all dimensions but the first.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/model/pack.h"
#include "libclient/model/safetensors.h"
#include "libclient/model/why.h"

#define MM_NO_BUNDLE UINT32_MAX

/* A tensor, and the file that it is in. */
struct mm_bundle_source {
	const struct mm_st_tensor *tensor;
	uint32_t file;
	uint32_t bundle; /* index of its bundle, or MM_NO_BUNDLE */
};

struct mm_bundle {
	const struct mm_load_pack *rule;
	char name[MM_TENSOR_NAME_BYTES];      /* "": none */
	uint32_t member[MM_PACK_MEMBERS_MAX]; /* indexes of sources, in order */
	uint64_t rows;                        /* first dimension of the whole, as it is in memory */
	uint64_t bytes;
	uint64_t offset; /* within the group, once it is placed */
	bool placed;
};

struct mm_bundles {
	struct mm_bundle *bundle;
	uint32_t count, named;
};

/**
 * mm_bundles_make() - find the tensors of each rule
 * @packs:       checked and sorted
 * @layers:      number of layers of the model
 * @sources:     sorted by name, all without a bundle; members get the index of their bundle
 * @ret_bundles: written only on success
 *
 * Return: 0; -EINVAL a refusal that names rule, tensor and reason; -ENOMEM.
 */
int mm_bundles_make(const struct mm_packs *packs, uint32_t layers, struct mm_bundle_source *sources,
		    size_t n_sources, struct mm_bundles *ret_bundles, struct mm_why *why);
void mm_bundles_done(struct mm_bundles *bundles);

/* The shape of a member as it is in memory. */
void mm_bundle_shape(const struct mm_load_pack *rule, const struct mm_st_tensor *tensor,
		     uint64_t ret_shape[4]);
