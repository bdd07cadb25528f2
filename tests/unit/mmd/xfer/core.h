/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core - plays core and keeper against a real xfer process, and reads the device as a tenant
 *
 * Concept:   xfer runs as a process of its own (this program again, with --xfer) on a software GPU
 *            in a directory of this test's own. The test holds what core and keeper hold: the
 *            rings, the pages' fds, the regions of one tenant. Reads of device memory go through
 *            the test's own driver, by importing the pages' fds as a tenant does. With MM_TEST_TIER
 *            in the environment the store is on disk: staged by io_uring, or by a helper thread.
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
#define WAIT_S    180 /* generous, for sanitizers on a busy machine */

struct core {
	pid_t pid; /* process of xfer; 0: none */
	int sock;
	struct mm_region jobs, completions;
	struct mm_ring job_ring, completion_ring;
	struct mm_xmsg setup, hello;
	int page_fd[PAGES_MAX]; /* -1: the page has no fd */
	uint32_t page_messages; /* number of page fds received */
	struct mm_region store, gates, plan, cursors;
	int disk_fd; /* the store's file if MM_TEST_TIER is set; -1: in memory */
	uint64_t next_job;
	struct mm_gpu_api gpu;
	CUdeviceptr view; /* mapping of every page that was read, at view + page * GRANULE */
	bool viewed[PAGES_MAX];
	uint64_t failed_tenant; /* tenant that xfer can no longer serve */
	int failed_result;
	uint32_t health[2]; /* numbers of reports of its state, of events */
	uint64_t last_xid;
	int gone;     /* NVML's reason for the loss of the device; 0: not lost */
	bool may_die; /* xfer may die: that is an outcome, not a failed test */
	bool died;
};

/* Runs the role instead of the tests when this is the process that core_start() made. */
void core_main(int argc, char **argv);

/* Group setup and teardown of one test, with a fresh device directory. */
int core_setup(void **state);
int core_teardown(void **state);

/* Starts xfer and sends SETUP; the answer is in core->hello. */
void core_start(struct core *core);
/* Kills xfer by SIGKILL and reaps it. */
void core_kill(struct core *core);
/* Closes the socket and returns xfer's exit status. */
int core_end(struct core *core);
/* After a restart: sends pages, store and tenant, as core would. */
void core_give_back(struct core *core);
/* Kills xfer, and starts another as core would. */
void core_restart(struct core *core);

uint64_t core_push(struct core *core, struct mm_msg msg);
/*
 * Waits for the completion of one job, collecting pages. Return: its result; -ECONNRESET: xfer
 * died.
 */
int core_await(struct core *core, uint64_t job);
/* Pushes a job and waits for it; arguments in order. */
int core_do(struct core *core, enum mm_xop op, uint64_t epoch, uint64_t a, uint64_t b, uint64_t c,
	    uint64_t d);
/* Receives the messages on the socket: pages. */
void core_collect(struct core *core);
void core_send(struct core *core, const struct mm_xmsg *msg, const int *fds, size_t n_fds);
void core_send_store(struct core *core);
void core_send_tenant(struct core *core);

/*
 * Creates the store: a sealed memfd of @bytes with pattern words; with MM_TEST_TIER=ring or =thread
 * also a file with the same bytes, which is sent to xfer.
 */
void core_make_store(struct core *core, uint64_t bytes);
/*
 * Creates a file without a name, of whole blocks, open for reading, if possible with O_DIRECT.
 */
int core_make_file(const void *data, uint64_t bytes);
uint64_t core_pattern(uint64_t word);

/* Reads device bytes of a page, as its importer. */
void core_read(struct core *core, uint32_t page, uint64_t offset, void *buffer, size_t bytes);
/* True if @pages, from their begin on, have @bytes of the store from @offset on. */
bool core_pages_hold(struct core *core, const uint32_t *pages, uint64_t offset, uint64_t bytes);
void core_fill(struct core *core, uint32_t page, unsigned char value);
/* Bytes @from .. @to of a page are @value. */
void core_assert_bytes(struct core *core, uint32_t page, uint64_t from, uint64_t to,
		       unsigned char value);
