/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf - what the conformance programs share: a driver, a context, other processes
 *
 * Concept:   each program runs the same facts against the driver that MM_DRIVER names. On the
 *            software GPU it makes itself a device of its own. Whatever needs another process, or
 *            would kill the context on hardware, runs in a role: the program started again, with
 *            one end of a socket pair. (A fork will not do: a driver does not survive it.)
 * Roles:     run before any cmocka; a failed check prints and exits 1. conf_join() gives the status.
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

#include "mm/base.h"
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
	CUcontext ctx;            /* the primary one, current; NULL in a role that made none */
	CUmemAllocationProp prop; /* device memory, exportable */
	size_t granule;
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

/* Fails the test, or the role, unless @result is @want. */
void conf_expect(CUresult result, CUresult want, const char *call, const char *file, int line);
void conf_check(bool holds, const char *what, const char *file, int line);
#define expect(call, want) conf_expect(call, want, #call, __FILE__, __LINE__)
#define ok(call)           expect(call, CUDA_SUCCESS)
#define check(holds)       conf_check(holds, #holds, __FILE__, __LINE__)

struct conf_peer conf_spawn(const char *role);
int conf_join(struct conf_peer *peer);
void conf_kill(struct conf_peer *peer);

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
CUresult conf_try_access(CUdeviceptr va, size_t bytes, CUmemAccess_flags access);
size_t conf_free_bytes(void);

/* A shared mapping of a new memfd; *ret_fd may be NULL. */
void *conf_shared(size_t bytes, int *ret_fd);
void *conf_shared_from(int fd, size_t bytes, int prot);
CUdeviceptr conf_register(void *addr, size_t bytes, unsigned int flags);
CUstream conf_stream(void);
