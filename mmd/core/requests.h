/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests - requests in tenants' rings
 *
 * Concept:    A table by opcode has the handler of each request and the fields that it may use.
 * Trust:      messages are hostile; handlers get only well-formed ones of live tenants.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Returns whether the opcode is known and fields that it does not use are 0. */
bool mm_c_request_is_well_formed(const struct mm_msg *msg);
/* Handles a well-formed request of a live tenant. Return: 0; MM_E_PROTOCOL. */
int mm_c_request_handle(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
