/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_core_image - everything that a core is, in memory that another process can read
 *
 * Concept:    A core that is loaded from the image of another one does from then on what the other
 *             one would have done: the same events at the same times produce the same actions. The
 *             image names all fields (mmd/fields/fields.h), so that a successor of the same build
 *             reads it after a crash, and one of another build after an upgrade.
 * Options:    The image has the options of its core, times scaled. A load takes them from there,
 *             except for those that this image lacks, because its build did not have them yet.
 * Ownership:  the caller owns the memory; a core that is loaded is given back by mm_core_destroy().
 * Threading:  core thread only. Saving allocates nothing.
 * Trust:      An image may be damaged. Each number is within its field, each index within its
 *             table, and no invariant that the core can check is broken; else the image is refused
 *             with a sentence.
 */
#pragma once

#include "mmd/core/core.h"
#include "mmd/fields/fields.h"

/* Returns the table of a struct whose rows an image has, by number; NULL: there are no more. */
const struct mm_fields *mm_core_image_fields(uint32_t index);

/* Returns the most bytes that an image of the core can have, at any time. */
size_t mm_core_image_room(const struct mm_core *core);

/*
 * Writes an image of the core into @room bytes at @to; all actions have been taken out. Return: 0;
 * -ENOSPC: @room is less than mm_core_image_room() and too little.
 */
int mm_core_image_save(const struct mm_core *core, void *to, size_t room, size_t *ret_bytes);

/**
 * mm_core_image_load() - a core as it was when the image was saved
 * @opts:      as for mm_core_create(); the sizes of the pool and of all tables, and the tag, must
 *             be those of the image
 * @from:      the image
 * @bytes:     of the image, exactly
 * @ret_core:  written only on success
 * @err:       written otherwise: a sentence, for the operator
 * @err_bytes: of @err
 *
 * Return: 0; -EBADMSG: damaged; -EPROTO: of a build that this one does not understand, or that
 * lacks what this one needs; -EINVAL: of a core with other sizes, or @opts are invalid; -ENOMEM.
 */
int mm_core_image_load(const struct mm_core_opts *opts, const void *from, size_t bytes,
		       struct mm_core **ret_core, char *err, size_t err_bytes);
