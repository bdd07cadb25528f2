/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/hostile/raw.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"

#define NAP_MS 1

void mm_raw_hello(struct mm_hello *ret_hello, const char *name, uint64_t features)
{
	*ret_hello = (struct mm_hello){ .magic = MM_ABI_MAGIC,
					.abi_major = MM_ABI_MAJOR,
					.size_bytes = sizeof(*ret_hello),
					.features = features };
	snprintf(ret_hello->name, sizeof(ret_hello->name), "%s", name);
}

int mm_raw_connect(struct mm_raw *raw, const char *path)
{
	int r;

	*raw = (struct mm_raw){ .sock = -1 };
	r = mm_sock_connect(path, MM_RAW_WAIT_NS, &raw->sock);
	raw->operations += r == 0;
	return r;
}

int mm_raw_send(struct mm_raw *raw, const void *bytes, size_t n)
{
	return mm_raw_send_fds(raw, bytes, n, NULL, 0);
}

int mm_raw_send_fds(struct mm_raw *raw, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	raw->operations++;
	return mm_sock_send(raw->sock, bytes, n, fds, n_fds);
}

static int raw_map(int fd, size_t bytes, int prot, void **ret_at)
{
	void *at = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	*ret_at = at;
	return 0;
}

static int regions_map(struct mm_raw *raw, const int *fds)
{
	const int both = PROT_READ | PROT_WRITE;
	int r = raw_map(fds[0], sizeof(*raw->tenant), both, (void **)&raw->tenant);

	if (!r)
		r = raw_map(fds[1], sizeof(*raw->mmd), PROT_READ, (void **)&raw->mmd);
	return r ? r : raw_map(fds[2], sizeof(*raw->gates), both, (void **)&raw->gates);
}

/* Takes a message that came before the welcome. Return: whether there may be one behind it. */
static bool raw_passes_over(struct mm_raw *raw, const struct mm_end *end, size_t len)
{
	if (len != sizeof(*end) || end->kind != MM_END_KIND)
		return len < MM_WELCOME_BYTES_MIN;
	snprintf(raw->reason, sizeof(raw->reason), "%.*s", MM_END_BYTES - 1, end->reason);
	return false;
}

int mm_raw_welcome(struct mm_raw *raw)
{
	union {
		struct mm_end end;
		unsigned char bytes[MM_GREETING_BYTES_MAX];
	} in;
	int fds[MM_SOCK_FDS_MAX], r;
	size_t n = 0, len = 0;

	do {
		r = mm_sock_wait(raw->sock, POLLIN, mm_deadline_ns(MM_RAW_WAIT_NS));
		if (r == 0)
			r = mm_sock_recv(raw->sock, &in, sizeof(in), fds, MM_ARRAY_SIZE(fds), &n,
					 &len);
		if (r < 0)
			return r;
	} while (raw_passes_over(raw, &in.end, len));
	if (len < MM_WELCOME_BYTES_MIN)
		return -ECONNRESET;
	memcpy(&raw->welcome, in.bytes, MM_MIN(len, sizeof(raw->welcome)));
	r = raw->welcome.result;
	if (r == 0)
		r = n == 3 ? regions_map(raw, fds) : -EPROTO;
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	return r;
}

int mm_raw_open(struct mm_raw *raw, const char *path, const char *name, uint64_t features)
{
	struct mm_hello hello;
	int r = mm_raw_connect(raw, path);

	mm_raw_hello(&hello, name, features | MM_FEAT_REASON | MM_FEAT_RESUME);
	if (!r)
		r = mm_raw_send(raw, &hello, sizeof(hello));
	return r ? r : mm_raw_welcome(raw);
}

void mm_raw_drop_fds(struct mm_raw *raw)
{
	for (uint32_t i = 0; i < raw->n_fds; i++)
		close(raw->fd[i]);
	raw->n_fds = 0;
}

void mm_raw_drop_page(struct mm_raw *raw, uint32_t page)
{
	for (uint32_t i = raw->n_fds; i-- > 0;) {
		if (raw->page[i] != page)
			continue;
		close(raw->fd[i]);
		raw->fd[i] = raw->fd[--raw->n_fds];
		raw->page[i] = raw->page[raw->n_fds];
	}
}

void mm_raw_done(struct mm_raw *raw)
{
	if (raw->tenant)
		munmap(raw->tenant, sizeof(*raw->tenant));
	if (raw->mmd)
		munmap(raw->mmd, sizeof(*raw->mmd));
	if (raw->gates)
		munmap(raw->gates, sizeof(*raw->gates));
	mm_raw_drop_fds(raw);
	if (raw->sock > 0)
		close(raw->sock);
	raw->tenant = NULL;
	raw->mmd = NULL;
	raw->gates = NULL;
	raw->sock = -1;
}

/* ---- requests ---- */

void mm_raw_bell(struct mm_raw *raw)
{
	raw->operations++;
	mm_sock_doorbell(raw->sock);
}

void mm_raw_put(struct mm_raw *raw, const struct mm_msg *msg)
{
	uint64_t words[MM_MSG_WORDS], *slot = raw->tenant->sq[raw->tail % MM_SQ_SLOTS];

	memcpy(words, msg, sizeof(words));
	for (size_t i = 0; i < MM_MSG_WORDS; i++)
		__atomic_store_n(&slot[i], words[i], __ATOMIC_RELAXED);
	__atomic_store_n(&raw->tenant->sq_tail.value, ++raw->tail, __ATOMIC_RELEASE);
	raw->operations++;
}

static bool ring_is_full(const struct mm_raw *raw)
{
	return raw->tail - __atomic_load_n(&raw->mmd->sq_head.value, __ATOMIC_ACQUIRE) >=
	       MM_SQ_SLOTS;
}

/* Acknowledges the last batch once there is room for it. */
static void ack_pay(struct mm_raw *raw)
{
	const struct mm_msg ack = { .opcode = MM_OP_FDS_ACK, .arg = { raw->owes_ack } };

	if (!raw->owes_ack || ring_is_full(raw))
		return;
	raw->owes_ack = 0;
	mm_raw_put(raw, &ack);
	mm_sock_doorbell(raw->sock);
}

int mm_raw_push(struct mm_raw *raw, const struct mm_msg *msg)
{
	const uint64_t deadline_ns = mm_deadline_ns(MM_RAW_WAIT_NS);

	ack_pay(raw);
	while (ring_is_full(raw)) {
		struct pollfd p = { .fd = raw->sock, .events = POLLIN };

		mm_sock_doorbell(raw->sock);
		mm_raw_drain(raw);
		if (raw->ended)
			return -ECONNRESET;
		if (mm_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		poll(&p, 1, NAP_MS);
		ack_pay(raw);
	}
	mm_raw_put(raw, msg);
	mm_raw_bell(raw);
	return 0;
}

int mm_raw_op(struct mm_raw *raw, enum mm_op op, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	const struct mm_msg msg = { .opcode = (uint16_t)op, .arg = { a, b, c, d } };

	return mm_raw_push(raw, &msg);
}

/* ---- events ---- */

static void raw_take_batch(struct mm_raw *raw, const struct mm_fd_batch *batch, const int *fds,
			   size_t n)
{
	/* A core that takes over from another may send one again. */
	const bool again = batch->seq <= raw->batches;

	for (size_t i = 0; i < n; i++) {
		if (raw->n_fds == MM_RAW_FDS_MAX || again) {
			close(fds[i]);
			continue;
		}
		raw->page[raw->n_fds] = batch->kind == MM_FD_PAGES ? batch->page_id[i] : UINT32_MAX;
		raw->fd[raw->n_fds++] = fds[i];
	}
	raw->batches = MM_MAX(raw->batches, batch->seq);
	if (raw->acks)
		raw->owes_ack = batch->seq;
	ack_pay(raw);
}

void mm_raw_drain(struct mm_raw *raw)
{
	union {
		struct mm_fd_batch batch;
		struct mm_end end;
		unsigned char bytes[MM_GREETING_BYTES_MAX];
	} in;
	int fds[MM_SOCK_FDS_MAX], r = 0;
	size_t n, len;

	while (!raw->ended && raw->tenant) {
		r = mm_sock_recv(raw->sock, &in, sizeof(in), fds, MM_ARRAY_SIZE(fds), &n, &len);
		if (r == -EAGAIN)
			return;
		if (r == -ECONNRESET || (r < 0 && r != -EMFILE)) {
			raw->ended = true;
			return;
		}
		if (len == sizeof(in.batch)) {
			raw_take_batch(raw, &in.batch, fds, n);
			continue;
		}
		for (size_t i = 0; i < n; i++) /* of a welcome that came twice */
			close(fds[i]);
		if (len == sizeof(in.end) && in.end.kind == MM_END_KIND)
			snprintf(raw->reason, sizeof(raw->reason), "%.*s", MM_END_BYTES - 1,
				 in.end.reason);
	}
}

int mm_raw_pop(struct mm_raw *raw, struct mm_msg *ret_event)
{
	const uint32_t tail = __atomic_load_n(&raw->mmd->cq_tail.value, __ATOMIC_ACQUIRE);
	uint64_t words[MM_MSG_WORDS];

	mm_raw_drain(raw);
	ack_pay(raw);
	if (tail == raw->head)
		return 0;
	for (size_t i = 0; i < MM_MSG_WORDS; i++)
		words[i] = __atomic_load_n(&raw->mmd->cq[raw->head % MM_CQ_SLOTS][i],
					   __ATOMIC_RELAXED);
	memcpy(ret_event, words, sizeof(*ret_event));
	__atomic_store_n(&raw->tenant->cq_head.value, ++raw->head, __ATOMIC_RELEASE);
	return 1;
}

int mm_raw_next(struct mm_raw *raw, struct mm_msg *ret_event, uint64_t timeout_ns)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);

	while (!mm_raw_pop(raw, ret_event)) {
		struct pollfd p = { .fd = raw->sock, .events = POLLIN };

		if (raw->ended)
			return mm_raw_pop(raw, ret_event) ? 0 : -ECONNRESET;
		if (mm_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		poll(&p, 1, NAP_MS * 10);
	}
	return 0;
}

int mm_raw_await(struct mm_raw *raw, enum mm_ev kind, struct mm_msg *ret_event, uint64_t timeout_ns)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	int r;

	do {
		r = mm_raw_next(raw, ret_event, timeout_ns);
	} while (!r && ret_event->opcode != kind && mm_now_ns() <= deadline_ns);
	return !r && ret_event->opcode != kind ? -ETIMEDOUT : r;
}

int mm_raw_await_end(struct mm_raw *raw, uint64_t timeout_ns)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);

	for (;;) {
		struct pollfd p = { .fd = raw->sock, .events = POLLIN };

		mm_raw_drain(raw);
		if (raw->ended)
			return 0;
		if (mm_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		poll(&p, 1, NAP_MS * 10);
	}
}

int mm_raw_ping(struct mm_raw *raw, uint64_t timeout_ns)
{
	const struct mm_msg ask = { .opcode = MM_OP_TURN_JOIN, .user_data = UINT64_MAX - 7 };
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	struct mm_msg event = { 0 };
	int r = mm_raw_push(raw, &ask);

	while (!r && !(event.opcode == MM_EV_REPLY && event.user_data == ask.user_data)) {
		if (mm_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		r = mm_raw_next(raw, &event, timeout_ns);
	}
	return r;
}

/* ---- memory ---- */

int mm_raw_take_pages(struct mm_raw *raw, uint32_t pages, uint64_t timeout_ns)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	struct mm_msg event;
	uint32_t granted = 0;
	int r;

	raw->acks = true;
	r = mm_raw_op(raw, MM_OP_KV_DECLARE, raw->welcome.page_bytes, 1, pages, 0);
	if (!r)
		r = mm_raw_op(raw, MM_OP_KV_WANT, pages, 0, 0, 0);
	while (!r && granted < pages) {
		r = mm_raw_next(raw, &event, timeout_ns);
		if (!r && event.opcode == MM_EV_REPLY && event.result)
			return event.result;
		granted += !r && event.opcode == MM_EV_KV_GRANT;
		if (!r && mm_now_ns() > deadline_ns)
			r = -ETIMEDOUT;
	}
	return r;
}

void mm_raw_bye(struct mm_raw *raw)
{
	struct mm_msg event = { 0 };
	int r;

	mm_raw_drop_fds(raw);
	if (!raw->tenant || raw->ended)
		return;
	/* The answer lies behind a batch that was not acknowledged; twice does no harm. */
	mm_raw_drain(raw);
	if (!raw->acks && raw->batches)
		mm_raw_op(raw, MM_OP_FDS_ACK, raw->batches, 0, 0, 0);
	raw->acks = true;
	r = mm_raw_op(raw, MM_OP_BYE, 0, 0, 0, 0);
	while (!r && !(event.opcode == MM_EV_REPLY && event.arg[0] == MM_OP_BYE))
		r = mm_raw_next(raw, &event, MM_RAW_WAIT_NS);
	mm_raw_drop_fds(raw);
}

int mm_raw_protect_mmds(struct mm_raw *raw)
{
	return mprotect(raw->mmd, sizeof(*raw->mmd), PROT_READ | PROT_WRITE) < 0 ? -errno : 0;
}
