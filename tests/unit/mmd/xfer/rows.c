/* SPDX-License-Identifier: Apache-2.0 */
/* Which driver calls rows of cold blocks become, and which rows are chosen: no device is needed. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "mmd/xfer/cold.h"

#define TO_VA     UINT64_C(0x7000000000)
#define PARTS     5
#define ROUNDS    400
#define CALLS_MAX (1 << 18)

struct call {
	uint64_t from, from_pitch; /* byte of the swap space */
	uint64_t to, to_pitch;     /* byte of the window */
	uint64_t width, rows;
};

/* The address of the space is never read. */
struct bench {
	struct mm_xdev dev;
	struct mm_xpool pool;
	struct mm_xlink link;
	struct mm_xswap swap;
	uint8_t registered[PARTS];
	uint32_t registrations, calls;
	struct call call[CALLS_MAX];
	struct mm_cold_live live;
	struct mm_xrows rows;
};

static char *const space = (char *)0x100000000;
static struct bench bench;
static const uint64_t no_limit = MM_COLD_MAX;

static CUresult CUDAAPI memcpy_taken(CUdeviceptr to, const void *from, size_t bytes,
				     CUstream stream)
{
	assert_ptr_equal(stream, bench.dev.copy);
	assert_true(bench.calls < CALLS_MAX);
	bench.call[bench.calls++] = (struct call){ .from = (uint64_t)((const char *)from - space),
						   .to = to - TO_VA,
						   .width = bytes,
						   .rows = 1 };
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI memcpy_2d_taken(const CUDA_MEMCPY2D *copy, CUstream stream)
{
	assert_ptr_equal(stream, bench.dev.copy);
	assert_true(bench.calls < CALLS_MAX);
	assert_int_equal(copy->srcMemoryType, CU_MEMORYTYPE_HOST);
	assert_int_equal(copy->dstMemoryType, CU_MEMORYTYPE_DEVICE);
	assert_true(copy->srcPitch <= bench.dev.pitch_max_bytes && copy->Height > 1);
	bench.call[bench.calls++] =
		(struct call){ .from = (uint64_t)((const char *)copy->srcHost - space),
			       .from_pitch = copy->srcPitch,
			       .to = copy->dstDevice - TO_VA,
			       .to_pitch = copy->dstPitch,
			       .width = copy->WidthInBytes,
			       .rows = copy->Height };
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI register_taken(void *host, size_t bytes, unsigned int flags)
{
	uint64_t part = (uint64_t)((char *)host - space) / MM_SWAP_PART_BYTES;

	(void)bytes;
	(void)flags;
	assert_int_equal((uint64_t)((char *)host - space) % MM_SWAP_PART_BYTES, 0);
	assert_int_equal(bench.registered[part]++, 0);
	return CUDA_SUCCESS;
}

static int setup(void **state)
{
	(void)state;
	memset(&bench, 0, sizeof(bench));
	bench.dev.gpu.cuMemcpyHtoDAsync = memcpy_taken;
	bench.dev.gpu.cuMemcpy2DAsync = memcpy_2d_taken;
	bench.dev.gpu.cuMemHostRegister = register_taken;
	bench.dev.copy = (CUstream)(uintptr_t)8;
	bench.dev.pitch_max_bytes = INT32_MAX;
	bench.pool.dev = &bench.dev;
	bench.link.pool = &bench.pool;
	bench.swap = (struct mm_xswap){ .bytes = PARTS * MM_SWAP_PART_BYTES,
					.region = { .base = space, .fd = -1 },
					.link = &bench.link };
	bench.swap.part = calloc(PARTS, 1);
	return bench.swap.part ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	free(bench.swap.part);
	return 0;
}

static uint64_t random_to(uint64_t n)
{
	return ((uint64_t)rand() << 31 ^ (uint64_t)rand()) % n;
}

/* Issues all rows, in chunks as the link does. */
static void rows_issue_all(uint64_t chunk_bytes)
{
	uint64_t left = bench.rows.count * bench.rows.at.width;

	while (left > 0) {
		uint64_t done = 0, limit = mm_xrows_chunk_bytes(&bench.rows, chunk_bytes);

		assert_true(limit <= chunk_bytes);
		while (left > 0 && done < limit) {
			uint64_t bytes = 0;

			assert_int_equal(mm_xrows_issue(&bench.rows, limit - done, &bytes), 0);
			assert_in_range(bytes, 1, limit - done);
			done += bytes;
			left -= bytes;
		}
		/* No row ends a chunk in its middle, if it has room in one. */
		assert_true(bench.rows.at.width > chunk_bytes || bench.rows.next_done == 0);
	}
}

/* Takes one call apart: each of its rows must be the next that is live, in one part. */
static void call_check(const struct call *c, uint32_t *entry, uint64_t *done)
{
	const struct mm_xplace *at = &bench.rows.at;
	uint64_t last = c->from + (c->rows - 1) * c->from_pitch + c->width - 1;

	assert_int_equal(c->from / MM_SWAP_PART_BYTES, last / MM_SWAP_PART_BYTES);
	assert_true(bench.registered[c->from / MM_SWAP_PART_BYTES]);
	assert_in_range(c->rows * c->width, 1, MM_COLD_ROWS_BYTES);
	for (uint64_t i = 0; i < c->rows; i++) {
		while (!(bench.live.live[*entry / 64] >> *entry % 64 & 1))
			++*entry;
		assert_int_equal(c->from + i * c->from_pitch,
				 at->from + *entry * at->from_pitch + *done);
		assert_int_equal(c->to + i * c->to_pitch,
				 at->to_va - TO_VA + *entry * at->to_pitch + *done);
		*done += c->width;
		assert_true(*done <= at->width);
		if (*done < at->width)
			continue;
		*done = 0;
		++*entry;
	}
}

static void place_random(uint32_t *ret_entries)
{
	uint64_t layers = 4 + random_to(60), classes = 2 + random_to(3);
	uint64_t unit = 64 * (1 + random_to(rand() % 4 ? 8192 : 262144));
	uint64_t entries = 1 + random_to(700), layer = random_to(layers);

	mm_xrows_begin(&bench.rows, &(struct mm_xplace){ .swap = &bench.swap,
							 .from = layer * unit,
							 .from_pitch = layers * unit,
							 .to_va = TO_VA + layer * unit,
							 .to_pitch = classes * unit,
							 .width = unit });
	*ret_entries = (uint32_t)MM_MIN(entries, bench.swap.bytes / layers / unit);
}

static void live_random(uint32_t entries)
{
	uint64_t density = 1 + random_to(20);

	memset(&bench.live, 0, sizeof(bench.live));
	for (uint32_t e = 0; e < entries; e++)
		if (random_to(20) < density)
			bench.live.live[e / 64] |= UINT64_C(1) << e % 64;
}

/* Every live row once and in order, and no call that a driver might refuse. */
static void test_calls(void **state)
{
	(void)state;
	srand(11);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t done = 0, width = 0;
		uint32_t entries, entry = 0;

		place_random(&entries);
		if (entries == 0)
			continue;
		live_random(entries);
		mm_xrows_choose(&bench.rows, &bench.live, entries, &no_limit);
		bench.calls = 0;
		rows_issue_all(i % 3 ? UINT64_C(16) << 20 : UINT64_C(4096) << i % 10);
		for (uint32_t c = 0; c < bench.calls; c++) {
			call_check(&bench.call[c], &entry, &done);
			width += bench.call[c].width * bench.call[c].rows;
		}
		assert_int_equal(width, bench.rows.count * bench.rows.at.width);
		assert_int_equal(done, 0);
	}
	for (uint32_t p = 0; p < PARTS; p++)
		assert_int_equal(bench.registered[p], 1);
}

/* Neighbours are one call, as many as have room in 16 MiB. */
static void test_runs(void **state)
{
	(void)state;
	/* OPT-13B: 40 layers of 320 KiB; 10 slots and a part of one are in a registration. */
	mm_xrows_begin(&bench.rows, &(struct mm_xplace){ .swap = &bench.swap,
							 .from_pitch = 40 * UINT64_C(327680),
							 .to_va = TO_VA,
							 .to_pitch = 4 * UINT64_C(327680),
							 .width = 327680 });
	bench.live.live[0] = 0x3fff7f;
	mm_xrows_choose(&bench.rows, &bench.live, 22, &no_limit);
	rows_issue_all(UINT64_C(16) << 20);
	assert_int_equal(bench.calls, 4);
	assert_int_equal(bench.call[0].rows, 7);
	assert_int_equal(bench.call[1].rows, 3); /* 8, 9, 10: the end of the registration */
	assert_int_equal(bench.call[2].rows, 10);
	assert_int_equal(bench.call[3].rows, 1);
	/* A device that takes no such pitch gets row by row. */
	bench.dev.pitch_max_bytes = UINT64_C(1) << 20;
	bench.calls = 0;
	mm_xrows_begin(&bench.rows, &(struct mm_xplace){ .swap = &bench.swap,
							 .from_pitch = 40 * UINT64_C(327680),
							 .to_va = TO_VA,
							 .to_pitch = 4 * UINT64_C(327680),
							 .width = 327680 });
	rows_issue_all(UINT64_C(16) << 20);
	assert_int_equal(bench.calls, 21);
}

/* The lowest bits, below the number of entries, up to the limit. */
static void test_chosen(void **state)
{
	(void)state;
	srand(12);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t entries = 1 + (uint32_t)random_to(i % 2 ? 300 : MM_COLD_MAX), count = 0;
		uint64_t limit = i % 3 ? random_to(entries + 2) : UINT64_MAX;

		live_random(MM_COLD_MAX);
		bench.live.version = i;
		mm_xrows_choose(&bench.rows, &bench.live, entries, &limit);
		for (uint32_t e = 0; e < entries; e++) {
			bool live = bench.live.live[e / 64] >> e % 64 & 1 && count < limit;

			assert_int_equal(bench.rows.live[e / 64] >> e % 64 & 1, live);
			count += live;
		}
		assert_int_equal(bench.rows.count, count);
		assert_int_equal(bench.rows.version, i);
		assert_int_equal(bench.rows.entries, entries);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_calls, setup, teardown),
		cmocka_unit_test_setup_teardown(test_runs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_chosen, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
