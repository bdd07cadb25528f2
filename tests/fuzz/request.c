/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes requests in a ring: accepted ones have a known opcode, and 0 where 0 is required. */
#include <string.h>

#include "mmd/shell/check.h"
#include "tests/fuzz/input.h"

#define MESSAGES_MAX 128 /* of one input; what is behind them is not looked at */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	uint8_t digits[MESSAGES_MAX * sizeof(struct mm_msg)];

	size_bytes = MM_MIN(size_bytes, sizeof(digits));
	data = input_bytes(data, &size_bytes, digits);
	for (struct mm_msg msg; size_bytes >= sizeof(msg); size_bytes -= sizeof(msg)) {
		const char *wrong;

		memcpy(&msg, data, sizeof(msg));
		data += sizeof(msg);
		wrong = mm_request_check(&msg);
		mm_assert(!wrong || *wrong);
		if (wrong)
			continue;
		mm_assert(msg.opcode < MM_OP_COUNT && !msg.flags && !msg.reserved);
		mm_assert(!msg.result || msg.opcode == MM_OP_FDS_ACK ||
			  msg.opcode == MM_OP_COMMITTED);
	}
	return 0;
}
