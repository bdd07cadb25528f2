/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/emulate/emulate.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/emulate/device.h"
#include "kernels/emulate/fiber.h"
#include "libclient/support/lock.h"

#define THREADS_MAX  1024u
#define WARP         32u
#define SITES_MAX    16u
#define STATIC_BYTES (48u << 10)
#define SHARED_BYTES (256u << 10) /* more than any launch may have */
#define SHARED_ALIGN (size_t)64
#define SHARED_GAP   (size_t)64
#define GUARD_BYTES  (64u << 10) /* at least a page of any host */
#define POISON       0xff
#if defined(MM_EMULATE_TSAN)
#define ONE_FIBER_EACH 1 /* so that races between threads that never wait are found */
#else
#define ONE_FIBER_EACH 0
#endif

enum state { FRESH, READY, AT_BARRIER, AT_EXCHANGE, ENDED };

struct thread {
	enum state state;
	struct mm_fiber *fiber; /* the fiber that runs it, unless FRESH or ENDED */
	/* The thread's arguments of an exchange, and its result. */
	enum mm_emulate_exchange kind;
	uint32_t mask, lane, width;
	uint64_t value, result;
	int line;
};

struct site { /* an object in static shared memory */
	const void *key;
	char *at;
	uint64_t block; /* number of the block for which it was poisoned */
};

static struct mm_lock idle_lock = MM_LOCK_INIT;

struct emulator {
	struct emulator *next MM_GUARDED_BY(idle_lock); /* next idle emulator */
	const char *name;
	const struct mm_host_launch *shape;
	void (*run)(const void *args);
	const void *args;
	struct mm_fiber home; /* the launching thread's stack */
	bool faulted;

	uint64_t order, blocks, block_number; /* block_number: how many blocks were begun */
	struct mm_uint3 block;                /* index of the running block */
	uint32_t n_threads, n_ended, n_waiting;
	int barrier_line;
	bool barrier_phase;
	uint32_t warp_phases;                           /* one bit for each warp */
	char start_place, end_place, barrier_places[2]; /* for mm_fiber_publish() */
	char warp_places[THREADS_MAX / WARP][2];
	uint32_t at; /* index of the running thread in order_of[] */
	uint16_t order_of[THREADS_MAX];
	struct thread threads[THREADS_MAX];

	uint32_t n_fibers, n_free;
	struct mm_fiber *running;
	struct mm_fiber *free[THREADS_MAX];
	struct mm_fiber fibers[THREADS_MAX];

	char *shared; /* SHARED_BYTES, then a page that cannot be accessed */
	size_t static_used;
	uint32_t n_sites;
	struct site sites[SITES_MAX];
};

static uint64_t order_now;

static struct emulator *idle_emulators MM_GUARDED_BY(idle_lock);

static __thread struct emulator *current __attribute__((tls_model("initial-exec")));
static __thread struct mm_uint3 thread_index __attribute__((tls_model("initial-exec")));

void mm_emulate_order(uint64_t order)
{
	__atomic_store_n(&order_now, order, __ATOMIC_RELAXED);
}

__attribute__((format(printf, 1, 2), noreturn)) static void kernel_fail(const char *format, ...)
{
	const struct emulator *e = current;
	va_list list;

	fprintf(stderr, "%s: block (%u, %u, %u), thread %u: ", e->name, e->block.x, e->block.y,
		e->block.z, e->order_of[e->at]);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	abort();
}

/* ---- order ---- */

static uint64_t mix_bits(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 29;
}

/*
 * Return: the @n-th block of the order. A step that has no divisor in common with the number of
 * blocks reaches each once.
 */
static uint64_t block_nth(const struct emulator *e, uint64_t n)
{
	uint64_t step = mix_bits(e->order) % e->blocks, a, b;

	if (e->order == MM_EMULATE_FORWARD)
		return n;
	if (e->order == MM_EMULATE_REVERSE)
		return e->blocks - 1 - n;
	do {
		step = step % e->blocks + 1;
		for (a = step, b = e->blocks; b;) {
			const uint64_t rest = a % b;

			a = b;
			b = rest;
		}
	} while (a != 1);
	return (uint64_t)(((unsigned __int128)n * step + mix_bits(~e->order)) % e->blocks);
}

static void threads_order(struct emulator *e)
{
	uint64_t x = e->order + e->block_number;

	for (uint32_t i = 0; i < e->n_threads; i++)
		e->order_of[i] =
			(uint16_t)(e->order == MM_EMULATE_REVERSE ? e->n_threads - 1 - i : i);
	if (e->order == MM_EMULATE_FORWARD || e->order == MM_EMULATE_REVERSE)
		return;
	for (uint32_t i = e->n_threads - 1; i > 0; i--) {
		const uint32_t j = (uint32_t)((x = mix_bits(x + i)) % (i + 1));
		const uint16_t t = e->order_of[i];

		e->order_of[i] = e->order_of[j];
		e->order_of[j] = t;
	}
}

/* ---- which thread runs ---- */

static struct thread *running_thread(struct emulator *e)
{
	return &e->threads[e->order_of[e->at]];
}

/* Makes the thread at index @at of the order the running one. */
static void thread_run(struct emulator *e, uint32_t at)
{
	const uint32_t t = e->order_of[at];
	const uint32_t *size = e->shape->block;

	e->at = at;
	thread_index = size[1] == 1 && size[2] == 1
			       ? (struct mm_uint3){ t, 0, 0 }
			       : (struct mm_uint3){ t % size[0], t / size[0] % size[1],
						    t / size[0] / size[1] };
}

/* Makes the next thread that can run the running one. Return: false, there is none. */
static bool thread_run_next(struct emulator *e)
{
	for (uint32_t i = 1; i <= e->n_threads; i++) {
		const uint32_t at = e->at + i < e->n_threads ? e->at + i : e->at + i - e->n_threads;
		const enum state state = e->threads[e->order_of[at]].state;

		if (state == FRESH || state == READY) {
			thread_run(e, at);
			return true;
		}
	}
	return false;
}

/* Begins the next block. Return: false, there was none left. */
static bool block_begin(struct emulator *e)
{
	const uint32_t *grid = e->shape->grid;
	uint64_t n;

	if (e->block_number == e->blocks)
		return false;
	n = block_nth(e, e->block_number++);
	mm_fiber_observe(&e->end_place); /*
 * Blocks run in order: a block may reuse the shared memory of the last one.
 */
	mm_fiber_publish(&e->start_place);
	e->block = (struct mm_uint3){ (uint32_t)(n % grid[0]), (uint32_t)(n / grid[0] % grid[1]),
				      (uint32_t)(n / grid[0] / grid[1]) };
	e->n_ended = e->n_waiting = 0;
	for (uint32_t i = 0; i < e->n_threads; i++)
		e->threads[i].state = FRESH;
	if (e->block_number == 1 || e->order > MM_EMULATE_REVERSE)
		threads_order(e);
	thread_run(e, 0);
	return true;
}

static void run_threads(void *arg);

static struct mm_fiber *fiber_take(struct emulator *e)
{
	struct mm_fiber *f = NULL;

	if (ONE_FIBER_EACH)
		f = &e->fibers[e->order_of[e->at]];
	else
		f = e->n_free ? e->free[--e->n_free] : &e->fibers[e->n_fibers++];
	if (!f->entry && mm_fiber_create(f, run_threads, e))
		kernel_fail("no memory for its stack");
	return f;
}

static void fiber_go_to(struct emulator *e, struct mm_fiber *to)
{
	struct mm_fiber *from = e->running;

	e->running = to;
	mm_fiber_switch(from, to);
}

/* Suspends the running thread, which waits at @line, and goes on with one that can run. */
static void thread_give_way(struct emulator *e, enum state state, int line)
{
	struct thread *t = running_thread(e);

	t->state = state;
	t->line = line;
	t->fiber = e->running;
	if (!thread_run_next(e))
		kernel_fail("waits at line %d for ever; %u of %u threads are at a barrier, "
			    "%u have ended",
			    line, e->n_waiting, e->n_threads, e->n_ended);
	t = running_thread(e);
	fiber_go_to(e, t->state == FRESH ? fiber_take(e) : t->fiber);
}

static void thread_end(struct emulator *e)
{
	struct thread *t = running_thread(e), *warp = t - (uint32_t)(t - e->threads) % WARP;
	const uint32_t lane = (uint32_t)(t - warp);

	if (e->n_waiting)
		kernel_fail("ends while %u threads wait at the barrier of line %d", e->n_waiting,
			    e->barrier_line);
	for (uint32_t i = 0; i < WARP && &warp[i] < e->threads + e->n_threads; i++)
		if (warp[i].state == AT_EXCHANGE && warp[i].mask >> lane & 1)
			kernel_fail("ends while lane %u waits for it at line %d", i, warp[i].line);
	t->state = ENDED;
	e->n_ended++;
	mm_fiber_publish(&e->end_place);
}

/*
 * The function of a fiber: runs one thread after the other, until a thread that waited can go on.
 */
static void run_threads(void *arg)
{
	struct emulator *e = arg;

	for (;;) {
		struct thread *t;
		bool more;

		mm_fiber_observe(&e->start_place);
		running_thread(e)->state = READY;
		e->run(e->args);
		thread_end(e);
		more = e->n_ended == e->n_threads ? block_begin(e) : thread_run_next(e);
		if (!more && e->n_ended < e->n_threads)
			kernel_fail("ended, and all others wait for ever");
		t = running_thread(e);
		if (more && t->state == FRESH &&
		    (!ONE_FIBER_EACH || &e->fibers[t - e->threads] == e->running))
			continue;
		if (!ONE_FIBER_EACH)
			e->free[e->n_free++] = e->running;
		if (!more)
			fiber_go_to(e, &e->home);
		else
			fiber_go_to(e, t->state == FRESH ? fiber_take(e) : t->fiber);
	}
}

/* ---- what kernels call ---- */

struct mm_uint3 mm_emulate_thread_index(void)
{
	return thread_index;
}

struct mm_uint3 mm_emulate_block_index(void)
{
	return current->block;
}

struct mm_uint3 mm_emulate_block_size(void)
{
	const uint32_t *n = current->shape->block;

	return (struct mm_uint3){ n[0], n[1], n[2] };
}

struct mm_uint3 mm_emulate_grid_size(void)
{
	const uint32_t *n = current->shape->grid;

	return (struct mm_uint3){ n[0], n[1], n[2] };
}

void mm_emulate_barrier(int line)
{
	struct emulator *e = current;
	char *place = &e->barrier_places[e->barrier_phase];

	if (e->n_ended)
		kernel_fail("waits at the barrier of line %d, for which %u threads will not come",
			    line, e->n_ended);
	if (e->n_waiting && e->barrier_line != line)
		kernel_fail("waits at the barrier of line %d, others at that of line %d", line,
			    e->barrier_line);
	e->barrier_line = line;
	mm_fiber_publish(place);
	if (++e->n_waiting < e->n_threads) {
		thread_give_way(e, AT_BARRIER, line);
	} else {
		for (uint32_t i = 0; i < e->n_threads; i++)
			e->threads[i].state = READY;
		e->n_waiting = 0;
		e->barrier_phase = !e->barrier_phase;
	}
	mm_fiber_observe(place);
}

/* Return: the lane that lane @i reads from, @i itself where there is none. */
static uint32_t exchange_source(const struct thread *t, uint32_t i)
{
	const uint32_t segment = i & ~(t->width - 1), own = i & (t->width - 1);

	switch (t->kind) {
	case MM_EMULATE_FROM:
		return segment | (t->lane & (t->width - 1));
	case MM_EMULATE_UP:
		return own < t->lane ? i : i - t->lane;
	case MM_EMULATE_DOWN:
		return t->lane >= t->width - own ? i : i + t->lane;
	case MM_EMULATE_XOR:
		return ((i ^ t->lane) & ~(t->width - 1)) > segment ? i : i ^ t->lane;
	default:
		return i;
	}
}

static uint64_t warp_ballot(const struct thread *warp, uint32_t mask)
{
	uint64_t votes = 0;

	for (uint32_t i = 0; i < WARP; i++)
		if (mask >> i & 1)
			votes |= warp[i].value << i;
	return votes;
}

/* All lanes of @mask have come: gives each its result. */
static void warp_exchange(struct thread *warp, uint32_t mask)
{
	const uint32_t first = (uint32_t)__builtin_ctz(mask);
	const uint64_t votes = warp[first].kind == MM_EMULATE_BALLOT ? warp_ballot(warp, mask) : 0;

	for (uint32_t i = 0; i < WARP; i++) {
		uint32_t from;

		if (!(mask >> i & 1))
			continue;
		from = exchange_source(&warp[i], i);
		if (from >= WARP || !(mask >> from & 1))
			kernel_fail("lane %u reads from lane %u, which is not in the mask %08x, "
				    "at line %d",
				    i, from, mask, warp[i].line);
		warp[i].result = warp[i].kind == MM_EMULATE_BALLOT ? votes : warp[from].value;
		warp[i].state = READY;
	}
}

/* Return: whether all lanes of the running thread's mask have come to the same exchange. */
static bool warp_is_complete(const struct emulator *e, const struct thread *warp,
			     const struct thread *t)
{
	bool all = true;

	for (uint32_t i = 0; i < WARP; i++) {
		const struct thread *o = &warp[i];

		if (!(t->mask >> i & 1))
			continue;
		if (o >= e->threads + e->n_threads || o->state == ENDED)
			kernel_fail("waits at line %d for lane %u, which %s", t->line, i,
				    o >= e->threads + e->n_threads ? "there is not" : "has ended");
		if (o != t && (o->state != AT_EXCHANGE || o->mask != t->mask ||
			       o->kind != t->kind || o->line != t->line))
			all = false;
	}
	return all;
}

uint64_t mm_emulate_exchange(enum mm_emulate_exchange kind, uint32_t mask, uint64_t value,
			     uint32_t lane, uint32_t width, int line)
{
	struct emulator *e = current;
	struct thread *t = running_thread(e), *warp = t - (uint32_t)(t - e->threads) % WARP;
	const uint32_t number = (uint32_t)(warp - e->threads) / WARP;
	char *place = &e->warp_places[number][e->warp_phases >> number & 1];

	if (!(mask >> (t - warp) & 1))
		kernel_fail("is not in the mask %08x that it gives at line %d", mask, line);
	t->kind = kind;
	t->mask = mask;
	t->value = value;
	t->lane = lane;
	t->width = width;
	t->line = line;
	if (kind == MM_EMULATE_SYNC)
		mm_fiber_publish(place);
	if (warp_is_complete(e, warp, t)) {
		warp_exchange(warp, mask);
		if (kind == MM_EMULATE_SYNC)
			e->warp_phases ^= 1u << number;
	} else {
		thread_give_way(e, AT_EXCHANGE, line);
	}
	if (kind == MM_EMULATE_SYNC)
		mm_fiber_observe(place);
	return t->result;
}

/* TSan would take memset() for an access of this thread, in a race with those of all others. */
static void shared_poison(char *p, size_t bytes)
{
#if defined(MM_EMULATE_TSAN)
	for (size_t i = 0; i < bytes; i++)
		((volatile char *)p)[i] = (char)POISON;
#else
	memset(p, POISON, bytes);
#endif
}

static void *shared_object(struct emulator *e, const void *key, char *p, size_t bytes)
{
	struct site *s = e->sites;

	while (s < e->sites + e->n_sites && s->key != key)
		s++;
	if (s == e->sites + e->n_sites) {
		if (e->n_sites == SITES_MAX)
			kernel_fail("has more than %u objects in shared memory", SITES_MAX);
		if (!p) {
			p = e->shared + e->static_used;
			e->static_used +=
				(bytes + SHARED_GAP + SHARED_ALIGN - 1) & ~(SHARED_ALIGN - 1);
			if (e->static_used > STATIC_BYTES)
				kernel_fail("has more than %u bytes in shared memory",
					    STATIC_BYTES);
		}
		*s = (struct site){ key, p, 0 };
		e->n_sites++;
		mm_fiber_open(p, bytes);
	}
	if (s->block != e->block_number) {
		shared_poison(s->at, bytes);
		s->block = e->block_number;
	}
	return s->at;
}

void *mm_emulate_shared(const void *site, size_t bytes)
{
	return shared_object(current, site, NULL, bytes);
}

void *mm_emulate_shared_dynamic(void)
{
	struct emulator *e = current;
	const size_t bytes = e->shape->shared_bytes;

	return shared_object(e, e, e->shared + SHARED_BYTES - ((bytes + 15) & ~(size_t)15), bytes);
}

/* ---- launches ---- */

static void emulator_destroy(struct emulator *e)
{
	for (uint32_t i = 0; i < THREADS_MAX; i++)
		mm_fiber_destroy(&e->fibers[i]);
	mm_fiber_open(e->shared, SHARED_BYTES);
	munmap(e->shared, SHARED_BYTES + GUARD_BYTES);
	free(e);
}

static struct emulator *emulator_create(void)
{
	struct emulator *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->shared = mmap(NULL, SHARED_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (e->shared == MAP_FAILED || mprotect(e->shared + SHARED_BYTES, GUARD_BYTES, PROT_NONE)) {
		free(e);
		return NULL;
	}
	return e;
}

static struct emulator *emulator_get(const char *name)
{
	struct emulator *e;

	mm_lock_take(&idle_lock);
	e = idle_emulators;
	if (e)
		idle_emulators = e->next;
	mm_lock_give(&idle_lock);
	if (!e)
		e = emulator_create();
	if (!e) {
		fprintf(stderr, "%s: no memory to emulate it\n", name);
		abort();
	}
	return e;
}

static void emulator_put(struct emulator *e)
{
	mm_lock_take(&idle_lock);
	e->next = idle_emulators;
	idle_emulators = e;
	mm_lock_give(&idle_lock);
}

/* Not analysed: no other thread runs a kernel when the module is unloaded. */
__attribute__((destructor)) static void idle_destroy(void) MM_NO_THREAD_SAFETY_ANALYSIS
{
	struct emulator *e;

	while ((e = idle_emulators)) {
		idle_emulators = e->next;
		emulator_destroy(e);
	}
}

/* Raises the fault again on the thread's own stack, where the handler of the guard expects it. */
static void fault_raise(void)
{
	volatile uintptr_t nowhere = 8;
	sigset_t faults;

	/* The handler that was left may have blocked these signals, as TSan's does. */
	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
	*(volatile char *)nowhere = 0;
}

void mm_host_fault(void)
{
	struct emulator *e = current;

	if (!e || e->running == &e->home)
		return;
	e->faulted = true;
	fiber_go_to(e, &e->home);
}

static void launch_begin(struct emulator *e, const struct mm_host_launch *shape)
{
	e->shape = shape;
	e->order = __atomic_load_n(&order_now, __ATOMIC_RELAXED);
	e->blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
	e->n_threads = shape->block[0] * shape->block[1] * shape->block[2];
	e->block_number = 0;
	e->n_sites = 0;
	e->static_used = 0;
	e->faulted = false;
	e->running = &e->home;
	mm_fiber_close(e->shared, SHARED_BYTES);
	mm_fiber_here(&e->home);
	mm_fiber_publish(&e->start_place);
}

void mm_emulate_launch(const char *name, const struct mm_host_launch *shape,
		       void (*thread)(const void *args), const void *args)
{
	struct emulator *e = emulator_get(name);
	bool faulted;

	current = e;
	e->name = name;
	e->run = thread;
	e->args = args;
	launch_begin(e, shape);
	block_begin(e);
	fiber_go_to(e, fiber_take(e));
	current = NULL;
	mm_fiber_observe(&e->end_place);
	faulted = e->faulted;
	if (faulted)
		emulator_destroy(e); /* its fibers are suspended in frames that never go on */
	else
		emulator_put(e);
	if (faulted)
		fault_raise();
}
