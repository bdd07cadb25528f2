/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/knobs.h"

#include <stdio.h>

#include "libclient/base/base.h"
#include "mmd/config/tune.h"

/* The most that a knob of this unit takes. */
#define PERMILLE_MAX 1000.0
#define TOKENS_MIN   512u
#define TOKENS_MAX   2048u

static uint32_t permille_of(double part)
{
	return (uint32_t)MM_MAX(MM_MIN(part * 1000 + 0.5, PERMILLE_MAX), 1.0);
}

void mm_wl_knobs_set(const struct mm_profile *profile, struct mm_core_opts *opts)
{
	if (!opts->link_slows_permille)
		opts->link_slows_permille =
			permille_of(MM_MAX(profile->link_slows_in, profile->link_slows_out));
	if (!opts->rho_permille)
		opts->rho_permille = permille_of(profile->rho);
}

void mm_wl_knobs_text(const struct mm_profile *profile, const char *controller, char *ret_text,
		      size_t bytes)
{
	struct mm_core_opts given = { 0 }, all;
	char error[MM_TUNE_ERROR_BYTES];
	int n;

	if (controller)
		mm_assert(mm_tune_parse(controller, &given, error) == 0);
	all = given;
	mm_wl_knobs_set(profile, &all);
	n = snprintf(ret_text, bytes, "%s", controller ? controller : "");
	if (!given.link_slows_permille)
		n += snprintf(ret_text + n, bytes - (size_t)n, "%slink-slows=%u", n ? "," : "",
			      all.link_slows_permille);
	if (!given.rho_permille)
		n += snprintf(ret_text + n, bytes - (size_t)n, "%srho=%u", n ? "," : "",
			      all.rho_permille);
	mm_assert((size_t)n < bytes);
}

/*
 * A weight of fp16 has 2 bytes and takes 2 operations for each token. A step with fewer tokens than
 * @even reads its weights for longer than it computes.
 */
void mm_wl_tokens_set(const struct mm_profile *profile, struct mm_wl_opts *opts)
{
	const double even = profile->f16_flops * profile->flop_efficiency /
			    (profile->hbm_bps * profile->mem_efficiency);
	uint32_t tokens = TOKENS_MIN;

	if (opts->batched_tokens != MM_WL_TOKENS_AUTO)
		return;
	while (tokens < TOKENS_MAX && tokens < 2 * even)
		tokens *= 2;
	opts->batched_tokens = MM_MAX(tokens, opts->max_seqs);
}
