/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes what keeper leaves to another build: a good state in which some bytes are others, or the
 * input itself.
 *
 * Inputs are lines of text, so that those in corpus/ can be read: "OFFSET NUMBER" (input_patch()).
 */
#include <sys/stat.h>

#include "mmd/fields/format.h"
#include "mmd/keeper/reexec.h"
#include "tests/fuzz/input.h"

#define STATE_HEAD 184 /* bytes before the rows */

static struct mm_keeper keeper;
static uint8_t *good, *state;
static size_t state_bytes;

static void good_make(void)
{
	struct stat st;
	int fd;

	mm_hold_init(&keeper.hold, &keeper.closer);
	keeper.n_xfers = 1;
	keeper.closer.n_waiting = 2;
	keeper.helpers[7].pid = 5;
	for (uint64_t i = 1; i < 9; i++)
		mm_assert(mm_hold_put(&keeper.hold, (struct mm_held_name){ MM_HELD_PAGE, 0, i },
				      dup(1)) == 0);
	fd = mm_reexec_save(&keeper);
	mm_assert(fd >= 0 && fstat(fd, &st) == 0);
	good = malloc((size_t)st.st_size);
	state = malloc((size_t)st.st_size);
	mm_assert(good && state && pread(fd, good, (size_t)st.st_size, 0) == st.st_size);
	close(fd);
	/* The rest is room. */
	memcpy(&state_bytes, good + 8, sizeof(state_bytes));
	state_bytes += STATE_HEAD;
}

static void state_try(const uint8_t *from, size_t bytes)
{
	char why[MM_TEXT_BYTES] = "";

	mm_assert(mm_reexec_try(input_file(from, bytes, bytes), why, sizeof(why)) == 0 || *why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	const size_t head = STATE_HEAD + MM_ROWS_HEAD_WORDS * 8;
	uint64_t sum;

	if (!good)
		good_make();
	state_try(data, size_bytes);
	memcpy(state, good, state_bytes);
	input_patch(data, size_bytes, state, state_bytes);
	/* The checksum is right: what it protects from is not what is looked for. */
	sum = mm_rows_checksum(state + head, state_bytes - head);
	memcpy(state + STATE_HEAD + 16, &sum, sizeof(sum));
	state_try(state, state_bytes);
	return 0;
}
