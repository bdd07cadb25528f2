/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes messages with a key: an accepted one is in its bounds, and its text is printable. */
#include <string.h>

#include "mmd/common/key.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	char text[MM_KEY_TEXT_BYTES];
	struct mm_load_key key;
	const char *wrong;

	if (size_bytes < sizeof(key))
		return 0;
	memcpy(&key, data, sizeof(key));
	wrong = mm_key_check(&key);
	mm_assert(!wrong || *wrong);
	if (wrong)
		return 0;
	mm_assert(key.key_bytes >= 1 && key.key_bytes <= MM_MODEL_KEY_BYTES);
	mm_key_print(key.key, key.key_bytes, text);
	mm_assert(strlen(text) >= key.key_bytes && strlen(text) < sizeof(text));
	for (const char *c = text; *c; c++)
		mm_assert(*c >= ' ' && *c <= '~');
	return 0;
}
