/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/hostile/perform.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tools/lab/hostile/user.h"

#define TOGETHER    16 /* rounds of one act in one process */
#define TOGETHER_NS (100 * MM_NS_PER_MS)
#define ROUND_NS    (120 * MM_NS_PER_S) /* after that a round hangs, which is a fault */
#define SLOW_ONE_IN 12
#define NAP_NS      (2 * MM_NS_PER_MS)

/* ---- one round, in a process of its own ---- */

static bool outcome_is_expected(const struct mm_stage *stage, unsigned int outcome)
{
	const struct mm_act *act = stage->act;

	if (!(outcome & (act->expected | MM_ACT_SKIPPED)))
		return false;
	/* The sentence is sent where the socket has room, so that there may be none. */
	return !(outcome & MM_ACT_ENDED) || !act->reason || !*stage->text ||
	       strstr(stage->text, act->reason);
}

static void tally_note(struct mm_act_tally *tally, const struct mm_stage *stage,
		       unsigned int outcome)
{
	const bool expected = outcome_is_expected(stage, outcome);

	tally->rounds++;
	tally->outcomes |= outcome;
	tally->skipped += !!(outcome & MM_ACT_SKIPPED);
	if (!*tally->text && (!expected || (outcome & MM_ACT_SKIPPED)))
		snprintf(tally->text, sizeof(tally->text), "%s: %.200s",
			 mm_act_outcome_name(outcome), stage->text);
	tally->unexpected += !expected;
}

_Noreturn static void rounds_run(struct mm_performance *shared, struct mm_act_tally *tally)
{
	const uint64_t until_ns = mm_deadline_ns(TOGETHER_NS);
	struct mm_stage *stage = &shared->stage;
	const int rounds = stage->act->alone ? 1 : TOGETHER;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == 1)
		_exit(1);
	for (int i = 0; i < rounds && mm_now_ns() < until_ns && !shared->stop; i++) {
		unsigned int outcome;

		shared->outcome = 0;
		stage->text[0] = '\0';
		outcome = stage->act->run(stage);
		tally_note(tally, stage, outcome);
		shared->outcome = outcome;
	}
	_exit(0);
}

/* ---- the performer ---- */

static void nap_short(void)
{
	const struct timespec nap = mm_timespec(NAP_NS);

	nanosleep(&nap, NULL);
}

/* Reaps what ended. Return: whether @pid was among it, with *ret_status. */
static bool children_reap(pid_t pid, int *ret_status)
{
	bool found = false;
	int status;
	pid_t one;

	while ((one = waitpid(-1, &status, WNOHANG)) > 0) {
		if (one != pid)
			continue;
		*ret_status = status;
		found = true;
	}
	return found;
}

/* Waits for a round's end. Return: its wait status; -1: it hung, and was killed. */
static int round_wait(pid_t pid)
{
	const uint64_t deadline_ns = mm_deadline_ns(ROUND_NS);
	mm_cleanup(mm_close_fd) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int status = 0;

	while (!children_reap(pid, &status)) {
		if (mm_now_ns() > deadline_ns) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		if (pidfd < 0)
			nap_short();
		else
			poll(&p, 1, 100);
	}
	return status;
}

static void round_perform(struct mm_performance *shared, size_t index)
{
	struct mm_act_tally *tally = &shared->tally[index];
	struct mm_stage *stage = &shared->stage;
	pid_t pid;
	int status;

	stage->act = mm_act_at(index);
	stage->operations = 0;
	stage->random = mm_random_next(&stage->random);
	shared->outcome = 0;
	pid = fork();
	if (pid == 0)
		rounds_run(shared, tally);
	if (pid < 0) {
		nap_short();
		return;
	}
	status = round_wait(pid);
	if (status == -1)
		snprintf(stage->text, sizeof(stage->text), "it hangs");
	else if (WIFSIGNALED(status))
		snprintf(stage->text, sizeof(stage->text), "signal %d", WTERMSIG(status));
	if (status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		tally_note(tally, stage, MM_ACT_KILLED);
	else if (status == -1 || WIFSIGNALED(status))
		tally_note(tally, stage, MM_ACT_FAILED);
	tally->operations += stage->operations;
}

static size_t acts_count(void)
{
	size_t n = 0;

	while (mm_act_at(n))
		n++;
	mm_assert(n <= MM_ACTS_MAX);
	return n;
}

/* The next act, by its index. */
static size_t act_pick(const struct mm_performer_opts *opts, uint64_t *random)
{
	const size_t n = acts_count();
	size_t i = 0;

	if (opts->act) {
		while (mm_act_at(i) != opts->act)
			i++;
		return i;
	}
	for (;;) {
		i = mm_random_below(random, n);
		if (!mm_act_at(i)->slow ||
		    (opts->slow && mm_random_below(random, SLOW_ONE_IN) == 0))
			return i;
	}
}

_Noreturn static void performer_main(struct mm_performance *shared,
				     const struct mm_performer_opts *opts, pid_t parent)
{
	uint64_t random = mm_random_seed(opts->seed, 'a', 'c');

	mm_user_become(opts->act && opts->act->ours ? 0 : opts->uid, parent);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	shared->stage = (struct mm_stage){ .socket = opts->socket,
					   .scratch = opts->scratch,
					   .random = mm_random_next(&random),
					   .flood_ns = opts->flood_ns };
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED))
		round_perform(shared, act_pick(opts, &random));
	/* Children that acts left behind end by themselves, in less than a second. */
	for (int i = 0, status; i < 500 && waitpid(-1, &status, WNOHANG) >= 0; i++)
		nap_short();
	_exit(0);
}

int mm_performer_start(struct mm_performer *performer, const struct mm_performer_opts *opts)
{
	const pid_t parent = getpid();

	*performer = (struct mm_performer){ 0 };
	performer->shared = mmap(NULL, sizeof(*performer->shared), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (performer->shared == MAP_FAILED) {
		performer->shared = NULL;
		return -errno;
	}
	performer->pid = fork();
	if (performer->pid < 0) {
		performer->pid = 0;
		mm_performer_done(performer);
		return -EAGAIN;
	}
	if (performer->pid == 0)
		performer_main(performer->shared, opts, parent);
	setpgid(performer->pid, performer->pid);
	return 0;
}

/* Takes its end, and what it took. Return: whether it has ended. */
static bool performer_reap(struct mm_performer *performer, int options)
{
	struct rusage usage = { 0 };
	int status;

	if (performer->pid && wait4(performer->pid, &status, options, &usage) == 0)
		return false;
	if (performer->pid)
		performer->cpu_ns =
			((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) *
				MM_NS_PER_S +
			((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) *
				1000;
	performer->pid = 0;
	return true;
}

bool mm_performer_halt(struct mm_performer *performer)
{
	if (performer->pid)
		__atomic_store_n(&performer->shared->stop, 1, __ATOMIC_RELAXED);
	return performer_reap(performer, WNOHANG);
}

void mm_performer_stop(struct mm_performer *performer, uint64_t patience_ns)
{
	const uint64_t deadline_ns = mm_deadline_ns(patience_ns);

	while (!mm_performer_halt(performer)) {
		if (mm_now_ns() > deadline_ns) {
			/* Its children are of its process group, and die with it. */
			kill(-performer->pid, SIGKILL);
			(void)performer_reap(performer, 0);
			break;
		}
		nap_short();
	}
}

void mm_performer_done(struct mm_performer *performer)
{
	mm_performer_stop(performer, 0);
	if (performer->shared)
		munmap(performer->shared, sizeof(*performer->shared));
	*performer = (struct mm_performer){ 0 };
}

void mm_tally_add(struct mm_act_tally *to, const struct mm_act_tally *from)
{
	for (size_t i = 0; i < MM_ACTS_MAX; i++) {
		to[i].rounds += from[i].rounds;
		to[i].operations += from[i].operations;
		to[i].unexpected += from[i].unexpected;
		to[i].skipped += from[i].skipped;
		to[i].outcomes |= from[i].outcomes;
		if (!*to[i].text)
			memcpy(to[i].text, from[i].text, sizeof(to[i].text));
	}
}
