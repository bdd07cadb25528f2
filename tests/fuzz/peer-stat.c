/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes what the kernel says of a tenant's process, whose name the process chooses: the state is
 * one character, and behind the last parenthesis.
 */
#include <stdlib.h>
#include <string.h>

#include "mmd/shell/peer.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	char *text = malloc(size_bytes + 1);
	char state;

	mm_assert(text);
	memcpy(text, data, size_bytes);
	text[size_bytes] = '\0';
	state = mm_peer_stat_state(text);
	if (state) {
		const char *end = strrchr(text, ')');

		mm_assert(end && end[1] == ' ' && end[2] == state);
	}
	free(text);
	return 0;
}
