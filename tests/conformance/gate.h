/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate - words in registered memory that streams and processors wait for and write
 *
 * Concept: a line of 64 bytes for each, in a page that processes share. A gate's has two writers
 *          and two widths (Documentation/protocol.md): the low half is the stream's and xfer's, the
 *          high half mmd's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"
#include "tests/conformance/conf.h"

#define PAGE 4096u
#define LINE 64u

#define GATE_LAYERS 8u

#define READY    MM_GATE_READY
#define DONE     MM_GATE_DONE
#define EMPTY    MM_GATE_EMPTY
#define RESIDENT MM_GATE_RESIDENT
#define ABORT    MM_GATE_ABORT
#define MAY_RUN  MM_GATE_PASS

static inline uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint64_t *line(void *page, unsigned int i)
{
	return (uint64_t *)page + i * (LINE / sizeof(uint64_t));
}

/*
 * The other side of the gates, in a role of its own. It serves GATE_LAYERS layers, each as if alone
 * in a slot of one line of device memory.
 */
struct gate_keeper {
	void *page; /* with the gates */
	CUdeviceptr page_va, mem;
	uint32_t *numbers;          /* what is copied to a layer's line */
	uint32_t next[GATE_LAYERS]; /* its last number */
	CUstream stream;
};

/* The role's begin: takes the page with the gates and the device memory from the test. */
void gate_keeper_begin(struct gate_keeper *k, int sock);
/*
 * Where the layer's gate says DONE: marks it EMPTY, writes the next number into the layer's memory,
 * and sets READY. The high half of the gate is the test's: it is checked, and not written. Return:
 * whether it said DONE. Before the layer is served again, the caller waits for k->stream:
 * k->numbers is reused.
 */
bool gate_keeper_serve(struct gate_keeper *k, unsigned int layer);

/* The test's side: all gates say DONE, and the page (@fd, closed here) and @h go to the role. */
void gate_keeper_start(const struct conf_peer *peer, void *page, int fd,
		       CUmemGenericAllocationHandle h);
