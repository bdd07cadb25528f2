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
#include <stdlib.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "tools/lab/gpubench/lender.h"
#include "tools/lab/gpubench/parts.h"
#include "tools/lab/gpubench/tenant.h"

enum grant_step { IMPORT, MAP, ACCESS, STEPS };

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
	struct mm_gpu_api table; /* the table for libclient */
	uint64_t page_bytes;
	uint32_t n;
	CUdeviceptr va; /* where the references map their pages */
	CUmemGenericAllocationHandle handle[MM_GPU_LENT_MAX];
	int fds[MM_GPU_LENT_MAX];
	uint32_t n_fds;
	struct mm_series whole, rest, bare, created, created_once;
	struct mm_series step[STEPS], bare_step[STEPS], calls[STEPS];
};

static double ns_to_seconds(uint64_t ns)
{
	return (double)ns / (double)MM_NS_PER_S;
}

/* ---- the figure ---- */

static int pages_take_mapped(struct grant *g, bool counts)
{
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
	for (int i = 0; counts && i < STEPS; i++) {
		mm_series_add(&g->step[i], ns_to_seconds(watched.ns[i]));
		mm_series_add(&g->calls[i], watched.calls[i]);
		calls_ns += watched.ns[i];
	}
	if (counts) {
		mm_series_add(&g->whole, ns_to_seconds(whole_ns));
		mm_series_add(&g->rest, ns_to_seconds(whole_ns - MM_MIN(whole_ns, calls_ns)));
	}
	return mm_gpu_tenant_return(&g->tenant);
}

/* ---- the references ---- */

static int set_access(struct grant *g, uint32_t first, uint32_t n)
{
	const CUmemAccessDesc access = { .location = g->dev.prop.location,
					 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return mm_gpu_call(&g->dev,
			   g->dev.gpu.cuMemSetAccess(g->va + first * g->page_bytes,
						     n * g->page_bytes, &access, 1),
			   "cuMemSetAccess");
}

static int grant_map_page(struct grant *g, uint32_t i)
{
	return mm_gpu_call(
		&g->dev,
		g->dev.gpu.cuMemMap(g->va + i * g->page_bytes, g->page_bytes, 0, g->handle[i], 0),
		"cuMemMap");
}

static int unmap_all(struct grant *g)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < g->n; i++) {
		r = mm_gpu_call(&g->dev,
				g->dev.gpu.cuMemUnmap(g->va + i * g->page_bytes, g->page_bytes),
				"cuMemUnmap");
		if (!r)
			r = mm_gpu_call(&g->dev, g->dev.gpu.cuMemRelease(g->handle[i]),
					"cuMemRelease");
	}
	return r;
}

static int import_all(struct grant *g)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < g->n; i++)
		r = mm_gpu_call(&g->dev,
				g->dev.gpu.cuMemImportFromShareableHandle(
					&g->handle[i], (void *)(uintptr_t)g->fds[i],
					CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
				"cuMemImportFromShareableHandle");
	return r;
}

static int pages_take_unmapped(struct grant *g, bool counts)
{
	uint64_t ns[STEPS + 1] = { mm_now_ns() };
	int r = import_all(g);

	ns[1] = mm_now_ns();
	for (uint32_t i = 0; !r && i < g->n; i++)
		r = grant_map_page(g, i);
	ns[2] = mm_now_ns();
	if (!r)
		r = set_access(g, 0, g->n);
	ns[3] = mm_now_ns();
	if (r)
		return r;
	for (int i = 0; counts && i < STEPS; i++)
		mm_series_add(&g->bare_step[i], ns_to_seconds(ns[i + 1] - ns[i]));
	if (counts)
		mm_series_add(&g->bare, ns_to_seconds(ns[STEPS] - ns[0]));
	return unmap_all(g);
}

static int pages_create(struct grant *g, bool once, bool counts)
{
	const uint64_t since_ns = mm_now_ns();
	double took_s;
	int r = 0;

	for (uint32_t i = 0; !r && i < g->n; i++) {
		r = mm_gpu_call(
			&g->dev,
			g->dev.gpu.cuMemCreate(&g->handle[i], g->page_bytes, &g->dev.prop, 0),
			"cuMemCreate");
		if (!r)
			r = grant_map_page(g, i);
		if (!r && !once)
			r = set_access(g, i, 1);
	}
	if (!r && once)
		r = set_access(g, 0, g->n);
	took_s = ns_to_seconds(mm_now_ns() - since_ns);
	if (counts)
		mm_series_add(once ? &g->created_once : &g->created, took_s);
	return r ? r : unmap_all(g);
}

/* ---- a page size ---- */

static int grant_report_row(struct grant *g, const char *name, const struct mm_series *figure,
			    const struct mm_series *reference, const char *reference_name,
			    struct mm_goal goal, const struct mm_series *calls)
{
	const struct mm_gpu_result result = {
		.name = name,
		.unit = "s",
		.figure = figure,
		.reference = reference,
		.reference_name = reference_name,
		.goal = goal,
		.params = json_pack("{s:I,s:I}", "page", (json_int_t)g->page_bytes, "bytes",
				    (json_int_t)(g->n * g->page_bytes)),
		.more = calls ? json_pack("{s:f}", "calls", mm_series_summary(calls).median) : NULL,
	};

	return mm_gpu_result(g->dev.bench, &result);
}

static int grant_report(struct grant *g)
{
	static const char *const names[STEPS] = { "grant_import", "grant_map", "grant_access" };
	static const char same[] = "the same calls in the bare import";
	const struct mm_goal none = { 0 }, close = { MM_GOAL_AT_MOST, 1.2 };
	const struct mm_goal fast = { MM_GOAL_AT_MOST, 1.0 / 5 };
	int r = grant_report_row(g, "grant", &g->whole, &g->bare, "import, map, one set-access",
				 close, NULL);

	if (!r)
		r = grant_report_row(g, "grant_create", &g->whole, &g->created,
				     "create, map, set-access of each page", fast, NULL);
	if (!r)
		r = grant_report_row(g, "grant_create_once", &g->whole, &g->created_once,
				     "create and map each page, one set-access", none, NULL);
	for (int i = 0; !r && i < STEPS; i++)
		r = grant_report_row(g, names[i], &g->step[i], &g->bare_step[i], same, none,
				     &g->calls[i]);
	return r ? r : grant_report_row(g, "grant_rest", &g->rest, NULL, NULL, none, NULL);
}

static void grant_close(struct grant *g)
{
	struct mm_series *const all[] = { &g->whole, &g->rest, &g->bare, &g->created,
					  &g->created_once };

	mm_gpu_tenant_close(&g->tenant);
	if (g->va)
		g->dev.gpu.cuMemAddressFree(g->va, g->n * g->page_bytes);
	g->va = 0;
	while (g->n_fds)
		close(g->fds[--g->n_fds]);
	for (size_t i = 0; i < MM_ARRAY_SIZE(all); i++)
		mm_series_done(all[i]);
	for (int i = 0; i < STEPS; i++) {
		mm_series_done(&g->step[i]);
		mm_series_done(&g->bare_step[i]);
		mm_series_done(&g->calls[i]);
	}
}

static int grant_prepare(struct grant *g)
{
	const struct mm_gpu_sizes *sizes = &g->dev.bench->sizes;
	int r;

	g->n = (uint32_t)mm_div_up(sizes->grant_bytes, g->page_bytes);
	r = mm_gpu_lender_lend(&g->lender, g->page_bytes, g->n, g->fds);
	if (r)
		return r;
	g->n_fds = g->n;
	r = mm_gpu_call(
		&g->dev,
		g->dev.gpu.cuMemAddressReserve(&g->va, g->n * g->page_bytes, g->page_bytes, 0, 0),
		"cuMemAddressReserve");
	if (!r)
		r = mm_gpu_tenant_open(&g->tenant, &g->dev, &g->table, g->page_bytes,
				       3 * g->n * g->page_bytes);
	return r ? r : mm_gpu_tenant_kv(&g->tenant, g->n);
}

static int grant_pages(struct grant *g, uint64_t page_bytes)
{
	int r;

	mm_gpu_progress(g->dev.bench, "pages of %llu KiB", (unsigned long long)page_bytes >> 10);
	g->page_bytes = page_bytes;
	r = grant_prepare(g);
	for (uint32_t i = 0; !r && i <= g->dev.bench->sizes.repeat; i++) {
		r = pages_take_mapped(g, i > 0);
		if (!r)
			r = pages_take_unmapped(g, i > 0);
		if (!r)
			r = pages_create(g, false, i > 0);
		if (!r)
			r = pages_create(g, true, i > 0);
	}
	if (!r)
		r = grant_report(g);
	grant_close(g);
	return r;
}

static void grant_put(struct grant **grant)
{
	struct grant *g = *grant;

	if (!g)
		return;
	mm_gpu_lender_close(&g->lender);
	mm_gpu_dev_close(&g->dev);
	free(g);
}

int mm_gpu_grant_run(struct mm_gpu_bench *bench)
{
	mm_cleanup(grant_put) struct grant *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return mm_gpu_fail(bench, -ENOMEM, "out of memory");
	/* Forked before this process opens the driver, which does not survive a fork. */
	r = mm_gpu_lender_open(&g->lender, bench);
	if (!r)
		r = mm_gpu_dev_open(&g->dev, bench);
	if (r)
		return r;
	watched.real = g->table = g->dev.gpu;
	g->table.cuMemImportFromShareableHandle = watch_import;
	g->table.cuMemMap = watch_map;
	g->table.cuMemSetAccess = watch_access;
	for (uint32_t i = 0; !r && i < bench->sizes.n_pages; i++)
		r = grant_pages(g, bench->sizes.pages[i]);
	return r;
}
