/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proto - what mmd's own roles say to each other on their sockets
 *
 * Concept:   keeper <-> core: one SOCK_SEQPACKET pair; struct mm_kmsg, fds attached. core <-> xfer,
 *            of which there is one per device: one SOCK_SEQPACKET pair for struct mm_xmsg with fds
 *            and doorbells. The jobs, plans and cursors beside it: libclient/protocol/xplan.h. core
 *            <-> load: one SOCK_SEQPACKET pair; struct mm_lmsg. Only core attaches fds there. core
 *            <-> spool: one SOCK_SEQPACKET pair; struct mm_smsg. Only spool attaches fds there.
 * Trust:     core believes keeper. xfer and load are checked like peers: load parses hostile files.
 * Ordering:  core sends a message with fds before it pushes the ring entry that needs it; xfer
 *            takes the ring's tail, then drains the socket, then works off the ring up to that
 *            tail.
 * Lifetime:  roles are started by keeper with their end of each pair as fd 3 (load: 4 = the
 *            tenant's). End of file on a pair means that the other role is dead or dying.
 */
#pragma once

#include "mm/abi.h"

#define MM_PROTO_MAGIC        UINT32_C(0x50524d4d) /* "MMRP" */
#define MM_ROLE_FD            3
#define MM_ROLE_LOAD_FD       4
#define MM_TEXT_BYTES         224
#define MM_DEVICES_MAX        8  /* that one mmd manages */
#define MM_UUID_WORD_BYTES    48 /* "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", or the beginning */
#define MM_DEVICE_TENANTS_MAX 64 /* of a device, in mmd; the core holds more */
#define MM_HELLOS_MAX         32 /* connections that have not been welcomed yet */
#define MM_SESSIONS_MAX       (MM_DEVICES_MAX * MM_DEVICE_TENANTS_MAX + MM_HELLOS_MAX)

#define MM_CHUNK_BYTES_DEFAULT (UINT64_C(16) << 20) /* of a streaming copy */

/* What a buffer for a chunk takes of the stage: whole blocks, wherever in one the chunk begins. */
#define MM_STAGE_BLOCK_BYTES UINT64_C(4096)
#define MM_STAGE_BUFFER_BYTES(chunk) \
	(((chunk) + 2 * MM_STAGE_BLOCK_BYTES - 1) / MM_STAGE_BLOCK_BYTES * MM_STAGE_BLOCK_BYTES)
#define MM_STAGE_BUFFERS_MIN     2
#define MM_STAGE_BUFFERS_MAX     64
#define MM_STAGE_BUFFERS_DEFAULT 4

/* ---- keeper <-> core ---- */

enum mm_kop {
	MM_K_TENANT = 1, /* keeper -> core: an accepted tenant connection (1 fd) */
	MM_K_ADMIN,      /* keeper -> core: an accepted admin connection (1 fd) */
	MM_K_STARTED, /* keeper -> core: role, id, pid; fds: core's end (load: + the tenant's end) */
	MM_K_GONE,    /* keeper -> core: role, id; reaped; result = wait status */
	MM_K_START,   /* core -> keeper: role, id (xfer: refused while the device's lives) */
	MM_K_KILL,    /* core -> keeper: role, id: SIGKILL; MM_K_GONE follows */
	MM_K_READY, /* core -> keeper: the pool stands, tenants may be accepted; xfer: it is proven */
	MM_K_STOP, /* either way: orderly end */
	MM_K_LOCK, /* core -> keeper: the lock of device, to be held (2 fds at most); text: the UUID;
		    * result: 1: the last fd is the lock's file */
	MM_K_DOWN,  /* keeper -> core: xfer of device fails again and again; it goes on trying
		    * core -> keeper: the device is lost */
	MM_K_CLOSE, /* core -> keeper: a connection that has ended, with passed fds in it (1 fd): its
		     * close may sleep, so it is nobody's who is needed */
	MM_K_CLOSED, /* core -> keeper: of those so far core has no copy any more */
};

enum mm_role { MM_ROLE_CORE = 1, MM_ROLE_XFER, MM_ROLE_LOAD, MM_ROLE_SPOOL, MM_ROLE_LOG };

struct mm_kmsg {
	uint32_t magic;
	uint32_t op;   /* enum mm_kop */
	uint32_t role; /* enum mm_role */
	int32_t result;
	uint64_t id; /* xfer: its epoch, from 1; load: the load's id; spool: the store's */
	int64_t pid;
	uint32_t device; /* xfer: index in the configuration's list */
	uint32_t reserved;
	char text[MM_TEXT_BYTES];
};
static_assert(sizeof(struct mm_kmsg) == 264, "ABI");

/* ---- core <-> xfer: socket ---- */

enum mm_xkind {
	MM_X_SETUP = 1, /* core -> xfer: first message; 2 fds: job memfd, completion memfd */
	MM_X_HELLO, /* xfer -> core: device facts, or result and text; the device's lock (2 fds at most) */
	MM_X_PAGES,  /* either way: page fds: xfer -> core created; core -> xfer adopt (restart) */
	MM_X_TENANT, /* core -> xfer: 3 fds: gate, plan, cursor memfd of tenant id */
	MM_X_STORE,  /* core -> xfer: 1 fd: store id; bytes; flags */
	MM_X_FAILED, /* xfer -> core: tenant id cannot be served any more: result, text */
	MM_X_SWAP,   /* core -> xfer: 1 fd: swap space of tenant id; bytes; goes with DETACH */
	MM_X_HEALTH, /* xfer -> core: id: enum mm_xhealth_kind */
};

enum mm_xhealth_kind {
	MM_XHEALTH_LOOK = 1, /* health: how the device is now */
	MM_XHEALTH_EVENT,    /* bytes: NVML's event type (kernels/driver/nvml.h); pages: the Xid */
	MM_XHEALTH_GONE, /* result: why NVML does not reach the GPU any more, its nvmlReturn_t */
};

#define MM_XHEALTH_SEEN           1u /* NVML shows the device */
#define MM_XHEALTH_EVENTS         2u /* and tells events */
#define MM_XHEALTH_MIG            4u /* it is a MIG instance */
#define MM_XHEALTH_REPAIR_PENDING 8u /* rows or pages wait for a reset of the GPU */
#define MM_XHEALTH_REPAIR_FAILED  16u
#define MM_XHOLDERS               6

struct mm_xholder {
	uint32_t pid;
	uint32_t reserved;
	uint64_t bytes; /* 0: not told */
	char name[16];  /* of the process */
};

struct mm_xhealth {
	uint64_t total_bytes; /* 0: not told */
	uint64_t free_bytes, used_bytes;
	uint32_t flags; /* MM_XHEALTH_* */
	uint32_t n_holders;
	struct mm_xholder holder[MM_XHOLDERS]; /* of memory, the most first; ours too */
};

/* What HELLO says beside the numbers. */
#define MM_XFACT_HOST_READ_ONLY 1u /* registers read-only host memory */
#define MM_XFACT_GPUDIRECT      2u /* pages are made so that network cards can read them */
#define MM_XFACT_WAIT_NOR       4u /* streams can wait for NOR */
#define MM_XFACT_MPS            8u /* under MPS */
#define MM_XFACT_ECC            16u
#define MM_XFACT_INTEGRATED     32u

struct mm_xfacts {
	uint32_t driver_version; /* cuDriverGetVersion() */
	uint32_t attributes;     /* MM_XFACT_* */
	uint32_t capability;     /* major * 10 + minor */
	uint32_t reserved;
};

#define MM_HEADROOM_BY_DEVICE (UINT64_C(1) << 50) /* the largest that --headroom takes */

struct mm_xmsg {
	uint32_t magic;
	uint32_t kind;
	int32_t result;
	uint32_t count;      /* of fds */
	uint64_t id;         /* TENANT, STORE; SETUP: device ordinal; HELLO: enum mm_driver_kind */
	uint64_t page_bytes; /* SETUP: wanted, 0 = default; HELLO: chosen */
	uint64_t pages;      /* SETUP: wanted, 0 = from bytes; HELLO: chosen */
	uint64_t bytes; /* STORE; SETUP: of the pool, 0 = all but headroom; HELLO: device total */
	uint64_t chunk_bytes; /* SETUP: of a streaming copy, 0 = 16 MiB */
	uint64_t
		headroom_bytes; /* SETUP: left to contexts and workspaces when pages and bytes are 0; or MM_HEADROOM_BY_DEVICE */
	uint8_t device_uuid[16];
	uint64_t stage_bytes; /* SETUP: of the ring for stores on disk, 0 = none; HELLO: it takes */
	int32_t numa_node;    /* SETUP: for the ring; HELLO: of the device; -1 = any, not known */
	uint32_t flags;       /* STORE, HELLO: MM_X_F_* */
	char text[MM_TEXT_BYTES]; /* SETUP: driver name; HELLO: device name or error */
	union {
		uint32_t page_id[MM_FD_BATCH_MAX]; /* PAGES */
		struct mm_xhealth health;          /* HEALTH */
		struct mm_xfacts facts;            /* HELLO */
		char wanted[MM_UUID_WORD_BYTES]; /* SETUP: GPU-…, MIG-…; "": the ordinal in id */
	};
};
static_assert(sizeof(struct mm_xhealth) <= 4 * MM_FD_BATCH_MAX, "ABI");
static_assert(sizeof(struct mm_xmsg) == 96 + MM_TEXT_BYTES + 4 * MM_FD_BATCH_MAX, "ABI");

#define MM_X_F_DISK      1u /* STORE: a file to be staged, not a memfd to be mapped */
#define MM_X_F_PREAD     2u /* HELLO: staged by a helper thread: io_uring is not available */
#define MM_X_F_LOCKED    4u /* SETUP: keeper holds the device's lock already */
#define MM_X_F_LOCK_FILE 8u /* HELLO: the last of its fds is the lock's file */

/* ---- core <-> load ---- */

enum mm_lop {
	MM_L_IDENT = 1, /* load -> core: the files parse; identity, sizes: struct mm_lident */
	MM_L_ALLOC, /* core -> load: 1 fd: an empty memfd of store_bytes: fill it, mbind to numa_node;
		     * 2 fds: a memfd of head_bytes for the directory, a file of store_bytes for the rest */
	MM_L_HAVE, /* core -> load: the host copy exists already: tell the tenant, DONE */
	MM_L_REFUSE, /* core -> load: larger than pool, account or budget; result, text: tell the tenant, exit */
	MM_L_DONE, /* load -> core: filled (valid once load is reaped), or result and text */
};

struct mm_lmsg {
	uint32_t magic;
	uint32_t op;
	int32_t result;
	uint32_t flags; /* MM_LOAD_F_* */
	uint64_t store_bytes;
	uint32_t n_groups;
	uint32_t n_tensors;
	int32_t numa_node;   /* -1 = any */
	uint32_t head_bytes; /* IDENT, ALLOC: directory and tables, before the first group */
	uint8_t identity[32];
	char text[MM_TEXT_BYTES];
};
static_assert(sizeof(struct mm_lmsg) == 72 + MM_TEXT_BYTES, "ABI");

/*
 * Cut behind the last of n_groups: core alone knows the size of a page, and so how many pages they
 * take.
 */
struct mm_lident {
	struct mm_lmsg msg;
	uint64_t group_bytes[MM_LAYERS_MAX + 1];
};

static inline size_t mm_lident_bytes(uint32_t n_groups)
{
	return offsetof(struct mm_lident, group_bytes) + n_groups * sizeof(uint64_t);
}

/* ---- core <-> spool ---- */

enum mm_sop {
	MM_S_OPEN = 1, /* core -> spool: first: a file of so many bytes */
	MM_S_OPENED, /* spool -> core: 2 fds: to write, to read; or result and text, and it ends */
	MM_S_SEAL,   /* core -> spool: the writer is gone: can anybody still write? */
	MM_S_SEALED, /* spool -> core: nobody can; or result and text */
};

struct mm_smsg {
	uint32_t magic;
	uint32_t op;
	int32_t result;
	uint32_t reserved;
	uint64_t bytes;
	char text[MM_TEXT_BYTES];
};
static_assert(sizeof(struct mm_smsg) == 24 + MM_TEXT_BYTES, "ABI");
