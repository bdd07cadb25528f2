/* SPDX-License-Identifier: Apache-2.0 */
/* The mapper on the software GPU, with every driver call of interest counted or made to fail. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/client/mapper.h"
#include "libclient/base/base.h"
#include "tests/unit/libclient/client/peer.h"

static struct peer *peer;
static struct mm_gpu_api gpu;
static struct {
	unsigned int map, unmap, access, release;
	unsigned int fail_map, fail_access; /* the n-th call from now on; 0 = none */
} calls;

static bool failure_is_due(unsigned int *countdown)
{
	return *countdown && --*countdown == 0;
}

static CUresult driver_map(CUdeviceptr va, size_t bytes, size_t offset,
			   CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	calls.map++;
	if (failure_is_due(&calls.fail_map))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return peer->gpu.cuMemMap(va, bytes, offset, handle, flags);
}

static CUresult driver_unmap(CUdeviceptr va, size_t bytes)
{
	calls.unmap++;
	assert_int_equal(bytes, PEER_PAGE_BYTES); /* whole handles */
	return peer->gpu.cuMemUnmap(va, bytes);
}

static CUresult set_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
	calls.access++;
	if (failure_is_due(&calls.fail_access))
		return CUDA_ERROR_UNKNOWN;
	return peer->gpu.cuMemSetAccess(va, bytes, desc, count);
}

static CUresult driver_release(CUmemGenericAllocationHandle handle)
{
	calls.release++;
	return peer->gpu.cuMemRelease(handle);
}

static uint32_t table[MM_MAP_ENTRIES];
static struct mm_mapper m;
static struct mm_span spans[3]; /* 4, 3 and 2 pages */

static int setup(void **state)
{
	uint32_t entry = 0;

	(void)state;
	peer = peer_start();
	gpu = peer->gpu;
	gpu.cuMemMap = driver_map;
	gpu.cuMemUnmap = driver_unmap;
	gpu.cuMemSetAccess = set_access;
	gpu.cuMemRelease = driver_release;
	memset(&calls, 0, sizeof(calls));
	memset(table, 0, sizeof(table));
	assert_int_equal(mm_mapper_init(&m, &gpu, peer->device, PEER_PAGE_BYTES, PEER_PAGES), 0);
	for (uint32_t i = 0; i < 3; i++) {
		spans[i] = (struct mm_span){ .entry = entry, .n_pages = 4 - i, .writable = true };
		entry += 4 - i;
		assert_int_equal(mm_mapper_reserve(&m, spans[i].n_pages, &spans[i].va), 0);
		assert_int_equal(spans[i].va % PEER_PAGE_BYTES, 0);
	}
	for (uint32_t i = 0; i < 12; i++) {
		peer_fill(peer, i, (uint8_t)(0x40 + i));
		assert_int_equal(mm_mapper_import(&m, i, peer_export(peer, i)), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(mm_mapper_apply(&m, spans, 3, NULL), 0);
	for (uint32_t i = 0; i < 3; i++)
		mm_mapper_unreserve(&m, spans[i].va, spans[i].n_pages);
	mm_mapper_done(&m);
	peer_stop(peer);
	return 0;
}

static void table_set(const char *pages)
{
	for (uint32_t i = 0; pages[i]; i++)
		table[i] = pages[i] == '.' ? 0 : (uint32_t)(pages[i] - 'a' + 1);
}

static void bytes_are(const char *pages)
{
	uint32_t i = 0;

	for (uint32_t s = 0; s < 3; s++) {
		for (uint32_t k = 0; k < spans[s].n_pages; k++, i++) {
			CUdeviceptr va = spans[s].va + k * PEER_PAGE_BYTES;
			CUmemGenericAllocationHandle handle;
			uint8_t byte = 0;

			if (pages[i] == '.') {
				assert_int_not_equal(peer->gpu.cuMemRetainAllocationHandle(
							     &handle, (void *)(uintptr_t)va),
						     0);
				continue;
			}
			assert_int_equal(peer->gpu.cuMemcpyDtoH(&byte, va + 5, 1), 0);
			assert_int_equal(byte, 0x40 + pages[i] - 'a');
		}
	}
}

/* Spans of 4, 3 and 2 pages; letters are pages. From nothing, then each from the one before. */
static void test_differences(void **state)
{
	static const struct {
		const char *table;
		unsigned int map, unmap, access, release;
	} cases[] = {
		{ "abcdefghi", 9, 0, 3, 0 }, /* one access per span */
		{ "abcdefghi", 0, 0, 0, 0 },
		{ "abcdabchi", 3, 3, 1, 3 }, /* aliases: e, f, g are released */
		{ "abcdab.hi", 0, 1, 0, 0 }, /* c is still in the first span */
		{ "a.cjab.hi", 1, 2, 1, 1 }, /* b stays as an alias, d is released */
		{ "aica...hb", 3, 4, 3, 1 }, /* places swapped: unmapped first */
		{ ".........", 0, 6, 0, 5 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		print_message("%s\n", cases[i].table);
		table_set(cases[i].table);
		memset(&calls, 0, sizeof(calls));
		assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
		bytes_are(cases[i].table);
		assert_int_equal(calls.map, cases[i].map);
		assert_int_equal(calls.unmap, cases[i].unmap);
		assert_int_equal(calls.access, cases[i].access);
		assert_int_equal(calls.release, cases[i].release);
	}
}

static void test_lies(void **state)
{
	(void)state;
	table_set("abcdefghi");
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
	memset(&calls, 0, sizeof(calls));
	table_set("bcdaefghi");
	table[8] = PEER_PAGES + 1;
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), -EPROTO);
	table[8] = UINT32_MAX;
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), -EPROTO);
	table[8] = 20; /* never sent */
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), -ENOENT);
	assert_int_equal(calls.map + calls.unmap + calls.access + calls.release, 0);
	bytes_are("abcdefghi");
	assert_int_equal(mm_mapper_import(&m, PEER_PAGES, peer_export(peer, 13)), -EPROTO);
	assert_true(mm_mapper_import(&m, 13, -1) < 0);
}

static void test_driver_fails(void **state)
{
	(void)state;
	table_set("abcdefghi");
	for (unsigned int n = 1; n <= 9; n++) {
		calls.fail_map = n;
		assert_int_equal(mm_mapper_apply(&m, spans, 3, table), -ENOMEM);
		assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
		bytes_are("abcdefghi");
		/*
		 * Everything is unmapped; the handles are released then, so that pages are imported
		 * again.
		 */
		assert_int_equal(mm_mapper_apply(&m, spans, 3, NULL), 0);
		for (uint32_t i = 0; i < 9; i++)
			assert_int_equal(mm_mapper_import(&m, i, peer_export(peer, i)), 0);
	}
	for (unsigned int n = 1; n <= 3; n++) {
		calls.fail_access = n;
		assert_int_equal(mm_mapper_apply(&m, spans, 3, table), -EIO);
		assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
		bytes_are("abcdefghi"); /* no page is left behind without access */
		assert_int_equal(mm_mapper_apply(&m, spans, 3, NULL), 0);
		for (uint32_t i = 0; i < 9; i++)
			assert_int_equal(mm_mapper_import(&m, i, peer_export(peer, i)), 0);
	}
}

static void test_imported_again(void **state)
{
	uint8_t byte = 0;

	(void)state;
	table_set("a........");
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
	memset(&calls, 0, sizeof(calls));
	/*
	 * The handle of a mapped page stays; of a page that is not mapped the last import counts.
	 */
	assert_int_equal(mm_mapper_import(&m, 0, peer_export(peer, 0)), 0);
	assert_int_equal(mm_mapper_import(&m, 1, peer_export(peer, 15)), 0);
	assert_int_equal(calls.release, 2);
	peer_fill(peer, 15, 0x99);
	table_set("ab.......");
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
	assert_int_equal(peer->gpu.cuMemcpyDtoH(&byte, spans[0].va + PEER_PAGE_BYTES, 1), 0);
	assert_int_equal(byte, 0x99);
}

/* A span that must be whole accepts no hole, but can be unmapped as a whole. */
static void test_whole(void **state)
{
	(void)state;
	spans[1].whole = true;
	table_set("abcdef.hi");
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), -ENOENT);
	bytes_are(".........");
	table_set("ab.defghi");
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
	assert_int_equal(mm_mapper_apply(&m, spans, 3, NULL), 0);
}

static void test_shared(void **state)
{
	bool shared[3];

	(void)state;
	table_set("abcdefgab");
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
	for (int i = 0; i < 2; i++) {
		mm_mapper_shared(&m, spans, 3, shared);
		assert_true(shared[0] && !shared[1] && shared[2]);
	}
	table_set("aacdefghi"); /* twice in one span is no sharing */
	assert_int_equal(mm_mapper_import(&m, 1, peer_export(peer, 1)), 0);
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
	mm_mapper_shared(&m, spans, 3, shared);
	assert_true(!shared[0] && !shared[1] && !shared[2]);
}

/* Whatever is not mapped gets the filler, whatever is keeps its page. */
static void test_fill(void **state)
{
	uint32_t page = 99;

	(void)state;
	table_set("a..b..c.d");
	assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
	assert_int_equal(mm_mapper_page(&m, 1, &page), -ENOENT);
	assert_int_equal(mm_mapper_fill(&m, spans, 3, 10), 0);
	bytes_are("akkbkkckd");
	assert_int_equal(mm_mapper_page(&m, 1, &page), 0);
	assert_int_equal(page, 10);
	memset(&calls, 0, sizeof(calls));
	assert_int_equal(mm_mapper_fill(&m, spans, 3, 10), 0);
	assert_int_equal(calls.map + calls.unmap + calls.access, 0);
	/* A page takes the filler's place, and gives it back. */
	table_set("aekb..c.d");
	assert_int_equal(mm_mapper_apply(&m, spans, 1, table), 0);
	bytes_are("aekbkkckd");
	table_set("a.kb..c.d");
	assert_int_equal(mm_mapper_apply(&m, spans, 1, table), 0);
	assert_int_equal(mm_mapper_fill(&m, spans, 1, 10), 0);
	bytes_are("akkbkkckd");
}

static void test_fill_fails(void **state)
{
	(void)state;
	for (unsigned int n = 1; n <= 7; n++) {
		table_set("a..b.....");
		assert_int_equal(mm_mapper_apply(&m, spans, 3, table), 0);
		calls.fail_map = n;
		assert_int_equal(mm_mapper_fill(&m, spans, 3, 10), -ENOMEM);
		assert_int_equal(mm_mapper_fill(&m, spans, 3, 10), 0);
		bytes_are("akkbkkkkk");
		assert_int_equal(mm_mapper_apply(&m, spans, 3, NULL), 0);
		assert_int_equal(mm_mapper_import(&m, 0, peer_export(peer, 0)), 0);
		assert_int_equal(mm_mapper_import(&m, 1, peer_export(peer, 1)), 0);
		assert_int_equal(mm_mapper_import(&m, 10, peer_export(peer, 10)), 0);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_differences),    TEST(test_lies),       TEST(test_driver_fails),
		TEST(test_imported_again), TEST(test_whole),      TEST(test_shared),
		TEST(test_fill),           TEST(test_fill_fails),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
