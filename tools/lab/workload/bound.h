/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound - what no policy can exceed on this device with this memory
 *
 * Concept:    A lower bound of the time T in which a window's requests can be served, from what they
 *             need at least; all output tokens over it are an upper bound of throughput. It holds for
 *             every scheduler that computes by steps as mmserve does (bound.c proves it):
 *             compute  a step reads all layers of its model once, and the KV of its decoding sequences;
 *             batch    it serves at most max_seqs sequences, so outputs and prompts need so many steps;
 *             memory   the KV of the sequences that a step decodes lies on the device while it runs,
 *                      beside what of the weights cannot leave it;
 *             link     layers that are away when their model's step begins come over the link in it;
 *             time     what arrives late is not served early: all this holds for the requests from any
 *                      instant on.
 *             Memory and link together are a linear program: more steps of smaller batches cost
 *             compute, layers that make room cost link. It is solved exactly.
 * Ownership:  plain values.
 */
#pragma once

#include "kernels/timing/profile.h"
#include "tools/lab/workload/case.h"
#include "tools/lab/workload/sizes.h"

struct mm_wl_bound {
	double seconds;          /* T: no schedule ends earlier */
	double throughput_tok_s; /* all output tokens / T */
	double busy_s;           /* the same without regard to when requests arrive */
};

/**
 * mm_wl_bound() - of one window
 * @opts, @sizes: of the case; @sizes of the limited memory
 * @profile:      of the whole device
 * @c:            any
 * @limited:      false: as if memory had no end
 * @ret:          written
 *
 * Under MIG each tenant has its fraction of everything for itself: the slowest decides. */
void mm_wl_bound(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		 const struct mm_profile *profile, const struct mm_wl_case *c, bool limited,
		 struct mm_wl_bound *ret);

/**
 * mm_wl_lendable() - how much KV fits beyond the shares without a step that waits for its layers
 * @opts, @sizes, @profile: as above
 *
 * Under turns: all that idle models can give and what the active one can hide; the least over who
 * is active. Otherwise what all can hide. A layer is hidden when its transfer takes no longer than
 * the layers between (controller.md), each of which takes at least the time to read its weights.
 */
uint64_t mm_wl_lendable(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			const struct mm_profile *profile);
