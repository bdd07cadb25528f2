/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stamps - when steps began and ended, by the host's clock or by the device's
 *
 * Concept:    times are seconds since the start of the run, of a device that is slower than the
 *             host's clock by a factor: a modelled device may be dilated. By the device's clock
 *             they come from events around each step, so they contain nothing of how fast the host
 *             looks. Events tell differences, as floats of milliseconds: each is taken from the one
 *             before, which is near, and the sum is kept; the first is laid beside the host's
 *             clock.
 * Ownership:  three events, made by mm_stamps_init().
 * Threading:  the engine's thread; the context is current.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/base/base.h"
#include "mm/gpu.h"

struct mm_stamps {
	const struct mm_gpu_api *gpu;
	CUevent begin, end, last; /* last: of the step before */
	bool device;              /* else the host's clock, and no events */
	double scale;             /* the host's time per the device's */
	uint64_t start_ns;        /* of the host: time 0 */
	uint64_t begin_ns;        /* of the host: of the step */
	double last_s;            /* when the device came to last */
};

/**
 * mm_stamps_init() - before the first step
 * @s:      zeroed; give back with mm_stamps_done()
 * @gpu:    borrowed
 * @device: by the device's clock
 * @scale:  host seconds per second, above 0
 *
 * Return: 0 or the driver's result.
 */
CUresult mm_stamps_init(struct mm_stamps *s, const struct mm_gpu_api *gpu, bool device,
			double scale);
void mm_stamps_done(struct mm_stamps *s);

/**
 * mm_stamps_start() - the run starts
 * @s:        initialised
 * @stream:   idle
 * @start_ns: CLOCK_MONOTONIC of time 0; it may lie ahead
 *
 * Return: 0 or the driver's result.
 */
CUresult mm_stamps_start(struct mm_stamps *s, CUstream stream, uint64_t start_ns);

/* Seconds since the start at a time of the host. */
double mm_stamps_at(const struct mm_stamps *s, uint64_t host_ns);

/* Seconds in so many nanoseconds of the host. */
static inline double mm_stamps_seconds(const struct mm_stamps *s, uint64_t host_ns)
{
	return (double)host_ns / s->scale / 1e9;
}

/* Nanoseconds of the host in so many of the device, at most what can be added to a time. */
static inline uint64_t mm_stamps_host_ns(const struct mm_stamps *s, uint64_t ns)
{
	return (uint64_t)MM_MIN((double)ns * s->scale, 0x1p62);
}

/* Before and behind all work of a step; a step that is repeated ends again. */
CUresult mm_stamps_begin(struct mm_stamps *s, CUstream stream);
CUresult mm_stamps_end(struct mm_stamps *s, CUstream stream);

/**
 * mm_stamps_read() - the step is done
 * @s:           the stream has been synchronised
 * @ret_begin_s: seconds since the start
 * @ret_end_s:   likewise
 *
 * Return: 0 or the driver's result.
 */
CUresult mm_stamps_read(struct mm_stamps *s, double *ret_begin_s, double *ret_end_s);
