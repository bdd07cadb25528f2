/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softgpu - functions of the software GPU beyond the driver API
 *
 * Concept:   libmm-softgpu.so exports them beside its cu* symbols; a caller looks them up with
 *            dlsym() in the library that mm_gpu_open() opened. A real driver has none of them.
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
 * Statistics of one device, over all processes since the device was created. Times are device time
 * unless marked as host time. The struct grows at its end only.
 */
struct mm_softgpu_stats {
	uint32_t timed; /* 0: functional mode; all other fields are 0 then */
	uint32_t reserved;
	char profile[64];
	double dilation; /* host time per device time */
	uint64_t now_ns;
	/*
	 * Effects that became visible: values written, waits for completion that ended, host
	 * functions.
	 */
	uint64_t effects;
	uint64_t late; /* effects more than MM_SOFTGPU_LATE_NS of host time late */
	uint64_t late_total_ns, late_max_ns; /* host time; over all effects */
	uint64_t kernels;
	uint64_t compute_ns; /* reserved so far, as are the two below */
	uint64_t h2d_ns, d2h_ns;
	uint64_t h2d_bytes, d2h_bytes;
};

#define MM_SOFTGPU_LATE_NS 50000u

/**
 * mm_softgpu_stats() - read what the device did, and how late the host was
 * @device:    ordinal
 * @ret_stats: the first @bytes of it are written
 * @bytes:     sizeof(*ret_stats) of the caller's version
 *
 * Return: 0; -EINVAL no such device, or no cuInit() yet.
 */
int mm_softgpu_stats(int device, struct mm_softgpu_stats *ret_stats, uint64_t bytes);
typedef int mm_softgpu_stats_fn(int device, struct mm_softgpu_stats *ret_stats, uint64_t bytes);

/**
 * mm_softgpu_event_ns() - read the time at which an event was recorded
 * @event:  recorded, and reached by its stream
 * @ret_ns: device time of timed mode, the same clock for all processes that use the device; else
 *          CLOCK_MONOTONIC. Written only on success
 *
 * Return: 0; -EBUSY not reached yet; -EINVAL no such event, or never recorded.
 */
int mm_softgpu_event_ns(CUevent event, uint64_t *ret_ns);
typedef int mm_softgpu_event_ns_fn(CUevent event, uint64_t *ret_ns);

/*
 * The functions below are for host code between streams, in timed mode. A host that is late in
 * reading a value, in enqueuing the work that depends on it, or in writing a value would make the
 * device late; these functions pass the time at which it could have acted. A word is named by its
 * file (a memfd's inode) and the offset in it.
 */

/**
 * mm_softgpu_written_ns() - read the time at which a stream wrote the value of a word
 * @value:  the value read, 32 bits
 * @ret_ns: device time; written only on success
 *
 * Return: 0; -ENOENT unknown; -EINVAL not in timed mode.
 */
int mm_softgpu_written_ns(int device, uint64_t inode, uint64_t offset, uint32_t value,
			  uint64_t *ret_ns);
typedef int mm_softgpu_written_ns_fn(int device, uint64_t inode, uint64_t offset, uint32_t value,
				     uint64_t *ret_ns);

/**
 * mm_softgpu_wrote() - announce that the host will write a word that streams may wait for
 * @ns: device time from which on it counts as written; 0: when a stream reads it
 *
 * Return: 0; -EINVAL not in timed mode.
 */
int mm_softgpu_wrote(int device, uint64_t inode, uint64_t offset, uint32_t value, uint64_t ns);
typedef int mm_softgpu_wrote_fn(int device, uint64_t inode, uint64_t offset, uint32_t value,
				uint64_t ns);

/**
 * mm_softgpu_act_at() - set the time at which the next work of this thread counts as enqueued
 * @ns: device time; 0: the actual time again
 */
void mm_softgpu_act_at(uint64_t ns);
typedef void mm_softgpu_act_at_fn(uint64_t ns);
