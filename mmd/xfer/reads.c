/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/reads.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"
#include "mmd/common/log.h"
#include "mmd/common/uring.h"

/* ---- the helper ---- */

static void *helper_run(void *arg)
{
	struct mm_xreads *reads = arg;

	pthread_mutex_lock(&reads->lock);
	while (!reads->ending) {
		struct mm_xread *read;
		uint32_t number;
		ssize_t n;

		if (reads->todo_head == reads->todo_tail) {
			pthread_cond_wait(&reads->work, &reads->lock);
			continue;
		}
		number = reads->todo[reads->todo_head++ % MM_XREADS_MAX];
		read = &reads->read[number];
		pthread_mutex_unlock(&reads->lock);
		n = pread(read->fd, read->to, read->bytes, (off_t)read->offset);
		read->result = n < 0 ? -errno : (int)n;
		pthread_mutex_lock(&reads->lock);
		reads->done[reads->done_tail++ % MM_XREADS_MAX] = number;
		(void)eventfd_write(reads->event_fd, 1);
	}
	pthread_mutex_unlock(&reads->lock);
	return NULL;
}

static int helper_start(struct mm_xreads *reads)
{
	sigset_t all, before;
	int r;

	reads->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (reads->event_fd < 0)
		return -errno;
	pthread_mutex_init(&reads->lock, NULL);
	pthread_cond_init(&reads->work, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&reads->thread, NULL, helper_run, reads);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r) {
		mm_close_fd(&reads->event_fd);
		return -r;
	}
	reads->way = MM_XREADS_THREAD;
	return 0;
}

static void helper_stop(struct mm_xreads *reads)
{
	pthread_mutex_lock(&reads->lock);
	reads->ending = true;
	pthread_cond_signal(&reads->work);
	pthread_mutex_unlock(&reads->lock);
	pthread_join(reads->thread, NULL);
	pthread_mutex_destroy(&reads->lock);
	pthread_cond_destroy(&reads->work);
	mm_close_fd(&reads->event_fd);
}

/* ---- ring or helper ---- */

/* Makes the ring. A restricted one can only read, whatever code runs in this process later. */
static int reads_ring_make(struct mm_xreads *reads, const struct iovec *buffers, unsigned int n,
			   bool restricted)
{
	struct io_uring *ring = &reads->ring;
	int r = io_uring_queue_init(MM_XREADS_MAX, ring, restricted ? IORING_SETUP_R_DISABLED : 0);

	if (r < 0)
		return r;
	/*
	 * RLIMIT_MEMLOCK may forbid pinning the buffers; the kernel then pins them for each read.
	 */
	reads->fixed_buffers = io_uring_register_buffers(ring, buffers, n) == 0;
	reads->fixed_files = io_uring_register_files_sparse(ring, MM_XREADS_FILES) == 0;
	r = restricted ? mm_uring_restrict(ring->ring_fd, reads->fixed_files) : 0;
	if (r < 0)
		io_uring_queue_exit(ring);
	else
		reads->way = MM_XREADS_RING;
	return r;
}

int mm_xreads_init(struct mm_xreads *reads, const struct iovec *buffers, unsigned int n)
{
	int r;

	reads->event_fd = -1;
	if (mm_fault("xfer.reads"))
		return -ENOMEM;
	if (mm_fault("xfer.ring"))
		return helper_start(reads);
	r = reads_ring_make(reads, buffers, n, true);
	if (r < 0) {
		r = reads_ring_make(reads, buffers, n, false);
		if (r == 0)
			mm_log(MM_LOG_INFO, "xfer.ring_open",
			       "reason=\"the kernel restricts no ring to reads\"");
	}
	return r < 0 ? helper_start(reads) : 0;
}

void mm_xreads_done(struct mm_xreads *reads)
{
	if (reads->way == MM_XREADS_RING)
		io_uring_queue_exit(&reads->ring);
	else if (reads->way == MM_XREADS_THREAD)
		helper_stop(reads);
	reads->way = MM_XREADS_NONE;
}

struct mm_xfile mm_xreads_file(struct mm_xreads *reads, int fd)
{
	struct mm_xfile file = { .fd = fd, .slot = -1 };

	for (int i = 0; reads->fixed_files && i < MM_XREADS_FILES && file.slot < 0; i++) {
		if (reads->slot_used[i])
			continue;
		if (io_uring_register_files_update(&reads->ring, (unsigned int)i, &fd, 1) != 1)
			break;
		reads->slot_used[i] = true;
		file.slot = i;
	}
	return file;
}

void mm_xreads_release_file(struct mm_xreads *reads, struct mm_xfile *file)
{
	const int none = -1;

	if (file->slot < 0)
		return;
	(void)io_uring_register_files_update(&reads->ring, (unsigned int)file->slot, &none, 1);
	reads->slot_used[file->slot] = false;
	file->slot = -1;
}

void mm_xreads_start(struct mm_xreads *reads, uint32_t number, const struct mm_xfile *file,
		     void *to, uint32_t bytes, uint64_t offset)
{
	struct io_uring_sqe *sqe;

	if (reads->way == MM_XREADS_THREAD) {
		pthread_mutex_lock(&reads->lock);
		reads->read[number] = (struct mm_xread){
			.fd = file->fd, .to = to, .bytes = bytes, .offset = offset
		};
		reads->todo[reads->todo_tail++ % MM_XREADS_MAX] = number;
		pthread_cond_signal(&reads->work);
		pthread_mutex_unlock(&reads->lock);
		return;
	}
	sqe = io_uring_get_sqe(&reads->ring);
	mm_assert(sqe != NULL); /* the ring has as many entries as buffers */
	if (reads->fixed_buffers)
		io_uring_prep_read_fixed(sqe, file->fd, to, bytes, offset, (int)number);
	else
		io_uring_prep_read(sqe, file->fd, to, bytes, offset);
	if (file->slot >= 0) {
		sqe->fd = file->slot;
		io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	}
	io_uring_sqe_set_data64(sqe, number);
}

void mm_xreads_submit(struct mm_xreads *reads)
{
	/* A read that is not submitted now stays in the queue for the next call. */
	if (reads->way == MM_XREADS_RING && io_uring_sq_ready(&reads->ring) > 0)
		(void)io_uring_submit(&reads->ring);
}

static int helper_next(struct mm_xreads *reads, uint32_t *ret_number, int *ret_result)
{
	eventfd_t count;
	int r = -EAGAIN;

	pthread_mutex_lock(&reads->lock);
	if (reads->done_head != reads->done_tail) {
		*ret_number = reads->done[reads->done_head++ % MM_XREADS_MAX];
		*ret_result = reads->read[*ret_number].result;
		r = 0;
	} else {
		(void)eventfd_read(reads->event_fd, &count);
	}
	pthread_mutex_unlock(&reads->lock);
	return r;
}

int mm_xreads_next(struct mm_xreads *reads, uint32_t *ret_number, int *ret_result)
{
	struct io_uring_cqe *cqe;

	if (reads->way == MM_XREADS_THREAD)
		return helper_next(reads, ret_number, ret_result);
	if (reads->way == MM_XREADS_NONE || io_uring_peek_cqe(&reads->ring, &cqe) < 0)
		return -EAGAIN;
	*ret_number = (uint32_t)io_uring_cqe_get_data64(cqe);
	*ret_result = cqe->res;
	io_uring_cqe_seen(&reads->ring, cqe);
	return 0;
}

int mm_xreads_fd(const struct mm_xreads *reads)
{
	switch (reads->way) {
	case MM_XREADS_RING:
		return reads->ring.ring_fd;
	case MM_XREADS_THREAD:
		return reads->event_fd;
	default:
		return -1;
	}
}
