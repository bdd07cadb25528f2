/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/sample.h"

#include <math.h>
#include <stdlib.h>

#include "libclient/base/random.h"

#define LOGPROB_LEAST -9999.0 /* of a token that is impossible; JSON has no infinity */

static uint32_t logits_greatest(const float *logits, uint32_t vocab)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < vocab; i++)
		if (logits[i] > logits[best] || isnan(logits[best]))
			best = i;
	return best;
}

static int weight_compare(const void *a, const void *b)
{
	const struct mm_sample_scratch *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight < y->weight ? 1 : -1;
	return x->id < y->id ? -1 : 1;
}

/* Return: the sum of exp((logit - greatest) / temperature), in the order of ids. */
static double weights_fill(const float *logits, uint32_t vocab, double greatest, double temperature,
			   struct mm_sample_scratch *scratch)
{
	double sum = 0;

	for (uint32_t i = 0; i < vocab; i++) {
		const double weight = exp(((double)logits[i] - greatest) / temperature);

		scratch[i] = (struct mm_sample_scratch){ isfinite(weight) ? (float)weight : 0, i };
		sum += (double)scratch[i].weight;
	}
	return sum;
}

/*
 * Sorts the tokens by weight, those with the same by id, and cuts behind the first that have
 * @top_p of @sum together. Return: their sum; *@n becomes their number.
 */
static double weights_cut(struct mm_sample_scratch *scratch, uint32_t *n, double sum, double top_p)
{
	double kept = 0;
	uint32_t i = 0;

	qsort(scratch, *n, sizeof(*scratch), weight_compare);
	while (i < *n && kept < top_p * sum)
		kept += (double)scratch[i++].weight;
	*n = i;
	return kept;
}

/* A uniform number in [0, 1). */
static double output_random(uint64_t seed, uint32_t output)
{
	return (double)(mm_random_mix(mm_random_mix(seed) + output) >> 11) * 0x1p-53;
}

static uint32_t weights_draw(const float *logits, uint32_t vocab, double greatest,
			     const struct mm_sampling *sampling, uint32_t output,
			     struct mm_sample_scratch *scratch)
{
	double sum = weights_fill(logits, vocab, greatest, sampling->temperature, scratch);
	uint32_t n = vocab, last;
	double at;

	if (sampling->top_p < 1)
		sum = weights_cut(scratch, &n, sum, sampling->top_p);
	at = output_random(sampling->seed, output) * sum;
	last = logits_greatest(logits, vocab);
	for (uint32_t i = 0; i < n; i++) {
		if (!(scratch[i].weight > 0))
			continue;
		last = scratch[i].id;
		at -= (double)scratch[i].weight;
		if (at < 0)
			break;
	}
	return last;
}

static float logprob_of(const float *logits, uint32_t vocab, double greatest, uint32_t id)
{
	double sum = 0, logprob;

	for (uint32_t i = 0; i < vocab; i++)
		if (!isnan(logits[i]))
			sum += exp((double)logits[i] - greatest);
	logprob = (double)logits[id] - greatest - log(sum);
	return (float)(isfinite(logprob) ? logprob : LOGPROB_LEAST);
}

uint32_t mm_sample(const float *logits, uint32_t vocab, const struct mm_sampling *sampling,
		   uint32_t output, struct mm_sample_scratch *scratch, float *ret_logprob)
{
	const uint32_t best = logits_greatest(logits, vocab);
	const double greatest = (double)logits[best];
	uint32_t id = best;

	if (sampling->temperature > 0 && isfinite(greatest))
		id = weights_draw(logits, vocab, greatest, sampling, output, scratch);
	*ret_logprob =
		sampling->logprobs ? logprob_of(logits, vocab, greatest, id) : (float)LOGPROB_LEAST;
	return id;
}
