/* SPDX-License-Identifier: Apache-2.0 */
/* The load role: receives a tenant's files, parses them in the sandbox, fills the store. */
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
/* bytes of a store on disk that may be in the page cache */
#define FLUSH_BYTES (UINT64_C(64) << 20)
#define LAST_NS     (2 * MM_NS_PER_S)  /* time for the tenant to take its last status */
#define CORE_NS     (10 * MM_NS_PER_S) /* time for core to take a message: it never blocks */

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
	uint64_t digest_bytes;     /* read for the identity */
	uint64_t progress_sent_ns; /* last progress */
	struct mm_memory_map file; /* mapping of a store on disk, while it is filled */
	int file_fd;               /* -1: the store is in memory */
	uint64_t flushed_bytes;    /* bytes_done at the last flush */
	int flush_result;
	uint32_t flags;
	bool core_gone;
	struct mm_why why;
};

/* ---- messages to the tenant and to core ---- */

static struct mm_load_status load_status(const struct load *l, int result, bool done)
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

static void store_flush(struct load *l)
{
	if (l->file_fd < 0 || l->flush_result < 0)
		return;
	l->flush_result = mm_memory_flush(&l->file, l->file_fd, &l->why);
	l->flushed_bytes = l->reader.bytes_done;
}

/* Never waits: a status for which the socket has no room is dropped. */
static void send_progress(struct load *l)
{
	uint64_t now_ns = mm_now_ns();
	struct mm_load_status status;

	if (now_ns - l->progress_sent_ns < PROGRESS_NS)
		return;
	l->progress_sent_ns = now_ns;
	status = load_status(l, 0, false);
	(void)mm_sock_send(l->tenant_fd, &status, sizeof(status), NULL, 0);
}

static void send_end(struct load *l, int result)
{
	const struct mm_load_status status = load_status(l, result, true);

	if (mm_sock_wait(l->tenant_fd, POLLOUT, mm_deadline_ns(LAST_NS)) == 0)
		(void)mm_sock_send(l->tenant_fd, &status, sizeof(status), NULL, 0);
}

/*
 * Reads the messages that the tenant has sent, and refuses more: closing a socket with unread
 * messages makes the peer's next call fail before it has read the last status. Fds in them never
 * enter this process's table.
 */
static void tenant_hang_up(const struct load *l)
{
	struct mm_load_pack msg; /* the longest message */
	size_t len;

	(void)shutdown(l->tenant_fd, SHUT_RD);
	while (mm_sock_recv_nofds(l->tenant_fd, &msg, sizeof(msg), &len) == 0)
		;
}

static void load_on_block(void *arg)
{
	struct load *l = arg;

	if (l->reader.bytes_done - l->flushed_bytes >= FLUSH_BYTES)
		store_flush(l);
	send_progress(l);
}

static uint32_t layout_head_bytes(const struct load *l)
{
	uint64_t end = l->layout.dir.store_bytes;

	for (uint32_t g = 0; g < l->layout.dir.n_groups; g++)
		end = MM_MIN(end, l->layout.groups[g].store_offset);
	return (uint32_t)MM_MIN(end, UINT32_MAX);
}

static struct mm_lmsg core_message(const struct load *l, enum mm_lop op, int result)
{
	struct mm_lmsg msg = { .magic = MM_PROTO_MAGIC,
			       .op = op,
			       .result = result,
			       .flags = l->reader.flags,
			       .store_bytes = l->layout.dir.store_bytes,
			       .n_groups = l->layout.dir.n_groups,
			       .n_tensors = l->layout.dir.n_tensors,
			       .numa_node = -1,
			       .read_bytes = l->digest_bytes + l->reader.bytes_done,
			       .filled_bytes = l->reader.bytes_done,
			       .head_bytes = l->layout.groups ? layout_head_bytes(l) : 0 };

	memcpy(msg.identity, l->layout.dir.identity, sizeof(msg.identity));
	if (result < 0)
		snprintf(msg.text, sizeof(msg.text), "%s", l->why.text);
	return msg;
}

static int core_send(const struct load *l, const void *msg, size_t bytes)
{
	if (mm_sock_wait(l->core_fd, POLLOUT, mm_deadline_ns(CORE_NS)) < 0)
		return -ETIMEDOUT;
	return mm_sock_send(l->core_fd, msg, bytes, NULL, 0);
}

static int send_done(const struct load *l, int result)
{
	const struct mm_lmsg msg = core_message(l, MM_L_DONE, result);

	return core_send(l, &msg, sizeof(msg));
}

static int send_ident(const struct load *l)
{
	struct mm_lident ident = { .msg = core_message(l, MM_L_IDENT, 0) };

	for (uint32_t g = 0; g < ident.msg.n_groups; g++)
		ident.group_bytes[g] = l->layout.groups[g].bytes;
	return core_send(l, &ident, mm_lident_bytes(ident.msg.n_groups));
}

/* The next core has the load begun again, so the tenant is not told that it failed. */
static int core_lost(struct load *l)
{
	l->core_gone = true;
	return mm_refuse(&l->why, -ECONNRESET, "core is gone");
}

static int send_key(struct load *l)
{
	const struct mm_lkey key = { .msg = core_message(l, MM_L_KEY, 0), .key = l->files.key };

	if (core_send(l, &key, sizeof(key)) < 0)
		return core_lost(l);
	return 0;
}

/* ---- parsing ---- */

/* Checks that the shards hold what their index lists, if there is one. */
static int shards_check_index(struct load *l)
{
	const struct mm_shards shards = { l->st, l->name, l->n_st };
	const struct mm_file *last = &l->files.file[l->files.count - 1];

	return last->kind == MM_LOAD_INDEX ? mm_index_read(last->fd, last->name, &shards, &l->why)
					   : 0;
}

static int model_parse(struct load *l)
{
	const struct mm_file *config = &l->files.file[0];
	struct mm_model_parts parts;
	int r;

	r = mm_model_config_read(config->fd, config->name, &l->config, &l->why);
	for (size_t i = 0; r == 0 && i < l->files.n_weights; i++) {
		const struct mm_file *file = &l->files.file[1 + i];
		char err[160];

		r = mm_safetensors_read(file->fd, &l->st[l->n_st], err, sizeof(err));
		if (r < 0)
			return mm_refuse(&l->why, r, "%s: %s", file->name, err);
		l->name[l->n_st++] = file->name;
	}
	parts = (struct mm_model_parts){
		l->st, l->name, l->n_st, l->config.layers, &l->files.packs,
	};
	if (r == 0)
		r = shards_check_index(l);
	if (r == 0)
		r = mm_layout_make(&parts, &l->layout, &l->why);
	if (r == 0)
		r = mm_files_identity(&l->files, MM_STORE_VERSION, l->layout.dir.identity,
				      &l->digest_bytes, &l->why);
	return r;
}

/* ---- agreeing with core ---- */

/* Core may take long, while another load of this model runs; the tenant may leave meanwhile. */
static int core_await(struct load *l)
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

static int answer_receive(struct load *l, struct mm_lmsg *ret_msg, int ret_fds[2])
{
	size_t n_fds = 0, len = 0;
	int r;

	ret_fds[0] = ret_fds[1] = -1;
	r = core_await(l);
	if (r == 0)
		r = mm_sock_recv(l->core_fd, ret_msg, sizeof(*ret_msg), ret_fds, 2, &n_fds, &len);
	if (r == 0 && (len != sizeof(*ret_msg) || ret_msg->magic != MM_PROTO_MAGIC))
		r = -EPROTO;
	if (r == -ECONNRESET)
		return l->why.text[0] ? r : core_lost(l);
	if (r < 0)
		return mm_refuse(&l->why, r, "core does not answer: %s", strerror(-r));
	ret_msg->text[sizeof(ret_msg->text) - 1] = 0;
	return 0;
}

/* ---- filling ---- */

static size_t file_n_placed(const struct load *l, size_t file, size_t from)
{
	size_t n = 0;

	while (from + n < l->layout.n_placed && l->layout.placed[from + n].file == file)
		n++;
	return n;
}

static void bytes_sum_up(struct load *l)
{
	for (size_t f = 0, at = 0, n; f < l->n_st; f++, at += n) {
		n = file_n_placed(l, f, at);
		l->bytes_total += mm_reader_bytes(&l->files.file[1 + f], &l->layout.placed[at], n);
	}
}

static int files_read(struct load *l, void *store)
{
	int r = 0;

	l->reader.progress = load_on_block;
	l->reader.arg = l;
	for (size_t f = 0, at = 0, n; r == 0 && f < l->n_st; f++, at += n) {
		n = file_n_placed(l, f, at);
		r = mm_reader_fill(&l->reader, &l->files.file[1 + f], &l->layout.placed[at], n,
				   store, &l->why);
		r = r ? r : l->flush_result;
	}
	for (size_t i = 0; r == 0 && i < l->files.count; i++)
		r = mm_file_check_unchanged(&l->files.file[i], &l->why);
	return r;
}

/* Faults in the memory for the tensor's data: a hole in the file remains one in the store. */
static int tensor_populate(struct load *l, const struct mm_memory_map *store,
			   const struct mm_placed *p)
{
	uint64_t end = p->file_offset + p->bytes;
	int fd = l->files.file[1 + p->file].fd, r = 0;
	struct mm_extent data = { .end = p->file_offset };

	while (r == 0 && mm_extent_next(fd, data.end, end, &data)) {
		/* Transposing may move any byte to any place in the tensor. */
		if (p->item_bytes)
			data = (struct mm_extent){ p->file_offset, end };
		r = mm_memory_populate(store, p->store_offset + (data.start - p->file_offset),
				       data.end - data.start, &l->why);
	}
	return r;
}

static int store_populate(struct load *l, const struct mm_memory_map *store)
{
	bool sparse = false;
	int r;

	for (size_t i = 0; i < l->n_st && !sparse; i++)
		sparse = mm_extent_sparse(l->files.file[1 + i].fd, 0,
					  l->files.file[1 + i].stamp.bytes);
	if (!sparse)
		return mm_memory_populate(store, 0, store->bytes, &l->why);
	r = mm_memory_populate(store, 0, layout_head_bytes(l), &l->why);
	for (size_t i = 0; r == 0 && i < l->layout.n_placed; i++)
		r = tensor_populate(l, store, &l->layout.placed[i]);
	return r;
}

static int store_fill(struct load *l, int store_fd, int numa_node)
{
	struct mm_memory_map store;
	int r;

	r = mm_memory_map(store_fd, l->layout.dir.store_bytes, numa_node, &store, &l->why);
	if (r < 0)
		return r;
	r = store_populate(l, &store);
	if (r == 0) {
		bytes_sum_up(l);
		mm_layout_write_head(&l->layout, store.base);
		r = files_read(l, store.base);
	}
	mm_memory_unmap(&store);
	return r;
}

/* Writes the directory into memory, for core and tenants, and the tensors into the file. */
static int store_fill_file(struct load *l, int head_fd, int numa_node)
{
	struct mm_memory_map head;
	int r;

	r = mm_memory_map(head_fd, layout_head_bytes(l), numa_node, &head, &l->why);
	if (r < 0)
		return r;
	r = mm_memory_populate(&head, 0, head.bytes, &l->why);
	if (r == 0)
		mm_layout_write_head(&l->layout, head.base);
	mm_memory_unmap(&head);
	if (r < 0)
		return r;
	r = mm_memory_map_file(l->file_fd, l->layout.dir.store_bytes, &l->file, &l->why);
	if (r < 0)
		return r;
	bytes_sum_up(l);
	r = files_read(l, l->file.base);
	store_flush(l);
	mm_memory_unmap(&l->file);
	return r ? r : l->flush_result;
}

/* ---- the role ---- */

static int done_report(struct load *l)
{
	if (send_done(l, 0) < 0)
		return core_lost(l);
	return 0;
}

static int answer_follow(struct load *l)
{
	mm_cleanup(mm_close_fd) int store_fd = -1;
	struct mm_lmsg answer;
	int fds[2], r;

	r = answer_receive(l, &answer, fds);
	if (r < 0)
		return r;
	store_fd = fds[0];
	l->file_fd = fds[1];
	switch (answer.op) {
	case MM_L_HAVE:
		l->flags |= MM_LOAD_F_SHARED;
		return done_report(l);
	case MM_L_REFUSE:
		return mm_refuse(&l->why, answer.result < 0 ? answer.result : -ENOSPC, "%s",
				 answer.text[0] ? answer.text : "mmd refused the model");
	case MM_L_ALLOC:
		if (store_fd < 0)
			return mm_refuse(&l->why, -EPROTO, "core gave no memory for the store");
		r = l->file_fd >= 0 ? store_fill_file(l, store_fd, answer.numa_node)
				    : store_fill(l, store_fd, answer.numa_node);
		return r < 0 ? r : done_report(l);
	default:
		return mm_refuse(&l->why, -EPROTO, "core's answer %u is unknown", answer.op);
	}
}

static int model_identify(struct load *l)
{
	int r = model_parse(l);

	if (r == 0 && send_ident(l) < 0)
		return core_lost(l);
	return r;
}

static int load_run(struct load *l)
{
	int r;

	r = mm_files_receive(&l->files, l->tenant_fd, &l->why);
	if (r < 0)
		return r;
	if (mm_reader_init(&l->reader) < 0)
		return mm_refuse(&l->why, -ENOMEM, "no memory for read buffers");
	json_object_seed(0); /* now, since it opens /dev/urandom, which the sandbox forbids */
	r = mm_sandbox_close(&l->why);
	if (r == 0 && l->files.key.kind)
		r = send_key(l);
	if (r == 0 && !(l->files.key.flags & MM_LOAD_KEY_ATTACH))
		r = model_identify(l);
	return r == 0 ? answer_follow(l) : r;
}

static void load_release(struct load *l)
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

/* There may be 256 files, each with a second fd for O_DIRECT. */
static void load_raise_limits(void)
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
	int r;

	if (!l) {
		close(core_fd);
		close(tenant_fd);
		return 1;
	}
	l->core_fd = core_fd;
	l->tenant_fd = tenant_fd;
	l->file_fd = -1;
	load_raise_limits();
	r = load_run(l);
	if (r < 0) {
		mm_log(MM_LOG_DEBUG, "load.refused", "error=%s reason=\"%s\"", strerror(-r),
		       l->why.text);
		(void)send_done(l, r);
	}
	if (!l->core_gone)
		send_end(l, r);
	tenant_hang_up(l);
	load_release(l);
	return r < 0 ? 1 : 0;
}
