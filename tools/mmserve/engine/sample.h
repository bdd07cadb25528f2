/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample - chooses a token from the logits of a row, on the host
 *
 * Concept:    temperature and top_p as OpenAI's API has them. The random number of an output
 *             depends on the request's seed and the output's number only, so that a request that is
 *             preempted, or computed in another batch, has the same tokens. The logarithm of the
 *             probability is the model's own, before temperature and top_p.
 * Pure:       the same logits and arguments lead to the same token.
 * Ownership:  the scratch is the caller's.
 * Threading:  any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mm_sampling {
	double temperature; /* 0: the token with the greatest logit, the first of equal ones */
	double top_p;       /* above 0, at most 1: the fewest tokens with so much probability */
	uint64_t seed;
	bool logprobs; /* the logarithms of the probabilities are wanted */
};

struct mm_sample_scratch { /* of one token of the vocabulary */
	float weight;
	uint32_t id;
};

/* Return: whether a request needs the logits, besides their greatest. */
static inline bool mm_sampling_needs_logits(const struct mm_sampling *sampling)
{
	return sampling->temperature > 0 || sampling->logprobs;
}

/**
 * mm_sample() - choose a token
 * @logits:      [@vocab]; those that are no numbers are never chosen
 * @vocab:       at least 1
 * @sampling:    how
 * @output:      number of the output token, from 0
 * @scratch:     [@vocab]; contents are lost
 * @ret_logprob: the natural logarithm of the token's probability
 *
 * Return: the token's id.
 */
uint32_t mm_sample(const float *logits, uint32_t vocab, const struct mm_sampling *sampling,
		   uint32_t output, struct mm_sample_scratch *scratch, float *ret_logprob);
