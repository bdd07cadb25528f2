/* SPDX-License-Identifier: Apache-2.0 */
/* The service thread: receives fds from the socket and events from the ring, in their order. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "libclient/client/internal.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/fault.h"

#define MESSAGES_PER_WAKEUP 1024
#define FDS_PAUSE_NS \
	(10 * MM_NS_PER_MS) /* before a batch is requested again, so that fds may become free */

/* ---- fd batches ---- */

static bool batch_is_valid(const struct mm_fd_batch *batch, size_t len)
{
	return len == sizeof(*batch) && batch->magic == MM_ABI_MAGIC && batch->seq &&
	       batch->count && batch->count <= MM_FD_BATCH_MAX && !batch->reserved &&
	       batch->kind >= MM_FD_PAGES && batch->kind <= MM_FD_GROUP &&
	       (batch->kind == MM_FD_PAGES || batch->count == 1);
}

static int pages_import(struct mm_client *c, const struct mm_fd_batch *batch, int *fds)
{
	int first_error = 0;

	mm_map_lock_take(&c->map_lock);
	for (uint32_t i = 0; i < batch->count; i++) {
		int r = 0;

		if (c->closing)
			mm_close_fd(&fds[i]);
		else
			r = mm_mapper_import(&c->mapper, batch->page_id[i], fds[i]);
		if (r && !first_error)
			first_error = r;
	}
	mm_map_lock_give(&c->map_lock);
	return first_error;
}

/* Stores @fd in @slot; an earlier fd that was not taken is closed. */
static void fd_keep(struct mm_client *c, int *slot, int fd)
{
	mm_client_lock_take(&c->lock);
	mm_close_fd(slot);
	*slot = fd;
	pthread_cond_broadcast(&c->changed);
	mm_client_lock_give(&c->lock);
}

static int batch_take(struct mm_client *c, const struct mm_fd_batch *batch, int *fds)
{
	switch (batch->kind) {
	case MM_FD_PAGES:
		return pages_import(c, batch, fds);
	case MM_FD_STORE:
		fd_keep(c, &c->store_fd, fds[0]);
		return 0;
	case MM_FD_GROUP:
		fd_keep(c, &c->group_fd, fds[0]);
		return 0;
	default:
		fd_keep(c, &c->load_fd, fds[0]);
		return 0;
	}
}

/* Acknowledges a batch. @result < 0: it was truncated or not imported; mmd is to send it again. */
static int batch_ack(struct mm_client *c, const struct mm_fd_batch *batch, int result,
		     const char **ret_text)
{
	const struct timespec pause = mm_timespec(FDS_PAUSE_NS);
	struct mm_msg ack = { .opcode = MM_OP_FDS_ACK, .arg = { batch->seq } };

	if (result == -EPROTO) {
		*ret_text = "mmd sent a page that is not of the pool";
		return -EPROTO;
	}
	c->fds_refused = result ? c->fds_refused + 1 : 0;
	if (c->fds_refused > MM_FDS_RETRIES) {
		*ret_text = "cannot take in mmd's pages: raise the limit of open files (ulimit -n)";
		return -EMFILE;
	}
	if (result) {
		ack.result = -EMFILE;
		nanosleep(&pause, NULL);
	}
	*ret_text = "mmd takes no requests any more";
	return mm_link_push(c, &ack);
}

/* Whether @message is the end of the connection; then *ret_text is its reason. */
static bool message_is_end(struct mm_client *c, const void *message, size_t len,
			   const char **ret_text)
{
	struct mm_end end;

	if (len != sizeof(end))
		return false;
	memcpy(&end, message, sizeof(end));
	if (end.magic != MM_ABI_MAGIC || end.kind != MM_END_KIND)
		return false;
	mm_sanitize(end.reason, sizeof(end.reason));
	snprintf(c->end_text, sizeof(c->end_text), "mmd ended the connection: %s", end.reason);
	*ret_text = c->end_text;
	return true;
}

/*
 * Whether @message is this session's welcome again: an mmd that does not know whether it was sent
 * may repeat it.
 */
static bool message_is_welcome(const struct mm_client *c, const void *message, size_t len)
{
	struct mm_welcome w = { 0 };

	if (len < MM_WELCOME_BYTES_MIN)
		return false;
	memcpy(&w, message, MM_MIN(len, sizeof(w)));
	return w.magic == MM_ABI_MAGIC && w.abi_major == MM_ABI_MAJOR && w.size_bytes == len &&
	       !w.result && memcmp(w.session, c->welcome.session, sizeof(w.session)) == 0;
}

static void message_close_fds(int *fds, size_t n_fds)
{
	for (size_t i = 0; i < n_fds; i++)
		mm_close_fd(&fds[i]);
}

static int batch_ack_again(struct mm_client *c, const struct mm_fd_batch *batch,
			   const char **ret_text)
{
	const struct mm_msg again = { .opcode = MM_OP_FDS_ACK, .arg = { batch->seq } };

	*ret_text = "mmd takes no requests any more";
	return mm_link_push(c, &again);
}

/* Takes in a batch, or, if it was taken in before, only acknowledges it again. */
static int service_on_batch(struct mm_client *c, const struct mm_fd_batch *batch, int *fds,
			    const char **ret_text)
{
	int r;

	if (batch->seq <= c->batches) {
		message_close_fds(fds, batch->count);
		return batch_ack_again(c, batch, ret_text);
	}
	r = batch_take(c, batch, fds);
	if (!r)
		c->batches = batch->seq;
	return batch_ack(c, batch, r, ret_text);
}

static int service_on_message(struct mm_client *c, const struct mm_fd_batch *batch, size_t len,
			      int *fds, size_t n_fds, const char **ret_text)
{
	if (len == 1 && !n_fds)
		return 0; /* a doorbell */
	if (!n_fds && message_is_end(c, batch, len, ret_text))
		return -ECONNRESET;
	if (message_is_welcome(c, batch, len)) {
		message_close_fds(fds, n_fds);
		return 0;
	}
	if (!batch_is_valid(batch, len) || batch->count != n_fds) {
		message_close_fds(fds, n_fds);
		*ret_text = "mmd sent a malformed message";
		return -EPROTO;
	}
	return service_on_batch(c, batch, fds, ret_text);
}

/* A message came without some of its fds: this process has too many files open. */
static int service_on_fds_lost(struct mm_client *c, const struct mm_fd_batch *batch, size_t len,
			       const char **ret_text)
{
	if (message_is_welcome(c, batch, len))
		return 0;
	if (!batch_is_valid(batch, len))
		return -EMFILE;
	/* The fds of a batch that was taken in before are not needed. */
	return batch->seq <= c->batches ? batch_ack_again(c, batch, ret_text)
					: batch_ack(c, batch, -EMFILE, ret_text);
}

/* Return: -EAGAIN the socket is empty; 0: it may have more; or another error. */
static int socket_drain(struct mm_client *c, const char **ret_text)
{
	for (int i = 0; i < MESSAGES_PER_WAKEUP; i++) {
		union {
			struct mm_fd_batch batch;
			unsigned char bytes[MM_GREETING_BYTES_MAX];
		} msg;
		int fds[MM_FD_BATCH_MAX];
		size_t n_fds, len = 0;
		int r = mm_sock_recv(c->sock, &msg, sizeof(msg), fds, MM_FD_BATCH_MAX, &n_fds,
				     &len);

		*ret_text = "mmd closed the connection";
		if (r == -EAGAIN)
			return r;
		if (r == -EMFILE)
			r = service_on_fds_lost(c, &msg.batch, len, ret_text);
		else if (!r)
			r = service_on_message(c, &msg.batch, len, fds, n_fds, ret_text);
		if (r)
			return r == -EMSGSIZE ? -EPROTO : r;
	}
	return 0;
}

/* ---- events of the ring ---- */

static int event_on_nop(struct mm_client *c, const struct mm_msg *msg, const char **ret_text)
{
	(void)c;
	(void)msg;
	(void)ret_text;
	return 0;
}

static int event_on_reply(struct mm_client *c, const struct mm_msg *msg, const char **ret_text)
{
	(void)ret_text;
	if (msg->user_data && !mm_cold_on_reply(c, msg))
		mm_link_reply(c, msg);
	return 0;
}

/* Told again, with another deadline, it takes the place of an event that was not taken. */
static int leave_on_event(struct mm_client *c, const struct mm_msg *msg, const char **ret_text)
{
	(void)ret_text;
	mm_client_lock_take(&c->lock);
	mm_event_push(c, &(struct mm_event){ .kind = MM_EVENT_LEAVE, .deadline_ns = msg->arg[0] });
	mm_client_lock_give(&c->lock);
	return 0;
}

static int (*const event_handlers[MM_EV_COUNT])(struct mm_client *, const struct mm_msg *,
						const char **) = {
	[MM_EV_NOP] = event_on_nop,
	[MM_EV_REPLY] = event_on_reply,
	[MM_EV_MODEL_LOADED] = mm_model_on_loaded,
	[MM_EV_MODEL_READY] = mm_model_on_ready,
	[MM_EV_PREPARE] = mm_client_plan_on_prepare,
	[MM_EV_SWITCH] = mm_client_plan_on_switch,
	[MM_EV_KV_GRANT] = mm_kv_on_grant,
	[MM_EV_KV_DENIED] = mm_kv_on_denied,
	[MM_EV_KV_RECLAIM] = mm_kv_on_reclaim,
	[MM_EV_SWAPPED] = mm_swap_on_swapped,
	[MM_EV_TURN_BEGIN] = mm_turn_on_begin,
	[MM_EV_TURN_END] = mm_turn_on_end,
	[MM_EV_GROUP_READY] = mm_group_on_ready,
	[MM_EV_GROUP_USABLE] = mm_kv_on_usable,
	[MM_EV_GROUP_DROP] = mm_kv_on_drop,
	[MM_EV_GROUP_LEFT] = mm_group_on_left,
	[MM_EV_LEAVE] = leave_on_event,
	[MM_EV_COLD_LIMIT] = mm_cold_on_limit,
};

static int ring_drain(struct mm_client *c, uint32_t ready, const char **ret_text)
{
	struct mm_msg msg;
	int r;

	while (ready--) {
		r = mm_ring_pop(&c->cq, &msg);
		*ret_text = "mmd sent a malformed event";
		if (r || msg.opcode >= MM_EV_COUNT || msg.flags || msg.reserved)
			return -EPROTO;
		if (msg.opcode != MM_EV_KV_GRANT)
			r = mm_kv_take_grants(c, ret_text);
		if (!r)
			r = event_handlers[msg.opcode](c, &msg, ret_text);
		if (r)
			return r;
	}
	return mm_kv_take_grants(c, ret_text);
}

/* ---- the thread ---- */

/*
 * Whether events are left over from the last wakeup. Events wait until a batch of fds that was
 * refused has been received again.
 */
static bool events_are_waiting(struct mm_client *c)
{
	return !c->fds_refused && mm_ring_ready(&c->cq);
}

/*
 * mmd sends fds before the events that need them. The order here is therefore: read the ring's
 * tail, drain the socket, then handle the ring up to that tail.
 */
static int service_iterate(struct mm_client *c, const char **ret_text)
{
	const char *ring_text = NULL;
	uint32_t ready = mm_ring_ready(&c->cq);
	int r = socket_drain(c, ret_text), ring;

	if (!r || c->fds_refused)
		return r == -EAGAIN ? 0 : r;
	/* The socket has ended: all fds were received, so that all events can be handled. */
	if (r != -EAGAIN)
		ready = mm_ring_ready(&c->cq);
	ring = ring_drain(c, ready, &ring_text);
	if (ring)
		*ret_text = ring_text;
	return ring || r == -EAGAIN ? ring : r;
}

static void *service_main(void *arg)
{
	struct mm_client *c = arg;
	struct pollfd fds[] = { { .fd = c->sock, .events = POLLIN },
				{ .fd = c->wake_fd, .events = POLLIN },
				{ .fd = c->mark_fd, .events = POLLIN } };
	eventfd_t marks;
	const char *text = NULL;
	int r = 0;

	MM_CAPTURE_RELAXED(c);
	c->gpu->cuCtxSetCurrent(c->context);
	while (!r) {
		if (poll(fds, MM_ARRAY_SIZE(fds), events_are_waiting(c) ? 0 : -1) < 0 &&
		    errno != EINTR)
			break;
		if (fds[1].revents)
			return NULL;
		if (fds[2].revents && !eventfd_read(c->mark_fd, &marks))
			mm_steps_finish(c);
		r = service_iterate(c, &text);
	}
	mm_link_fail(c, r ? r : -EIO, text ? text : "the connection to mmd broke");
	return NULL;
}

int mm_service_start(struct mm_client *client)
{
	sigset_t all, old;
	int r;

	if (mm_fault("service.start"))
		return -ENOMEM;
	/* Signals belong to the engine: they must not be delivered to the service thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&client->service, NULL, service_main, client);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	client->service_runs = !r;
	if (!r)
		pthread_setname_np(client->service, "mm-client");
	return -r;
}

void mm_service_stop(struct mm_client *client)
{
	if (!client->service_runs)
		return;
	eventfd_write(client->wake_fd, 1);
	pthread_join(client->service, NULL);
	client->service_runs = false;
}
