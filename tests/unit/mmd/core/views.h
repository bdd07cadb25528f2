/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of made-up devices for tests of the market's decision, and what must be true of every
 * decision. Include cmocka.h first.
 */
#pragma once

#include "mmd/core/market/decide.h"

#define VIEWS_ACCOUNTS 8

struct views {
	struct mm_view view;
	struct mm_view_tenant tenant[MM_CORE_TENANTS_MAX];
	struct mm_view_account account[VIEWS_ACCOUNTS];
	struct mm_target target[MM_CORE_TENANTS_MAX];
	struct mm_targets targets;
	struct mm_market_memory memory;
};

/* Begins with no tenants, one account without bounds, and both modes allowed. */
void views_begin(struct views *v, uint64_t pages);
/* Adds a tenant with an even model and a chunk per page of KV; it is active and hungry. */
struct mm_view_tenant *views_add(struct views *v, uint32_t layers, uint32_t layer_pages,
				 uint64_t step_ns, uint64_t transfer_ns);
/* Sets what streaming costs @t, by its steps and transfers, at each number of layers. */
void views_cost(struct mm_view_tenant *t);
/* Makes @t one that waits at @place in line for its turn. */
void views_wait(struct mm_view_tenant *t, uint32_t place);
/* Makes @t idle: no work, no KV in use. */
void views_idle(struct mm_view_tenant *t);
/* Sets mode and since when, as if earlier decisions had. */
void views_mode(struct views *v, bool beside);
/* Decides and checks what must always be true. */
void views_decide(struct views *v);
/* Lets all that the targets say be so: layers, and KV up to what is wanted. */
void views_follow(struct views *v);
/* Fills in a view that @seed draws: any mode, sizes, claims and bounds. */
void views_draw(struct views *v, uint64_t seed);
