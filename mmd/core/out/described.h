/* SPDX-License-Identifier: Apache-2.0 */
/*
 * described - the structs of this room, field by field, for images of a core
 *
 * Concept:    Each room describes its own structs, and image.h puts them together. What is not
 *             saved is saved elsewhere, rebuilt, or scratch space that no event finds in use.
 * Ownership:  constant data.
 * Threading:  any.
 */
#pragma once

#include "mmd/fields/fields.h"

extern const struct mm_fields mm_msg_fields;
extern const struct mm_fields mm_job_fields;
extern const struct mm_fields mm_jobs_fields;
extern const struct mm_fields mm_queue_fields;
