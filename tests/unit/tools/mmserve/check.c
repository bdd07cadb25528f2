/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks files against config.json: no tensor may be missing, and none may be ignored without
 * notice.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tests/unit/tools/mmserve/rig.h"
#include "tools/mmserve/engine/check.h"

static const struct mk_format f32 = { MM_DTYPE_F32, MM_DTYPE_F32, 0, false };
static char dir[256], err[MM_SERVE_ERROR_BYTES];

static struct mm_arch arch_of(enum mm_family family)
{
	return (struct mm_arch){ .hidden = 32,
				 .ffn = 64,
				 .layers = 2,
				 .heads = 4,
				 .kv_heads = family == MM_FAMILY_OPT ? 4 : 2,
				 .vocab = 100,
				 .max_position = 128,
				 .family = family };
}

/* Writes a model, and reads it back as mmserve does. */
static struct mm_arch make_model(const struct mm_arch *arch, mk_row_fn *row)
{
	struct mk_random random = rig_random(arch, 5);
	const struct mk_source source = { random.arch, row, &random };
	struct mm_arch read;

	rig_model(&source, &f32, dir, sizeof(dir));
	if (mm_config_load(dir, &read, err))
		fail_msg("%s", err);
	return read;
}

static void expect_refusal(const struct mm_arch *arch, int want, const char *a, const char *b)
{
	assert_int_equal(mm_serve_check_files(dir, arch, err), want);
	print_message("%s\n", err);
	assert_non_null(strstr(err, a));
	assert_non_null(strstr(err, b));
	assert_non_null(strstr(err, dir));
}

static void test_families(void **state)
{
	(void)state;
	for (enum mm_family f = 0; f < MM_FAMILY_COUNT; f++) {
		for (int tied = 0; tied < 2; tied++) {
			struct mm_arch arch = arch_of(f);

			arch.tied = tied;
			arch = make_model(&arch, mk_random_row);
			if (mm_serve_check_files(dir, &arch, err))
				fail_msg("%s", err);
			rig_remove(dir);
		}
	}
}

/* The head's rows are the embedding's. */
static void row_with_equal_head(void *context, enum mm_weight weight, uint32_t layer, uint32_t row,
				float *out)
{
	mk_random_row(context, weight == MM_W_HEAD ? MM_W_EMBED : weight, layer, row, out);
}

static void row_with_nearly_equal_head(void *context, enum mm_weight weight, uint32_t layer,
				       uint32_t row, float *out)
{
	row_with_equal_head(context, weight, layer, row, out);
	if (weight == MM_W_HEAD && row == 99)
		out[31] += 1;
}

/* The files have both matrices; config.json says that there is but one. */
static void test_tied_beside_a_head(void **state)
{
	static mk_row_fn *const rows[] = { row_with_equal_head, row_with_nearly_equal_head,
					   mk_random_row };

	(void)state;
	for (enum mm_family f = 0; f < MM_FAMILY_COUNT; f++) {
		for (size_t i = 0; i < MM_ARRAY_SIZE(rows); i++) {
			struct mm_arch arch = arch_of(f);

			arch = make_model(&arch, rows[i]);
			arch.tied = true;
			if (i)
				expect_refusal(&arch, -EBADMSG, "config.json: tie_word_embeddings",
					       "lm_head.weight in model.safetensors");
			else if (mm_serve_check_files(dir, &arch, err))
				fail_msg("%s", err);
			rig_remove(dir);
		}
	}
}

static void test_left_over(void **state)
{
	struct mm_arch arch = arch_of(MM_FAMILY_QWEN2);

	(void)state;
	arch = make_model(&arch, mk_random_row);
	arch.family = MM_FAMILY_LLAMA;
	expect_refusal(&arch, -ENOTSUP, "model.safetensors: tensor model.layers.0.self_attn.",
		       "LlamaForCausalLM");
	rig_remove(dir);
	arch = arch_of(MM_FAMILY_OPT);
	arch = make_model(&arch, mk_random_row);
	arch.no_final_norm = true;
	expect_refusal(&arch, -ENOTSUP, "model.decoder.final_layer_norm", "OPTForCausalLM");
	rig_remove(dir);
}

static void test_missing(void **state)
{
	struct mm_arch arch = arch_of(MM_FAMILY_LLAMA), other;

	(void)state;
	arch = make_model(&arch, mk_random_row);
	other = arch;
	other.family = MM_FAMILY_QWEN2;
	assert_int_equal(mm_serve_check_files(dir, &other, err), -EBADMSG);
	assert_non_null(strstr(err, "model.layers.0.self_attn.q_proj.bias: is missing"));
	other = arch;
	other.ffn++;
	assert_int_equal(mm_serve_check_files(dir, &other, err), -EBADMSG);
	assert_non_null(strstr(err, "mlp.gate_proj.weight: its shape"));
	rig_remove(dir);
	/* Files that cannot be read pass: the loader refuses them. */
	assert_int_equal(mm_serve_check_files(dir, &arch, err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_tied_beside_a_head),
		cmocka_unit_test(test_left_over),
		cmocka_unit_test(test_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
