/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_user - objects of the program's own that graphs keep alive: CUDA's user objects
 *
 * Concept:   a count of references, which the program and graphs hold, and a function that is
 *            called when the last is gone. An exec, a program or a launch that is made from a graph
 *            holds a reference of its own to each object that the graph held then.
 * Ownership: a set belongs to a graph or a program; its references are counted here, not by
 *            sg_object.
 * Threading: references are guarded by a lock of their own, sets by their owner. The functions are
 *            called on a separate thread, so that none runs while a lock is held.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mm/gpu.h"

struct sg_user;

/* A set of references. Zeroed, it is empty. */
struct sg_users {
	struct sg_user_held {
		struct sg_user *user;
		uint64_t count; /* references that the set holds, at least one */
	} * items;
	size_t n;
};

/* Fills @ret with one reference to each object in @from. Return: 0; -ENOMEM, and @ret is empty. */
int sg_users_copy(const struct sg_users *from, struct sg_users *ret);

/* Drops all references; accepts an empty set. */
void sg_users_done(struct sg_users *users);
