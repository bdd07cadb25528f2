/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of load, and the rights that its sandbox leaves. */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <numaif.h>

#include "mmd/common/filter.h"
#include "mmd/common/host.h"
#include "libclient/model/layout.h"
#include "mmd/load/memory.h"
#include "mmd/load/sandbox.h"
#include "libclient/model/sha256.h"

/* FIPS 180-4 examples. */
static const struct {
	const char *text;
	size_t repeat;
	const char *digest;
} vectors[] = {
	{ "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
	{ "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
	{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
	  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	{ "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
	  "lmnopqrsmnopqrstnopqrstu",
	  1, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
	{ "a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
};

static void test_sha256(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		struct mm_sha256 sha;
		uint8_t digest[MM_SHA256_BYTES];
		char hex[2 * MM_SHA256_BYTES + 1];

		mm_sha256_init(&sha);
		for (size_t r = 0; r < vectors[i].repeat; r++)
			mm_sha256_update(&sha, vectors[i].text, strlen(vectors[i].text));
		mm_sha256_final(&sha, digest);
		for (size_t b = 0; b < sizeof(digest); b++)
			snprintf(hex + 2 * b, 3, "%02x", digest[b]);
		assert_string_equal(hex, vectors[i].digest);
	}
}

static const struct {
	const char *name;
	uint32_t rank, group;
} groups[] = {
	{ "model.layers.0.q.weight", 2, 1 },
	{ "model.layers.17.mlp.up.weight", 2, 18 },
	{ "layers.3.w", 3, 4 },
	{ "transformer.h.5.attn.weight", 2, 6 },
	{ "h.5.attn.weight", 2, 6 },
	{ "model.layers.0.norm.weight", 1, 0 },
	{ "model.layers.0.scale", 0, 0 },
	{ "model.layers.2.self_attn.q_proj.bias", 1, 0 },
	{ "model.decoder.layers.11.fc1.weight", 2, 12 },
	{ "model.decoder.layers.11.fc1.bias", 1, 0 },
	{ "model.decoder.layers.11.final_layer_norm.weight", 1, 0 },
	{ "model.decoder.final_layer_norm.weight", 1, 0 },
	{ "model.decoder.embed_positions.weight", 2, 0 },
	{ "model.decoder.project_in.weight", 2, 0 },
	{ "model.embed_tokens.weight", 2, 0 },
	{ "lm_head.weight", 2, 0 },
	{ "model.layers.x.q", 2, 0 },
	{ "model.layers..q", 2, 0 },
	{ "model.layers.4", 2, 0 },
	{ "model.layers.04.q", 2, 0 },
	{ "model.layers.12345678901.q", 2, 0 },
	{ "model.sublayers.4.q", 2, 0 },
	{ "path.4.q", 2, 0 },
	{ "layers.x.h.2.q", 2, 3 },
	{ "layers.1.experts.h.7.w", 2, 2 },
};

static void test_groups(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (mm_layout_group(groups[i].name, groups[i].rank) != groups[i].group)
			fail_msg("%s", groups[i].name);
}

static void test_memory(void **state)
{
	const uint64_t bytes = UINT64_C(150) << 20; /* several threads' worth */
	int fd = memfd_create("store", MFD_CLOEXEC);
	struct mm_why why;
	struct mm_memory_map map;
	unsigned char resident;
	struct stat st;

	(void)state;
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(mm_memory_map(fd, bytes, -1, &map, &why), 0);
	/* First a part whose neighbouring pages stay unallocated. */
	assert_int_equal(mm_memory_populate(&map, 4096 + 1, 4096, &why), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_blocks * 512, 2 * 4096);
	assert_int_equal(mm_memory_populate(&map, 0, bytes, &why), 0);
	for (uint64_t at = 0; at < bytes; at += UINT64_C(1) << 20) {
		assert_int_equal(mincore((char *)map.base + at, 4096, &resident), 0);
		assert_int_equal(resident & 1, 1);
	}
	mm_memory_unmap(&map);
	assert_int_equal(mm_memory_map(fd, bytes + 1, -1, &map, &why), -EPROTO);
	close(fd);
}

/* Checks that every page of a store for @node is on that node. */
static void check_node(int node)
{
	const uint64_t bytes = UINT64_C(4) << 20;
	int fd = memfd_create("store", MFD_CLOEXEC);
	struct mm_memory_map map;
	struct mm_why why;

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(mm_memory_map(fd, bytes, node, &map, &why), 0);
	assert_int_equal(mm_memory_populate(&map, 0, bytes, &why), 0);
	for (uint64_t at = 0; at < bytes; at += 4096) {
		int got = -1;

		assert_int_equal(get_mempolicy(&got, NULL, 0, (char *)map.base + at,
					       MPOL_F_NODE | MPOL_F_ADDR),
				 0);
		assert_int_equal(got, node);
	}
	mm_memory_unmap(&map);
	close(fd);
}

static void test_nodes(void **state)
{
	int fd = memfd_create("store", MFD_CLOEXEC), checked = 0;
	struct mm_memory_map map;
	struct mm_why why;

	(void)state;
	for (int node = 0; node < MM_HOST_NODES_MAX; node++) {
		if (!mm_host_node_usable(node))
			continue;
		check_node(node);
		checked++;
	}
	if (!checked)
		skip(); /* there is no NUMA, or a container's filter forbids to query it */
	if (checked < 2)
		print_message("%d NUMA node here: that pages go to the asked one of several "
			      "is not shown\n",
			      checked);
	/* A node that does not exist is an error that names it. */
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(mm_memory_map(fd, 4096, MM_HOST_NODES_MAX - 1, &map, &why), -EINVAL);
	assert_non_null(strstr(why.text, "1023"));
	close(fd);
}

static void *thread_end(void *arg)
{
	return arg;
}

/* Bit i of the result: escape i was possible, or a needed call was not. */
static int try_needed(void)
{
	pthread_t thread;
	int bad = 0;

	if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EPERM)
		bad |= 1;
	if (pthread_create(&thread, NULL, thread_end, NULL) != 0 || pthread_join(thread, NULL) != 0)
		bad |= 2;
	return bad;
}

static int try_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static int try_fork(void)
{
	return fork();
}

static int try_exec(void)
{
	return execl("/bin/true", "true", (char *)NULL);
}

/* Makes one try in a child. Return: its wait status. */
static int sandbox_run(int (*try)(void))
{
	struct mm_why why;
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		if (mm_sandbox_close(&why) < 0)
			_exit(128);
		_exit(try());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void test_sandbox(void **state)
{
	int (*const escapes[])(void) = { try_socket, try_fork, try_exec };

	(void)state;
	if (MM_SANITIZED)
		skip(); /* filter.h: no filter in sanitizer builds */
	assert_int_equal(sandbox_run(try_needed), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(escapes); i++) {
		int status = sandbox_run(escapes[i]);

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSYS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sha256),  cmocka_unit_test(test_groups),
		cmocka_unit_test(test_memory),  cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_sandbox),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
