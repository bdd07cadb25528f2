/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types - constants and one struct that engines and the wire have in common
 *
 * Concept:   mm/client.h is what an engine calls, mm/abi.h what its library and mmd write to each
 *            other. Some numbers are the same in both: limits, flags of tensors and packs, types of
 *            elements, modes of turns. They are here, so that an engine's sources do not see the
 *            wire, and no number is written twice. Everything is plain C11 and C++17.
 * Rules:     values never change; new ones are added. A receiver accepts values that it does not
 *            know where the text says so, and only there.
 */
#pragma once

#include <stdint.h>

/* ---- sessions ---- */

#define MM_NAME_BYTES 32 /* of a tenant, a policy, a driver; with the NUL */

/* Feature bits: the tenant offers some, mmd answers with the subset that it will use. */
#define MM_FEAT_REMAP   (UINT64_C(1) << 0) /* the tenant brackets layers: they may cycle */
#define MM_FEAT_RECLAIM (UINT64_C(1) << 1) /* the tenant handles MM_EV_KV_RECLAIM */
#define MM_FEAT_PARTIAL (UINT64_C(1) << 2) /* the tenant can map a plan while steps run */
#define MM_FEAT_REASON  (UINT64_C(1) << 3) /* the tenant accepts a struct mm_end */
/* Facts of the daemon, which it answers to a tenant that has offered to look at them. */
#define MM_FEAT_KV_FIXED (UINT64_C(1) << 4) /* the share of KV is granted at once, never more */
#define MM_FEAT_KV_SWAP  (UINT64_C(1) << 5) /* suspending KV to the host is worth its while */
/*
 * Messages may come twice: a batch of fds, its acknowledgement, the welcome, a reclaim, the end of
 * a turn. A side that has this bit ignores the second one; of two deadlines the later one counts.
 */
#define MM_FEAT_RESUME (UINT64_C(1) << 6)
/* The tenant's statistics have its queue's demand, and requests done and late. */
#define MM_FEAT_DEMAND (UINT64_C(1) << 7)
/* Memory of a third kind, beside weights and KV: MM_OP_MEM_ALLOC and MM_OP_MEM_FREE. */
#define MM_FEAT_MEM (UINT64_C(1) << 8)
/* A tenant can have all of its layers stay at home (mm_model_hold()). */
#define MM_FEAT_HOLD (UINT64_C(1) << 9)
/* Ranks of one model can form a group (mm_group_join()). */
#define MM_FEAT_GROUP (UINT64_C(1) << 10)
/* Weights that an engine made have a key, by which mm_model_load_key() finds them. */
#define MM_FEAT_KEY (UINT64_C(1) << 11)
/* A tenant can give its model back and load another (mm_model_unload()). */
#define MM_FEAT_UNLOAD (UINT64_C(1) << 12)
/* A tenant is told when mmd is to end (MM_EVENT_LEAVE). */
#define MM_FEAT_LEAVE (UINT64_C(1) << 13)
/* KV blocks can live in the swap space and be streamed (mm_cold_open()). */
#define MM_FEAT_COLD (UINT64_C(1) << 14)

/* ---- models ---- */

#define MM_LAYERS_MAX         1023
#define MM_LOAD_FILES_MAX     256 /* files of a model */
#define MM_LOAD_PACKS_MAX     64  /* rules of a packing list */
#define MM_PACK_MEMBERS_MAX   16
#define MM_TENSOR_NAME_BYTES  120 /* with the NUL */
#define MM_MODEL_KEY_BYTES    256 /* most bytes of a key; they may be any */
#define MM_MODEL_DIGEST_BYTES 32

/*
 * Types of elements, by their names in safetensors files; those below BF16 since version 0.3 of
 * client.h. mmd computes with none of them. More may come, so a program handles a number that it
 * does not know.
 */
enum mm_dtype {
	MM_DTYPE_F32 = 1,
	MM_DTYPE_F16,
	MM_DTYPE_BF16,
	MM_DTYPE_F64,
	MM_DTYPE_F8_E4M3,
	MM_DTYPE_F8_E5M2,
	MM_DTYPE_F8_E8M0,
	MM_DTYPE_F6_E2M3, /* 6 bits */
	MM_DTYPE_F6_E3M2, /* 6 bits */
	MM_DTYPE_F4,      /* 4 bits */
	MM_DTYPE_I8,
	MM_DTYPE_U8,
	MM_DTYPE_I16,
	MM_DTYPE_U16,
	MM_DTYPE_I32,
	MM_DTYPE_U32,
	MM_DTYPE_I64,
	MM_DTYPE_U64,
	MM_DTYPE_BOOL, /* a byte */
	MM_DTYPE_C64   /* two F32 */
};

/* Flags of a rule of the packing list. */
#define MM_PACK_TRANSPOSE 1u /* each member, a matrix of rank 2, is transposed */
#define MM_PACK_OPTIONAL  2u /* a layer (or a model) without any of the members is skipped */

/* Flags of a tensor. */
#define MM_TENSOR_PACK       1u /* a pack as one tensor: its bytes are those of its members */
#define MM_TENSOR_MEMBER     2u /* in a pack: aligned to its elements only */
#define MM_TENSOR_TRANSPOSED 4u /* shape and content are of the transpose of the file's tensor */

/* How a model was loaded. */
#define MM_LOAD_F_SHARED   1u /* the host copy was there already */
#define MM_LOAD_F_BUFFERED 2u /* the file system refused O_DIRECT */
#define MM_LOAD_F_PREAD    4u /* io_uring is not available */

/* ---- turns ---- */

/* How a tenant shares the device's time. */
enum mm_turn_mode {
	MM_TURN_NONE,    /* not in turns: it computes at any time; the default */
	MM_TURN_QUANTUM, /* for a quantum at a time when others wait */
	MM_TURN_DRAIN    /* until it has no more work */
};
#define MM_TURN_PRIORITY_MAX 7 /* higher goes first; an account's limit may be lower */

/* ---- swap space ---- */

#define MM_SWAP_LOTS   8   /* most lists in progress */
#define MM_SWAP_PIECES 512 /* most pieces of a list */

/* A piece of a list that is copied. It lies in shared memory as it is, and never changes. */
struct mm_swap_piece {
	uint64_t arena_offset; /* from the start of the range: chunk * bytes per chunk + ... */
	uint64_t swap_offset;
	uint32_t bytes;
	uint32_t range;
};

/* ---- cold blocks (client_cold.h) ---- */

#define MM_COLD_MAX         65536 /* most entries */
#define MM_COLD_CLASSES_MAX 4     /* most classes of layers, and fewest layers */
#define MM_COLD_UNIT_BYTES  64    /* of which the bytes of a block in one layer are a multiple */
