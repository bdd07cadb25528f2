/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core - plays core and keeper against a real xfer process, and a tenant's eyes on the device
 *
 * Concept:   xfer runs as a process of its own (this program again, with --xfer) on a software GPU
 *            in a directory of this test's own. The test holds what core and keeper hold: the
 *            rings, the pages' fds, the regions of one tenant. Reads of device memory go through
 *            the test's own driver, by importing the pages' fds as a tenant does. The environment's
 *            MM_TEST_TIER runs the same tests with the store on disk: staged by io_uring, or by a
 *            helper thread.
 * Threading: one thread, except where a test starts another.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "libclient/ipc/region.h"
#include "libclient/ipc/ring.h"
#include "libclient/protocol/xplan.h"
#include "libclient/base/base.h"
#include "mm/gpu.h"
#include "mmd/common/proto.h"

#define PAGES_MAX 128
#define GRANULE   UINT64_C(65536)
#define TENANT    7
#define STORE     3
#define WAIT_S    180 /* generous: sanitizers on a busy machine */

struct core {
	pid_t pid; /* of xfer; 0 = none */
	int sock;
	struct mm_region jobs, completions;
	struct mm_ring job_ring, completion_ring;
	struct mm_xmsg setup, hello;
	int page_fd[PAGES_MAX]; /* -1 = not there */
	uint32_t page_messages; /* page fds received, all told */
	struct mm_region store, gates, plan, cursors;
	int disk_fd; /* the store's file where MM_TEST_TIER says so; -1 = in memory */
	uint64_t next_job;
	struct mm_gpu_api gpu;
	CUdeviceptr view; /* every page that was looked at, at view + page * GRANULE */
	bool viewed[PAGES_MAX];
	uint64_t failed_tenant; /* that xfer cannot serve any more */
	int failed_result;
	uint32_t health[2]; /* looks, events */
	uint64_t last_xid;
	int gone;     /* why, as NVML has it; 0: it is not */
	bool may_die; /* xfer may: then it is an outcome, not a failed test */
	bool died;
};

/* Runs the role instead of the tests when this is the process that core_start() made. */
void core_main(int argc, char **argv);

/* A fresh device directory for every test; group setup and teardown of one test. */
int core_setup(void **state);
int core_teardown(void **state);

/* Starts xfer and sends SETUP; what it answers is in core->hello. */
void core_start(struct core *core);
/* SIGKILL, reaped. */
void core_kill(struct core *core);
/* Closes the socket and returns xfer's exit status. */
int core_end(struct core *core);
/* After a restart: pages, store, tenant as core would give them. */
void core_give_back(struct core *core);

uint64_t core_push(struct core *core, struct mm_msg msg);
/* Waits for the completion of one job, collecting pages; its result; -ECONNRESET: xfer died. */
int core_await(struct core *core, uint64_t job);
/* Push and wait; arguments in order. */
int core_do(struct core *core, enum mm_xop op, uint64_t epoch, uint64_t a, uint64_t b, uint64_t c,
	    uint64_t d);
/* Takes what is on the socket: pages. */
void core_collect(struct core *core);
void core_send(struct core *core, const struct mm_xmsg *msg, const int *fds, size_t n_fds);
void core_send_store(struct core *core);
void core_send_tenant(struct core *core);

/*
 * Creates the store: a sealed memfd of @bytes with pattern words; with MM_TEST_TIER=ring or =thread
 * also a file with the same, which is what xfer gets.
 */
void core_make_store(struct core *core, uint64_t bytes);
/*
 * A file without a name, of whole blocks, open for reading and, where that is possible, O_DIRECT.
 */
int core_make_file(const void *data, uint64_t bytes);
uint64_t core_pattern(uint64_t word);

/* Reads device bytes of a page, as its importer. */
void core_read(struct core *core, uint32_t page, uint64_t offset, void *buffer, size_t bytes);
void core_fill(struct core *core, uint32_t page, unsigned char value);
/* Bytes @from .. @to of a page are @value. */
void core_assert_bytes(struct core *core, uint32_t page, uint64_t from, uint64_t to,
		       unsigned char value);
