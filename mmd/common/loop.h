/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop - one thread waits for many file descriptors
 *
 * Concept:    A source is an fd with a callback; it is embedded in the struct that owns the fd. The
 *             loop is level-triggered: a callback may do a bounded amount of work and return; it
 *             is called again while there is more.
 * Ownership:  the loop owns nothing but its epoll fd. A source must be deleted before its fd is
 *             closed; that is safe at any time, also from within another source's callback.
 * Threading:  one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "libclient/base/base.h"

#define MM_LOOP_BATCH 64

struct mm_loop_source {
	int fd;          /* -1 = not in the loop */
	uint32_t events; /* EPOLLIN, EPOLLOUT that are waited for */
	void (*ready)(struct mm_loop_source *source, uint32_t events);
};

struct mm_loop {
	int epoll_fd;
	int n_batch;
	struct epoll_event batch[MM_LOOP_BATCH];
};

#define MM_LOOP_NULL        ((struct mm_loop){ .epoll_fd = -1 })
#define MM_LOOP_SOURCE_NULL ((struct mm_loop_source){ .fd = -1 })

/* The struct that @source is embedded in. */
#define mm_loop_source_owner(source, type, member) \
	((type *)((char *)(source)-offsetof(type, member)))

int mm_loop_init(struct mm_loop *loop);
void mm_loop_done(struct mm_loop *loop);

/**
 * mm_loop_add() - wait for @fd
 * @loop:   any
 * @source: stays where it is until mm_loop_del()
 * @fd:     non-blocking, stays the caller's
 * @events: EPOLLIN, EPOLLOUT
 * @ready:  called when one of them, EPOLLHUP or EPOLLERR holds
 *
 * Return: 0; negative errno.
 */
int mm_loop_add(struct mm_loop *loop, struct mm_loop_source *source, int fd, uint32_t events,
		void (*ready)(struct mm_loop_source *source, uint32_t events));
void mm_loop_want(struct mm_loop *loop, struct mm_loop_source *source, uint32_t events);
void mm_loop_del(struct mm_loop *loop, struct mm_loop_source *source);

/**
 * mm_loop_run_once() - wait, then call what is ready
 * @loop:        any
 * @deadline_ns: CLOCK_MONOTONIC; returns then at the latest, rounded up to a millisecond
 *
 * Return: 0; negative errno when epoll itself failed.
 */
int mm_loop_run_once(struct mm_loop *loop, uint64_t deadline_ns);
