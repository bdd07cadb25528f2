/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/libclient/client/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/protocol/cold.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"

#define PATIENCE_NS (180 * MM_NS_PER_S)

static char gpu_dir[] = "/dev/shm/mm-test-XXXXXX";

static void remove_gpu_dir(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf '%s'", gpu_dir);
	if (system(command))
		fprintf(stderr, "%s stays behind\n", gpu_dir);
}

void peer_environment(void)
{
	char bytes[32];

	assert_non_null(mkdtemp(gpu_dir));
	atexit(remove_gpu_dir);
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)PEER_PAGE_BYTES);
	setenv("MM_SOFTGPU_DIR", gpu_dir, 1);
	setenv("MM_SOFTGPU_GRANULARITY", bytes, 1);
	setenv("MM_SOFTGPU_MEMORY", "64M", 1);
}

/* ---- pages ---- */

static void page_create(struct peer *p, uint32_t i)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = p->device },
	};
	const CUmemAccessDesc access = { .location = prop.location,
					 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	assert_int_equal(p->gpu.cuMemCreate(&p->page[i], PEER_PAGE_BYTES, &prop, 0), 0);
	assert_int_equal(
		p->gpu.cuMemAddressReserve(&p->page_va[i], PEER_PAGE_BYTES, PEER_PAGE_BYTES, 0, 0),
		0);
	assert_int_equal(p->gpu.cuMemMap(p->page_va[i], PEER_PAGE_BYTES, 0, p->page[i], 0), 0);
	assert_int_equal(p->gpu.cuMemSetAccess(p->page_va[i], PEER_PAGE_BYTES, &access, 1), 0);
}

void peer_drop_page(struct peer *peer, uint32_t page)
{
	if (!peer->page[page])
		return;
	peer->gpu.cuMemUnmap(peer->page_va[page], PEER_PAGE_BYTES);
	peer->gpu.cuMemAddressFree(peer->page_va[page], PEER_PAGE_BYTES);
	peer->gpu.cuMemRelease(peer->page[page]);
	peer->page[page] = 0;
}

int peer_export(struct peer *peer, uint32_t page)
{
	int fd = -1;

	assert_int_equal(
		peer->gpu.cuMemExportToShareableHandle(&fd, peer->page[page],
						       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		0);
	return fd;
}

void peer_fill(struct peer *peer, uint32_t page, uint8_t value)
{
	static uint8_t bytes[PEER_PAGE_BYTES];

	memset(bytes, value, sizeof(bytes));
	assert_int_equal(peer->gpu.cuMemcpyHtoD(peer->page_va[page], bytes, sizeof(bytes)), 0);
	/* Only then does it have the bytes, whoever reads it. */
	assert_int_equal(peer->gpu.cuStreamSynchronize(NULL), 0);
}

uint8_t peer_byte(struct peer *peer, uint32_t page)
{
	uint8_t byte = 0;

	assert_int_equal(peer->gpu.cuMemcpyDtoH(&byte, peer->page_va[page], 1), 0);
	return byte;
}

/* ---- the connection's thread ---- */

static void regions_create(struct peer *p, const size_t bytes[3])
{
	assert_int_equal(mm_region_create(bytes[0], MM_REGION_SHARED, "t", &p->tenant_region), 0);
	assert_int_equal(mm_region_create(bytes[1], MM_REGION_READONLY, "m", &p->mmd_region), 0);
	assert_int_equal(mm_region_create(bytes[2], MM_REGION_SHARED, "g", &p->gate_region), 0);
	p->tenant = p->tenant_region.base;
	p->mmd = p->mmd_region.base;
	p->gates = p->gate_region.base;
	mm_ring_init(&p->sq, p->tenant->sq, MM_SQ_SLOTS, &p->mmd->sq_head, &p->tenant->sq_tail);
	mm_ring_init(&p->cq, p->mmd->cq, MM_CQ_SLOTS, &p->mmd->cq_tail, &p->tenant->cq_head);
}

void peer_regions(struct peer *peer, const size_t bytes[3])
{
	mm_region_done(&peer->tenant_region);
	mm_region_done(&peer->mmd_region);
	mm_region_done(&peer->gate_region);
	regions_create(peer, bytes);
}

static int hear_hello(struct peer *p)
{
	size_t len;

	mm_sock_wait(p->sock, POLLIN, mm_deadline_ns(PATIENCE_NS));
	return mm_sock_recv_nofds(p->sock, &p->hello, sizeof(p->hello), &len);
}

/* The client does not know its driver yet and names no device; it connects again. */
static int refuse_first(struct peer *p)
{
	struct mm_welcome refusal = p->welcome;

	refusal.result = -ENODEV;
	refusal.n_devices = 2;
	p->hello_first = p->hello;
	mm_sock_send(p->sock, &refusal, sizeof(refusal), NULL, 0);
	mm_close_fd(&p->sock);
	p->sock = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	return p->sock < 0 ? -errno : 0;
}

/* Every second one is ended before the hello is read: the client gets a reset, not an end. */
static void hang_up(struct peer *p)
{
	for (unsigned int i = 0; i < p->hang_ups; i++) {
		if (i % 2)
			hear_hello(p);
		else
			mm_sock_wait(p->sock, POLLIN, mm_deadline_ns(PATIENCE_NS));
		mm_close_fd(&p->sock);
		p->sock = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	}
}

static void peer_handshake(struct peer *p)
{
	int fds[] = { p->tenant_region.fd, p->mmd_region.fd, p->gate_region.fd };
	mm_cleanup(mm_close_fd) int unsealed = -1;

	hang_up(p);
	if (hear_hello(p) || p->welcome_silent)
		return;
	if (p->several && (refuse_first(p) || hear_hello(p)))
		return;
	if (p->welcome_unsealed) {
		unsealed = memfd_create("m", MFD_CLOEXEC);
		fds[1] = ftruncate(unsealed, sizeof(struct mm_mmd_region)) ? -1 : unsealed;
	}
	mm_sock_send(p->sock, &p->welcome, p->welcome_bytes, fds, (size_t)p->welcome_fds);
	pthread_mutex_lock(&p->lock);
	p->connected = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void peer_bell(struct peer *peer)
{
	mm_sock_doorbell(peer->sock);
}

void peer_event(struct peer *peer, const struct mm_msg *msg)
{
	pthread_mutex_lock(&peer->lock);
	mm_ring_push(&peer->cq, msg);
	pthread_mutex_unlock(&peer->lock);
	peer_bell(peer);
}

/* Once the client has read an event it has handled those before. */
void peer_drained(struct peer *peer)
{
	const uint32_t *head = &peer->tenant->cq_head.value;
	uint32_t tail;

	pthread_mutex_lock(&peer->lock);
	mm_ring_push(&peer->cq, &(struct mm_msg){ .opcode = MM_EV_NOP });
	tail = peer->cq.mine;
	pthread_mutex_unlock(&peer->lock);
	peer_bell(peer);
	for (uint32_t i = 0; (int32_t)(__atomic_load_n(head, __ATOMIC_ACQUIRE) - tail) < 0; i++) {
		assert_true(i < 60000);
		usleep(1000);
	}
}

static void peer_answer(struct peer *p, const struct mm_msg *msg)
{
	struct mm_msg reply = { .opcode = MM_EV_REPLY,
				.user_data = msg->user_data,
				.arg = { msg->opcode } };
	bool wants_reply = msg->opcode == MM_OP_MODEL_OPEN || msg->opcode == MM_OP_KV_DECLARE ||
			   msg->opcode == MM_OP_KV_RELEASE || msg->opcode == MM_OP_SWAP_OPEN ||
			   msg->opcode == MM_OP_BYE || msg->opcode == MM_OP_TURN_JOIN ||
			   msg->opcode == MM_OP_COLD_OPEN;

	if (msg->opcode == MM_OP_COLD_OPEN)
		reply.arg[1] = p->cold_classes ? p->cold_classes
					       : mm_cold_layer_classes((uint32_t)msg->arg[1]);
	if (wants_reply && !__atomic_load_n(&p->manual, __ATOMIC_ACQUIRE))
		peer_event(p, &reply);
}

static void take_requests(struct peer *p)
{
	void (*on_request)(struct peer *, const struct mm_msg *);
	struct mm_msg msg;

	for (;;) {
		int r;

		pthread_mutex_lock(&p->lock);
		r = mm_ring_pop(&p->sq, &msg);
		if (!r && p->n_log < PEER_LOG)
			p->log[p->n_log++] = msg;
		pthread_cond_broadcast(&p->changed);
		pthread_mutex_unlock(&p->lock);
		if (r)
			return;
		peer_answer(p, &msg);
		on_request = __atomic_load_n(&p->on_request, __ATOMIC_ACQUIRE);
		if (on_request)
			on_request(p, &msg);
	}
}

/* Serves one connection. Return: whether it has ended; else the peer is to stop. */
static bool peer_serve(struct peer *p)
{
	struct pollfd fds[] = { { .fd = p->listener, .events = POLLIN },
				{ .fd = p->stop_fd, .events = POLLIN } };
	char byte[8];
	size_t len;
	int r = 0;

	poll(fds, 2, -1);
	if (fds[1].revents)
		return false;
	mm_close_fd(&p->sock);
	p->sock = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	peer_handshake(p);
	fds[0].fd = p->sock;
	while (r != -ECONNRESET) {
		poll(fds, 2, -1);
		if (fds[1].revents)
			return false;
		do
			r = mm_sock_recv_nofds(p->sock, byte, sizeof(byte), &len);
		while (!r);
		if (__atomic_load_n(&p->beats, __ATOMIC_ACQUIRE))
			__atomic_store_n(&p->mmd->state.beat_ns, mm_now_ns(), __ATOMIC_RELAXED);
		take_requests(p);
	}
	return true;
}

static void *peer_main(void *arg)
{
	struct peer *p = arg;

	do {
		if (!peer_serve(p))
			return NULL;
	} while (__atomic_load_n(&p->again, __ATOMIC_ACQUIRE) && !p->n_log);
	pthread_mutex_lock(&p->lock);
	p->ended = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- life ---- */

static void write_file(const char *dir, const char *name)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs("{}", file);
	fclose(file);
}

static void places_create(struct peer *p)
{
	strcpy(p->dir, "/tmp/mm-peer-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->path, sizeof(p->path), "%s/sock", p->dir);
	snprintf(p->model_dir, sizeof(p->model_dir), "%s/model", p->dir);
	assert_int_equal(mkdir(p->model_dir, 0700), 0);
	write_file(p->model_dir, "config.json");
	write_file(p->model_dir, "b.safetensors");
	write_file(p->model_dir, "a.safetensors");
	write_file(p->model_dir, "README.md");
}

struct peer *peer_start(void)
{
	struct peer *p = calloc(1, sizeof(*p));
	CUuuid uuid;
	char err[200] = "";

	assert_non_null(p);
	if (mm_gpu_open("software", &p->gpu, err, sizeof(err)))
		fail_msg("%s", err);
	assert_int_equal(p->gpu.cuInit(0), 0);
	assert_int_equal(p->gpu.cuDeviceGet(&p->device, 0), 0);
	assert_int_equal(p->gpu.cuDevicePrimaryCtxRetain(&p->context, p->device), 0);
	assert_int_equal(p->gpu.cuCtxSetCurrent(p->context), 0);
	assert_int_equal(p->gpu.cuDeviceGetUuid(&uuid, p->device), 0);
	for (uint32_t i = 0; i < PEER_PAGES; i++)
		page_create(p, i);
	p->welcome = (struct mm_welcome){ .magic = MM_ABI_MAGIC,
					  .abi_major = MM_ABI_MAJOR,
					  .tenant_id = 7,
					  .features = MM_FEAT_KNOWN,
					  .page_bytes = PEER_PAGE_BYTES,
					  .pool_pages = PEER_PAGES,
					  .size_bytes = sizeof(p->welcome),
					  .driver = "software",
					  .policy = "remap" };
	memcpy(p->welcome.device_uuid, uuid.bytes, sizeof(uuid.bytes));
	p->welcome_bytes = sizeof(p->welcome);
	p->welcome_fds = 3;
	p->sock = -1;
	p->tenant_region = p->mmd_region = p->gate_region = MM_REGION_NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	places_create(p);
	regions_create(p, (size_t[]){ sizeof(struct mm_tenant_region), sizeof(struct mm_mmd_region),
				      sizeof(struct mm_gate_region) });
	p->stop_fd = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(mm_sock_listen(p->path, 0600, false, &p->listener), 0);
	assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
	return p;
}

struct peer *peer_stop(struct peer *peer)
{
	char command[96];

	eventfd_write(peer->stop_fd, 1);
	pthread_join(peer->thread, NULL);
	mm_close_fd(&peer->listener);
	mm_close_fd(&peer->sock);
	mm_close_fd(&peer->stop_fd);
	mm_region_done(&peer->tenant_region);
	mm_region_done(&peer->mmd_region);
	mm_region_done(&peer->gate_region);
	for (uint32_t i = 0; i < PEER_PAGES; i++)
		peer_drop_page(peer, i);
	peer->gpu.cuDevicePrimaryCtxRelease(peer->device);
	mm_gpu_close(&peer->gpu);
	snprintf(command, sizeof(command), "rm -rf '%s'", peer->dir);
	assert_int_equal(system(command), 0);
	pthread_mutex_destroy(&peer->lock);
	pthread_cond_destroy(&peer->changed);
	free(peer);
	return NULL;
}

void peer_await_connection(struct peer *peer)
{
	pthread_mutex_lock(&peer->lock);
	while (!peer->connected)
		pthread_cond_wait(&peer->changed, &peer->lock);
	pthread_mutex_unlock(&peer->lock);
}

void peer_disconnect(struct peer *peer)
{
	shutdown(peer->sock, SHUT_RDWR);
}

struct mm_client_opts peer_client_opts(const struct peer *peer)
{
	return (struct mm_client_opts){ .size = sizeof(struct mm_client_opts),
					.socket_path = peer->path,
					.name = "a test",
					.timeout_ns = PATIENCE_NS };
}

/* ---- requests ---- */

/* Called with the lock held. */
static bool log_take(struct peer *p, enum mm_op op, struct mm_msg *ret_msg)
{
	for (size_t i = 0; i < p->n_log; i++) {
		if (p->log[i].opcode != op)
			continue;
		*ret_msg = p->log[i];
		memmove(&p->log[i], &p->log[i + 1], (p->n_log - i - 1) * sizeof(p->log[0]));
		p->n_log--;
		return true;
	}
	return false;
}

static bool await_request(struct peer *p, enum mm_op op, uint64_t ns, struct mm_msg *ret_msg)
{
	struct timespec until;
	bool found;

	clock_gettime(CLOCK_REALTIME, &until);
	ns += (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(ns / MM_NS_PER_S);
	until.tv_nsec = (long)(ns % MM_NS_PER_S);
	pthread_mutex_lock(&p->lock);
	do
		found = log_take(p, op, ret_msg);
	while (!found && !pthread_cond_timedwait(&p->changed, &p->lock, &until));
	/* The request may have arrived, and the time may be over, while this thread did not run. */
	found = found || log_take(p, op, ret_msg);
	pthread_mutex_unlock(&p->lock);
	return found;
}

struct mm_msg peer_expect(struct peer *peer, enum mm_op op)
{
	struct mm_msg msg = { 0 };

	if (!await_request(peer, op, PATIENCE_NS, &msg))
		fail_msg("no request %d came", op);
	return msg;
}

void peer_absent(struct peer *peer, enum mm_op op, unsigned int ms)
{
	struct mm_msg msg;

	if (await_request(peer, op, ms * MM_NS_PER_MS, &msg))
		fail_msg("request %d came too early", op);
}

/* ---- fds, table, gates ---- */

void peer_batch(struct peer *peer, const struct mm_fd_batch *batch, const int *fds, size_t n_fds)
{
	assert_int_equal(mm_sock_send(peer->sock, batch, sizeof(*batch), fds, n_fds), 0);
}

void peer_pages(struct peer *peer, const uint32_t *ids, uint32_t n)
{
	struct mm_fd_batch batch = { .magic = MM_ABI_MAGIC, .kind = MM_FD_PAGES, .count = n };
	struct mm_msg ack;
	int fds[MM_FD_BATCH_MAX] = { 0 };

	batch.seq = ++peer->seq;
	for (uint32_t i = 0; i < n; i++) {
		batch.page_id[i] = ids[i];
		fds[i] = peer_export(peer, ids[i]);
	}
	peer_batch(peer, &batch, fds, n);
	for (uint32_t i = 0; i < n; i++)
		close(fds[i]);
	ack = peer_expect(peer, MM_OP_FDS_ACK);
	assert_int_equal(ack.arg[0], batch.seq);
	assert_int_equal(ack.result, 0);
}

void peer_map(struct peer *peer, uint32_t entry, uint32_t page_plus_1)
{
	__atomic_store_n(&peer->mmd->map[entry], page_plus_1, __ATOMIC_RELEASE);
}

void peer_gate(struct peer *peer, uint32_t layer, uint64_t word)
{
	__atomic_store_n(&peer->gates->gate[layer].word, word, __ATOMIC_SEQ_CST);
}

/* ---- a model ---- */

static void tensor_put(struct mm_dir_tensor *t, const char *name, uint32_t group)
{
	*t = (struct mm_dir_tensor){ .group = group,
				     .dtype = MM_DTYPE_F32,
				     .rank = 2,
				     .shape = { PEER_PAGE_BYTES / 16, 4 },
				     .bytes = PEER_PAGE_BYTES };
	snprintf(t->name, sizeof(t->name), "%s", name);
}

int peer_store(uint64_t *ret_bytes)
{
	const uint64_t head = MM_ABI_PAGE_BYTES, bytes = head + (1 + PEER_LAYERS) * PEER_PAGE_BYTES;
	int fd = memfd_create("store", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct mm_dir_tensor *tensors;
	struct mm_dir_group *groups;
	struct mm_dir *dir;
	char name[32];

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	dir = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(dir, MAP_FAILED);
	groups = (struct mm_dir_group *)(dir + 1);
	tensors = (struct mm_dir_tensor *)(groups + 1 + PEER_LAYERS);
	*dir = (struct mm_dir){ .magic = MM_DIR_MAGIC,
				.version = 1,
				.n_groups = 1 + PEER_LAYERS,
				.n_tensors = 1 + PEER_LAYERS,
				.groups_offset = (uint64_t)((char *)groups - (char *)dir),
				.tensors_offset = (uint64_t)((char *)tensors - (char *)dir),
				.store_bytes = bytes };
	for (uint32_t g = 0; g <= PEER_LAYERS; g++) {
		groups[g] = (struct mm_dir_group){ head + g * PEER_PAGE_BYTES, PEER_PAGE_BYTES };
		snprintf(name, sizeof(name), g ? "layer.%u" : "embed", g - 1);
		tensor_put(&tensors[g], name, g);
		memset((char *)dir + head + g * PEER_PAGE_BYTES, (int)(0x10 + g), PEER_PAGE_BYTES);
	}
	munmap(dir, bytes);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	*ret_bytes = bytes;
	return fd;
}

static void send_single(struct peer *p, uint32_t kind, int fd)
{
	struct mm_fd_batch batch = { .magic = MM_ABI_MAGIC, .kind = kind, .count = 1 };

	batch.seq = ++p->seq;
	peer_batch(p, &batch, &fd, 1);
	assert_int_equal(peer_expect(p, MM_OP_FDS_ACK).arg[0], batch.seq);
}

int peer_open_channel(struct peer *peer)
{
	int fds[2];

	assert_int_equal(mm_sock_pair(fds), 0);
	send_single(peer, MM_FD_LOAD, fds[1]);
	close(fds[1]);
	return fds[0];
}

void peer_take_file(int channel, struct mm_load_file *ret_file)
{
	size_t n_fds, len;
	int fd;

	assert_int_equal(mm_sock_wait(channel, POLLIN, mm_deadline_ns(PATIENCE_NS)), 0);
	assert_int_equal(mm_sock_recv(channel, ret_file, sizeof(*ret_file), &fd, 1, &n_fds, &len),
			 0);
	assert_int_equal(len, sizeof(*ret_file));
	assert_int_equal(n_fds, ret_file->kind != MM_LOAD_END);
	if (!n_fds)
		return;
	assert_int_equal(fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDONLY);
	close(fd);
}

void peer_take_files(int channel, unsigned int *ret_files)
{
	struct mm_load_file file;

	*ret_files = 0;
	for (;;) {
		peer_take_file(channel, &file);
		if (file.kind == MM_LOAD_END)
			return;
		/* The configuration is first, then weights by name. */
		assert_string_equal(file.name, *ret_files == 0   ? "config.json"
					       : *ret_files == 1 ? "a.safetensors"
								 : "b.safetensors");
		++*ret_files;
	}
}

void peer_take_packs(int channel, struct mm_load_pack *ret_rules, size_t n)
{
	struct mm_load_pack msg;
	size_t n_fds, len, rules = 0;
	int fd;

	for (;;) {
		assert_int_equal(mm_sock_wait(channel, POLLIN, mm_deadline_ns(PATIENCE_NS)), 0);
		assert_int_equal(mm_sock_recv(channel, &msg, sizeof(msg), &fd, 1, &n_fds, &len), 0);
		if (n_fds)
			close(fd);
		if (msg.kind == MM_LOAD_END)
			break;
		if (msg.kind != MM_LOAD_PACK)
			continue;
		assert_int_equal(len, sizeof(msg));
		assert_int_equal(n_fds, 0);
		assert_true(rules < n);
		ret_rules[rules++] = msg;
	}
	assert_int_equal(rules, n);
}

void peer_load_status(int channel, int result, const char *text)
{
	struct mm_load_status status = {
		.magic = MM_ABI_MAGIC, .result = result, .done = 1, .flags = MM_LOAD_F_SHARED
	};

	snprintf(status.text, sizeof(status.text), "%s", text);
	assert_int_equal(mm_sock_send(channel, &status, sizeof(status), NULL, 0), 0);
}

void peer_send_store(struct peer *peer, const uint64_t args[3], int fd)
{
	send_single(peer, MM_FD_STORE, fd);
	close(fd);
	peer_event(peer, &(struct mm_msg){ .opcode = MM_EV_MODEL_LOADED,
					   .arg = { args[0], args[1], args[2] } });
}

/* Page g for group g, all resident; epoch 1. */
void peer_map_model(struct peer *peer)
{
	uint32_t ids[1 + PEER_LAYERS];

	for (uint32_t g = 0; g <= PEER_LAYERS; g++) {
		ids[g] = g;
		peer_map(peer, g, g + 1);
		peer_fill(peer, g, (uint8_t)(0x10 + g));
		if (g)
			peer_gate(peer, g - 1, MM_GATE_RESIDENT);
	}
	peer_pages(peer, ids, 1 + PEER_LAYERS);
	peer_event(peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 1 });
	assert_int_equal(peer_expect(peer, MM_OP_COMMITTED).result, 0);
}

void peer_place_model(struct peer *peer)
{
	peer_map_model(peer);
	peer_event(peer, &(struct mm_msg){ .opcode = MM_EV_MODEL_READY });
}
