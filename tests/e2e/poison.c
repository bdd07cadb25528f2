/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An mmd whose core dies of a request (a wish for so many chunks), or of an action that follows one
 * (an answer to so marked a request). Linked with --wrap of both functions.
 */
#include <stdlib.h>

#include "mmd/core/event.h"
#include "mmd/shell/session_out.h"

#define POISON 0x666 /* test_restart.py knows it */

void __real_mm_core_event(struct mm_core *core, const struct mm_event *event,
			  struct mm_event_result *ret_result);
void __wrap_mm_core_event(struct mm_core *core, const struct mm_event *event,
			  struct mm_event_result *ret_result);
void __real_mm_session_event(struct mm_session *session, const struct mm_msg *msg);
void __wrap_mm_session_event(struct mm_session *session, const struct mm_msg *msg);

void __wrap_mm_core_event(struct mm_core *core, const struct mm_event *event,
			  struct mm_event_result *ret_result)
{
	if (event->kind == MM_EVENT_REQUEST && event->msg.opcode == MM_OP_KV_WANT &&
	    event->msg.arg[0] == POISON)
		abort();
	__real_mm_core_event(core, event, ret_result);
}

void __wrap_mm_session_event(struct mm_session *session, const struct mm_msg *msg)
{
	if (msg->user_data == POISON)
		abort();
	__real_mm_session_event(session, msg);
}
