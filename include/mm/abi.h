/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi - every byte that mmd and a tenant share
 *
 * Concept:   A tenant connects to mmd's SOCK_SEQPACKET socket, sends struct mm_hello and gets
 *            struct mm_welcome with three memfds. From then on requests and events travel through
 *            two SPSC rings of 64-byte struct mm_msg; the socket carries only doorbells (messages
 *            of one byte) and fd batches (struct mm_fd_batch with SCM_RIGHTS). mmd never takes an
 *            fd from a tenant. mmd may own several devices: a connection is one tenant on one of
 *            them, and a process that uses two opens two connections.
 * Regions:   tenant region  - written by the tenant only: its cursors, statistics, request slots
 *            mmd region     - read-only for the tenant: cursors, core's state, event slots, map
 *            gate region    - one 64-byte line per layer; two writers, mmd trusts nothing in it
 *            mmd creates all three and seals them against resizing, so that no access can fault.
 *            A later version may make each of them longer: a peer takes the length from the file,
 *            refuses one that is shorter than MM_*_REGION_BYTES_MIN, maps what it knows, and uses
 *            what was added later only as far as the region has it.
 * Map table: the page of each entry, absolute. Entry e of the model part names the page of
 *            (group, i): groups in directory order, ceil(bytes / page_bytes) entries each. Layers
 *            that share a slot list the same pages. Entry MM_MAP_KV_BASE +
 *            chunk * pages_per_chunk + range * pages_per_range + i names a KV page. Value: page
 *            id + 1, or 0 = no page. Entries behind the arena's last chunk may name pages of
 *            MEM_ALLOC; the tenant chooses them. mmd changes model entries only between PARKED and
 *            SWITCH, the entries of a KV chunk only before its KV_GRANT and after its KV_RELEASE,
 *            and the others only before the REPLY to MEM_ALLOC and after MEM_FREE.
 * Threading: each cursor and each slot array has one writer; see libclient/ipc/ring.h for the
 *            edges.
 * Rules:     fixed width, little endian; reserved bytes must be zero and unknown bits are refused,
 *            where the text says nothing else.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/types.h"

#define MM_ABI_MAGIC      UINT32_C(0x314d4d4d) /* "MMM1" in memory */
#define MM_ABI_MAJOR      1                    /* peers with another one are refused */
#define MM_ABI_MINOR      0
#define MM_ABI_PAGE_BYTES 4096 /* cursors and region parts are aligned to this */

/* The feature bits of mm/types.h that this version knows. */
#define MM_FEAT_KNOWN                                                                            \
	(MM_FEAT_REMAP | MM_FEAT_RECLAIM | MM_FEAT_PARTIAL | MM_FEAT_REASON | MM_FEAT_KV_FIXED | \
	 MM_FEAT_KV_SWAP | MM_FEAT_RESUME | MM_FEAT_DEMAND | MM_FEAT_MEM | MM_FEAT_HOLD |        \
	 MM_FEAT_GROUP | MM_FEAT_KEY | MM_FEAT_UNLOAD | MM_FEAT_LEAVE | MM_FEAT_COLD)

#define MM_SESSION_BYTES 16
#define MM_REASON_BYTES  416

/*
 * Hello and welcome may grow at their end. Each begins with the bytes of its first version, and
 * says its own size, which is that of the message; what a shorter one lacks counts as 0. An unknown
 * tail of the hello must be 0, and one of the welcome is ignored.
 */
#define MM_HELLO_BYTES_MIN    128  /* of the first version */
#define MM_WELCOME_BYTES_MIN  1024 /* of the first version */
#define MM_GREETING_BYTES_MAX 4096 /* of either, of any version */

struct mm_hello { /* first message of a connection, tenant -> mmd */
	uint32_t magic;
	uint16_t abi_major;
	uint16_t size_bytes; /* of this message */
	uint64_t features;   /* what the tenant can do */
	uint64_t
		features_required; /* offered, and needed: one that mmd does not answer = refusal */
	char name[MM_NAME_BYTES];  /* for humans; NUL-terminated, printable ASCII */
	uint8_t device_uuid[16]; /* of the device that the tenant will use; all 0 = the only one */
	uint64_t reserved[7];    /* must be 0 */
};
static_assert(sizeof(struct mm_hello) == 128 && offsetof(struct mm_hello, name) == 24, "ABI");
static_assert(offsetof(struct mm_hello, device_uuid) == 56, "ABI");

struct mm_welcome { /* the answer, mmd -> tenant, with three fds when result == 0 */
	uint32_t magic;
	uint16_t abi_major;
	uint16_t size_bytes; /* of this message */
	int32_t result;      /* 0, or the negative errno of a refusal, with reason */
	uint32_t tenant_id;
	uint64_t features; /* what both sides will use; bits that were not offered say nothing */
	uint64_t page_bytes;
	uint64_t pool_pages;
	uint8_t device_uuid[16];
	uint8_t session[MM_SESSION_BYTES]; /* random: names this session, and nobody guesses it */
	/*
	 * For humans, and for programs that know the name: of the driver ("software", "cuda") and
	 * of the policy. NUL-terminated, 1 to 31 printable characters without space. A tenant
	 * refuses no name that it has not heard of.
	 */
	char driver[MM_NAME_BYTES];
	char policy[MM_NAME_BYTES];
	uint32_t n_devices; /* number of devices of this mmd */
	uint16_t abi_minor;
	uint16_t reserved2;
	char reason[MM_REASON_BYTES];
	uint64_t reserved[58];
};
static_assert(sizeof(struct mm_welcome) == 1024 && offsetof(struct mm_welcome, driver) == 72,
	      "ABI");
static_assert(offsetof(struct mm_welcome, session) == 56, "ABI");
static_assert(offsetof(struct mm_welcome, policy) == 104, "ABI");
static_assert(offsetof(struct mm_welcome, n_devices) == 136, "ABI");
static_assert(offsetof(struct mm_welcome, reason) == 144, "ABI");

/* ---- rings ---- */

struct mm_cursor {      /* one page, one writer */
	uint32_t value; /* free-running, wraps at 2^32 */
	uint32_t reserved[1023];
};
static_assert(sizeof(struct mm_cursor) == MM_ABI_PAGE_BYTES, "ABI");

struct mm_msg {
	uint16_t opcode;    /* enum mm_op (tenant -> mmd) or enum mm_ev (mmd -> tenant) */
	uint16_t flags;     /* unknown bit = refusal */
	int32_t result;     /* of events and acknowledgements: 0 or negative errno; 0 in requests */
	uint64_t user_data; /* of a request; echoed in its MM_EV_REPLY */
	uint64_t epoch;     /* plan epoch if the message has one, else 0 */
	uint64_t arg[4];    /* by opcode, as listed below; unused ones must be 0 */
	uint64_t reserved;  /* must be 0 */
};
static_assert(sizeof(struct mm_msg) == 64 && offsetof(struct mm_msg, arg) == 24, "ABI");

#define MM_MSG_WORDS 8
typedef uint64_t mm_msg_slot[MM_MSG_WORDS]; /* shared memory holds words, not structs */

#define MM_SQ_SLOTS 256  /* tenant -> mmd */
#define MM_CQ_SLOTS 1024 /* mmd -> tenant */

/* Requests, with arg[] in order; an epoch is not in arg[] but in .epoch. */
enum mm_op {
	MM_OP_NOP,
	MM_OP_MODEL_OPEN, /* -> REPLY, then an MM_FD_LOAD message with the channel to load */
	MM_OP_KV_DECLARE, /* bytes per chunk and range; ranges; chunks_max; share_chunks -> REPLY */
	/*
	 * Chunks wanted in all (absolute; replaces the last); with MM_FEAT_COLD: the number from
	 * which on free ones are granted first -> grants or denial
	 */
	MM_OP_KV_WANT,
	MM_OP_KV_RELEASE, /* chunk: unmapped, its handles released -> REPLY */
	MM_OP_FDS_ACK,    /* seq of a batch; result -EMFILE: truncated, send it again */
	MM_OP_PARKED,     /* MM_PARKED_*; .epoch of the PREPARE: no step open, nothing enqueued */
	MM_OP_COMMITTED, /* .epoch of the SWITCH: mapped by the table; result < 0: mapping failed */
	MM_OP_RESYNC, /* a step broke off; .epoch of its plan, 0: unknown -> a null plan change */
	MM_OP_BYE,    /* everything unmapped and released; the connection ends -> REPLY */
	MM_OP_SWAP_OPEN, /* bytes of host memory for suspended KV; after KV_DECLARE -> REPLY */
	MM_OP_SWAP, /* lot; pieces in it; 0 = out to the host, 1 = in: of held chunks -> SWAPPED */
	MM_OP_TURN_JOIN, /* enum mm_turn_mode; quantum, ns, 0 = mmd's; priority -> REPLY */
	MM_OP_TURN_WANT, /* the tenant has work -> TURN_BEGIN when its turn begins */
	MM_OP_TURN_DONE, /* serial of the turn that the tenant gives back */
	MM_OP_MAPPED, /* layers mapped, from 0 on; .epoch of a SWITCH_PARTIAL; not COMMITTED yet */
	/*
	 * With MM_FEAT_MEM. First entry of the map table; pages -> REPLY: 0, and their entries are
	 * set and their fds were sent; or -EDQUOT, -ENOSPC with arg[1] = pages that there are
	 */
	MM_OP_MEM_ALLOC,
	MM_OP_MEM_FREE, /* first entry; pages (already unmapped) -> REPLY */
	/*
	 * With MM_FEAT_GROUP. Name of the group, 24 bytes in three arguments, NUL-padded; rank |
	 * size << 32 -> MM_FD_GROUP, then REPLY; GROUP_READY when all ranks have joined
	 */
	MM_OP_GROUP_JOIN,
	MM_OP_GROUP_MAPPED, /* chunk of a KV_GRANT: it is mapped -> GROUP_USABLE */
	MM_OP_HOLD, /* with MM_FEAT_HOLD. 1 = all layers come home and stay, 0 = no more -> REPLY */
	/*
	 * With MM_FEAT_UNLOAD. The model goes: PREPARE, then a SWITCH_EMPTY; when that is COMMITTED
	 * its pages and its store are mmd's again -> REPLY
	 */
	MM_OP_UNLOAD,
	/*
	 * With MM_FEAT_COLD. Bytes of a block in one layer; layers; most entries; entries that may
	 * be live in any case; after KV_DECLARE of one range, SWAP_OPEN and MODEL_READY -> REPLY,
	 * arg[1] = classes, then COLD_LIMIT
	 */
	MM_OP_COLD_OPEN,
	/*
	 * First chunk; chunks held, in a row, 0 = no window -> REPLY when a plan with it is
	 * COMMITTED. Until another one is, they are neither released nor swapped
	 */
	MM_OP_COLD_WINDOW,
	MM_OP_COUNT
};

/* Events, with arg[] in order; an epoch is not in arg[] but in .epoch. */
enum mm_ev {
	MM_EV_NOP,
	MM_EV_REPLY, /* to a request: user_data, result; arg[0] = its opcode, arg[1..] as stated */
	/*
	 * groups; total model pages; store bytes; how many of these are in the fd of MM_FD_STORE,
	 * which was sent before: 0 = all, else the directory only, and the rest is on disk
	 */
	MM_EV_MODEL_LOADED,
	MM_EV_MODEL_READY, /* enum mm_refusal; result < 0: refused, else all is in place */
	MM_EV_PREPARE,     /* .epoch: open no new step, let the open one end -> PARKED */
	MM_EV_SWITCH,      /* .epoch; alpha; m; MM_SWITCH_*; the table is valid -> COMMITTED */
	MM_EV_KV_GRANT,    /* chunk; its table entries are set and its fds were sent */
	MM_EV_KV_DENIED,   /* wanted; granted in all; result -ENOSPC (pool) or -EDQUOT (account) */
	/*
	 * chunks to give back in all (absolute; replaces the last); deadline (CLOCK_MONOTONIC ns);
	 * the number of the KV_RELEASE that mmd expects next, from 1 on: this one and later ones
	 * count towards it; 0 = unknown
	 */
	MM_EV_KV_RECLAIM,
	MM_EV_SWAPPED,      /* of a SWAP: user_data; lot, free again; result: 0 = all was copied */
	MM_EV_TURN_BEGIN,   /* serial; quantum, ns */
	MM_EV_TURN_END,     /* serial; deadline, CLOCK_MONOTONIC ns; result < 0: it is over */
	MM_EV_GROUP_READY,  /* number of ranks: all have joined */
	MM_EV_GROUP_USABLE, /* chunk: all ranks have mapped it */
	MM_EV_GROUP_DROP,   /* chunk that did not become usable -> KV_RELEASE */
	MM_EV_GROUP_LEFT,   /* rank that has left the group, which grants nothing any more */
	/*
	 * With MM_FEAT_LEAVE. mmd is to end, or the operator drains the tenant: it should close its
	 * connection before the deadline, CLOCK_MONOTONIC ns, when it is ended; UINT64_MAX: once it
	 * has finished. The last one counts.
	 */
	MM_EV_LEAVE,
	/*
	 * Entries that may be live (absolute; the last one counts); deadline, CLOCK_MONOTONIC ns,
	 * or 0: no more become live, those that are may stay
	 */
	MM_EV_COLD_LIMIT,
	MM_EV_COUNT
};

#define MM_PARKED_BROKEN UINT64_C(1) /* a step broke off: the gates are out of order */
/* Steps go on at once; layers that change wait at their gates. */
#define MM_SWITCH_PARTIAL UINT64_C(1)
/* The model goes: its entries of the table are 0, and so are alpha and m. */
#define MM_SWITCH_EMPTY UINT64_C(2)
/* Cold blocks are streamed: the gates of all layers open and close, and m counts all layers. */
#define MM_SWITCH_COLD UINT64_C(4)

#define MM_TURN_MODES (MM_TURN_DRAIN + 1) /* enum mm_turn_mode (types.h) */

/* Why a model was refused (MM_EV_MODEL_READY, arg[0]); result carries the errno. */
enum mm_refusal {
	MM_REFUSED_NO,
	MM_REFUSED_QUOTA,
	MM_REFUSED_DEVICE,
	MM_REFUSED_STORE,
	MM_REFUSED_LOAD
};

/* ---- tenant region: one writer, the tenant ---- */

#define MM_COMPUTE_WEIGHTS 1024

struct mm_tenant_stats {         /* claims, for decisions about this tenant and its pages only */
	uint64_t step_seq;       /* odd while a step is open */
	uint64_t steps;          /* finished */
	uint64_t samples;        /* steps of these whose waits at gates were measured */
	uint64_t step_ns;        /* of the last sample, begin to synchronised end */
	uint64_t stall_ns;       /* part of step_ns: waits at gates */
	uint64_t stall_total_ns; /* of all steps; one without times counts as the last with times */
	uint64_t kv_chunks_used; /* chunks with live blocks */
	uint64_t waiting;        /* requests that wait for KV */
	uint64_t running;        /* requests in the batch; 0 and waiting 0 = idle */
	/* Time to compute a layer in relation to the others; all 0: in proportion to its bytes. */
	uint16_t compute[MM_COMPUTE_WEIGHTS];
	/*
	 * With MM_FEAT_DEMAND, as in struct mm_load_hint (client.h); 0: not said. Requests are
	 * running totals; those late are among those done.
	 */
	uint64_t kv_chunks_queued;
	uint64_t requests_done;
	uint64_t requests_late;
	uint64_t reserved[244];
};
static_assert(sizeof(struct mm_tenant_stats) == MM_ABI_PAGE_BYTES, "ABI");
static_assert(offsetof(struct mm_tenant_stats, kv_chunks_queued) == 2120, "ABI");

/*
 * A lot is a list of pieces (struct mm_swap_piece, types.h) to be copied between the KV arena and
 * the tenant's swap space. mmd copies the list when it receives the SWAP; until SWAPPED neither end
 * of a piece may be accessed.
 */
static_assert(sizeof(struct mm_swap_piece) == 24 && offsetof(struct mm_swap_piece, range) == 20,
	      "ABI");

struct mm_tenant_region {
	struct mm_cursor sq_tail;
	struct mm_cursor cq_head;
	struct mm_tenant_stats stats;
	mm_msg_slot sq[MM_SQ_SLOTS];
	struct mm_swap_piece swap[MM_SWAP_LOTS][MM_SWAP_PIECES];
};
static_assert(offsetof(struct mm_tenant_region, sq) == 3 * MM_ABI_PAGE_BYTES, "ABI");
static_assert(offsetof(struct mm_tenant_region, swap) == 3 * MM_ABI_PAGE_BYTES + MM_SQ_SLOTS * 64,
	      "ABI");
#define MM_TENANT_REGION_BYTES_MIN 126976 /* of the first version */
static_assert(sizeof(struct mm_tenant_region) >= MM_TENANT_REGION_BYTES_MIN, "ABI");

/* ---- mmd region: one writer, mmd; the tenant has an fd for reading ---- */

#define MM_MAP_KV_BASE 32768
#define MM_MAP_ENTRIES 65536 /* below the 65,530 mappings of a process in practice */

/* The state of core, as one session sees it; each session has its own. */
struct mm_core_state {
	uint32_t generation; /* 1; one more for each core that takes over from another */
	uint32_t flags;      /* none yet; unknown ones say nothing */
	uint64_t beat_ns;    /* when core last looked for requests here; 0: it does not say */
	uint64_t reserved[510];
};
static_assert(sizeof(struct mm_core_state) == MM_ABI_PAGE_BYTES, "ABI");
static_assert(offsetof(struct mm_core_state, beat_ns) == 8, "ABI");

struct mm_mmd_region {
	struct mm_cursor sq_head;
	struct mm_cursor cq_tail;
	struct mm_core_state state;
	mm_msg_slot cq[MM_CQ_SLOTS];
	uint32_t map[MM_MAP_ENTRIES]; /* page id + 1, or 0 = unmapped */
};
static_assert(offsetof(struct mm_mmd_region, cq) == 3 * MM_ABI_PAGE_BYTES, "ABI");
static_assert(offsetof(struct mm_mmd_region, map) == 3 * MM_ABI_PAGE_BYTES + MM_CQ_SLOTS * 64,
	      "ABI");
#define MM_MMD_REGION_BYTES_MIN 339968 /* of the first version */
static_assert(sizeof(struct mm_mmd_region) >= MM_MMD_REGION_BYTES_MIN, "ABI");

/* ---- gate region: a header line, then a gate per layer ---- */

/*
 * Gate word: low 32 bits READY | DONE | EMPTY, high 32 bits RESIDENT | ABORT (written by mmd's
 * side). Before a layer: WaitValue64(AND, MM_GATE_PASS); after it: WriteValue32(low half,
 * MM_GATE_DONE). The constants never change with the plan, so a captured graph stays valid
 * (protocol.md, Gates).
 */
#define MM_GATE_READY    UINT64_C(1)
#define MM_GATE_DONE     UINT64_C(2)
#define MM_GATE_EMPTY    UINT64_C(4)
#define MM_GATE_RESIDENT (UINT64_C(1) << 32)
#define MM_GATE_ABORT    (UINT64_C(1) << 33)
#define MM_GATE_PASS     (MM_GATE_READY | MM_GATE_RESIDENT | MM_GATE_ABORT)

struct mm_gate {
	union {
		uint64_t word;
		struct {
			uint32_t low;
			uint32_t high;
		};
	};
	uint64_t reserved[7];
};
static_assert(sizeof(struct mm_gate) == 64 && offsetof(struct mm_gate, high) == 4, "ABI");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "gates are little endian");

/* Entries of cold blocks that are live; written by the tenant: the bits first, then the version. */
struct mm_cold_live {
	uint64_t version; /* only grows */
	uint64_t reserved[7];
	uint64_t live[MM_COLD_MAX / 64]; /* bit e % 64 of word e / 64 */
};
static_assert(sizeof(struct mm_cold_live) == 8256, "ABI");
static_assert(offsetof(struct mm_cold_live, live) == 64, "ABI");

struct mm_gate_region {
	uint64_t step_seq; /* written by the tenant: odd while a step is open; xfer polls then */
	/*
	 * Written by xfer: all that is streamed from now on, or was and is not read yet, is of this
	 * version of `cold` or of a later one. Only grows.
	 */
	uint64_t cold_acked;
	uint64_t reserved[6];
	struct mm_gate gate[MM_LAYERS_MAX]; /* by layer */
	struct mm_cold_live cold;
};
static_assert(offsetof(struct mm_gate_region, gate) == 64, "ABI");
static_assert(offsetof(struct mm_gate_region, cold) == 65536, "ABI");
#define MM_GATE_REGION_BYTES_MIN 65536 /* of the first version */
static_assert(sizeof(struct mm_gate_region) >= MM_GATE_REGION_BYTES_MIN, "ABI");

/* ---- group region: what the ranks of one group tell each other; mmd reads nothing of it ---- */

#define MM_GROUP_RANKS_MAX  16
#define MM_GROUP_NAME_BYTES 24
#define MM_GROUP_STEPS      8

/*
 * How the last steps of a rank ended. Step n, from 1 on, is at n % MM_GROUP_STEPS, as n << 8 | enum
 * mm_group_outcome; 0: none. Written by the rank alone, once it has nothing of the step enqueued
 * any more.
 */
struct mm_group_slot {
	uint64_t ended[MM_GROUP_STEPS];
	uint64_t reserved[8];
};
static_assert(sizeof(struct mm_group_slot) == 128, "ABI");

enum mm_group_outcome {
	MM_GROUP_DONE = 1, /* its results count, if those of all ranks do */
	MM_GROUP_VOID,     /* its gates were aborted, or it broke off */
	MM_GROUP_FAILED    /* the device failed */
};

struct mm_group_region {
	uint32_t ended; /* futex: counts the outcomes that were written */
	uint32_t reserved[31];
	struct mm_group_slot slot[MM_GROUP_RANKS_MAX]; /* by rank */
};
static_assert(offsetof(struct mm_group_region, slot) == 128, "ABI");
#define MM_GROUP_REGION_BYTES_MIN 2176 /* of the first version */
static_assert(sizeof(struct mm_group_region) >= MM_GROUP_REGION_BYTES_MIN, "ABI");

/* ---- socket: fd messages, mmd -> tenant ---- */

#define MM_FD_BATCH_MAX 64 /* fds in one message; SCM_RIGHTS itself allows 253 */

enum mm_fd_kind {
	MM_FD_PAGES = 1, /* fd i is the exported page page_id[i] */
	MM_FD_STORE,     /* one fd, read-only: the host store or its directory (struct mm_dir) */
	MM_FD_LOAD,      /* one fd: SOCK_SEQPACKET channel to load (struct mm_load_file) */
	MM_FD_GROUP,     /* one fd: what the ranks of a group share (struct mm_group_region) */
};

struct mm_fd_batch { /* of any kind; one MM_OP_FDS_ACK acknowledges it */
	uint32_t magic;
	uint32_t kind; /* enum mm_fd_kind */
	uint64_t epoch;
	uint64_t seq;   /* number within the connection, from 1 */
	uint32_t count; /* number of fds */
	uint32_t reserved;
	uint32_t page_id[MM_FD_BATCH_MAX];
};
static_assert(sizeof(struct mm_fd_batch) == 32 + 4 * MM_FD_BATCH_MAX, "ABI");

#define MM_END_KIND  64 /* differs from all of enum mm_fd_kind */
#define MM_END_BYTES 120

struct mm_end { /* mmd -> tenant, without fds: the last message of a connection that mmd ends */
	uint32_t magic;
	uint32_t kind;             /* MM_END_KIND */
	char reason[MM_END_BYTES]; /* for humans; NUL-terminated */
};
/* Its length differs from that of a batch and of a doorbell. */
static_assert(sizeof(struct mm_end) == 128, "ABI");

/* ---- channel to load: the tenant passes the files that it opened ---- */

#define MM_FILE_NAME_BYTES 128

enum mm_load_kind {
	MM_LOAD_CONFIG = 1,
	MM_LOAD_SAFETENSORS,
	MM_LOAD_INDEX, /* index of shards; at most one */
	MM_LOAD_PACK,  /* struct mm_load_pack, no fd */
	MM_LOAD_END,   /* no fd */
	MM_LOAD_KEY    /* with MM_FEAT_KEY: struct mm_load_key, no fd; at most one */
};

struct mm_load_file { /* tenant -> load, with one fd (MM_LOAD_END: none) */
	uint32_t magic;
	uint32_t kind;                 /* enum mm_load_kind */
	char name[MM_FILE_NAME_BYTES]; /* for messages and the model's identity; no path */
};
static_assert(sizeof(struct mm_load_file) == 136, "ABI");

/*
 * One rule of the packing list: its members are placed one after the other, without padding, in the
 * order given. A '*' stands for the number of a layer, and the rule then holds for every layer;
 * either each name of a rule has one or none has. Members of one pack agree in dtype, layer and all
 * dimensions but the first, as they are in memory, that is after transposition; the pack's own
 * first dimension is the sum of theirs.
 */
struct mm_load_pack { /* tenant -> load, without an fd */
	uint32_t magic;
	uint32_t kind;                   /* MM_LOAD_PACK */
	uint32_t flags;                  /* MM_PACK_*; unknown bit = refusal */
	uint32_t n_members;              /* 1 .. MM_PACK_MEMBERS_MAX */
	char name[MM_TENSOR_NAME_BYTES]; /* of the whole pack as one tensor; "" = it has no name */
	char member[MM_PACK_MEMBERS_MAX][MM_TENSOR_NAME_BYTES]; /* unused ones and tails are 0 */
};
static_assert(sizeof(struct mm_load_pack) == 16 + 17 * MM_TENSOR_NAME_BYTES, "ABI");
#define MM_PACK_KNOWN (MM_PACK_TRANSPOSE | MM_PACK_OPTIONAL)

/*
 * The key of the model whose files are passed, which must be sealed memfds; or, with
 * MM_LOAD_KEY_ATTACH, of one that the same user has committed in the same account: then nothing
 * else is passed but MM_LOAD_END.
 */
struct mm_load_key { /* tenant -> load, without an fd */
	uint32_t magic;
	uint32_t kind;                         /* MM_LOAD_KEY */
	uint32_t flags;                        /* MM_LOAD_KEY_*; unknown bit = refusal */
	uint32_t key_bytes;                    /* 1 .. MM_MODEL_KEY_BYTES */
	uint8_t digest[MM_MODEL_DIGEST_BYTES]; /* the identity that it must have; else 0 */
	uint8_t key[MM_MODEL_KEY_BYTES];       /* the tail is 0 */
};
static_assert(sizeof(struct mm_load_key) == 16 + MM_MODEL_DIGEST_BYTES + MM_MODEL_KEY_BYTES, "ABI");
#define MM_LOAD_KEY_ATTACH 1u /* no files follow */
#define MM_LOAD_KEY_DIGEST 2u /* with ATTACH: refuse another identity than the digest */
#define MM_LOAD_KEY_KNOWN  (MM_LOAD_KEY_ATTACH | MM_LOAD_KEY_DIGEST)

struct mm_load_status { /* load -> tenant: progress; the last one has done = 1 */
	uint32_t magic;
	int32_t result; /* 0, or the negative errno of a refusal */
	uint32_t done;
	uint32_t flags; /* MM_LOAD_F_* */
	uint64_t bytes_done;
	uint64_t bytes_total;
	char text[224]; /* of an error: which file, what is wrong, and where */
};
static_assert(sizeof(struct mm_load_status) == 256, "ABI");

/*
 * ---- directory: the head of a store ----
 *
 * One store serves tenants of all versions, so that no feature bit can say what a reader knows. A
 * reader passes over reserved fields, whatever they hold, and over types of elements that it does
 * not know. It refuses another version, and a tensor with a flag that it does not know.
 */

#define MM_DIR_MAGIC    UINT32_C(0x3152494d) /* "MIR1" */
#define MM_TENSORS_MAX  65536
#define MM_TENSOR_ALIGN 256 /* alignment of a tensor within its group */

struct mm_dir {
	uint32_t magic;
	uint32_t version;  /* 1 */
	uint32_t n_groups; /* group 0 is resident; group 1 + l is layer l */
	uint32_t n_tensors;
	uint64_t groups_offset;  /* offset of struct mm_dir_group[n_groups] in the store */
	uint64_t tensors_offset; /* offset of struct mm_dir_tensor[n_tensors], sorted by name */
	uint64_t store_bytes;
	uint8_t identity[32];
	uint64_t reserved[7]; /* 0 */
};
static_assert(sizeof(struct mm_dir) == 128, "ABI");

struct mm_dir_group {
	uint64_t store_offset; /* multiple of MM_ABI_PAGE_BYTES */
	uint64_t bytes;        /* tensors and padding; the rest of the last page is zero */
};
static_assert(sizeof(struct mm_dir_group) == 16, "ABI");

struct mm_dir_tensor {
	char name[MM_TENSOR_NAME_BYTES]; /* NUL-terminated */
	uint32_t group;
	uint16_t dtype; /* enum mm_dtype */
	uint16_t rank;  /* <= 4 */
	uint64_t shape[4];
	uint64_t offset; /* within the group; multiple of MM_TENSOR_ALIGN, or of its elements */
	uint64_t bytes;
	uint32_t flags;       /* MM_TENSOR_* */
	uint32_t reserved[3]; /* 0 */
};
static_assert(sizeof(struct mm_dir_tensor) == 192, "ABI");
#define MM_TENSOR_KNOWN (MM_TENSOR_PACK | MM_TENSOR_MEMBER | MM_TENSOR_TRANSPOSED)
