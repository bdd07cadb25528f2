/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi - the constants and structs of mmd's headers, as JSON for the tests in Python
 *
 * Concept:   lib/abi.py runs this program and takes every number of the wire from what it prints:
 *            { "constants": { name: value },
 *              "structs": { name: { "size": bytes, "fields": [[name, offset, bytes, code]] } } }
 *            A code is that of Python's module struct; 's'
 *            also stands for what Python treats as bytes.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mm/abi.h"
#include "mmd/common/proto.h"

struct constant {
	const char *name;
	long long value;
};

struct field {
	const char *structure;
	size_t structure_bytes;
	const char *name;
	size_t offset, bytes;
	char code;
};

#define CONSTANT(name) #name, (long long)(name)

/* An array is a pointer to its elements here. */
/* clang-format off */
#define CODE(value) \
	_Generic((value), \
		uint16_t: 'H', int32_t: 'i', uint32_t: 'I', uint64_t: 'Q', \
		uint32_t *: 'I', uint64_t *: 'Q', default: 's')
/* clang-format on */
#define MEMBER(type, name) (((struct type *)0)->name)
#define FIELD(type, field)                                                            \
	.structure = #type, .structure_bytes = sizeof(struct type), .name = #field,   \
	.offset = offsetof(struct type, field), .bytes = sizeof(MEMBER(type, field)), \
	.code = CODE(MEMBER(type, field))

static const struct constant constants[] = {
	{ CONSTANT(MM_ABI_MAGIC) },
	{ CONSTANT(MM_ABI_MAJOR) },
	{ CONSTANT(MM_FEAT_REMAP) },
	{ CONSTANT(MM_FEAT_RECLAIM) },
	{ CONSTANT(MM_FEAT_PARTIAL) },
	{ CONSTANT(MM_FEAT_REASON) },
	{ CONSTANT(MM_FEAT_KV_FIXED) },
	{ CONSTANT(MM_FEAT_KV_SWAP) },
	{ CONSTANT(MM_FEAT_RESUME) },
	{ CONSTANT(MM_FEAT_DEMAND) },
	{ CONSTANT(MM_FEAT_MEM) },
	{ CONSTANT(MM_FEAT_GROUP) },
	{ CONSTANT(MM_FEAT_COLD) },
	{ CONSTANT(MM_FEAT_KEY) },
	{ CONSTANT(MM_FEAT_LEAVE) },
	{ CONSTANT(MM_HELLO_BYTES_MIN) },
	{ CONSTANT(MM_WELCOME_BYTES_MIN) },
	{ CONSTANT(MM_SQ_SLOTS) },
	{ CONSTANT(MM_CQ_SLOTS) },
	{ CONSTANT(MM_OP_NOP) },
	{ CONSTANT(MM_OP_MODEL_OPEN) },
	{ CONSTANT(MM_OP_KV_DECLARE) },
	{ CONSTANT(MM_OP_KV_WANT) },
	{ CONSTANT(MM_OP_KV_RELEASE) },
	{ CONSTANT(MM_OP_FDS_ACK) },
	{ CONSTANT(MM_OP_PARKED) },
	{ CONSTANT(MM_OP_COMMITTED) },
	{ CONSTANT(MM_OP_RESYNC) },
	{ CONSTANT(MM_OP_BYE) },
	{ CONSTANT(MM_OP_SWAP_OPEN) },
	{ CONSTANT(MM_OP_SWAP) },
	{ CONSTANT(MM_OP_TURN_JOIN) },
	{ CONSTANT(MM_OP_TURN_WANT) },
	{ CONSTANT(MM_OP_TURN_DONE) },
	{ CONSTANT(MM_OP_MAPPED) },
	{ CONSTANT(MM_OP_MEM_ALLOC) },
	{ CONSTANT(MM_OP_MEM_FREE) },
	{ CONSTANT(MM_OP_HOLD) },
	{ CONSTANT(MM_OP_UNLOAD) },
	{ CONSTANT(MM_OP_GROUP_JOIN) },
	{ CONSTANT(MM_OP_GROUP_MAPPED) },
	{ CONSTANT(MM_OP_COUNT) },
	{ CONSTANT(MM_EV_REPLY) },
	{ CONSTANT(MM_EV_MODEL_LOADED) },
	{ CONSTANT(MM_EV_MODEL_READY) },
	{ CONSTANT(MM_EV_PREPARE) },
	{ CONSTANT(MM_EV_SWITCH) },
	{ CONSTANT(MM_EV_KV_GRANT) },
	{ CONSTANT(MM_EV_KV_DENIED) },
	{ CONSTANT(MM_EV_KV_RECLAIM) },
	{ CONSTANT(MM_EV_SWAPPED) },
	{ CONSTANT(MM_EV_TURN_BEGIN) },
	{ CONSTANT(MM_EV_TURN_END) },
	{ CONSTANT(MM_EV_GROUP_READY) },
	{ CONSTANT(MM_EV_GROUP_USABLE) },
	{ CONSTANT(MM_EV_GROUP_DROP) },
	{ CONSTANT(MM_EV_GROUP_LEFT) },
	{ CONSTANT(MM_EV_LEAVE) },
	{ CONSTANT(MM_TURN_QUANTUM) },
	{ CONSTANT(MM_TURN_PRIORITY_MAX) },
	{ CONSTANT(MM_SWAP_LOTS) },
	{ CONSTANT(MM_SWAP_PIECES) },
	{ CONSTANT(MM_MAP_KV_BASE) },
	{ CONSTANT(MM_FD_BATCH_MAX) },
	{ CONSTANT(MM_NAME_BYTES) },
	{ CONSTANT(MM_TENSOR_NAME_BYTES) },
	{ CONSTANT(MM_LOAD_PACKS_MAX) },
	{ CONSTANT(MM_PACK_MEMBERS_MAX) },
	{ CONSTANT(MM_LOAD_CONFIG) },
	{ CONSTANT(MM_LOAD_SAFETENSORS) },
	{ CONSTANT(MM_LOAD_INDEX) },
	{ CONSTANT(MM_LOAD_PACK) },
	{ CONSTANT(MM_LOAD_END) },
	{ CONSTANT(MM_LOAD_KEY) },
	{ CONSTANT(MM_LOAD_KEY_ATTACH) },
	{ CONSTANT(MM_LOAD_KEY_DIGEST) },
	{ CONSTANT(MM_MODEL_KEY_BYTES) },
	{ CONSTANT(MM_PACK_TRANSPOSE) },
	{ CONSTANT(MM_PACK_KNOWN) },
	{ CONSTANT(MM_DEVICE_TENANTS_MAX) },
	{ CONSTANT(MM_STAGE_BLOCK_BYTES) },
	{ CONSTANT(MM_STAGE_BUFFERS_DEFAULT) },
};

/* The fields of a struct stand together and in the order that the header has. */
static const struct field fields[] = {
	{ FIELD(mm_hello, magic) },
	{ FIELD(mm_hello, abi_major) },
	{ FIELD(mm_hello, size_bytes) },
	{ FIELD(mm_hello, features) },
	{ FIELD(mm_hello, features_required) },
	{ FIELD(mm_hello, name) },
	{ FIELD(mm_hello, device_uuid) },
	{ FIELD(mm_hello, reserved) },
	{ FIELD(mm_welcome, magic) },
	{ FIELD(mm_welcome, abi_major) },
	{ FIELD(mm_welcome, size_bytes) },
	{ FIELD(mm_welcome, result) },
	{ FIELD(mm_welcome, tenant_id) },
	{ FIELD(mm_welcome, features) },
	{ FIELD(mm_welcome, page_bytes) },
	{ FIELD(mm_welcome, pool_pages) },
	{ FIELD(mm_welcome, device_uuid) },
	{ FIELD(mm_welcome, session) },
	{ FIELD(mm_welcome, driver) },
	{ FIELD(mm_welcome, policy) },
	{ FIELD(mm_welcome, n_devices) },
	{ FIELD(mm_welcome, abi_minor) },
	{ FIELD(mm_welcome, reason) },
	{ FIELD(mm_welcome, reserved) },
	{ FIELD(mm_msg, opcode) },
	{ FIELD(mm_msg, flags) },
	{ FIELD(mm_msg, result) },
	{ FIELD(mm_msg, user_data) },
	{ FIELD(mm_msg, epoch) },
	{ FIELD(mm_msg, arg) },
	{ FIELD(mm_msg, reserved) },
	{ FIELD(mm_swap_piece, arena_offset) },
	{ FIELD(mm_swap_piece, swap_offset) },
	{ FIELD(mm_swap_piece, bytes) },
	{ FIELD(mm_swap_piece, range) },
	{ FIELD(mm_tenant_region, sq_tail) },
	{ FIELD(mm_tenant_region, cq_head) },
	{ FIELD(mm_tenant_region, stats) },
	{ FIELD(mm_tenant_region, sq) },
	{ FIELD(mm_tenant_region, swap) },
	{ FIELD(mm_mmd_region, sq_head) },
	{ FIELD(mm_mmd_region, cq_tail) },
	{ FIELD(mm_mmd_region, state) },
	{ FIELD(mm_mmd_region, cq) },
	{ FIELD(mm_mmd_region, map) },
	{ FIELD(mm_gate_region, step_seq) },
	{ FIELD(mm_gate_region, gate) },
	{ FIELD(mm_fd_batch, magic) },
	{ FIELD(mm_fd_batch, kind) },
	{ FIELD(mm_fd_batch, epoch) },
	{ FIELD(mm_fd_batch, seq) },
	{ FIELD(mm_fd_batch, count) },
	{ FIELD(mm_fd_batch, page_id) },
	{ FIELD(mm_load_file, magic) },
	{ FIELD(mm_load_file, kind) },
	{ FIELD(mm_load_file, name) },
	{ FIELD(mm_load_key, magic) },
	{ FIELD(mm_load_key, kind) },
	{ FIELD(mm_load_key, flags) },
	{ FIELD(mm_load_key, key_bytes) },
	{ FIELD(mm_load_key, digest) },
	{ FIELD(mm_load_key, key) },
	{ FIELD(mm_load_pack, magic) },
	{ FIELD(mm_load_pack, kind) },
	{ FIELD(mm_load_pack, flags) },
	{ FIELD(mm_load_pack, n_members) },
	{ FIELD(mm_load_pack, name) },
	{ FIELD(mm_load_pack, member) },
	{ FIELD(mm_load_status, magic) },
	{ FIELD(mm_load_status, result) },
	{ FIELD(mm_load_status, done) },
	{ FIELD(mm_load_status, flags) },
	{ FIELD(mm_load_status, bytes_done) },
	{ FIELD(mm_load_status, bytes_total) },
	{ FIELD(mm_load_status, text) },
};

static void print_constants(void)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(constants); i++)
		printf("%s\"%s\": %lld", i ? ",\n" : "", constants[i].name, constants[i].value);
}

static bool is_first_of_struct(size_t i)
{
	return !i || strcmp(fields[i].structure, fields[i - 1].structure) != 0;
}

static void print_structs(void)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(fields); i++) {
		const struct field *f = &fields[i];

		if (is_first_of_struct(i))
			printf("%s\"%s\": {\"size\": %zu, \"fields\": [", i ? "]},\n" : "",
			       f->structure, f->structure_bytes);
		else
			printf(", ");
		printf("[\"%s\", %zu, %zu, \"%c\"]", f->name, f->offset, f->bytes, f->code);
	}
	printf("]}");
}

int main(void)
{
	printf("{\"constants\": {\n");
	print_constants();
	printf("\n}, \"structs\": {\n");
	print_structs();
	printf("\n}}\n");
	return 0;
}
