/* SPDX-License-Identifier: Apache-2.0 */
/*
 * described - the structs of the book, field by field, for a core of another build
 *
 * Concept:    struct mm_kept_front and struct mm_outbox_kept, and all structs in them
 *             (mmd/fields). Whoever adds a field to one of them adds it here; a test finds bytes
 *             that nothing describes. What each core sets itself is named and not copied.
 * Ownership:  constant data.
 * Threading:  any.
 */
#pragma once

#include "mmd/fields/fields.h"

extern const struct mm_fields mm_kept_front_fields;
extern const struct mm_fields mm_outbox_kept_fields;

/* All tables, for tests. */
extern const struct mm_fields mm_book_parts_fields;
extern const struct mm_fields mm_book_head_fields;
extern const struct mm_fields mm_image_kept_fields;
extern const struct mm_fields mm_pool_kept_fields;
extern const struct mm_fields mm_kept_xfacts_fields;
extern const struct mm_fields mm_device_fields;
extern const struct mm_fields mm_told_kept_fields;
extern const struct mm_fields mm_pushed_job_fields;
extern const struct mm_fields mm_pushed_kept_fields;
extern const struct mm_fields mm_worker_kept_fields;
extern const struct mm_fields mm_store_kept_fields;
extern const struct mm_fields mm_store_key_fields;
extern const struct mm_fields mm_keys_kept_fields;
extern const struct mm_fields mm_stores_kept_fields;
extern const struct mm_fields mm_model_kept_fields;
extern const struct mm_fields mm_session_kept_fields;
extern const struct mm_fields mm_kept_kv_fields;
extern const struct mm_fields mm_kept_order_fields;
extern const struct mm_fields mm_group_rank_fields;
extern const struct mm_fields mm_group_fields;
extern const struct mm_fields mm_group_kept_fields;
extern const struct mm_fields mm_outbox_item_fields;
extern const struct mm_fields mm_kept_batch_fields;
extern const struct mm_fields mm_kept_msg_fields;
