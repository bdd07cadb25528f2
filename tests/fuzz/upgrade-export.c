/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes what core gives to another build to try: the tables of the book's structs, its front, and
 * the image of a core. A good export in which some bytes are others, or the input itself.
 *
 * Inputs are lines of text, so that those in corpus/ can be read: "OFFSET NUMBER" (input_patch()).
 */
#include <sys/stat.h>

#include "mmd/fields/format.h"
#include "mmd/shell/preflight.h"
#include "mmd/shell/shell.h"
#include "tests/fuzz/input.h"
#include "tests/sim/world.h"

#define LAYOUT_HEAD 32 /* bytes before what the checksum of the tables is about */

static struct world world;
static struct mm_shell shell;
static uint8_t *good, *export;
static size_t export_bytes;

/* Where the parts of an export are, as its head says. */
static uint64_t good_word(size_t index)
{
	uint64_t word;

	memcpy(&word, good + 8 * index, sizeof(word));
	return word;
}

/* One device with two tenants; a session has something in the book. */
static void good_make(void)
{
	struct mm_core_opts opts = { .pages = 32,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP,
				     .tenants_max = MM_DEVICE_TENANTS_MAX };
	struct stat st;
	int fd;

	w_init(&world, &opts, 1);
	w_join(&world, 0, MM_FEAT_KNOWN);
	w_join(&world, 1, 0);
	w_tick(&world, 5 * MM_NS_PER_MS);
	mm_assert(mm_kept_create(1, 3, &shell.kept) == 0);
	shell.kept.front->session[1].state = MM_SESSION_OPEN;
	shell.n_pools = 1;
	shell.pool[0].core = world.core;
	shell.pool[0].worker.device.pages = opts.pages;
	shell.pool[0].worker.device.page_bytes = opts.page_bytes;
	fd = mm_preflight_export(&shell);
	mm_assert(fd >= 0 && fstat(fd, &st) == 0);
	export_bytes = (size_t)st.st_size;
	good = malloc(export_bytes);
	export = malloc(export_bytes);
	mm_assert(good && export && pread(fd, good, export_bytes, 0) == st.st_size);
	close(fd);
}

static void part_seal(uint64_t at, uint64_t bytes, size_t head)
{
	uint64_t sum = mm_rows_checksum(export + at + head, bytes - head);

	memcpy(export + at + 16, &sum, sizeof(sum));
}

static void patched_try(const void *from, size_t bytes)
{
	char why[MM_TEXT_BYTES] = "";

	mm_assert(mm_preflight_try(from, bytes, why) == 0 || *why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	if (!good)
		good_make();
	patched_try(data, size_bytes);
	memcpy(export, good, export_bytes);
	input_patch(data, size_bytes, export, good_word(10) + good_word(11)); /* the rest is room */
	/* The checksums are right: what they protect from is not what is looked for. */
	part_seal(good_word(2), good_word(3), LAYOUT_HEAD);
	part_seal(good_word(10), good_word(11), MM_ROWS_HEAD_WORDS * 8);
	patched_try(export, export_bytes);
	return 0;
}
