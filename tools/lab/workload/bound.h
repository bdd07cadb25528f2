/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound - the throughput that no policy can exceed on this device with this memory
 *
 * Concept:    The least that a window's requests need gives a lower bound of the time T in which
 *             they can be served; all output tokens / T are an upper bound of throughput. The bound
 *             holds for every scheduler that computes in steps as mmserve does (bound.c proves it):
 *             compute  a step reads all layers of its model once, and the KV of the sequences that
 *                      it decodes;
 *             batch    a step serves at most max_seqs sequences, which bounds the number of steps
 *                      from below;
 *             memory   the KV of the sequences that a step decodes is on the device during the
 *                      step, beside the weights that cannot leave the device;
 *             link     layers that are away when their model's step begins are copied over the link
 *                      during the step;
 *             time     no request is served before it arrives: all of this holds for the requests
 *                      that arrive after any instant.
 *             Memory and link together are a linear program: more steps of smaller batches cost
 *             compute, layers that make room cost link. It is solved exactly.
 * Ownership:  plain values.
 * Threading:  any; there is no shared state.
 */
#pragma once

#include "kernels/timing/profile.h"
#include "tools/lab/workload/case.h"
#include "tools/lab/workload/sizes.h"

struct mm_wl_bound {
	double seconds;          /* T: no schedule ends earlier */
	double throughput_tok_s; /* all output tokens / T */
	double busy_s;           /* T if all requests had arrived at the beginning */
};

/**
 * mm_wl_bound() - compute the bound of one window
 * @opts, @sizes: of the case; @sizes with limited memory
 * @profile:      of the whole device
 * @c:            the window's requests
 * @limited:      false: as if memory were unlimited
 * @ret:          written
 *
 * Under MIG each tenant has its fraction of everything for itself, and the slowest one decides.
 */
void mm_wl_bound(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		 const struct mm_profile *profile, const struct mm_wl_case *c, bool limited,
		 struct mm_wl_bound *ret);

/**
 * mm_wl_lendable() - compute how much KV fits beyond the shares if no step waits for its layers
 * @opts, @sizes, @profile: as for mm_wl_bound()
 *
 * Under turns it is all weights of the idle models that can leave the device, and the layers of the
 * active model that can be hidden; the least over the choice of the active model. Otherwise it is
 * the layers of all models that can be hidden. A layer is hidden if its transfer takes no longer
 * than the layers between (Documentation/controller.md), each of which takes at least the time to
 * read its weights.
 */
uint64_t mm_wl_lendable(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			const struct mm_profile *profile);
