/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "tools/lab/mmsim/sim.h"

/*
 * What only the simulator knows of a run; Documentation/mmsim.md has the fields. NULL: no memory.
 */
json_t *ms_details(const struct ms_sim *sim);
