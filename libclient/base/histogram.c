/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/base/histogram.h"

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"

void mm_histogram_merge(struct mm_histogram *into, const struct mm_histogram *h)
{
	if (!h->n)
		return;
	for (uint32_t b = 0; b < MM_HISTOGRAM_BUCKETS; b++)
		into->count[b] += h->count[b];
	into->least = into->n ? MM_MIN(into->least, h->least) : h->least;
	into->most = MM_MAX(into->most, h->most);
	into->n += h->n;
	into->sum += h->sum;
}

static uint64_t bucket_middle(uint32_t bucket)
{
	const uint32_t shift = bucket >> MM_HISTOGRAM_BITS;
	const uint64_t mantissa = bucket - ((uint64_t)(shift ? shift - 1 : 0) << MM_HISTOGRAM_BITS);
	const uint32_t up = shift ? shift - 1 : 0;

	return (mantissa << up) + ((UINT64_C(1) << up) >> 1);
}

uint64_t mm_histogram_percentile(const struct mm_histogram *h, double percent)
{
	const uint64_t rank = mm_percentile_rank(h->n, percent);
	uint64_t seen = 0;

	for (uint32_t b = 0; b < MM_HISTOGRAM_BUCKETS; b++) {
		seen += h->count[b];
		if (seen >= rank)
			return MM_MIN(MM_MAX(bucket_middle(b), h->least), h->most);
	}
	return h->most;
}
