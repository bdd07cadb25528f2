/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/stats.h"

#include <math.h>

#include "libclient/base/base.h"

/* Evaluates the continued fraction of the incomplete beta function (Lentz). */
static double beta_fraction(double x, double a, double b)
{
	const double tiny = 1e-300;
	double c = 1, d = 1 - (a + b) * x / (a + 1), value;

	d = 1 / (fabs(d) < tiny ? tiny : d);
	value = d;
	for (int m = 1; m < 500; m++) {
		const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
		const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
		double step;

		d = 1 / (1 + even * d);
		c = 1 + even / c;
		value *= d * c;
		d = 1 / (1 + odd * d);
		c = 1 + odd / c;
		step = d * c;
		value *= step;
		if (fabs(step - 1) < 1e-15)
			break;
	}
	return value;
}

/* Computes the regularised incomplete beta function. */
static double incomplete_beta(double x, double a, double b)
{
	const double front =
		exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));

	if (x <= 0 || x >= 1)
		return x <= 0 ? 0 : 1;
	if (x < (a + 1) / (a + b + 2))
		return front * beta_fraction(x, a, b) / a;
	return 1 - front * beta_fraction(1 - x, b, a) / b;
}

/* Returns the probability of a value above @t, which is at least 0. */
static double t_tail(double t, double degrees)
{
	return incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2;
}

double mm_t_quantile(double p, double degrees)
{
	const double tail = p < 0.5 ? p : 1 - p;
	double low = 0, high = 1;

	while (t_tail(high, degrees) > tail && high < 1e300)
		high *= 2;
	for (int i = 0; i < 200 && high - low > 1e-12 * high; i++) {
		const double t = (low + high) / 2;

		if (t_tail(t, degrees) > tail)
			low = t;
		else
			high = t;
	}
	return p < 0.5 ? -high : high;
}

struct mm_ratio mm_ratio_of(const double *a, const double *b, size_t n, double confidence)
{
	struct mm_ratio r = { 0 };
	double mean = 0, squares = 0, half = 0;

	for (size_t i = 0; i < n; i++) {
		double log_ratio, delta;

		r.lost += b[i] > 0 && !(a[i] > 0);
		if (!(a[i] > 0) || !(b[i] > 0))
			continue;
		log_ratio = log(a[i] / b[i]);
		delta = log_ratio - mean;
		mean += delta / (double)++r.n;
		squares += delta * (log_ratio - mean);
	}
	if (!r.n)
		return r;
	if (r.n > 1) {
		const double spread = sqrt(squares / (double)(r.n - 1) / (double)r.n);

		half = mm_t_quantile(0.5 + confidence / 2, (double)(r.n - 1)) * spread;
	}
	r.ratio = exp(mean);
	r.low = r.lost ? 0 : exp(mean - half);
	r.high = exp(mean + half);
	return r;
}

double mm_jain_index(const double *values, size_t n)
{
	double sum = 0, squares = 0;

	for (size_t i = 0; i < n; i++) {
		sum += values[i];
		squares += values[i] * values[i];
	}
	return squares > 0 ? sum * sum / ((double)n * squares) : 1;
}
