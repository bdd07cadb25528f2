/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"

static int check_refuse(char *reason, int result, const char *fmt, ...) MM_PRINTF(3, 4);
static int check_refuse(char *reason, int result, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, MM_REASON_BYTES, fmt, ap);
	va_end(ap);
	return result;
}

static bool bytes_all_zero(const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (bytes[i])
			return false;
	}
	return true;
}

static bool tenant_name_is_valid(const char *name)
{
	size_t n = strnlen(name, MM_NAME_BYTES);

	if (n == 0 || n == MM_NAME_BYTES)
		return false;
	for (size_t i = 0; i < n; i++) {
		/* Names appear in logs and on the command line. */
		if (name[i] <= ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\')
			return false;
	}
	return bytes_all_zero((const unsigned char *)name + n, MM_NAME_BYTES - n);
}

static int hello_check_size(const void *bytes, size_t n_bytes, const struct mm_hello *h,
			    char *reason)
{
	if (h->size_bytes != n_bytes)
		return check_refuse(reason, -EINVAL, "hello: size_bytes is %u but %zu bytes came",
				    h->size_bytes, n_bytes);
	if (n_bytes > sizeof(*h) &&
	    !bytes_all_zero((const unsigned char *)bytes + sizeof(*h), n_bytes - sizeof(*h)))
		return check_refuse(
			reason, -EINVAL,
			"hello: fields beyond byte %zu are not known to this mmd; they must be 0",
			sizeof(*h));
	return 0;
}

int mm_hello_check(const void *bytes, size_t n_bytes, struct mm_hello *ret_hello, char *ret_reason)
{
	struct mm_hello h = { 0 };
	uint64_t unknown;
	int r;

	if (n_bytes < MM_HELLO_BYTES_MIN)
		return check_refuse(ret_reason, -EPROTO, "hello: %zu bytes, want at least %d",
				    n_bytes, MM_HELLO_BYTES_MIN);
	memcpy(&h, bytes, MM_MIN(n_bytes, sizeof(h)));
	if (h.magic != MM_ABI_MAGIC)
		return check_refuse(ret_reason, -EPROTO,
				    "hello: magic %#x, want %#x: not an mmd client", h.magic,
				    MM_ABI_MAGIC);
	if (h.abi_major != MM_ABI_MAJOR)
		return check_refuse(
			ret_reason, -EPROTO,
			"ABI version %u, this mmd speaks %u; rebuild the client against it",
			h.abi_major, MM_ABI_MAJOR);
	r = hello_check_size(bytes, n_bytes, &h, ret_reason);
	if (r < 0)
		return r;
	unknown = h.features_required & ~MM_FEAT_KNOWN;
	if (unknown)
		return check_refuse(ret_reason, -ENOTSUP,
				    "required features %#" PRIx64 " are not known; use a newer mmd",
				    unknown);
	if (!bytes_all_zero((const unsigned char *)h.reserved, sizeof(h.reserved)))
		return check_refuse(ret_reason, -EINVAL, "hello: reserved fields must be 0");
	if (!tenant_name_is_valid(h.name))
		return check_refuse(
			ret_reason, -EINVAL,
			"hello: name must be 1 to %d printable characters without space, "
			"quote and backslash",
			MM_NAME_BYTES - 1);
	*ret_hello = h;
	return 0;
}

const char *mm_request_check(const struct mm_msg *msg)
{
	static const struct {
		uint8_t args;
		bool result;
		bool epoch;
	} rules[MM_OP_COUNT] = {
		[MM_OP_KV_DECLARE] = { .args = 4 },
		[MM_OP_KV_WANT] = { .args = 2 },
		[MM_OP_KV_RELEASE] = { .args = 1 },
		[MM_OP_FDS_ACK] = { .args = 1, .result = true },
		[MM_OP_PARKED] = { .args = 1, .epoch = true },
		[MM_OP_MAPPED] = { .args = 1, .epoch = true },
		[MM_OP_MEM_ALLOC] = { .args = 2 },
		[MM_OP_MEM_FREE] = { .args = 2 },
		[MM_OP_HOLD] = { .args = 1 },
		[MM_OP_UNLOAD] = { 0 },
		[MM_OP_COLD_OPEN] = { .args = 4 },
		[MM_OP_COLD_WINDOW] = { .args = 2 },
		[MM_OP_GROUP_JOIN] = { .args = 4 },
		[MM_OP_GROUP_MAPPED] = { .args = 1 },
		[MM_OP_COMMITTED] = { .result = true, .epoch = true },
		[MM_OP_RESYNC] = { .epoch = true },
		[MM_OP_SWAP_OPEN] = { .args = 1 },
		[MM_OP_SWAP] = { .args = 3 },
		[MM_OP_TURN_JOIN] = { .args = 3 },
		[MM_OP_TURN_DONE] = { .args = 1 },
	};

	if (msg->opcode >= MM_OP_COUNT)
		return "unknown opcode";
	if (msg->flags || msg->reserved)
		return "flags or reserved not 0";
	if (msg->result && !rules[msg->opcode].result)
		return "result in a request";
	if (msg->epoch && !rules[msg->opcode].epoch)
		return "epoch where none belongs";
	for (size_t i = rules[msg->opcode].args; i < MM_ARRAY_SIZE(msg->arg); i++) {
		if (msg->arg[i])
			return "unused argument not 0";
	}
	return NULL;
}
