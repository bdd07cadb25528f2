/* SPDX-License-Identifier: Apache-2.0 */
/*
 * story - what tests that run the core through a story have in common
 *
 * Concept:   one world of tests/sim per test (w), begun by its first line, ended by
 *            story_teardown().
 * Threading: one thread.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/world.h"

extern struct world *const w;

void story_begin(enum mm_policy policy, uint32_t pages);
/* With MM_POLICY_REMAP and the knobs of --controller. */
void begin_with(const char *knobs, uint32_t pages);
int story_teardown(void **state);
struct mm_core_stats story_stats(void);
const struct mm_core_plan *story_plan(const struct w_proc *p);
/* A tenant whose model is ready. */
struct w_proc *tenant_that(uint64_t features, uint32_t account, uint32_t layers,
			   uint32_t layer_pages);
struct w_proc *tenant_with(uint32_t account, uint32_t layers, uint32_t layer_pages);
void pass_ms(uint32_t ms);
/* Runs @n steps; streaming, jobs and events follow each part of one. */
void story_steps(struct w_proc *p, uint32_t n);
/* Sets the plan as an operator does. */
void story_plan_by_hand(struct w_proc *p, int32_t alpha);

#define TEST(f) cmocka_unit_test_teardown(f, story_teardown)
