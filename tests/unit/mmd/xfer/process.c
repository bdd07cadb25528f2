/* SPDX-License-Identifier: Apache-2.0 */
/* Pages, scrubs, copies, refusals and the life of the process. */
#undef NDEBUG
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/driver/nvml.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "tests/unit/mmd/xfer/core.h"

#define STORE_BYTES (5 * GRANULE + 4096)

static void create_all(struct core *core)
{
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_int_equal(core_do(core, MM_XOP_CREATE, 0, 0, core->setup.pages, 0, 0), 0);
	for (uint64_t i = 0; i < core->setup.pages; i++)
		assert_true(core->page_fd[i] >= 0);
}

static void test_hello(void **state)
{
	struct core *core = *state;

	core->setup.pages = 0;
	core->setup.bytes = 10 * GRANULE + 5;
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_int_equal(core->hello.pages, 10);
	assert_int_equal(core->hello.page_bytes, GRANULE);
	assert_int_equal(core->hello.bytes, 64 << 20);
	assert_int_equal(core->hello.id, MM_DRIVER_SOFTWARE);
	assert_int_equal(core_end(core), 0);

	core->setup.bytes = 0;
	core->setup.headroom_bytes = 60 << 20;
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_in_range(core->hello.pages, 32, 64); /* the context takes some of the memory */
	assert_int_equal(core_end(core), 0);

	core->setup.page_bytes = 0;
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_int_equal(core->hello.page_bytes, 2 << 20);
}

static const struct {
	const char *what;
	uint64_t page_bytes, pages, device, headroom;
	const char *driver;
	int want;
	const char *needle;
} setups[] = {
	{ "page size", GRANULE + 4096, 4, 0, 0, "", -EINVAL, "granularity 65536" },
	{ "too many pages", GRANULE, 2000, 0, 0, "", -ENOMEM, "does not fit" },
	{ "headroom eats all", GRANULE, 0, 0, 1 << 30, "", -ENOMEM, "headroom" },
	{ "no such device", GRANULE, 4, 9, 0, "", -ENODEV, "no device 9" },
	{ "no such driver", GRANULE, 4, 0, 0, "/nonexistent/libx.so", -ENOENT, "libx.so" },
};

static void test_bad_setups(void **state)
{
	struct core *core = *state;

	for (size_t i = 0; i < MM_ARRAY_SIZE(setups); i++) {
		core->setup.page_bytes = setups[i].page_bytes;
		core->setup.pages = setups[i].pages;
		core->setup.id = setups[i].device;
		core->setup.headroom_bytes = setups[i].headroom;
		strcpy(core->setup.text, setups[i].driver);
		core_start(core);
		if (core->hello.result != setups[i].want ||
		    !strstr(core->hello.text, setups[i].needle))
			fail_msg("%s: %d '%s'", setups[i].what, core->hello.result,
				 core->hello.text);
		assert_int_equal(core_end(core), 1);
	}
}

static void test_second_mmd(void **state)
{
	struct core *core = *state;
	struct core other = *core;

	core_start(core);
	assert_int_equal(core->hello.result, 0);
	core_start(&other);
	assert_int_equal(other.hello.result, -EBUSY);
	assert_non_null(strstr(other.hello.text, "managed by another mmd"));
	assert_int_equal(core_end(&other), 1);
	core_kill(core);
	/* The lock went with the process. */
	core_start(core);
	assert_int_equal(core->hello.result, 0);
}

static void test_create_scrub(void **state)
{
	struct core *core = *state;

	core->setup.pages = 100; /* more than a batch */
	create_all(core);
	assert_int_equal(core->page_messages, 100);
	core_assert_bytes(core, 3, 0, GRANULE, 0);
	core_fill(core, 3, 0xab);
	core_fill(core, 4, 0xcd);
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, 3, 0, 0, 0), 0);
	core_assert_bytes(core, 3, 0, GRANULE, 0);
	core_assert_bytes(core, 4, 0, GRANULE, 0xcd);
}

/*
 * Neighbours in either order, single pages, one page twice: these are filled, and no neighbour of
 * theirs.
 */
static const uint32_t scrubbed[] = { 10, 11, 12, 40, 39, 38, 60, 62, 0, 99, 11, 98 };

static void scrub_some(struct core *core, int want)
{
	bool filled[100] = { false };
	struct mm_msg done;

	for (uint32_t i = 0; i < MM_ARRAY_SIZE(filled); i++)
		core_fill(core, i, (unsigned char)(i + 1));
	for (size_t i = 0; i < MM_ARRAY_SIZE(scrubbed); i++) {
		filled[scrubbed[i]] = want == 0;
		core_push(core, (struct mm_msg){ .opcode = MM_XOP_SCRUB, .arg = { scrubbed[i] } });
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(scrubbed); i++) {
		for (int ms = 0; mm_ring_pop(&core->completion_ring, &done) == MM_E_EMPTY; ms++) {
			assert_true(ms < 60000);
			usleep(1000);
		}
		assert_int_equal(done.result, want);
	}
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(filled); i++)
		core_assert_bytes(core, i, 0, GRANULE, filled[i] ? 0 : (unsigned char)(i + 1));
}

static void test_scrub_neighbours(void **state)
{
	struct core *core = *state;

	core->setup.pages = 100;
	create_all(core);
	scrub_some(core, 0);
}

/* A fill that fails is tried again page by page. */
static void test_scrub_fails_once(void **state)
{
	struct core *core = *state;

	core->setup.pages = 100;
	setenv("MM_SOFTGPU_FAIL", "cuMemsetD32Async:1:2", 1);
	create_all(core);
	unsetenv("MM_SOFTGPU_FAIL");
	scrub_some(core, 0);
}

static void test_scrub_fails(void **state)
{
	struct core *core = *state;

	core->setup.pages = 100;
	setenv("MM_SOFTGPU_FAIL", "cuMemsetD32Async:0:2", 1);
	create_all(core);
	unsetenv("MM_SOFTGPU_FAIL");
	scrub_some(core, -ENOMEM);
}

static void test_many_jobs(void **state)
{
	struct core *core = *state;
	uint64_t job[3000];

	create_all(core);
	for (uint32_t i = 0; i < core->setup.pages; i++)
		core_fill(core, i, 0x55);
	for (size_t i = 0; i < MM_ARRAY_SIZE(job); i++)
		job[i] = core_push(core, (struct mm_msg){ .opcode = MM_XOP_SCRUB,
							  .arg = { i % core->setup.pages } });
	(void)job;
	for (size_t i = 0; i < MM_ARRAY_SIZE(job); i++) {
		struct mm_msg done;

		while (mm_ring_pop(&core->completion_ring, &done) == MM_E_EMPTY)
			usleep(100);
		assert_int_equal(done.result, 0);
	}
	for (uint32_t i = 0; i < core->setup.pages; i++)
		core_assert_bytes(core, i, 0, GRANULE, 0);
}

/* store offset and bytes of a copy; the rest of the page must be zero */
static const struct {
	uint64_t offset, bytes;
} copies[] = {
	{ 0, GRANULE }, { GRANULE, GRANULE }, { 0, 8 },  { 8, GRANULE - 8 },
	{ 4096, 4096 }, { 24, 40008 },        { 16, 0 }, { STORE_BYTES - 64, 64 },
};

static void test_copy(void **state)
{
	static uint64_t words[GRANULE / 8];
	struct core *core = *state;

	create_all(core);
	core_make_store(core, STORE_BYTES);
	core_send_store(core);
	for (size_t i = 0; i < MM_ARRAY_SIZE(copies); i++) {
		uint32_t page = (uint32_t)i + 5;

		core_fill(core, page, 0xee);
		assert_int_equal(core_do(core, MM_XOP_COPY, 0, page, STORE, copies[i].offset,
					 copies[i].bytes),
				 0);
		core_read(core, page, 0, words, GRANULE);
		for (uint64_t w = 0; w < GRANULE / 8; w++) {
			uint64_t want = w < copies[i].bytes / 8
						? core_pattern(copies[i].offset / 8 + w)
						: 0;

			if (words[w] != want)
				fail_msg("copy %zu word %lu", i, w);
		}
	}
}

static const struct {
	const char *what;
	enum mm_xop op;
	uint64_t epoch, arg[4];
	int want;
} bad_jobs[] = {
	{ "opcode", MM_XOP_COUNT, 0, { 0 }, -EINVAL },
	{ "create past the pool", MM_XOP_CREATE, 0, { 30, 3 }, -EINVAL },
	{ "create wraps", MM_XOP_CREATE, 0, { 2, UINT64_MAX }, -EINVAL },
	{ "scrub of no page", MM_XOP_SCRUB, 0, { 32 }, -EINVAL },
	{ "scrub of a page id over 32 bits", MM_XOP_SCRUB, 0, { UINT64_C(1) << 32 }, -EINVAL },
	{ "recreate of no page", MM_XOP_RECREATE, 0, { 32 }, -EINVAL },
	{ "copy to no page", MM_XOP_COPY, 0, { 32, STORE, 0, 8 }, -EINVAL },
	{ "copy from no store", MM_XOP_COPY, 0, { 0, STORE + 1, 0, 8 }, -ENOENT },
	{ "copy of more than a page", MM_XOP_COPY, 0, { 0, STORE, 0, GRANULE + 1 }, -EINVAL },
	{ "copy past the store", MM_XOP_COPY, 0, { 0, STORE, STORE_BYTES - 8, 16 }, -EINVAL },
	{ "copy offset wraps", MM_XOP_COPY, 0, { 0, STORE, UINT64_MAX - 3, 8 }, -EINVAL },
	{ "activate of no tenant", MM_XOP_ACTIVATE, 1, { 99 }, -ENOENT },
	{ "quiesce of no tenant", MM_XOP_QUIESCE, 1, { 99 }, -ENOENT },
	{ "detach of no tenant", MM_XOP_DETACH, 0, { 99 }, 0 },
	{ "drop of no store", MM_XOP_STORE_DROP, 0, { 99 }, 0 },
	{ "nop", MM_XOP_NOP, 0, { 0 }, 0 },
	{ "drop", MM_XOP_STORE_DROP, 0, { STORE }, 0 },
	{ "copy after drop", MM_XOP_COPY, 0, { 0, STORE, 0, 8 }, -ENOENT },
};

static void test_bad_jobs(void **state)
{
	struct core *core = *state;

	create_all(core);
	core_make_store(core, STORE_BYTES);
	core_send_store(core);
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad_jobs); i++) {
		const uint64_t *arg = bad_jobs[i].arg;
		int r = core_do(core, bad_jobs[i].op, bad_jobs[i].epoch, arg[0], arg[1], arg[2],
				arg[3]);

		if (r != bad_jobs[i].want)
			fail_msg("%s: %d, want %d", bad_jobs[i].what, r, bad_jobs[i].want);
	}
}

/*
 * On a full device, the pages that fit are sent, then the job fails; so does RECREATE of a held
 * page.
 */
static void test_out_of_memory(void **state)
{
	struct core *core = *state;
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle hog;
	size_t free_bytes, total_bytes;

	create_all(core);
	assert_int_equal(core->gpu.cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
	assert_int_equal(core->gpu.cuMemCreate(&hog, free_bytes / GRANULE * GRANULE, &prop, 0),
			 CUDA_SUCCESS);
	/* The test holds the fd of page 1, so its memory does not come free. */
	assert_int_equal(core_do(core, MM_XOP_RECREATE, 0, 1, 0, 0, 0), -ENOMEM);
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, 1, 0, 0, 0), -EINVAL);
	mm_close_fd(&core->page_fd[1]);
	assert_int_equal(core_do(core, MM_XOP_RECREATE, 0, 1, 0, 0, 0), 0);
	assert_true(core->page_fd[1] >= 0);
	core_assert_bytes(core, 1, 0, GRANULE, 0);
	assert_int_equal(core->gpu.cuMemRelease(hog), CUDA_SUCCESS);
}

/* Pages outlive xfer and are adopted; a reissued CREATE makes only those that are missing. */
static void test_adopt(void **state)
{
	struct core *core = *state;

	create_all(core);
	core_fill(core, 9, 0x77);
	core_kill(core);
	mm_close_fd(&core->page_fd[20]);
	core->page_messages = 0;
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	core_give_back(core);
	assert_int_equal(core_do(core, MM_XOP_CREATE, 0, 0, core->setup.pages, 0, 0), 0);
	assert_int_equal(core->page_messages, 1);
	assert_true(core->page_fd[20] >= 0);
	core_assert_bytes(core, 9, 0, GRANULE, 0x77);
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, 9, 0, 0, 0), 0);
	core_assert_bytes(core, 9, 0, GRANULE, 0);
}

/* After a message that core never sends, xfer ends: its state is not core's any more. */
static void test_bad_messages(void **state)
{
	struct core *core = *state;
	const struct mm_xmsg bad[] = {
		{ .magic = 1, .kind = MM_X_STORE },
		{ .magic = MM_PROTO_MAGIC, .kind = 77 },
		{ .magic = MM_PROTO_MAGIC, .kind = MM_X_STORE, .count = 1, .bytes = 5 },
		{ .magic = MM_PROTO_MAGIC, .kind = MM_X_TENANT },
		{ .magic = MM_PROTO_MAGIC, .kind = MM_X_PAGES, .count = 1 },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(bad); i++) {
		core_start(core);
		assert_int_equal(core->hello.result, 0);
		core_send(core, &bad[i], NULL, 0);
		assert_int_equal(core_end(core), 1);
	}
}

static int core_fds(const struct core *core)
{
	char path[64];
	struct dirent *entry;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", core->pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir)))
		n++;
	closedir(dir);
	return n;
}

/* A core that was started anew sends what its predecessor may have sent: nothing changes. */
static void test_twice(void **state)
{
	static uint64_t words[GRANULE / 8];
	struct core *core = *state;
	int fds;

	create_all(core);
	core_make_store(core, STORE_BYTES);
	core_send_store(core);
	core_send_tenant(core);
	core_fill(core, 9, 0x77);
	assert_int_equal(core_do(core, MM_XOP_NOP, 0, 0, 0, 0, 0), 0);
	fds = core_fds(core);
	for (int i = 0; i < 3; i++)
		core_give_back(core);
	assert_int_equal(core_do(core, MM_XOP_NOP, 0, 0, 0, 0, 0), 0);
	assert_int_equal(core_fds(core), fds);
	core_assert_bytes(core, 9, 0, GRANULE, 0x77);
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, 9, 0, 0, 0), 0);
	core_assert_bytes(core, 9, 0, GRANULE, 0);
	assert_int_equal(core_do(core, MM_XOP_COPY, 0, 5, STORE, 0, GRANULE), 0);
	core_read(core, 5, 0, words, GRANULE);
	assert_true(words[7] == core_pattern(7));
	assert_int_equal(core_do(core, MM_XOP_DETACH, 0, TENANT, 0, 0, 0), 0);
	assert_int_equal(core_do(core, MM_XOP_STORE_DROP, 0, STORE, 0, 0, 0), 0);
	assert_int_equal(core_do(core, MM_XOP_COPY, 0, 5, STORE, 0, GRANULE), -ENOENT);
	assert_int_equal(core_end(core), 0);
}

/* Another store, or a swap space of another size, under an id that is taken is a fault of core. */
static void test_id_taken(void **state)
{
	struct core *core = *state;
	struct mm_xmsg msg = {
		.magic = MM_PROTO_MAGIC, .kind = MM_X_STORE, .count = 1, .id = STORE
	};
	struct mm_region other = MM_REGION_NULL;

	core_start(core);
	core_make_store(core, STORE_BYTES);
	core_send_store(core);
	assert_int_equal(mm_region_create(4096, MM_REGION_READONLY, "other", &other), 0);
	msg.bytes = other.size_bytes;
	core_send(core, &msg, &other.fd, 1);
	assert_int_equal(core_end(core), 1);
	mm_region_done(&other);
}

/* A store that is not a sealed memfd could raise SIGBUS later, so it is refused. */
static void test_unsealed_store(void **state)
{
	struct core *core = *state;
	struct mm_xmsg msg = {
		.magic = MM_PROTO_MAGIC, .kind = MM_X_STORE, .count = 1, .id = STORE, .bytes = 4096
	};
	mm_cleanup(mm_close_fd) int fd = memfd_create("x", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, 4096), 0);
	core_start(core);
	core_send(core, &msg, &fd, 1);
	assert_int_equal(core_end(core), 1);
}

/* Reports events of the device at once, as the driver would. */
static void events_write(const char *lines)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/events", getenv("MM_SOFTGPU_DIR"));
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, lines, strlen(lines)), strlen(lines));
	close(fd);
}

static void health_receive(struct core *core)
{
	assert_int_equal(mm_sock_wait(core->sock, POLLIN, mm_deadline_ns(WAIT_S * MM_NS_PER_S)), 0);
	core_collect(core);
}

/* A GPU that NVML can no longer reach is reported once, though there is no Xid. */
static void test_gone(void **state)
{
	struct core *core = *state;

	core_start(core);
	assert_int_equal(core->hello.result, 0);
	events_write("lost\n");
	while (!core->gone)
		health_receive(core);
	assert_int_equal(core->gone, MM_NVML_GPU_IS_LOST);
	assert_int_equal(core->health[1], 0);
	assert_int_equal(core_end(core), 0);
}

/* NVML may hang on a faulty GPU; xfer ends all the same. */
static void test_nvml_hangs(void **state)
{
	struct core *core = *state;

	core_start(core);
	assert_int_equal(core->hello.result, 0);
	events_write("xid 31\nhang\n");
	while (core->last_xid != 31)
		health_receive(core);
	assert_int_equal(core_end(core), 0);
}

/* The way in which a store on disk is read is as requested, and reported. */
static void test_stage(void **state)
{
	struct core *core = *state;
	const char *tier = getenv("MM_TEST_TIER");
	bool staged = tier && *tier;

	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_int_equal(core->hello.stage_bytes > 0, staged);
	assert_true(core->hello.stage_bytes <= core->setup.stage_bytes);
	assert_int_equal(core->hello.flags & MM_X_F_PREAD,
			 staged && strcmp(tier, "thread") == 0 ? MM_X_F_PREAD : 0);
	assert_int_equal(core_end(core), 0);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, core_setup, core_teardown)
	const struct CMUnitTest tests[] = {
		T(test_stage),
		T(test_hello),
		T(test_bad_setups),
		T(test_second_mmd),
		T(test_create_scrub),
		T(test_many_jobs),
		T(test_scrub_neighbours),
		T(test_scrub_fails_once),
		T(test_scrub_fails),
		T(test_copy),
		T(test_bad_jobs),
		T(test_out_of_memory),
		T(test_adopt),
		T(test_bad_messages),
		T(test_twice),
		T(test_id_taken),
		T(test_unsealed_store),
		T(test_gone),
		T(test_nvml_hangs),
	};

	core_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
