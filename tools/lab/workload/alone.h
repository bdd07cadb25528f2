/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alone - what a request takes when it is the only one, by arithmetic
 *
 * Concept:    the device time of its steps (tools/lab/stepcost/stepcost.h): chunks of its prompt,
 *             then one token at a time. Nothing of the host is in it. For runs in which serving
 *             requests one by one would take longer than the case itself.
 */
#pragma once

#include "kernels/timing/profile.h"
#include "tools/lab/workload/record.h"
#include "tools/lab/workload/sizes.h"

/**
 * mm_wl_slo_alone() - limits as mm_wl_slo_of() has them, of requests of a case
 * @opts, @sizes: of the case
 * @profile:      of the whole device
 * @c:            at most @each requests of each tenant, spread over the window
 * @ret_slo:      written only on success
 *
 * Return: 0; -ENOMEM.
 */
int mm_wl_slo_alone(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		    const struct mm_profile *profile, const struct mm_wl_case *c, uint32_t each,
		    struct mm_wl_slo *ret_slo);
