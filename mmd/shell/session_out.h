/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session_out - whatever goes to a session's tenant
 *
 * Concept:   Pages, map entries, events and single fds are put into the session's outbox. Each item
 *            has the serial of the action or request that it is put for. A core that has taken over
 *            does the last one again, and puts only the items that are not there yet. A tenant that
 *            has no room for an item is ended.
 * Threading: core's thread.
 */
#pragma once

#include "mmd/shell/session.h"

void mm_session_page(struct mm_session *session, uint32_t page, uint64_t epoch);
void mm_session_map(struct mm_session *session, uint32_t entry, uint32_t value);
/* @fd is taken over in any case; keeper holds it until the tenant has it. */
void mm_session_fd(struct mm_session *session, enum mm_fd_kind kind, int fd);
void mm_session_event(struct mm_session *session, const struct mm_msg *msg);

/* Queues the answer to a request that the shell handles. */
void mm_session_reply(struct mm_session *session, uint64_t user_data, enum mm_op op, int result);

/* Has keeper drop the single fds that the tenant has by now. */
void mm_session_fds_drop(struct mm_session *session);

/*
 * Begins a request that is at @position of the session's ring: items have its serial until
 * mm_session_request_end().
 */
void mm_session_request_begin(struct mm_session *session, uint32_t position);
void mm_session_request_end(struct mm_session *session);

/* Whether the first item that was put for the request at @position still waits. */
bool mm_session_has_answer(const struct mm_session *session, uint32_t position);

/* The request that is being handled, as the source of an event. */
struct mm_event_source mm_session_source(const struct mm_session *session);
