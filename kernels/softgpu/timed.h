/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_timed - device time: until when the device is busy, for all processes that share it
 *
 * Concept:    in timed mode work takes the time that a device profile gives, and touches next to no
 *             bytes. Device time is (CLOCK_MONOTONIC - the device's epoch) / dilation, the same for
 *             all processes. Each engine has one number, until when it is reserved; work reserves
 *             the time after it and is over when that has passed. So a kernel costs arithmetic, and
 *             threads sleep only before effects that are visible from outside.
 * Sharing:    the numbers are in the file "timeline" of the device's directory, mapped by all,
 *             changed by single atomic operations: a process may be killed between any two of them,
 *             and the time that it had reserved simply elapses. Every user that may enter the
 *             directory may write them, read-only users too, and could delay other processes, or
 *             kill them by truncating the file. A number there is only a time, and one further
 *             ahead than AHEAD_MAX_NS is ignored.
 * Slow-down:  copies to the device take memory bandwidth from kernels. Which copies overlapped a
 *             kernel is known from the log of copies when the kernel is over.
 * Lateness:   the host may be late with an effect that is due; device time does not change, but
 *             others may see the effect too late. That is counted, so that a run can report whether
 *             dilation was large enough.
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

/*
 * Reads MM_SOFTGPU_PROFILE and MM_SOFTGPU_DILATION. Return: INVALID_VALUE, after a line on stderr.
 */
CUresult sg_timed_settings(struct sg_timing *ret_timing, bool *ret_has_dilation);

/*
 * Maps the timeline of the device with that ordinal. @anew: empties it first; no process may use
 * the device. Return: 0; negative errno.
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
 * Reserves @ns of an engine, not before @from_ns, and after what is reserved already. Return: the
 * time at which it begins.
 */
uint64_t sg_timed_reserve(unsigned int device, enum sg_engine engine, uint64_t from_ns,
			  uint64_t ns);

/*
 * Reserves an engine for a copy between host and device, which takes longer while the other
 * direction is busy. Return: the time at which it begins.
 */
uint64_t sg_timed_reserve_copy(unsigned int device, enum sg_engine engine, uint64_t from_ns,
			       uint64_t length_bytes, uint64_t *ret_end_ns);

/*
 * Kernels of @compute_ns in all ran from @from_ns to @end_ns. Return: the time at which they end if
 * copies to or from the host took bandwidth from them. Only for the past is it exact.
 */
uint64_t sg_timed_slowed(unsigned int device, uint64_t from_ns, uint64_t end_ns,
			 uint64_t compute_ns);

/*
 * Return: whether copies could have slowed down, or can still slow down, what runs from @from_ns
 * on.
 */
bool sg_timed_may_slow(unsigned int device, uint64_t from_ns);

/* Moves the end of an engine's reservations by @by_ns: the last work took longer than reserved. */
void sg_timed_extend(unsigned int device, enum sg_engine engine, uint64_t end_ns, uint64_t by_ns);

/*
 * Waits until device time is @due_ns, or until *@stop (@stop may be NULL). @effect: the lateness
 * counts.
 */
void sg_timed_until(unsigned int device, uint64_t due_ns, const bool *stop, bool effect);

/*
 * The calling thread puts a piece of work into a stream. Return: the time at which the device gets
 * it.
 */
uint64_t sg_timed_submit(unsigned int device);

/*
 * The calling thread was blocked until @end_ns, and may have woken late: the work that it submits
 * next counts as submitted in time.
 */
void sg_timed_woke(unsigned int device, uint64_t end_ns);

/*
 * The calling thread makes a driver call that takes @ns under the driver's lock. Does nothing if
 * not timed.
 */
void sg_timed_call(unsigned int device, uint64_t ns);

void sg_timed_count_kernel(unsigned int device);

/* The table of sg_written. */
struct sg_written *sg_timed_words(unsigned int device);
