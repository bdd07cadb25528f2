/* SPDX-License-Identifier: Apache-2.0 */
/* The xfer role: start with core, messages and jobs from core, the loop, the end. */
#include "mmd/xfer/xfer.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "mmd/common/log.h"
#include "mmd/xfer/job.h"
#include "mmd/xfer/rights.h"

#define LARGE_DEVICE_BYTES (UINT64_C(24) << 30)
/* TensorRT-LLM measured -0.4 %; -15 % at 2 MiB */
#define LARGE_PAGE_BYTES (UINT64_C(16) << 20)
#define SMALL_PAGE_BYTES (UINT64_C(2) << 20)

#define SMALL_HEADROOM_BYTES (UINT64_C(512) << 20)
/* at least; more on a device of which 1/32 is more */
#define LARGE_HEADROOM_BYTES (UINT64_C(2) << 30)

/* How long to sleep between polls. A gate that is seen late stalls a tenant that is in a step. */
#define LOOK_BUSY_NS UINT64_C(25000)   /* a step is open, or the device has work of xfer's */
#define LOOK_IDLE_NS UINT64_C(1000000) /* a plan with cycling layers, no step open */
#define DRAIN_NS     (2 * MM_NS_PER_S) /* bound of the wait at the end for the device */

struct mm_xtenant *mm_xfer_tenant(const struct mm_xfer *x, uint64_t id)
{
	struct mm_xtenant *tenant = x->tenants;

	while (tenant && tenant->id != id)
		tenant = tenant->next;
	return tenant;
}

/* ---- setting up ---- */

static void message_close_fds(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

static int setup_receive(struct mm_xfer *x, struct mm_xmsg *ret_setup)
{
	int fds[MM_FD_BATCH_MAX];
	size_t n_fds = 0, len = 0;
	int r;

	r = mm_sock_wait(x->fd, POLLIN, UINT64_MAX);
	if (r == 0)
		r = mm_sock_recv(x->fd, ret_setup, sizeof(*ret_setup), fds, MM_FD_BATCH_MAX, &n_fds,
				 &len);
	if (r < 0)
		return r;
	if (len != sizeof(*ret_setup) || ret_setup->magic != MM_PROTO_MAGIC ||
	    ret_setup->kind != MM_X_SETUP || n_fds != 2) {
		message_close_fds(fds, n_fds);
		return -EPROTO;
	}
	r = mm_region_open(fds[0], sizeof(struct mm_xq_region), false, &x->jobs_region);
	if (r < 0) {
		close(fds[1]);
		return r;
	}
	return mm_region_open(fds[1], sizeof(struct mm_xq_region), true, &x->completions_region);
}

static void xfer_rings_init(struct mm_xfer *x)
{
	struct mm_xq_region *theirs = x->jobs_region.base;
	struct mm_xq_region *ours = x->completions_region.base;

	mm_ring_init(&x->jobs, theirs->slot, MM_XQ_SLOTS, &ours->head, &theirs->tail);
	mm_ring_init(&x->completions, ours->slot, MM_XQ_SLOTS, &ours->tail, &theirs->head);
}

static int page_size_choose(const struct mm_xdev *dev, uint64_t wanted, uint64_t *ret_bytes,
			    char *err, size_t err_bytes)
{
	uint64_t granularity = dev->granularity_bytes;

	if (wanted == 0)
		wanted = mm_round_up(dev->total_bytes >= LARGE_DEVICE_BYTES ? LARGE_PAGE_BYTES
									    : SMALL_PAGE_BYTES,
				     granularity);
	if (wanted % granularity != 0) {
		snprintf(err, err_bytes,
			 "page size %" PRIu64
			 " is not a multiple of the device's granularity %" PRIu64,
			 wanted, granularity);
		return -EINVAL;
	}
	*ret_bytes = wanted;
	return 0;
}

/*
 * The context, cuBLAS and activations of an engine are some 1 to 2 GiB on a large device; xfer's
 * own context comes in addition.
 */
static uint64_t device_headroom(const struct mm_xdev *dev, const struct mm_xmsg *setup)
{
	if (setup->headroom_bytes != MM_HEADROOM_BY_DEVICE)
		return setup->headroom_bytes;
	if (dev->total_bytes < LARGE_DEVICE_BYTES)
		return SMALL_HEADROOM_BYTES;
	return MM_MAX(dev->total_bytes / 32, LARGE_HEADROOM_BYTES);
}

static int page_count_choose(const struct mm_xfer *x, const struct mm_xmsg *setup,
			     uint64_t page_bytes, uint64_t *ret_pages, char *err, size_t err_bytes)
{
	const struct mm_xdev *dev = &x->dev;
	size_t free_bytes = 0, total_bytes = 0;
	const uint64_t headroom = device_headroom(dev, setup);
	uint64_t pages = setup->pages;

	if (dev->gpu.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS)
		free_bytes = dev->total_bytes;
	if (pages == 0 && setup->bytes > 0)
		pages = setup->bytes / page_bytes;
	else if (pages == 0 && free_bytes > headroom)
		pages = (free_bytes - headroom) / page_bytes;
	if (pages == 0) {
		snprintf(err, err_bytes,
			 "no room for a page of %" PRIu64 " bytes: %zu of %" PRIu64
			 " are free, %" PRIu64 " wanted, headroom %" PRIu64,
			 page_bytes, free_bytes, dev->total_bytes, setup->bytes, headroom);
		mm_xwatch_explain(&x->watch, err, err_bytes);
		return -ENOMEM;
	}
	if (pages > dev->total_bytes / page_bytes || pages >= UINT32_MAX) {
		snprintf(err, err_bytes,
			 "a pool of %" PRIu64 " pages of %" PRIu64
			 " bytes does not fit the device's %" PRIu64 " bytes",
			 pages, page_bytes, dev->total_bytes);
		return -ENOMEM;
	}
	*ret_pages = pages;
	return 0;
}

/*
 * All steps of the start that may fail; @hello gets the facts of the device, or the text of the
 * failure.
 */
static int xfer_set_up(struct mm_xfer *x, struct mm_xmsg *setup, struct mm_xmsg *hello)
{
	const uint64_t chunk_bytes =
		setup->chunk_bytes ? setup->chunk_bytes : MM_CHUNK_BYTES_DEFAULT;
	const size_t text_bytes = sizeof(hello->text);
	int r;

	setup->text[sizeof(setup->text) - 1] = 0;
	setup->wanted[sizeof(setup->wanted) - 1] = 0;
	r = mm_xdev_open(&x->dev, setup->text, setup->id > INT32_MAX ? -1 : (int)setup->id,
			 setup->wanted, !(setup->flags & MM_X_F_LOCKED), hello->text, text_bytes);
	if (r < 0)
		return r;
	mm_xwatch_open(&x->watch, &x->dev);
	r = page_size_choose(&x->dev, setup->page_bytes, &hello->page_bytes, hello->text,
			     text_bytes);
	if (r < 0)
		return r;
	r = page_count_choose(x, setup, hello->page_bytes, &hello->pages, hello->text, text_bytes);
	if (r < 0)
		return r;
	r = mm_xpool_init(&x->pool, &x->dev, hello->page_bytes, (uint32_t)hello->pages);
	if (r == 0)
		r = mm_xstage_init(&x->stage, &x->dev, setup->stage_bytes, chunk_bytes,
				   setup->numa_node >= 0 ? setup->numa_node : x->dev.numa_node);
	if (r == 0)
		r = mm_xlink_init(&x->link, &x->pool, &x->stores, chunk_bytes);
	if (r == 0)
		r = mm_xjobs_init(x);
	if (r == 0)
		r = mm_xrights_drop(&x->dev);
	if (r < 0) {
		snprintf(hello->text, text_bytes, "setting up the pool: %s", strerror(-r));
		return r;
	}
	hello->id = x->dev.kind;
	hello->bytes = x->dev.total_bytes;
	hello->numa_node = x->dev.numa_node;
	hello->stage_bytes = x->stage.bytes;
	hello->flags = x->stage.reads.way == MM_XREADS_THREAD ? MM_X_F_PREAD : 0;
	hello->facts = x->dev.facts;
	memcpy(hello->device_uuid, x->dev.uuid.bytes, sizeof(hello->device_uuid));
	snprintf(hello->text, text_bytes, "%s", x->dev.name);
	return 0;
}

/*
 * Sends @hello with the fds of the device's lock, which keeper will hold: the claim's and, where
 * there is one, the file's.
 */
static int hello_send(struct mm_xfer *x, struct mm_xmsg *hello)
{
	const struct mm_devlock *lock = &x->dev.lock;
	int fds[2];

	if (hello->result == 0 && lock->claim_fd >= 0)
		fds[hello->count++] = lock->claim_fd;
	if (hello->result == 0 && lock->file_fd >= 0) {
		hello->flags |= MM_X_F_LOCK_FILE;
		fds[hello->count++] = lock->file_fd;
	}
	return mm_sock_send(x->fd, hello, sizeof(*hello), fds, hello->count);
}

static int core_handshake(struct mm_xfer *x)
{
	struct mm_xmsg hello = { .magic = MM_PROTO_MAGIC, .kind = MM_X_HELLO };
	struct mm_xmsg setup;
	int r, sent;

	r = setup_receive(x, &setup);
	if (r < 0) {
		mm_log(MM_LOG_ERROR, "xfer.setup", "error=%s", strerror(-r));
		return r;
	}
	xfer_rings_init(x);
	hello.result = xfer_set_up(x, &setup, &hello);
	if (hello.result < 0)
		mm_log(MM_LOG_ERROR, "xfer.setup", "error=%s reason=\"%s\"",
		       strerror(-hello.result), hello.text);
	sent = hello_send(x, &hello);
	return hello.result < 0 ? hello.result : sent;
}

/* ---- messages from core ---- */

/*
 * A core that was started anew does not know whether the last message of its predecessor left, and
 * sends it again. What is known already is left as it is.
 */

static int xfer_on_pages(struct mm_xfer *x, const struct mm_xmsg *msg, const int *fds, size_t n_fds)
{
	int r = n_fds == msg->count ? mm_xpool_adopt(&x->pool, msg->page_id, fds, n_fds) : -EPROTO;

	message_close_fds(fds, n_fds);
	return r;
}

static int xfer_on_tenant(struct mm_xfer *x, const struct mm_xmsg *msg, const int *fds,
			  size_t n_fds)
{
	struct mm_xtenant *tenant;
	int r;

	if (n_fds != 3 || mm_xfer_tenant(x, msg->id)) {
		message_close_fds(fds, n_fds);
		return n_fds != 3 ? -EPROTO : 0;
	}
	r = mm_xtenant_create(msg->id, fds, &x->link, &tenant);
	if (r < 0)
		return r;
	tenant->swaps = &x->swaps;
	tenant->next = x->tenants;
	x->tenants = tenant;
	return 0;
}

static int xfer_on_store(struct mm_xfer *x, const struct mm_xmsg *msg, const int *fds, size_t n_fds)
{
	const bool on_disk = msg->flags & MM_X_F_DISK;
	const struct mm_xstore *known = mm_xstores_find(&x->stores, msg->id);

	if (n_fds != 1 || known) {
		message_close_fds(fds, n_fds);
		if (n_fds != 1)
			return -EPROTO;
		return known->bytes == msg->bytes && mm_xstore_on_disk(known) == on_disk ? 0
											 : -EEXIST;
	}
	if (on_disk)
		return mm_xstores_add_disk(&x->stores, msg->id, msg->bytes, fds[0]);
	return mm_xstores_add(&x->stores, msg->id, msg->bytes, fds[0]);
}

static int xfer_on_swap(struct mm_xfer *x, const struct mm_xmsg *msg, const int *fds, size_t n_fds)
{
	const struct mm_xswap *known = mm_xswap_find(x->swaps, msg->id);

	if (n_fds != 1 || known) {
		message_close_fds(fds, n_fds);
		if (n_fds != 1)
			return -EPROTO;
		return known->bytes == msg->bytes ? 0 : -EEXIST;
	}
	return mm_xswap_add(&x->swaps, &x->link, msg->id, msg->bytes, fds[0]);
}

static int xfer_on_message(struct mm_xfer *x, const struct mm_xmsg *msg, const int *fds,
			   size_t n_fds)
{
	switch (msg->kind) {
	case MM_X_PAGES:
		return xfer_on_pages(x, msg, fds, n_fds);
	case MM_X_TENANT:
		return xfer_on_tenant(x, msg, fds, n_fds);
	case MM_X_STORE:
		return xfer_on_store(x, msg, fds, n_fds);
	case MM_X_SWAP:
		return xfer_on_swap(x, msg, fds, n_fds);
	default:
		message_close_fds(fds, n_fds);
		return -EPROTO;
	}
}

/* 0, or a failure after which core's state and xfer's differ, so that this xfer must end. */
static int xfer_drain_socket(struct mm_xfer *x)
{
	for (;;) {
		struct mm_xmsg msg = { 0 };
		int fds[MM_FD_BATCH_MAX];
		size_t n_fds = 0, len = 0;
		int r = mm_sock_recv(x->fd, &msg, sizeof(msg), fds, MM_FD_BATCH_MAX, &n_fds, &len);

		if (r == -EAGAIN)
			return 0;
		if (r == -ECONNRESET) {
			x->core_gone = true;
			return 0;
		}
		if (r == 0 && len == 1 && n_fds == 0)
			continue; /* a doorbell */
		if (r == 0 && (len != sizeof(msg) || msg.magic != MM_PROTO_MAGIC)) {
			message_close_fds(fds, n_fds);
			r = -EPROTO;
		}
		if (r == 0)
			r = xfer_on_message(x, &msg, fds, n_fds);
		if (r < 0) {
			mm_log(MM_LOG_ERROR, "xfer.message", "kind=%u id=%" PRIu64 " error=%s",
			       msg.kind, msg.id, strerror(-r));
			return r;
		}
	}
}

/*
 * In the order of proto.h: the ring's tail first, then the socket, then the ring up to that tail.
 */
static int jobs_take(struct mm_xfer *x)
{
	uint32_t ready = mm_ring_ready(&x->jobs);
	int r = xfer_drain_socket(x);

	while (r == 0 && ready-- > 0 && mm_xjobs_room(x)) {
		struct mm_msg msg;

		r = mm_ring_pop(&x->jobs, &msg);
		if (r == 0)
			mm_xjobs_add(x, &msg);
	}
	return r > 0 ? -EPROTO : r;
}

/* ---- the loop ---- */

/* Polls the gates that are due. Return: when to poll again at the latest. */
static uint64_t gates_poll(struct mm_xfer *x)
{
	uint64_t next_ns = UINT64_MAX;

	for (struct mm_xtenant *t = x->tenants; t; t = t->next) {
		uint64_t now_ns = mm_now_ns();
		uint64_t every_ns;

		if (!mm_xtenant_cycles(t))
			continue;
		every_ns = mm_xtenant_in_step(t) ? LOOK_BUSY_NS : LOOK_IDLE_NS;
		if (every_ns == LOOK_BUSY_NS || now_ns - t->polled_ns >= every_ns)
			mm_xtenant_poll(t, now_ns);
		next_ns = MM_MIN(next_ns, t->polled_ns + every_ns);
	}
	return next_ns;
}

static int xfer_wait(struct mm_xfer *x, uint64_t until_ns)
{
	struct pollfd pollfds[] = {
		{ .fd = x->fd, .events = POLLIN },
		{ .fd = mm_xreads_fd(&x->stage.reads), .events = POLLIN }, /* poll() skips fd -1 */
		{ .fd = x->watch_msg.kind ? -1 : mm_xwatch_fd(&x->watch), .events = POLLIN },
	};
	uint64_t now_ns = until_ns == UINT64_MAX ? 0 : mm_now_ns();
	struct timespec timeout = mm_timespec(until_ns > now_ns ? until_ns - now_ns : 0);

	if (ppoll(pollfds, MM_ARRAY_SIZE(pollfds), until_ns == UINT64_MAX ? NULL : &timeout, NULL) <
		    0 &&
	    errno != EINTR)
		return -errno;
	return 0;
}

/*
 * Reports tenants whose plans cannot be served any more, so that core ends them. A report for which
 * the socket has no room is sent by a later call.
 */
static void failures_report(struct mm_xfer *x)
{
	for (struct mm_xtenant *t = x->tenants; t; t = t->next) {
		struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
				       .kind = MM_X_FAILED,
				       .id = t->id,
				       .result = t->failure };

		if (!t->failure)
			continue;
		snprintf(msg.text, sizeof(msg.text), "a layer of it cannot be read from disk");
		if (mm_sock_send(x->fd, &msg, sizeof(msg), NULL, 0) == 0)
			t->failure = 0;
	}
}

/*
 * Sends the messages of the watch to core, in order; a message for which there is no room waits for
 * a later call.
 */
static void health_report(struct mm_xfer *x)
{
	while (x->watch_msg.kind || mm_xwatch_next(&x->watch, &x->watch_msg)) {
		if (mm_sock_send(x->fd, &x->watch_msg, sizeof(x->watch_msg), NULL, 0) < 0)
			return;
		x->watch_msg.kind = 0;
	}
}

static int xfer_serve(struct mm_xfer *x)
{
	while (!x->core_gone) {
		uint64_t look_ns, until_ns;
		bool moved;
		int r;

		r = jobs_take(x);
		if (r < 0)
			return r;
		moved = mm_xlink_run(&x->link);
		moved |= mm_xjobs_run(x);
		look_ns = gates_poll(x);
		/* Issues what the polls, jobs and landings have made due before the loop sleeps. */
		moved |= mm_xlink_run(&x->link);
		failures_report(x);
		health_report(x);
		/*
		 * A job may have been pushed after jobs_take() read the tail, and its doorbell
		 * drained already.
		 */
		if (moved || x->core_gone || (mm_ring_ready(&x->jobs) > 0 && mm_xjobs_room(x)))
			continue;
		until_ns = look_ns;
		if (mm_xlink_busy(&x->link) || !TAILQ_EMPTY(&x->running))
			until_ns = MM_MIN(until_ns, mm_now_ns() + LOOK_BUSY_NS);
		r = xfer_wait(x, until_ns);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the end ---- */

/* Cancels what waits and waits for what is on the device. False: the device does not answer. */
static bool device_drain(struct mm_xfer *x)
{
	uint64_t until_ns = mm_now_ns() + DRAIN_NS;
	struct mm_xjob *job;

	for (struct mm_xtenant *t = x->tenants; t; t = t->next)
		mm_xtenant_quiesce(t);
	TAILQ_FOREACH(job, &x->running, entry)
	if (job->transfer.landed && job->state == MM_XJOB_RUNNING)
		mm_xlink_cancel(&x->link, &job->transfer);
	while (mm_xlink_busy(&x->link) || x->stage.reading > 0 ||
	       x->dev.gpu.cuStreamQuery(x->dev.scrub) != CUDA_SUCCESS) {
		if (mm_now_ns() > until_ns)
			return false;
		(void)mm_xlink_run(&x->link);
		usleep(50);
	}
	return true;
}

static void xfer_tear_down(struct mm_xfer *x)
{
	while (x->tenants) {
		struct mm_xtenant *tenant = x->tenants;

		x->tenants = tenant->next;
		mm_xtenant_destroy(tenant);
	}
	while (x->swaps)
		mm_xswap_drop(&x->swaps, x->swaps);
	mm_xjobs_done(x);
	mm_xstores_done(&x->stores);
	mm_xlink_done(&x->link);
	mm_xstage_done(&x->stage);
	mm_xpool_done(&x->pool);
}

/* False: NVML hangs; the kernel frees what is left when the process exits. */
static bool xfer_close_all(struct mm_xfer *x)
{
	if (!mm_xwatch_done(&x->watch)) {
		mm_log(MM_LOG_WARN, "health.hung", "reason=\"NVML does not answer\"");
		return false;
	}
	mm_xdev_close(&x->dev);
	mm_region_done(&x->jobs_region);
	mm_region_done(&x->completions_region);
	close(x->fd);
	free(x);
	return true;
}

/* Each adopted page comes as an fd, 64 at a time, and a driver opens some of its own. */
static void xfer_raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	(void)prctl(PR_SET_TIMERSLACK, 1);
}

int mm_xfer_main(int fd)
{
	struct mm_xfer *x = calloc(1, sizeof(*x));
	int r;

	if (!x) {
		close(fd);
		return 1;
	}
	x->fd = fd;
	x->dev = MM_XDEV_NULL;
	x->stores.dev = &x->dev;
	x->stores.stage = &x->stage;
	x->jobs_region = x->completions_region = MM_REGION_NULL;
	xfer_raise_limits();
	x->watch = MM_XWATCH_NULL;
	r = core_handshake(x);
	if (r == 0) {
		/*
		 * Sent before any job: if a job fails for want of memory, core knows which
		 * processes hold it.
		 */
		mm_xwatch_read(&x->watch, &x->watch_msg);
		health_report(x);
		mm_xwatch_start(&x->watch);
		r = xfer_serve(x);
		/* A device that hangs would hang its teardown too; the kernel frees it at exit. */
		if (!device_drain(x))
			_exit(1);
	}
	xfer_tear_down(x);
	if (!xfer_close_all(x))
		_exit(r < 0 ? 1 : 0);
	return r < 0 ? 1 : 0;
}
