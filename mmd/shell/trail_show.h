/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trail_show - the records of the trail, for who asks
 *
 * Concept:   The method "events" answers with records behind a number, at most MM_TRAIL_SHOW_MAX,
 *            and says how many before them are not there any more. With "follow" whatever comes
 *            after that is sent as it comes, in JSON-RPC notifications: "event", with a record, and
 *            "missed", where the ring came round before the peer had read.
 * Threading: core's thread.
 */
#pragma once

#include <stdint.h>

#include "mmd/shell/rpc.h"

#define MM_TRAIL_SHOW_MAX 256

struct mm_trail;

/* A method (methods.h). */
json_t *mm_trail_show(void *context, const json_t *params, struct mm_rpc_error *error);

/**
 * mm_trail_lines() - make notifications for who follows
 * @trail:    any
 * @next:     number of the first record that was not sent yet; it is moved on
 * @ret_text: lines, to be freed; NULL: there is nothing new
 *
 * Return: 0; -ENOMEM.
 */
int mm_trail_lines(const struct mm_trail *trail, uint64_t *next, char **ret_text);
