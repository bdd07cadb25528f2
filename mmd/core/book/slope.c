/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/slope.h"

#include "libclient/base/base.h"

#define FRACTION_BITS 9 /* 64 octaves fit into 16 bits */
/* a standard deviation of about a quarter of an octave */
#define SPREAD_LEAST ((INT64_C(1) << FRACTION_BITS) / 4)

/* Returns log2(@value) by repeated squaring, rounded down. */
static uint16_t slope_log2(uint64_t value)
{
	uint32_t log = 63u - (uint32_t)__builtin_clzll(value | 1);
	uint64_t part = log > 31 ? value >> (log - 31) : value << (31 - log); /* 1 = 2^31 */

	for (uint32_t i = 0; i < FRACTION_BITS; i++) {
		part = part * part >> 31;
		log <<= 1;
		if (part >> 32) {
			part >>= 1;
			log |= 1;
		}
	}
	return (uint16_t)log;
}

static void slope_sum(struct mm_slope *s, uint32_t i, int64_t sign)
{
	int64_t x = s->x[i], y = s->y[i];

	s->sum_x += sign * x;
	s->sum_y += sign * y;
	s->sum_xx += sign * x * x;
	s->sum_xy += sign * x * y;
}

void mm_slope_add(struct mm_slope *s, uint64_t kv, uint64_t step_ns)
{
	uint32_t at = s->next;

	if (s->n == MM_SLOPE_PAIRS)
		slope_sum(s, at, -1);
	else
		s->n++;
	s->x[at] = slope_log2(kv);
	s->y[at] = slope_log2(step_ns);
	slope_sum(s, at, 1);
	s->next = (at + 1) % MM_SLOPE_PAIRS;
}

bool mm_slope_permille(const struct mm_slope *s, uint32_t *ret_permille)
{
	int64_t n = s->n, spread = n * s->sum_xx - s->sum_x * s->sum_x,
		both = n * s->sum_xy - s->sum_x * s->sum_y;

	if (s->n < MM_SLOPE_LEAST || spread < n * n * SPREAD_LEAST * SPREAD_LEAST)
		return false;
	*ret_permille =
		both <= 0 ? 0
		: both >= spread
			? 1000
			: (uint32_t)((unsigned __int128)both * 1000 / (unsigned __int128)spread);
	return true;
}
