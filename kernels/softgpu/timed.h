/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_timed - device time: what the device is busy with until when, for all processes that share it
 *
 * Concept:    in timed mode work takes the time that a device profile says, and touches next to no
 *             bytes. Device time is (CLOCK_MONOTONIC - the device's epoch) / dilation, the same for
 *             everybody. Each engine has one number, until when it is reserved; work reserves the
 *             time behind it and is over when that has passed. So a kernel costs arithmetic, and
 *             nobody sleeps but for what can be seen from outside.
 * Sharing:    the numbers are in the file "timeline" of the device's directory, mapped by all,
 *             changed by single atomic operations: a process may be killed between any two of them,
 *             and what it had reserved simply elapses. Whoever may enter the directory may write
 *             them, guests too: he could hold the others up, or end them by truncating the file.
 *             What is there is no more than time, and not believed further than AHEAD_MAX_NS.
 * Slow-down:  copies to the device take memory bandwidth from kernels. Which copies overlap a kernel
 *             is known when it is over: the log of copies says.
 * Lateness:   the host may be late with what is due; device time does not notice, but others may
 *             see an effect too late. It is counted, for a run to say whether dilation was large
 *             enough.
 * Threading:  everything is safe from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernels/softgpu/device.h"
#include "mm/gpu.h"
#include "mm/softgpu.h"

enum sg_engine {
	SG_COMPUTE, /* kernels, fills, copies within the device */
	SG_H2D,
	SG_D2H,
	SG_DRIVER, /* calls that take the driver's lock */
	SG_ENGINES
};

/* What the environment asks for: nothing, or timed mode; INVALID_VALUE, after a line on stderr. */
CUresult sg_timed_settings(struct sg_timing *ret_timing, bool *ret_has_dilation);

/*
 * Maps the timeline of the device with that ordinal; @anew: empties it first, nobody uses the
 * device.
 * Return: 0; negative errno.
 */
int sg_timed_attach(unsigned int device, int dir_fd, mode_t dir_mode, bool anew);
void sg_timed_detach(unsigned int device);

static inline bool sg_is_timed(unsigned int device)
{
	return sg_device_info(device)->timing.on;
}

/* Device time; never 0. */
uint64_t sg_timed_now(unsigned int device);

/*
 * Reserves @ns of an engine, not before @from_ns, and behind what is reserved already.
 * Return: when it begins.
 */
uint64_t sg_timed_reserve(unsigned int device, enum sg_engine engine, uint64_t from_ns,
			  uint64_t ns);

/* As that, for a copy between host and device; both directions at once are slower. */
uint64_t sg_timed_reserve_copy(unsigned int device, enum sg_engine engine, uint64_t from_ns,
			       uint64_t length_bytes, uint64_t *ret_end_ns);

/*
 * Kernels that take @compute_ns in all ran from @from_ns to @end_ns: when they end with what copies
 * to the device took from them. Only what is in the past is known well.
 */
uint64_t sg_timed_slowed(unsigned int device, uint64_t from_ns, uint64_t end_ns,
			 uint64_t compute_ns);

/* Could anything have slowed down, or slow down, what runs from @from_ns on? */
bool sg_timed_may_slow(unsigned int device, uint64_t from_ns);

/* What was reserved last turned out to take longer. */
void sg_timed_extend(unsigned int device, enum sg_engine engine, uint64_t end_ns, uint64_t by_ns);

/* Until it is @due_ns, or *@stop (may be NULL). @effect: count how late that is noticed. */
void sg_timed_until(unsigned int device, uint64_t due_ns, const bool *stop, bool effect);

/* The calling thread puts a piece of work into a stream: when the device gets it. */
uint64_t sg_timed_submit(unsigned int device);

/*
 * The calling thread was blocked until what ends at @end_ns was over, and may have woken late: what
 * it puts in next counts as if it had not.
 */
void sg_timed_woke(unsigned int device, uint64_t end_ns);

/*
 * The calling thread makes a driver call that takes @ns under the driver's lock; 0 where not timed.
 */
void sg_timed_call(unsigned int device, uint64_t ns);

void sg_timed_count_kernel(unsigned int device);

/* The table of sg_written. */
struct sg_written *sg_timed_words(unsigned int device);
