/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw - a connection to mmd by hand, which may lie
 *
 * Concept:   The bytes of abi.h and nothing else: no check of what is sent, no thread, no cleaning
 *            up behind the caller. What libclient would never do is what this is for.
 * Ownership: mm_raw_done() closes and unmaps everything, also of a zeroed or half-built one.
 * Threading: one thread. A process that forks shares the connection with its child.
 * Errors:    negative errno; nothing is printed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"

#define MM_RAW_FDS_MAX 4096
#define MM_RAW_WAIT_NS UINT64_C(20000000000) /* generous: mmd may be busy, stopped, or restarting */

struct mm_raw {
	int sock;
	struct mm_tenant_region *tenant; /* NULL: not welcomed */
	struct mm_mmd_region *mmd;
	struct mm_gate_region *gates;
	struct mm_welcome welcome;
	uint32_t tail, head; /* of requests, of events */
	int fd[MM_RAW_FDS_MAX];
	uint32_t page[MM_RAW_FDS_MAX]; /* the page behind fd[i]; UINT32_MAX: it is no page */
	uint32_t n_fds;
	uint64_t batches;          /* number of the last batch that came */
	bool ended;                /* mmd has ended the connection */
	char reason[MM_END_BYTES]; /* and said so, or "" */
	uint64_t owes_ack;         /* the batch that it acknowledges next; 0: none */
	bool acks;                 /* each batch is acknowledged when it comes */
	uint64_t operations;       /* messages sent and requests pushed */
};

/* An mm_hello that mmd takes. */
void mm_raw_hello(struct mm_hello *ret_hello, const char *name, uint64_t features);

/* Connects. Return: 0; negative errno. */
int mm_raw_connect(struct mm_raw *raw, const char *path);

/* Sends bytes as one message. Return: 0; negative errno. */
int mm_raw_send(struct mm_raw *raw, const void *bytes, size_t n);

/* Sends bytes with fds. Return: 0; negative errno: -EPERM the kernel refuses it. */
int mm_raw_send_fds(struct mm_raw *raw, const void *bytes, size_t n, const int *fds, size_t n_fds);

/*
 * Waits for the welcome and maps the regions. Return: 0; the refusal, with welcome.reason;
 * -ECONNRESET there was none; -ETIMEDOUT.
 */
int mm_raw_welcome(struct mm_raw *raw);

/* Connects, says hello and is welcomed. Return: as mm_raw_welcome(). */
int mm_raw_open(struct mm_raw *raw, const char *path, const char *name, uint64_t features);
void mm_raw_done(struct mm_raw *raw);

/* Rings the doorbell; a full socket is one that has been rung. */
void mm_raw_bell(struct mm_raw *raw);

/* Writes a request into the ring and publishes it, without a doorbell. */
void mm_raw_put(struct mm_raw *raw, const struct mm_msg *msg);

/*
 * Waits for room, ringing the doorbell meanwhile, writes a request, and rings. 0; -ECONNRESET;
 * -ETIMEDOUT.
 */
int mm_raw_push(struct mm_raw *raw, const struct mm_msg *msg);

/* mm_raw_push() of an opcode and up to four arguments. */
int mm_raw_op(struct mm_raw *raw, enum mm_op op, uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* Takes what lies in the socket: doorbells, fds, last words. Never waits. */
void mm_raw_drain(struct mm_raw *raw);

/* Return: 1 an event; 0 there is none now. */
int mm_raw_pop(struct mm_raw *raw, struct mm_msg *ret_event);

/* Waits for an event. Return: 0; -ECONNRESET the connection has ended; -ETIMEDOUT. */
int mm_raw_next(struct mm_raw *raw, struct mm_msg *ret_event, uint64_t timeout_ns);

/* Waits for the event of that kind, passing over others. Return: as mm_raw_next(). */
int mm_raw_await(struct mm_raw *raw, enum mm_ev kind, struct mm_msg *ret_event,
		 uint64_t timeout_ns);

/* Waits until mmd ends the connection. Return: 0; -ETIMEDOUT. */
int mm_raw_await_end(struct mm_raw *raw, uint64_t timeout_ns);

/*
 * Asks something that changes nothing and waits for the answer. Return: 0: mmd serves this
 * connection; -ECONNRESET it has ended it; -ETIMEDOUT.
 */
int mm_raw_ping(struct mm_raw *raw, uint64_t timeout_ns);

/* Declares so many chunks of a page each and waits until all are granted. Return: 0; negative. */
int mm_raw_take_pages(struct mm_raw *raw, uint32_t pages, uint64_t timeout_ns);

/* Closes the fds of one page. */
void mm_raw_drop_page(struct mm_raw *raw, uint32_t page);

/* Closes the fds that came. */
void mm_raw_drop_fds(struct mm_raw *raw);

/* Says BYE and waits for the answer, without fds that it was sent. */
void mm_raw_bye(struct mm_raw *raw);

/* Tries to make its mapping of mmd's region writable. Return: 0 it is; negative errno. */
int mm_raw_protect_mmds(struct mm_raw *raw);
