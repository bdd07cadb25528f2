/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the image of a core: a good one in which some bytes are others, or the input itself as an
 * image. What is loaded breaks no invariant.
 *
 * Inputs are lines of text, so that those in corpus/ can be read: "OFFSET NUMBER" (input_patch()).
 */
#include <stdlib.h>
#include <string.h>

#include "mmd/core/image.h"
#include "mmd/fields/format.h"
#include "tests/fuzz/input.h"
#include "tests/sim/world.h"

static struct world world;
static uint8_t *good, *image;
static size_t good_bytes, room;

/* Two tenants, one of them with layers away, and KV. */
static void good_make(void)
{
	struct mm_core_opts opts = { .pages = 32,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP,
				     .tenants_max = 8,
				     .accounts_max = 24 };

	w_init(&world, &opts, 1);
	w_join(&world, 0, MM_FEAT_KNOWN);
	w_join(&world, 1, 0);
	w_tick(&world, 5 * MM_NS_PER_MS);
	room = mm_core_image_room(world.core);
	good = malloc(room);
	image = malloc(room);
	mm_assert(good && image);
	mm_assert(mm_core_image_save(world.core, good, room, &good_bytes) == 0);
}

/* The checksum is right: what it protects from is not what is looked for. */
static void image_seal(void)
{
	const size_t head = MM_ROWS_HEAD_WORDS * 8;
	uint64_t sum = mm_rows_checksum(image + head, good_bytes - head);

	memcpy(image + 16, &sum, sizeof(sum));
}

static void image_patch(const uint8_t *data, size_t size_bytes)
{
	memcpy(image, good, good_bytes);
	input_patch(data, size_bytes, image, good_bytes);
	image_seal();
}

static void image_load(const void *from, size_t bytes)
{
	char err[256] = "";
	struct mm_core *core;
	struct mm_action action;

	if (mm_core_image_load(&world.opts, from, bytes, &core, err, sizeof(err)) < 0) {
		mm_assert(*err);
		return;
	}
	mm_assert(!mm_core_check_sentence(core));
	while (mm_core_next(core, &action))
		continue;
	mm_core_destroy(core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	if (!good)
		good_make();
	image_load(data, size_bytes);
	image_patch(data, size_bytes);
	image_load(image, good_bytes);
	return 0;
}
