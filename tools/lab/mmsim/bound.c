/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/bound.h"

#include <errno.h>
#include <stdio.h>

#include "libclient/support/json.h"

/* Returns the KV that fits: that of the shares, and what weights make room for unnoticed. */
static double kv_fits_bytes(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
			    const struct mm_profile *profile)
{
	double bytes = (double)mm_wl_lendable(opts, sizes, profile);

	for (uint32_t t = 0; t < opts->tenants; t++)
		bytes += (double)sizes->tenant[t].kv_share_bytes;
	return bytes;
}

static json_t *bound_json(const struct mm_wl_bound *bound)
{
	return json_pack("{s:f s:f s:f}", "seconds", bound->seconds, "throughput_tok_s",
			 bound->throughput_tok_s, "busy_s", bound->busy_s);
}

/* Adds up the windows, put end to end as the results of a run are. */
static double windows_tok_s(double tokens, double seconds)
{
	return seconds > 0 ? tokens / seconds : 0;
}

int ms_bound_print(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		   const struct mm_profile *profile, const struct mm_wl_case *cases)
{
	const double fits = kv_fits_bytes(opts, sizes, profile);
	json_t *windows = json_array(), *all;
	double tokens = 0, seconds = 0;
	int r = windows ? 0 : -ENOMEM;

	for (uint32_t w = 0; !r && w < opts->windows; w++) {
		struct mm_wl_bound bound;

		mm_wl_bound(opts, sizes, profile, &cases[w], true, &bound);
		seconds += bound.seconds;
		tokens += bound.throughput_tok_s * bound.seconds;
		if (!opts->json)
			printf("window %u: %.1f tokens/s, in %.3f s; %.3f s if all is there at "
			       "the beginning\n",
			       w, bound.throughput_tok_s, bound.seconds, bound.busy_s);
		else if (json_array_append_new(windows, bound_json(&bound)))
			r = -ENOMEM;
	}
	all = json_pack("{s:i s:s s:s s:s s:s s:f s:f s:O?}", "schema", 1, "mode", "bound",
			"version", MM_VERSION, "commit", MM_COMMIT, "profile", opts->profile,
			"throughput_tok_s", windows_tok_s(tokens, seconds), "kv_fits_bytes", fits,
			"windows", windows);
	if (!r && !opts->json)
		printf("no policy exceeds %.1f tokens/s; %.2f GiB of KV fit\n",
		       windows_tok_s(tokens, seconds), fits / 0x1p30);
	else if (!r)
		r = mm_json_print(all, JSON_COMPACT);
	json_decref(all);
	json_decref(windows);
	return r;
}
