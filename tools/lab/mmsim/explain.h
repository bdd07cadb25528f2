/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain - what mmd's core had decided at a moment of a run, and why
 *
 * Concept:   The run goes on as if nobody had looked: nothing of it changes.
 * Ownership: JSON belongs to the caller.
 * Threading: one thread.
 */
#pragma once

#include <jansson.h>

#include "tools/lab/mmsim/sim.h"

/* Returns when the next moment that opts.explain has is reached; UINT64_MAX: none is left. */
uint64_t ms_explain_due(const struct ms_sim *sim);
/* Adds what is so at the next moment to opts.explain->list. Return: 0; -ENOMEM. */
int ms_explain_now(struct ms_sim *sim);
/* Prints a member of the list as sentences. */
void ms_explain_print(const json_t *moment);
