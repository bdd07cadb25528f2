/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks - one model on several devices: the ranks of a group, one process each
 *
 * ranks RANK SIZE MODEL_DIR FILE STEPS: runs STEPS steps (0: until rank 0's input ends) as RANK of
 * SIZE, on the device of that number. Each layer adds up what the ranks have made of their parts of
 * its bytes and of their KV; FILE is what the processes share for that, and for the schedule, which
 * rank 0 makes. Every result is compared with one that the host computed of the model's host bytes.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mm/client.h>
#include <mm/client_group.h>
#include <mm/gpu.h>

#define RANKS_MAX 16
#define CHUNKS    32
#define ABANDONS  50 /* steps, of which a rank abandons one */
#define SECOND    UINT64_C(1000000000)

/* The decisions of rank 0 for a step. */
struct schedule {
	uint64_t usable; /* a bit per chunk that the step may use */
	uint32_t chunk;  /* the one that the step writes */
	uint32_t n_release;
	uint32_t release[CHUNKS];
	bool stop;
};

struct shared {
	uint64_t arrived[RANKS_MAX]; /* number of the last meeting that the rank has come to */
	uint64_t part[4][RANKS_MAX]; /* by meeting and rank */
	struct schedule schedule;
};

static uint32_t rank, size;
static struct shared *shared;
static struct mm_client *client;
static const struct mm_gpu_api *gpu;
static struct mm_model *model;
static struct mm_model_info info = { .size = sizeof(info) };
static struct mm_kv *kv;
static uint64_t chunk_bytes, meeting;
static CUstream stream;
static bool gave_up;
static uint64_t x;                          /* what the layers hand on */
static char *bytes;                         /* of a layer's tensor, as the device has them */
static uint64_t kv_read[CHUNKS];            /* the words of the KV that the step reads */
static uint64_t kv_host[RANKS_MAX][CHUNKS]; /* as it must be, of all ranks */
static unsigned long wrong, voids, reclaimed, plans;

static void check(int r)
{
	if (r >= 0)
		return;
	warnx("rank %u: %s", rank, mm_client_error(client));
	mm_client_close(client);
	exit(1);
}

/* ---- the engine's collective ---- */

/* Waits until all ranks are here. A rank that is gone never comes: then mmd ends the connection. */
static void meet(uint64_t part)
{
	struct mm_client_info alive = { .size = sizeof(alive) };
	const uint64_t now = ++meeting;

	shared->part[now % 4][rank] = part;
	__atomic_store_n(&shared->arrived[rank], now, __ATOMIC_RELEASE);
	for (uint32_t i = 0, polls = 0; i < size && !gave_up; polls++) {
		if (__atomic_load_n(&shared->arrived[i], __ATOMIC_ACQUIRE) >= now) {
			i++;
			continue;
		}
		if (polls > 100)
			usleep(50);
		if (polls % 256 == 255 && mm_client_info(client, &alive) < 0)
			gave_up = true;
	}
}

static uint64_t sum_of_parts(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < size; i++)
		sum += shared->part[meeting % 4][i];
	return sum;
}

/* ---- what the layers compute, on any rank's part ---- */

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return value ^ value >> 29;
}

static uint64_t layer_part(const char *weights, uint64_t n, uint32_t of, uint64_t in)
{
	uint64_t sum = 0, word;

	for (uint64_t at = n / 8 * of / size; at < n / 8 * (of + 1) / size; at++) {
		memcpy(&word, weights + at * 8, 8);
		sum += mix(word ^ in ^ at);
	}
	return sum;
}

static uint64_t kv_part(const uint64_t *words, const struct schedule *s)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < CHUNKS; i++)
		if (s->usable >> i & 1 && i != s->chunk)
			sum += mix(words[i] + i);
	return sum;
}

static const char *tensor_name(uint32_t layer)
{
	static char name[MM_TENSOR_NAME_BYTES];

	snprintf(name, sizeof(name), "model.layers.%u.mlp.down_proj.weight", layer);
	return name;
}

/* The step as it must come out: of the host's copy of the weights, for all ranks. */
static uint64_t expected(const struct schedule *s, uint64_t step)
{
	uint64_t value = mix(step), sum = 0, n;

	for (uint32_t i = 0; i < size; i++)
		sum += kv_part(kv_host[i], s);
	value = mix(value + sum);
	for (uint32_t layer = 0; layer < info.n_layers; layer++) {
		const char *host = mm_model_store(model, tensor_name(layer), &n);

		sum = 0;
		for (uint32_t i = 0; i < size; i++)
			sum += layer_part(host, n, i, value);
		value = mix(value + sum);
	}
	return value;
}

/* ---- a step on the device ---- */

static uint64_t layer_bytes;

static void CUDA_CB kv_computed(void *unused)
{
	const struct schedule *s = &shared->schedule;

	(void)unused;
	meet(kv_part(kv_read, s));
	x = mix(x + sum_of_parts());
}

static void CUDA_CB layer_computed(void *unused)
{
	(void)unused;
	meet(layer_part(bytes, layer_bytes, rank, x));
	x = mix(x + sum_of_parts());
}

static CUdeviceptr chunk_va(uint32_t chunk)
{
	return mm_kv_range_va(kv, 0) + chunk * chunk_bytes;
}

static void step_enqueue(const struct schedule *s)
{
	struct mm_tensor t = { .size = sizeof(t) };

	for (uint32_t i = 0; i < CHUNKS; i++)
		if (s->usable >> i & 1)
			gpu->cuMemcpyDtoHAsync(&kv_read[i], chunk_va(i), 8, stream);
	gpu->cuLaunchHostFunc(stream, kv_computed, NULL);
	for (uint32_t layer = 0; layer < info.n_layers; layer++) {
		check(mm_model_tensor(model, tensor_name(layer), &t));
		layer_bytes = t.bytes;
		check(mm_layer_begin(model, layer, stream));
		gpu->cuMemcpyDtoHAsync(bytes, t.va, t.bytes, stream);
		gpu->cuLaunchHostFunc(stream, layer_computed, NULL);
		check(mm_layer_end(model, layer, stream));
	}
}

/* The KV of a step that counts. */
static void token_write(const struct schedule *s)
{
	const uint64_t word = mix(x + rank);

	if (s->usable && (gpu->cuMemcpyHtoDAsync(chunk_va(s->chunk), &word, 8, stream) ||
			  gpu->cuStreamSynchronize(stream)))
		errx(1, "rank %u: the device takes no KV", rank);
}

/* [step] */
/* A step that is void on one rank is void on all: each gets -ECANCELED, and repeats it. */
static void step_run(const struct schedule *s, uint64_t step)
{
	/* Now and then a rank breaks a step off, each at another time. */
	bool abandons = step % ABANDONS == ABANDONS - 1 && rank == step / ABANDONS % size;
	int r;

	do {
		check(mm_step_begin(client));
		x = mix(step);
		step_enqueue(s);
		r = abandons ? mm_step_abandon(client, stream) : mm_step_end(client, stream, NULL);
		if (abandons && !r)
			r = -ECANCELED;
		abandons = false;
		voids += r == -ECANCELED;
	} while (r == -ECANCELED);
	check(r);
}
/* [end] */

/* ---- the schedule, on rank 0 ---- */

static bool input_ended(void)
{
	struct pollfd fd = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

/* Gives back what mmd reclaims, from whatever device; else asks for more or less. */
static void schedule_make(struct schedule *s, uint64_t step)
{
	uint64_t usable = 0;
	uint32_t owed = mm_kv_owed(kv, NULL), n;

	memset(s, 0, sizeof(*s));
	n = mm_kv_usable(kv, &usable, 1);
	if (!owed && step % 16 == 15 && n > 4)
		owed = n / 3;
	else if (step % 16 == 0)
		mm_kv_want(kv, CHUNKS, 0);
	reclaimed += mm_kv_owed(kv, NULL);
	for (uint32_t i = CHUNKS; i-- && owed;) {
		if (!(usable >> i & 1))
			continue;
		s->release[s->n_release++] = i;
		usable &= ~(UINT64_C(1) << i);
		owed--;
	}
	s->usable = usable;
	for (uint32_t i = 0; i < CHUNKS; i++) {
		s->chunk = (uint32_t)(step + i) % CHUNKS;
		if (usable >> s->chunk & 1)
			break;
	}
}

/* [kv] */
/* Every rank releases what rank 0 has chosen; a chunk that comes back later is zero. */
static void schedule_apply(const struct schedule *s)
{
	if (s->n_release)
		check(mm_kv_release_many(kv, s->release, s->n_release));
	for (uint32_t k = 0; k < s->n_release; k++)
		for (uint32_t i = 0; i < size; i++)
			kv_host[i][s->release[k]] = 0;
}
/* [end] */

static void result_check(const struct schedule *s, uint64_t step)
{
	const uint64_t want = expected(s, step);

	wrong += x != want;
	for (uint32_t i = 0; i < size && s->usable; i++)
		kv_host[i][s->chunk] = mix(want + i);
}

/* ---- beginning and end ---- */

/* [join] */
static void group_open(const char *dir)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .device = (int)rank };
	struct mm_kv_opts kv_opts = { .size = sizeof(kv_opts), .chunks_max = CHUNKS };
	struct mm_client_info client_info = { .size = sizeof(client_info) };
	char name[16], why[256];

	snprintf(name, sizeof(name), "rank%u", rank);
	opts.name = name;
	if (mm_client_open(&opts, &client, why, sizeof(why)) < 0)
		errx(3, "rank %u: %s", rank, why);
	check(mm_group_join(client, "ranks", rank, size, 60 * SECOND));
	check(mm_model_load(client, dir, NULL, &model));
	check(mm_model_info(model, &info));
	check(mm_client_info(client, &client_info));
	kv_opts.chunk_bytes = chunk_bytes = client_info.page_bytes;
	check(mm_kv_open(client, &kv_opts, &kv));
}
/* [end] */

static void prepare(const char *path)
{
	CUcontext context;
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	if (fd < 0 || ftruncate(fd, sizeof(*shared)) < 0)
		err(1, "%s", path);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bytes = malloc(info.layer_bytes);
	if (shared == MAP_FAILED || !bytes)
		err(1, "%s", path);
	gpu = mm_client_gpu(client);
	if (gpu->cuDevicePrimaryCtxRetain(&context, (int)rank) || gpu->cuCtxSetCurrent(context) ||
	    gpu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		errx(1, "rank %u: the driver gives no stream", rank);
}

static uint64_t steps_run(uint64_t most)
{
	struct mm_client_info client_info = { .size = sizeof(client_info) };
	uint64_t step = 0;

	for (;;) {
		struct schedule s;

		if (!rank) {
			schedule_make(&shared->schedule, step);
			shared->schedule.stop = most ? step == most : input_ended();
		}
		meet(0);
		s = shared->schedule;
		if (s.stop || gave_up)
			break;
		schedule_apply(&s);
		step_run(&s, step);
		token_write(&s);
		result_check(&s, step);
		step++;
	}
	check(mm_client_info(client, &client_info));
	plans = client_info.plan_changes;
	return step;
}

int main(int argc, char **argv)
{
	uint64_t steps;

	if (argc != 6)
		errx(2, "usage: ranks RANK SIZE MODEL_DIR FILE STEPS");
	rank = (uint32_t)strtoul(argv[1], NULL, 10);
	size = (uint32_t)strtoul(argv[2], NULL, 10);
	group_open(argv[3]);
	prepare(argv[4]);
	printf("ready\n");
	fflush(stdout);
	steps = steps_run(strtoull(argv[5], NULL, 10));
	printf("rank %u: %llu steps, %lu void, %lu plans, %lu reclaimed, %lu wrong\n", rank,
	       (unsigned long long)steps, voids, plans, reclaimed, wrong);
	gpu->cuStreamDestroy(stream);
	mm_client_close(client);
	return wrong > 0;
}
