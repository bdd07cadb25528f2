/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forecast - how many pages will be wished soon
 *
 * Concept:   engines ask for what waits and for what runs, so the sum of their wishes is the
 *            demand, queue and all. Its slope, the steepest of late, times the time that pages take
 *            to come is taken ahead of need: a burst then finds pages while the plan changes that
 *            it makes necessary go on.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

struct mm_c_forecast {
	uint64_t at_ns; /* of the last look */
	uint64_t pages; /* wished then */
	uint64_t slope; /* pages per second */
};

uint64_t mm_c_forecast_pages(struct mm_core *c);
