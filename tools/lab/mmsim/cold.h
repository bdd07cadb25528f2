/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cold - an engine's cold blocks: window, limit, copies to entries, live entries
 *
 * Concept:    As in tools/mmserve/engine: full blocks are copied to the lowest slots of the swap
 *             space while steps go on, become live, and are named by block tables once their
 *             version is acknowledged. The window is the last chunks of the arena, which are not
 *             kvman's. It is as large as the limit, replaced when that has changed, and given back
 *             by an engine that has had nothing to do for as long as it keeps empty chunks.
 * Ownership:  ms_cold_init() allocates, ms_cold_done() frees.
 * Threading:  one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

/* Returns the chunks of a window with room for @entries; 0 has none. */
uint32_t ms_cold_chunks(const struct ms_tenant *t, uint32_t entries);
/* Returns how many cold blocks are declared: --cold, or as many as the market may offer. */
uint32_t ms_cold_entries(const struct ms_tenant *t);
/* Has the engine cold blocks? It swaps, has no fixed share, and ms_cold_entries() is not 0. */
bool ms_cold_is_on(const struct ms_tenant *t);
/* @first: the chunk behind those of kvman. Return: 0; -ENOMEM. */
int ms_cold_init(struct ms_tenant *t, uint32_t first);
void ms_cold_done(struct ms_tenant *t);
/* Declares the entries; the swap space has their slots. Return: 0; -ENOMEM. */
int ms_cold_open(struct ms_tenant *t);
/* The window of all entries that may be live is in force. */
bool ms_cold_is_ready(const struct ms_tenant *t);
/* Is the window as large as the limit? */
bool ms_cold_is_in_force(const struct ms_tenant *t);
/* Between two steps: takes over what has landed and was acknowledged, replaces the window. */
void ms_cold_poll(struct ms_tenant *t);
/* Return: when ms_cold_poll() is to be called although nothing happens; UINT64_MAX: never. */
uint64_t ms_cold_next_ns(const struct ms_tenant *t);
/* Return: the first chunk of the window that is to be; 0: there is none. */
uint32_t ms_cold_first(const struct ms_tenant *t);
/* Return: chunks that are held, or to be held, for windows. */
uint32_t ms_cold_wants(const struct ms_tenant *t);
/* Return: chunks that the window lacks for so long that kvman is to give its own for it. */
uint32_t ms_cold_lacks(const struct ms_tenant *t);
/* Return: usable chunks that are not kvman's. */
uint32_t ms_cold_held(const struct ms_tenant *t);
/* Begins to copy blocks to entries. Return: 0; -EAGAIN as many lists as may be are under way. */
int ms_cold_cool(struct ms_tenant *t, const struct mm_sched_swap *swaps, uint32_t n);
/* A list is done. Return: false: it is none of this. */
bool ms_cold_landed(struct ms_tenant *t, uint32_t lot);
void ms_cold_limited(struct ms_tenant *t, const struct mm_msg *msg);
/* The declaration, or a window, is answered. */
void ms_cold_replied(struct ms_tenant *t, const struct mm_msg *msg);
/* xfer has chosen the rows of a class: of the live entries the @most lowest. */
void ms_cold_chosen(struct ms_tenant *t, uint32_t class, uint64_t most);
/* A layer of a step begins: all entries that block tables name are in the window. */
void ms_cold_check_layer(struct ms_tenant *t, uint32_t layer);
