/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store - host copies of models, and the loads that fill them
 *
 * Concept:    A tenant requests a model; a load is started for it and gets the tenant's files on a
 *             channel of its own. The load reports the model's identity: a copy that exists is
 *             shared, one that another load is filling is waited for, else this load fills a new
 *             memfd. A copy is used only after its load was reaped, it was sealed and its directory
 *             was checked. A copy that does not fit into the host budget is a file in --store-dir
 *             (spools.h) and a memfd with its directory, which core checks and tenants map. Copies
 *             belong to the node: all devices share them, and each device's xfer registers its own
 *             mapping with the driver.
 * Ownership:  a store is counted by its users: the load that fills it, loads that wait for it,
 *             sessions that use it. It is freed when the last one lets go.
 * Trust:      load parses hostile files and counts as hostile until its result was checked, with
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
	int fd;      /* all of it; of a store on disk the directory only */
	/*
	 * A descriptor to write, for xfers that pin memory for writing; fd is read-only then. -1:
	 * the store is sealed, and fd serves all.
	 */
	int xfer_fd;
	bool open_for_xfer; /* xfer_fd is to be kept open when the load is done */
	bool on_disk;
	int disk_fd;         /* the whole file of a store on disk, read-only */
	uint32_t head_bytes; /* bytes of directory and tables */
	uint64_t bytes;
	uint64_t host_bytes;     /* host memory behind fd, in whole pages, that is charged */
	uint64_t hugepage_bytes; /* 0 = pages of the usual size */
	int numa_node;           /* node that memory was requested on; -1 = any */
	uint64_t payer;          /* account that is charged (quota.h) */
	uint8_t identity[32];
	uint32_t flags; /* MM_LOAD_F_* of the load that filled it */
	unsigned int refs;
	bool ready;  /* sealed and checked */
	bool failed; /* its load failed: no new user may join */
	uint32_t n_groups;
	struct mm_core_group *groups;
	uint64_t tensor_bytes; /* bytes of all tensors, without padding */
};

enum mm_load_state {
	MM_LOAD_FREE,
	MM_LOAD_STARTING, /* keeper was asked to start it */
	MM_LOAD_READING,  /* it parses the tenant's files */
	MM_LOAD_WAITING,  /* another load fills the same store */
	MM_LOAD_SPOOLING, /* a spool makes the file of its store */
	MM_LOAD_FILLING,
	MM_LOAD_SEALING, /* it was reaped; the spool checks whether anybody can still write */
	MM_LOAD_SHARING, /* it was sent that the copy exists */
	MM_LOAD_REFUSED, /* it was sent why it is refused */
};

struct mm_load {
	struct mm_shell *shell;
	enum mm_load_state state;
	uint64_t id;
	uint32_t tenant;  /* MM_STORE_NO_TENANT: the tenant is gone, the load is being killed */
	uint64_t account; /* the tenant's account, also when the tenant is gone */
	int fd;
	struct mm_loop_source source;
	struct mm_store *store;
	bool done;    /* it has sent DONE */
	int result;   /* from its DONE, or of the refusal */
	uint32_t why; /* enum mm_refusal */
	char text[MM_TEXT_BYTES];
};
#define MM_STORE_NO_TENANT UINT32_MAX

struct mm_stores {
	struct mm_store store[MM_STORES_MAX];
	struct mm_load load[MM_LOADS_MAX];
	uint64_t store_serial, load_serial;
	uint64_t bytes;  /* host memory of all stores */
	uint64_t deaths; /* loads that were killed or crashed */
};

void mm_stores_init(struct mm_shell *shell);
void mm_stores_done(struct mm_shell *shell);

/*
 * Starts a load for MODEL_OPEN of @session. Return: 0 the reply follows; negative errno for the
 * reply.
 */
int mm_store_open(struct mm_session *session);
/*
 * Kills the session's load and drops its reference to a store: at its end, or on MODEL_DROP of the
 * core.
 */
void mm_store_leave(struct mm_session *session);

/*
 * The spool has opened the file of store @id: @fds (taken over) to write and to read it. Or it
 * could not: @result and @text are the reason.
 */
void mm_store_spooled(struct mm_shell *shell, uint64_t id, int result, const char *text, int *fds);
/*
 * The spool has checked whether anybody can still write to store @id: @result is 0 if nobody can.
 */
void mm_store_sealed(struct mm_shell *shell, uint64_t id, int result, const char *text);

/*
 * Host memory that counts against the operator's budget: stores, and the rings for those on disk.
 */
uint64_t mm_stores_host_bytes(const struct mm_shell *shell);

/*
 * Messages of keeper: a load was started, with core's end and the tenant's (both taken over); a
 * load was reaped.
 */
void mm_load_started(struct mm_shell *shell, uint64_t id, int fd, int tenant_fd);
void mm_load_gone(struct mm_shell *shell, uint64_t id, int status);

/*
 * The node on which memory is requested when a tenant of @pool is the first to load a model; -1 =
 * any.
 */
int mm_store_node(const struct mm_pool *pool);

struct mm_store *mm_store_find(struct mm_shell *shell, uint64_t id);
