/* SPDX-License-Identifier: Apache-2.0 */
/* load passes a tenant's key on: with what it parsed, or alone, and then it reads nothing. */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/ipc/sock.h"
#include "tests/unit/mmd/load/model.h"

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK)

static int setup(void **state)
{
	(void)state;
	model_dir_make("/tmp");
	model_write_config(LLAMA_CONFIG);
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	return 0;
}

static struct mm_load_key key_make(uint32_t flags)
{
	struct mm_load_key key = {
		.magic = MM_ABI_MAGIC, .kind = MM_LOAD_KEY, .flags = flags, .key_bytes = 3
	};

	memcpy(key.key, "a\0b", 3);
	if (flags & MM_LOAD_KEY_DIGEST)
		key.digest[31] = 7;
	return key;
}

static void key_pass(struct load *load, const struct mm_load_key *key)
{
	assert_int_equal(mm_sock_send(load->tenant, key, sizeof(*key), NULL, 0), 0);
}

/* Passes a file of the model as a memfd. */
static void sealed_pass(struct load *load, uint32_t kind, const char *name, int seals)
{
	int fd = memfd_create("m", MFD_CLOEXEC | MFD_ALLOW_SEALING), from;
	char path[128], block[4096];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", model_dir, name);
	from = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && from >= 0);
	while ((n = read(from, block, sizeof(block))) > 0)
		assert_int_equal(write(fd, block, (size_t)n), n);
	close(from);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	(void)load_pass(load, kind, name, fd);
}

static void model_pass_sealed(struct load *load, int seals_of_last)
{
	sealed_pass(load, MM_LOAD_CONFIG, "config.json", SEALS);
	sealed_pass(load, MM_LOAD_SAFETENSORS, "model-0.safetensors", SEALS);
	sealed_pass(load, MM_LOAD_SAFETENSORS, "model-1.safetensors", SEALS);
	sealed_pass(load, MM_LOAD_SAFETENSORS, "model-2.safetensors", seals_of_last);
	(void)load_pass(load, MM_LOAD_END, "", -1);
}

/* ---- committing ---- */

static void test_commit(void **state)
{
	const struct mm_load_key key = key_make(0);
	struct load load;

	(void)state;
	load_start(&load, MODE_PLAIN);
	key_pass(&load, &key);
	model_pass_sealed(&load, SEALS);
	assert_true(load_receive(&load));
	if (load.ident.op != MM_L_KEY)
		fail_msg("%s", load.ident.text);
	assert_memory_equal(&load.key, &key, sizeof(key));
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.op, MM_L_IDENT);
	load_alloc(&load);
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.op, MM_L_DONE);
	assert_int_equal(load.ident.result, 0);
	/* Once for the digest, headers included, and once for the store. */
	assert_true(load.ident.filled_bytes > 0);
	assert_true(load.ident.read_bytes > 2 * load.ident.filled_bytes);
	assert_int_equal(load_end(&load), 0);
	assert_int_equal(load.ident.filled_bytes, load.status.bytes_total);
	store_check(&load, llama, MM_ARRAY_SIZE(llama));
	load_done(&load);
}

static void test_only_sealed(void **state)
{
	const struct mm_load_key key = key_make(0);
	struct load load;

	(void)state;
	load_start(&load, MODE_PLAIN);
	load_pass_files(&load, LLAMA_FILES);
	key_pass(&load, &key);
	(void)load_pass(&load, MM_LOAD_END, "", -1);
	load_expect_refusal(&load, "files with paths", -EINVAL, "config.json: only sealed");
	load_start(&load, MODE_PLAIN);
	key_pass(&load, &key);
	model_pass_sealed(&load, F_SEAL_WRITE);
	load_expect_refusal(&load, "half sealed", -EINVAL, "model-2.safetensors: only sealed");
}

/* ---- attaching ---- */

static void attach(struct load *load, uint32_t flags)
{
	const struct mm_load_key key = key_make(MM_LOAD_KEY_ATTACH | flags);

	load_start(load, MODE_PLAIN);
	key_pass(load, &key);
	(void)load_pass(load, MM_LOAD_END, "", -1);
	assert_true(load_receive(load));
	if (load->ident.op != MM_L_KEY)
		fail_msg("%s", load->ident.text);
	assert_memory_equal(&load->key, &key, sizeof(key));
}

static void test_attach(void **state)
{
	struct load load;

	(void)state;
	attach(&load, MM_LOAD_KEY_DIGEST);
	load_answer(&load, MM_L_HAVE, 0, "");
	assert_true(load_receive(&load));
	assert_int_equal(load.ident.op, MM_L_DONE);
	assert_int_equal(load.ident.result, 0);
	assert_int_equal(load.ident.read_bytes | load.ident.filled_bytes, 0);
	assert_int_equal(load_end(&load), 0);
	assert_int_equal(load.status.result, 0);
	assert_int_equal(load.status.flags & MM_LOAD_F_SHARED, MM_LOAD_F_SHARED);
	assert_int_equal(load.status.bytes_total, 0);
	load_done(&load);
}

static void test_attach_refused(void **state)
{
	struct load load;

	(void)state;
	attach(&load, 0);
	load_answer(&load, MM_L_REFUSE, -ENOENT, "there is no such key");
	load_expect_refusal(&load, "no such key", -ENOENT, "there is no such key");
}

/* ---- nonsense ---- */

static void unknown_flag(struct load *l)
{
	const struct mm_load_key key = key_make(4);

	key_pass(l, &key);
}

static void no_byte(struct load *l)
{
	struct mm_load_key key = key_make(0);

	key.key_bytes = 0;
	memset(key.key, 0, sizeof(key.key));
	key_pass(l, &key);
}

static void many_bytes(struct load *l)
{
	struct mm_load_key key = key_make(0);

	key.key_bytes = MM_MODEL_KEY_BYTES + 1;
	key_pass(l, &key);
}

static void tail(struct load *l)
{
	struct mm_load_key key = key_make(0);

	key.key_bytes = 2;
	key_pass(l, &key);
}

static void digest_of_commit(struct load *l)
{
	const struct mm_load_key key = key_make(MM_LOAD_KEY_DIGEST);

	key_pass(l, &key);
}

static void digest_without_flag(struct load *l)
{
	struct mm_load_key key = key_make(MM_LOAD_KEY_ATTACH);

	key.digest[0] = 1;
	key_pass(l, &key);
}

static void two_keys(struct load *l)
{
	const struct mm_load_key key = key_make(0);

	key_pass(l, &key);
	key_pass(l, &key);
}

static void files_to_attach(struct load *l)
{
	const struct mm_load_key key = key_make(MM_LOAD_KEY_ATTACH);

	key_pass(l, &key);
	load_pass_model(l, LLAMA_FILES);
}

static void packs_to_attach(struct load *l)
{
	const struct mm_load_key key = key_make(MM_LOAD_KEY_ATTACH);
	const struct mm_load_pack rule = pack_rule(0, "x", (const char *const[4]){ "a", "b" });

	load_pass_rule(l, &rule);
	key_pass(l, &key);
	(void)load_pass(l, MM_LOAD_END, "", -1);
}

static void short_key(struct load *l)
{
	const struct mm_load_key key = key_make(0);

	(void)mm_sock_send(l->tenant, &key, sizeof(key) - 1, NULL, 0);
}

static void key_with_fd(struct load *l)
{
	const struct mm_load_key key = key_make(0);

	(void)mm_sock_send(l->tenant, &key, sizeof(key), &l->core, 1);
}

static const struct {
	const char *what;
	void (*act)(struct load *load);
	int want;
	const char *needle;
} nonsense[] = {
	{ "unknown flag", unknown_flag, -EINVAL, "key: unknown flags" },
	{ "no byte", no_byte, -EINVAL, "key: it has no byte" },
	{ "many bytes", many_bytes, -EINVAL, "more than a key may have" },
	{ "tail", tail, -EINVAL, "key: its tail" },
	{ "digest of a commit", digest_of_commit, -EINVAL, "yet to be committed" },
	{ "digest without flag", digest_without_flag, -EINVAL, "without its flag" },
	{ "two keys", two_keys, -EINVAL, "key: passed twice" },
	{ "files to attach", files_to_attach, -EINVAL, "files or packs" },
	{ "packs to attach", packs_to_attach, -EINVAL, "files or packs" },
	{ "short key", short_key, -EPROTO, "does not know" },
	{ "key with an fd", key_with_fd, -EPROTO, "does not know" },
};

static void test_nonsense(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(nonsense); i++) {
		struct load load;

		load_start(&load, MODE_PLAIN);
		nonsense[i].act(&load);
		load_expect_refusal(&load, nonsense[i].what, nonsense[i].want, nonsense[i].needle);
	}
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, model_dir_remove)
	const struct CMUnitTest tests[] = {
		T(test_commit),         T(test_only_sealed), T(test_attach),
		T(test_attach_refused), T(test_nonsense),
	};

	model_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
