/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrivals - when requests arrive, made from a seed
 *
 * Concept:    A tenant's window is cut into stretches of equal intensity, and the requests, whose
 *             number is given, fall into them as often as each is intense, and anywhere in it with
 *             equal chance. Tenants have stretches of their own.
 *
 *             steady  one stretch: gaps as of a Poisson process
 *             bursts  on for 4 s and off for 16 s in the mean, exponentially; off is 1/20 of on
 *             day     the window is a day, however long it is: a tenant has its own noon, where its
 *                     requests are 12 times as frequent as at its midnight; and within the day it
 *                     is on for 3 minutes and off for 15, as above
 * Ownership:  the caller's.
 * Threading:  any; there is no shared state.
 */
#pragma once

#include <stdint.h>

#include "tools/lab/workload/options.h"

/**
 * mm_wl_arrivals_make() - make the arrivals of one tenant in one window
 * @kind:    not MM_WL_GAPS
 * @random:  state of the generator; the same state gives the same arrivals
 * @seconds: the window
 * @n:       requests
 * @ret_s:   @n times within the window, ascending
 */
void mm_wl_arrivals_make(enum mm_wl_arrivals kind, uint64_t random, double seconds, uint32_t n,
			 double *ret_s);
