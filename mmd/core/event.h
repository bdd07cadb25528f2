/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_event - a call that changes a core, as a value
 *
 * Concept:   Each function of core.h that changes a core has a kind of event, with its arguments by
 *            value. Who calls mm_core_event() only, and writes each event down before, can do the
 *            same to another core later: the same events in the same order produce the same
 *            actions and results. Packed, an event is a few words, of variable length.
 * Ownership: lists and statistics are the caller's, and are read during the call only.
 * Threading: as the core.
 * Trust:     mm_event_unpack() takes any bytes: each field is within the range that its type and
 *            its opcode have. Whether the event can follow those before it is the core's matter,
 *            which asserts what only mmd itself can do wrong.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"
#include "mmd/core/core.h"

/* The numbers stand in journals: new kinds come at the end. */
enum mm_event_kind {
	MM_EVENT_NONE,
	MM_EVENT_TICK,            /* mm_core_on_tick() */
	MM_EVENT_RESTARTED,       /* mm_core_on_restarted() */
	MM_EVENT_XFER_UP,         /* xfer_epoch */
	MM_EVENT_XFER_DOWN,       /* mm_core_on_xfer_down() */
	MM_EVENT_XFER_FAULT,      /* mm_core_on_xfer_fault() */
	MM_EVENT_JOB_DONE,        /* job */
	MM_EVENT_MEMORY_ERROR,    /* mm_core_on_memory_error() */
	MM_EVENT_JOIN,            /* join; tenant in the result */
	MM_EVENT_DISCONNECT,      /* tenant */
	MM_EVENT_DEAD,            /* tenant */
	MM_EVENT_STOPPED_CHECKED, /* tenant, stopped */
	MM_EVENT_REQUEST,         /* tenant, msg */
	MM_EVENT_STATS,           /* tenant, stats */
	MM_EVENT_SWAP_OPEN,       /* tenant, swap_bytes */
	MM_EVENT_SWAP_FAILED,     /* tenant */
	MM_EVENT_SWAP,            /* tenant, msg, pieces: msg.arg[1] of them */
	MM_EVENT_MODEL,           /* tenant, model, groups: model.n_groups of them */
	MM_EVENT_STREAMED,        /* tenant, layer_ns */
	MM_EVENT_RANK_BEGIN,      /* tenant */
	MM_EVENT_RANK_ORDER,      /* tenant, rank */
	MM_EVENT_PLAN_SET,        /* tenant, plan; max in the result */
	MM_EVENT_ACCOUNT_ADD,     /* quota: revision is not used */
	MM_EVENT_QUOTA_SET,   /* quota: domain is not used; enum mm_quota_outcome is the result */
	MM_EVENT_STEER,       /* tenant, steer; pages in the result */
	MM_EVENT_PAGE_UNHELD, /* page */
	MM_EVENT_TUNE,        /* tune */
	MM_EVENT_COLD_SET,    /* tenant, cold_limit; max in the result */
	MM_EVENT_COLD_LIVE,   /* tenant, cold_live */
	MM_EVENT_KINDS
};

struct mm_event {
	enum mm_event_kind kind;
	uint32_t tenant; /* of kinds with a tenant, else 0 */
	uint64_t now_ns; /* not used by kinds whose function takes no time */
	union {
		uint64_t xfer_epoch;
		struct {
			uint64_t id;
			int32_t result;
		} job;
		struct mm_core_join join;
		bool stopped;
		uint32_t page;
		struct mm_msg msg;
		uint64_t swap_bytes;
		struct {
			uint64_t store, store_bytes;
			uint32_t n_groups;
		} model;
		uint64_t layer_ns;
		struct mm_core_rank rank;
		struct {
			int32_t alpha;
			uint32_t slots;
		} plan;
		struct {
			enum mm_steer how;
			uint64_t until_ns;
		} steer;
		struct {
			uint64_t account, domain, revision;
			struct mm_core_quota quota;
		} quota;
		struct mm_core_opts tune; /* what mm_core_tune() looks at */
		int32_t cold_limit;
		uint32_t cold_live;
	};
	union {
		const struct mm_tenant_stats *stats;
		const struct mm_swap_piece *pieces;
		const struct mm_core_group *groups;
	};
};

struct mm_event_result {
	int r;           /* what the function returns, else 0 */
	uint32_t tenant; /* MM_EVENT_JOIN: the new tenant, if r is 0 */
	uint32_t max;    /* MM_EVENT_PLAN_SET, _COLD_SET: the most possible, if r is MM_E_RANGE */
	uint64_t pages;  /* MM_EVENT_STEER: as mm_core_steer() */
};

/* The most bytes that a packed event has. */
#define MM_EVENT_BYTES_MAX (128 + (MM_LAYERS_MAX + 1) * sizeof(struct mm_core_group))
/* Packed events begin at multiples of this, and have as many bytes. */
#define MM_EVENT_ALIGN 8

/* Calls the function of the event's kind. */
void mm_core_event(struct mm_core *core, const struct mm_event *event,
		   struct mm_event_result *ret_result);

/* Returns the bytes of the event when it is packed, a multiple of MM_EVENT_ALIGN. */
size_t mm_event_bytes(const struct mm_event *event);
/*
 * Writes the event to @to, mm_event_bytes() and aligned, and returns how many these are. No bytes
 * of a struct's padding are written.
 */
size_t mm_event_pack(const struct mm_event *event, void *to);
/*
 * Reads an event of exactly @bytes from @from, which is aligned. @stats: room for statistics, to
 * which the event points; it points into @from for lists. Return: 0; -EBADMSG: this is no event.
 */
int mm_event_unpack(const void *from, size_t bytes, struct mm_tenant_stats *stats,
		    struct mm_event *ret_event);

/* Whether events of this kind are about a tenant that there is. */
bool mm_event_is_of_tenant(enum mm_event_kind kind);

/* Returns the kind's name, for reports; "?" for no kind. */
const char *mm_event_name(enum mm_event_kind kind);
