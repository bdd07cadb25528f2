/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/arrivals.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"
#include "libclient/base/random.h"

#define QUIET 0.05 /* intensity between bursts, where that of a burst is 1 */
#define NIGHT 0.08 /* intensity at midnight, where that of noon is 1 */

#define BURST_ON_S      4.0
#define BURST_OFF_S     16.0
#define DAY_ON          (3 / 1440.0) /* of the day */
#define DAY_OFF         (15 / 1440.0)
#define DAY_STRETCH     (5 / 1440.0) /* the longest stretch, so that stretches follow the day */
#define STRETCH_LEAST_S 1e-6

struct stretches { /* a walk over a window */
	enum mm_wl_arrivals kind;
	double seconds, noon;
	uint64_t random;
	double at_s, left_s; /* where it is; how long the tenant stays on or off */
	bool on;
};

static double draw_stay(struct stretches *w)
{
	const double unit = w->kind == MM_WL_DAY ? w->seconds : 1;
	const double on = w->kind == MM_WL_DAY ? DAY_ON : BURST_ON_S;
	const double off = w->kind == MM_WL_DAY ? DAY_OFF : BURST_OFF_S;

	return -log(mm_random_unit(&w->random)) * (w->on ? on : off) * unit;
}

static void stretches_begin(struct stretches *w, enum mm_wl_arrivals kind, uint64_t random,
			    double seconds)
{
	*w = (struct stretches){ .kind = kind, .seconds = seconds, .random = random };
	w->noon = mm_random_unit(&w->random);
	w->on = mm_random_unit(&w->random) < BURST_ON_S / (BURST_ON_S + BURST_OFF_S);
	w->left_s = kind == MM_WL_STEADY ? seconds : draw_stay(w);
}

static double intensity_at(const struct stretches *w, double at_s)
{
	const double burst = w->on || w->kind == MM_WL_STEADY ? 1 : QUIET;
	const double hour = 2 * M_PI * (at_s / w->seconds - w->noon);

	if (w->kind != MM_WL_DAY)
		return burst;
	return burst * (NIGHT + (1 - NIGHT) * (1 + cos(hour)) / 2);
}

/* Walks over the next stretch. Return: false: the window is at its end. */
static bool stretches_next(struct stretches *w, double *ret_begin_s, double *ret_length_s,
			   double *ret_intensity)
{
	double length = MM_MAX(w->left_s, STRETCH_LEAST_S);

	if (w->at_s >= w->seconds)
		return false;
	if (w->kind == MM_WL_DAY)
		length = MM_MIN(length, DAY_STRETCH * w->seconds);
	length = MM_MIN(length, w->seconds - w->at_s);
	*ret_begin_s = w->at_s;
	*ret_length_s = length;
	*ret_intensity = intensity_at(w, w->at_s + length / 2);
	w->at_s += length;
	w->left_s -= length;
	if (w->left_s <= 0) {
		w->on = !w->on;
		w->left_s = draw_stay(w);
	}
	return true;
}

void mm_wl_arrivals_make(enum mm_wl_arrivals kind, uint64_t random, double seconds, uint32_t n,
			 double *ret_s)
{
	const uint64_t seed = mm_random_next(&random);
	double begin_s, length_s, intensity, all = 0, before = 0;
	struct stretches w;
	uint32_t i = 0;

	stretches_begin(&w, kind, seed, seconds);
	while (stretches_next(&w, &begin_s, &length_s, &intensity))
		all += length_s * intensity;
	for (uint32_t k = 0; k < n; k++)
		ret_s[k] = all * mm_random_unit(&random);
	qsort(ret_s, n, sizeof(*ret_s), mm_double_compare);
	stretches_begin(&w, kind, seed, seconds);
	while (stretches_next(&w, &begin_s, &length_s, &intensity)) {
		for (; i < n && ret_s[i] < before + length_s * intensity; i++)
			ret_s[i] = begin_s + (ret_s[i] - before) / intensity;
		before += length_s * intensity;
	}
	/* Rounding may have left some over. */
	for (; i < n; i++)
		ret_s[i] = seconds;
}
