/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant - an engine that is compiled against headers of another time
 *
 * abi-tenant MODEL_DIR: loads the model, prints "ready", and once a line arrives on its input runs
 * steps until a plan change was reported, uses KV memory, swap space and turns, and ends with "ok".
 * Each struct that the library fills lies between bytes that must stay as they are; a struct that
 * the header made longer (MM_FUTURE, by future.py) must come back with zeros in the new part.
 */
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mm/client.h>
#include <mm/gpu.h>

#define CHUNKS   4
#define STEPS    20
#define PATTERN  0xa5
#define PAUSE_MS 180000

/* A struct to be filled, with bytes behind it that are not the library's. */
#define GUARDED(type, name)                   \
	struct {                              \
		struct type s;                \
		unsigned char behind[64];     \
	} name;                               \
	memset(&name, PATTERN, sizeof(name)); \
	name.s.size = sizeof(name.s)

#ifdef MM_FUTURE
#define FUTURE_IS_ZERO(s) all_are((s).future, sizeof((s).future), 0)
#else
#define FUTURE_IS_ZERO(s) true
#endif

#define CHECK_GUARDED(name)                                                 \
	do {                                                                \
		if (!all_are(name.behind, sizeof(name.behind), PATTERN))    \
			errx(1, #name ": bytes behind it were written");    \
		if (name.s.size != sizeof(name.s))                          \
			errx(1, #name ": its size was changed");            \
		if (!FUTURE_IS_ZERO(name.s))                                \
			errx(1, #name ": what the library lacks is not 0"); \
	} while (0)

struct engine {
	struct mm_client *client;
	struct mm_model *model;
	struct mm_kv *kv;
	struct mm_swap *swap;
	const struct mm_gpu_api *gpu;
	CUstream stream;
	uint64_t page_bytes;
	uint32_t n_layers;
	uint32_t events[MM_EVENT_DISCONNECTED + 1]; /* by kind */
};

static bool all_are(const void *bytes, size_t n, unsigned char value)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < n; i++)
		if (at[i] != value)
			return false;
	return true;
}

static void check(const struct engine *e, int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: %d: %s", what, r, mm_client_error(e->client));
}

static void check_gpu(CUresult r, const char *what)
{
	if (r)
		errx(1, "%s: the driver says %d", what, (int)r);
}

#define CHECK(e, call)  check(e, call, #call)
#define CHECK_GPU(call) check_gpu(call, #call)

/* ---- events ---- */

static void take_events(struct engine *e)
{
	for (;;) {
		GUARDED(mm_event, event);
		if (mm_client_next_event(e->client, &event.s) < 0)
			return;
		CHECK_GUARDED(event);
		if (event.s.kind == MM_EVENT_DISCONNECTED)
			errx(1, "%s", mm_client_error(e->client));
		if (event.s.kind < MM_EVENT_DISCONNECTED)
			e->events[event.s.kind]++;
	}
}

static void await_event(struct engine *e, enum mm_event_kind kind)
{
	struct pollfd fd = { .fd = mm_client_event_fd(e->client), .events = POLLIN };

	for (take_events(e); !e->events[kind]; take_events(e))
		if (poll(&fd, 1, PAUSE_MS) <= 0)
			errx(1, "event %d did not arrive", (int)kind);
}

/* ---- the model ---- */

static void open_client(struct engine *e)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .name = "abi" };
	CUcontext context;
	char why[256];
	GUARDED(mm_client_info, info);

	if (mm_client_abi() >> 16 != MM_CLIENT_ABI_MAJOR)
		errx(1, "the library's ABI is %#x", (unsigned int)mm_client_abi());
	if (mm_client_open(&opts, &e->client, why, sizeof(why)) < 0)
		errx(3, "%s", why);
	CHECK(e, mm_client_info(e->client, &info.s));
	CHECK_GUARDED(info);
	e->page_bytes = info.s.page_bytes;
	e->gpu = mm_client_gpu(e->client);
	CHECK_GPU(e->gpu->cuDevicePrimaryCtxRetain(&context, 0));
	CHECK_GPU(e->gpu->cuCtxSetCurrent(context));
	CHECK_GPU(e->gpu->cuStreamCreate(&e->stream, CU_STREAM_NON_BLOCKING));
}

/* Two rules, so that the second lies one pack_size behind the first. */
static void load_model(struct engine *e, const char *dir)
{
	static const char *const mlp[] = { "model.layers.*.mlp.gate_proj.weight",
					   "model.layers.*.mlp.up_proj.weight" };
	static const char *const kv[] = { "model.layers.*.self_attn.k_proj.weight",
					  "model.layers.*.self_attn.v_proj.weight" };
	const struct mm_pack packs[] = {
		{ .name = "model.layers.*.mlp.gate_up", .members = mlp, .n_members = 2 },
		{ .name = "model.layers.*.self_attn.kv", .members = kv, .n_members = 2 },
	};
	const struct mm_model_opts opts = {
		.size = sizeof(opts), .packs = packs, .n_packs = 2, .pack_size = sizeof(packs[0])
	};
	GUARDED(mm_model_info, info);

	CHECK(e, mm_model_load(e->client, dir, &opts, &e->model));
	CHECK(e, mm_model_info(e->model, &info.s));
	CHECK_GUARDED(info);
	e->n_layers = info.s.n_layers;
}

static bool layer_is_right(struct engine *e, uint32_t layer, unsigned char *out)
{
	char name[64];
	const void *host;
	uint64_t bytes;
	GUARDED(mm_tensor, tensor);

	snprintf(name, sizeof(name), "model.layers.%u.self_attn.kv", layer);
	CHECK(e, mm_model_tensor(e->model, name, &tensor.s));
	CHECK_GUARDED(tensor);
	host = mm_model_store(e->model, name, &bytes);
	if (!host || bytes != tensor.s.bytes || !(tensor.s.flags & MM_TENSOR_PACK))
		errx(1, "%s is not the pack of the second rule", name);
	CHECK(e, mm_layer_begin(e->model, layer, e->stream));
	CHECK_GPU(e->gpu->cuMemcpyDtoHAsync(out, tensor.s.va, bytes, e->stream));
	CHECK_GPU(e->gpu->cuStreamSynchronize(e->stream));
	CHECK(e, mm_layer_end(e->model, layer, e->stream));
	return memcmp(out, host, bytes) == 0;
}

/* Return: whether layers cycled. */
static bool run_step(struct engine *e, unsigned char *out)
{
	struct mm_load_hint hint = { .size = sizeof(hint), .running = 1 };
	bool right = true;
	GUARDED(mm_step_info, info);

	CHECK(e, mm_client_hint(e->client, &hint));
	CHECK(e, mm_step_begin(e->client));
	for (uint32_t layer = 0; layer < e->n_layers; layer++)
		right &= layer_is_right(e, layer, out);
	if (mm_step_end(e->client, e->stream, &info.s) < 0)
		return false; /* the gates were aborted */
	CHECK_GUARDED(info);
	if (!right)
		errx(1, "a layer was wrong");
	return info.s.gated > 0;
}

static void run_steps(struct engine *e, uint64_t layer_bytes)
{
	unsigned char *out = malloc(layer_bytes);
	uint32_t gated = 0;

	if (!out)
		err(1, "memory for a layer");
	while (gated < STEPS) {
		gated += run_step(e, out);
		take_events(e);
	}
	if (!e->events[MM_EVENT_PLAN_CHANGED])
		errx(1, "no plan change was reported");
	free(out);
}

/* ---- KV memory, swap space, turns ---- */

static void use_kv(struct engine *e)
{
	const struct mm_kv_opts opts = { .size = sizeof(opts),
					 .chunk_bytes = e->page_bytes,
					 .ranges = 1,
					 .chunks_max = CHUNKS };
	unsigned char *host = malloc(e->page_bytes);
	uint64_t usable;

	CHECK(e, mm_kv_open(e->client, &opts, &e->kv));
	if (mm_kv_want(e->kv, CHUNKS, 0) == 0)
		errx(1, "memory came before it could");
	while (mm_kv_usable(e->kv, &usable, 1) < CHUNKS)
		await_event(e, MM_EVENT_KV_GRANTED);
	CHECK_GPU(e->gpu->cuMemsetD8Async(mm_kv_range_va(e->kv, 0), 7, e->page_bytes, e->stream));
	CHECK_GPU(e->gpu->cuStreamSynchronize(e->stream));
	CHECK_GPU(e->gpu->cuMemcpyDtoH(host, mm_kv_range_va(e->kv, 0), e->page_bytes));
	if (!all_are(host, e->page_bytes, 7))
		errx(1, "KV memory does not keep what it is given");
	free(host);
}

static void swap_once(struct engine *e, bool in, uint64_t number)
{
	const struct mm_swap_piece piece = { .bytes = (uint32_t)e->page_bytes };
	GUARDED(mm_swap_done, done);

	e->events[MM_EVENT_SWAPPED] = 0;
	CHECK(e, in ? mm_swap_in(e->swap, &piece, 1, number)
		    : mm_swap_out(e->swap, &piece, 1, number));
	await_event(e, MM_EVENT_SWAPPED);
	CHECK(e, mm_swap_next(e->swap, &done.s));
	CHECK_GUARDED(done);
	if (done.s.user_data != number || done.s.error)
		errx(1, "list %u: error %d", (unsigned int)done.s.user_data, (int)done.s.error);
}

static void use_swap(struct engine *e)
{
	unsigned char byte = 0;

	CHECK(e, mm_swap_open(e->client, e->page_bytes, &e->swap));
	swap_once(e, false, 41);
	CHECK_GPU(e->gpu->cuMemsetD8Async(mm_kv_range_va(e->kv, 0), 0, e->page_bytes, e->stream));
	CHECK_GPU(e->gpu->cuStreamSynchronize(e->stream));
	swap_once(e, true, 42);
	CHECK_GPU(e->gpu->cuMemcpyDtoH(&byte, mm_kv_range_va(e->kv, 0) + e->page_bytes - 1, 1));
	if (byte != 7)
		errx(1, "what was swapped out did not come back");
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		CHECK(e, mm_kv_release(e->kv, chunk));
}

static void use_turns(struct engine *e)
{
	struct mm_turn_opts opts = { .size = sizeof(opts), .mode = MM_TURN_QUANTUM };

	CHECK(e, mm_turn_join(e->client, &opts));
	CHECK(e, mm_turn_want(e->client, MM_TIMEOUT_NEVER));
	CHECK(e, mm_turn_yield(e->client));
	opts.mode = MM_TURN_NONE;
	CHECK(e, mm_turn_join(e->client, &opts));
}

int main(int argc, char **argv)
{
	struct engine e = { 0 };
	GUARDED(mm_model_info, info);

	if (argc != 2)
		errx(2, "usage: abi-tenant MODEL_DIR");
	open_client(&e);
	load_model(&e, argv[1]);
	CHECK(&e, mm_model_info(e.model, &info.s));
	printf("ready: ABI %#x, version %s\n", (unsigned int)mm_client_abi(), mm_client_version());
	fflush(stdout);
	if (getchar() == EOF)
		errx(1, "no line came");
	run_steps(&e, info.s.layer_bytes);
	use_kv(&e);
	use_swap(&e);
	use_turns(&e);
	e.gpu->cuStreamDestroy(e.stream);
	mm_client_close(e.client);
	printf("ok\n");
	return 0;
}
