/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - the layout of a model's groups
 *
 * Concept:   Groups have the sizes that the load role gives them, without reading a file.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

/* Lays groups out as mmd's load role does. */
void ms_model_layout(struct ms_tenant *t, uint64_t page_bytes);
uint64_t ms_model_bytes(const struct ms_tenant *t);
