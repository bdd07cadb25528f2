/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_user - objects of the program's own that graphs keep alive: CUDA's user objects
 *
 * Concept:   a count of references, which the program and graphs hold, and a function that is
 *            called when the last is gone. Whatever is made of a graph, an exec or a launch in a
 *            stream, holds one of its own for each object that the graph held then.
 * Ownership: a set belongs to a graph or a program; its references are counted here, not by
 *            sg_object.
 * Threading: references are guarded by a lock of their own, sets by their owner. The functions are
 *            called on a thread of their own, so that none runs under anybody's lock.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mm/gpu.h"

struct sg_user;

/* Zeroed: empty. */
struct sg_users {
	struct sg_user_held {
		struct sg_user *user;
		uint64_t count; /* references that the set holds, at least one */
	} * items;
	size_t n;
};

/* @ret: one reference to each in @from. Return: 0; -ENOMEM, and @ret is empty. */
int sg_users_copy(const struct sg_users *from, struct sg_users *ret);

/* Gives all references back; accepts an empty one. */
void sg_users_done(struct sg_users *users);
