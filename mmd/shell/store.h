/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store - host copies of models, and the loads that fill them
 *
 * Concept:    A tenant asks for a model; a load is started for it and gets the tenant's files on a
 *             channel of its own. It says the model's identity: a copy that exists is shared, one
 *             that is being filled by another load is waited for, else the load fills a new memfd.
 *             A copy is believed only after its load was reaped, it was sealed and its directory
 *             checked. What does not fit into the host budget lies in a file in --store-dir
 *             (spools.h); its directory is a memfd of its own, which core checks and tenants map.
 *             Copies are the node's: all devices share them, and each device's xfer registers its
 *             own mapping of a copy with the driver.
 * Ownership:  a store belongs to those who refer to it: the load that fills it, loads that wait for
 *             it, sessions that use it. The last one gone, it is gone.
 * Trust:      load parses hostile files and is hostile itself until its result was checked, with
 *             pread() into private memory (touching a mapping could fault).
 * Threading:  core's thread.
 * Limits:     one load per session, MM_LOADS_MAX in all; host-store-max is enforced before a memfd
 *             exists.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/core.h"
#include "mmd/common/loop.h"
#include "mmd/common/proto.h"

#define MM_STORES_MAX (MM_DEVICE_TENANTS_MAX * 2)
#define MM_LOADS_MAX  64 /* keeper runs no more at once */

struct mm_pool;
struct mm_shell;
struct mm_session;

struct mm_store {
	uint64_t id; /* 0 = free */
	int fd;      /* memory: all of it; on disk: the directory only */
	/*
	 * Memory whose xfers pin it for writing: their fd; fd is to read then. -1: sealed for all.
	 */
	int xfer_fd;
	bool open_for_xfer; /* there will be one */
	bool on_disk;
	int disk_fd;         /* on disk: all of it, to read */
	uint32_t head_bytes; /* directory and tables */
	uint64_t bytes;
	uint64_t host_bytes;     /* charged: of fd, in whole pages */
	uint64_t hugepage_bytes; /* 0 = pages of the usual size */
	int numa_node;           /* asked for; -1 = any */
	uint64_t payer;          /* account (quota.h) */
	uint8_t identity[32];
	uint32_t flags; /* MM_LOAD_F_* of the load that filled it */
	unsigned int refs;
	bool ready;  /* sealed and checked */
	bool failed; /* its load died or lied: not for new ones */
	uint32_t n_groups;
	struct mm_core_group *groups;
	uint64_t tensor_bytes; /* of all tensors, without padding */
};

enum mm_load_state {
	MM_LOAD_FREE,
	MM_LOAD_STARTING, /* keeper was asked */
	MM_LOAD_READING,  /* parses the tenant's files */
	MM_LOAD_WAITING,  /* another load fills the same store */
	MM_LOAD_SPOOLING, /* a file is being made for it */
	MM_LOAD_FILLING,
	MM_LOAD_SEALING, /* reaped; the spool looks whether anybody can still write */
	MM_LOAD_SHARING, /* was told that the copy exists */
	MM_LOAD_REFUSED, /* was told why not */
};

struct mm_load {
	struct mm_shell *shell;
	enum mm_load_state state;
	uint64_t id;
	uint32_t tenant;  /* MM_STORE_NO_TENANT: it is gone, the load is being killed */
	uint64_t account; /* of the tenant, also when that is gone */
	int fd;
	struct mm_loop_source source;
	struct mm_store *store;
	bool done;    /* it said so */
	int result;   /* of it */
	uint32_t why; /* enum mm_refusal */
	char text[MM_TEXT_BYTES];
};
#define MM_STORE_NO_TENANT UINT32_MAX

struct mm_stores {
	struct mm_store store[MM_STORES_MAX];
	struct mm_load load[MM_LOADS_MAX];
	uint64_t store_serial, load_serial;
	uint64_t bytes;  /* of host memory, of all stores */
	uint64_t deaths; /* of loads that were killed or crashed */
};

void mm_stores_init(struct mm_shell *shell);
void mm_stores_done(struct mm_shell *shell);

/* MODEL_OPEN of @session. Return: 0 the reply follows; negative errno for the reply. */
int mm_store_open(struct mm_session *session);
/* The session ends: kill its load, drop its reference. Also when the core says MODEL_DROP. */
void mm_store_leave(struct mm_session *session);

/* Spool: it has a file, @fds (taken over) to write and to read it; or has none, and why. */
void mm_store_spooled(struct mm_shell *shell, uint64_t id, int result, const char *text, int *fds);
/* Nobody can write it any more; or somebody can. */
void mm_store_sealed(struct mm_shell *shell, uint64_t id, int result, const char *text);

/* Host memory that the operator's budget counts: stores, and the rings for those on disk. */
uint64_t mm_stores_host_bytes(const struct mm_shell *shell);

/* Keeper: started, with core's end and the tenant's (both taken over); reaped. */
void mm_load_started(struct mm_shell *shell, uint64_t id, int fd, int tenant_fd);
void mm_load_gone(struct mm_shell *shell, uint64_t id, int status);

/* Where memory is asked for when a tenant of @pool is the first to load a model; -1 = anywhere. */
int mm_store_node(const struct mm_pool *pool);

struct mm_store *mm_store_find(struct mm_shell *shell, uint64_t id);

/**
 * mm_dir_check() - a store's directory, as a hostile load may have written it
 * @fd:         the sealed store
 * @store:      its size and identity as announced
 * @ret_groups: malloc'ed, written only on success
 * @ret_n:      of @ret_groups
 * @ret_tensor_bytes: of all tensors, without padding; to be shown only
 *
 * Return: NULL; else what is wrong, a static string.
 */
const char *mm_dir_check(int fd, const struct mm_store *store, struct mm_core_group **ret_groups,
			 uint32_t *ret_n, uint64_t *ret_tensor_bytes);
