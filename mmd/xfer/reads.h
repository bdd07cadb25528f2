/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xreads - reads from disk that nobody waits for
 *
 * Concept:   A fixed set of buffers, at most one read under way in each. io_uring, with buffers and
 *            files registered where the kernel lets us; where there is no io_uring (containers
 *            forbid it), a thread that calls pread(). Which of the two is reported, not chosen.
 * Ownership: buffers and files are the caller's; a buffer with a read under way must stay.
 * Threading: one thread calls; the helper touches only what the lock guards.
 * Limits:    MM_XREADS_MAX buffers, MM_XREADS_FILES registered files; more files work unregistered.
 */
#pragma once

#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define MM_XREADS_MAX   64
#define MM_XREADS_FILES 128

enum mm_xreads_way { MM_XREADS_NONE, MM_XREADS_RING, MM_XREADS_THREAD };

struct mm_xfile {
	int fd;
	int slot; /* registered as; -1 = not */
};

struct mm_xread {
	int fd;
	void *to;
	uint64_t offset;
	uint32_t bytes;
	int result;
};

struct mm_xreads {
	enum mm_xreads_way way;
	struct io_uring ring;
	bool fixed_buffers, fixed_files;
	bool slot_used[MM_XREADS_FILES];
	int event_fd; /* of the helper: readable while something is done */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	/* guarded by lock */
	struct mm_xread read[MM_XREADS_MAX];
	uint32_t todo[MM_XREADS_MAX], done[MM_XREADS_MAX]; /* rings of buffer numbers */
	uint32_t todo_head, todo_tail, done_head, done_tail;
	bool ending;
};

/**
 * mm_xreads_init() - make the ring, or start the helper
 * @reads:   zeroed
 * @buffers: @n of them
 *
 * Return: 0; -ENOMEM, -EAGAIN neither could be had.
 */
int mm_xreads_init(struct mm_xreads *reads, const struct iovec *buffers, unsigned int n);
/* Waits for the reads that are under way. Accepts a zeroed one. */
void mm_xreads_done(struct mm_xreads *reads);

struct mm_xfile mm_xreads_file(struct mm_xreads *reads, int fd);
/* No read of it may be under way. Its fd stays open. */
void mm_xreads_forget(struct mm_xreads *reads, struct mm_xfile *file);

/* Reads into @to, inside buffer @number, which has no read under way. */
void mm_xreads_start(struct mm_xreads *reads, uint32_t number, const struct mm_xfile *file,
		     void *to, uint32_t bytes, uint64_t offset);
/* Sends what was started. */
void mm_xreads_submit(struct mm_xreads *reads);

/* The next read that is over: bytes or negative errno. Return: 0; -EAGAIN none. */
int mm_xreads_next(struct mm_xreads *reads, uint32_t *ret_number, int *ret_result);

/* Readable when mm_xreads_next() has something; -1 = none. */
int mm_xreads_fd(const struct mm_xreads *reads);
