/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics - the admin method that answers with numbers alone
 *
 * Concept:   What a monitoring system asks for every few seconds: of mmd, of each device, account
 *            and tenant one flat object of numbers, with the names that they are known by. It costs
 *            less than status, which has the keys of all stores. Whatever only rises does so over
 *            the death of core, too, as long as mmd runs: it is of the core's image (tally.h) or of
 *            the book.
 * Threading: core's thread; it changes nothing.
 */
#pragma once

#include "mmd/shell/rpc.h"

json_t *mm_metrics_show(void *context, const json_t *params, struct mm_rpc_error *error);
