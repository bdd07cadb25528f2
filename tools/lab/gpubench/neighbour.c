/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/gpubench/neighbour.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/gpubench/engine.h"

#define WAIT_NS      (120 * MM_NS_PER_S) /* for an answer; generous, for a slow host */
#define STALL_STEPS  4u                  /* a stall lasts for so many steps of the other process */
#define LOOK_US      50u
#define COPIED_BYTES (UINT64_C(256) << 20) /* memory of each direction, copied again and again */

enum { OURS, NEIGHBOURS };

struct neighbour_answer {
	int error;
	char text[256];
};

/* All that the other process has. */
struct neighbour {
	struct mm_gpu_bed bed;
	struct mm_gpu_load load;
	struct mm_gpu_common *common;
	struct mm_gpu_host host; /* half for each direction */
	struct mm_gpu_range range;
	CUstream in, out;
	CUevent in_begun, out_begun;
	uint32_t *gate, stalls;
	CUdeviceptr gate_va;
	int fd;
};

/* ---- in the other process ---- */

static int gate_make(struct neighbour *n)
{
	const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r;

	if (base == MAP_FAILED)
		return mm_gpu_fail(n->bed.dev.bench, -ENOMEM, "host memory: %m");
	n->gate = base;
	r = MM_GPU_CALL(&n->bed.dev, cuMemHostRegister, base, bytes,
			CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	return r ? r : MM_GPU_CALL(&n->bed.dev, cuMemHostGetDevicePointer, &n->gate_va, base, 0);
}

/* Opens the device in the other process, at its first order. */
static int neighbour_prepare(struct neighbour *n, struct mm_gpu_bench *bench)
{
	const uint64_t bytes = MM_MIN(COPIED_BYTES, bench->sizes.copied_bytes);
	struct mm_gpu_dev *dev = &n->bed.dev;
	int r = mm_gpu_bed_open(&n->bed, bench);

	if (!r)
		r = mm_gpu_load_open(&n->load, &n->bed.module, bench->sizes.load_bytes, 0);
	if (!r)
		r = mm_gpu_host_open(dev, 2 * bytes, &n->host);
	if (!r)
		r = mm_gpu_range_open(dev, 2 * bytes, 0, &n->range);
	if (!r)
		r = MM_GPU_CALL(dev, cuStreamCreate, &n->in, CU_STREAM_NON_BLOCKING);
	if (!r)
		r = MM_GPU_CALL(dev, cuStreamCreate, &n->out, CU_STREAM_NON_BLOCKING);
	if (!r)
		r = MM_GPU_CALL(dev, cuEventCreate, &n->in_begun, CU_EVENT_DISABLE_TIMING);
	if (!r)
		r = MM_GPU_CALL(dev, cuEventCreate, &n->out_begun, CU_EVENT_DISABLE_TIMING);
	return r ? r : gate_make(n);
}

/* Sends that the order is begun, or has ended, or why it cannot. */
static int answer_send(struct neighbour *n, int error)
{
	struct neighbour_answer answer = { .error = error };
	int r = mm_sock_wait(n->fd, POLLOUT, mm_now_ns() + WAIT_NS);

	snprintf(answer.text, sizeof(answer.text), "%.250s", error ? n->bed.dev.bench->err : "");
	return r ? r : mm_sock_send(n->fd, &answer, sizeof(answer), NULL, 0);
}

/* Puts all copies of one direction into its stream, with an event behind the first one. */
static int copies_enqueue(struct neighbour *n, const struct mm_gpu_order *order, bool out)
{
	const uint64_t half = n->host.bytes / 2, all = out ? order->out_bytes : order->in_bytes;
	const uint64_t piece = MM_MIN(order->piece_bytes, half), first = out ? half : 0;
	struct mm_gpu_dev *dev = &n->bed.dev;
	int r = 0;

	for (uint64_t done = 0; !r && done < all; done += piece) {
		const uint64_t at = first + done % (half / piece * piece);

		r = out ? MM_GPU_CALL(dev, cuMemcpyDtoHAsync, n->host.base + at, n->range.va + at,
				      piece, n->out)
			: MM_GPU_CALL(dev, cuMemcpyHtoDAsync, n->range.va + at, n->host.base + at,
				      piece, n->in);
		if (!r && !done)
			r = MM_GPU_CALL(dev, cuEventRecord, out ? n->out_begun : n->in_begun,
					out ? n->out : n->in);
	}
	return r;
}

static int copies_do(struct neighbour *n, const struct mm_gpu_order *order)
{
	struct mm_gpu_dev *dev = &n->bed.dev;
	int r = copies_enqueue(n, order, false);

	if (!r)
		r = copies_enqueue(n, order, true);
	if (!r && order->in_bytes)
		r = MM_GPU_CALL(dev, cuEventSynchronize, n->in_begun);
	if (!r && order->out_bytes)
		r = MM_GPU_CALL(dev, cuEventSynchronize, n->out_begun);
	if (!r)
		r = answer_send(n, 0);
	if (!r)
		r = MM_GPU_CALL(dev, cuStreamSynchronize, n->in);
	return r ? r : MM_GPU_CALL(dev, cuStreamSynchronize, n->out);
}

static bool neighbour_is_stopped(const struct neighbour *n)
{
	return __atomic_load_n(&n->common->stop, __ATOMIC_ACQUIRE);
}

static int neighbour_step_wait(struct neighbour *n, CUevent end)
{
	int r = MM_GPU_CALL(&n->bed.dev, cuEventSynchronize, end);

	if (!r)
		__atomic_fetch_add(&n->common->steps[NEIGHBOURS], 1, __ATOMIC_RELEASE);
	return r;
}

/* Has the stream wait at the gate until the other process has completed some steps. */
static int stall_do(struct neighbour *n, CUevent end)
{
	struct mm_gpu_dev *dev = &n->bed.dev;
	uint64_t until;
	int r;

	/* Each stall waits for a value of its own: the stream may read an older one late. */
	r = MM_GPU_CALL(dev, cuStreamWaitValue32, dev->stream, n->gate_va, ++n->stalls,
			CU_STREAM_WAIT_VALUE_GEQ);
	if (!r)
		r = neighbour_step_wait(n, end);
	until = __atomic_load_n(&n->common->steps[OURS], __ATOMIC_ACQUIRE) + STALL_STEPS;
	while (!r && !neighbour_is_stopped(n) &&
	       __atomic_load_n(&n->common->steps[OURS], __ATOMIC_ACQUIRE) < until)
		usleep(LOOK_US);
	__atomic_store_n(n->gate, n->stalls, __ATOMIC_RELEASE);
	return r;
}

/* Two steps are in flight, so that a host that is late does not leave the device without work. */
static int steps_do(struct neighbour *n, const struct mm_gpu_order *order)
{
	const bool stalled = order->deed == MM_GPU_STALLED_STEPS;
	const CUevent ends[2] = { n->in_begun, n->out_begun };
	struct mm_gpu_dev *dev = &n->bed.dev;
	int r = answer_send(n, 0);

	n->load.repeats = order->launches;
	for (uint64_t i = 0; !r && !neighbour_is_stopped(n); i++) {
		if (i >= 2 && !stalled)
			r = neighbour_step_wait(n, ends[i % 2]);
		if (!r)
			r = mm_gpu_load_run(&n->load);
		if (!r)
			r = MM_GPU_CALL(dev, cuEventRecord, ends[i % 2], dev->stream);
		if (!r && stalled)
			r = stall_do(n, ends[i % 2]);
	}
	return r ? r : MM_GPU_CALL(dev, cuStreamSynchronize, dev->stream);
}

_Noreturn static void be_neighbour(struct mm_gpu_bench *bench, struct mm_gpu_common *common, int fd)
{
	struct neighbour *n = calloc(1, sizeof(*n));
	struct mm_gpu_order order;
	bool open = false;
	size_t len;
	int r = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!n)
		_exit(1);
	n->fd = fd;
	n->common = common;
	while (!r && !mm_sock_wait(fd, POLLIN, UINT64_MAX) &&
	       !mm_sock_recv_nofds(fd, &order, sizeof(order), &len) && len == sizeof(order)) {
		r = open ? 0 : neighbour_prepare(n, bench);
		open = true;
		if (!r)
			r = order.deed == MM_GPU_COPIES ? copies_do(n, &order)
							: steps_do(n, &order);
		__atomic_store_n(&common->over, 1, __ATOMIC_RELEASE);
		if (answer_send(n, r))
			break;
	}
	_exit(0);
}

/* ---- in this one ---- */

int mm_gpu_neighbour_open(struct mm_gpu_neighbour *n, struct mm_gpu_bench *bench)
{
	void *common = mmap(NULL, sizeof(*n->common), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ends[2], r;
	pid_t pid;

	*n = (struct mm_gpu_neighbour){ .bench = bench, .fd = -1 };
	if (common == MAP_FAILED)
		return mm_gpu_fail(bench, -ENOMEM, "memory: %m");
	n->common = common;
	r = mm_sock_pair(ends);
	if (r)
		return mm_gpu_fail(bench, r, "a socket: %s", strerror(-r));
	pid = fork();
	if (!pid) {
		close(ends[0]);
		be_neighbour(bench, common, ends[1]);
	}
	close(ends[1]);
	n->fd = ends[0];
	return pid < 0 ? mm_gpu_fail(bench, -errno, "fork: %m") : 0;
}

void mm_gpu_neighbour_close(struct mm_gpu_neighbour *n)
{
	if (n->common) {
		__atomic_store_n(&n->common->stop, 1, __ATOMIC_RELEASE);
		mm_close_fd(&n->fd);
		munmap(n->common, sizeof(*n->common));
	}
	*n = (struct mm_gpu_neighbour){ .fd = -1 };
}

static int neighbour_answer_receive(struct mm_gpu_neighbour *n)
{
	struct neighbour_answer answer;
	size_t len;
	int r = mm_sock_wait(n->fd, POLLIN, mm_now_ns() + WAIT_NS);

	if (!r)
		r = mm_sock_recv_nofds(n->fd, &answer, sizeof(answer), &len);
	if (!r && len != sizeof(answer))
		r = -EPROTO;
	if (r)
		return mm_gpu_fail(n->bench, r, "the other process: %s", strerror(-r));
	if (!answer.error)
		return 0;
	n->busy = false;
	return mm_gpu_fail(n->bench, answer.error, "the other process: %.250s", answer.text);
}

int mm_gpu_neighbour_begin(struct mm_gpu_neighbour *n, const struct mm_gpu_order *order)
{
	int r;

	__atomic_store_n(&n->common->stop, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&n->common->over, 0, __ATOMIC_RELEASE);
	r = mm_sock_send(n->fd, order, sizeof(*order), NULL, 0);
	if (r)
		return mm_gpu_fail(n->bench, r, "the other process: %s", strerror(-r));
	n->busy = true;
	return neighbour_answer_receive(n);
}

bool mm_gpu_neighbour_is_over(const struct mm_gpu_neighbour *n)
{
	return __atomic_load_n(&n->common->over, __ATOMIC_ACQUIRE);
}

void mm_gpu_neighbour_count(struct mm_gpu_neighbour *n)
{
	__atomic_fetch_add(&n->common->steps[OURS], 1, __ATOMIC_RELEASE);
}

uint64_t mm_gpu_neighbour_steps(const struct mm_gpu_neighbour *n)
{
	return __atomic_load_n(&n->common->steps[NEIGHBOURS], __ATOMIC_ACQUIRE);
}

int mm_gpu_neighbour_end(struct mm_gpu_neighbour *n)
{
	if (!n->busy)
		return 0;
	n->busy = false;
	__atomic_store_n(&n->common->stop, 1, __ATOMIC_RELEASE);
	return neighbour_answer_receive(n);
}
