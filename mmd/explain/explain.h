/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain - a decision of the core, in words that an operator understands
 *
 * Concept:   From the numbers of mmd/core/why.h to whole sentences, and to JSON with both. The
 *            daemon and the simulator say the same by it.
 * Words:     "of one model's tokens": gains and costs are sums over all models that compute, each
 *            relative to its own rate, so that 1 % may be 1 % of one or 0.5 % of each of two.
 * Ownership: JSON belongs to the caller.
 * Threading: any.
 */
#pragma once

#include <jansson.h>

#include "mmd/core/why.h"
#include "mmd/explain/sentences.h"

struct mm_explain_row {
	const char *name; /* borrowed */
	struct mm_core_why why;
};

/* A device with the tenants that it has. */
struct mm_explain {
	struct mm_core_why_device device;
	uint32_t n;
	const struct mm_explain_row *row; /* n */
};

/* Explains what the device as a whole does: mode, turns, who bids and who lends. */
void mm_explain_device(const struct mm_explain *e, struct mm_sentences *ret_text);
/* Explains what @row has, wants, offers, and why it has no more and no less. */
void mm_explain_tenant(const struct mm_explain_row *row, struct mm_sentences *ret_text);
/* Explains how many of its blocks may be cold, and why, as far as it has declared any. */
void mm_explain_cold(const struct mm_core_why_cold *cold, struct mm_sentences *text);
/* Returns the word for why so many may be; "none": it has declared none. */
const char *mm_explain_cold_reason(const struct mm_core_why_cold *cold);
/* Returns how many may be cold, and why, as JSON; null: it has declared none. NULL: no memory. */
json_t *mm_explain_cold_json(const struct mm_core_why_cold *cold);
/* Returns whether it lacks KV cache now, or lacked it most of the time of late. */
bool mm_explain_lacks(const struct mm_core_why *why);
/* Returns the word for why a tenant has as many layers as it has; "none": nothing was decided. */
const char *mm_explain_reason(const struct mm_core_why *why);
/* Returns why the device is in its mode, in one sentence. */
const char *mm_explain_mode(const struct mm_core_why_device *device, char to[MM_SENTENCE_BYTES]);

/*
 * Returns numbers and sentences of the device and of its tenants, of one only if @only is not NULL;
 * @considered: with every number of layers that was. NULL: no memory.
 */
json_t *mm_explain_json(const struct mm_explain *e, const struct mm_explain_row *only,
			bool considered);
