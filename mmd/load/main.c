/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/support/cleanup.h"
#include "mmd/load/load.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/model/config.h"
#include "mmd/load/extent.h"
#include "mmd/load/files.h"
#include "libclient/model/index.h"
#include "libclient/model/layout.h"
#include "mmd/load/memory.h"
#include "mmd/load/reader.h"
#include "mmd/load/sandbox.h"
#include "mmd/common/log.h"
#include "mmd/common/proto.h"

#define PROGRESS_NS (50 * MM_NS_PER_MS)
#define FLUSH_BYTES (UINT64_C(64) << 20) /* of a store on disk that may be in the page cache */
#define LAST_NS     (2 * MM_NS_PER_S)    /* for the tenant to take its last status */
#define CORE_NS     (10 * MM_NS_PER_S)   /* for core to take a message: it never blocks */

struct load {
	int core_fd, tenant_fd;
	struct mm_files files;
	struct mm_model_config config;
	struct mm_safetensors st[MM_LOAD_FILES_MAX];
	const char *name[MM_LOAD_FILES_MAX];
	size_t n_st;
	struct mm_layout layout;
	struct mm_reader reader;
	uint64_t bytes_total;
	uint64_t told_ns;          /* last progress */
	struct mm_memory_map file; /* of a store on disk, while it is filled */
	int file_fd;               /* -1 = the store is in memory */
	uint64_t flushed_bytes;    /* bytes_done at the last flush */
	int flush_result;
	uint32_t flags;
	struct mm_why why;
};

/* ---- what is said ---- */

static struct mm_load_status status_of(const struct load *l, int result, bool done)
{
	struct mm_load_status status = { .magic = MM_ABI_MAGIC,
					 .result = result,
					 .done = done,
					 .flags = l->flags | l->reader.flags,
					 .bytes_total = l->bytes_total };

	status.bytes_done = done && result == 0 ? l->bytes_total : l->reader.bytes_done;
	if (result < 0)
		snprintf(status.text, sizeof(status.text), "%s", l->why.text);
	return status;
}

static void flush(struct load *l)
{
	if (l->file_fd < 0 || l->flush_result < 0)
		return;
	l->flush_result = mm_memory_flush(&l->file, l->file_fd, &l->why);
	l->flushed_bytes = l->reader.bytes_done;
}

/* Progress is lost rather than waited for. */
static void tell_progress(struct load *l)
{
	uint64_t now_ns = mm_now_ns();
	struct mm_load_status status;

	if (now_ns - l->told_ns < PROGRESS_NS)
		return;
	l->told_ns = now_ns;
	status = status_of(l, 0, false);
	(void)mm_sock_send(l->tenant_fd, &status, sizeof(status), NULL, 0);
}

static void tell_last(struct load *l, int result)
{
	const struct mm_load_status status = status_of(l, result, true);

	if (mm_sock_wait(l->tenant_fd, POLLOUT, mm_deadline_ns(LAST_NS)) == 0)
		(void)mm_sock_send(l->tenant_fd, &status, sizeof(status), NULL, 0);
}

/*
 * A socket closed with messages unread makes the peer's next call fail before it has read the last
 * status: refuse more, and take what is there. Fds in it never enter our table.
 */
static void hang_up(const struct load *l)
{
	struct mm_load_pack msg; /* the longest there is */
	size_t len;

	(void)shutdown(l->tenant_fd, SHUT_RD);
	while (mm_sock_recv_nofds(l->tenant_fd, &msg, sizeof(msg), &len) == 0)
		;
}

static void on_block(void *arg)
{
	struct load *l = arg;

	if (l->reader.bytes_done - l->flushed_bytes >= FLUSH_BYTES)
		flush(l);
	tell_progress(l);
}

static uint32_t head_bytes(const struct load *l)
{
	uint64_t end = l->layout.dir.store_bytes;

	for (uint32_t g = 0; g < l->layout.dir.n_groups; g++)
		end = MM_MIN(end, l->layout.groups[g].store_offset);
	return (uint32_t)MM_MIN(end, UINT32_MAX);
}

static struct mm_lmsg message_of(const struct load *l, enum mm_lop op, int result)
{
	struct mm_lmsg msg = { .magic = MM_PROTO_MAGIC,
			       .op = op,
			       .result = result,
			       .flags = l->reader.flags,
			       .store_bytes = l->layout.dir.store_bytes,
			       .n_groups = l->layout.dir.n_groups,
			       .n_tensors = l->layout.dir.n_tensors,
			       .numa_node = -1,
			       .head_bytes = l->layout.groups ? head_bytes(l) : 0 };

	memcpy(msg.identity, l->layout.dir.identity, sizeof(msg.identity));
	if (result < 0)
		snprintf(msg.text, sizeof(msg.text), "%s", l->why.text);
	return msg;
}

static int send_core(const struct load *l, const void *msg, size_t bytes)
{
	if (mm_sock_wait(l->core_fd, POLLOUT, mm_deadline_ns(CORE_NS)) < 0)
		return -ETIMEDOUT;
	return mm_sock_send(l->core_fd, msg, bytes, NULL, 0);
}

static int tell_done(const struct load *l, int result)
{
	const struct mm_lmsg msg = message_of(l, MM_L_DONE, result);

	return send_core(l, &msg, sizeof(msg));
}

static int tell_ident(const struct load *l)
{
	struct mm_lident ident = { .msg = message_of(l, MM_L_IDENT, 0) };

	for (uint32_t g = 0; g < ident.msg.n_groups; g++)
		ident.group_bytes[g] = l->layout.groups[g].bytes;
	return send_core(l, &ident, mm_lident_bytes(ident.msg.n_groups));
}

/* ---- parsing ---- */

/* Shards hold what their index says, where there is one. */
static int check_index(struct load *l)
{
	const struct mm_shards shards = { l->st, l->name, l->n_st };
	const struct mm_file *last = &l->files.file[l->files.count - 1];

	return last->kind == MM_LOAD_INDEX ? mm_index_read(last->fd, last->name, &shards, &l->why)
					   : 0;
}

static int parse(struct load *l)
{
	const struct mm_file *config = &l->files.file[0];
	struct mm_model_parts parts;
	int rc;

	rc = mm_model_config_read(config->fd, config->name, &l->config, &l->why);
	for (size_t i = 0; rc == 0 && i < l->files.n_weights; i++) {
		const struct mm_file *file = &l->files.file[1 + i];
		char err[160];

		rc = mm_safetensors_read(file->fd, &l->st[l->n_st], err, sizeof(err));
		if (rc < 0)
			return mm_refuse(&l->why, rc, "%s: %s", file->name, err);
		l->name[l->n_st++] = file->name;
	}
	parts = (struct mm_model_parts){
		l->st, l->name, l->n_st, l->config.layers, &l->files.packs,
	};
	if (rc == 0)
		rc = check_index(l);
	if (rc == 0)
		rc = mm_layout_make(&parts, &l->layout, &l->why);
	if (rc == 0)
		mm_files_identity(&l->files, MM_STORE_VERSION, l->layout.dir.identity);
	return rc;
}

/* ---- agreeing with core ---- */

/* Core may take long (another load of this model is running); the tenant may leave meanwhile. */
static int await_core(struct load *l)
{
	struct pollfd fds[] = { { .fd = l->core_fd, .events = POLLIN }, { .fd = l->tenant_fd } };

	for (;;) {
		if (poll(fds, MM_ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[0].revents)
			return 0;
		if (fds[1].revents & (POLLHUP | POLLERR))
			return mm_refuse(&l->why, -ECONNRESET, "the tenant is gone");
	}
}

static int receive_answer(struct load *l, struct mm_lmsg *ret_msg, int ret_fds[2])
{
	size_t n_fds = 0, len = 0;
	int rc;

	ret_fds[0] = ret_fds[1] = -1;
	rc = await_core(l);
	if (rc == 0)
		rc = mm_sock_recv(l->core_fd, ret_msg, sizeof(*ret_msg), ret_fds, 2, &n_fds, &len);
	if (rc == 0 && (len != sizeof(*ret_msg) || ret_msg->magic != MM_PROTO_MAGIC))
		rc = -EPROTO;
	if (rc == -ECONNRESET && l->why.text[0])
		return rc;
	if (rc < 0)
		return mm_refuse(&l->why, rc, "core does not answer: %s", strerror(-rc));
	ret_msg->text[sizeof(ret_msg->text) - 1] = 0;
	return 0;
}

/* ---- filling ---- */

static size_t placed_of(const struct load *l, size_t file, size_t from)
{
	size_t n = 0;

	while (from + n < l->layout.n_placed && l->layout.placed[from + n].file == file)
		n++;
	return n;
}

static void sum_up(struct load *l)
{
	for (size_t f = 0, at = 0, n; f < l->n_st; f++, at += n) {
		n = placed_of(l, f, at);
		l->bytes_total += mm_reader_bytes(&l->files.file[1 + f], &l->layout.placed[at], n);
	}
}

static int read_all(struct load *l, void *store)
{
	int rc = 0;

	l->reader.progress = on_block;
	l->reader.arg = l;
	for (size_t f = 0, at = 0, n; rc == 0 && f < l->n_st; f++, at += n) {
		n = placed_of(l, f, at);
		rc = mm_reader_fill(&l->reader, &l->files.file[1 + f], &l->layout.placed[at], n,
				    store, &l->why);
		rc = rc ? rc : l->flush_result;
	}
	for (size_t i = 0; rc == 0 && i < l->files.count; i++)
		rc = mm_file_check_unchanged(&l->files.file[i], &l->why);
	return rc;
}

/* The memory that a tensor's data need: a hole in the file stays one in the store. */
static int populate_tensor(struct load *l, const struct mm_memory_map *store,
			   const struct mm_placed *p)
{
	uint64_t end = p->file_offset + p->bytes;
	int fd = l->files.file[1 + p->file].fd, rc = 0;
	struct mm_extent data = { .end = p->file_offset };

	while (rc == 0 && mm_extent_next(fd, data.end, end, &data)) {
		/* Transposed, anything may go anywhere in it. */
		if (p->item_bytes)
			data = (struct mm_extent){ p->file_offset, end };
		rc = mm_memory_populate(store, p->store_offset + (data.start - p->file_offset),
					data.end - data.start, &l->why);
	}
	return rc;
}

static int populate(struct load *l, const struct mm_memory_map *store)
{
	bool sparse = false;
	int rc;

	for (size_t i = 0; i < l->n_st && !sparse; i++)
		sparse = mm_extent_sparse(l->files.file[1 + i].fd, 0,
					  l->files.file[1 + i].stamp.bytes);
	if (!sparse)
		return mm_memory_populate(store, 0, store->bytes, &l->why);
	rc = mm_memory_populate(store, 0, head_bytes(l), &l->why);
	for (size_t i = 0; rc == 0 && i < l->layout.n_placed; i++)
		rc = populate_tensor(l, store, &l->layout.placed[i]);
	return rc;
}

static int fill(struct load *l, int store_fd, int numa_node)
{
	struct mm_memory_map store;
	int rc;

	rc = mm_memory_map(store_fd, l->layout.dir.store_bytes, numa_node, &store, &l->why);
	if (rc < 0)
		return rc;
	rc = populate(l, &store);
	if (rc == 0) {
		sum_up(l);
		mm_layout_write_head(&l->layout, store.base);
		rc = read_all(l, store.base);
	}
	mm_memory_unmap(&store);
	return rc;
}

/* The directory in memory, for core and tenants; what lies behind it in the file. */
static int fill_file(struct load *l, int head_fd, int numa_node)
{
	struct mm_memory_map head;
	int rc;

	rc = mm_memory_map(head_fd, head_bytes(l), numa_node, &head, &l->why);
	if (rc < 0)
		return rc;
	rc = mm_memory_populate(&head, 0, head.bytes, &l->why);
	if (rc == 0)
		mm_layout_write_head(&l->layout, head.base);
	mm_memory_unmap(&head);
	if (rc < 0)
		return rc;
	rc = mm_memory_map_file(l->file_fd, l->layout.dir.store_bytes, &l->file, &l->why);
	if (rc < 0)
		return rc;
	sum_up(l);
	rc = read_all(l, l->file.base);
	flush(l);
	mm_memory_unmap(&l->file);
	return rc ? rc : l->flush_result;
}

/* ---- the role ---- */

static int report_done(struct load *l)
{
	if (tell_done(l, 0) < 0)
		return mm_refuse(&l->why, -ECONNRESET, "core is gone");
	return 0;
}

static int settle(struct load *l)
{
	mm_cleanup(mm_close_fd) int store_fd = -1;
	struct mm_lmsg answer;
	int fds[2], rc;

	rc = receive_answer(l, &answer, fds);
	if (rc < 0)
		return rc;
	store_fd = fds[0];
	l->file_fd = fds[1];
	switch (answer.op) {
	case MM_L_HAVE:
		l->flags |= MM_LOAD_F_SHARED;
		return report_done(l);
	case MM_L_REFUSE:
		return mm_refuse(&l->why, answer.result < 0 ? answer.result : -ENOSPC, "%s",
				 answer.text[0] ? answer.text : "mmd refused the model");
	case MM_L_ALLOC:
		if (store_fd < 0)
			return mm_refuse(&l->why, -EPROTO, "core gave no memory for the store");
		rc = l->file_fd >= 0 ? fill_file(l, store_fd, answer.numa_node)
				     : fill(l, store_fd, answer.numa_node);
		return rc < 0 ? rc : report_done(l);
	default:
		return mm_refuse(&l->why, -EPROTO, "core's answer %u is unknown", answer.op);
	}
}

static int work(struct load *l)
{
	int rc;

	rc = mm_files_receive(&l->files, l->tenant_fd, &l->why);
	if (rc < 0)
		return rc;
	if (mm_reader_init(&l->reader) < 0)
		return mm_refuse(&l->why, -ENOMEM, "no memory for read buffers");
	json_object_seed(0); /* opens /dev/urandom, which the sandbox forbids */
	rc = mm_sandbox_close(&l->why);
	if (rc == 0)
		rc = parse(l);
	if (rc == 0 && tell_ident(l) < 0)
		return mm_refuse(&l->why, -ECONNRESET, "core is gone");
	return rc == 0 ? settle(l) : rc;
}

static void release(struct load *l)
{
	for (size_t i = 0; i < l->n_st; i++)
		mm_safetensors_done(&l->st[i]);
	mm_layout_done(&l->layout);
	mm_reader_done(&l->reader);
	mm_files_done(&l->files);
	mm_close_fd(&l->file_fd);
	close(l->core_fd);
	close(l->tenant_fd);
	free(l);
}

/* 256 files, each perhaps reopened. */
static void raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

int mm_load_main(int core_fd, int tenant_fd)
{
	struct load *l = calloc(1, sizeof(*l));
	int rc;

	if (!l) {
		close(core_fd);
		close(tenant_fd);
		return 1;
	}
	l->core_fd = core_fd;
	l->tenant_fd = tenant_fd;
	l->file_fd = -1;
	raise_limits();
	rc = work(l);
	if (rc < 0) {
		mm_log(MM_LOG_DEBUG, "load.refused", "error=%s reason=\"%s\"", strerror(-rc),
		       l->why.text);
		(void)tell_done(l, rc);
	}
	tell_last(l, rc);
	hang_up(l);
	release(l);
	return rc < 0 ? 1 : 0;
}
