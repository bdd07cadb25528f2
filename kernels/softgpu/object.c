/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "kernels/softgpu/object.h"
#include "libclient/base/base.h"
#include "libclient/support/lock.h"

#define BUCKETS 1024

static struct mm_lock registry_lock = MM_LOCK_INIT;
static struct sg_object *registry[BUCKETS] MM_GUARDED_BY(registry_lock);

void sg_object_init(struct sg_object *object, enum sg_kind kind,
		    void (*destroy)(struct sg_object *object))
{
	*object = (struct sg_object){ .kind = kind, .refs = 1, .destroy = destroy };
}

void sg_object_ref(struct sg_object *object)
{
	__atomic_fetch_add(&object->refs, 1, __ATOMIC_RELAXED);
}

void sg_object_put(struct sg_object *object)
{
	if (__atomic_sub_fetch(&object->refs, 1, __ATOMIC_ACQ_REL) == 0)
		object->destroy(object);
}

static struct sg_object **registry_bucket_of(const void *handle)
{
	/* Fibonacci hashing: addresses differ in their middle bits only. */
	uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);

	return &registry[hash >> 54];
}

void sg_object_publish(struct sg_object *object)
{
	struct sg_object **head = registry_bucket_of(object);

	mm_lock_take(&registry_lock);
	object->next = *head;
	*head = object;
	mm_lock_give(&registry_lock);
}

static struct sg_object **registry_find(const void *handle, enum sg_kind kind)
	MM_REQUIRES(registry_lock)
{
	for (struct sg_object **p = registry_bucket_of(handle); *p; p = &(*p)->next)
		if (*p == handle)
			return (*p)->kind == kind ? p : NULL;
	return NULL;
}

void *sg_object_get(const void *handle, enum sg_kind kind)
{
	struct sg_object *object = NULL, **p;

	mm_lock_take(&registry_lock);
	p = registry_find(handle, kind);
	if (p) {
		object = *p;
		sg_object_ref(object);
	}
	mm_lock_give(&registry_lock);
	return object;
}

void *sg_object_retract(const void *handle, enum sg_kind kind)
{
	struct sg_object *object = NULL, **p;

	mm_lock_take(&registry_lock);
	p = registry_find(handle, kind);
	if (p) {
		object = *p;
		*p = object->next;
	}
	mm_lock_give(&registry_lock);
	return object;
}

struct sg_object *sg_object_retract_owned(const void *owner, enum sg_kind kind)
{
	struct sg_object *list = NULL, *object, **p;

	mm_lock_take(&registry_lock);
	for (size_t i = 0; i < BUCKETS; i++) {
		for (p = &registry[i]; (object = *p);) {
			if (object->kind != kind || object->owner != owner) {
				p = &object->next;
				continue;
			}
			*p = object->next;
			object->next = list;
			list = object;
		}
	}
	mm_lock_give(&registry_lock);
	return list;
}
