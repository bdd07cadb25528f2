/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf - a driver, a context and other processes, for all conformance programs
 *
 * Concept:   each program runs the same facts against the driver that MM_DRIVER names. On the
 *            software GPU it makes itself a device of its own. Code that needs another process, or
 *            would lose the context on hardware, runs in a role: the program started again, with
 *            one end of a socket pair. (A fork will not do: a driver does not survive it.)
 * Processes: each test is a process of its own, with a limit (run.c): one that hangs or loses its
 *            context does not affect the others. Its roles end with it.
 * Roles:     run before any cmocka; a failed check prints, and ends role and test. conf_join()
 *            returns any other status.
 * Facts:     how long something takes, or a choice that a driver may make, is no reason to fail:
 *            conf_fact() prints it, and adds it to the file that MM_CONF_FACTS names.
 */
#pragma once

#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "mm/gpu.h"

struct conf_role {
	const char *name;
	int (*run)(int sock); /* the exit status */
};

struct conf_peer {
	pid_t pid;
	int sock;
};

struct conf {
	struct mm_gpu_api gpu;
	bool software;
	bool is_long;             /* MM_TEST_LONG: more rounds, longer waits */
	CUcontext ctx;            /* the primary one, current; NULL in a role that made none */
	CUmemAllocationProp prop; /* device memory, exportable */
	size_t granule;
	/*
	 * The bytes that tests of accounting allocate. On hardware they are more than a context or
	 * another process changes the free bytes by, and half of them is the tolerance; on the
	 * software GPU the accounting is exact.
	 */
	size_t bulk, noise;
};

extern struct conf conf;

/* main() of a conformance program; 77 where the driver is not there. */
int conf_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests,
	      size_t n_tests, const struct conf_role *roles);

#define CONF_MAIN(name, tests, roles)                                                   \
	int main(int argc, char **argv)                                                 \
	{                                                                               \
		return conf_main(argc, argv, name, tests, MM_ARRAY_SIZE(tests), roles); \
	}

/* cuInit() only; and with the primary context current. */
void conf_init(void);
void conf_context(void);
/* The setup of nearly all tests: makes the context current, and creates it if it does not exist. */
int conf_set_up(void **state);

/* Fails the test, or the role, unless @result is @want. */
void conf_expect(CUresult result, CUresult want, const char *call, const char *file, int line);
void conf_check(bool holds, const char *what, const char *file, int line);
#define expect(call, want) conf_expect(call, want, #call, __FILE__, __LINE__)
#define ok(call)           expect(call, CUDA_SUCCESS)
#define check(holds)       conf_check(holds, #holds, __FILE__, __LINE__)

/* How roles end: a sanitizer's report, for one, has a code of its own. */
#define CONF_FAILED  70
#define CONF_SKIPPED 77

/* Leaves the test as skipped, with its reason. */
_Noreturn void conf_skip(const char *format, ...) MM_PRINTF(1, 2);

struct conf_peer conf_spawn(const char *role);
int conf_join(struct conf_peer *peer);
/* Like conf_join(), for at most @seconds. Return: -ETIMEDOUT, and the peer runs on. */
int conf_join_within(struct conf_peer *peer, unsigned int seconds);
void conf_kill(struct conf_peer *peer);
/* Joins; the test is skipped if the role was, and fails if it failed. */
void conf_finish(struct conf_peer *peer);

/* ---- Facts (facts.c) ---- */

/* The word of the JSON lines: program, test, fact, value, unit. Names: "map.2M", "free.back". */
void conf_fact(const char *name, const char *unit, double value);
void conf_fact_text(const char *name, const char *format, ...) MM_PRINTF(2, 3);
/* The name of a result, as conf_fact_text() takes it. */
void conf_fact_result(const char *name, CUresult result);
/* Median, 99th percentile (of 100 and more) and maximum, in microseconds; sorts @ns. */
void conf_fact_times(const char *name, uint64_t *ns, size_t n);
/* "2M", "64K", "1G" */
const char *conf_size(size_t bytes, char buffer[16]);
uint64_t conf_now_ns(void);
void conf_nap_ms(unsigned int ms);
/* For run.c: how a test went. */
void conf_fact_outcome(const char *test, const char *outcome, double seconds, const char *reason);
void conf_facts_begin(const char *program, const char *test);

/* One word, and a descriptor unless it is -1. */
void conf_send(int sock, uint64_t word, int fd);
/* 0 and -1 at the end of the connection. */
uint64_t conf_recv(int sock, int *ret_fd);

/* Shorthands that succeed or fail the test. */
CUmemGenericAllocationHandle conf_create(size_t bytes);
int conf_export(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle conf_import(int fd);
CUdeviceptr conf_reserve(size_t bytes);
void conf_map(CUdeviceptr va, size_t bytes, CUmemGenericAllocationHandle handle,
	      CUmemAccess_flags access);
void conf_access(CUdeviceptr va, size_t bytes, CUmemAccess_flags access);
/* A page of @bytes mapped for reading and writing, held by its mapping alone. */
CUdeviceptr conf_take(size_t bytes);
void conf_give(CUdeviceptr va, size_t bytes);
CUresult conf_try_access(CUdeviceptr va, size_t bytes, CUmemAccess_flags access);
size_t conf_free_bytes(void);
/* Whether @bytes are free, within the noise, before long: a driver may take its time. */
bool conf_comes_back(size_t bytes);
int conf_attribute(CUdevice_attribute attribute);

/* Device memory of zeros, of cuMemAlloc(); and what is in some. */
CUdeviceptr conf_zeroed(size_t bytes);
void conf_read(void *to, CUdeviceptr va, size_t bytes);

/* A shared mapping of a new memfd; *ret_fd may be NULL. */
void *conf_shared(size_t bytes, int *ret_fd);
void *conf_shared_from(int fd, size_t bytes, int prot);
/* A role's begin: takes memory of @bytes that the test sends with number 1, and registers it. */
void *conf_receive_shared(int sock, size_t bytes, CUdeviceptr *ret_va);
CUdeviceptr conf_register(void *addr, size_t bytes, unsigned int flags);
/* Skips the test, or the role, where the driver does not register what is only to be read. */
void conf_needs_read_only(void);
CUstream conf_stream(void);

/* ---- Kernels of the tests' own (kernels.h) ---- */

bool conf_has_kernels(void);
/* By name; the test is skipped where there is no module for this driver. */
CUfunction conf_kernel(const char *name);
/* @args is the kernel's one structure. */
void conf_launch(CUfunction function, unsigned int blocks, unsigned int threads, CUstream stream,
		 const void *args);
