/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant - the time from a demand for KV memory to memory that can be used
 *
 * Concept:   mmd has the pages already, scrubbed and exported: the tenant imports them, maps them
 *            and sets access. The references are the bare driver calls for as many pages: import,
 *            map and one set-access, with descriptors that another process passed; and, as engines
 *            without mmd do, create, map and set access page by page, or create and map all and set
 *            access once. libclient gets a table of driver functions that measure each call. The
 *            time outside the driver's calls is that of rings, sockets and waking up.
 */
#include <errno.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "tools/lab/gpubench/groups.h"
#include "tools/lab/gpubench/lender.h"
#include "tools/lab/gpubench/tenant.h"

enum grant_step { IMPORT, MAP, ACCESS, STEPS };

/* The first STEPS values of each kind are by step. */
enum grant_value {
	STEP,
	CALLS = STEP + STEPS,
	BARE_STEP = CALLS + STEPS,
	WHOLE = BARE_STEP + STEPS,
	REST,
	BARE,
	CREATED,
	CREATED_ONCE
};

/* The driver calls of libclient's service thread go through these functions, which time them. */
static struct {
	struct mm_gpu_api real;
	_Atomic uint64_t ns[STEPS];
	_Atomic uint32_t calls[STEPS];
} watched;

static CUresult CUDAAPI watch_import(CUmemGenericAllocationHandle *handle, void *os_handle,
				     CUmemAllocationHandleType type)
{
	const uint64_t since_ns = mm_now_ns();
	const CUresult r = watched.real.cuMemImportFromShareableHandle(handle, os_handle, type);

	watched.ns[IMPORT] += mm_now_ns() - since_ns;
	watched.calls[IMPORT]++;
	return r;
}

static CUresult CUDAAPI watch_map(CUdeviceptr va, size_t bytes, size_t offset,
				  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	const uint64_t since_ns = mm_now_ns();
	const CUresult r = watched.real.cuMemMap(va, bytes, offset, handle, flags);

	watched.ns[MAP] += mm_now_ns() - since_ns;
	watched.calls[MAP]++;
	return r;
}

static CUresult CUDAAPI watch_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc,
				     size_t count)
{
	const uint64_t since_ns = mm_now_ns();
	const CUresult r = watched.real.cuMemSetAccess(va, bytes, desc, count);

	watched.ns[ACCESS] += mm_now_ns() - since_ns;
	watched.calls[ACCESS]++;
	return r;
}

struct grant {
	struct mm_gpu_dev dev;
	struct mm_gpu_lender lender;
	struct mm_gpu_tenant tenant;
	struct mm_gpu_api table;    /* the table for libclient */
	uint64_t page_bytes, bytes; /* of a page; of all of them */
	uint32_t n;
	CUdeviceptr va; /* where the references map their pages */
	CUmemGenericAllocationHandle handle[MM_GPU_LENT_MAX];
	int fds[MM_GPU_LENT_MAX];
	uint32_t n_fds;
};

static double ns_to_seconds(uint64_t ns)
{
	return (double)ns / (double)MM_NS_PER_S;
}

/* Writes a word to each page at @va and reads it back. */
static int words_check(struct grant *g, CUdeviceptr va)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < g->n; i++) {
		const uint32_t want = ~i;
		uint32_t have = 0;

		r = MM_GPU_CALL(&g->dev, cuMemcpyHtoD, va + i * g->page_bytes, &want, sizeof(want));
		if (!r)
			r = MM_GPU_CALL(&g->dev, cuMemcpyDtoH, &have, va + i * g->page_bytes,
					sizeof(have));
		if (!r && have != want)
			r = mm_gpu_fail(g->dev.bench, -EBADMSG, "a wrong result: page %u", i);
	}
	return r;
}

/* ---- the figure ---- */

static int pages_take_mapped(void *state, uint32_t which, double *value)
{
	struct grant *g = state;
	uint64_t since_ns, whole_ns, calls_ns = 0;
	int r;

	for (int i = 0; i < STEPS; i++) {
		watched.ns[i] = 0;
		watched.calls[i] = 0;
	}
	since_ns = mm_now_ns();
	r = mm_kv_want(g->tenant.kv, g->n, MM_GPU_TIMEOUT_NS);
	whole_ns = mm_now_ns() - since_ns;
	if (r)
		return mm_gpu_tenant_fail(&g->tenant, r, "KV memory");
	for (int i = 0; i < STEPS; i++) {
		value[STEP + i] = ns_to_seconds(watched.ns[i]);
		value[CALLS + i] = watched.calls[i];
		calls_ns += watched.ns[i];
	}
	value[which] = ns_to_seconds(whole_ns);
	value[REST] = ns_to_seconds(whole_ns - MM_MIN(whole_ns, calls_ns));
	return 0;
}

static int mapped_check(void *state, uint32_t which)
{
	struct grant *g = state;

	(void)which;
	return words_check(g, mm_kv_range_va(g->tenant.kv, 0));
}

static int mapped_return(void *state, uint32_t which)
{
	struct grant *g = state;

	(void)which;
	return mm_gpu_tenant_return(&g->tenant);
}

/* ---- the references ---- */

static int set_access(struct grant *g, uint32_t first, uint32_t n)
{
	const CUmemAccessDesc access = { .location = g->dev.prop.location,
					 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return MM_GPU_CALL(&g->dev, cuMemSetAccess, g->va + first * g->page_bytes,
			   n * g->page_bytes, &access, 1);
}

static int grant_map_page(struct grant *g, uint32_t i)
{
	return MM_GPU_CALL(&g->dev, cuMemMap, g->va + i * g->page_bytes, g->page_bytes, 0,
			   g->handle[i], 0);
}

static int pages_unmap(void *state, uint32_t which)
{
	struct grant *g = state;
	int r = 0;

	(void)which;

	for (uint32_t i = 0; !r && i < g->n; i++) {
		r = MM_GPU_CALL(&g->dev, cuMemUnmap, g->va + i * g->page_bytes, g->page_bytes);
		if (!r)
			r = MM_GPU_CALL(&g->dev, cuMemRelease, g->handle[i]);
	}
	return r;
}

static int import_all(struct grant *g)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < g->n; i++)
		r = MM_GPU_CALL(&g->dev, cuMemImportFromShareableHandle, &g->handle[i],
				(void *)(uintptr_t)g->fds[i],
				CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	return r;
}

static int pages_take_unmapped(void *state, uint32_t which, double *value)
{
	struct grant *g = state;
	uint64_t ns[STEPS + 1] = { mm_now_ns() };
	int r = import_all(g);

	ns[1] = mm_now_ns();
	for (uint32_t i = 0; !r && i < g->n; i++)
		r = grant_map_page(g, i);
	ns[2] = mm_now_ns();
	if (!r)
		r = set_access(g, 0, g->n);
	ns[3] = mm_now_ns();
	for (int i = 0; i < STEPS; i++)
		value[BARE_STEP + i] = ns_to_seconds(ns[i + 1] - ns[i]);
	value[which] = ns_to_seconds(ns[STEPS] - ns[0]);
	return r;
}

static int pages_create(void *state, uint32_t which, double *value)
{
	struct grant *g = state;
	const uint64_t since_ns = mm_now_ns();
	int r = 0;

	for (uint32_t i = 0; !r && i < g->n; i++) {
		r = MM_GPU_CALL(&g->dev, cuMemCreate, &g->handle[i], g->page_bytes, &g->dev.prop,
				0);
		if (!r)
			r = grant_map_page(g, i);
		if (!r && which == CREATED)
			r = set_access(g, i, 1);
	}
	if (!r && which == CREATED_ONCE)
		r = set_access(g, 0, g->n);
	value[which] = ns_to_seconds(mm_now_ns() - since_ns);
	return r;
}

static int pages_check_words(void *state, uint32_t which)
{
	struct grant *g = state;

	(void)which;
	return words_check(g, g->va);
}

/* ---- the statement ---- */

static const struct mm_gpu_param grant_params[] = {
	MM_GPU_PARAM("page", struct grant, page_bytes),
	MM_GPU_PARAM("bytes", struct grant, bytes),
	{ 0 },
};

static json_t *calls_more(const void *state, const struct mm_gpu_row *row,
			  const struct mm_summary *values)
{
	(void)state;
	return json_pack("{s:f}", "calls", values[CALLS + row->figure - STEP].median);
}

static const struct mm_gpu_side grant_sides[] = {
	{ "a grant", WHOLE, .run = pages_take_mapped, .check = mapped_check,
	  .undo = mapped_return },
	{ "a bare import", BARE, .run = pages_take_unmapped, .check = pages_check_words,
	  .undo = pages_unmap },
	{ "creation page by page", CREATED, .run = pages_create, .check = pages_check_words,
	  .undo = pages_unmap },
	{ "creation of all", CREATED_ONCE, .run = pages_create, .check = pages_check_words,
	  .undo = pages_unmap },
};

#define GRANTED "KV memory from wanted to usable"
#define SAME    "the same calls in the bare import"

static const struct mm_gpu_row grant_rows[] = {
	{ "grant", GRANTED, MM_GPU_SECONDS, WHOLE, .reference = BARE,
	  .reference_name = "import, map, one set-access", .goal = { MM_GOAL_AT_MOST, 1.2 } },
	{ "grant_create", GRANTED, MM_GPU_SECONDS, WHOLE, .reference = CREATED,
	  .reference_name = "create, map, set-access of each page",
	  .goal = { MM_GOAL_AT_MOST, 1.0 / 5 } },
	{ "grant_create_once", GRANTED, MM_GPU_SECONDS, WHOLE, .reference = CREATED_ONCE,
	  .reference_name = "create and map each page, one set-access" },
	{ "grant_import", "of it, in imports", MM_GPU_SECONDS, STEP + IMPORT,
	  .reference = BARE_STEP + IMPORT, .reference_name = SAME, .computed = calls_more },
	{ "grant_map", "of it, in mapping", MM_GPU_SECONDS, STEP + MAP,
	  .reference = BARE_STEP + MAP, .reference_name = SAME, .computed = calls_more },
	{ "grant_access", "of it, in setting access", MM_GPU_SECONDS, STEP + ACCESS,
	  .reference = BARE_STEP + ACCESS, .reference_name = SAME, .computed = calls_more },
	{ "grant_rest", "of it, outside of the driver", MM_GPU_SECONDS, .figure = REST },
};

static void grant_sweep(const void *state, uint32_t *ret_sizes)
{
	const struct grant *g = state;

	ret_sizes[0] = g->dev.bench->sizes.n_pages;
}

static int grant_prepare(void *state, const uint32_t *at)
{
	struct grant *g = state;
	const struct mm_gpu_sizes *sizes = &g->dev.bench->sizes;
	int r;

	g->page_bytes = sizes->pages[at[0]];
	g->n = (uint32_t)mm_div_up(sizes->grant_bytes, g->page_bytes);
	g->bytes = g->n * g->page_bytes;
	r = mm_gpu_lender_lend(&g->lender, g->page_bytes, g->n, g->fds);
	if (r)
		return r;
	g->n_fds = g->n;
	r = MM_GPU_CALL(&g->dev, cuMemAddressReserve, &g->va, g->bytes, g->page_bytes, 0, 0);
	if (!r)
		r = mm_gpu_tenant_open(&g->tenant, &g->dev, &g->table, g->page_bytes, 3 * g->bytes);
	return r ? r : mm_gpu_tenant_kv(&g->tenant, g->n);
}

static void grant_finish(void *state)
{
	struct grant *g = state;

	mm_gpu_tenant_close(&g->tenant);
	if (g->va)
		g->dev.gpu.cuMemAddressFree(g->va, g->bytes);
	g->va = 0;
	while (g->n_fds)
		close(g->fds[--g->n_fds]);
}

static int grant_open(void *state, struct mm_gpu_bench *bench)
{
	struct grant *g = state;
	/* Forked before this process opens the driver, which does not survive a fork. */
	int r = mm_gpu_lender_open(&g->lender, bench);

	if (!r)
		r = mm_gpu_dev_open(&g->dev, bench);
	watched.real = g->table = g->dev.gpu;
	g->table.cuMemImportFromShareableHandle = watch_import;
	g->table.cuMemMap = watch_map;
	g->table.cuMemSetAccess = watch_access;
	return r;
}

static void grant_close(void *state)
{
	struct grant *g = state;

	mm_gpu_lender_close(&g->lender);
	mm_gpu_dev_close(&g->dev);
}

static const struct mm_gpu_measurement grant_pages = {
	.name = "grant",
	MM_GPU_STATEMENT(grant_sides, grant_rows),
	.warm_up = 1,
	.sweep = grant_sweep,
	.prepare = grant_prepare,
	.finish = grant_finish,
	.params = grant_params,
};

const struct mm_gpu_group mm_gpu_grant = {
	.name = "grant",
	.what = "KV memory, wanted to usable, against bare import and against creation",
	.state_bytes = sizeof(struct grant),
	.open = grant_open,
	.close = grant_close,
	.measurements = (const struct mm_gpu_measurement *const[]){ &grant_pages, NULL },
};
