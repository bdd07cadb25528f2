/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/key.h"

#include <stdbool.h>
#include <stdio.h>

#include "libclient/base/base.h"

static bool tail_is_zero(const uint8_t *bytes, size_t from, size_t end)
{
	for (size_t i = from; i < end; i++)
		if (bytes[i])
			return false;
	return true;
}

const char *mm_key_check(const struct mm_load_key *key)
{
	if (key->magic != MM_ABI_MAGIC || key->kind != MM_LOAD_KEY)
		return "key: magic or kind";
	if (key->flags & ~MM_LOAD_KEY_KNOWN)
		return "key: unknown flags";
	if (key->key_bytes == 0 || key->key_bytes > MM_MODEL_KEY_BYTES)
		return "key: it has no byte, or more than a key may have";
	if (!tail_is_zero(key->key, key->key_bytes, MM_MODEL_KEY_BYTES))
		return "key: its tail is not 0";
	if ((key->flags & MM_LOAD_KEY_KNOWN) == MM_LOAD_KEY_DIGEST)
		return "key: a digest to expect, of a model that is yet to be committed";
	if (!(key->flags & MM_LOAD_KEY_DIGEST) &&
	    !tail_is_zero(key->digest, 0, MM_MODEL_DIGEST_BYTES))
		return "key: a digest without its flag";
	return NULL;
}

const char *mm_key_print(const uint8_t *key, size_t bytes, char *text)
{
	size_t at = 0;

	mm_assert(bytes <= MM_MODEL_KEY_BYTES);
	for (size_t i = 0; i < bytes; i++) {
		if (key[i] >= ' ' && key[i] <= '~' && key[i] != '\\' && key[i] != '"')
			text[at++] = (char)key[i];
		else
			at += (size_t)snprintf(text + at, MM_KEY_TEXT_BYTES - at, "\\x%02x",
					       key[i]);
	}
	text[at] = 0;
	return text;
}
