/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes load's reader of config.json: it yields layers to serve or a printable sentence. */
#include <string.h>

#include "mm/abi.h"
#include "libclient/model/config.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	struct mm_model_config config = { 0 };
	struct mm_why why = { .text = "" };

	if (mm_model_config_parse((const char *)data, size_bytes, "config.json", &config, &why) ==
	    0) {
		mm_assert(config.layers >= 1 && config.layers <= MM_LAYERS_MAX);
		return 0;
	}
	mm_assert(config.layers == 0);
	mm_assert(strncmp(why.text, "config.json: ", 13) == 0 && why.text[13]);
	for (const char *c = why.text; *c; c++)
		mm_assert(*c >= ' ' && *c <= '~');
	return 0;
}
