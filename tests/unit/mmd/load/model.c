/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/mmd/load/model.h"

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
#include "mmd/load/load.h"
#include "mmd/common/log.h"

#define INDEX_NAME "model.safetensors.index.json"

const struct tensor llama[10] = {
	{ "model.embed_tokens.weight", "F32", 2, { 700, 900 }, 0 }, /* several blocks */
	{ "model.layers.0.q.weight", "BF16", 2, { 129, 31 }, 0 },
	{ "model.layers.0.norm.weight", "F32", 1, { 31 }, 0 },
	{ "model.layers.1.q.weight", "F16", 2, { 1500, 1001 }, 1 },
	{ "model.layers.1.norm.weight", "F32", 1, { 31 }, 0 },
	{ "model.layers.2.q.weight", "F32", 3, { 3, 500, 1001 }, 2 },
	{ "model.layers.2.norm.weight", "F32", 1, { 31 }, 2 },
	{ "model.layers.2.empty.weight", "F32", 2, { 0, 9 }, 2 },
	{ "model.norm.weight", "F32", 1, { 31 }, 2 },
	{ "scalar", "F32", 0, { 0 }, 2 },
};
char model_dir[64];

/* ---- the child ---- */

static void mode_forbid(const char *mode)
{
	scmp_filter_ctx filter;

	if (strcmp(mode, MODE_PLAIN) == 0)
		return;
	filter = seccomp_init(SCMP_ACT_ALLOW);
	if (strcmp(mode, MODE_NO_URING) == 0)
		seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(io_uring_setup), 0);
	else
		seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(openat), 1,
				 SCMP_A2(SCMP_CMP_MASKED_EQ, O_DIRECT, O_DIRECT));
	if (seccomp_load(filter) != 0)
		_exit(99);
	seccomp_release(filter);
}

void model_main(int argc, char **argv)
{
	if (argc != 5 || strcmp(argv[1], "--load") != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	mm_log_init("load", MM_LOG_ERROR);
	mode_forbid(argv[4]);
	exit(mm_load_main(atoi(argv[2]), atoi(argv[3])));
}

/* ---- files ---- */

void model_dir_make(const char *folder)
{
	snprintf(model_dir, sizeof(model_dir), "%s/mm-test-load-XXXXXX", folder);
	assert_non_null(mkdtemp(model_dir));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int model_dir_remove(void **state)
{
	(void)state;
	return nftw(model_dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

uint64_t tensor_bytes(const struct tensor *tensor)
{
	uint64_t bytes = strcmp(tensor->dtype, "F32") == 0 ? 4 : 2;

	for (uint32_t i = 0; i < tensor->rank; i++)
		bytes *= tensor->shape[i];
	return bytes;
}

/* The start value of a tensor's 16-bit units; every dtype is a multiple of such a unit. */
static uint64_t seed_of(const char *name)
{
	uint64_t hash = UINT64_C(14695981039346656037);

	for (; *name; name++)
		hash = (hash ^ (uint64_t)(unsigned char)*name) * UINT64_C(1099511628211);
	return hash;
}

static uint16_t unit_at(uint64_t seed, uint64_t i)
{
	return (uint16_t)(((seed ^ i) * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

void model_write_config(const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/config.json", model_dir);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void write_header(FILE *file, const struct tensor *tensors, size_t n, uint32_t which,
			 size_t pad)
{
	static char json[65536];
	size_t at = 0;
	uint64_t offset = 0, length;

	for (size_t i = 0; i < n; i++) {
		const struct tensor *t = &tensors[i];

		if (t->file != which)
			continue;
		at += (size_t)snprintf(json + at, sizeof(json) - at,
				       "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[", at ? ',' : '{',
				       t->name, t->dtype);
		for (uint32_t d = 0; d < t->rank; d++)
			at += (size_t)snprintf(json + at, sizeof(json) - at, "%s%lu", d ? "," : "",
					       t->shape[d]);
		at += (size_t)snprintf(json + at, sizeof(json) - at,
				       "],\"data_offsets\":[%lu,%lu]}", offset,
				       offset + tensor_bytes(t));
		offset += tensor_bytes(t);
	}
	at += (size_t)snprintf(json + at, sizeof(json) - at, "%s%*s", at ? "}" : "{}", (int)pad,
			       "");
	length = at;
	fwrite(&length, sizeof(length), 1, file);
	fwrite(json, 1, at, file);
}

static void write_tensor(FILE *file, const struct tensor *tensor)
{
	uint64_t units = tensor_bytes(tensor) / 2, seed = seed_of(tensor->name);
	uint16_t *data = calloc(units + 1, sizeof(*data));

	assert_non_null(data);
	for (uint64_t u = 0; u < units; u++)
		data[u] = unit_at(seed, u);
	assert_int_equal(fwrite(data, sizeof(*data), units, file), units);
	free(data);
}

static bool write_file(const struct tensor *tensors, size_t n, uint32_t which, size_t pad)
{
	char path[128];
	FILE *file;
	bool any = false;

	for (size_t i = 0; i < n; i++)
		any |= tensors[i].file == which;
	snprintf(path, sizeof(path), "%s/model-%u.safetensors", model_dir, which);
	(void)unlink(path);
	if (!any)
		return false;
	file = fopen(path, "we");
	assert_non_null(file);
	write_header(file, tensors, n, which, pad);
	for (size_t i = 0; i < n; i++)
		if (tensors[i].file == which)
			write_tensor(file, &tensors[i]);
	fclose(file);
	return true;
}

void model_write(const struct tensor *tensors, size_t n, size_t pad)
{
	for (uint32_t f = 0; f < 10; f++)
		(void)write_file(tensors, n, f, pad);
}

void model_write_index(const struct tensor *tensors, size_t n)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/" INDEX_NAME, model_dir);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs("{\"weight_map\":{", file);
	for (size_t i = 0; i < n; i++)
		fprintf(file, "%s\"%s\":\"model-%u.safetensors\"", i ? "," : "", tensors[i].name,
			tensors[i].file);
	fputs("}}", file);
	fclose(file);
}

/* ---- one load ---- */

void load_start(struct load *load, const char *mode)
{
	int core[2], tenant[2];
	char core_fd[16], tenant_fd[16];

	*load = LOAD_NULL;
	assert_int_equal(mm_sock_pair(core), 0);
	assert_int_equal(mm_sock_pair(tenant), 0);
	snprintf(core_fd, sizeof(core_fd), "%d", core[1]);
	snprintf(tenant_fd, sizeof(tenant_fd), "%d", tenant[1]);
	load->pid = fork();
	assert_true(load->pid >= 0);
	if (load->pid == 0) {
		fcntl(core[1], F_SETFD, 0);
		fcntl(tenant[1], F_SETFD, 0);
		execl("/proc/self/exe", "load", "--load", core_fd, tenant_fd, mode, (char *)NULL);
		_exit(127);
	}
	close(core[1]);
	close(tenant[1]);
	load->core = core[0];
	load->tenant = tenant[0];
}

int load_pass(struct load *load, uint32_t kind, const char *name, int fd)
{
	struct mm_load_file msg = { .magic = MM_ABI_MAGIC, .kind = kind };
	int r;

	memcpy(msg.name, name, strnlen(name, sizeof(msg.name))); /* a test may leave out the NUL */
	r = mm_sock_send(load->tenant, &msg, sizeof(msg), &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
	return r;
}

void load_pass_files(struct load *load, uint32_t n_files)
{
	char path[128], name[64];

	snprintf(path, sizeof(path), "%s/config.json", model_dir);
	(void)load_pass(load, MM_LOAD_CONFIG, "config.json", open(path, O_RDONLY | O_CLOEXEC));
	for (uint32_t f = 0; f < n_files; f++) {
		snprintf(name, sizeof(name), "model-%u.safetensors", f);
		snprintf(path, sizeof(path), "%s/%s", model_dir, name);
		(void)load_pass(load, MM_LOAD_SAFETENSORS, name, open(path, O_RDONLY | O_CLOEXEC));
	}
}

void load_pass_index(struct load *load)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/" INDEX_NAME, model_dir);
	(void)load_pass(load, MM_LOAD_INDEX, INDEX_NAME, open(path, O_RDONLY | O_CLOEXEC));
}

void load_pass_model(struct load *load, uint32_t n_files)
{
	load_pass_files(load, n_files);
	(void)load_pass(load, MM_LOAD_END, "", -1);
}

struct mm_load_pack pack_rule(uint32_t flags, const char *name, const char *const member[4])
{
	struct mm_load_pack rule = { .magic = MM_ABI_MAGIC, .kind = MM_LOAD_PACK, .flags = flags };

	snprintf(rule.name, sizeof(rule.name), "%s", name);
	for (; rule.n_members < 4 && member[rule.n_members]; rule.n_members++)
		snprintf(rule.member[rule.n_members], sizeof(rule.member[0]), "%s",
			 member[rule.n_members]);
	return rule;
}

void load_pass_rule(struct load *load, const struct mm_load_pack *rule)
{
	assert_int_equal(mm_sock_send(load->tenant, rule, sizeof(*rule), NULL, 0), 0);
}

bool load_receive(struct load *load)
{
	union {
		struct mm_lmsg msg;
		struct mm_lident ident;
		struct mm_lkey key;
	} received;
	const struct mm_lmsg *msg = &received.msg;
	size_t len = 0;
	int r;

	memset(&received, 0, sizeof(received));
	assert_int_equal(mm_sock_wait(load->core, POLLIN, mm_deadline_ns(WAIT_S * MM_NS_PER_S)), 0);
	r = mm_sock_recv_nofds(load->core, &received, sizeof(received), &len);
	if (r == -ECONNRESET)
		return false;
	assert_int_equal(r, 0);
	assert_int_equal(len, msg->op == MM_L_IDENT ? mm_lident_bytes(msg->n_groups)
			      : msg->op == MM_L_KEY ? sizeof(received.key)
						    : sizeof(*msg));
	assert_int_equal(msg->magic, MM_PROTO_MAGIC);
	load->ident = *msg;
	if (msg->op == MM_L_IDENT)
		memcpy(load->group_bytes, received.ident.group_bytes, sizeof(load->group_bytes));
	if (msg->op == MM_L_KEY)
		load->key = received.key.key;
	return true;
}

static void answer_send(struct load *load, enum mm_lop op, int result, const char *text,
			const int *fds, size_t n_fds)
{
	struct mm_lmsg msg = {
		.magic = MM_PROTO_MAGIC, .op = op, .result = result, .numa_node = 0
	};

	strncpy(msg.text, text, sizeof(msg.text) - 1);
	assert_int_equal(mm_sock_send(load->core, &msg, sizeof(msg), fds, n_fds), 0);
}

void load_answer(struct load *load, enum mm_lop op, int result, const char *text)
{
	answer_send(load, op, result, text, NULL, 0);
}

void load_alloc(struct load *load)
{
	assert_int_equal(
		mm_region_create(load->ident.store_bytes, MM_REGION_SHARED, "store", &load->store),
		0);
	answer_send(load, MM_L_ALLOC, 0, "", &load->store.fd, 1);
}

void load_alloc_disk(struct load *load)
{
	char path[128];

	assert_true(load->ident.head_bytes >= sizeof(struct mm_dir));
	assert_int_equal(
		mm_region_create(load->ident.head_bytes, MM_REGION_SHARED, "head", &load->head), 0);
	snprintf(path, sizeof(path), "%s/store-XXXXXX", model_dir);
	load->file = mkostemp(path, O_CLOEXEC);
	assert_true(load->file >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ftruncate(load->file, (off_t)load->ident.store_bytes), 0);
	answer_send(load, MM_L_ALLOC, 0, "", (int[]){ load->head.fd, load->file }, 2);
}

void load_join(struct load *load)
{
	const uint64_t bytes = load->ident.store_bytes, head = load->ident.head_bytes;

	assert_int_equal(mm_region_create(bytes, MM_REGION_SHARED, "store", &load->store), 0);
	memcpy(load->store.base, load->head.base, head);
	for (uint64_t at = head; at < bytes;) {
		ssize_t n = pread(load->file, (char *)load->store.base + at, bytes - at, (off_t)at);

		assert_true(n > 0);
		at += (uint64_t)n;
	}
}

int load_end(struct load *load)
{
	int status;

	while (!load->status.done) {
		size_t len = 0;
		int r;

		assert_int_equal(
			mm_sock_wait(load->tenant, POLLIN, mm_deadline_ns(WAIT_S * MM_NS_PER_S)),
			0);
		r = mm_sock_recv_nofds(load->tenant, &load->status, sizeof(load->status), &len);
		assert_int_equal(r, 0);
		assert_int_equal(len, sizeof(load->status));
		assert_int_equal(load->status.magic, MM_ABI_MAGIC);
		assert_true(load->status.bytes_done <= load->status.bytes_total);
	}
	assert_int_equal(waitpid(load->pid, &status, 0), load->pid);
	load->pid = 0;
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void load_expect_refusal(struct load *load, const char *what, int want, const char *needle)
{
	assert_true(load_receive(load));
	if (load->ident.op != MM_L_DONE || load->ident.result != want ||
	    !strstr(load->ident.text, needle))
		fail_msg("%s: op %u, %d '%s'", what, load->ident.op, load->ident.result,
			 load->ident.text);
	assert_int_equal(load_end(load), 1);
	assert_int_equal(load->status.result, want);
	assert_string_equal(load->status.text, load->ident.text);
	load_done(load);
}

void load_done(struct load *load)
{
	if (load->pid > 0) {
		kill(load->pid, SIGKILL);
		waitpid(load->pid, NULL, 0);
	}
	mm_close_fd(&load->core);
	mm_close_fd(&load->tenant);
	mm_region_done(&load->store);
	mm_region_done(&load->head);
	mm_close_fd(&load->file);
	*load = LOAD_NULL;
}

/* ---- the store ---- */

static const struct mm_dir_tensor *entry_find(const struct mm_dir *dir, const char *name)
{
	const struct mm_dir_tensor *t = (const void *)((const char *)dir + dir->tensors_offset);

	for (uint32_t i = 0; i < dir->n_tensors; i++)
		if (strcmp(t[i].name, name) == 0)
			return &t[i];
	fail_msg("%s is not in the directory", name);
	return NULL;
}

const struct mm_dir_tensor *store_find(const struct load *load, const char *name,
				       const void **ret_bytes)
{
	const struct mm_dir *dir = load->store.base;
	const struct mm_dir_group *groups = (const void *)((const char *)dir + dir->groups_offset);
	const struct mm_dir_tensor *t = entry_find(dir, name);

	assert_true(t->group < dir->n_groups);
	assert_true(t->offset + t->bytes <= groups[t->group].bytes);
	*ret_bytes = (const char *)dir + groups[t->group].store_offset + t->offset;
	return t;
}

/* The place in the store's transpose of unit @u of the file. */
static uint64_t transposed_unit(const struct tensor *want, uint64_t u)
{
	uint64_t units = strcmp(want->dtype, "F32") == 0 ? 2 : 1;
	uint64_t row = u / units / want->shape[1], col = u / units % want->shape[1];

	return (col * want->shape[0] + row) * units + u % units;
}

static void check_tensor(const struct load *load, const struct tensor *want)
{
	const void *bytes;
	const struct mm_dir_tensor *t = store_find(load, want->name, &bytes);
	bool turned = t->flags & MM_TENSOR_TRANSPOSED;
	const uint16_t *units = bytes;
	uint64_t seed = seed_of(want->name);

	assert_int_equal(t->bytes, tensor_bytes(want));
	assert_int_equal(t->rank, want->rank);
	assert_int_equal(t->shape[0], want->shape[turned]);
	assert_int_equal(t->shape[1], want->shape[!turned]);
	assert_memory_equal(&t->shape[2], &want->shape[2], 2 * sizeof(t->shape[0]));
	assert_false(t->flags & MM_TENSOR_PACK);
	if (!(t->flags & MM_TENSOR_MEMBER))
		assert_int_equal(t->offset % MM_TENSOR_ALIGN, 0);
	for (uint64_t u = 0; u < t->bytes / 2; u++)
		if (units[turned ? transposed_unit(want, u) : u] != unit_at(seed, u))
			fail_msg("%s: unit %lu is wrong", want->name, u);
}

void store_check(const struct load *load, const struct tensor *tensors, size_t n)
{
	const struct mm_dir *dir = load->store.base;
	const struct mm_dir_group *groups = (const void *)((const char *)dir + dir->groups_offset);
	const struct mm_dir_tensor *t = (const void *)((const char *)dir + dir->tensors_offset);
	size_t packs = 0;

	assert_int_equal(dir->magic, MM_DIR_MAGIC);
	assert_int_equal(dir->version, 1);
	for (uint32_t i = 0; i < dir->n_tensors; i++)
		packs += !!(t[i].flags & MM_TENSOR_PACK);
	assert_int_equal(dir->n_tensors, n + packs);
	assert_int_equal(dir->store_bytes, load->store.size_bytes);
	assert_memory_equal(dir->identity, load->ident.identity, sizeof(dir->identity));
	for (uint32_t g = 0; g < dir->n_groups; g++) {
		assert_int_equal(groups[g].store_offset % MM_ABI_PAGE_BYTES, 0);
		assert_true(groups[g].store_offset + groups[g].bytes <= dir->store_bytes);
	}
	for (size_t i = 0; i < n; i++)
		check_tensor(load, &tensors[i]);
}
