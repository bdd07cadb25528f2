/* SPDX-License-Identifier: Apache-2.0 */
/* A model that is asked for by its key: what load receives, and what is refused before. */
#undef NDEBUG
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/clock.h"
#include "mm/client_model.h"
#include "tests/unit/libclient/client/fixture.h"

#define PATIENCE_NS (10 * MM_NS_PER_S)

static const uint8_t digest[MM_MODEL_DIGEST_BYTES] = { 1, 2, 3 };

static int call_load_key(struct call *call)
{
	return mm_model_load_key(call->f->client, "a\0b", 3, digest, &call->f->model);
}

static int call_load_any(struct call *call)
{
	return mm_model_load_key(call->f->client, "a\0b", 3, NULL, &call->f->model);
}

static struct mm_load_key key_take(int channel)
{
	struct mm_load_key key;
	size_t n_fds, len;
	int fd;

	assert_int_equal(mm_sock_wait(channel, POLLIN, mm_deadline_ns(PATIENCE_NS)), 0);
	assert_int_equal(mm_sock_recv(channel, &key, sizeof(key), &fd, 1, &n_fds, &len), 0);
	assert_int_equal(len, sizeof(key));
	assert_int_equal(n_fds, 0);
	return key;
}

static int load_begin(struct fixture *f, struct call *load, int (*run)(struct call *))
{
	*load = (struct call){ 0 };
	call_start(load, f, run);
	peer_expect(f->peer, MM_OP_MODEL_OPEN);
	return peer_open_channel(f->peer);
}

static void load_refuse(struct fixture *f, int channel, int result)
{
	peer_load_status(channel, result, "no such key");
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_MODEL_READY,
					      .result = result,
					      .arg = { MM_REFUSED_LOAD } });
	close(channel);
}

/* The key and the end, and no file: the model is then like any other. */
static void test_attach(void **state)
{
	struct fixture *f = *state;
	struct mm_model_info info = { .size = sizeof(info) };
	struct mm_tensor tensor = { .size = sizeof(tensor) };
	struct mm_load_key key;
	unsigned int files;
	struct call load;
	uint64_t bytes;
	int channel = load_begin(f, &load, call_load_key), fd;

	key = key_take(channel);
	assert_int_equal(key.magic, MM_ABI_MAGIC);
	assert_int_equal(key.kind, MM_LOAD_KEY);
	assert_int_equal(key.flags, MM_LOAD_KEY_ATTACH | MM_LOAD_KEY_DIGEST);
	assert_int_equal(key.key_bytes, 3);
	assert_memory_equal(key.key, "a\0b", 4);
	assert_memory_equal(key.digest, digest, sizeof(digest));
	peer_take_files(channel, &files);
	assert_int_equal(files, 0);
	peer_load_status(channel, 0, "");
	close(channel);
	fd = peer_store(&bytes);
	assert_int_equal(pwrite(fd, digest, sizeof(digest), offsetof(struct mm_dir, identity)),
			 sizeof(digest));
	peer_send_store(f->peer, (const uint64_t[]){ 1 + PEER_LAYERS, 1 + PEER_LAYERS, bytes }, fd);
	peer_place_model(f->peer);
	if (call_join(&load))
		fail_msg("%s", load.error);
	assert_int_equal(mm_model_info(f->model, &info), 0);
	assert_memory_equal(info.digest, digest, sizeof(digest));
	assert_int_equal(info.load_flags, MM_LOAD_F_SHARED);
	assert_int_equal(mm_model_tensor(f->model, "layer.1", &tensor), 0);
	assert_int_equal(fixture_read(f, tensor.va), 0x12);
}

static void test_refused(void **state)
{
	struct fixture *f = *state;
	struct mm_load_key key;
	unsigned int files;
	struct call load;
	int channel = load_begin(f, &load, call_load_any);

	key = key_take(channel);
	assert_int_equal(key.flags, MM_LOAD_KEY_ATTACH);
	assert_memory_equal(key.digest, (uint8_t[32]){ 0 }, 32);
	peer_take_files(channel, &files);
	load_refuse(f, channel, -ENOENT);
	assert_int_equal(call_join(&load), -ENOENT);
	assert_string_equal(load.error, "no such key");
}

static int call_commit(struct call *call)
{
	int fd = memfd_create("made", MFD_CLOEXEC), r;

	r = mm_model_load_files(call->f->client, &fd, 1, call->opts, &call->f->model);
	close(fd);
	return r;
}

static void test_commit(void **state)
{
	static const struct mm_model_opts opts = {
		.size = sizeof(opts), .n_layers = 2, .key = "made", .key_bytes = 4
	};
	struct fixture *f = *state;
	struct call load = { .opts = &opts };
	struct mm_load_file file;
	struct mm_load_key key;
	size_t n_fds, len;
	int channel, fd;

	call_start(&load, f, call_commit);
	peer_expect(f->peer, MM_OP_MODEL_OPEN);
	channel = peer_open_channel(f->peer);
	key = key_take(channel);
	assert_int_equal(key.flags, 0);
	assert_int_equal(key.key_bytes, 4);
	assert_memory_equal(key.key, "made", 5);
	assert_int_equal(mm_sock_wait(channel, POLLIN, mm_deadline_ns(PATIENCE_NS)), 0);
	assert_int_equal(mm_sock_recv(channel, &file, sizeof(file), &fd, 1, &n_fds, &len), 0);
	assert_int_equal(n_fds, 1);
	close(fd);
	assert_string_equal(file.name, "config.json");
	load_refuse(f, channel, -EEXIST);
	assert_int_equal(call_join(&load), -EEXIST);
}

static void test_bad_keys(void **state)
{
	static const char bytes[MM_MODEL_KEY_BYTES + 1];
	static const struct mm_model_opts in_folder = { .size = sizeof(in_folder),
							.key = "x",
							.key_bytes = 1 };
	static const struct mm_model_opts no_key = { .size = sizeof(no_key),
						     .n_layers = 2,
						     .key_bytes = 1 };
	struct fixture *f = *state;
	struct mm_model *model;
	int fd = memfd_create("made", MFD_CLOEXEC);

	assert_int_equal(mm_model_load_key(f->client, bytes, 0, NULL, &model), -EINVAL);
	assert_int_equal(mm_model_load_key(f->client, NULL, 1, NULL, &model), -EINVAL);
	assert_int_equal(mm_model_load_key(f->client, bytes, sizeof(bytes), NULL, &model), -E2BIG);
	assert_non_null(strstr(mm_client_error(f->client), "key: 257 bytes, at most 256"));
	assert_int_equal(mm_model_load_files(f->client, &fd, 1, &no_key, &model), -EINVAL);
	assert_non_null(strstr(mm_client_error(f->client), "key: it has no byte"));
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, &in_folder, &model), -EINVAL);
	assert_non_null(strstr(mm_client_error(f->client), "engine made"));
	peer_absent(f->peer, MM_OP_MODEL_OPEN, 1);
	close(fd);
}

static int setup_older(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct mm_client_opts opts;
	char err[320];

	assert_non_null(f);
	f->peer = peer_start();
	f->peer->welcome.features &= ~MM_FEAT_KEY;
	opts = peer_client_opts(f->peer);
	if (mm_client_open(&opts, &f->client, err, sizeof(err)))
		fail_msg("%s", err);
	peer_await_connection(f->peer);
	assert_int_equal(f->peer->gpu.cuStreamCreate(&f->stream, CU_STREAM_NON_BLOCKING), 0);
	*state = f;
	return 0;
}

static void test_older_mmd(void **state)
{
	static const struct mm_model_opts opts = {
		.size = sizeof(opts), .n_layers = 2, .key = "made", .key_bytes = 4
	};
	struct fixture *f = *state;
	struct mm_model *model;
	int fd = memfd_create("made", MFD_CLOEXEC);

	assert_int_equal(mm_model_load_key(f->client, "x", 1, NULL, &model), -EOPNOTSUPP);
	assert_non_null(strstr(mm_client_error(f->client), "by keys"));
	assert_int_equal(mm_model_load_files(f->client, &fd, 1, &opts, &model), -EOPNOTSUPP);
	peer_absent(f->peer, MM_OP_MODEL_OPEN, 1);
	close(fd);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_attach),
		TEST(test_refused),
		TEST(test_commit),
		TEST(test_bad_keys),
		cmocka_unit_test_setup_teardown(test_older_mmd, setup_older, fixture_teardown),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
