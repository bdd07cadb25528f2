/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load as a process: stores that come out right, files that change, and how it ends. refuse.c has
 * the models and tenants that it refuses.
 */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "tests/unit/mmd/load/model.h"

static const char *folder = "/tmp";

static int setup(void **state)
{
	(void)state;
	model_dir_make(folder);
	model_write_config(LLAMA_CONFIG);
	return 0;
}

/* Up to what load says of the files. */
static void start_and_hear(struct load *load)
{
	load_start(load, MODE_PLAIN);
	load_pass_model(load, LLAMA_FILES);
	assert_true(load_receive(load));
}

static void load_whole(struct load *load, const char *mode)
{
	load_start(load, mode);
	load_pass_model(load, LLAMA_FILES);
	assert_true(load_receive(load));
	if (load->ident.op != MM_L_IDENT)
		fail_msg("%s", load->ident.text);
	assert_int_equal(load->ident.n_groups, 4);
	assert_int_equal(load->ident.n_tensors, MM_ARRAY_SIZE(llama));
	load_alloc(load);
	assert_true(load_receive(load));
	assert_int_equal(load->ident.op, MM_L_DONE);
	assert_int_equal(load->ident.result, 0);
	assert_int_equal(load_end(load), 0);
	assert_int_equal(load->status.result, 0);
	assert_int_equal(load->status.bytes_done, load->status.bytes_total);
	store_check(load, llama, MM_ARRAY_SIZE(llama));
}

/* The alignment of the data in their files, and the way in which they are read. */
static const struct {
	const char *folder, *mode;
	size_t pad;
	uint32_t flags, flags_mask;
} ways[] = {
	{ "/tmp", MODE_PLAIN, 0, 0, MM_LOAD_F_PREAD },
	{ "/tmp", MODE_PLAIN, 1, 0, MM_LOAD_F_PREAD },
	{ "/tmp", MODE_PLAIN, 5000, 0, MM_LOAD_F_PREAD },
	{ "/dev/shm", MODE_PLAIN, 3, 0, MM_LOAD_F_PREAD },
	{ "/tmp", MODE_NO_DIRECT, 2, MM_LOAD_F_BUFFERED, MM_LOAD_F_BUFFERED | MM_LOAD_F_PREAD },
	{ "/tmp", MODE_NO_URING, 2, MM_LOAD_F_PREAD, MM_LOAD_F_PREAD },
};

static void test_ways(void **state)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(ways); i++) {
		struct load load;

		folder = ways[i].folder;
		setup(state);
		model_write(llama, MM_ARRAY_SIZE(llama), ways[i].pad);
		load_whole(&load, ways[i].mode);
		assert_int_equal(load.status.flags & ways[i].flags_mask, ways[i].flags);
		load_done(&load);
		model_dir_remove(state);
	}
	folder = "/tmp";
}

/* ---- holes ---- */

static const struct tensor holey[] = {
	{ "model.layers.0.q.weight", "F32", 2, { 4000, 4001 }, 0 }, /* 64 MB */
	{ "model.layers.1.q.weight", "F16", 2, { 15, 10 }, 0 },
	{ "model.layers.2.q.weight", "F32", 2, { 2000, 2000 }, 0 },
};

/* Punches holes into the first tensor, except for its ends and some pages; the others stay. */
static void file_punch(int fd)
{
	const off_t mb = 1 << 20;

	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, mb, 20 * mb), 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 21 * mb + 8192,
				   40 * mb - 8192),
			 0);
}

/* Checks that each tensor has the bytes of its file. */
static void check_holes(const struct load *load, int fd)
{
	uint64_t header, at;
	struct stat st;

	/* First, since looking at a hole of a memfd allocates its page. */
	assert_int_equal(fstat(load->store.fd, &st), 0);
	assert_in_range(st.st_blocks * 512, tensor_bytes(&holey[2]), 24 << 20);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	at = header + sizeof(header);
	for (size_t i = 0; i < MM_ARRAY_SIZE(holey); i++) {
		const uint64_t bytes = tensor_bytes(&holey[i]);
		char *file = malloc(bytes);
		const void *stored;

		assert_non_null(file);
		assert_int_equal(pread(fd, file, bytes, (off_t)at), bytes);
		store_find(load, holey[i].name, &stored);
		assert_memory_equal(stored, file, bytes);
		free(file);
		at += bytes;
	}
}

/* Data that are a hole in the file take no memory, and read as zeros. */
static void test_holes(void **state)
{
	static const char *const modes[] = { MODE_PLAIN, MODE_NO_DIRECT, MODE_NO_URING };
	char path[128];

	folder = "/dev/shm"; /* not every file system can punch holes */
	for (size_t i = 0; i < MM_ARRAY_SIZE(modes); i++) {
		struct load load;
		int fd;

		setup(state);
		model_write(holey, MM_ARRAY_SIZE(holey), 7);
		snprintf(path, sizeof(path), "%s/model-0.safetensors", model_dir);
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		file_punch(fd);
		load_start(&load, modes[i]);
		load_pass_model(&load, 1);
		assert_true(load_receive(&load));
		load_alloc(&load);
		assert_true(load_receive(&load));
		assert_int_equal(load_end(&load), 0);
		assert_int_equal(load.status.bytes_done, load.status.bytes_total);
		check_holes(&load, fd);
		load_done(&load);
		close(fd);
		model_dir_remove(state);
	}
	folder = "/tmp";
}

static void test_groups(void **state)
{
	const struct mm_dir *dir;
	const struct mm_dir_group *groups;
	const struct mm_dir_tensor *t;
	struct load load;

	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	load_whole(&load, MODE_PLAIN);
	dir = load.store.base;
	t = (const void *)((const char *)dir + dir->tensors_offset);
	/* IDENT gave core the same sizes before core gave memory. */
	groups = (const void *)((const char *)dir + dir->groups_offset);
	for (uint32_t g = 0; g < dir->n_groups; g++)
		assert_int_equal(load.group_bytes[g], groups[g].bytes);
	for (uint32_t i = 0; i < dir->n_tensors; i++) {
		const char *layer = strstr(t[i].name, "layers.");
		uint32_t want = layer && t[i].rank >= 2 ? 1 + (uint32_t)(layer[7] - '0') : 0;

		assert_int_equal(t[i].group, want);
		assert_true(i == 0 || strcmp(t[i - 1].name, t[i].name) < 0);
	}
	load_done(&load);
}

/* The same files are the same model for any tenant; a changed file is another model. */
static void test_identity(void **state)
{
	struct load load;
	uint8_t first[32];

	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	load_whole(&load, MODE_PLAIN);
	memcpy(first, load.ident.identity, sizeof(first));
	load_done(&load);

	start_and_hear(&load);
	assert_memory_equal(first, load.ident.identity, sizeof(first));
	load_answer(&load, MM_L_HAVE, 0, "");
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.op, MM_L_DONE);
	assert_int_equal(load.ident.result, 0);
	assert_int_equal(load_end(&load), 0);
	assert_int_equal(load.status.result, 0);
	assert_int_equal(load.status.flags & MM_LOAD_F_SHARED, MM_LOAD_F_SHARED);
	load_done(&load);

	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	start_and_hear(&load);
	assert_memory_not_equal(first, load.ident.identity, sizeof(first));
	load_done(&load);
}

static void write_index(const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/model.safetensors.index.json", model_dir);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void pass_shards(struct load *load, uint32_t n_files)
{
	load_start(load, MODE_PLAIN);
	load_pass_index(load);
	load_pass_model(load, n_files);
}

static void test_shards(void **state)
{
	uint8_t without[32];
	struct load load;

	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	load_whole(&load, MODE_PLAIN);
	memcpy(without, load.ident.identity, sizeof(without));
	load_done(&load);

	model_write_index(llama, MM_ARRAY_SIZE(llama));
	pass_shards(&load, LLAMA_FILES);
	assert_true(load_receive(&load));
	if (load.ident.op != MM_L_IDENT)
		fail_msg("%s", load.ident.text);
	assert_memory_not_equal(without, load.ident.identity, sizeof(without));
	load_alloc(&load);
	assert_true(load_receive(&load));
	assert_int_equal(load_end(&load), 0);
	store_check(&load, llama, MM_ARRAY_SIZE(llama));
	load_done(&load);

	pass_shards(&load, LLAMA_FILES - 1);
	load_expect_refusal(&load, "a missing shard", -EBADMSG,
			    "model-2.safetensors, which was not");
	model_write_index(llama, MM_ARRAY_SIZE(llama) - 1);
	pass_shards(&load, LLAMA_FILES);
	load_expect_refusal(&load, "a tensor too many", -EBADMSG, "tensor scalar is not in");
	write_index("{");
	pass_shards(&load, LLAMA_FILES);
	load_expect_refusal(&load, "no JSON", -EBADMSG, "not valid JSON");
}

static void test_core_refuses(void **state)
{
	struct load load;

	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	start_and_hear(&load);
	load_answer(&load, MM_L_REFUSE, -EDQUOT, "over the budget of 5M");
	assert_int_equal(load_end(&load), 1);
	assert_int_equal(load.status.result, -EDQUOT);
	assert_string_equal(load.status.text, "over the budget of 5M");
	load_done(&load);
}

static int load_reap(struct load *load)
{
	int status;

	assert_int_equal(waitpid(load->pid, &status, 0), load->pid);
	load->pid = 0;
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_deaths(void **state)
{
	struct load load;
	int status, r;
	size_t len;

	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	/* The tenant leaves before it has passed anything. */
	load_start(&load, MODE_PLAIN);
	mm_close_fd(&load.tenant);
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.result, -ECONNRESET);
	assert_int_equal(load_reap(&load), 1);
	load_done(&load);
	/* The tenant leaves before core has answered. */
	start_and_hear(&load);
	mm_close_fd(&load.tenant);
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.op, MM_L_DONE);
	assert_int_equal(load.ident.result, -ECONNRESET);
	assert_int_equal(load_reap(&load), 1);
	load_done(&load);
	/* Load ends with a message of core unread: its own last one is read all the same. */
	start_and_hear(&load);
	assert_int_equal(kill(load.pid, SIGSTOP), 0); /* it must not end between the two */
	assert_int_equal(waitpid(load.pid, &status, WUNTRACED), load.pid);
	assert_true(WIFSTOPPED(status));
	load_answer(&load, MM_L_REFUSE, -EDQUOT, "over the budget");
	load_answer(&load, MM_L_REFUSE, -EDQUOT, "said twice");
	assert_int_equal(kill(load.pid, SIGCONT), 0);
	assert_int_equal(load_reap(&load), 1);
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.op, MM_L_DONE);
	assert_int_equal(load.ident.result, -EDQUOT);
	load_done(&load);
	/* Core leaves, and the tenant waits for the load that the next core begins. */
	start_and_hear(&load);
	mm_close_fd(&load.core);
	assert_int_equal(load_reap(&load), 1);
	do
		r = mm_sock_recv_nofds(load.tenant, &load.status, sizeof(load.status), &len);
	while (r == 0 && !load.status.done);
	assert_int_equal(r, -ECONNRESET);
	load_done(&load);
}

/* Files that change between their headers and their data are refused. */
static void test_changing_files(void **state)
{
	const struct timespec long_ago[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	char path[128];
	struct load load;

	(void)state;
	snprintf(path, sizeof(path), "%s/model-2.safetensors", model_dir);
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	start_and_hear(&load);
	assert_int_equal(truncate(path, 1000000), 0);
	load_alloc(&load);
	load_expect_refusal(&load, "truncated", -EIO, "model-2.safetensors: ends at byte");

	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	start_and_hear(&load);
	/* The new time may equal the old one: clocks of file systems are coarse. */
	assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
	load_alloc(&load);
	load_expect_refusal(&load, "touched", -ESTALE, "model-2.safetensors: was changed");
}

/* The directory is in memory, the rest in a file; a file that is too short is refused. */
static void test_disk(void **state)
{
	struct load load;

	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 5);
	start_and_hear(&load);
	load_alloc_disk(&load);
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.op, MM_L_DONE);
	assert_int_equal(load.ident.result, 0);
	assert_int_equal(load_end(&load), 0);
	load_join(&load);
	store_check(&load, llama, MM_ARRAY_SIZE(llama));
	load_done(&load);

	start_and_hear(&load);
	load.ident.store_bytes -= 4096;
	load_alloc_disk(&load);
	load_expect_refusal(&load, "short file", -EPROTO, "too short");
}

/* A store that core made too short must be refused, not written past its end. */
static void test_short_store(void **state)
{
	struct load load;

	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	start_and_hear(&load);
	load.ident.store_bytes -= 4096;
	load_alloc(&load);
	load_expect_refusal(&load, "short store", -EPROTO, "too short");
}

/*
 * Stops and continues load until it has answered: the kernel then interrupts some of its system
 * calls.
 */
static void load_disturb(const struct load *load)
{
	for (int i = 0; i < 200; i++) {
		if (mm_sock_wait(load->core, POLLIN, mm_deadline_ns(MM_NS_PER_MS)) == 0)
			return;
		kill(load->pid, SIGSTOP);
		kill(load->pid, SIGCONT);
	}
}

static void test_stops(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/model-2.safetensors", model_dir);
	model_write(llama, MM_ARRAY_SIZE(llama), 3);
	for (int i = 0; i < 6; i++) {
		bool is_cut = i >= 3; /* it fails with reads under way */
		struct load load;

		load_start(&load, MODE_PLAIN);
		load_pass_model(&load, LLAMA_FILES);
		load_disturb(&load);
		assert_true(load_receive(&load));
		if (is_cut)
			assert_int_equal(truncate(path, 1000000 + i), 0);
		load_alloc(&load);
		load_disturb(&load);
		if (is_cut) {
			load_expect_refusal(&load, "cut", -EIO,
					    "model-2.safetensors: ends at byte");
			model_write(llama, MM_ARRAY_SIZE(llama), 3);
			continue;
		}
		assert_true(load_receive(&load));
		assert_int_equal(load.ident.result, 0);
		assert_int_equal(load_end(&load), 0);
		store_check(&load, llama, MM_ARRAY_SIZE(llama));
		load_done(&load);
	}
}

/* After a kill at any moment core gets the end of the connection, and the next load succeeds. */
static void test_kills(void **state)
{
	unsigned int seed = (unsigned int)getpid();

	(void)state;
	print_message("seed=%u\n", seed);
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	for (int i = 0; i < 40; i++) {
		struct load load;

		load_start(&load, MODE_PLAIN);
		load_pass_model(&load, LLAMA_FILES);
		if (i % 2 && load_receive(&load))
			load_alloc(&load);
		usleep((unsigned int)rand_r(&seed) % 8000);
		kill(load.pid, SIGKILL);
		while (load_receive(&load))
			;
		load_done(&load);
	}
	for (int i = 0; i < 2; i++) {
		struct load load;

		load_whole(&load, MODE_PLAIN);
		load_done(&load);
	}
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, model_dir_remove)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ways),
		cmocka_unit_test(test_holes),
		T(test_groups),
		T(test_shards),
		T(test_identity),
		T(test_core_refuses),
		T(test_deaths),
		T(test_changing_files),
		T(test_short_store),
		T(test_disk),
		T(test_stops),
		T(test_kills),
	};

	model_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
