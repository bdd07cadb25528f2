/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault-tenant SCENARIO MODEL_DIR: an engine's use of one part of libclient, with a real mmd
 * ($MMD_SOCKET), of which a test lets one call fail: a fault point (MM_FAULT_NTH, in builds that
 * have them) or a call of the C library or the driver (libmm-below.so). Ends with 0: all was done;
 * 1: something failed, with one sentence; 3: libclient broke a promise. Says how many descriptors
 * it has more than in the beginning, and whether the armed fault point was reached.
 */
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mm/client.h"
#include "mm/client_group.h"
#include "mm/client_model.h"

#define CHUNK_BYTES UINT64_C(65536)
#define WAIT_NS     (120 * MM_NS_PER_S)
#define KEY         "fault-tenant"
#define SEALS       (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
#define RANKS       2

enum { DONE = 0, FAILED = 1, BROKEN = 3 };

struct user { /* one client, and what it uses */
	const char *model_dir;
	struct mm_client *client;
	struct mm_model *model;
	struct mm_kv *kv;
	uint32_t layers;
	int32_t device;
	bool ranked;     /* it is one of RANKS, which do the same in the same order */
	char error[512]; /* of the call that failed first */
	int result;
};

/* ---- ranks ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t there; /* that have come to this meeting */
	uint64_t meetings;
	bool failed; /* one has: the others need not wait for it */
} ranks = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, false };

static bool ranks_failed(void)
{
	bool failed;

	pthread_mutex_lock(&ranks.lock);
	failed = ranks.failed;
	pthread_mutex_unlock(&ranks.lock);
	return failed;
}

static void ranks_fail(void)
{
	pthread_mutex_lock(&ranks.lock);
	ranks.failed = true;
	pthread_cond_broadcast(&ranks.changed);
	pthread_mutex_unlock(&ranks.lock);
}

/* No rank releases what another one has not seen yet: a chunk is usable on all ranks or on none. */
static void ranks_meet(const struct user *u)
{
	uint64_t meeting;

	if (!u->ranked)
		return;
	pthread_mutex_lock(&ranks.lock);
	meeting = ranks.meetings;
	if (++ranks.there == RANKS) {
		ranks.there = 0;
		ranks.meetings++;
		pthread_cond_broadcast(&ranks.changed);
	}
	while (ranks.meetings == meeting && !ranks.failed)
		pthread_cond_wait(&ranks.changed, &ranks.lock);
	pthread_mutex_unlock(&ranks.lock);
}

/* ---- parts of libclient ---- */

/* All of the first @n chunks are usable, unless a rank has failed and takes them along. */
static int chunks_check(struct user *u, uint32_t n)
{
	const uint64_t all = (UINT64_C(1) << n) - 1;
	uint64_t bitmap;

	if (mm_kv_usable(u->kv, &bitmap, 1) >= n && (bitmap & all) == all)
		return 0;
	if (!ranks_failed())
		return -EBADMSG;
	snprintf(u->error, sizeof(u->error), "another rank has failed");
	return -EPIPE;
}

static int arena_use(struct user *u)
{
	const struct mm_kv_opts opts = { .size = sizeof(opts),
					 .chunk_bytes = CHUNK_BYTES,
					 .ranges = 2,
					 .chunks_max = 8,
					 .flags = MM_KV_BACKED };
	const uint32_t chunks[] = { 2, 0 };
	struct mm_load_hint hint = { .size = sizeof(hint), .running = 1, .kv_chunks_used = 3 };
	int r = mm_kv_open(u->client, &opts, &u->kv);

	if (!r)
		r = mm_kv_want(u->kv, 4, WAIT_NS);
	if (!r)
		r = chunks_check(u, 4);
	if (!r)
		r = mm_client_hint(u->client, &hint);
	if (!r) {
		ranks_meet(u);
		r = mm_kv_release(u->kv, 1);
	}
	if (!r)
		r = mm_kv_release_many(u->kv, chunks, MM_ARRAY_SIZE(chunks));
	if (!r)
		ranks_meet(u);
	return r ? r : mm_kv_want(u->kv, 5, WAIT_NS);
}

/* mm_client_close() gives back the one that is left. */
static int memory_use(struct user *u)
{
	uint64_t va[3];
	int r = mm_mem_alloc(u->client, 100, 0, &va[0]);

	if (!r)
		r = mm_mem_alloc(u->client, 3 * CHUNK_BYTES, 0, &va[1]);
	if (!r)
		r = mm_mem_free(u->client, va[0]);
	if (!r)
		r = mm_mem_alloc(u->client, 2 * CHUNK_BYTES, 0, &va[2]);
	return r ? r : mm_mem_free(u->client, va[2]);
}

static int swap_await(struct user *u, struct mm_swap *swap)
{
	struct mm_swap_done done = { .size = sizeof(done) };
	struct mm_event event = { .size = sizeof(event) };
	int r;

	while ((r = mm_swap_next(swap, &done)) == -EAGAIN) {
		struct pollfd p = { .fd = mm_client_event_fd(u->client), .events = POLLIN };

		poll(&p, 1, 100);
		while (mm_client_next_event(u->client, &event) == 0)
			;
	}
	if (!r && done.error)
		snprintf(u->error, sizeof(u->error), "a list was not copied: %s",
			 strerror(-done.error));
	return r ? r : done.error;
}

static int swap_use(struct user *u)
{
	const struct mm_swap_piece pieces[] = {
		{ .arena_offset = 0, .swap_offset = 0, .bytes = CHUNK_BYTES },
		{ .arena_offset = CHUNK_BYTES, .swap_offset = CHUNK_BYTES, .bytes = 4096 },
	};
	struct mm_swap *swap;
	int r = arena_use(u);

	if (!r)
		r = mm_swap_open(u->client, 4 * CHUNK_BYTES, &swap);
	for (int way = 0; !r && way < 4; way++) {
		r = way % 2 ? mm_swap_in(swap, pieces, MM_ARRAY_SIZE(pieces), 7)
			    : mm_swap_out(swap, pieces, MM_ARRAY_SIZE(pieces), 7);
		if (!r)
			r = swap_await(u, swap);
	}
	return r;
}

static int own_model_load(struct user *u)
{
	struct mm_model_info info = { .size = sizeof(info) };
	int r = mm_model_load(u->client, u->model_dir, NULL, &u->model);

	if (!r)
		r = mm_model_info(u->model, &info);
	u->layers = info.n_layers;
	return r;
}

static int step_run(struct user *u)
{
	int r = mm_step_begin(u->client), end;

	if (r)
		return r;
	for (uint32_t i = 0; i < u->layers && !r; i++) {
		r = mm_layer_begin(u->model, i, NULL);
		if (!r && mm_layer_home(u->model, i) < 0)
			r = -EBADMSG;
		if (!r)
			r = mm_layer_end(u->model, i, NULL);
	}
	end = r ? mm_step_abandon(u->client, NULL) : mm_step_end(u->client, NULL, NULL);
	return r ? r : end == -ECANCELED ? 0 : end;
}

static int model_use(struct user *u)
{
	struct mm_gate_times *times;
	int r = own_model_load(u);

	if (!r)
		r = mm_gate_times_open(u->model, &times);
	for (int i = 0; !r && i < 3; i++)
		r = step_run(u);
	return r;
}

static int hold_use(struct user *u)
{
	int r = model_use(u);

	if (!r)
		r = mm_model_hold(u->model, WAIT_NS);
	if (!r)
		r = step_run(u);
	if (!r)
		r = mm_model_release(u->model);
	return r ? r : step_run(u);
}

static int unload_use(struct user *u)
{
	int r = 0;

	for (int i = 0; !r && i < 2; i++) {
		r = model_use(u);
		if (!r)
			r = mm_model_unload(u->model);
	}
	return r ? r : arena_use(u);
}

static int turns_use(struct user *u)
{
	const struct mm_turn_opts opts = { .size = sizeof(opts), .mode = MM_TURN_QUANTUM };
	struct mm_load_hint hint = { .size = sizeof(hint), .running = 1 };
	int r = own_model_load(u);

	if (!r)
		r = mm_turn_join(u->client, &opts);
	for (int i = 0; !r && i < 3; i++) {
		r = mm_client_hint(u->client, &hint);
		if (!r)
			r = mm_turn_want(u->client, WAIT_NS);
		if (!r)
			r = step_run(u);
		if (!r)
			r = mm_turn_yield(u->client);
	}
	return r;
}

/* ---- keys: the file's content in a memfd that nobody can change ---- */

static int sealed_copy(const char *dir)
{
	char path[512];
	struct stat st;
	int from, to = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	snprintf(path, sizeof(path), "%.480s/model.safetensors", dir);
	from = open(path, O_RDONLY | O_CLOEXEC);
	if (from < 0 || to < 0 || fstat(from, &st) < 0)
		err(FAILED, "%s", path);
	for (off_t at = 0; at < st.st_size;)
		if (sendfile(to, from, &at, (size_t)(st.st_size - at)) <= 0)
			err(FAILED, "%s", path);
	if (fcntl(to, F_ADD_SEALS, SEALS) < 0)
		err(FAILED, "seals");
	close(from);
	return to;
}

/* Asks for the key; without one it makes the weights, commits them, and asks again. */
static int keys_use(struct user *u)
{
	const struct mm_model_opts opts = {
		.size = sizeof(opts), .n_layers = 8, .key = KEY, .key_bytes = sizeof(KEY)
	};
	int r = mm_model_load_key(u->client, KEY, sizeof(KEY), NULL, &u->model);

	if (r == -ENOENT) {
		const int fd = sealed_copy(u->model_dir);

		r = mm_model_load_files(u->client, &fd, 1, &opts, &u->model);
		close(fd);
	}
	u->layers = opts.n_layers;
	if (!r)
		r = step_run(u);
	return r ? r : mm_model_unload(u->model);
}

/* ---- the engine ---- */

static int group_use(struct user *u)
{
	int r;

	do
		r = mm_group_join(u->client, "ranks", (uint32_t)u->device, RANKS,
				  100 * MM_NS_PER_MS);
	while (r == -ETIMEDOUT && !ranks_failed());
	if (!r)
		r = arena_use(u);
	if (!r)
		r = own_model_load(u);
	for (int i = 0; !r && i < 3; i++)
		r = step_run(u);
	return r;
}

static const struct scenario {
	const char *name;
	int (*use)(struct user *u);
	int clients;
} scenarios[] = {
	{ "kv", arena_use, 1 },    { "mem", memory_use, 1 }, { "swap", swap_use, 1 },
	{ "model", model_use, 1 }, { "hold", hold_use, 1 },  { "unload", unload_use, 1 },
	{ "turns", turns_use, 1 }, { "keys", keys_use, 1 },  { "groups", group_use, RANKS },
};

static const struct scenario *scenario; /* set before the threads */

/* Whatever a call returns, it has a sentence, and the client can be closed. */
static void *user_live(void *data)
{
	struct user *u = data;
	struct mm_client_opts opts = { .size = sizeof(opts),
				       .name = scenario->name,
				       .device = u->device,
				       .timeout_ns = WAIT_NS };
	int r = mm_client_open(&opts, &u->client, u->error, sizeof(u->error));

	if (r) {
		u->result = u->client || !*u->error ? BROKEN : FAILED;
		ranks_fail();
		return NULL;
	}
	r = scenario->use(u);
	if (r && !*u->error)
		snprintf(u->error, sizeof(u->error), "%s", mm_client_error(u->client));
	if (r)
		ranks_fail();
	u->result = !r ? DONE : *u->error ? FAILED : BROKEN;
	if (r && !*u->error)
		snprintf(u->error, sizeof(u->error), "%s, without a sentence", strerror(-r));
	if (mm_client_close(u->client)) {
		u->result = BROKEN;
		snprintf(u->error, sizeof(u->error), "the client cannot be closed");
	}
	return NULL;
}

/* Return: 0: that, too, is what fails. */
static int fds_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static bool fault_fired(void)
{
#ifdef MM_FAULT_INJECTION
	return mm_fault_fired();
#else
	return false;
#endif
}

static void fault_arm(void)
{
#ifdef MM_FAULT_INJECTION
	const char *nth = getenv("MM_FAULT_NTH");

	mm_fault_arm(nth ? strtoull(nth, NULL, 10) : 0);
#endif
}

int main(int argc, char **argv)
{
	static struct user user[RANKS];
	pthread_t thread[RANKS];
	int fds, left, result = DONE;

	for (size_t i = 0; argc == 3 && i < MM_ARRAY_SIZE(scenarios); i++)
		if (!strcmp(argv[1], scenarios[i].name))
			scenario = &scenarios[i];
	if (!scenario)
		errx(2, "usage: fault-tenant SCENARIO MODEL_DIR");
	fds = fds_count();
	fault_arm();
	for (int i = 0; i < scenario->clients; i++) {
		user[i] = (struct user){ .model_dir = argv[2],
					 .device = i,
					 .ranked = scenario->clients > 1 };
		if (scenario->clients == 1)
			user_live(&user[i]);
		else if (pthread_create(&thread[i], NULL, user_live, &user[i]))
			errx(FAILED, "no thread");
	}
	for (int i = 0; i < scenario->clients; i++) {
		if (scenario->clients > 1)
			pthread_join(thread[i], NULL);
		if (user[i].result > result) {
			result = user[i].result;
			warnx("%s", user[i].error);
		}
	}
	left = fds_count();
	printf("fds %d fired %d\n", fds && left ? left - fds : 0, (int)fault_fired());
	return result;
}
