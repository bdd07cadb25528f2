/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_object - the object behind a driver handle: context, stream, event, module, function and more
 *
 * Concept:   a handle is the object's address. Callers may pass stale or foreign ones, so a handle
 *            is looked up before it is followed.
 * Ownership: counted. sg_object_publish() hands the caller's reference to the registry;
 *            sg_object_get() returns a new one; sg_object_retract() takes the registry's back. The
 *            last sg_object_put() destroys.
 * Threading: everything is safe from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum sg_kind {
	SG_CONTEXT = 1,
	SG_STREAM,
	SG_EVENT,
	SG_MODULE,
	SG_FUNCTION,
	SG_GRAPH,
	SG_NODE,
	SG_EXEC,
	SG_USER,
	SG_LIBRARY,
};

struct sg_object {
	enum sg_kind kind;
	uint32_t refs; /* atomic */
	void (*destroy)(struct sg_object *object);
	const void *owner; /* context with which the object ends, or NULL; set before publish() */
	struct sg_object *next; /* next in the registry's bucket; guarded by the registry's lock */
};

/* The object has one reference, the caller's. */
void sg_object_init(struct sg_object *object, enum sg_kind kind,
		    void (*destroy)(struct sg_object *object));
void sg_object_ref(struct sg_object *object);
void sg_object_put(struct sg_object *object);

void sg_object_publish(struct sg_object *object);

/* NULL if @handle is not a published object of @kind. */
void *sg_object_get(const void *handle, enum sg_kind kind);
void *sg_object_retract(const void *handle, enum sg_kind kind);

/*
 * Retracts all objects of a kind that end with @owner. Return: their list, linked by next; NULL if
 * there are none.
 */
struct sg_object *sg_object_retract_owned(const void *owner, enum sg_kind kind);
