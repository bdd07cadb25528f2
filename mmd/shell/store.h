/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store - host copies of models
 *
 * Concept:    A load (loads.h) fills a store with a model: a memfd or, where that does not fit
 *             into the host budget, a file in --store-dir (spools.h) and a memfd with its
 *             directory, which core checks and tenants map. A store is used only after its load was
 *             reaped, it was sealed and its directory was checked (dir.h). Stores belong to the
 *             node: all devices share them, and each device's xfer registers its own mapping with
 *             the driver.
 * Restart:    keeper holds the files of a store that is ready, and the book says what it is; one
 *             that is half filled goes with core, like its load.
 * Ownership:  a store is counted by its users: the load that fills it, loads that wait for it,
 *             sessions that use it. It is freed when the last one lets go.
 * Trust:      a load is hostile until its result was checked, with pread() into private memory
 *             (touching a mapping could fault).
 * Threading:  core's thread.
 * Limits:     MM_STORES_MAX; host-store-max is enforced before a memfd exists.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/core.h"
#include "mmd/common/loop.h"
#include "mmd/common/proto.h"
#include "mmd/shell/keys.h"
#include "mmd/shell/loads.h"

#define MM_STORES_MAX (MM_DEVICE_TENANTS_MAX * 2)

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
	uint64_t tensor_bytes;     /* bytes of all tensors, without padding */
	struct mm_keys_kept *keys; /* of all stores */
	struct mm_store_kept *kept;
};

/*
 * The part of a store that outlives core (kept.h): from when it is ready until nobody uses it. Its
 * groups are read again from its directory, which nobody can change.
 */
struct mm_store_kept {
	uint64_t id; /* 0 = free; stored last */
	uint64_t bytes, host_bytes, hugepage_bytes;
	uint64_t payer;
	uint32_t head_bytes;
	uint32_t flags;
	int32_t numa_node;
	uint32_t on_disk;
	uint8_t identity[32];
};

struct mm_stores_kept {
	uint64_t store_serial, load_serial; /* the last numbers used */
	uint64_t deaths;
	struct mm_store_kept store[MM_STORES_MAX];
	struct mm_keys_kept keys;
};

struct mm_stores {
	struct mm_store store[MM_STORES_MAX];
	struct mm_load load[MM_LOADS_MAX];
	struct mm_stores_kept *kept; /* its deaths: of loads that were killed or crashed */
	uint64_t bytes;              /* host memory of all stores */
};

/* The book exists. */
void mm_stores_init(struct mm_shell *shell);
void mm_stores_done(struct mm_shell *shell);

/*
 * Host memory that counts against the operator's budget: stores, and the rings for those on disk.
 */
uint64_t mm_stores_host_bytes(const struct mm_shell *shell);

/*
 * The node on which memory is requested when a tenant of @pool is the first to load a model; -1 =
 * any.
 */
int mm_store_node(const struct mm_pool *pool);

/**
 * mm_stores_resume() - take over the stores of a core that has died, and who uses them
 * @shell: has a book and an inventory
 *
 * A store whose files are not whole any more is left out, and its sessions end.
 */
void mm_stores_resume(struct mm_shell *shell);
/*
 * All that was under way is done: drops stores that nobody uses, and begins loads again that were
 * under way.
 */
void mm_stores_resume_end(struct mm_shell *shell);

/* Pages of a device that its groups take if no two of them share one. */
uint64_t mm_store_pages(const struct mm_store *store, uint64_t page_bytes);

/* A store by its id; NULL when there is none. */
struct mm_store *mm_store_find(struct mm_shell *shell, uint64_t id);

/* A store with the identity and the size of @want whose load has not failed; NULL: none. */
struct mm_store *mm_store_by_identity(struct mm_shell *shell, const struct mm_lmsg *want);

/* A new store without memory or file, with one reference; NULL: there are too many. */
struct mm_store *mm_store_new(struct mm_shell *shell, const struct mm_lmsg *want, int numa_node);

/* Drops a reference; the last one frees the store, and has xfers and the spool let go of it. */
void mm_store_put(struct mm_shell *shell, struct mm_store *store);

/*
 * Makes the memory of a new store. For a store on disk that is the head only: it is small, and must
 * end at a usual page. Return: 0; negative errno.
 */
int mm_store_fill_memory(struct mm_shell *shell, struct mm_store *store);

/*
 * Opens the file of @fd anew: such a descriptor counts among the file's writers, unlike the first
 * descriptor of a memfd. Return: the descriptor; -1 and errno.
 */
int mm_store_open_again(int fd, int flags);

/*
 * Seals and checks a store whose load was reaped: nobody can write to it afterwards, so the result
 * of the check stays true. Return: NULL; else what is wrong, a static string, and *ret_error:
 * -EBADMSG it is the load's fault; -ENOMEM, -EIO mmd lacks something.
 */
const char *mm_store_seal(struct mm_shell *shell, struct mm_store *store, int *ret_error);
