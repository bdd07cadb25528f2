/* SPDX-License-Identifier: Apache-2.0 */
/*
 * details - numbers of a run that only the simulator has, as JSON
 *
 * Concept:   A report of a case has the same fields from the simulator and from a timed run;
 *            these are further members that only the simulator adds.
 * Threading: one thread.
 */
#pragma once

#include <jansson.h>

#include "tools/lab/mmsim/sim.h"

/* Makes the JSON object, whose fields are in Documentation/mmsim.md. NULL: no memory. */
json_t *ms_details(const struct ms_sim *sim);
