/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a model, and plan changes: the content at the tensors' addresses. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/base/base.h"

static CUdeviceptr layer_va(struct fixture *f, uint32_t layer)
{
	struct mm_tensor tensor = { .size = sizeof(tensor) };
	char name[32];

	snprintf(name, sizeof(name), "layer.%u", layer);
	assert_int_equal(mm_model_tensor(f->model, name, &tensor), 0);
	assert_int_equal(tensor.layer, layer);
	return tensor.va;
}

static uint64_t tensor_bytes(struct fixture *f)
{
	uint64_t sum, bytes;
	char name[32];

	assert_non_null(mm_model_store(f->model, "embed", &sum));
	for (uint32_t i = 0; i < PEER_LAYERS; i++) {
		snprintf(name, sizeof(name), "layer.%u", i);
		assert_non_null(mm_model_store(f->model, name, &bytes));
		sum += bytes;
	}
	return sum;
}

static void test_loaded(void **state)
{
	struct fixture *f = *state;
	struct mm_model_info info = { .size = sizeof(info) };
	struct mm_tensor tensor = { .size = sizeof(tensor) };
	struct mm_model *other;
	uint64_t bytes = 0;
	const uint8_t *store;

	mm_model_info(f->model, &info);
	assert_int_equal(info.n_layers, PEER_LAYERS);
	assert_int_equal(info.n_tensors, PEER_LAYERS + 1);
	assert_int_equal(info.resident_bytes, PEER_PAGE_BYTES);
	assert_int_equal(info.layer_bytes, PEER_PAGE_BYTES);
	assert_int_equal(info.device_bytes, (PEER_LAYERS + 1) * PEER_PAGE_BYTES);
	assert_int_equal(info.tensor_bytes, tensor_bytes(f));
	assert_true(info.tensor_bytes > 0 && info.tensor_bytes <= info.device_bytes);
	assert_int_equal(info.waste_bytes, info.device_bytes - info.tensor_bytes);
	assert_int_equal(info.load_flags, MM_LOAD_F_SHARED);
	assert_int_equal(mm_model_tensor(f->model, "embed", &tensor), 0);
	assert_int_equal(tensor.layer, -1);
	assert_int_equal(tensor.rank, 2);
	assert_int_equal(tensor.shape[1], 4);
	assert_int_equal(fixture_read(f, tensor.va), 0x10);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		assert_int_equal(fixture_read(f, layer_va(f, i) + 100), 0x11 + i);
	store = mm_model_store(f->model, "layer.2", &bytes);
	assert_int_equal(bytes, PEER_PAGE_BYTES);
	assert_int_equal(store[17], 0x13);
	assert_null(mm_model_store(f->model, "layer.9", &bytes));
	assert_int_equal(mm_model_tensor(f->model, "layer.9", &tensor), -ENOENT);
	assert_non_null(strstr(mm_client_error(f->client), "layer.9"));
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, NULL, &other), -EEXIST);
}

/* By index every tensor comes once, in the order of names, and is the one of that name. */
static void test_walk(void **state)
{
	struct fixture *f = *state;
	struct mm_tensor walked = { .size = sizeof(walked) }, named = { .size = sizeof(named) };
	char name[MM_TENSOR_NAME_BYTES], before[MM_TENSOR_NAME_BYTES] = "";
	struct mm_model_info info = { .size = sizeof(info) };
	uint32_t i = 0;

	assert_int_equal(mm_model_info(f->model, &info), 0);
	while (!mm_model_tensor_at(f->model, i, name, sizeof(name), &walked)) {
		assert_true(strcmp(before, name) < 0);
		strcpy(before, name);
		assert_int_equal(mm_model_tensor(f->model, name, &named), 0);
		assert_memory_equal(&walked, &named, sizeof(named));
		i++;
	}
	assert_int_equal(i, info.n_tensors);
	assert_int_equal(mm_model_tensor_at(f->model, UINT32_MAX, name, sizeof(name), &walked),
			 -ENOENT);
	assert_string_equal(name, before);
	assert_int_equal(mm_model_tensor_at(f->model, 0, name, sizeof("embed"), &walked), 0);
	assert_int_equal(mm_model_tensor_at(f->model, 0, name, sizeof("embed") - 1, &walked),
			 -EINVAL);
	walked.size = 3;
	assert_int_equal(mm_model_tensor_at(f->model, 0, name, sizeof(name), &walked), -EINVAL);
}

static void change_plan(struct fixture *f, uint64_t epoch, uint32_t alpha, uint32_t m)
{
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = epoch, .arg = { alpha, m } });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).epoch, epoch);
	assert_int_equal(fixture_event(f, MM_EVENT_PLAN_CHANGED).count, alpha);
}

static void plan_prepare(struct fixture *f, uint64_t epoch)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = epoch });
	assert_int_equal(peer_expect(f->peer, MM_OP_PARKED).epoch, epoch);
}

static void test_compute_weights(void **state)
{
	struct fixture *f = *state;
	const struct mm_tenant_stats *stats = &f->peer->tenant->stats;
	uint16_t weights[MM_LAYERS_MAX] = { 0 };
	struct mm_model_info info = { .size = sizeof(info) };

	mm_model_info(f->model, &info);
	for (uint32_t i = 0; i < info.n_layers; i++)
		weights[i] = (uint16_t)(7 + i);
	assert_int_equal(mm_model_compute(f->model, weights, info.n_layers - 1), -EINVAL);
	assert_int_equal(stats->compute[0], 0);
	assert_int_equal(mm_model_compute(f->model, weights, info.n_layers), 0);
	assert_memory_equal(stats->compute, weights, info.n_layers * sizeof(*weights));
	assert_int_equal(stats->compute[info.n_layers], 0);
	weights[1] = 0;
	assert_int_equal(mm_model_compute(f->model, weights, info.n_layers), -EINVAL);
	assert_non_null(strstr(mm_client_error(f->client), "layer 1"));
	assert_int_equal(stats->compute[1], 8);
}

static void test_plan_changes(void **state)
{
	struct fixture *f = *state;
	CUdeviceptr va[PEER_LAYERS];
	struct mm_client_info info = { .size = sizeof(info) };
	const uint32_t fresh = 9;
	size_t free_before, free_after, total;

	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		va[i] = layer_va(f, i);
	/* Layers 1 and 3 share page 2 from now on; page 4, which was layer 3's, is released. */
	plan_prepare(f, 2);
	peer_map(f->peer, 4, 3);
	peer_drop_page(f->peer, 4);
	f->peer->gpu.cuMemGetInfo(&free_before, &total);
	change_plan(f, 2, 1, 2);
	f->peer->gpu.cuMemGetInfo(&free_after, &total);
	assert_int_equal(free_after - free_before, PEER_PAGE_BYTES);
	assert_int_equal(mm_client_info(f->client, &info), 0);
	assert_int_equal(info.layers_remapped, 1);
	assert_int_equal(info.layers_cycling, 2);
	assert_int_equal(info.plan_epoch, 2);
	assert_int_equal(info.plan_changes, 1);
	peer_fill(f->peer, 2, 0xcc); /* as a streamed layer would */
	assert_int_equal(fixture_read(f, va[1]), 0xcc);
	assert_int_equal(fixture_read(f, va[3]), 0xcc);
	assert_int_equal(fixture_read(f, va[0]), 0x11);

	/* Layer 3 gets a page of its own again, one that is new to the client. */
	peer_fill(f->peer, fresh, 0x14);
	plan_prepare(f, 3);
	peer_pages(f->peer, &fresh, 1);
	peer_map(f->peer, 4, fresh + 1);
	change_plan(f, 3, 0, 0);
	assert_int_equal(fixture_read(f, va[3]), 0x14);
	assert_int_equal(fixture_read(f, va[1]), 0xcc);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		assert_true(layer_va(f, i) == va[i]);
}

/* A failed mapping is reported, and no step begins until mmd sends another plan. */
static void test_switch_fails(void **state)
{
	struct fixture *f = *state;
	struct call begin = { 0 };
	const uint32_t late = 10;
	struct mm_msg msg;

	plan_prepare(f, 2);
	peer_map(f->peer, 1, late + 1);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2 });
	msg = peer_expect(f->peer, MM_OP_COMMITTED);
	assert_int_equal(msg.result, -ENOENT);
	call_start(&begin, f, call_step_begin);
	peer_pages(f->peer, &late, 1);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2 });
	msg = peer_expect(f->peer, MM_OP_COMMITTED);
	assert_int_equal(msg.result, 0);
	assert_int_equal(call_join(&begin), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

/* ---- loads that fail ---- */

static void model_refuse(struct fixture *f, int result, enum mm_refusal why)
{
	peer_event(
		f->peer,
		&(struct mm_msg){ .opcode = MM_EV_MODEL_READY, .result = result, .arg = { why } });
}

static int start_load(struct fixture *f, struct call *load)
{
	*load = (struct call){ 0 };
	call_start(load, f, call_load);
	peer_expect(f->peer, MM_OP_MODEL_OPEN);
	return peer_open_channel(f->peer);
}

static void send_directory(struct fixture *f, int channel)
{
	unsigned int files;
	uint64_t bytes;
	int fd;

	peer_take_files(channel, &files);
	peer_load_status(channel, 0, "");
	fd = peer_store(&bytes);
	peer_send_store(f->peer, (const uint64_t[]){ 1 + PEER_LAYERS, 1 + PEER_LAYERS, bytes }, fd);
}

static void finish_load(struct fixture *f, int channel, struct call *load)
{
	send_directory(f, channel);
	peer_place_model(f->peer);
	if (call_join(load))
		fail_msg("%s", load->error);
	close(channel);
}

static int call_send_ready(struct call *call)
{
	pause_ms(20);
	peer_event(call->f->peer, &(struct mm_msg){ .opcode = MM_EV_MODEL_READY });
	return 0;
}

/*
 * Steps may begin once the first plan is in force, so that the model can get ready while a thread
 * with a step open counts its layers. The thread sanitizer sees it if nothing orders the two:
 * another thread sends the event, and this one releases no lock after it has counted.
 */
static void test_step_while_model_gets_ready(void **state)
{
	struct fixture *f = *state;
	struct call load, ready = { 0 };
	int channel = start_load(f, &load);

	send_directory(f, channel);
	peer_map_model(f->peer);
	assert_int_equal(mm_step_begin(f->client), 0);
	call_start(&ready, f, call_send_ready);
	assert_false(mm_step_wants_times(f->client)); /* no layer waits */
	assert_int_equal(call_join(&ready), 0);
	if (call_join(&load))
		fail_msg("%s", load.error);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	close(channel);
}

static void test_refused_by_load(void **state)
{
	struct fixture *f = *state;
	unsigned int files;
	struct call load;
	int channel = start_load(f, &load);

	peer_take_files(channel, &files);
	peer_load_status(channel, -EBADMSG, "a.safetensors: header: too long");
	model_refuse(f, -EBADMSG, MM_REFUSED_LOAD);
	assert_int_equal(call_join(&load), -EBADMSG);
	assert_string_equal(load.error, "a.safetensors: header: too long");
	close(channel);
	/* Another model may be loaded. */
	channel = start_load(f, &load);
	finish_load(f, channel, &load);
}

static void test_refused_by_quota(void **state)
{
	struct fixture *f = *state;
	unsigned int files;
	struct call load;
	uint64_t bytes;
	int channel = start_load(f, &load), fd;

	/* The refusal comes after the directory, so that addresses must be given back. */
	peer_take_files(channel, &files);
	peer_load_status(channel, 0, "");
	close(channel);
	fd = peer_store(&bytes);
	peer_send_store(f->peer, (const uint64_t[]){ 1 + PEER_LAYERS, 1 + PEER_LAYERS, bytes }, fd);
	model_refuse(f, -EDQUOT, MM_REFUSED_QUOTA);
	assert_int_equal(call_join(&load), -EDQUOT);
	assert_non_null(strstr(load.error, "account"));
	channel = start_load(f, &load);
	finish_load(f, channel, &load);
}

static void test_load_dies(void **state)
{
	struct fixture *f = *state;
	struct call load;
	int channel = start_load(f, &load);

	/* mmd starts another worker: the files are passed again. */
	close(channel);
	channel = peer_open_channel(f->peer);
	finish_load(f, channel, &load);
}

/* load has filled the store, and its last status did not arrive: what mmd says counts. */
static void test_load_dies_when_done(void **state)
{
	struct fixture *f = *state;
	unsigned int files;
	struct call load;
	uint64_t bytes;
	int channel = start_load(f, &load), fd;

	peer_take_files(channel, &files);
	close(channel);
	fd = peer_store(&bytes);
	peer_send_store(f->peer, (const uint64_t[]){ 1 + PEER_LAYERS, 1 + PEER_LAYERS, bytes }, fd);
	peer_place_model(f->peer);
	if (call_join(&load))
		fail_msg("%s", load.error);
}

/* mmd's refusal -EAGAIN means that the files are not at fault, and the library tries again. */
static void test_load_dies_and_is_refused(void **state)
{
	struct fixture *f = *state;
	struct call load;
	int channel = start_load(f, &load);

	close(channel);
	model_refuse(f, -EAGAIN, MM_REFUSED_LOAD);
	peer_expect(f->peer, MM_OP_MODEL_OPEN);
	channel = peer_open_channel(f->peer);
	finish_load(f, channel, &load);
}

static void test_load_dies_for_good(void **state)
{
	struct fixture *f = *state;
	struct call load;
	int channel = start_load(f, &load);

	close(channel);
	model_refuse(f, -EIO, MM_REFUSED_LOAD);
	assert_int_equal(call_join(&load), -EIO);
	assert_non_null(strstr(load.error, "could not be loaded"));
}

static void test_mmd_dies_during_load(void **state)
{
	struct fixture *f = *state;
	struct call load;
	int channel = start_load(f, &load);

	peer_disconnect(f->peer);
	assert_int_equal(call_join(&load), -ECONNRESET);
	close(channel);
}

static void test_load_lies(void **state)
{
	struct fixture *f = *state;
	struct call load;
	int channel = start_load(f, &load);

	assert_int_equal(write(channel, "nonsense", 8), 8);
	assert_int_equal(call_join(&load), -EPROTO);
	close(channel);
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, NULL, &f->model), -EEXIST);
}

/* load receives the packing list after the files, as it was given. */
static void test_packs(void **state)
{
	static const char *const members[] = { "layers.*.a", "layers.*.b" };
	static const struct mm_pack packs[] = {
		{ "layers.*.ab", members, 2, MM_PACK_OPTIONAL },
		{ NULL, members, 1, MM_PACK_TRANSPOSE },
	};
	static const struct mm_model_opts opts = { .size = sizeof(opts),
						   .packs = packs,
						   .n_packs = MM_ARRAY_SIZE(packs),
						   .pack_size = sizeof(packs[0]) };
	struct fixture *f = *state;
	struct call load = { .opts = &opts };
	struct mm_load_pack rule[2];
	int channel;

	call_start(&load, f, call_load);
	peer_expect(f->peer, MM_OP_MODEL_OPEN);
	channel = peer_open_channel(f->peer);
	peer_take_packs(channel, rule, 2);
	assert_int_equal(rule[0].magic, MM_ABI_MAGIC);
	assert_int_equal(rule[0].kind, MM_LOAD_PACK);
	assert_int_equal(rule[0].flags, MM_PACK_OPTIONAL);
	assert_int_equal(rule[0].n_members, 2);
	assert_string_equal(rule[0].name, "layers.*.ab");
	assert_string_equal(rule[0].member[0], members[0]);
	assert_string_equal(rule[0].member[1], members[1]);
	assert_string_equal(rule[0].member[2], "");
	assert_int_equal(rule[1].flags, MM_PACK_TRANSPOSE);
	assert_int_equal(rule[1].n_members, 1);
	assert_string_equal(rule[1].name, "");
	peer_load_status(channel, -EINVAL, "pack layers.*.ab: no");
	model_refuse(f, -EINVAL, MM_REFUSED_LOAD);
	assert_int_equal(call_join(&load), -EINVAL);
	assert_string_equal(load.error, "pack layers.*.ab: no");
	close(channel);
}

static void test_bad_packs(void **state)
{
	static const char long_name[] =
		"0123456789012345678901234567890123456789012345678901234567890123456789"
		"01234567890123456789012345678901234567890123456789";
	static const char *const good[] = { "a", "b" }, *const hole[] = { "a", NULL };
	static const char *const empty[] = { "a", "" }, *const endless[] = { "a", long_name };
	static const struct {
		struct mm_pack pack;
		const char *needle;
	} cases[] = {
		{ { "x", good, 0, 0 }, "0 members" },
		{ { "x", good, MM_PACK_MEMBERS_MAX + 1, 0 }, "17 members" },
		{ { "", good, 2, 0 }, "without a name" },
		{ { "x", hole, 2, 0 }, "without a name" },
		{ { "x", empty, 2, 0 }, "without a name" },
		{ { "x", endless, 2, 0 }, "too long" },
		{ { long_name, good, 2, 0 }, "too long" },
	};
	struct fixture *f = *state;
	struct mm_model_opts opts = { .size = sizeof(opts),
				      .n_packs = 1,
				      .pack_size = sizeof(struct mm_pack) };
	struct mm_model *model;

	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		opts.packs = &cases[i].pack;
		assert_int_equal(mm_model_load(f->client, f->peer->model_dir, &opts, &model),
				 -EINVAL);
		if (!strstr(mm_client_error(f->client), cases[i].needle))
			fail_msg("%s", mm_client_error(f->client));
	}
	opts.pack_size--;
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, &opts, &model), -EINVAL);
	opts.pack_size++;
	opts.packs = NULL;
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, &opts, &model), -EINVAL);
	opts.packs = &cases[0].pack;
	opts.n_packs = MM_LOAD_PACKS_MAX + 1;
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, &opts, &model), -E2BIG);
	opts.size = offsetof(struct mm_model_opts, n_layers) - 1; /* shorter than version 1 */
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, &opts, &model), -EINVAL);
	peer_absent(f->peer, MM_OP_MODEL_OPEN, 1);
}

static void test_bad_directories(void **state)
{
	struct fixture *f = *state;
	struct mm_model *model;
	char path[128];

	assert_int_equal(mm_model_load(f->client, "/nonexistent/model", NULL, &model), -ENOENT);
	assert_non_null(strstr(mm_client_error(f->client), "/nonexistent/model"));
	assert_int_equal(mm_model_load(f->client, f->peer->dir, NULL, &model), -ENOENT);
	assert_non_null(strstr(mm_client_error(f->client), "config.json"));

	snprintf(path, sizeof(path), "%s/z.safetensors", f->peer->model_dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, NULL, &model), -EBADMSG);
	assert_non_null(strstr(mm_client_error(f->client), "z.safetensors: not a regular file"));
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/a.safetensors", f->peer->model_dir);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/b.safetensors", f->peer->model_dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, NULL, &model), -ENOENT);
	assert_non_null(strstr(mm_client_error(f->client), "no *.safetensors"));
	peer_absent(f->peer, MM_OP_MODEL_OPEN, 1);
}

static void write_index(struct fixture *f, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/model.safetensors.index.json", f->peer->model_dir);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* With an index, it and the files that it names are passed, and no others. */
static void test_shards(void **state)
{
	static const char *const want[] = { "config.json", "model.safetensors.index.json",
					    "b.safetensors" };
	static const uint32_t kinds[] = { MM_LOAD_CONFIG, MM_LOAD_INDEX, MM_LOAD_SAFETENSORS };
	struct fixture *f = *state;
	struct mm_load_file file;
	struct mm_model *model;
	struct call load;
	int channel;

	write_index(f, "{\"weight_map\":{\"x\":\"nowhere.safetensors\"}}");
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, NULL, &model), -ENOENT);
	assert_non_null(strstr(mm_client_error(f->client), "nowhere.safetensors: a shard"));
	write_index(f, "{\"weight_map\":{\"x\":\"../b.safetensors\"}}");
	assert_int_equal(mm_model_load(f->client, f->peer->model_dir, NULL, &model), -EBADMSG);
	assert_non_null(strstr(mm_client_error(f->client), "index.json: tensor x"));
	peer_absent(f->peer, MM_OP_MODEL_OPEN, 1);

	write_index(f, "{\"weight_map\":{\"x\":\"b.safetensors\"}}");
	channel = start_load(f, &load);
	for (size_t i = 0; i < MM_ARRAY_SIZE(want); i++) {
		peer_take_file(channel, &file);
		assert_int_equal(file.kind, kinds[i]);
		assert_string_equal(file.name, want[i]);
	}
	peer_take_file(channel, &file);
	assert_int_equal(file.kind, MM_LOAD_END);
	peer_load_status(channel, -EBADMSG, "no");
	model_refuse(f, -EBADMSG, MM_REFUSED_LOAD);
	assert_int_equal(call_join(&load), -EBADMSG);
	close(channel);
}

#define TEST(fn)  cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
#define MODEL(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_model, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MODEL(test_loaded),
		MODEL(test_walk),
		MODEL(test_compute_weights),
		MODEL(test_plan_changes),
		MODEL(test_switch_fails),
		TEST(test_step_while_model_gets_ready),
		TEST(test_refused_by_load),
		TEST(test_refused_by_quota),
		TEST(test_load_dies),
		TEST(test_load_dies_when_done),
		TEST(test_load_dies_and_is_refused),
		TEST(test_load_dies_for_good),
		TEST(test_mmd_dies_during_load),
		TEST(test_load_lies),
		TEST(test_packs),
		TEST(test_bad_packs),
		TEST(test_shards),
		TEST(test_bad_directories),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
