/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of other versions: shorter and longer ones than this library's, given and filled; sizes
 * that cannot be; a longer and a shorter table of driver functions.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/base/base.h"
#include "libclient/client/internal.h"
#include "libclient/client/sized.h"

#define TAIL 24 /* bytes by which a later version of a struct is longer */

/* ---- the rule, with a struct that has grown once ---- */

struct first {
	size_t size;
	uint32_t a, b;
};

struct second {
	size_t size;
	uint32_t a, b;
	uint64_t c;
};

#define V1 MM_END_OF(struct second, b)

static void test_old_caller(void **state)
{
	struct {
		struct first theirs;
		uint64_t behind;
	} caller = { { sizeof(caller.theirs), 1, 2 }, 77 };
	struct second own = { .c = 9 };

	(void)state;
	assert_int_equal(mm_sized_read(&caller.theirs, V1, &own, sizeof(own)), 0);
	assert_true(own.a == 1 && own.b == 2 && own.c == 0);
	own = (struct second){ .a = 5, .b = 6, .c = 7 };
	mm_sized_write(&caller.theirs, &own, sizeof(own));
	assert_int_equal(caller.theirs.size, sizeof(caller.theirs));
	assert_true(caller.theirs.a == 5 && caller.theirs.b == 6 && caller.behind == 77);
}

static void test_new_caller(void **state)
{
	struct second theirs = { sizeof(theirs), 1, 2, 0 };
	struct first own = { 0 };

	(void)state;
	assert_int_equal(mm_sized_read(&theirs, V1, &own, sizeof(own)), 0);
	assert_true(own.a == 1 && own.b == 2);
	theirs.c = UINT64_C(1) << 63; /* its last byte */
	assert_int_equal(mm_sized_read(&theirs, V1, &own, sizeof(own)), -EINVAL);
	own = (struct first){ .a = 5, .b = 6 };
	mm_sized_write(&theirs, &own, sizeof(own));
	assert_int_equal(theirs.size, sizeof(theirs));
	assert_true(theirs.a == 5 && theirs.b == 6 && theirs.c == 0);
}

static void test_sizes_that_cannot_be(void **state)
{
	static const size_t sizes[] = { 0, V1 - 1, MM_SIZED_MAX + 1, SIZE_MAX };
	struct second own = { .c = 9 };

	(void)state;
	assert_int_equal(mm_sized_check(NULL, V1), -EINVAL);
	for (size_t i = 0; i < MM_ARRAY_SIZE(sizes); i++) {
		struct second theirs = { .size = sizes[i] };

		assert_int_equal(mm_sized_check(&theirs, V1), -EINVAL);
		assert_int_equal(mm_sized_read(&theirs, V1, &own, sizeof(own)), -EINVAL);
	}
	assert_true(own.c == 9);
}

/* ---- each call that fills a struct ---- */

static int fill_info(struct fixture *f, void *ret)
{
	return mm_client_info(f->client, ret);
}

static int fill_model_info(struct fixture *f, void *ret)
{
	return mm_model_info(f->model, ret);
}

static int fill_tensor(struct fixture *f, void *ret)
{
	return mm_model_tensor(f->model, "layer.1", ret);
}

/* The step stays open where the size is refused: it is ended here. */
static int fill_step_info(struct fixture *f, void *ret)
{
	int r;

	assert_int_equal(mm_step_begin(f->client), 0);
	r = mm_step_end(f->client, f->stream, ret);
	if (r)
		assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	return r;
}

/* The event stays queued where the size is refused: it is taken here. */
static int fill_event(struct fixture *f, void *ret)
{
	struct mm_event event = { .size = sizeof(event) };
	int r;

	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_BEGIN, .arg = { 1, 1000 } });
	while ((r = mm_client_next_event(f->client, ret)) == -EAGAIN)
		pause_ms(1);
	while (r && mm_client_next_event(f->client, &event) == -EAGAIN)
		pause_ms(1);
	return r;
}

/* Opened once, by the first call. Not checked: no other thread opens or frees it. */
static int fill_cold_state(struct fixture *f, void *ret) MM_NO_THREAD_SAFETY_ANALYSIS
{
	const struct mm_cold_opts opts = { .size = sizeof(opts),
					   .unit_bytes = MM_COLD_UNIT_BYTES,
					   .layers = PEER_LAYERS,
					   .entries_max = 1 };
	const struct mm_kv_opts arena = { .size = sizeof(arena),
					  .chunk_bytes = PEER_PAGE_BYTES,
					  .chunks_max = 1 };
	struct mm_swap *swap;
	struct mm_kv *kv;

	if (!f->client->cold) {
		struct mm_cold *cold;

		assert_int_equal(mm_kv_open(f->client, &arena, &kv), 0);
		assert_int_equal(mm_swap_open(f->client, PEER_PAGE_BYTES, &swap), 0);
		assert_int_equal(mm_cold_open(f->client, &opts, &cold), 0);
	}
	return mm_cold_state(f->client->cold, ret);
}

static const struct {
	const char *name;
	int (*fill)(struct fixture *f, void *ret);
	size_t v1_bytes, bytes;
} fills[] = {
	{ "mm_client_info", fill_info, MM_V1_CLIENT_INFO, sizeof(struct mm_client_info) },
	{ "mm_model_info", fill_model_info, MM_V1_MODEL_INFO, sizeof(struct mm_model_info) },
	{ "mm_tensor", fill_tensor, MM_V1_TENSOR, sizeof(struct mm_tensor) },
	{ "mm_step_info", fill_step_info, MM_V1_STEP_INFO, sizeof(struct mm_step_info) },
	{ "mm_event", fill_event, MM_V1_EVENT, sizeof(struct mm_event) },
	{ "mm_cold_state", fill_cold_state, MM_V1_COLD_STATE, sizeof(struct mm_cold_state) },
};

static void set_size(unsigned char *theirs, size_t size)
{
	memset(theirs, 0xa5, MM_SIZED_MAX);
	memcpy(theirs, &size, sizeof(size));
}

static bool bytes_are(const unsigned char *bytes, size_t n, unsigned char value)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

static void test_filled(void **state)
{
	struct fixture *f = *state;
	_Alignas(8) unsigned char theirs[MM_SIZED_MAX];

	for (size_t i = 0; i < MM_ARRAY_SIZE(fills); i++) {
		const size_t bytes = fills[i].bytes;
		size_t size;

		print_message("%s\n", fills[i].name);
		for (size_t given = fills[i].v1_bytes; given <= bytes + TAIL; given += 4) {
			set_size(theirs, given);
			assert_int_equal(fills[i].fill(f, theirs), 0);
			memcpy(&size, theirs, sizeof(size));
			assert_int_equal(size, given);
			if (given > bytes)
				assert_true(bytes_are(theirs + bytes, given - bytes, 0));
			assert_true(bytes_are(theirs + given, sizeof(theirs) - given, 0xa5));
		}
		set_size(theirs, fills[i].v1_bytes - 1);
		assert_int_equal(fills[i].fill(f, theirs), -EINVAL);
		assert_true(bytes_are(theirs + sizeof(size), sizeof(theirs) - sizeof(size), 0xa5));
		assert_non_null(strstr(mm_client_error(f->client), "sizeof"));
	}
}

/* ---- each call that is given a struct ---- */

static int give_hint(struct fixture *f, const void *theirs)
{
	return mm_client_hint(f->client, theirs);
}

static int give_turns(struct fixture *f, const void *theirs)
{
	return mm_turn_join(f->client, theirs);
}

static int give_model(struct fixture *f, const void *theirs)
{
	struct mm_model *model;

	return mm_model_load(f->client, f->peer->model_dir, theirs, &model);
}

static int give_arena(struct fixture *f, const void *theirs)
{
	struct mm_kv *kv;

	return mm_kv_open(f->client, theirs, &kv);
}

static const struct {
	const char *name;
	int (*give)(struct fixture *f, const void *theirs);
	size_t v1_bytes, bytes;
	int good; /* what a struct of zeros comes to */
} gives[] = {
	{ "mm_load_hint", give_hint, MM_V1_LOAD_HINT, sizeof(struct mm_load_hint), 0 },
	{ "mm_turn_opts", give_turns, MM_V1_TURN_OPTS, sizeof(struct mm_turn_opts), 0 },
	{ "mm_model_opts", give_model, MM_V1_MODEL_OPTS, sizeof(struct mm_model_opts), -EEXIST },
};

static void test_given(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < MM_ARRAY_SIZE(gives); i++) {
		_Alignas(8) unsigned char theirs[256] = { 0 };
		size_t size = gives[i].bytes + TAIL;

		print_message("%s\n", gives[i].name);
		memcpy(theirs, &size, sizeof(size));
		assert_int_equal(gives[i].give(f, theirs), gives[i].good);
		theirs[size - 1] = 1; /* a field of a later version */
		assert_int_equal(gives[i].give(f, theirs), -EINVAL);
		theirs[size - 1] = 0;
		size = gives[i].v1_bytes - 1;
		memcpy(theirs, &size, sizeof(size));
		assert_int_equal(gives[i].give(f, theirs), -EINVAL);
		size = gives[i].v1_bytes;
		memcpy(theirs, &size, sizeof(size));
		assert_int_equal(gives[i].give(f, theirs), gives[i].good);
	}
}

static void test_given_arena(void **state)
{
	struct {
		struct mm_kv_opts opts;
		uint8_t later[TAIL];
	} theirs = {
		.opts = { .size = sizeof(theirs), .chunk_bytes = PEER_PAGE_BYTES, .chunks_max = 1 }
	};
	struct fixture *f = *state;

	theirs.later[3] = 1;
	assert_int_equal(give_arena(f, &theirs), -EINVAL);
	theirs.later[3] = 0;
	theirs.opts.flags = 1u << 31;
	assert_int_equal(give_arena(f, &theirs), -EINVAL);
	theirs.opts.flags = 0;
	assert_int_equal(give_arena(f, &theirs), 0);
}

static void test_reserved_hint(void **state)
{
	struct mm_load_hint hint = { .size = sizeof(hint), .reserved = 1 };
	struct fixture *f = *state;

	assert_int_equal(mm_client_hint(f->client, &hint), -EINVAL);
	hint.reserved = 0;
	hint.reserved2 = 1;
	assert_int_equal(mm_client_hint(f->client, &hint), -EINVAL);
}

/* To an mmd without MM_FEAT_DEMAND the library says nothing that it would not know. */
static void test_hint_to_old_mmd(void **state)
{
	struct peer *p = peer_start();
	struct mm_client_opts opts = peer_client_opts(p);
	const struct mm_load_hint hint = { .size = sizeof(hint),
					   .running = 1,
					   .kv_chunks_queued = 4,
					   .requests_done = 3,
					   .requests_late = 2 };
	struct mm_client *client;

	(void)state;
	p->welcome.features = MM_FEAT_KNOWN & ~MM_FEAT_DEMAND;
	assert_int_equal(mm_client_open(&opts, &client, NULL, 0), 0);
	peer_await_connection(p);
	assert_int_equal(mm_client_hint(client, &hint), 0);
	assert_int_equal(p->tenant->stats.running, 1);
	assert_int_equal(p->tenant->stats.kv_chunks_queued, 0);
	assert_int_equal(p->tenant->stats.requests_done, 0);
	assert_int_equal(p->tenant->stats.requests_late, 0);
	mm_client_close(client);
	peer_expect(p, MM_OP_BYE);
	peer_stop(p);
}

/* A list has the size of its elements: those of a later version lie further apart. */
static void test_longer_packs(void **state)
{
	static const char *const members[] = { "layers.*.a", "layers.*.b" };
	static struct {
		struct mm_pack pack;
		uint64_t later;
	} packs[] = { { { "ab", members, 2, 0 }, 0 }, { { "a", members, 1, 0 }, 0 } };
	struct mm_model_opts opts = { .size = sizeof(opts),
				      .packs = &packs[0].pack,
				      .n_packs = 2,
				      .pack_size = sizeof(packs[0]) };
	struct fixture *f = *state;
	struct call load = { .opts = &opts };
	struct mm_load_pack rule[2];
	struct mm_model *model;
	int channel;

	packs[1].later = 1;
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, &opts, &model), -EINVAL);
	packs[1].later = 0;
	opts.pack_size = 0;
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, &opts, &model), -EINVAL);
	opts.pack_size = sizeof(packs[0]);
	call_start(&load, f, call_load);
	peer_expect(f->peer, MM_OP_MODEL_OPEN);
	channel = peer_open_channel(f->peer);
	peer_take_packs(channel, rule, 2);
	assert_string_equal(rule[0].name, "ab");
	assert_string_equal(rule[1].name, "a");
	assert_int_equal(rule[1].n_members, 1);
	peer_load_status(channel, -EINVAL, "no");
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_MODEL_READY,
					      .result = -EINVAL,
					      .arg = { MM_REFUSED_LOAD } });
	assert_int_equal(call_join(&load), -EINVAL);
	close(channel);
}

/* ---- the driver's table ---- */

/* A table of a later version is longer; one of an earlier version has NULL for what it lacks. */
static void test_tables(void **state)
{
	static const size_t wrong[] = { 0, MM_V1_GPU_API - 1, MM_SIZED_MAX + 1 };
	struct peer *p = peer_start();
	struct {
		struct mm_gpu_api gpu;
		void *later;
	} longer = { p->gpu, &longer };
	struct mm_client_opts opts = peer_client_opts(p);
	struct mm_client *client = NULL;

	(void)state;
	opts.gpu = &longer.gpu;
	for (size_t i = 0; i < MM_ARRAY_SIZE(wrong); i++) {
		longer.gpu.size = wrong[i];
		assert_int_equal(mm_client_open(&opts, &client, NULL, 0), -EINVAL);
	}
	longer.gpu.size = sizeof(longer);
	assert_int_equal(mm_client_open(&opts, &client, NULL, 0), 0);
	peer_await_connection(p);
	assert_int_equal(mm_client_gpu(client)->size, sizeof(struct mm_gpu_api));
	assert_ptr_equal(mm_client_gpu(client)->cuLaunchKernel, p->gpu.cuLaunchKernel);
	mm_client_close(client);
	assert_int_equal(longer.gpu.cuInit(0), 0); /* the engine's library is still open */
	peer_stop(p);
}

static void test_flags(void **state)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .flags = 1u << 31 };
	struct mm_client *client = NULL;

	(void)state;
	assert_int_equal(mm_client_open(&opts, &client, NULL, 0), -EINVAL);
}

#define CONNECTED(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
#define MODEL(fn)     cmocka_unit_test_setup_teardown(fn, fixture_setup_model, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_old_caller),
		cmocka_unit_test(test_new_caller),
		cmocka_unit_test(test_sizes_that_cannot_be),
		MODEL(test_filled),
		MODEL(test_given),
		CONNECTED(test_given_arena),
		CONNECTED(test_reserved_hint),
		cmocka_unit_test(test_hint_to_old_mmd),
		CONNECTED(test_longer_packs),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_flags),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
