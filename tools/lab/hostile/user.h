/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user - what a child does first that is to be another user's process
 *
 * Concept:   Only root can become others; for anybody else the child stays what it is, and tenants
 *            of the same user share an account and a domain.
 * Threading: the child's only thread.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Becomes @uid, 0: nobody else; dies with @parent from then on. Exits where that fails. */
void mm_user_become(uint32_t uid, pid_t parent);
