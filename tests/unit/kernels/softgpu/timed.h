/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timed - what the tests of timed mode share: their profile, device time, and gates
 *
 * Concept:   Device time does not depend on how fast the host is if all work is queued before any
 *            of it begins: a stream is held at a gate, a word of shared memory, until it is open.
 * Threading: none of its own.
 */
#pragma once

#include <stdint.h>

#include "mm/gpu.h"

#define PROFILE                                                                        \
	"gh200-96,hbm_gbps=10,mem_efficiency=1,h2d_gbps=1,d2h_gbps=1,duplex_loss=0.2," \
	"kernel_us=2,copy_us=2,launch_us=0,create_us=1000"

/* A function that the software GPU has beside those of a driver. */
void *timed_symbol(const char *name);

/* Opens the context of a role on a device with the memory that the profile says. */
void timed_open(void);

CUevent timed_event(void);
/* An event that was made and recorded in @stream. */
CUevent timed_record(CUstream stream);
/* Waits for @event. Return: device time at which it happened, in nanoseconds. */
uint64_t timed_ns(CUevent event);

/*
 * Holds @stream at the gate. It is a host function, not a wait for a value: whatever is behind it,
 * begins when it is over.
 */
void timed_hold(CUstream stream, uint32_t *gate);
void timed_gate_open(uint32_t *gate);
void timed_gate_close(uint32_t *gate);
