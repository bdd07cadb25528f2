/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/session_out.h"

#include "libclient/support/cleanup.h"
#include "mmd/shell/session_kept.h"
#include "mmd/shell/shell.h"

/* Serials of items that are put for a request differ from those of actions (actions.c). */
#define SERIAL_OF_REQUEST (UINT64_C(1) << 63)
#define SERIAL_SHIFT      8

/*
 * The serial of the next item for this tenant, 0 if it needs none. False: the item is there
 * already.
 */
static bool session_item_begin(const struct mm_session *s, uint64_t *ret_serial)
{
	struct mm_shell *shell = s->shell;

	*ret_serial = shell->serial ? shell->serial++ : 0;
	return !mm_outbox_has(&s->outbox, *ret_serial);
}

static void session_end_if_behind(struct mm_session *s, int r)
{
	if (r < 0)
		mm_session_end(s, "it takes too little of what is sent to it");
}

void mm_session_page(struct mm_session *s, uint32_t page, uint64_t epoch)
{
	uint64_t serial;

	if (session_item_begin(s, &serial))
		session_end_if_behind(s, mm_outbox_put_page(&s->outbox, page, epoch, serial));
}

void mm_session_map(struct mm_session *s, uint32_t entry, uint32_t value)
{
	uint64_t serial;

	if (session_item_begin(s, &serial))
		session_end_if_behind(s, mm_outbox_put_map(&s->outbox, entry, value, serial));
}

void mm_session_fd(struct mm_session *s, enum mm_fd_kind kind, int fd)
{
	uint64_t serial;

	if (!session_item_begin(s, &serial)) {
		mm_close_fd(&fd);
		return;
	}
	/* The channel to a load dies with it, and the load dies with core. */
	if (kind != MM_FD_LOAD) {
		mm_held_put(&s->shell->held, mm_session_outfd(s, kind), fd);
		if (!mm_held_sync(&s->shell->held))
			mm_session_end(s, "keeper does not take what is to be sent to it");
	}
	session_end_if_behind(s, mm_outbox_put_fd(&s->outbox, kind, fd, serial));
}

void mm_session_fds_drop(struct mm_session *s)
{
	for (uint32_t kind = 0; kind < MM_OUTBOX_FDS; kind++)
		if ((s->outbox.fd_gone & 1u << kind) && kind != MM_FD_LOAD)
			mm_held_drop(&s->shell->held, mm_session_outfd(s, kind), false);
	s->outbox.fd_gone = 0;
}

void mm_session_event(struct mm_session *s, const struct mm_msg *msg)
{
	uint64_t serial;

	if (s->state == MM_SESSION_OPEN && session_item_begin(s, &serial) &&
	    mm_outbox_put_event(&s->outbox, msg, serial) < 0)
		mm_session_end(s, "it takes no events");
}

void mm_session_reply(struct mm_session *s, uint64_t user_data, enum mm_op op, int result)
{
	struct mm_msg msg = {
		.opcode = MM_EV_REPLY, .result = result, .user_data = user_data, .arg[0] = op
	};

	mm_session_event(s, &msg);
}

struct mm_event_source mm_session_source(const struct mm_session *s)
{
	return (struct mm_event_source){ .place = (uint32_t)(s - s->shell->session) + 1,
					 .position = s->requests.mine };
}

static uint64_t request_serial(uint32_t position)
{
	return SERIAL_OF_REQUEST | (uint64_t)position << SERIAL_SHIFT;
}

void mm_session_request_begin(struct mm_session *s, uint32_t position)
{
	s->shell->serial = request_serial(position);
}

bool mm_session_has_answer(const struct mm_session *s, uint32_t position)
{
	return mm_outbox_has(&s->outbox, request_serial(position));
}

void mm_session_request_end(struct mm_session *s)
{
	s->shell->serial = 0;
}
