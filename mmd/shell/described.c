/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/described.h"

#include "mmd/shell/kept.h"

#define ONE(member)        MM_ONE(struct OF, member)
#define ALL(member)        MM_ARRAY(struct OF, member)
#define TEXT(member)       MM_BYTES(struct OF, member)
#define NOT(member)        MM_NOT_SAVED(struct OF, member)
#define PART(member, of)   MM_STRUCT(struct OF, member, of)
#define PARTS(member, of)  MM_STRUCTS(struct OF, member, of)
#define ENUM(member, last) MM_ENUM(struct OF, member, (last) + 1)

/* In builds of tests/e2e/test_upgrade: structs with other fields, and a field that none has. */
#ifdef MM_KEPT_NEXT
#define ADDED MM_ADDED(struct OF, next_added, 7),
#else
#define ADDED
#endif
#ifdef MM_KEPT_LACKS
#define SWAP_BYTES NOT(swap_bytes)
#else
#define SWAP_BYTES ONE(swap_bytes)
#endif
#ifdef MM_REGIONS_FIRST
#define COLD_STREAMED_GONE NOT(cold_streamed_gone)
#else
#define COLD_STREAMED_GONE MM_OPTIONAL(struct OF, cold_streamed_gone)
#endif

/* ---- the head: each core sets its own map ---- */

#define OF mm_book_parts
MM_FIELDS_DEFINE(mm_book_parts_fields, struct mm_book_parts, NOT(layout), NOT(schema_at),
		 NOT(schema_bytes), NOT(front_bytes), NOT(pools_at), NOT(pool_bytes),
		 NOT(journal_bytes), NOT(image_bytes), NOT(outboxes_at), NOT(outbox_bytes));
#undef OF

#define OF mm_book_head
MM_FIELDS_DEFINE(mm_book_head_fields, struct mm_book_head, NOT(magic), NOT(format), NOT(state),
		 ONE(generation), NOT(bytes), NOT(n_pools), NOT(n_sessions), NOT(parts),
		 ONE(beat_ns), ONE(sleeping), ONE(ready), ONE(started_ns), ONE(busy), ONE(deaths),
		 ONE(death_seq), ONE(death_done), ONE(death_pool), ONE(unfit), ONE(leave_by_ns),
		 NOT(reserved));
#undef OF

/* ---- pools ---- */

#define OF mm_image_kept
MM_FIELDS_DEFINE(mm_image_kept_fields, struct mm_image_kept, ONE(bytes), ONE(performed), ONE(seq));
#undef OF

#define OF mm_pool_kept
MM_FIELDS_DEFINE(mm_pool_kept_fields, struct mm_pool_kept, ONE(performed),
		 ENUM(image_valid, MM_KEPT_IMAGES), ENUM(ready, 1), ENUM(down, 1), ONE(quarantined),
		 PARTS(image, mm_image_kept_fields), ONE(seq), ONE(bytes_streamed_gone),
		 COLD_STREAMED_GONE);
#undef OF

#define OF mm_xfacts
MM_FIELDS_DEFINE(mm_kept_xfacts_fields, struct mm_xfacts, ONE(driver_version), ONE(attributes),
		 ONE(capability), ONE(reserved));
#undef OF

#define OF mm_device
MM_FIELDS_DEFINE(mm_device_fields, struct mm_device, ONE(page_bytes), ONE(total_bytes), ONE(pages),
		 ONE(driver_kind), ONE(numa_node), ONE(stage_bytes), ONE(stage_pread),
		 PART(facts, mm_kept_xfacts_fields), ALL(uuid), TEXT(name));
#undef OF

#define OF mm_told_kept
MM_FIELDS_DEFINE(mm_told_kept_fields, struct mm_told_kept, ONE(pages), ONE(reserved), ALL(tenant),
		 ALL(swap), ALL(store), ONE(sending));
#undef OF

#define OF mm_pushed_job
MM_FIELDS_DEFINE(mm_pushed_job_fields, struct mm_pushed_job, ONE(id), ONE(lets_go), ONE(first),
		 ONE(count), ONE(opcode), ALL(reserved));
#undef OF

#define OF mm_pushed_kept
MM_FIELDS_DEFINE(mm_pushed_kept_fields, struct mm_pushed_kept, ONE(tail), ONE(head),
		 ENUM(marked, MM_PUSHED_JOBS), ONE(marked_at), PARTS(job, mm_pushed_job_fields));
#undef OF

#define OF mm_worker_kept
MM_FIELDS_DEFINE(mm_worker_kept_fields, struct mm_worker_kept, ENUM(state, MM_WORKER_DYING),
		 ENUM(known, 1), ENUM(proven, 1), ENUM(was_up, 1), ENUM(fault, 1), ONE(scrub_error),
		 ONE(epoch), ONE(restarts), ONE(pid), ONE(own_serial),
		 PART(device, mm_device_fields), PART(told, mm_told_kept_fields),
		 PART(pushed, mm_pushed_kept_fields));
#undef OF

/* ---- stores ---- */

#define OF mm_store_kept
MM_FIELDS_DEFINE(mm_store_kept_fields, struct mm_store_kept, ONE(id), ONE(bytes), ONE(host_bytes),
		 ONE(hugepage_bytes), ONE(payer), ONE(head_bytes), ONE(flags), ONE(numa_node),
		 ENUM(on_disk, 1), ALL(identity));
#undef OF

#define OF mm_store_key
MM_FIELDS_DEFINE(mm_store_key_fields, struct mm_store_key, ONE(store), ONE(account), ONE(uid),
		 ENUM(bytes, MM_MODEL_KEY_BYTES), ALL(key));
#undef OF

#define OF mm_keys_kept
MM_FIELDS_DEFINE(mm_keys_kept_fields, struct mm_keys_kept, ENUM(end, MM_KEYS_MAX), ONE(reserved),
		 PARTS(key, mm_store_key_fields));
#undef OF

#define OF mm_stores_kept
MM_FIELDS_DEFINE(mm_stores_kept_fields, struct mm_stores_kept, ONE(store_serial), ONE(load_serial),
		 ONE(deaths), PARTS(store, mm_store_kept_fields), PART(keys, mm_keys_kept_fields));
#undef OF

/* ---- sessions ---- */

#define OF mm_model_kept
MM_FIELDS_DEFINE(mm_model_kept_fields, struct mm_model_kept, ONE(load), ONE(store), ONE(user_data),
		 ONE(position), ONE(answered), ONE(load_deaths), ONE(reserved), ONE(read_bytes),
		 ONE(filled_bytes));
#undef OF

#define OF mm_session_kept
MM_FIELDS_DEFINE(mm_session_kept_fields, struct mm_session_kept,
		 ADDED ENUM(state, MM_SESSION_CLOSED), ENUM(pool, MM_DEVICES_MAX - 1), ONE(tenant),
		 ONE(sq_head), ONE(conn), ONE(pid), ONE(uid), ONE(gid), ENUM(welcomed, 1),
		 ONE(account), ONE(features), TEXT(name), ALL(token), ENUM(ending, 1),
		 ENUM(group, MM_GROUPS_MAX), ONE(rank), ONE(group_position), ONE(swap_position),
		 TEXT(end_reason), SWAP_BYTES, PART(model, mm_model_kept_fields));
#undef OF

/* ---- groups: pointers are set anew ---- */

#define OF mm_core_kv
MM_FIELDS_DEFINE(mm_kept_kv_fields, struct mm_core_kv, ONE(chunks_max), ONE(held), ONE(wanted),
		 ONE(demands), ONE(reclaims), ONE(reclaim), ONE(reclaim_until_ns), ONE(releases),
		 ONE(denied), NOT(map));
#undef OF

#define OF mm_core_rank
MM_FIELDS_DEFINE(mm_kept_order_fields, struct mm_core_rank, ONE(offer), ONE(most), ONE(wanted),
		 ONE(wants_anew), ONE(deny), ONE(reclaim), ONE(reclaim_until_ns));
#undef OF

#define OF mm_group_rank
MM_FIELDS_DEFINE(mm_group_rank_fields, struct mm_group_rank, NOT(core), ONE(tenant),
		 PART(kv, mm_kept_kv_fields), ALL(held), ALL(mapped), ALL(drops),
		 PART(order, mm_kept_order_fields));
#undef OF

#define OF mm_group
MM_FIELDS_DEFINE(mm_group_fields, struct mm_group, ENUM(size, MM_GROUP_RANKS_MAX),
		 ENUM(joined, MM_GROUP_RANKS_MAX), ONE(complete), ONE(over), ONE(chunks_max),
		 ENUM(words, MM_GROUP_WORDS), ONE(wanted), ALL(given), ALL(usable),
		 ONE(mapped_more), ONE(settling), PARTS(rank, mm_group_rank_fields), NOT(calls),
		 NOT(context));
#undef OF

#define OF mm_group_kept
MM_FIELDS_DEFINE(mm_group_kept_fields, struct mm_group_kept, ENUM(used, 1),
		 ENUM(leaving, MM_GROUP_RANKS_MAX), ENUM(died, 1), ONE(reserved), ONE(account),
		 TEXT(name), PART(group, mm_group_fields));
#undef OF

/* ---- outboxes ---- */

#define OF mm_outbox_item
MM_FIELDS_DEFINE(mm_outbox_item_fields, struct mm_outbox_item, ONE(kind), ONE(fd_kind),
		 ONE(reserved0), ONE(entry), ONE(value), ONE(reserved1), ONE(epoch), ONE(serial));
#undef OF

#define OF mm_fd_batch
MM_FIELDS_DEFINE(mm_kept_batch_fields, struct mm_fd_batch, ONE(magic), ONE(kind), ONE(epoch),
		 ONE(seq), ENUM(count, MM_FD_BATCH_MAX), ONE(reserved), ALL(page_id));
#undef OF

#define OF mm_msg
MM_FIELDS_DEFINE(mm_kept_msg_fields, struct mm_msg, ONE(opcode), ONE(flags), ONE(result),
		 ONE(user_data), ONE(epoch), ALL(arg), ONE(reserved));
#undef OF

#define OF mm_outbox_kept
MM_FIELDS_DEFINE(mm_outbox_kept_fields, struct mm_outbox_kept, ADDED ONE(items_head),
		 ONE(items_tail), ONE(events_put), ONE(cq_tail),
		 ENUM(batch_state, MM_BATCH_UNACKED), ONE(resends), ONE(seq), ALL(batch_item),
		 PART(batch, mm_kept_batch_fields), PARTS(item, mm_outbox_item_fields),
		 PARTS(event, mm_kept_msg_fields));
#undef OF

/* ---- the front ---- */

#define OF mm_kept_front
MM_FIELDS_DEFINE(mm_kept_front_fields, struct mm_kept_front, PART(head, mm_book_head_fields),
		 PARTS(pool, mm_pool_kept_fields), PARTS(worker, mm_worker_kept_fields),
		 PART(stores, mm_stores_kept_fields), PARTS(session, mm_session_kept_fields),
		 PARTS(group, mm_group_kept_fields));
#undef OF
