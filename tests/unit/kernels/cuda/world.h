/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world - one piece of memory, twice: a host kernel runs on one copy, its CUDA twin on the other
 *
 * Concept:   a case lays its matrices out by world_add(), at odd places with bytes between them,
 *            fills them, and gives arguments whose addresses are offsets. Afterwards the copies
 *            must be the same byte by byte: results, inputs, and what lies between.
 * Threading: the test's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/args/args.h"
#include "kernels/args/gemm.h"
#include "kernels/launch/launch.h"

#define WORLD_BYTES    (1u << 20)
#define WORLD_POINTERS 16u

struct world {
	uint64_t rng;
	size_t used;
	char *start; /* as the case fills it */
	char *host, *device;
	size_t n_pointers;
	uint64_t pointers[WORLD_POINTERS]; /* where there are some */
};

/* Both modules, from MM_KERNELS and MM_KERNELS_EMULATED. */
void world_open(void);

void world_init(struct world *w, uint64_t seed);
void world_done(struct world *w);

uint32_t world_random(struct world *w);
/* 0 .. n - 1 */
uint32_t world_below(struct world *w, uint32_t n);
float world_uniform(struct world *w); /* -1 .. 1 */

/**
 * world_add() - a place in the world
 * @align: a power of two; the place is a multiple of it, often not of twice that, often of 16
 *
 * Return: its offset.
 */
uint64_t world_add(struct world *w, size_t bytes, size_t align);
/* Filled: uniform floats; finite elements of @dtype; words below @most. */
uint64_t world_floats(struct world *w, size_t n);
uint64_t world_elements(struct world *w, size_t n, enum mm_dtype dtype);
uint64_t world_words(struct world *w, size_t n, uint32_t most);

/* Addresses in the world: of the places @at, in each copy its own. */
uint64_t world_pointers(struct world *w, const uint64_t *at, size_t n);

/* A kernel's arguments, whose addresses are offsets in a world yet. */
struct world_launch {
	enum mm_kernel kernel;
	size_t bytes;
	uint32_t n_vas;
	uint16_t vas[10]; /* where the addresses are in args */
	_Alignas(8) unsigned char args[256];
};

#define WORLD_LAUNCH(kernel_, a, ...)                                             \
	world_launch(kernel_, &(a), sizeof(a), (const uint16_t[]){ __VA_ARGS__ }, \
		     sizeof((const uint16_t[]){ __VA_ARGS__ }) / sizeof(uint16_t))
struct world_launch world_launch(enum mm_kernel kernel, const void *args, size_t bytes,
				 const uint16_t *vas, size_t n_vas);

/* Runs both twins, the device's in several orders of threads; they must agree. */
void world_compare(struct world *w, const struct world_launch *l);

/* Runs the device's twin, on w->device as it is. */
void world_run(struct world *w, const struct world_launch *l);

/* Makes w->device what the case has filled in. */
void world_restart(struct world *w);
