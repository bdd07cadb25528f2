/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/names.h"

#include <string.h>

#include "libclient/base/base.h"

static const char *const stack_prefixes[] = { "layers.", "h." };

/* The number up to the next dot. */
static uint32_t layer_number_at(const char *at)
{
	uint32_t value = 0;
	size_t digits = 0;

	for (; at[digits] >= '0' && at[digits] <= '9'; digits++) {
		if (digits == 9)
			return MM_NO_LAYER;
		value = value * 10 + (uint32_t)(at[digits] - '0');
	}
	if (digits == 0 || at[digits] != '.' || (digits > 1 && at[0] == '0'))
		return MM_NO_LAYER;
	return value;
}

uint32_t mm_name_layer(const char *name, size_t *ret_stack_len)
{
	for (const char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
		for (size_t i = 0; i < MM_ARRAY_SIZE(stack_prefixes); i++) {
			size_t len = strlen(stack_prefixes[i]);
			uint32_t layer = strncmp(at, stack_prefixes[i], len) == 0
						 ? layer_number_at(at + len)
						 : MM_NO_LAYER;

			if (layer == MM_NO_LAYER)
				continue;
			if (ret_stack_len)
				*ret_stack_len = (size_t)(at - name) + len;
			return layer;
		}
	}
	return MM_NO_LAYER;
}
