/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wish - KV chunks that a tenant wants, and those that were asked back from it
 *
 * Concept:    A tenant says how many chunks it wants in all. What it has less than that waits, in
 *             turn, until the controller grants or denies it. Chunks that are asked back are
 *             expected until a deadline, unless the tenant gave nothing of what was asked the time
 *             before.
 * Ownership:  a tenant's wish; what it holds is kv.c's.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

struct mm_wish {
	uint32_t wanted;
	uint32_t wanted_max;   /* that it may have by policy */
	uint64_t since_ns;     /* since when its wish waits, or its last chunk */
	uint64_t order;        /* the same, as an order */
	uint64_t kept_ns;      /* since when pages are kept back for it; 0: they are not */
	bool answered;         /* the present wish was answered by a denial */
	uint64_t denied_ns;    /* last denial, 0: never */
	uint32_t reclaim_left; /* chunks asked back and not yet seen */
	uint32_t reclaim_last; /* back, the last time */
	bool unresponsive;     /* it gave nothing the time before: it is not counted on */
	uint64_t reclaim_until_ns;
};

/* It has declared its KV memory. */
void mm_c_wish_declare(const struct mm_core *c, struct mm_c_tenant *t);
/* It wants @chunks in all, at most as many as it declared. */
void mm_c_wish_set(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks);
/* It gave a chunk back, and wants one less. */
void mm_c_wish_released(struct mm_c_tenant *t);
/* Chunks that it wants, may have by policy, and does not have. */
uint32_t mm_c_kv_unmet(const struct mm_c_tenant *t);
/* Puts it last in turn. */
void mm_c_kv_turn(struct mm_core *c, struct mm_c_tenant *t);
void mm_c_kv_grant(struct mm_core *c, struct mm_c_tenant *t);
void mm_c_kv_deny(struct mm_core *c, struct mm_c_tenant *t, int error);
/*
 * Asks for @chunks back until then. Who has given nothing of what was asked last is asked, and not
 * counted on.
 */
void mm_c_kv_ask(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks, uint64_t until_ns);
void mm_c_kv_reclaim(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks);
/* If it were asked now, would that be counted on? */
bool mm_c_kv_hears(const struct mm_c_tenant *t);
