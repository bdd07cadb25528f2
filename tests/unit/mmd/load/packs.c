/* SPDX-License-Identifier: Apache-2.0 */
/* Packing lists: rules that are accepted or refused, and the stores that they make. */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/ipc/sock.h"
#include "libclient/model/names.h"
#include "libclient/model/pack.h"
#include "libclient/model/placed.h"
#include "tests/unit/mmd/load/model.h"

#define CONFIG "{\"num_hidden_layers\":2}"
#define L(n)   "model.layers." #n "."

static const struct tensor model[] = {
	{ "model.embed.weight", "F32", 2, { 13, 7 }, 0 },
	{ L(0) "q.weight", "BF16", 2, { 33, 31 }, 0 },
	{ L(0) "k.weight", "BF16", 2, { 3, 31 }, 0 },
	{ L(0) "v.weight", "BF16", 2, { 3, 31 }, 1 },
	{ L(0) "o.weight", "F32", 2, { 31, 600 }, 0 },
	{ L(0) "cube", "F16", 3, { 2, 3, 31 }, 0 },
	{ L(0) "q.bias", "F32", 1, { 33 }, 0 },
	{ L(0) "k.bias", "F32", 1, { 3 }, 0 },
	{ L(0) "empty", "BF16", 2, { 0, 31 }, 0 },
	{ L(1) "q.weight", "BF16", 2, { 33, 31 }, 1 },
	{ L(1) "k.weight", "BF16", 2, { 3, 31 }, 0 },
	{ L(1) "v.weight", "BF16", 2, { 3, 31 }, 0 },
	{ L(1) "o.weight", "F32", 2, { 31, 600 }, 1 },
	{ L(1) "large", "F16", 2, { 1200, 1100 }, 1 }, /* several blocks */
	{ L(1) "wide", "F32", 2, { 2, 300001 }, 1 },
	{ "scalar", "F32", 0, { 0 }, 1 },
};
#define MODEL_FILES 2
#define QKV         "model.layers.*.q.weight", "model.layers.*.k.weight", "model.layers.*.v.weight"

static int setup(void **state)
{
	(void)state;
	model_dir_make("/tmp");
	model_write_config(CONFIG);
	model_write(model, MM_ARRAY_SIZE(model), 0);
	return 0;
}

/* ---- a rule by itself ---- */

static struct mm_load_pack good_rule(void)
{
	return pack_rule(0, "model.layers.*.qkv", (const char *const[4]){ QKV });
}

static void unknown_flag(struct mm_load_pack *rule)
{
	rule->flags = 4;
}

static void no_members(struct mm_load_pack *rule)
{
	*rule = pack_rule(0, "x", (const char *const[4]){ NULL });
}

static void many_members(struct mm_load_pack *rule)
{
	rule->n_members = MM_PACK_MEMBERS_MAX + 1;
}

static void fewer_members(struct mm_load_pack *rule)
{
	rule->n_members = 4;
}

static void more_members(struct mm_load_pack *rule)
{
	rule->n_members = 2;
}

static void endless_name(struct mm_load_pack *rule)
{
	memset(rule->name, 'x', sizeof(rule->name));
}

static void name_with_tail(struct mm_load_pack *rule)
{
	rule->name[MM_TENSOR_NAME_BYTES - 1] = 'x';
}

static void member_with_tail(struct mm_load_pack *rule)
{
	rule->member[9][5] = 'x';
}

static void control_character(struct mm_load_pack *rule)
{
	rule->member[1][2] = '\n';
}

static void two_wildcards(struct mm_load_pack *rule)
{
	memset(rule->member[2], 0, sizeof(rule->member[2]));
	strcpy(rule->member[2], "a.*.b.*.c");
}

static void plain_member(struct mm_load_pack *rule)
{
	memset(rule->member[2], 0, sizeof(rule->member[2]));
	strcpy(rule->member[2], "a");
}

static void plain_name(struct mm_load_pack *rule)
{
	memset(rule->name, 0, sizeof(rule->name));
	strcpy(rule->name, "a");
}

static const struct {
	void (*corrupt)(struct mm_load_pack *rule);
	const char *needle;
} rules[] = {
	{ unknown_flag, "flags 0x4" },         { no_members, "0 members" },
	{ many_members, "17 members" },        { fewer_members, "member 3" },
	{ more_members, "member 2" },          { endless_name, "its name" },
	{ name_with_tail, "its name" },        { member_with_tail, "member 9" },
	{ control_character, "member 1" },     { two_wildcards, "more than one *" },
	{ plain_member, "a * for the layer" }, { plain_name, "a * for the layer" },
};

static void test_rules(void **state)
{
	static struct mm_packs packs;
	struct mm_load_pack rule = good_rule();
	struct mm_why why;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(rules); i++) {
		rule = good_rule();
		rules[i].corrupt(&rule);
		assert_int_equal(mm_packs_add(&packs, &rule, &why), -EINVAL);
		if (!strstr(why.text, rules[i].needle))
			fail_msg("'%s' lacks '%s'", why.text, rules[i].needle);
	}
	assert_int_equal(packs.count, 0);
	rule = good_rule();
	for (size_t i = 0; i < MM_LOAD_PACKS_MAX; i++)
		assert_int_equal(mm_packs_add(&packs, &rule, &why), 0);
	assert_int_equal(mm_packs_add(&packs, &rule, &why), -E2BIG);
}

static void test_expand(void **state)
{
	char name[MM_TENSOR_NAME_BYTES], pattern[MM_TENSOR_NAME_BYTES];

	(void)state;
	assert_true(mm_pack_expand("a.*.b", 107, name));
	assert_string_equal(name, "a.107.b");
	assert_true(mm_pack_expand("a.b", 107, name));
	assert_string_equal(name, "a.b");
	memset(pattern, 'x', sizeof(pattern) - 1);
	pattern[sizeof(pattern) - 1] = 0;
	assert_true(mm_pack_expand(pattern, 10, name));
	pattern[7] = '*';
	assert_true(mm_pack_expand(pattern, 9, name));
	assert_false(mm_pack_expand(pattern, 10, name));
}

/* ---- pieces ---- */

/* A tensor is transposed correctly however it is cut into pieces. */
static void check_cuts(uint32_t item, uint64_t rows, uint64_t cols, uint64_t piece)
{
	const uint64_t bytes = item * rows * cols;
	const struct mm_placed placed = {
		.bytes = bytes, .store_offset = 3, .item_bytes = item, .rows = rows, .cols = cols
	};
	char *from = malloc(bytes), *to = calloc(1, bytes + 3);

	assert_true(from && to);
	for (uint64_t i = 0; i < bytes; i++)
		from[i] = (char)((i * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
	for (uint64_t at = 0; at < bytes; at += piece)
		mm_placed_copy(&placed, at, MM_MIN(piece, bytes - at), from + at, to);
	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t c = 0; c < cols; c++)
			assert_memory_equal(to + 3 + (c * rows + r) * item,
					    from + (r * cols + c) * item, item);
	free(from);
	free(to);
}

static void test_transpose(void **state)
{
	static const uint64_t sides[] = { 1, 2, 5, 32, 33, 70 };
	static const uint64_t pieces[] = { 1, 2, 3, 7, 64, 129, 1000, 100000 };

	(void)state;
	for (uint32_t item = 2; item <= 4; item += 2)
		for (size_t r = 0; r < MM_ARRAY_SIZE(sides); r++)
			for (size_t c = 0; c < MM_ARRAY_SIZE(sides); c++)
				for (size_t p = 0; p < MM_ARRAY_SIZE(pieces); p++)
					check_cuts(item, sides[r], sides[c], pieces[p]);
}

/* ---- stores ---- */

static void load_packed(struct load *load, const struct mm_load_pack *list, size_t n)
{
	load_start(load, MODE_PLAIN);
	load_pass_files(load, MODEL_FILES);
	for (size_t i = 0; i < n; i++)
		load_pass_rule(load, &list[i]);
	(void)load_pass(load, MM_LOAD_END, "", -1);
	assert_true(load_receive(load));
	if (load->ident.op != MM_L_IDENT)
		fail_msg("%s", load->ident.text);
}

static void fill_store(struct load *load)
{
	load_alloc(load);
	assert_true(load_receive(load));
	assert_int_equal(load->ident.op, MM_L_DONE);
	assert_int_equal(load_end(load), 0);
	store_check(load, model, MM_ARRAY_SIZE(model));
}

static void check_pack(const struct load *load, const char *name, const char *const members[],
		       size_t n, uint32_t group)
{
	const void *bytes, *member_bytes;
	const struct mm_dir_tensor *pack = store_find(load, name, &bytes);
	const char *at = bytes;
	uint64_t rows = 0;

	assert_true(pack->flags & MM_TENSOR_PACK);
	assert_int_equal(pack->offset % MM_TENSOR_ALIGN, 0);
	assert_int_equal(pack->group, group);
	for (size_t m = 0; m < n; m++) {
		const struct mm_dir_tensor *t = store_find(load, members[m], &member_bytes);

		assert_true(t->flags & MM_TENSOR_MEMBER);
		assert_ptr_equal(member_bytes, at);
		assert_int_equal(t->group, group);
		assert_int_equal(t->shape[1], pack->shape[1]);
		at += t->bytes;
		rows += t->shape[0];
	}
	assert_int_equal(pack->bytes, at - (const char *)bytes);
	assert_int_equal(pack->shape[0], rows);
}

static void test_store(void **state)
{
	const struct mm_load_pack list[] = {
		good_rule(),
		pack_rule(0, L(0) "qk.bias",
			  (const char *const[4]){ L(0) "q.bias", L(0) "k.bias" }),
		pack_rule(MM_PACK_TRANSPOSE, "",
			  (const char *const[4]){ "model.layers.*.o.weight" }),
		pack_rule(MM_PACK_TRANSPOSE, "turned",
			  (const char *const[4]){ "model.embed.weight" }),
		pack_rule(MM_PACK_OPTIONAL | MM_PACK_TRANSPOSE, "",
			  (const char *const[4]){ "model.layers.*.large" }),
		pack_rule(MM_PACK_OPTIONAL | MM_PACK_TRANSPOSE, "",
			  (const char *const[4]){ "model.layers.*.wide" }),
		pack_rule(MM_PACK_OPTIONAL, "", (const char *const[4]){ "no.such", "at.all" }),
	};
	struct load load;

	(void)state;
	load_packed(&load, list, MM_ARRAY_SIZE(list));
	fill_store(&load);
	check_pack(&load, L(0) "qkv",
		   (const char *const[]){ L(0) "q.weight", L(0) "k.weight", L(0) "v.weight" }, 3,
		   1);
	check_pack(&load, L(1) "qkv",
		   (const char *const[]){ L(1) "q.weight", L(1) "k.weight", L(1) "v.weight" }, 3,
		   2);
	check_pack(&load, L(0) "qk.bias", (const char *const[]){ L(0) "q.bias", L(0) "k.bias" }, 2,
		   0);
	check_pack(&load, "turned", (const char *const[]){ "model.embed.weight" }, 1, 0);
	load_done(&load);
}

/* Tenants share a copy if their lists are the same, in any order of rules. */
static void test_identity(void **state)
{
	const struct mm_load_pack bias = pack_rule(
		0, L(0) "qk.bias", (const char *const[4]){ L(0) "q.bias", L(0) "k.bias" });
	const struct mm_load_pack swapped = pack_rule(
		0, L(0) "qk.bias", (const char *const[4]){ L(0) "k.bias", L(0) "q.bias" });
	const struct mm_load_pack lists[][2] = { { good_rule(), bias },
						 { bias, good_rule() },
						 { good_rule(), swapped } };
	static const size_t counts[] = { 2, 2, 2, 1, 0 };
	uint8_t identity[MM_ARRAY_SIZE(counts)][32];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(counts); i++) {
		struct load load;

		load_packed(&load, lists[i < 3 ? i : 0], counts[i]);
		memcpy(identity[i], load.ident.identity, sizeof(identity[i]));
		load_done(&load);
	}
	assert_memory_equal(identity[0], identity[1], sizeof(identity[0]));
	for (size_t i = 2; i < MM_ARRAY_SIZE(counts); i++)
		for (size_t j = 0; j < i; j++)
			assert_memory_not_equal(identity[i], identity[j], sizeof(identity[0]));
}

/* Each case has one rule that the model does not fit. */
static const struct {
	const char *what;
	uint32_t flags;
	const char *name;
	const char *member[4];
	const char *needle;
} misfits[] = {
	{ "no such tensor", 0, "", { "nowhere" }, "no tensor nowhere" },
	{ "not in each layer", 0, "", { "model.layers.*.q.bias" }, "layer 1 has no tensor" },
	{ "some of an optional one",
	  MM_PACK_OPTIONAL,
	  "",
	  { L(0) "q.bias", "nowhere" },
	  "no tensor nowhere" },
	{ "twice in one", 0, "", { "scalar", "scalar" }, "tensor scalar" },
	{ "twice in one, with rows", 0, "", { L(0) "q.bias", L(0) "q.bias" }, "in a pack already" },
	{ "in two", 0, "", { L(0) "q.weight" }, "in a pack already" },
	{ "dtypes", 0, "", { L(0) "o.weight", L(0) "cube" }, "differ in dtype" },
	{ "ranks", 0, "", { L(0) "o.weight", L(0) "q.bias" }, "differ in rank" },
	{ "inner dimensions", 0, "", { L(0) "o.weight", L(0) "odd" }, "differ in rank or inner" },
	{ "inner ones when transposed",
	  MM_PACK_TRANSPOSE,
	  "",
	  { L(0) "odd", L(0) "odder" },
	  "differ in rank or inner" },
	{ "layers", 0, "", { L(0) "o.weight", L(1) "o.weight" }, "another layer" },
	{ "layer and none", 0, "", { L(0) "q.bias", "norm" }, "another layer" },
	{ "name of another layer", 0, L(1) "x", { L(0) "q.bias" }, "another layer" },
	{ "name of no layer", 0, "x", { L(0) "q.bias" }, "another layer" },
	{ "the name is taken", 0, L(0) "k.bias", { L(0) "q.bias" }, "has that name" },
	{ "the name is of another pack", 0, L(0) "qkv", { L(0) "q.bias" }, "has that name" },
	{ "a * that is no layer", 0, "", { "expert*" }, "not the number of a layer" },
	{ "transposed vector", MM_PACK_TRANSPOSE, "", { L(0) "q.bias" }, "rank 1" },
	{ "transposed cube", MM_PACK_TRANSPOSE, "", { L(0) "cube" }, "rank 3" },
	{ "empty", 0, "", { L(0) "empty" }, "no rows" },
	{ "scalar", 0, "", { "scalar" }, "no rows" },
};

static void test_misfits(void **state)
{
	static const struct tensor more[] = {
		{ L(0) "odd", "F32", 2, { 31, 601 }, 0 },
		{ L(0) "odder", "F32", 2, { 30, 601 }, 0 },
		{ "norm", "F32", 1, { 9 }, 0 },
		{ "expert0", "F32", 1, { 9 }, 0 },
		{ "expert1", "F32", 1, { 9 }, 0 },
	};
	struct tensor all[MM_ARRAY_SIZE(model) + MM_ARRAY_SIZE(more)];

	(void)state;
	memcpy(all, model, sizeof(model));
	memcpy(&all[MM_ARRAY_SIZE(model)], more, sizeof(more));
	model_write(all, MM_ARRAY_SIZE(all), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(misfits); i++) {
		const struct mm_load_pack list[] = {
			good_rule(), pack_rule(misfits[i].flags, misfits[i].name, misfits[i].member)
		};
		struct load load;

		load_start(&load, MODE_PLAIN);
		load_pass_files(&load, MODEL_FILES);
		load_pass_rule(&load, &list[0]);
		load_pass_rule(&load, &list[1]);
		(void)load_pass(&load, MM_LOAD_END, "", -1);
		assert_true(load_receive(&load));
		if (load.ident.op != MM_L_DONE || load.ident.result != -EINVAL ||
		    !strstr(load.ident.text, misfits[i].needle))
			fail_msg("%s: op %u, %d '%s'", misfits[i].what, load.ident.op,
				 load.ident.result, load.ident.text);
		assert_int_equal(load_end(&load), 1);
		load_done(&load);
	}
}

/* A message that is not a rule ends the load; later messages do not hide the reason. */
static void test_bad_messages(void **state)
{
	struct mm_load_pack rule = good_rule();
	struct load load;

	(void)state;
	load_start(&load, MODE_PLAIN);
	assert_int_equal(mm_sock_send(load.tenant, &rule, sizeof(rule) - 1, NULL, 0), 0);
	(void)mm_sock_send(load.tenant, &rule, sizeof(rule), NULL, 0);
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.result, -EPROTO);
	assert_int_equal(load_end(&load), 1);
	load_done(&load);

	load_start(&load, MODE_PLAIN);
	rule.n_members = 0;
	load_pass_rule(&load, &rule);
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.result, -EINVAL);
	assert_int_equal(load_end(&load), 1);
	assert_non_null(strstr(load.status.text, "0 members"));
	load_done(&load);
}

static void test_names(void **state)
{
	size_t len = 0;

	(void)state;
	assert_int_equal(mm_name_layer("model.decoder.layers.11.fc1.weight", &len), 11);
	assert_int_equal(len, strlen("model.decoder.layers."));
	assert_int_equal(mm_name_layer("transformer.h.0.x", &len), 0);
	assert_int_equal(len, strlen("transformer.h."));
	assert_int_equal(mm_name_layer("model.decoder.project_in.weight", NULL), MM_NO_LAYER);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_expand),
		cmocka_unit_test(test_transpose),
		cmocka_unit_test(test_names),
		cmocka_unit_test_setup_teardown(test_store, setup, model_dir_remove),
		cmocka_unit_test_setup_teardown(test_identity, setup, model_dir_remove),
		cmocka_unit_test_setup_teardown(test_misfits, setup, model_dir_remove),
		cmocka_unit_test_setup_teardown(test_bad_messages, setup, model_dir_remove),
	};

	model_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
