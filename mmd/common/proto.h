/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proto - messages between mmd's own roles
 *
 * Concept:   keeper <-> core: one SOCK_SEQPACKET pair for struct mm_kmsg with fds. core <-> xfer,
 *            one per device: one pair for struct mm_xmsg with fds and doorbells; jobs, plans and
 *            cursors are in libclient/protocol/xplan.h. core <-> load: one pair for struct mm_lmsg,
 *            where only core attaches fds. core <-> spool: one pair for struct mm_smsg, where only
 *            spool attaches fds.
 * Ownership: the receiver of a message owns the fds that came with it.
 * Trust:     core trusts keeper. xfer and load are checked like peers: xfer loads foreign code,
 *            load parses hostile files.
 * Ordering:  core sends a message with fds before it pushes the ring entry that needs it; xfer
 *            reads the ring's tail, then drains the socket, then handles the ring up to that tail.
 * Lifetime:  keeper starts roles with their end of each pair as fd 3 (load: 4 = the tenant's). End
 *            of file on a pair means that the other role is dead or dying.
 * Threading: none of its own.
 */
#pragma once

#include "mm/abi.h"

#define MM_PROTO_MAGIC  UINT32_C(0x50524d4d) /* "MMRP" */
#define MM_ROLE_FD      3
#define MM_ROLE_LOAD_FD 4
#define MM_TEXT_BYTES   224
#define MM_DEVICES_MAX  8 /* the most that one mmd manages */
/* Room for a UUID, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", or its beginning. */
#define MM_UUID_WORD_BYTES 48
/* Tenants per device in mmd; the core itself can hold more. */
#define MM_DEVICE_TENANTS_MAX 64
#define MM_HELLOS_MAX         32 /* connections that have not been welcomed yet */
#define MM_SESSIONS_MAX       (MM_DEVICES_MAX * MM_DEVICE_TENANTS_MAX + MM_HELLOS_MAX)

#define MM_CHUNK_BYTES_DEFAULT (UINT64_C(16) << 20) /* size of a streaming copy */

/* Stage memory for one chunk: whole blocks, because a chunk may begin anywhere in a block. */
#define MM_STAGE_BLOCK_BYTES UINT64_C(4096)
#define MM_STAGE_BUFFER_BYTES(chunk) \
	(((chunk) + 2 * MM_STAGE_BLOCK_BYTES - 1) / MM_STAGE_BLOCK_BYTES * MM_STAGE_BLOCK_BYTES)
#define MM_STAGE_BUFFERS_MIN     2
#define MM_STAGE_BUFFERS_MAX     64
#define MM_STAGE_BUFFERS_DEFAULT 4

enum mm_driver_kind { MM_DRIVER_SOFTWARE, MM_DRIVER_CUDA };

/* The driver's name, for operators and tenants. */
static inline const char *mm_driver_name(uint64_t kind)
{
	return kind == MM_DRIVER_CUDA ? "cuda" : "software";
}

/* ---- keeper <-> core ---- */

enum mm_kop {
	/*
	 * keeper -> core: an accepted tenant connection (1 fd); id: keeper holds a copy as CONN of
	 * that id, and as PIDFD its process, until core drops them.
	 */
	MM_K_TENANT = 1,
	MM_K_ADMIN, /* keeper -> core: an accepted admin connection (1 fd) */
	/*
	 * keeper -> core: a role was started: role, id, pid; fds: core's end; of a load also the
	 * tenant's end; text: the build that it runs.
	 */
	MM_K_STARTED,
	/* keeper -> core: a role was reaped: role, id; result = wait status. */
	MM_K_GONE,
	/*
	 * core -> keeper: start a role: role, id. An xfer is refused while the device's old one
	 * lives.
	 */
	MM_K_START,
	/* core -> keeper: kill a role with SIGKILL: role, id; MM_K_GONE follows. */
	MM_K_KILL,
	/*
	 * core -> keeper: kill the process of a tenant: id: its connection, whose PIDFD keeper
	 * holds.
	 */
	MM_K_KILL_TENANT,
	/*
	 * core -> keeper: all pools are ready, accept tenants. With role xfer: the xfer is proven.
	 */
	MM_K_READY,
	/*
	 * keeper -> core: end in order. core -> keeper: end mmd, in order, or, with result < 0,
	 * because it cannot go on: text says why.
	 */
	MM_K_STOP,
	/*
	 * core -> keeper: hold the lock of device: at most 2 fds; text: the UUID; result: 1 = the
	 * last fd is the lock's file.
	 */
	MM_K_LOCK,
	/*
	 * keeper -> core: xfer of device fails repeatedly, and is started again and again. core ->
	 * keeper: the device is lost.
	 */
	MM_K_DOWN,
	/*
	 * core -> keeper: hold these fds (names, and as many fds). What had the name before is
	 * closed.
	 */
	MM_K_HOLD,
	/*
	 * core -> keeper: close what is held by these names; unknown ones are ignored. flags:
	 * MM_K_F_ACK, MM_K_F_SLOW; id: a serial number.
	 */
	MM_K_DROP,
	/* keeper -> core: the DROP with MM_K_F_ACK and this id, and all before it, are done. */
	MM_K_DROPPED,
	/*
	 * keeper -> core, before all else: names with their fds, which keeper goes on holding. core
	 * answers each message with TAKEN, so that few fds are unread at a time.
	 */
	MM_K_INVENTORY,
	MM_K_TAKEN,
	/*
	 * keeper -> core, behind the names: an xfer, load or spool that the last core had, with
	 * role, device, id, pid; text: the build that it runs. flags: MM_K_F_ENDED, then result is
	 * its wait status, and MM_K_F_DOWN.
	 */
	MM_K_CHILD,
	/*
	 * keeper -> core: the inventory is complete. id: how many cores there were, with it;
	 * result: 1 = the last one ended by its own fault; text: the build that keeper runs.
	 */
	MM_K_END,
	/* core -> keeper: what the last core had stands again; accept connections. */
	MM_K_RESUMED,
	/*
	 * core -> keeper: another build is to go on (1 fd: what it is to check, preflight.h); text:
	 * the path of its file. flags: MM_K_F_CHECK: it is to check only. keeper -> core: the
	 * answer: result: 0: it can, and core ends with MM_CORE_REPLACED unless it was only a
	 * check; negative: text says why not.
	 */
	MM_K_UPGRADE,
	/*
	 * core -> keeper: this build has read what the one before has left. Until then keeper goes
	 * back to that one if this one ends.
	 */
	MM_K_STANDS,
	/*
	 * keeper -> core: an accepted connection of an observer (1 fd); id: keeper holds a copy as
	 * VIEW of that id, until core drops it.
	 */
	MM_K_VIEW,
	/*
	 * keeper -> core: the upgrade is complete. text: the build that keeper runs now; result <
	 * 0: it has stayed what it was, and text says why.
	 */
	MM_K_BUILD,
	/*
	 * core -> keeper: read the files again, or, with an id, the answer to the settings of that
	 * serial number: result. keeper -> core: settings to apply (1 fd: JSON), id: their serial
	 * number, from 1.
	 */
	MM_K_RELOAD,
};

#define MM_K_F_ACK   1u /* DROP: DROPPED is to follow */
#define MM_K_F_SLOW  2u /* DROP: the last close of these may sleep, so a child must do it */
#define MM_K_F_ENDED 4u /* CHILD: it was reaped */
#define MM_K_F_DOWN  8u /* CHILD: keeper has reported its device as down */
/*
 * READY of core: a successor can go on from what keeper holds. Without it the end of core is the
 * end of mmd.
 */
#define MM_K_F_RESUMABLE 16u
#define MM_K_F_CHECK     64u /* UPGRADE: do no more than that */
/* END: core is of another build since the last UPGRADE, or it was taken back. */
#define MM_K_F_UPGRADED   128u
#define MM_K_F_TAKEN_BACK 256u
#define MM_K_F_EXCUSED    32u /* KILL: the end of this xfer is no failure of it */

enum mm_role {
	MM_ROLE_CORE = 1,
	MM_ROLE_XFER,
	MM_ROLE_LOAD,
	MM_ROLE_SPOOL,
	MM_ROLE_LOG,
	MM_ROLE_PREFLIGHT,
	MM_ROLE_KEEPER_AGAIN /* keeper, after it has become another build: mmd/keeper/reexec.h */
};

/* The exit status of a core that gives way to one of another build. */
#define MM_CORE_REPLACED 75

struct mm_kmsg {
	uint32_t magic;
	uint32_t op;   /* enum mm_kop */
	uint32_t role; /* enum mm_role */
	int32_t result;
	uint64_t id; /* by role: xfer: its epoch, from 1; load: the load's; spool: the store's */
	int64_t pid;
	uint32_t device; /* xfer: index in the configuration's list */
	uint32_t flags;  /* MM_K_F_* */
	char text[MM_TEXT_BYTES];
};
static_assert(sizeof(struct mm_kmsg) == 264, "ABI");

/* The kind of an fd that keeper holds for core and its successors. */
enum mm_held_kind {
	MM_HELD_BEAT = 1, /* keeper's own: struct mm_beat, a page that core writes */
	MM_HELD_BOOK,     /* core's kept memory */
	MM_HELD_PAGE,     /* index: the pool; id: the page */
	MM_HELD_CONN,     /* id: serial number that keeper gave to the connection */
	MM_HELD_PIDFD,    /* keeper's own, which core cannot put; id: that of its connection */
	MM_HELD_REGION,   /* id: that of its connection; index: enum mm_held_region */
	MM_HELD_XRING,    /* index: the pool; id: 0 jobs, 1 completions */
	MM_HELD_STORE,    /* id: the store; index: which of its files */
	/* core's end of the pair with a role; index: mm_held_peer(); id: as in struct mm_kmsg */
	MM_HELD_PEER,
	MM_HELD_GROUP,  /* id: the group */
	MM_HELD_OUTFD,  /* an fd that waits to be sent to a tenant; id: a serial number of core */
	MM_HELD_VIEW,   /* an observer's connection; id: serial number that keeper gave to it */
	MM_HELD_TRAIL,  /* the ring of what has happened (shell/trail.h) */
	MM_HELD_CONFIG, /* keeper's own: what is shown of the settings, and the command line */
	MM_HELD_KINDS,
};

enum mm_held_region {
	MM_HELD_TENANT,
	MM_HELD_MMD,
	MM_HELD_GATE,
	MM_HELD_PLAN,
	MM_HELD_CURSOR,
	MM_HELD_SWAP,
};

/* The name of an fd that keeper holds. Different kinds may use the same numbers. */
struct mm_held_name {
	uint32_t kind; /* enum mm_held_kind */
	uint32_t index;
	uint64_t id;
};
static_assert(sizeof(struct mm_held_name) == 16, "ABI");

static inline uint32_t mm_held_peer(enum mm_role role, uint32_t device)
{
	return (uint32_t)role << 16 | device;
}

/*
 * core writes this in each iteration of its loop, for keeper to see that it works, and for a
 * successor to see since when there was none.
 */
struct mm_beat {
	uint64_t at_ns;  /* CLOCK_MONOTONIC */
	uint32_t asleep; /* core waits for events: then at_ns may be old */
	uint32_t reserved;
};

/* ---- core <-> xfer: socket ---- */

enum mm_xkind {
	/* core -> xfer: first message; 2 fds: job memfd, completion memfd. */
	MM_X_SETUP = 1,
	/*
	 * xfer -> core: facts of the device, or result and text; with the device's lock (at most 2
	 * fds).
	 */
	MM_X_HELLO,
	/*
	 * Page fds. xfer -> core: pages that were created; core -> xfer: pages of an earlier xfer.
	 * Whatever core sends of this, of TENANT, STORE and SWAP may come twice: what xfer has
	 * already it leaves as it is.
	 */
	MM_X_PAGES,
	/* core -> xfer: tenant id; 3 fds: its gate, plan and cursor memfds. */
	MM_X_TENANT,
	/* core -> xfer: store id; 1 fd; bytes; flags. */
	MM_X_STORE,
	/* xfer -> core: tenant id cannot be served any more: result, text. */
	MM_X_FAILED,
	/* core -> xfer: swap space of tenant id: 1 fd; bytes. DETACH ends its use. */
	MM_X_SWAP,
	/* xfer -> core: state of the device; id: enum mm_xhealth_kind. */
	MM_X_HEALTH,
};

enum mm_xhealth_kind {
	MM_XHEALTH_SAMPLE = 1, /* health: a sample of the device's state */
	/* bytes: NVML's event type (kernels/driver/nvml.h); pages: the Xid. */
	MM_XHEALTH_EVENT,
	/* NVML does not reach the GPU any more; result: its nvmlReturn_t. */
	MM_XHEALTH_GONE,
};

#define MM_XHEALTH_SEEN           1u /* NVML shows the device */
#define MM_XHEALTH_EVENTS         2u /* NVML reports its events */
#define MM_XHEALTH_MIG            4u /* the device is a MIG instance */
#define MM_XHEALTH_REPAIR_PENDING 8u /* rows or pages wait for a reset of the GPU */
#define MM_XHEALTH_REPAIR_FAILED  16u
#define MM_XHOLDERS               6

struct mm_xholder {
	uint32_t pid;
	uint32_t reserved;
	uint64_t bytes; /* 0: not known */
	char name[16];  /* name of the process */
};

struct mm_xhealth {
	uint64_t total_bytes; /* 0: not known */
	uint64_t free_bytes, used_bytes;
	uint32_t flags; /* MM_XHEALTH_* */
	uint32_t n_holders;
	struct mm_xholder holder[MM_XHOLDERS]; /* by memory, the largest first; mmd's own too */
};

/* Properties of the device in HELLO. */
#define MM_XFACT_HOST_READ_ONLY 1u /* it can register read-only host memory */
#define MM_XFACT_GPUDIRECT      2u /* pages are created so that network cards can read them */
#define MM_XFACT_WAIT_NOR       4u /* streams can wait for NOR */
#define MM_XFACT_MPS            8u /* it runs under MPS */
#define MM_XFACT_ECC            16u
#define MM_XFACT_INTEGRATED     32u
#define MM_XFACT_COLD           64u /* it streams cold blocks, as those of earlier builds do not */

struct mm_xfacts {
	uint32_t driver_version; /* cuDriverGetVersion() */
	uint32_t attributes;     /* MM_XFACT_* */
	uint32_t capability;     /* major * 10 + minor */
	uint32_t reserved;
};

/* Stands for a default by device; no size that --headroom takes is so large. */
#define MM_HEADROOM_BY_DEVICE UINT64_MAX

struct mm_xmsg {
	uint32_t magic;
	uint32_t kind;
	int32_t result;
	uint32_t count; /* number of fds */
	uint64_t id;    /* of TENANT, STORE; SETUP: device ordinal; HELLO: enum mm_driver_kind */
	uint64_t page_bytes; /* SETUP: wanted, 0 = default; HELLO: chosen */
	uint64_t pages;      /* SETUP: wanted, 0 = from bytes; HELLO: chosen */
	/* Bytes of STORE; SETUP: of the pool, 0 = all but headroom; HELLO: of the device. */
	uint64_t bytes;
	uint64_t chunk_bytes; /* SETUP: size of a streaming copy, 0 = 16 MiB */
	/*
	 * SETUP: left to contexts and workspaces when pages and bytes are 0; or
	 * MM_HEADROOM_BY_DEVICE.
	 */
	uint64_t headroom_bytes;
	uint8_t device_uuid[16];
	uint64_t stage_bytes; /* SETUP: ring for stores on disk, 0 = none; HELLO: what is used */
	int32_t numa_node; /* SETUP: for the ring; HELLO: of the device; -1 = any, or not known */
	uint32_t flags;    /* of SETUP, STORE, HELLO: MM_X_F_* */
	char text[MM_TEXT_BYTES]; /* SETUP: driver name; HELLO: device name or error */
	union {
		uint32_t page_id[MM_FD_BATCH_MAX]; /* of PAGES */
		struct mm_xhealth health;          /* of HEALTH */
		struct mm_xfacts facts;            /* of HELLO */
		char wanted[MM_UUID_WORD_BYTES]; /* SETUP: GPU-…, MIG-…; "": the ordinal in id */
	};
};
static_assert(sizeof(struct mm_xhealth) <= 4 * MM_FD_BATCH_MAX, "ABI");
static_assert(sizeof(struct mm_xmsg) == 96 + MM_TEXT_BYTES + 4 * MM_FD_BATCH_MAX, "ABI");

#define MM_X_F_DISK      1u /* STORE: a file that is read through the stage, not a memfd to map */
#define MM_X_F_PREAD     2u /* HELLO: a thread reads the stage with pread(), without io_uring */
#define MM_X_F_LOCKED    4u /* SETUP: keeper holds the device's lock already */
#define MM_X_F_LOCK_FILE 8u /* HELLO: the last of its fds is the lock's file */

/* ---- core <-> load ---- */

enum mm_lop {
	/* load -> core: the files were parsed; identity and sizes: struct mm_lident. */
	MM_L_IDENT = 1,
	/*
	 * core -> load: fill the store. 1 fd: an empty memfd of store_bytes, its memory on
	 * numa_node; 2 fds: a memfd of head_bytes for the directory, a file of store_bytes for the
	 * rest.
	 */
	MM_L_ALLOC,
	/* core -> load: the host copy exists: notify the tenant, then send DONE. */
	MM_L_HAVE,
	/*
	 * core -> load: the model exceeds pool, account or budget: send result and text to the
	 * tenant, exit.
	 */
	MM_L_REFUSE,
	/* load -> core: the store is filled (valid once load is reaped), or result and text. */
	MM_L_DONE,
	/*
	 * load -> core: the tenant's key: struct mm_lkey. IDENT follows, or, with
	 * MM_LOAD_KEY_ATTACH, nothing: core answers HAVE or REFUSE.
	 */
	MM_L_KEY,
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
	uint32_t head_bytes; /* IDENT, ALLOC: directory and tables before the first group */
	uint8_t identity[32];
	uint64_t read_bytes;   /* DONE: of weights that it read, for their digest or the store */
	uint64_t filled_bytes; /* DONE: of weights that it wrote to the store */
	char text[MM_TEXT_BYTES];
};
static_assert(sizeof(struct mm_lmsg) == 88 + MM_TEXT_BYTES, "ABI");

struct mm_lkey {
	struct mm_lmsg msg;
	struct mm_load_key key; /* as the tenant sent it */
};
static_assert(sizeof(struct mm_lkey) == sizeof(struct mm_lmsg) + sizeof(struct mm_load_key), "ABI");

/*
 * An IDENT is sent with n_groups entries only. They are bytes, since only core knows the size of a
 * page.
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
	/* core -> spool: first message: open a file of @bytes. */
	MM_S_OPEN = 1,
	/* spool -> core: 2 fds: to write, to read; or result and text, and the spool ends. */
	MM_S_OPENED,
	/* core -> spool: the writer was reaped: check whether anybody can still write. */
	MM_S_SEAL,
	/* spool -> core: nobody can write; or result and text. */
	MM_S_SEALED,
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
