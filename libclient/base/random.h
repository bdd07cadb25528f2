/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random - pseudo-random numbers that are the same on every machine for the same seed
 *
 * Concept:   splitmix64, and distributions made from it; rand() differs between C libraries.
 * Ownership: the state is the caller's.
 * Threading: any; a state is used by one thread at a time.
 */
#pragma once

#include <math.h>
#include <stdint.h>

/* One step of splitmix64. */
static inline uint64_t mm_random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Turns a number, such as a counter, into well mixed bits: each has an outcome of its own. */
static inline uint64_t mm_random_mix(uint64_t x)
{
	return mm_random_next(&x);
}

/* A number of 0..@n - 1, where @n is at least 1; each is as likely, but for @n / 2^64. */
static inline uint64_t mm_random_below(uint64_t *state, uint64_t n)
{
	return mm_random_next(state) % n;
}

/* A state for each (seed, a, b), such that no two streams follow each other. */
static inline uint64_t mm_random_seed(uint64_t seed, uint64_t a, uint64_t b)
{
	uint64_t state = seed;

	state = mm_random_next(&state) ^ a;
	state = mm_random_next(&state) ^ b;
	return mm_random_next(&state);
}

/* A number in (0, 1), never 0: its logarithm is finite. */
static inline double mm_random_unit(uint64_t *state)
{
	return ((double)(mm_random_next(state) >> 11) + 0.5) * 0x1p-53;
}

/* A number with mean 0 and variance 1 (Box and Muller). */
static inline double mm_random_normal(uint64_t *state)
{
	const double radius = sqrt(-2 * log(mm_random_unit(state)));

	return radius * cos(2 * M_PI * mm_random_unit(state));
}

/* A number with mean @shape and variance @shape (Marsaglia and Tsang). */
static inline double mm_random_gamma(uint64_t *state, double shape)
{
	const double boost = shape < 1 ? pow(mm_random_unit(state), 1 / shape) : 1;
	const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / sqrt(9 * d);

	for (;;) {
		const double x = mm_random_normal(state), v = pow(1 + c * x, 3);

		if (v > 0 && log(mm_random_unit(state)) < x * x / 2 + d - d * v + d * log(v))
			return boost * d * v;
	}
}
