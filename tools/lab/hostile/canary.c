/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/hostile/canary.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/clock.h"
#include "tools/lab/hostile/act.h"
#include "tools/lab/hostile/user.h"

#define PAGES_MAX 4096
#define ROUNDS    24 /* pages that are given back and taken again in one life */
#define HOLD_NS   (4 * MM_NS_PER_MS)
#define NAP_NS    (2 * MM_NS_PER_MS)

struct life {
	struct mm_canary_counts *counts;
	struct mm_raw raw;
	uint64_t pattern;
	uint32_t pages;
	bool patient; /* a denial is not its last word: the demand stands */
	uint32_t n_held;
	uint32_t chunk[PAGES_MAX]; /* that it holds */
	uint64_t *at[PAGES_MAX];   /* the page of it */
};

static void canary_nap(uint64_t ns)
{
	const struct timespec nap = mm_timespec(ns);

	nanosleep(&nap, NULL);
}

/* Maps the page of a chunk that was granted, looks at what is in it, and makes it its own. */
static void page_take(struct life *life, uint32_t chunk)
{
	const uint64_t words = life->raw.welcome.page_bytes / sizeof(uint64_t);
	const uint32_t page = life->raw.mmd->map[MM_MAP_KV_BASE + chunk] - 1;
	uint64_t *at = MAP_FAILED;

	for (uint32_t i = life->raw.n_fds; i-- > 0 && at == MAP_FAILED;)
		if (life->raw.page[i] == page)
			at = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_SHARED,
				  life->raw.fd[i], 0);
	if (at == MAP_FAILED)
		return;
	for (uint64_t w = 0; w < words; w++) {
		if (MM_HOSTILE_IS_PATTERN(at[w]) && at[w] != life->pattern)
			life->counts->foreign_bytes += sizeof(*at);
		at[w] = life->pattern;
	}
	life->counts->pages_read++;
	life->chunk[life->n_held] = chunk;
	life->at[life->n_held++] = at;
}

/* Gives back the page at @i of those it holds, after a last look. */
static int page_give(struct life *life, uint32_t i)
{
	const uint64_t words = life->raw.welcome.page_bytes / sizeof(uint64_t);
	const uint32_t chunk = life->chunk[i];
	const uint32_t page = life->raw.mmd->map[MM_MAP_KV_BASE + chunk] - 1;

	for (uint64_t w = 0; w < words; w++)
		if (life->at[i][w] != life->pattern)
			life->counts->lost_bytes += sizeof(uint64_t);
	munmap(life->at[i], words * 8);
	mm_raw_drop_page(&life->raw, page);
	life->at[i] = life->at[--life->n_held];
	life->chunk[i] = life->chunk[life->n_held];
	return mm_raw_op(&life->raw, MM_OP_KV_RELEASE, chunk, 0, 0, 0);
}

/* Takes what is granted until it holds @n, or is denied them, or nothing comes for a while. */
static int pages_await(struct life *life, uint32_t n, uint64_t patience_ns)
{
	const uint64_t by_ns = mm_deadline_ns(patience_ns);
	struct mm_msg event;
	int r = 0;

	while (life->n_held < n && mm_now_ns() < by_ns && !life->counts->stop) {
		r = mm_raw_next(&life->raw, &event, 50 * MM_NS_PER_MS);
		if (r == -ECONNRESET)
			return r;
		if (r == 0 && event.opcode == MM_EV_KV_GRANT)
			page_take(life, (uint32_t)event.arg[0]);
		if (r == 0 && event.opcode == MM_EV_KV_RECLAIM && life->n_held)
			r = page_give(life, 0); /* one of those that are owed; mmd asks again */
		if (r == 0 && event.opcode == MM_EV_KV_DENIED && !life->patient)
			break;
	}
	return r == -ETIMEDOUT ? 0 : r;
}

static int life_begin(struct life *life, const struct mm_canary_opts *opts)
{
	int r = mm_raw_open(&life->raw, opts->socket, "canary", MM_FEAT_RECLAIM);

	if (r)
		return r;
	life->counts->lives++;
	life->raw.acks = true;
	life->pages = MM_MIN(MM_MIN(opts->pages, (uint32_t)PAGES_MAX),
			     (uint32_t)life->raw.welcome.pool_pages);
	r = mm_raw_op(&life->raw, MM_OP_KV_DECLARE, life->raw.welcome.page_bytes, 1, life->pages,
		      0);
	return r ? r : mm_raw_op(&life->raw, MM_OP_KV_WANT, life->pages, 0, 0, 0);
}

static int life_go_on(struct life *life, uint64_t *random)
{
	int r = pages_await(life, 1 + (uint32_t)mm_random_below(random, life->pages), MM_NS_PER_S);

	for (int i = 0; !r && i < ROUNDS && !life->counts->stop; i++) {
		canary_nap(mm_random_below(random, HOLD_NS));
		if (life->n_held)
			r = page_give(life, (uint32_t)mm_random_below(random, life->n_held));
		if (!r)
			r = pages_await(life, life->n_held + 1, 100 * MM_NS_PER_MS);
	}
	return r;
}

static void life_end(struct life *life)
{
	while (life->n_held && !page_give(life, life->n_held - 1))
		;
	for (uint32_t i = 0; i < life->n_held; i++)
		munmap(life->at[i], life->raw.welcome.page_bytes);
	mm_raw_bye(&life->raw);
	mm_raw_done(&life->raw);
}

_Noreturn static void canary_main(struct mm_canary_counts *counts,
				  const struct mm_canary_opts *opts, pid_t parent)
{
	static struct life life;
	uint64_t random = mm_random_seed(opts->seed, 'c', counts->lives);

	mm_user_become(opts->uid, parent);
	while (!counts->stop) {
		int r;

		life = (struct life){ .counts = counts,
				      .pattern = MM_HOSTILE_PATTERN | getuid(),
				      .patient = opts->once,
				      .raw = { .sock = -1 } };
		r = life_begin(&life, opts);
		if (!r)
			r = opts->once ? pages_await(&life, life.pages, 60 * MM_NS_PER_S)
				       : life_go_on(&life, &random);
		if (r && life.raw.tenant) {
			mm_raw_await_end(&life.raw, 0);
			if (!counts->ended++)
				snprintf(counts->reason, sizeof(counts->reason), "%s",
					 life.raw.reason);
		}
		/* A process that lives on without its connection is killed for the pages it had. */
		if (r && life.raw.tenant)
			_exit(1);
		life_end(&life);
		if (opts->once && !r)
			_exit(life.counts->pages_read ? 0 : 1);
		if (r)
			canary_nap(NAP_NS);
	}
	_exit(0);
}

int mm_canary_start(struct mm_canary *canary, const struct mm_canary_opts *opts)
{
	const pid_t parent = getpid();

	if (!canary->counts) {
		canary->counts = mmap(NULL, sizeof(*canary->counts), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (canary->counts == MAP_FAILED) {
			canary->counts = NULL;
			return -ENOMEM;
		}
	}
	canary->pid = fork();
	if (canary->pid == 0)
		canary_main(canary->counts, opts, parent);
	if (canary->pid > 0)
		return 0;
	canary->pid = 0;
	return -EAGAIN;
}

int mm_canary_wait(struct mm_canary *canary, uint64_t patience_ns)
{
	const uint64_t by_ns = mm_deadline_ns(patience_ns);
	int status = 0;

	while (canary->pid && waitpid(canary->pid, &status, WNOHANG) == 0) {
		if (mm_now_ns() > by_ns)
			return -1;
		canary_nap(NAP_NS);
	}
	canary->pid = 0;
	return status;
}

void mm_canary_stop(struct mm_canary *canary, uint64_t patience_ns)
{
	if (!canary->pid)
		return;
	__atomic_store_n(&canary->counts->stop, 1, __ATOMIC_RELAXED);
	if (mm_canary_wait(canary, patience_ns) == -1)
		mm_canary_kill(canary);
}

bool mm_canary_kill(struct mm_canary *canary)
{
	int status;

	if (!canary->pid)
		return false;
	kill(canary->pid, SIGKILL);
	waitpid(canary->pid, &status, 0);
	canary->pid = 0;
	return WIFSIGNALED(status);
}

void mm_canary_done(struct mm_canary *canary)
{
	mm_canary_kill(canary);
	if (canary->counts)
		munmap(canary->counts, sizeof(*canary->counts));
	*canary = (struct mm_canary){ 0 };
}
