/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the knobs of --controller: a refusal changes nothing and has a sentence, and what is
 * accepted lies within the bounds of the core's table.
 */
#include <string.h>

#include "mmd/config/tune.h"
#include "tests/fuzz/input.h"

static void bounds_check(const struct mm_core_opts *opts)
{
	const struct mm_knob *k;

	for (uint32_t i = 0; (k = mm_knob_at(i)); i++)
		mm_assert(k->names ? mm_knob_choice(k, opts) != NULL
				   : mm_knob_value(k, opts) <= k->max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	struct mm_core_opts before = { 0 }, opts;
	char text[MM_TUNE_TEXT_BYTES], error[MM_TUNE_ERROR_BYTES] = "";

	if (size_bytes >= sizeof(text))
		return 0;
	memcpy(text, data, size_bytes);
	text[size_bytes] = '\0';
	mm_knobs_set_defaults(&before);
	opts = before;
	if (mm_tune_parse(text, &opts, error) < 0)
		mm_assert(*error && memchr(error, 0, sizeof(error)) &&
			  memcmp(&opts, &before, sizeof(opts)) == 0);
	else
		bounds_check(&opts);
	return 0;
}
