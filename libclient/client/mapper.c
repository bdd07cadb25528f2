/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/client/mapper.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"

struct mapped_page {
	CUmemGenericAllocationHandle handle;
	uint32_t mapped; /* number of places */
	uint16_t seen;   /* scratch of mm_mapper_shared(): index of a span + 1 */
	bool held;       /* the handle is valid */
};

int mm_mapper_init(struct mm_mapper *mapper, const struct mm_gpu_api *gpu, CUdevice device,
		   uint64_t page_bytes, uint32_t pool_pages)
{
	struct mm_mapper m = {
		.gpu = gpu, .device = device, .page_bytes = page_bytes, .pool_pages = pool_pages
	};

	if (mm_fault("mapper.init"))
		return -ENOMEM;
	m.pages = calloc(pool_pages, sizeof(*m.pages));
	m.have = calloc(MM_MAP_ENTRIES, sizeof(*m.have));
	m.want = calloc(MM_MAP_ENTRIES, sizeof(*m.want));
	m.loose = calloc(MM_MAP_ENTRIES, sizeof(*m.loose));
	if (!m.pages || !m.have || !m.want || !m.loose) {
		mm_mapper_done(&m);
		return -ENOMEM;
	}
	*mapper = m;
	return 0;
}

static void page_release(struct mm_mapper *m, struct mapped_page *page)
{
	if (page->held)
		m->gpu->cuMemRelease(page->handle);
	page->held = false;
}

void mm_mapper_done(struct mm_mapper *mapper)
{
	for (uint32_t i = 0; mapper->pages && i < mapper->pool_pages; i++)
		page_release(mapper, &mapper->pages[i]);
	free(mapper->pages);
	free(mapper->have);
	free(mapper->want);
	free(mapper->loose);
	*mapper = (struct mm_mapper){ 0 };
}

int mm_mapper_reserve(struct mm_mapper *mapper, uint64_t n_pages, CUdeviceptr *ret_va)
{
	/* The page size need not be a power of two; an alignment must. */
	uint64_t alignment = mapper->page_bytes & (~mapper->page_bytes + 1);
	CUdeviceptr va;
	CUresult res;

	if (mm_fault("mapper.reserve"))
		return -ENOMEM;
	if (n_pages > SIZE_MAX / mapper->page_bytes)
		return -ENOMEM;
	res = mapper->gpu->cuMemAddressReserve(&va, n_pages * mapper->page_bytes, alignment, 0, 0);
	if (res)
		return mm_gpu_errno(res);
	*ret_va = va;
	return 0;
}

void mm_mapper_unreserve(struct mm_mapper *mapper, CUdeviceptr va, uint64_t n_pages)
{
	mapper->gpu->cuMemAddressFree(va, n_pages * mapper->page_bytes);
}

int mm_mapper_import(struct mm_mapper *mapper, uint32_t page, int fd)
{
	CUmemGenericAllocationHandle handle;
	struct mapped_page *p;
	CUresult res;

	if (page >= mapper->pool_pages || mm_fault("mapper.import")) {
		close(fd);
		return page >= mapper->pool_pages ? -EPROTO : -ENOMEM;
	}
	p = &mapper->pages[page];
	res = mapper->gpu->cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
							  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	close(fd);
	if (res)
		return mm_gpu_errno(res);
	if (p->held && p->mapped) {
		mapper->gpu->cuMemRelease(handle);
		return 0;
	}
	/* The id may be of new memory now: the handle that came last counts. */
	page_release(mapper, p);
	p->handle = handle;
	p->held = true;
	return 0;
}

static CUdeviceptr page_va(const struct mm_mapper *m, const struct mm_span *span, uint32_t i)
{
	return span->va + (CUdeviceptr)i * m->page_bytes;
}

/* Copies the table's entries of @span and checks them; only the copy is used. */
static int want_copy(struct mm_mapper *m, const struct mm_span *span, const uint32_t *table)
{
	for (uint32_t i = span->entry; i < span->entry + span->n_pages; i++) {
		uint32_t word = table ? __atomic_load_n(&table[i], __ATOMIC_RELAXED) : 0;

		if (word > m->pool_pages)
			return -EPROTO;
		if (word ? !m->pages[word - 1].held : table && span->whole)
			return -ENOENT;
		m->want[i] = word;
	}
	return 0;
}

static int span_unmap(struct mm_mapper *m, const struct mm_span *span)
{
	for (uint32_t i = 0; i < span->n_pages; i++) {
		uint32_t *have = &m->have[span->entry + i];
		struct mapped_page *page = &m->pages[*have - (*have != 0)];
		CUresult res;

		if (!*have || *have == m->want[span->entry + i])
			continue;
		res = m->gpu->cuMemUnmap(page_va(m, span, i), m->page_bytes);
		if (res)
			return mm_gpu_errno(res);
		mm_assert(page->mapped && m->n_loose < MM_MAP_ENTRIES);
		page->mapped--;
		m->loose[m->n_loose++] = *have - 1;
		*have = 0;
	}
	return 0;
}

static int run_access(struct mm_mapper *m, const struct mm_span *span, uint32_t first, uint32_t end)
{
	const CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = m->device },
		.flags = span->writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
					: CU_MEM_ACCESS_FLAGS_PROT_READ,
	};

	if (first == end)
		return 0;
	return mm_gpu_errno(m->gpu->cuMemSetAccess(page_va(m, span, first),
						   (end - first) * m->page_bytes, &access, 1));
}

static int page_map(struct mm_mapper *m, const struct mm_span *span, uint32_t i)
{
	uint32_t want = m->want[span->entry + i];
	CUresult res;

	if (mm_fault("mapper.map"))
		return -ENOMEM;
	res = m->gpu->cuMemMap(page_va(m, span, i), m->page_bytes, 0, m->pages[want - 1].handle, 0);
	if (res)
		return mm_gpu_errno(res);
	m->pages[want - 1].mapped++;
	m->have[span->entry + i] = want;
	return 0;
}

/* Unmaps pages that are mapped but have no access: the next apply must find them missing. */
static void run_undo(struct mm_mapper *m, const struct mm_span *span, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		uint32_t *have = &m->have[span->entry + i];

		if (m->gpu->cuMemUnmap(page_va(m, span, i), m->page_bytes))
			continue;
		m->pages[*have - 1].mapped--;
		*have = 0;
	}
}

/* Maps what is missing. Access is set once per run of new pages: that call is the slow one. */
static int span_map(struct mm_mapper *m, const struct mm_span *span)
{
	uint32_t run = 0; /* new pages are mapped from here to i */
	uint32_t i;
	int r = 0;

	for (i = 0; i < span->n_pages; i++) {
		if (m->have[span->entry + i] != m->want[span->entry + i]) {
			r = page_map(m, span, i);
			if (r)
				break;
			continue;
		}
		r = run_access(m, span, run, i);
		if (r)
			break;
		run = i + 1;
	}
	if (!r)
		r = run_access(m, span, run, i);
	if (r)
		run_undo(m, span, run, i);
	return r;
}

static void loose_release(struct mm_mapper *m)
{
	while (m->n_loose) {
		struct mapped_page *page = &m->pages[m->loose[--m->n_loose]];

		if (!page->mapped)
			page_release(m, page);
	}
}

int mm_mapper_read(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		   const uint32_t *table)
{
	int r = 0;

	for (size_t s = 0; s < n_spans && !r; s++)
		r = want_copy(mapper, &spans[s], table);
	return r;
}

int mm_mapper_change_part(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans)
{
	int r = 0;

	/* All unmapping first: a page may move from one span to another. */
	for (size_t s = 0; s < n_spans && !r; s++)
		r = span_unmap(mapper, &spans[s]);
	for (size_t s = 0; s < n_spans && !r; s++)
		r = span_map(mapper, &spans[s]);
	return r;
}

void mm_mapper_change_end(struct mm_mapper *mapper)
{
	loose_release(mapper);
}

bool mm_mapper_changes(const struct mm_mapper *mapper, const struct mm_span *span)
{
	for (uint32_t i = span->entry; i < span->entry + span->n_pages; i++)
		if (mapper->have[i] != mapper->want[i])
			return true;
	return false;
}

int mm_mapper_change(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans)
{
	int r = mm_mapper_change_part(mapper, spans, n_spans);

	mm_mapper_change_end(mapper);
	return r;
}

int mm_mapper_apply(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		    const uint32_t *table)
{
	int r = mm_mapper_read(mapper, spans, n_spans, table);

	return r ? r : mm_mapper_change(mapper, spans, n_spans);
}

static uint32_t any_mapped(const struct mm_mapper *m, const struct mm_span *spans, size_t n_spans)
{
	for (size_t s = 0; s < n_spans; s++)
		for (uint32_t i = spans[s].entry; i < spans[s].entry + spans[s].n_pages; i++)
			if (m->have[i])
				return m->have[i];
	return 0;
}

int mm_mapper_fill(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		   uint32_t page)
{
	int r = 0;

	for (size_t s = 0; s < n_spans && !r; s++) {
		for (uint32_t i = spans[s].entry; i < spans[s].entry + spans[s].n_pages; i++)
			mapper->want[i] = mapper->have[i] ? mapper->have[i] : page + 1;
		r = span_map(mapper, &spans[s]);
	}
	return r;
}

void mm_mapper_patch(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans)
{
	uint32_t page = any_mapped(mapper, spans, n_spans);

	if (page)
		mm_mapper_fill(mapper, spans, n_spans, page - 1);
}

int mm_mapper_page(const struct mm_mapper *mapper, uint32_t entry, uint32_t *ret_page)
{
	if (!mapper->have[entry])
		return -ENOENT;
	*ret_page = mapper->have[entry] - 1;
	return 0;
}

void mm_mapper_shared(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		      bool *ret_shared)
{
	const uint32_t *want = mapper->want;

	for (size_t s = 0; s < n_spans; s++) {
		ret_shared[s] = false;
		for (uint32_t i = spans[s].entry; i < spans[s].entry + spans[s].n_pages; i++)
			if (want[i])
				mapper->pages[want[i] - 1].seen = 0;
	}
	for (size_t s = 0; s < n_spans; s++) {
		for (uint32_t i = spans[s].entry; i < spans[s].entry + spans[s].n_pages; i++) {
			uint16_t *seen = want[i] ? &mapper->pages[want[i] - 1].seen : NULL;

			if (seen && *seen && *seen != s + 1)
				ret_shared[s] = ret_shared[*seen - 1] = true;
			if (seen)
				*seen = (uint16_t)(s + 1);
		}
	}
}
