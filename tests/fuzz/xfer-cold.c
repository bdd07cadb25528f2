/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the numbers of a plan with cold blocks, and the bitmap that a tenant writes: a plan that
 * passes the check leads to no copy outside of the swap space and the window, whatever the bits
 * are, and to one of each live row.
 */
#include "mmd/xfer/cold.h"
#include "tests/fuzz/input.h"

#define PAGE_BYTES UINT64_C(65536)
#define POOL_PAGES 64
#define PARTS_MAX  64
#define TO_VA      (UINT64_C(1) << 40)

/* Behind it in the input: words of the bitmap, again and again. */
struct numbers {
	uint32_t n_layers, classes, entries, n_pages;
	uint64_t unit_bytes, swap_bytes, limit, chunk_bytes;
	uint32_t page_first, layer;
	uint64_t version;
};

static char *const space = (char *)0x100000000;
static struct mm_xplan_region plan;
static struct mm_xswap swap;
static struct mm_xrows rows;
static uint64_t copied_bytes;

static void copy_check(const void *from, uint64_t from_span, CUdeviceptr to, uint64_t to_span)
{
	uint64_t at = (uint64_t)((const char *)from - space);

	mm_assert(from_span > 0 && at < swap.bytes && from_span <= swap.bytes - at);
	mm_assert(at / MM_SWAP_PART_BYTES == (at + from_span - 1) / MM_SWAP_PART_BYTES);
	mm_assert(to >= TO_VA && to - TO_VA < plan.cold.n_pages * PAGE_BYTES &&
		  to_span <= plan.cold.n_pages * PAGE_BYTES - (to - TO_VA));
}

static CUresult CUDAAPI fake_memcpy(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	(void)stream;
	copy_check(from, bytes, to, bytes);
	copied_bytes += bytes;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI fake_memcpy_2d(const CUDA_MEMCPY2D *c, CUstream stream)
{
	(void)stream;
	mm_assert(c->Height > 1 && c->WidthInBytes <= c->srcPitch &&
		  c->WidthInBytes <= c->dstPitch);
	copy_check(c->srcHost, (c->Height - 1) * c->srcPitch + c->WidthInBytes, c->dstDevice,
		   (c->Height - 1) * c->dstPitch + c->WidthInBytes);
	copied_bytes += c->Height * c->WidthInBytes;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI fake_register(void *host, size_t bytes, unsigned int flags)
{
	(void)flags;
	mm_assert((char *)host >= space);
	mm_assert((uint64_t)((char *)host - space) + bytes <=
		  mm_round_up(swap.bytes, MM_ABI_PAGE_BYTES));
	return CUDA_SUCCESS;
}

static void plan_fill(const struct numbers *n)
{
	plan = (struct mm_xplan_region){ .n_layers = n->n_layers };
	plan.cold.classes = n->classes;
	plan.cold.entries = n->entries;
	plan.cold.n_pages = n->n_pages;
	plan.cold.unit_bytes = n->unit_bytes;
	for (uint32_t i = 0; i < MM_SLOT_PAGES_MAX; i++)
		plan.cold.page[i] = n->page_first + i;
}

static void layer_copy(const struct numbers *n, uint32_t layer)
{
	const uint64_t unit = n->unit_bytes, chunk_bytes = MM_MAX(n->chunk_bytes, 4096);
	uint64_t left = rows.count * unit;

	mm_xrows_begin(&rows, &(struct mm_xplace){ .swap = &swap,
						   .from = layer * unit,
						   .from_pitch = n->n_layers * unit,
						   .to_va = TO_VA + layer * unit,
						   .to_pitch = n->classes * unit,
						   .width = unit });
	copied_bytes = 0;
	while (left > 0) {
		uint64_t bytes = 0;

		mm_assert(mm_xrows_issue(&rows, mm_xrows_chunk_bytes(&rows, chunk_bytes), &bytes) ==
			  0);
		mm_assert(bytes > 0 && bytes <= left);
		left -= bytes;
	}
	mm_assert(copied_bytes == rows.count * unit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static bool there[POOL_PAGES];
	static uint8_t part[PARTS_MAX];
	static struct mm_cold_live live;
	static struct mm_xdev dev = { .pitch_max_bytes = INT32_MAX };
	struct mm_xpool pool = {
		.dev = &dev, .page_bytes = PAGE_BYTES, .pages = POOL_PAGES, .there = there
	};
	struct mm_xlink link = { .pool = &pool };
	uint8_t digits[4096];
	struct numbers n;

	if (size_bytes > sizeof(digits))
		return 0;
	data = input_bytes(data, &size_bytes, digits);
	if (size_bytes < sizeof(n))
		return 0;
	memcpy(&n, data, sizeof(n));
	data += sizeof(n);
	size_bytes -= sizeof(n);
	n.swap_bytes %= PARTS_MAX * MM_SWAP_PART_BYTES;
	/* plan_check() has looked at it before. */
	n.n_layers %= MM_LAYERS_MAX + 1;
	dev.gpu.cuMemcpyHtoDAsync = fake_memcpy;
	dev.gpu.cuMemcpy2DAsync = fake_memcpy_2d;
	dev.gpu.cuMemHostRegister = fake_register;
	memset(there, true, sizeof(there));
	there[POOL_PAGES - 1] = false;
	memset(part, 0, sizeof(part));
	swap = (struct mm_xswap){ .bytes = n.swap_bytes,
				  .region = { .base = space, .fd = -1 },
				  .part = part,
				  .link = &link };
	plan_fill(&n);
	if (mm_xcold_check(&plan, &pool, &swap) < 0)
		return 0;
	live.version = n.version;
	for (size_t i = 0; i < sizeof(live.live); i++)
		((uint8_t *)live.live)[i] = size_bytes ? data[i % size_bytes] : 0xff;
	mm_xrows_choose(&rows, &live, plan.cold.entries, &n.limit);
	mm_assert(rows.version == n.version && rows.count <= n.limit && rows.count <= n.entries);
	layer_copy(&n, 0);
	layer_copy(&n, n.layer % n.n_layers);
	layer_copy(&n, n.n_layers - 1);
	return 0;
}
