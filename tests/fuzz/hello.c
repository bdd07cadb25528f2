/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes a tenant's first message: accepted ones can be logged, refused ones have a reason. */
#include <string.h>

#include "mmd/shell/check.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	char reason[MM_REASON_BYTES];
	struct mm_hello hello;

	if (size_bytes > MM_GREETING_BYTES_MAX)
		return 0;
	if (mm_hello_check(data, size_bytes, &hello, reason) < 0) {
		mm_assert(memchr(reason, 0, sizeof(reason)) && reason[0]);
		return 0;
	}
	mm_assert(size_bytes >= MM_HELLO_BYTES_MIN &&
		  memcmp(&hello, data, MM_MIN(size_bytes, sizeof(hello))) == 0);
	mm_assert(hello.magic == MM_ABI_MAGIC && hello.abi_major == MM_ABI_MAJOR);
	mm_assert(!(hello.features_required & ~MM_FEAT_KNOWN));
	mm_assert(hello.name[0] && memchr(hello.name, 0, sizeof(hello.name)));
	for (const char *c = hello.name; *c; c++)
		mm_assert(*c > ' ' && *c <= '~');
	return 0;
}
