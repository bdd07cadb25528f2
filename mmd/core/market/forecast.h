/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forecast - how many pages will be demanded soon
 *
 * Concept:   Engines demand KV for requests that run and for those in their queues. The steepest
 *            recent slope of the sum of all demands, times the knob ahead-ms, is how
 *            many pages are taken ahead of need, up to a part of the pool: when a burst begins,
 *            there are pages already while the plan changes that it requires are under way.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

struct mm_c_forecast {
	uint64_t at_ns; /* of the last sample */
	uint64_t pages; /* demanded then */
	uint64_t slope; /* pages per second; it fades from sample to sample */
};

/* Returns how many pages to take ahead of need; 0 while the knob is off. */
uint64_t mm_c_forecast_pages(struct mm_core *c);
