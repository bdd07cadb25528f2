/* SPDX-License-Identifier: Apache-2.0 */
/*
 * knobs - what a device profile answers: knobs of the controller, tokens of a step
 *
 * Concept:    What sharing a device costs is a property of the device. A daemon has it from its
 *             operator; mmsim and mmbench take it from the profile of the modelled device, unless
 *             --controller says otherwise. So is how many tokens a step should have
 *             (Documentation/baseline.md, Tokens of a step).
 * Ownership:  plain values.
 * Threading:  any; there is no shared state.
 */
#pragma once

#include <stddef.h>

#include "kernels/timing/profile.h"
#include "mmd/core/core.h"
#include "tools/lab/workload/options.h"

/* Sets those of link-slows and rho that are not set in @opts, to at least 1 permille. */
void mm_wl_knobs_set(const struct mm_profile *profile, struct mm_core_opts *opts);

/**
 * mm_wl_knobs_text() - write the same as KEY=VALUE,KEY=VALUE
 * @profile:    of the modelled device
 * @controller: the value of --controller, which was checked; NULL: there is none
 * @ret_text:   gets @controller, and what it leaves to the profile; "" is not possible
 */
void mm_wl_knobs_text(const struct mm_profile *profile, const char *controller, char *ret_text,
		      size_t bytes);

/*
 * Replaces MM_WL_TOKENS_AUTO by the least power of two, from 512 to 2048, with which a step
 * computes at least twice as long as it reads its weights, but by at least --max-seqs.
 */
void mm_wl_tokens_set(const struct mm_profile *profile, struct mm_wl_opts *opts);
