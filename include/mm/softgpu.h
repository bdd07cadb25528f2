/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softgpu - what the software GPU says beyond the driver API
 *
 * Concept:   libmm-softgpu.so exports it beside its cu* symbols; a caller looks it up with dlsym()
 *            in the library that mm_gpu_open() opened, and finds none in a real driver.
 * Threading: safe from any thread, after cuInit().
 */
#pragma once

#include <stdint.h>

typedef struct CUevent_st *CUevent; /* the driver's, as cuda.h and mm/gpu.h declare it too */

#define MM_SOFTGPU_STATS_SYMBOL   "mm_softgpu_stats"
#define MM_SOFTGPU_EVENT_SYMBOL   "mm_softgpu_event_ns"
#define MM_SOFTGPU_WRITTEN_SYMBOL "mm_softgpu_written_ns"
#define MM_SOFTGPU_WROTE_SYMBOL   "mm_softgpu_wrote"
#define MM_SOFTGPU_ACT_SYMBOL     "mm_softgpu_act_at"

/*
 * Of one device, over all processes since it was made. Times are device time but for those that say
 * host. Grows at its end only.
 */
struct mm_softgpu_stats {
	uint32_t timed; /* 0: functional mode, and all else is 0 */
	uint32_t reserved;
	char profile[64];
	double dilation; /* host time per device time */
	uint64_t now_ns;
	/* What became visible: values written, waits for completion that ended, host functions. */
	uint64_t effects;
	uint64_t late; /* of these, more than MM_SOFTGPU_LATE_NS of host time behind their time */
	uint64_t late_total_ns, late_max_ns; /* host time; over all effects */
	uint64_t kernels;
	uint64_t compute_ns; /* reserved so far, as the two below */
	uint64_t h2d_ns, d2h_ns;
	uint64_t h2d_bytes, d2h_bytes;
};

#define MM_SOFTGPU_LATE_NS 50000u

/**
 * mm_softgpu_stats() - what the device did, and how well the host kept up with it
 * @device:    ordinal
 * @ret_stats: the first @bytes of it are written
 * @bytes:     sizeof(*ret_stats), as the caller knows it
 *
 * Return: 0; -EINVAL no such device, or no cuInit() yet.
 */
int mm_softgpu_stats(int device, struct mm_softgpu_stats *ret_stats, uint64_t bytes);
typedef int mm_softgpu_stats_fn(int device, struct mm_softgpu_stats *ret_stats, uint64_t bytes);

/**
 * mm_softgpu_event_ns() - the time at which an event was recorded
 * @event:  recorded, its stream has come to it
 * @ret_ns: device time of timed mode, the same clock for all processes that use the device; else
 *          CLOCK_MONOTONIC. Written only on success
 *
 * Return: 0; -EBUSY not there yet; -EINVAL no such event, or never recorded.
 */
int mm_softgpu_event_ns(CUevent event, uint64_t *ret_ns);
typedef int mm_softgpu_event_ns_fn(CUevent event, uint64_t *ret_ns);

/*
 * For host code between streams, in timed mode: a host that is late with seeing a value, with
 * putting in the work that depends on it, or with writing one, would make the device late. Whoever
 * knows since when it could have acted says so. A word is named by its file (a memfd's inode) and
 * the offset in it.
 */

/**
 * mm_softgpu_written_ns() - when a stream wrote what is there
 * @value:  found there, 32 bits
 * @ret_ns: device time; written only on success
 *
 * Return: 0; -ENOENT not known; -EINVAL not in timed mode.
 */
int mm_softgpu_written_ns(int device, uint64_t inode, uint64_t offset, uint32_t value,
			  uint64_t *ret_ns);
typedef int mm_softgpu_written_ns_fn(int device, uint64_t inode, uint64_t offset, uint32_t value,
				     uint64_t *ret_ns);

/**
 * mm_softgpu_wrote() - the host is about to write a word that streams may wait for
 * @ns: device time since when it counts as written; 0: when it is seen
 *
 * Return: 0; -EINVAL not in timed mode.
 */
int mm_softgpu_wrote(int device, uint64_t inode, uint64_t offset, uint32_t value, uint64_t ns);
typedef int mm_softgpu_wrote_fn(int device, uint64_t inode, uint64_t offset, uint32_t value,
				uint64_t ns);

/**
 * mm_softgpu_act_at() - what this thread puts into streams from now on, it could have put in at @ns
 * @ns: device time; 0: it puts it in when it does
 */
void mm_softgpu_act_at(uint64_t ns);
typedef void mm_softgpu_act_at_fn(uint64_t ns);
