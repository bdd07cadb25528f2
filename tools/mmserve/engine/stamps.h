/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stamps - measures when steps begin and end, by the host's or the device's clock
 *
 * Concept:    times are seconds of the device since the start of the run. The device's time may be
 *             slower than the host's by a factor, as a modelled device may be dilated. By the
 *             device's clock, times come from events around each step, so they do not depend on
 *             when the host looks. Events yield differences only, as floats of milliseconds: each
 *             is taken from the event before, which is near, and the sum is kept. The first event
 *             is aligned with the host's clock.
 * Ownership:  three events, created by mm_stamps_init() and destroyed by mm_stamps_done().
 * Threading:  the engine's thread; the context is current.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/base/base.h"
#include "mm/gpu.h"

struct mm_stamps {
	const struct mm_gpu_api *gpu;
	CUevent begin, end, last; /* last: the end of the step before */
	bool device;              /* the device's clock; else the host's, and no events */
	double scale;             /* seconds of the host in a second of the device */
	uint64_t start_ns;        /* the host's clock at time 0 */
	uint64_t begin_ns;        /* the host's clock when the step began */
	double last_s;            /* time of the event last */
};

/**
 * mm_stamps_init() - choose the clock and create the events
 * @s:      zeroed; give back with mm_stamps_done()
 * @gpu:    borrowed
 * @device: take times from the device's clock
 * @scale:  seconds of the host in a second of the device, above 0
 *
 * Return: 0 or the driver's result.
 */
CUresult mm_stamps_init(struct mm_stamps *s, const struct mm_gpu_api *gpu, bool device,
			double scale);
void mm_stamps_done(struct mm_stamps *s);

/**
 * mm_stamps_start() - start the run
 * @s:        initialised
 * @stream:   idle
 * @start_ns: CLOCK_MONOTONIC of time 0, which may be in the future
 *
 * Return: 0 or the driver's result.
 */
CUresult mm_stamps_start(struct mm_stamps *s, CUstream stream, uint64_t start_ns);

/* Return: the seconds since the start at the time @host_ns of the host. */
double mm_stamps_at(const struct mm_stamps *s, uint64_t host_ns);

/* Return: the seconds of the device in @host_ns nanoseconds of the host. */
static inline double mm_stamps_seconds(const struct mm_stamps *s, uint64_t host_ns)
{
	return (double)host_ns / s->scale / 1e9;
}

/* Return: the nanoseconds of the host in @ns of the device, bounded so that they can be added. */
static inline uint64_t mm_stamps_host_ns(const struct mm_stamps *s, uint64_t ns)
{
	return (uint64_t)MM_MIN((double)ns * s->scale, 0x1p62);
}

/*
 * Mark the beginning and the end of a step: to be called before and after all of its work. A step
 * that is repeated has one beginning; its last end counts.
 */
CUresult mm_stamps_begin(struct mm_stamps *s, CUstream stream);
CUresult mm_stamps_end(struct mm_stamps *s, CUstream stream);

/**
 * mm_stamps_read() - read the times of the step that is done
 * @s:           the stream has been synchronised
 * @ret_begin_s: seconds since the start
 * @ret_end_s:   seconds since the start
 *
 * Return: 0 or the driver's result.
 */
CUresult mm_stamps_read(struct mm_stamps *s, double *ret_begin_s, double *ret_end_s);
