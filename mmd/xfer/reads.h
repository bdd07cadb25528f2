/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xreads - asynchronous reads from disk
 *
 * Concept:   A fixed set of buffers, at most one read under way in each. io_uring, with buffers and
 *            files registered where the kernel allows it; without io_uring (containers forbid it),
 *            a helper thread that calls pread(). ->way is which of the two: no caller chooses it.
 * Ownership: buffers and files are the caller's; a buffer with a read under way must stay.
 * Threading: one thread calls; the helper uses only members that the lock guards.
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
	int slot; /* in the ring's table of registered files; -1: not registered */
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
	int event_fd; /* the helper's: readable while a read of it is done */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	/* guarded by lock; the read that the helper works on is its own */
	struct mm_xread read[MM_XREADS_MAX];
	uint32_t todo[MM_XREADS_MAX], done[MM_XREADS_MAX]; /* rings of buffer numbers */
	uint32_t todo_head, todo_tail, done_head, done_tail;
	bool ending;
};

/**
 * mm_xreads_init() - make the io_uring, or start the helper
 * @reads:   zeroed
 * @buffers: one iovec each
 *
 * Return: 0; -ENOMEM, -EAGAIN neither was possible.
 */
int mm_xreads_init(struct mm_xreads *reads, const struct iovec *buffers, unsigned int n);
/* Waits for the reads that are under way. Accepts a zeroed @reads. */
void mm_xreads_done(struct mm_xreads *reads);

struct mm_xfile mm_xreads_file(struct mm_xreads *reads, int fd);
/* No read of @file may be under way. Its fd stays open. */
void mm_xreads_release_file(struct mm_xreads *reads, struct mm_xfile *file);

/* Reads into @to, which is inside buffer @number; that buffer has no read under way. */
void mm_xreads_start(struct mm_xreads *reads, uint32_t number, const struct mm_xfile *file,
		     void *to, uint32_t bytes, uint64_t offset);
/* Submits the reads that were started. */
void mm_xreads_submit(struct mm_xreads *reads);

/* Takes the next read that is done: bytes or negative errno. Return: 0; -EAGAIN none. */
int mm_xreads_next(struct mm_xreads *reads, uint32_t *ret_number, int *ret_result);

/* An fd that is readable when mm_xreads_next() has a result; -1: there is none. */
int mm_xreads_fd(const struct mm_xreads *reads);
