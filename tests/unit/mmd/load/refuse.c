/* SPDX-License-Identifier: Apache-2.0 */
/* load refuses models, descriptors, and tenants that do not keep to the protocol. */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/clock.h"
#include "tests/unit/mmd/load/model.h"

static int setup(void **state)
{
	(void)state;
	model_dir_make("/tmp");
	model_write_config(LLAMA_CONFIG);
	return 0;
}

/* One thing wrong with the model each. */
static const struct {
	const char *what;
	const char *config;
	struct tensor extra;
	int want;
	const char *needle;
} models[] = {
	{ "config is no JSON", "{", { 0 }, -EBADMSG, "config.json" },
	{ "config is an array", "[]", { 0 }, -EBADMSG, "object" },
	{ "no layers", "{}", { 0 }, -EBADMSG, "num_hidden_layers" },
	{ "layers are a string",
	  "{\"num_hidden_layers\":\"3\"}",
	  { 0 },
	  -EBADMSG,
	  "num_hidden_layers" },
	{ "zero layers", "{\"num_hidden_layers\":0}", { 0 }, -EBADMSG, "num_hidden_layers" },
	{ "too many layers", "{\"num_hidden_layers\":1024}", { 0 }, -ENOTSUP, "1024" },
	{ "model_type is a number",
	  "{\"num_hidden_layers\":3,\"model_type\":7}",
	  { 0 },
	  -EBADMSG,
	  "model_type" },
	{ "architectures hold a number",
	  "{\"num_hidden_layers\":3,\"architectures\":[7]}",
	  { 0 },
	  -EBADMSG,
	  "architectures[0]" },
	{ "duplicate key",
	  "{\"num_hidden_layers\":3,\"num_hidden_layers\":3}",
	  { 0 },
	  -EBADMSG,
	  "duplicate" },
	{ "more layers promised", "{\"num_hidden_layers\":4}", { 0 }, -EBADMSG, "layer 3" },
	{ "fewer layers promised", "{\"num_hidden_layers\":2}", { 0 }, -EBADMSG, "layer 2" },
	{ "a layer beyond", LLAMA_CONFIG, { "h.3.w", "F32", 2, { 2, 2 }, 1 }, -EBADMSG, "layer 3" },
	{ "two stacks",
	  LLAMA_CONFIG,
	  { "encoder.layers.0.w", "F32", 2, { 2, 2 }, 1 },
	  -ENOTSUP,
	  "two stacks" },
	{ "a tensor twice", LLAMA_CONFIG, { "scalar", "F32", 0, { 0 }, 1 }, -EBADMSG, "scalar" },
};

static void test_bad_models(void **state)
{
	struct tensor tensors[MM_ARRAY_SIZE(llama) + 1];

	(void)state;
	memcpy(tensors, llama, sizeof(llama));
	for (size_t i = 0; i < MM_ARRAY_SIZE(models); i++) {
		size_t n = MM_ARRAY_SIZE(llama) + (models[i].extra.name != NULL);
		struct load load;

		tensors[MM_ARRAY_SIZE(llama)] = models[i].extra;
		if (i == 0 || models[i].extra.name)
			model_write(tensors, n, 0);
		model_write_config(models[i].config);
		load_start(&load, MODE_PLAIN);
		load_pass_model(&load, LLAMA_FILES);
		load_expect_refusal(&load, models[i].what, models[i].want, models[i].needle);
	}
}

/* ---- fds that are not files to read ---- */

static int open_pipe(void)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	close(fds[1]);
	return fds[0];
}

static int open_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int open_zero(void)
{
	return open("/dev/zero", O_RDONLY | O_CLOEXEC);
}

static int open_directory(void)
{
	return open("/", O_RDONLY | O_CLOEXEC);
}

static int open_proc(void)
{
	return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
}

static int open_sys(void)
{
	return open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
}

static int open_model(int flags)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/model-0.safetensors", model_dir);
	return open(path, flags | O_CLOEXEC);
}

static int open_write_only(void)
{
	return open_model(O_WRONLY);
}

static int open_path_only(void)
{
	return open_model(O_PATH);
}

static int open_short(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);

	assert_int_equal(write(fd, "abc", 3), 3);
	return fd;
}

static const struct {
	const char *what;
	int (*open)(void);
	int want;
	const char *needle;
} fds[] = {
	{ "pipe", open_pipe, -EPERM, "regular file" },
	{ "socket", open_socket, -EPERM, "regular file" },
	{ "device", open_zero, -EPERM, "regular file" },
	{ "directory", open_directory, -EPERM, "regular file" },
	{ "proc", open_proc, -EPERM, "type proc" },
	{ "sysfs", open_sys, -EPERM, "type sysfs" },
	{ "write-only", open_write_only, -EACCES, "opened for reading" },
	{ "path only", open_path_only, -EACCES, "opened for reading" },
	{ "short", open_short, -EBADMSG, "m.safetensors: the file has 3 bytes" },
};

static void pass_config(struct load *load)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/config.json", model_dir);
	(void)load_pass(load, MM_LOAD_CONFIG, "config.json", open(path, O_RDONLY | O_CLOEXEC));
}

static void test_bad_fds(void **state)
{
	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(fds); i++) {
		int fd = fds[i].open();
		struct load load;

		if (fd < 0)
			continue; /* this machine has no such file */
		load_start(&load, MODE_PLAIN);
		pass_config(&load);
		(void)load_pass(&load, MM_LOAD_SAFETENSORS, "m.safetensors", fd);
		(void)load_pass(&load, MM_LOAD_END, "", -1);
		load_expect_refusal(&load, fds[i].what, fds[i].want, fds[i].needle);
	}
}

/* ---- a tenant that breaks the protocol ---- */

static void no_config(struct load *l)
{
	(void)load_pass(l, MM_LOAD_SAFETENSORS, "m", open_model(O_RDONLY));
	(void)load_pass(l, MM_LOAD_END, "", -1);
}

static void no_tensors(struct load *l)
{
	pass_config(l);
	(void)load_pass(l, MM_LOAD_END, "", -1);
}

static void two_configs(struct load *l)
{
	pass_config(l);
	(void)load_pass(l, MM_LOAD_CONFIG, "other.json", open_model(O_RDONLY));
	(void)load_pass(l, MM_LOAD_SAFETENSORS, "m", open_model(O_RDONLY));
	(void)load_pass(l, MM_LOAD_END, "", -1);
}

static void same_name(struct load *l)
{
	pass_config(l);
	(void)load_pass(l, MM_LOAD_SAFETENSORS, "config.json", open_model(O_RDONLY));
}

static void slash_in_name(struct load *l)
{
	(void)load_pass(l, MM_LOAD_CONFIG, "../config.json", open_model(O_RDONLY));
}

static void no_name(struct load *l)
{
	(void)load_pass(l, MM_LOAD_CONFIG, "", open_model(O_RDONLY));
}

static void endless_name(struct load *l)
{
	char name[MM_FILE_NAME_BYTES + 1];

	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	(void)load_pass(l, MM_LOAD_CONFIG, name, open_model(O_RDONLY));
}

static void no_fd(struct load *l)
{
	(void)load_pass(l, MM_LOAD_CONFIG, "config.json", -1);
}

static void fd_with_end(struct load *l)
{
	pass_config(l);
	(void)load_pass(l, MM_LOAD_END, "", open_model(O_RDONLY));
}

static void unknown_kind(struct load *l)
{
	(void)load_pass(l, 9, "x", open_model(O_RDONLY));
}

static void short_message(struct load *l)
{
	(void)mm_sock_send(l->tenant, "junk", 4, NULL, 0);
}

static void long_message(struct load *l)
{
	char junk[4096] = { 0 };

	(void)mm_sock_send(l->tenant, junk, sizeof(junk), NULL, 0);
}

static void two_fds(struct load *l)
{
	const struct mm_load_file msg = { .magic = MM_ABI_MAGIC,
					  .kind = MM_LOAD_CONFIG,
					  .name = "config.json" };
	const int both[2] = { l->tenant, l->core };

	(void)mm_sock_send(l->tenant, &msg, sizeof(msg), both, 2);
}

static void too_many_files(struct load *l)
{
	for (int i = 0; i <= MM_LOAD_FILES_MAX; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		while (load_pass(l, MM_LOAD_SAFETENSORS, name, open_model(O_RDONLY)) == -EAGAIN)
			usleep(1000);
	}
}

static const struct {
	const char *what;
	void (*act)(struct load *load);
	int want;
	const char *needle;
} tenants[] = {
	{ "no config", no_config, -EBADMSG, "no config.json" },
	{ "no tensors", no_tensors, -EBADMSG, "no .safetensors" },
	{ "two configs", two_configs, -EBADMSG, "two config" },
	{ "same name", same_name, -EEXIST, "twice" },
	{ "slash in name", slash_in_name, -EPROTO, "no /" },
	{ "no name", no_name, -EPROTO, "without a name" },
	{ "endless name", endless_name, -EPROTO, "without a name" },
	{ "no fd", no_fd, -EPROTO, "does not know" },
	{ "fd with end", fd_with_end, -EPROTO, "does not know" },
	{ "unknown kind", unknown_kind, -EPROTO, "does not know" },
	{ "short message", short_message, -EPROTO, "does not know" },
	{ "long message", long_message, -EMSGSIZE, "channel" },
	{ "two fds", two_fds, -EMFILE, "more than one" },
	{ "257 files", too_many_files, -E2BIG, "256 files" },
};

static void test_bad_tenants(void **state)
{
	(void)state;
	model_write(llama, MM_ARRAY_SIZE(llama), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(tenants); i++) {
		struct load load;

		load_start(&load, MODE_PLAIN);
		tenants[i].act(&load);
		load_expect_refusal(&load, tenants[i].what, tenants[i].want, tenants[i].needle);
	}
}

static void test_silent_tenant(void **state)
{
	struct load load;
	uint64_t start_ns = mm_now_ns();

	(void)state;
	load_start(&load, MODE_PLAIN);
	pass_config(&load);
	load_expect_refusal(&load, "silence", -ETIMEDOUT, "too long");
	assert_true(mm_now_ns() - start_ns >= 9 * MM_NS_PER_S);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, model_dir_remove)
	const struct CMUnitTest tests[] = {
		T(test_bad_models),
		T(test_bad_fds),
		T(test_bad_tenants),
		T(test_silent_tenant),
	};

	model_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
