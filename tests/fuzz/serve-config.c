/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes mmserve's reader of config.json: kernels must be able to compute accepted shapes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/args/args.h"
#include "tests/fuzz/input.h"
#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/engine/rope.h"

static char folder[] = "/tmp/mm-fuzz-XXXXXX";
static char entry[sizeof(folder) + 16];

static void remove_folder(void)
{
	unlink(entry);
	rmdir(folder);
}

/* The folder's config.json is a symbolic link to the input. */
static void make_folder(const char *path)
{
	mm_assert(mkdtemp(folder) != NULL);
	snprintf(entry, sizeof(entry), "%s/config.json", folder);
	mm_assert(symlink(path, entry) == 0 && atexit(remove_folder) == 0);
}

static void check_frequencies(const struct mm_arch *c)
{
	double frequencies[MM_HEAD_DIM_MAX / 2];

	mm_rope_frequencies(c, frequencies);
	for (uint32_t i = 0; i < c->head_dim / 2; i++)
		mm_assert(isfinite(frequencies[i]) && frequencies[i] >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static char err[MM_SERVE_ERROR_BYTES];
	struct mm_arch c;
	char path[INPUT_PATH_BYTES];

	input_path(data, size_bytes, path);
	if (!entry[0])
		make_folder(path);
	err[0] = 0;
	if (mm_config_load(folder, &c, err) < 0) {
		mm_assert(err[0]);
		return 0;
	}
	mm_assert(c.hidden && c.ffn && c.layers && c.heads && c.kv_heads && c.vocab);
	mm_assert(c.heads % c.kv_heads == 0 && c.max_position);
	mm_assert(c.head_dim && c.head_dim <= MM_HEAD_DIM_MAX && c.embed_dim);
	mm_assert(isfinite(c.norm_eps) && c.norm_eps > 0);
	if (c.family == MM_FAMILY_OPT)
		return 0;
	mm_assert(c.head_dim % 2 == 0);
	check_frequencies(&c);
	return 0;
}
