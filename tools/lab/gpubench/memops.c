/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memops - the cost of the gates' stream operations: two for each layer of a step
 *
 * Concept:   A step has n small kernels, with and without a wait before each (for a bit that is
 *            set already) and a write after it, on gates as libclient has them: a line for each
 *            layer, in registered host memory. It is enqueued while a wait holds the stream back,
 *            so that the host's time is left out, and reported as a figure of its own. If the
 *            driver has graphs, it is also captured into one. `batched` joins the write of a layer
 *            and the wait of the next into one batch of two operations.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/parts.h"

#define GATE_BYTES   64u
#define GATES_MAX    128u
#define VALUES       256u      /* numbers that a small kernel works on */
#define REPLAYS      10u       /* replays of a graph, one after the other */
#define HELD_BACK    GATES_MAX /* index of the line that holds the stream back */
#define MEMORY_BYTES ((size_t)GATE_BYTES * (GATES_MAX + 1))

enum memops_way { WITHOUT, GATED, BATCHED, WAYS };

struct memops {
	struct mm_gpu_bench *bench;
	struct mm_gpu_dev dev;
	struct mm_gpu_module module;
	struct mm_gpu_range values;
	char *host; /* the gates */
	size_t host_bytes;
	bool registered;
	CUdeviceptr gates_va;
	CUgraph graph[WAYS];
	CUgraphExec exec[WAYS];
	uint32_t n;
	struct mm_series plain[WAYS], enqueue[WAYS], captured[WAYS];
};

/* ---- a step ---- */

static CUdeviceptr gate_address(const struct memops *m, uint32_t layer)
{
	return m->gates_va + (uint64_t)layer * GATE_BYTES;
}

static int wait_gate(struct memops *m, uint32_t layer)
{
	return mm_gpu_call(&m->dev,
			   m->dev.gpu.cuStreamWaitValue64(m->dev.stream, gate_address(m, layer),
							  MM_GATE_PASS, CU_STREAM_WAIT_VALUE_AND),
			   "cuStreamWaitValue64");
}

static int write_gate(struct memops *m, uint32_t layer)
{
	return mm_gpu_call(&m->dev,
			   m->dev.gpu.cuStreamWriteValue32(m->dev.stream, gate_address(m, layer),
							   (uint32_t)MM_GATE_DONE,
							   CU_STREAM_WRITE_VALUE_DEFAULT),
			   "cuStreamWriteValue32");
}

static int write_and_wait(struct memops *m, uint32_t layer)
{
	CUstreamBatchMemOpParams ops[2] = { 0 };

	ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[0].writeValue.address = gate_address(m, layer);
	ops[0].writeValue.value = (uint32_t)MM_GATE_DONE;
	ops[0].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
	ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	ops[1].waitValue.address = gate_address(m, layer + 1);
	ops[1].waitValue.value64 = MM_GATE_PASS;
	ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
	return mm_gpu_call(&m->dev, m->dev.gpu.cuStreamBatchMemOp(m->dev.stream, 2, ops, 0),
			   "cuStreamBatchMemOp");
}

static int step_enqueue(struct memops *m, enum memops_way way)
{
	const struct mm_relu_args args = { .x_va = m->values.va, .n = VALUES };
	int r = 0;

	for (uint32_t i = 0; !r && i < m->n; i++) {
		if (way == GATED || (way == BATCHED && !i))
			r = wait_gate(m, i);
		if (!r)
			r = mm_gpu_launch(&m->module, MM_KERNEL_RELU, &args);
		if (!r && (way == GATED || (way == BATCHED && i + 1 == m->n)))
			r = write_gate(m, i);
		else if (!r && way == BATCHED)
			r = write_and_wait(m, i);
	}
	return r;
}

static int measure_plain(struct memops *m, enum memops_way way, bool counts)
{
	uint32_t *word = (uint32_t *)(m->host + (size_t)HELD_BACK * GATE_BYTES);
	uint64_t since_ns;
	double took_s = 0;
	int r;

	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	r = mm_gpu_call(&m->dev,
			m->dev.gpu.cuStreamWaitValue32(m->dev.stream, gate_address(m, HELD_BACK), 1,
						       CU_STREAM_WAIT_VALUE_GEQ),
			"cuStreamWaitValue32");
	if (!r)
		r = mm_gpu_time_begin(&m->dev);
	since_ns = mm_now_ns();
	if (!r)
		r = step_enqueue(m, way);
	if (!r && counts)
		mm_series_add(&m->enqueue[way], 1e-9 * (double)(mm_now_ns() - since_ns));
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	if (!r)
		r = mm_gpu_time_end(&m->dev, &took_s);
	if (!r && counts)
		mm_series_add(&m->plain[way], took_s);
	return r;
}

/* ---- captured ---- */

static int memops_capture(struct memops *m, enum memops_way way)
{
	const struct mm_gpu_api *gpu = &m->dev.gpu;
	int r = mm_gpu_call(
		&m->dev,
		gpu->cuStreamBeginCapture(m->dev.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
		"cuStreamBeginCapture");
	int end;

	if (r)
		return r;
	r = step_enqueue(m, way);
	end = mm_gpu_call(&m->dev, gpu->cuStreamEndCapture(m->dev.stream, &m->graph[way]),
			  "cuStreamEndCapture");
	if (!r)
		r = end;
	if (!r)
		r = mm_gpu_call(&m->dev,
				gpu->cuGraphInstantiateWithFlags(&m->exec[way], m->graph[way], 0),
				"cuGraphInstantiateWithFlags");
	return r;
}

static void drop_graphs(struct memops *m)
{
	for (int way = 0; way < WAYS; way++) {
		if (m->exec[way])
			m->dev.gpu.cuGraphExecDestroy(m->exec[way]);
		if (m->graph[way])
			m->dev.gpu.cuGraphDestroy(m->graph[way]);
		m->exec[way] = NULL;
		m->graph[way] = NULL;
	}
}

static int measure_captured(struct memops *m, enum memops_way way, bool counts)
{
	double took_s = 0;
	int r = mm_gpu_time_begin(&m->dev);

	for (uint32_t i = 0; !r && i < REPLAYS; i++)
		r = mm_gpu_call(&m->dev, m->dev.gpu.cuGraphLaunch(m->exec[way], m->dev.stream),
				"cuGraphLaunch");
	if (!r)
		r = mm_gpu_time_end(&m->dev, &took_s);
	if (!r && counts)
		mm_series_add(&m->captured[way], took_s / REPLAYS);
	return r;
}

/* ---- telling ---- */

static int memops_report_row(struct memops *m, const char *name, const struct mm_series *figure,
			     const struct mm_series *reference, const char *reference_name)
{
	const double more = mm_series_summary(figure).median - mm_series_summary(reference).median;
	const struct mm_gpu_result result = {
		.name = name,
		.unit = "s",
		.figure = figure,
		.reference = reference,
		.reference_name = reference_name,
		.params = json_pack("{s:i}", "layers", (int)m->n),
		.more = json_pack("{s:f}", "more_per_layer_s", more / m->n),
	};

	if (figure->n)
		return mm_gpu_result(m->bench, &result);
	json_decref(result.params);
	json_decref(result.more);
	return 0;
}

static int memops_report(struct memops *m)
{
	static const char without[] = "the same step without gates";
	int r = memops_report_row(m, "plain", &m->plain[GATED], &m->plain[WITHOUT], without);

	if (!r)
		r = memops_report_row(m, "plain_batched", &m->plain[BATCHED], &m->plain[WITHOUT],
				      without);
	if (!r)
		r = memops_report_row(m, "enqueue", &m->enqueue[GATED], &m->enqueue[WITHOUT],
				      without);
	if (!r)
		r = memops_report_row(m, "captured", &m->captured[GATED], &m->captured[WITHOUT],
				      without);
	return r ? r
		 : memops_report_row(m, "captured_batched", &m->captured[BATCHED],
				     &m->captured[WITHOUT], without);
}

static int memops_measure(struct memops *m, uint32_t n)
{
	const enum memops_way ways = m->dev.gpu.cuStreamBatchMemOp ? WAYS : BATCHED;
	const bool graphs = mm_gpu_has_graphs(&m->dev.gpu);
	int r = 0;

	m->n = n;
	mm_gpu_progress(m->bench, "%u layers", n);
	if (!graphs)
		mm_gpu_progress(m->bench, "this driver has no graphs: nothing is captured");
	for (enum memops_way way = 0; !r && way < ways; way++) {
		r = measure_plain(m, way, false);
		if (!r && graphs)
			r = memops_capture(m, way);
	}
	for (uint32_t i = 0; !r && i <= m->bench->sizes.repeat; i++)
		for (enum memops_way way = 0; !r && way < ways; way++) {
			r = measure_plain(m, way, i > 0);
			if (!r && graphs)
				r = measure_captured(m, way, i > 0);
		}
	if (!r)
		r = memops_report(m);
	drop_graphs(m);
	for (int way = 0; way < WAYS; way++) {
		mm_series_done(&m->plain[way]);
		mm_series_done(&m->enqueue[way]);
		mm_series_done(&m->captured[way]);
	}
	return r;
}

/* ---- gates ---- */

static int make_gates(struct memops *m)
{
	const uint64_t resident = MM_GATE_RESIDENT;
	void *base;
	int r;

	m->host_bytes = mm_round_up(MEMORY_BYTES, (uint64_t)sysconf(_SC_PAGESIZE));
	base = mmap(NULL, m->host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return mm_gpu_fail(m->bench, -ENOMEM, "host memory: %m");
	m->host = base;
	for (uint32_t i = 0; i < GATES_MAX; i++)
		memcpy(m->host + (size_t)i * GATE_BYTES, &resident, sizeof(resident));
	r = mm_gpu_call(&m->dev,
			m->dev.gpu.cuMemHostRegister(base, m->host_bytes,
						     CU_MEMHOSTREGISTER_PORTABLE |
							     CU_MEMHOSTREGISTER_DEVICEMAP),
			"cuMemHostRegister");
	m->registered = !r;
	return r ? r
		 : mm_gpu_call(&m->dev, m->dev.gpu.cuMemHostGetDevicePointer(&m->gates_va, base, 0),
			       "cuMemHostGetDevicePointer");
}

/*
 * Launches the kernel once. The driver may load a kernel's code at its first launch, and wait for
 * the device then; with a stream that is held back, it would wait for ever.
 */
static int warm_up(struct memops *m)
{
	const struct mm_relu_args args = { .x_va = m->values.va, .n = VALUES };
	int r = mm_gpu_launch(&m->module, MM_KERNEL_RELU, &args);

	return r ? r
		 : mm_gpu_call(&m->dev, m->dev.gpu.cuStreamSynchronize(m->dev.stream),
			       "a first kernel");
}

int mm_gpu_memops_run(struct mm_gpu_bench *bench)
{
	static const uint32_t layers[] = { 40, 48, 80 };
	struct memops m = { .bench = bench };
	int r = mm_gpu_dev_open(&m.dev, bench);

	if (!r)
		r = mm_gpu_module_open(&m.module, &m.dev);
	if (!r)
		r = mm_gpu_range_open(&m.dev, VALUES * sizeof(float), 0, &m.values);
	if (!r)
		r = mm_gpu_randomize(&m.dev, m.values.va, VALUES * sizeof(float), true);
	if (!r)
		r = warm_up(&m);
	if (!r)
		r = make_gates(&m);
	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(layers); i++)
		r = memops_measure(&m, layers[i]);
	if (m.registered)
		m.dev.gpu.cuMemHostUnregister(m.host);
	if (m.host)
		munmap(m.host, m.host_bytes);
	mm_gpu_range_close(&m.dev, &m.values);
	mm_gpu_module_close(&m.module);
	mm_gpu_dev_close(&m.dev);
	return r;
}
