/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests - what tenants ask for by their rings: a table by opcode
 *
 * Trust:      messages are hostile; a handler gets well-formed ones of live tenants.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

bool mm_c_request_is_well_formed(const struct mm_msg *msg);
/* 0; MM_E_PROTOCOL. */
int mm_c_request_handle(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
