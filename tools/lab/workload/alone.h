/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alone - how long a request takes when it is the only one, computed
 *
 * Concept:    The device time of its steps (tools/lab/stepcost/stepcost.h): chunks of its prompt,
 *             then one token at a time; the host's time is left out. Timed runs use it, in which
 *             serving requests one by one would take longer than the case itself. Goals of single
 *             requests (record.h) follow from it, too.
 * Threading:  any; there is no shared state.
 */
#pragma once

#include "kernels/timing/profile.h"
#include "tools/lab/workload/record.h"
#include "tools/lab/workload/sizes.h"

/**
 * mm_wl_slo_alone() - compute the limits of mm_wl_slo_of() from requests of a case
 * @opts, @sizes: of the case
 * @profile:      of the whole device
 * @c:            the case; at most @each requests of each tenant are used, spread over the window
 * @ret_slo:      written only on success
 *
 * Return: 0; -ENOMEM.
 */
int mm_wl_slo_alone(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		    const struct mm_profile *profile, const struct mm_wl_case *c, uint32_t each,
		    struct mm_wl_slo *ret_slo);

/**
 * mm_wl_alone() - compute for each request of a case its times when it is alone
 * @opts:    of the case
 * @profile: of the whole device, also under MIG: a goal is the same however a device is shared
 * @c:       alone_ttft_ns and alone_tpot_ns of its requests are written
 */
void mm_wl_alone(const struct mm_wl_opts *opts, const struct mm_profile *profile,
		 struct mm_wl_case *c);
