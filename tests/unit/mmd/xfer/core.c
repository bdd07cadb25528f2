/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/mmd/xfer/core.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "mmd/common/log.h"
#include "mmd/xfer/stage.h"
#include "mmd/xfer/xfer.h"

#define ok(call) assert_int_equal(call, CUDA_SUCCESS)

static char device_dir[64];

static const char *tier_wanted(void)
{
	const char *value = getenv("MM_TEST_TIER");

	return value ? value : "";
}

/* Forbids io_uring, as containers do. */
static void forbid_uring(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

	seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(io_uring_setup), 0);
	if (seccomp_load(filter) != 0)
		_exit(99);
	seccomp_release(filter);
}

void core_main(int argc, char **argv)
{
	if (argc != 3 || strcmp(argv[1], "--xfer") != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (strcmp(tier_wanted(), "thread") == 0)
		forbid_uring();
	mm_log_init("xfer", MM_LOG_ERROR);
	exit(mm_xfer_main(atoi(argv[2])));
}

/* ---- the device of a test ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_device(void)
{
	nftw(device_dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void open_driver(struct core *core)
{
	const struct mm_gpu_api *gpu = &core->gpu;
	CUcontext ctx;
	CUdevice device;
	char err[200];

	if (mm_gpu_open("software", &core->gpu, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	ok(gpu->cuInit(0));
	ok(gpu->cuDeviceGet(&device, 0));
	ok(gpu->cuDevicePrimaryCtxRetain(&ctx, device));
	ok(gpu->cuCtxSetCurrent(ctx));
	ok(gpu->cuMemAddressReserve(&core->view, PAGES_MAX * GRANULE, 0, 0, 0));
}

int core_setup(void **state)
{
	struct core *core = calloc(1, sizeof(*core));

	assert_non_null(core);
	/* Once per process: the driver keeps the device that it opened first. */
	if (!device_dir[0]) {
		strcpy(device_dir, "/dev/shm/mm-test-xfer-XXXXXX");
		assert_non_null(mkdtemp(device_dir));
		atexit(remove_device);
		setenv("MM_SOFTGPU_DIR", device_dir, 1);
		setenv("MM_SOFTGPU_MEMORY", "64M", 1);
		setenv("MM_SOFTGPU_GRANULARITY", "64K", 1);
	}
	open_driver(core);
	core->sock = core->disk_fd = -1;
	core->store = core->gates = core->plan = core->cursors = MM_REGION_NULL;
	core->jobs = core->completions = MM_REGION_NULL;
	for (size_t i = 0; i < PAGES_MAX; i++)
		core->page_fd[i] = -1;
	core->setup = (struct mm_xmsg){ .magic = MM_PROTO_MAGIC,
					.kind = MM_X_SETUP,
					.page_bytes = GRANULE,
					.pages = 32,
					.chunk_bytes = 2 * GRANULE };
	*state = core;
	return 0;
}

static void forget_views(struct core *core)
{
	for (uint32_t i = 0; i < PAGES_MAX; i++) {
		if (core->viewed[i])
			ok(core->gpu.cuMemUnmap(core->view + i * GRANULE, GRANULE));
		core->viewed[i] = false;
		mm_close_fd(&core->page_fd[i]);
	}
}

int core_teardown(void **state)
{
	struct core *core = *state;

	if (core->pid)
		core_kill(core);
	forget_views(core);
	ok(core->gpu.cuMemAddressFree(core->view, PAGES_MAX * GRANULE));
	ok(core->gpu.cuDevicePrimaryCtxRelease(0));
	mm_gpu_close(&core->gpu);
	mm_region_done(&core->store);
	mm_close_fd(&core->disk_fd);
	mm_region_done(&core->gates);
	mm_region_done(&core->plan);
	mm_region_done(&core->cursors);
	free(core);
	return 0;
}

/* ---- xfer's life ---- */

static void xfer_spawn(struct core *core, int fd)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", fd);
	core->pid = fork();
	assert_true(core->pid >= 0);
	if (core->pid > 0)
		return;
	fcntl(fd, F_SETFD, 0);
	execl("/proc/self/exe", "xfer", "--xfer", number, (char *)NULL);
	_exit(127);
}

static void make_rings(struct core *core)
{
	struct mm_xq_region *ours, *theirs;

	assert_int_equal(mm_region_create(sizeof(*ours), MM_REGION_READONLY, "jobs", &core->jobs),
			 0);
	assert_int_equal(mm_region_create(sizeof(*theirs), MM_REGION_SHARED, "completions",
					  &core->completions),
			 0);
	ours = core->jobs.base;
	theirs = core->completions.base;
	mm_ring_init(&core->job_ring, ours->slot, MM_XQ_SLOTS, &ours->tail, &theirs->head);
	mm_ring_init(&core->completion_ring, theirs->slot, MM_XQ_SLOTS, &ours->head, &theirs->tail);
}

/* Checks the result of a call on xfer's socket, which may fail only because xfer has died. */
static bool xfer_reached(struct core *core, int r)
{
	if (core->may_die && (r == -ECONNRESET || r == -EPIPE))
		core->died = true;
	else
		assert_int_equal(r, 0);
	return r == 0;
}

void core_send(struct core *core, const struct mm_xmsg *msg, const int *fds, size_t n_fds)
{
	assert_int_equal(mm_sock_wait(core->sock, POLLOUT, mm_deadline_ns(WAIT_S * MM_NS_PER_S)),
			 0);
	(void)xfer_reached(core, mm_sock_send(core->sock, msg, sizeof(*msg), fds, n_fds));
}

void core_start(struct core *core)
{
	int pair[2], fds[2];
	size_t len = 0;

	assert_int_equal(mm_sock_pair(pair), 0);
	core->setup.stage_bytes =
		*tier_wanted() ? 3 * mm_xstage_buffer_bytes(core->setup.chunk_bytes) : 0;
	make_rings(core);
	xfer_spawn(core, pair[1]);
	close(pair[1]);
	core->sock = pair[0];
	fds[0] = core->jobs.fd;
	fds[1] = core->completions.fd;
	core_send(core, &core->setup, fds, 2);
	assert_int_equal(mm_sock_wait(core->sock, POLLIN, mm_deadline_ns(WAIT_S * MM_NS_PER_S)), 0);
	if (!xfer_reached(core,
			  mm_sock_recv_nofds(core->sock, &core->hello, sizeof(core->hello), &len)))
		return;
	assert_int_equal(len, sizeof(core->hello));
	assert_int_equal(core->hello.kind, MM_X_HELLO);
}

static int xfer_reap(struct core *core)
{
	int status;

	assert_int_equal(waitpid(core->pid, &status, 0), core->pid);
	core->pid = 0;
	mm_close_fd(&core->sock);
	mm_region_done(&core->jobs);
	mm_region_done(&core->completions);
	return status;
}

void core_kill(struct core *core)
{
	assert_int_equal(kill(core->pid, SIGKILL), 0);
	(void)xfer_reap(core);
}

int core_end(struct core *core)
{
	int status;

	/*
	 * The socket is not closed yet: with unread messages of xfer in it, close() would drop what
	 * the test sent.
	 */
	assert_int_equal(shutdown(core->sock, SHUT_WR), 0);
	status = xfer_reap(core);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void core_send_store(struct core *core)
{
	const struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
				     .kind = MM_X_STORE,
				     .count = 1,
				     .id = STORE,
				     .flags = core->disk_fd >= 0 ? MM_X_F_DISK : 0,
				     .bytes = core->store.size_bytes };

	core_send(core, &msg, core->disk_fd >= 0 ? &core->disk_fd : &core->store.fd, 1);
}

void core_send_tenant(struct core *core)
{
	const struct mm_xmsg msg = {
		.magic = MM_PROTO_MAGIC, .kind = MM_X_TENANT, .count = 3, .id = TENANT
	};
	int fds[3];

	if (!core->gates.base) {
		assert_int_equal(mm_region_create(sizeof(struct mm_gate_region), MM_REGION_SHARED,
						  "gates", &core->gates),
				 0);
		assert_int_equal(mm_region_create(sizeof(struct mm_xplan_region),
						  MM_REGION_READONLY, "plan", &core->plan),
				 0);
		assert_int_equal(mm_region_create(sizeof(struct mm_xcursor_region),
						  MM_REGION_SHARED, "cursors", &core->cursors),
				 0);
	}
	fds[0] = core->gates.fd;
	fds[1] = core->plan.fd;
	fds[2] = core->cursors.fd;
	core_send(core, &msg, fds, 3);
}

static void send_pages(struct core *core)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC, .kind = MM_X_PAGES };
	int fds[MM_FD_BATCH_MAX];

	for (uint32_t i = 0; i < PAGES_MAX; i++) {
		if (core->page_fd[i] >= 0) {
			fds[msg.count] = core->page_fd[i];
			msg.page_id[msg.count++] = i;
		}
		if (msg.count == 5 || (i == PAGES_MAX - 1 && msg.count > 0)) {
			core_send(core, &msg, fds, msg.count);
			msg.count = 0;
		}
	}
}

void core_give_back(struct core *core)
{
	send_pages(core);
	if (core->store.base)
		core_send_store(core);
	if (core->gates.base)
		core_send_tenant(core);
}

void core_restart(struct core *core)
{
	core_kill(core);
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	core_give_back(core);
}

/* ---- jobs ---- */

uint64_t core_push(struct core *core, struct mm_msg msg)
{
	msg.user_data = ++core->next_job;
	assert_int_equal(mm_ring_push(&core->job_ring, &msg), 0);
	(void)xfer_reached(core, mm_sock_doorbell(core->sock));
	return msg.user_data;
}

static void take_pages(struct core *core, const struct mm_xmsg *msg, const int *fds, size_t n_fds)
{
	assert_int_equal(msg->kind, MM_X_PAGES);
	assert_int_equal(msg->count, n_fds);
	for (size_t i = 0; i < n_fds; i++) {
		uint32_t page = msg->page_id[i];

		assert_true(page < PAGES_MAX);
		mm_close_fd(&core->page_fd[page]);
		core->page_fd[page] = fds[i];
		core->page_messages++;
	}
}

void core_collect(struct core *core)
{
	for (;;) {
		struct mm_xmsg msg;
		int fds[MM_FD_BATCH_MAX];
		size_t n_fds, len;
		int r = mm_sock_recv(core->sock, &msg, sizeof(msg), fds, MM_FD_BATCH_MAX, &n_fds,
				     &len);

		if (r == -EAGAIN || !xfer_reached(core, r))
			return;
		if (len == sizeof(msg) && msg.kind == MM_X_FAILED) {
			core->failed_tenant = msg.id;
			core->failed_result = msg.result;
		} else if (len == sizeof(msg) && msg.kind == MM_X_HEALTH &&
			   msg.id == MM_XHEALTH_GONE) {
			assert_int_equal(core->gone, 0); /* reported once */
			core->gone = msg.result;
		} else if (len == sizeof(msg) && msg.kind == MM_X_HEALTH) {
			core->health[msg.id == MM_XHEALTH_EVENT]++;
			core->last_xid = msg.id == MM_XHEALTH_EVENT ? msg.pages : core->last_xid;
		} else if (len == sizeof(msg))
			take_pages(core, &msg, fds, n_fds);
		else
			assert_int_equal(len, 1);
	}
}

int core_await(struct core *core, uint64_t job)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	for (;;) {
		struct mm_msg msg;
		int r = mm_ring_pop(&core->completion_ring, &msg);

		if (r == MM_E_EMPTY && core->died)
			return -ECONNRESET;
		if (r == MM_E_EMPTY) {
			assert_int_equal(mm_sock_wait(core->sock, POLLIN, until_ns), 0);
			core_collect(core);
			continue;
		}
		assert_int_equal(r, 0);
		if (msg.user_data == job) {
			core_collect(core);
			return msg.result;
		}
	}
}

int core_do(struct core *core, enum mm_xop op, uint64_t epoch, uint64_t a, uint64_t b, uint64_t c,
	    uint64_t d)
{
	const struct mm_msg msg = { .opcode = (uint16_t)op, .epoch = epoch, .arg = { a, b, c, d } };

	return core_await(core, core_push(core, msg));
}

/* ---- bytes ---- */

uint64_t core_pattern(uint64_t word)
{
	word = (word + 1) * UINT64_C(0x9e3779b97f4a7c15);
	return word ^ word >> 29;
}

int core_make_file(const void *data, uint64_t bytes)
{
	char path[] = "/tmp/mm-test-store-XXXXXX", again[32];
	int fd = mkstemp(path), direct;

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(pwrite(fd, data, bytes, 0), bytes);
	assert_int_equal(ftruncate(fd, (off_t)mm_round_up(bytes, MM_XSTAGE_ALIGN)), 0);
	snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
	direct = open(again, O_RDONLY | O_CLOEXEC | O_DIRECT);
	if (direct < 0)
		direct = open(again, O_RDONLY | O_CLOEXEC);
	assert_true(direct >= 0);
	close(fd);
	return direct;
}

void core_make_store(struct core *core, uint64_t bytes)
{
	uint64_t *words;

	assert_int_equal(mm_region_create(bytes, MM_REGION_READONLY, "store", &core->store), 0);
	words = core->store.base;
	for (uint64_t i = 0; i < bytes / 8; i++)
		words[i] = core_pattern(i);
	if (*tier_wanted())
		core->disk_fd = core_make_file(words, bytes);
}

static void view_page(struct core *core, uint32_t page)
{
	const CUmemAccessDesc desc = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr va = core->view + page * GRANULE;
	CUmemGenericAllocationHandle handle;

	if (core->viewed[page])
		return;
	assert_true(core->page_fd[page] >= 0);
	ok(core->gpu.cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)core->page_fd[page],
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ok(core->gpu.cuMemMap(va, GRANULE, 0, handle, 0));
	ok(core->gpu.cuMemRelease(handle));
	ok(core->gpu.cuMemSetAccess(va, GRANULE, &desc, 1));
	core->viewed[page] = true;
}

void core_read(struct core *core, uint32_t page, uint64_t offset, void *buffer, size_t bytes)
{
	view_page(core, page);
	ok(core->gpu.cuMemcpyDtoH(buffer, core->view + page * GRANULE + offset, bytes));
}

bool core_pages_hold(struct core *core, const uint32_t *pages, uint64_t offset, uint64_t bytes)
{
	const char *want = (const char *)core->store.base + offset;
	char got[4096];

	for (uint64_t at = 0; at < bytes; at += sizeof(got)) {
		size_t n = MM_MIN(sizeof(got), bytes - at);

		core_read(core, pages[at / GRANULE], at % GRANULE, got, n);
		if (memcmp(got, want + at, n) != 0)
			return false;
	}
	return true;
}

void core_fill(struct core *core, uint32_t page, unsigned char value)
{
	view_page(core, page);
	ok(core->gpu.cuMemsetD8Async(core->view + page * GRANULE, value, GRANULE, NULL));
	ok(core->gpu.cuStreamSynchronize(NULL));
}

void core_assert_bytes(struct core *core, uint32_t page, uint64_t from, uint64_t to,
		       unsigned char value)
{
	static unsigned char bytes[GRANULE];

	core_read(core, page, from, bytes, to - from);
	for (uint64_t i = 0; i < to - from; i++)
		assert_int_equal(bytes[i], value);
}
