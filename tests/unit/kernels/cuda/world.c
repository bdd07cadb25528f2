/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/host/kernel.h"
#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tests/unit/kernels/cuda/world.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const struct mm_host_kernel *host, *device;
static void (*set_order)(uint64_t order);

static const struct mm_host_kernel *open_module(const char *variable, void **ret_library)
{
	const char *path = getenv(variable);
	const struct mm_host_kernel *kernels;

	assert_non_null(path);
	*ret_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!*ret_library)
		fail_msg("%s", dlerror());
	kernels = dlsym(*ret_library, MM_HOST_KERNELS_SYMBOL);
	assert_non_null(kernels);
	return kernels;
}

void world_open(void)
{
	void *library;

	host = open_module("MM_KERNELS", &library);
	device = open_module("MM_KERNELS_EMULATED", &library);
	set_order = (void (*)(uint64_t))dlsym(library, "mm_emulate_order");
	assert_non_null(set_order);
}

void world_init(struct world *w, uint64_t seed)
{
	*w = (struct world){ .rng = seed };
	w->start = aligned_alloc(64, WORLD_BYTES);
	w->host = aligned_alloc(64, WORLD_BYTES);
	w->device = aligned_alloc(64, WORLD_BYTES);
	assert_true(w->start && w->host && w->device);
	for (size_t i = 0; i < WORLD_BYTES; i++)
		w->start[i] = (char)(i * 7 + 1);
}

void world_done(struct world *w)
{
	free(w->start);
	free(w->host);
	free(w->device);
}

uint32_t world_random(struct world *w)
{
	return (uint32_t)(mm_random_next(&w->rng) >> 32);
}

uint32_t world_below(struct world *w, uint32_t n)
{
	return world_random(w) % n;
}

float world_uniform(struct world *w)
{
	return (float)((double)world_random(w) / 2147483648.0 - 1.0);
}

uint64_t world_add(struct world *w, size_t bytes, size_t align)
{
	/* Every other place is one that vectors may be loaded from. */
	const size_t at = world_below(w, 2)
				  ? mm_round_up(w->used, 16)
				  : mm_round_up(w->used, align) + align * world_below(w, 4);

	w->used = at + bytes + 1 + world_below(w, 40);
	assert_true(at % align == 0 && w->used <= WORLD_BYTES);
	return at;
}

uint64_t world_floats(struct world *w, size_t n)
{
	const uint64_t at = world_add(w, n * sizeof(float), sizeof(float));
	float *x = (float *)(void *)(w->start + at);

	for (size_t i = 0; i < n; i++)
		x[i] = world_uniform(w);
	return at;
}

/* In 16 bits their fields are random, subnormals and both zeros included. */
uint64_t world_elements(struct world *w, size_t n, enum mm_dtype dtype)
{
	uint64_t at;
	uint16_t *x;

	if (dtype == MM_DTYPE_F32)
		return world_floats(w, n);
	at = world_add(w, n * sizeof(*x), sizeof(*x));
	x = (uint16_t *)(void *)(w->start + at);
	for (size_t i = 0; i < n; i++)
		x[i] = dtype == MM_DTYPE_F16 ? (uint16_t)(world_random(w) & 0xbfff)
					     : (uint16_t)((world_random(w) & 0x83ff) | 0x3c00);
	return at;
}

uint64_t world_words(struct world *w, size_t n, uint32_t most)
{
	const uint64_t at = world_add(w, n * sizeof(uint32_t), sizeof(uint32_t));
	uint32_t *x = (uint32_t *)(void *)(w->start + at);

	for (size_t i = 0; i < n; i++)
		x[i] = world_below(w, most);
	return at;
}

uint64_t world_pointers(struct world *w, const uint64_t *at, size_t n)
{
	const uint64_t place = world_add(w, n * sizeof(*at), sizeof(*at));

	memcpy(w->start + place, at, n * sizeof(*at));
	assert_true(w->n_pointers + n <= WORLD_POINTERS);
	for (size_t i = 0; i < n; i++)
		w->pointers[w->n_pointers++] = place + i * sizeof(*at);
	return place;
}

struct world_launch world_launch(enum mm_kernel kernel, const void *args, size_t bytes,
				 const uint16_t *vas, size_t n_vas)
{
	struct world_launch l = { .kernel = kernel, .bytes = bytes, .n_vas = (uint32_t)n_vas };

	assert_true(bytes <= sizeof(l.args) && n_vas <= MM_ARRAY_SIZE(l.vas));
	memcpy(l.args, args, bytes);
	memcpy(l.vas, vas, n_vas * sizeof(*vas));
	return l;
}

static void shift(char *p, uint64_t by)
{
	uint64_t va;

	memcpy(&va, p, sizeof(va));
	va += by;
	memcpy(p, &va, sizeof(va));
}

/* Return: the bytes that a kernel could overwrite: all that are in use, and some more. */
static size_t extent(const struct world *w)
{
	return w->used + 4096 < WORLD_BYTES ? w->used + 4096 : WORLD_BYTES;
}

static void copy(const struct world *w, char *to)
{
	memcpy(to, w->start, extent(w));
	for (size_t i = 0; i < w->n_pointers; i++)
		shift(to + w->pointers[i], (uintptr_t)to);
}

static void run(const struct mm_host_kernel *module, const char *base, const struct world_launch *l)
{
	struct world_launch moved = *l;
	struct mm_launch_shape shape;
	struct mm_host_launch launch;

	while (module->name && strcmp(module->name, mm_kernel_name(l->kernel)) != 0)
		module++;
	if (!module->name)
		fail_msg("%s is in one module only", mm_kernel_name(l->kernel));
	assert_int_equal(module->arg_bytes[0], l->bytes);
	for (uint32_t i = 0; i < l->n_vas; i++)
		shift((char *)moved.args + l->vas[i], (uintptr_t)base);
	mm_launch_shape(l->kernel, moved.args, &shape);
	memcpy(launch.grid, shape.grid, sizeof(launch.grid));
	memcpy(launch.block, shape.block, sizeof(launch.block));
	launch.shared_bytes = shape.shared_bytes;
	module->fn(&launch, (void *const[]){ moved.args });
}

void world_restart(struct world *w)
{
	copy(w, w->device);
}

void world_run(struct world *w, const struct world_launch *l)
{
	run(device, w->device, l);
}

static void check_same(struct world *w, const struct world_launch *l, uint64_t order)
{
	const size_t bytes = extent(w);
	size_t i = 0;

	for (i = 0; i < w->n_pointers; i++)
		shift(w->device + w->pointers[i], (uintptr_t)w->host - (uintptr_t)w->device);
	if (memcmp(w->host, w->device, bytes) == 0)
		return;
	for (i = 0; w->host[i] == w->device[i];)
		i++;
	fail_msg(
		"%s, order %llu: byte %zu is %02x of the host's and %02x of the device's, was %02x",
		mm_kernel_name(l->kernel), (unsigned long long)order, i, (unsigned char)w->host[i],
		(unsigned char)w->device[i], (unsigned char)w->start[i]);
}

void world_compare(struct world *w, const struct world_launch *l)
{
	const uint64_t orders[] = { 0, 1, 2 + world_below(w, 1000) };

	copy(w, w->host);
	run(host, w->host, l);
	for (size_t i = 0; i < MM_ARRAY_SIZE(orders); i++) {
		set_order(orders[i]);
		copy(w, w->device);
		world_run(w, l);
		check_same(w, l, orders[i]);
	}
}
