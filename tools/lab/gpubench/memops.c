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
#include "tools/lab/gpubench/groups.h"

#define GATE_BYTES   64u
#define GATES_MAX    128u
#define VALUES       256u      /* numbers that a small kernel works on */
#define REPLAYS      10u       /* replays of a graph, one after the other */
#define HELD_BACK    GATES_MAX /* index of the line that holds the stream back */
#define MEMORY_BYTES ((size_t)GATE_BYTES * (GATES_MAX + 1))

enum memops_way { WITHOUT, GATED, BATCHED, WAYS };

/* The values of each kind are by way. */
enum memops_value { PLAIN, ENQUEUE = PLAIN + WAYS, CAPTURED = ENQUEUE + WAYS };

static const uint32_t memops_layers[] = { 40, 48, 80 };

struct memops {
	struct mm_gpu_bed bed;
	struct mm_gpu_range values;
	char *host; /* the gates */
	size_t host_bytes;
	bool registered, has_graphs;
	enum memops_way ways; /* as many as the driver can do */
	CUdeviceptr gates_va;
	CUgraph graph[WAYS];
	CUgraphExec exec[WAYS];
	uint32_t n;
};

/* ---- a step ---- */

static CUdeviceptr gate_address(const struct memops *m, uint32_t layer)
{
	return m->gates_va + (uint64_t)layer * GATE_BYTES;
}

static int wait_gate(struct memops *m, uint32_t layer)
{
	return MM_GPU_CALL(&m->bed.dev, cuStreamWaitValue64, m->bed.dev.stream,
			   gate_address(m, layer), MM_GATE_PASS, CU_STREAM_WAIT_VALUE_AND);
}

static int write_gate(struct memops *m, uint32_t layer)
{
	return MM_GPU_CALL(&m->bed.dev, cuStreamWriteValue32, m->bed.dev.stream,
			   gate_address(m, layer), (uint32_t)MM_GATE_DONE,
			   CU_STREAM_WRITE_VALUE_DEFAULT);
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
	return MM_GPU_CALL(&m->bed.dev, cuStreamBatchMemOp, m->bed.dev.stream, 2, ops, 0);
}

static int step_enqueue(struct memops *m, enum memops_way way)
{
	const struct mm_relu_args args = { .x_va = m->values.va, .n = VALUES };
	int r = 0;

	for (uint32_t i = 0; !r && i < m->n; i++) {
		if (way == GATED || (way == BATCHED && !i))
			r = wait_gate(m, i);
		if (!r)
			r = mm_gpu_launch(&m->bed.module, MM_KERNEL_RELU, &args);
		if (!r && (way == GATED || (way == BATCHED && i + 1 == m->n)))
			r = write_gate(m, i);
		else if (!r && way == BATCHED)
			r = write_and_wait(m, i);
	}
	return r;
}

static int plain_run(void *state, uint32_t way, double *value)
{
	struct memops *m = state;
	uint32_t *word = (uint32_t *)(m->host + (size_t)HELD_BACK * GATE_BYTES);
	uint64_t since_ns;
	int r;

	if (way >= m->ways)
		return MM_E_EMPTY;
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	r = MM_GPU_CALL(&m->bed.dev, cuStreamWaitValue32, m->bed.dev.stream,
			gate_address(m, HELD_BACK), 1, CU_STREAM_WAIT_VALUE_GEQ);
	if (!r)
		r = mm_gpu_time_begin(&m->bed.dev);
	since_ns = mm_now_ns();
	if (!r)
		r = step_enqueue(m, way);
	value[ENQUEUE + way] = 1e-9 * (double)(mm_now_ns() - since_ns);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	return r ? r : mm_gpu_time_end(&m->bed.dev, &value[PLAIN + way]);
}

/* Checks that each gate was written, and makes all of them as they were. */
static int gates_check(void *state, uint32_t way)
{
	const uint64_t resident = MM_GATE_RESIDENT;
	struct memops *m = state;
	int r = 0;

	for (uint32_t i = 0; !r && i < m->n; i++) {
		char *gate = m->host + (size_t)i * GATE_BYTES;
		uint32_t low;

		memcpy(&low, gate, sizeof(low));
		if (way != WITHOUT && low != (uint32_t)MM_GATE_DONE)
			r = mm_gpu_fail(m->bed.dev.bench, -EBADMSG,
					"a wrong result: the gate of layer %u is %u", i, low);
		memcpy(gate, &resident, sizeof(resident));
	}
	return r;
}

/* ---- captured ---- */

static int memops_capture(struct memops *m, enum memops_way way)
{
	int r = MM_GPU_CALL(&m->bed.dev, cuStreamBeginCapture, m->bed.dev.stream,
			    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	int end;

	if (r)
		return r;
	r = step_enqueue(m, way);
	end = MM_GPU_CALL(&m->bed.dev, cuStreamEndCapture, m->bed.dev.stream, &m->graph[way]);
	if (!r)
		r = end;
	if (!r)
		r = MM_GPU_CALL(&m->bed.dev, cuGraphInstantiateWithFlags, &m->exec[way],
				m->graph[way], 0);
	return r;
}

static int captured_run(void *state, uint32_t way, double *value)
{
	struct memops *m = state;
	struct mm_gpu_dev *dev = &m->bed.dev;
	double took_s = 0;
	int r;

	if (way >= m->ways || !m->has_graphs)
		return MM_E_EMPTY;
	r = mm_gpu_time_begin(dev);
	for (uint32_t i = 0; !r && i < REPLAYS; i++)
		r = MM_GPU_CALL(dev, cuGraphLaunch, m->exec[way], dev->stream);
	if (!r)
		r = mm_gpu_time_end(dev, &took_s);
	value[CAPTURED + way] = took_s / REPLAYS;
	return r;
}

/* ---- the statement ---- */

static void memops_sweep(const void *state, uint32_t *ret_sizes)
{
	(void)state;
	ret_sizes[0] = MM_ARRAY_SIZE(memops_layers);
}

static int memops_prepare(void *state, const uint32_t *at)
{
	struct memops *m = state;
	double ignored[MM_GPU_VALUES_MAX];
	int r = 0;

	m->n = memops_layers[at[0]];
	if (!m->has_graphs)
		mm_gpu_progress(m->bed.dev.bench, "this driver has no graphs: nothing is captured");
	for (enum memops_way way = 0; !r && way < m->ways; way++) {
		r = plain_run(m, way, ignored);
		if (!r && m->has_graphs)
			r = memops_capture(m, way);
	}
	/* The checks that follow need gates that nothing has written. */
	return r ? r : gates_check(m, WITHOUT);
}

static void memops_finish(void *state)
{
	struct memops *m = state;

	for (int way = 0; way < WAYS; way++) {
		if (m->exec[way])
			m->bed.dev.gpu.cuGraphExecDestroy(m->exec[way]);
		if (m->graph[way])
			m->bed.dev.gpu.cuGraphDestroy(m->graph[way]);
		m->exec[way] = NULL;
		m->graph[way] = NULL;
	}
}

static const struct mm_gpu_param memops_params[] = {
	MM_GPU_PARAM("layers", struct memops, n),
	{ 0 },
};

static json_t *memops_more(const void *state, const struct mm_gpu_row *row,
			   const struct mm_summary *values)
{
	const struct memops *m = state;
	const double more = values[row->figure].median - values[row->reference].median;

	return json_pack("{s:f}", "more_per_layer_s", more / m->n);
}

static const struct mm_gpu_side memops_sides[] = {
	{ "without gates", WITHOUT, .run = plain_run },
	{ "without gates, captured", WITHOUT, .run = captured_run },
	{ "with gates", GATED, .run = plain_run, .check = gates_check },
	{ "with gates, captured", GATED, .run = captured_run, .check = gates_check },
	{ "with batches", BATCHED, .run = plain_run, .check = gates_check },
	{ "with batches, captured", BATCHED, .run = captured_run, .check = gates_check },
};

#define WITHOUT_GATES "the same step without gates"

static const struct mm_gpu_row memops_rows[] = {
	{ "plain", "a step of small kernels, a wait before and a write behind each", MM_GPU_SECONDS,
	  PLAIN + GATED, .reference = PLAIN + WITHOUT, .reference_name = WITHOUT_GATES,
	  .computed = memops_more },
	{ "plain_batched", "the same, a layer's write and the next one's wait in one batch",
	  MM_GPU_SECONDS, PLAIN + BATCHED, .reference = PLAIN + WITHOUT,
	  .reference_name = WITHOUT_GATES, .computed = memops_more },
	{ "enqueue", "the host's time to enqueue the plain step", MM_GPU_SECONDS, ENQUEUE + GATED,
	  .reference = ENQUEUE + WITHOUT, .reference_name = WITHOUT_GATES,
	  .computed = memops_more },
	{ "captured", "the plain step in a graph", MM_GPU_SECONDS, CAPTURED + GATED,
	  .reference = CAPTURED + WITHOUT, .reference_name = WITHOUT_GATES,
	  .computed = memops_more },
	{ "captured_batched", "the batched step in a graph", MM_GPU_SECONDS, CAPTURED + BATCHED,
	  .reference = CAPTURED + WITHOUT, .reference_name = WITHOUT_GATES,
	  .computed = memops_more },
};

static const struct mm_gpu_measurement memops_steps = {
	.name = "step",
	MM_GPU_STATEMENT(memops_sides, memops_rows),
	.warm_up = 1,
	.sweep = memops_sweep,
	.prepare = memops_prepare,
	.finish = memops_finish,
	.params = memops_params,
};

/* ---- gates ---- */

static int make_gates(struct memops *m)
{
	const uint64_t resident = MM_GATE_RESIDENT;
	void *base;
	int r;

	m->host_bytes = mm_round_up(MEMORY_BYTES, (uint64_t)sysconf(_SC_PAGESIZE));
	base = mmap(NULL, m->host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return mm_gpu_fail(m->bed.dev.bench, -ENOMEM, "host memory: %m");
	m->host = base;
	for (uint32_t i = 0; i < GATES_MAX; i++)
		memcpy(m->host + (size_t)i * GATE_BYTES, &resident, sizeof(resident));
	r = MM_GPU_CALL(&m->bed.dev, cuMemHostRegister, base, m->host_bytes,
			CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	m->registered = !r;
	return r ? r : MM_GPU_CALL(&m->bed.dev, cuMemHostGetDevicePointer, &m->gates_va, base, 0);
}

/*
 * Launches the kernel once. The driver may load a kernel's code at its first launch, and wait for
 * the device then; with a stream that is held back, it would wait for ever.
 */
static int warm_up(struct memops *m)
{
	const struct mm_relu_args args = { .x_va = m->values.va, .n = VALUES };
	int r = mm_gpu_launch(&m->bed.module, MM_KERNEL_RELU, &args);

	return r ? r
		 : mm_gpu_call(&m->bed.dev, m->bed.dev.gpu.cuStreamSynchronize(m->bed.dev.stream),
			       "a first kernel");
}

static int memops_open(void *state, struct mm_gpu_bench *bench)
{
	struct memops *m = state;
	int r = mm_gpu_bed_open(&m->bed, bench);

	if (!r)
		r = mm_gpu_range_open(&m->bed.dev, VALUES * sizeof(float), 0, &m->values);
	if (!r)
		r = mm_gpu_randomize(&m->bed.dev, m->values.va, VALUES * sizeof(float), true);
	if (!r)
		r = warm_up(m);
	m->ways = m->bed.dev.gpu.cuStreamBatchMemOp ? WAYS : BATCHED;
	m->has_graphs = mm_gpu_has_graphs(&m->bed.dev.gpu);
	return r ? r : make_gates(m);
}

static void memops_close(void *state)
{
	struct memops *m = state;

	if (m->registered)
		m->bed.dev.gpu.cuMemHostUnregister(m->host);
	if (m->host)
		munmap(m->host, m->host_bytes);
	mm_gpu_range_close(&m->bed.dev, &m->values);
	mm_gpu_bed_close(&m->bed);
}

const struct mm_gpu_group mm_gpu_memops = {
	.name = "memops",
	.what = "the gates of a step: 2n stream operations, plain and captured",
	.state_bytes = sizeof(struct memops),
	.open = memops_open,
	.close = memops_close,
	.measurements = (const struct mm_gpu_measurement *const[]){ &memops_steps, NULL },
};
