/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a group: how they join, and how they learn that a step counts on all of them. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/client/internal.h"
#include "libclient/support/clock.h"
#include "mm/client_group.h"

#define LOOK_NS (20 * MM_NS_PER_MS) /* between two looks for the end of the connection */
#define SPIN_NS (20 * MM_NS_PER_US) /* before the thread sleeps: ranks end nearly at once */

/* ---- joining ---- */

static bool group_name_is_valid(const char *name)
{
	const size_t n = strnlen(name, MM_GROUP_NAME_BYTES + 1);

	for (size_t i = 0; i < n; i++)
		if (name[i] <= ' ' || name[i] > '~' || name[i] == '"')
			return false;
	return n && n <= MM_GROUP_NAME_BYTES;
}

static int join_check(struct mm_client *c, const char *name, uint32_t rank, uint32_t size)
{
	if (!(c->welcome.features & MM_FEAT_GROUP))
		return mm_fail(c, -EOPNOTSUPP, "this mmd knows no groups");
	if (!group_name_is_valid(name))
		return mm_fail(c, -EINVAL,
			       "name: 1 to %d printable characters without space and quote",
			       MM_GROUP_NAME_BYTES);
	if (size < 2 || size > MM_GROUP_RANKS_MAX || rank >= size)
		return mm_fail(c, -EINVAL, "rank %u of %u: a group has 2 to %d ranks, from 0 on",
			       rank, size, MM_GROUP_RANKS_MAX);
	return 0;
}

/* Return: 1 the client is this rank already; 0 it may become it; or an error. */
static int join_begin(struct mm_client *c, const char *name, uint32_t rank, uint32_t size)
{
	struct mm_client_group *g = &c->group;
	int r = 0;

	mm_client_lock_take(&c->lock);
	if (g->state == MM_CLIENT_GROUP_JOINED)
		r = g->rank == rank && g->size == size && strcmp(g->name, name) == 0 ? 1 : -EEXIST;
	else if (g->state == MM_CLIENT_GROUP_JOINING)
		r = -EEXIST;
	else if (c->kv || c->steps.open || c->step_seq)
		r = -EBUSY;
	else
		g->state = MM_CLIENT_GROUP_JOINING;
	mm_client_lock_give(&c->lock);
	if (r == -EEXIST)
		return mm_fail(c, r, "this client is a rank of a group already");
	if (r == -EBUSY)
		return mm_fail(c, r, "a rank joins its group before its arena and its first step");
	return r;
}

static int join_refused(struct mm_client *c, int result, const char *name, uint32_t rank,
			uint32_t size)
{
	switch (result) {
	case -EEXIST:
		return mm_fail(c, result, "group %s has a rank %u already, or is in use", name,
			       rank);
	case -EINVAL:
		return mm_fail(c, result, "group %s: the other ranks do not say that it has %u",
			       name, size);
	case -EBUSY:
		return mm_fail(c, result, "a rank has no turns, and joins before its arena");
	case -EDQUOT:
	case -EUSERS:
		return mm_fail(c, result,
			       "mmd has as many groups of this account, or in all, as it may");
	default:
		return mm_fail(c, result, "mmd refused the group: %s", strerror(-result));
	}
}

static int join_request(struct mm_client *c, const char *name, uint32_t rank, uint32_t size)
{
	struct mm_msg msg = { .opcode = MM_OP_GROUP_JOIN };
	int r;

	memcpy(msg.arg, name, strlen(name));
	msg.arg[3] = rank | (uint64_t)size << 32;
	r = mm_link_call(c, &msg);
	/* Then the client may be a rank or not: its chunks could be its own, or all ranks'. */
	if (r == -ETIMEDOUT)
		mm_link_fail(c, r, "mmd did not say whether the client is a rank of the group");
	if (r)
		return mm_fail(c, r, "mmd did not answer: %s", strerror(-r));
	return msg.result < 0 ? join_refused(c, msg.result, name, rank, size) : 0;
}

/* Maps what the ranks share; its fd came before the reply. */
static int region_take(struct mm_client *c)
{
	struct mm_region region = MM_REGION_NULL;
	int fd, r;

	mm_client_lock_take(&c->lock);
	fd = c->group_fd;
	c->group_fd = -1;
	mm_client_lock_give(&c->lock);
	if (fd < 0) {
		mm_link_fail(c, -EPROTO, "mmd did not send what the ranks of a group share");
		return mm_fail(c, -EPROTO, "%s", c->dead_text);
	}
	r = mm_region_open_between(fd, MM_GROUP_REGION_BYTES_MIN, sizeof(struct mm_group_region),
				   true, &region);
	if (r) {
		/* The other ranks would wait for this one. */
		mm_link_fail(c, r, "cannot map what the ranks of a group share");
		return mm_fail(c, r, "%s", c->dead_text);
	}
	madvise(region.base, region.size_bytes, MADV_DONTFORK);
	c->group.region = region;
	c->group.shared = region.base;
	return 0;
}

static void join_end(struct mm_client *c, const char *name, uint32_t rank, uint32_t size, int r)
{
	struct mm_client_group *g = &c->group;

	mm_client_lock_take(&c->lock);
	if (!r) {
		memset(g->name, 0, sizeof(g->name));
		memcpy(g->name, name, strlen(name));
		g->rank = rank;
		g->size = size;
	}
	__atomic_store_n(&g->state, r ? MM_CLIENT_GROUP_NONE : MM_CLIENT_GROUP_JOINED,
			 __ATOMIC_RELEASE);
	mm_client_lock_give(&c->lock);
}

static int ranks_wait(struct mm_client *c, uint64_t timeout_ns)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	int r = 0;

	mm_client_lock_take(&c->lock);
	while (!r && !c->group.complete)
		r = timeout_ns ? mm_link_wait(c, deadline_ns) : -ETIMEDOUT;
	mm_client_lock_give(&c->lock);
	if (r == -ETIMEDOUT)
		return mm_fail(c, r, "not all ranks of the group have joined yet");
	return r ? mm_fail(c, r, "%s", c->dead_text) : 0;
}

int mm_group_join(struct mm_client *client, const char *name, uint32_t rank, uint32_t size,
		  uint64_t timeout_ns)
{
	int r = mm_enter(client);

	if (!r)
		r = join_check(client, name, rank, size);
	if (!r)
		r = join_begin(client, name, rank, size);
	if (r < 0)
		return r;
	if (!r) {
		r = join_request(client, name, rank, size);
		if (!r)
			r = region_take(client);
		join_end(client, name, rank, size, r);
		if (r)
			return r;
	}
	return ranks_wait(client, timeout_ns);
}

/* ---- events of mmd ---- */

int mm_group_on_ready(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	(void)msg;
	(void)ret_text;
	mm_client_lock_take(&client->lock);
	client->group.complete = true;
	pthread_cond_broadcast(&client->changed);
	mm_client_lock_give(&client->lock);
	return 0;
}

int mm_group_on_left(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	(void)ret_text;
	mm_client_lock_take(&client->lock);
	if (!client->group.left)
		client->group.left = (uint32_t)MM_MIN(msg->arg[0], MM_GROUP_RANKS_MAX - 1) + 1;
	pthread_cond_broadcast(&client->changed);
	mm_client_lock_give(&client->lock);
	return 0;
}

/* ---- outcomes of steps ---- */

static uint64_t *outcome_word(const struct mm_client *c, uint32_t rank, uint64_t step)
{
	return &c->group.shared->slot[rank].ended[step % MM_GROUP_STEPS];
}

/*
 * How @rank ended @step. Return: 0 it has not; or enum mm_group_outcome: also FAILED if another
 * process has written there what no rank writes.
 */
static uint32_t outcome_read(const struct mm_client *c, uint32_t rank, uint64_t step)
{
	const uint64_t word = __atomic_load_n(outcome_word(c, rank, step), __ATOMIC_ACQUIRE);
	const uint32_t outcome = word & 0xff;

	if (word >> 8 < step)
		return 0;
	if (word >> 8 > step || !outcome || outcome > MM_GROUP_FAILED)
		return MM_GROUP_FAILED;
	return outcome;
}

void mm_group_step_ended(struct mm_client *c, uint64_t step, enum mm_group_outcome outcome)
{
	uint32_t *ended = &c->group.shared->ended;

	__atomic_store_n(outcome_word(c, c->group.rank, step), step << 8 | (uint64_t)outcome,
			 __ATOMIC_RELEASE);
	__atomic_add_fetch(ended, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, ended, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The rank that has not ended @step; the group's size: there is none. */
static uint32_t rank_behind(const struct mm_client *c, uint64_t step)
{
	uint32_t rank = 0;

	while (rank < c->group.size && outcome_read(c, rank, step))
		rank++;
	return rank;
}

bool mm_group_all_ended(const struct mm_client *c, uint64_t step)
{
	return rank_behind(c, step) == c->group.size;
}

/* Why a wait for the other ranks is over. Return: 0; -EPIPE; the errno of a dead connection. */
static int group_over(struct mm_client *c, uint32_t *ret_left)
{
	int r;

	mm_client_lock_take(&c->lock);
	*ret_left = c->group.left;
	r = c->dead ? c->dead : *ret_left ? -EPIPE : 0;
	mm_client_lock_give(&c->lock);
	return r;
}

/* Sleeps until an outcome is written, or LOOK_NS; @ended: their number before the caller looked. */
static void outcome_wait(struct mm_client *c, uint32_t ended, uint64_t deadline_ns)
{
	const uint64_t now_ns = mm_now_ns();
	const struct timespec most =
		mm_timespec(MM_MIN(LOOK_NS, deadline_ns > now_ns ? deadline_ns - now_ns : 0));

	syscall(SYS_futex, &c->group.shared->ended, FUTEX_WAIT, ended, &most, NULL, 0);
}

int mm_group_wait(struct mm_client *c, uint64_t step, uint64_t deadline_ns)
{
	const uint64_t spin_until_ns = mm_now_ns() + SPIN_NS;
	uint32_t left = 0;

	for (;;) {
		uint32_t ended = __atomic_load_n(&c->group.shared->ended, __ATOMIC_SEQ_CST);
		int r;

		if (mm_group_all_ended(c, step))
			return 0;
		if (mm_now_ns() < spin_until_ns)
			continue;
		r = group_over(c, &left);
		/* A rank may have ended the step, and then left. */
		if (r && mm_group_all_ended(c, step))
			return 0;
		if (r == -EPIPE)
			return mm_fail(c, r, "rank %u has left the group", left - 1);
		if (r)
			return mm_fail(c, r, "%s", c->dead_text);
		if (mm_now_ns() >= deadline_ns)
			return mm_fail(c, -ETIMEDOUT, "rank %u has not ended the step yet",
				       rank_behind(c, step));
		outcome_wait(c, ended, deadline_ns);
	}
}

int mm_group_outcome(struct mm_client *c, uint64_t step)
{
	uint32_t worst = MM_GROUP_DONE, of = 0;

	for (uint32_t rank = 0; rank < c->group.size; rank++) {
		const uint32_t outcome = outcome_read(c, rank, step);

		if (outcome > worst) {
			worst = outcome;
			of = rank;
		}
	}
	if (worst == MM_GROUP_FAILED)
		return mm_fail(c, -EIO, "the device of rank %u failed", of);
	if (worst == MM_GROUP_VOID)
		return mm_fail(c, -ECANCELED, "the step of rank %u is void: repeat it", of);
	return 0;
}

int mm_group_may_begin(struct mm_client *c)
{
	uint64_t begun;
	uint32_t left;
	bool complete;
	int r = group_over(c, &left);

	if (r == -EPIPE)
		return mm_fail(c, r, "rank %u has left the group", left - 1);
	if (r)
		return mm_fail(c, r, "%s", c->dead_text);
	mm_client_lock_take(&c->lock);
	complete = c->group.complete;
	begun = c->group.steps;
	mm_client_lock_give(&c->lock);
	if (!complete)
		return mm_fail(c, -ENOTCONN, "not all ranks of the group have joined yet");
	if (begun < MM_GROUP_AHEAD)
		return 0;
	return mm_group_wait(c, begun + 1 - MM_GROUP_AHEAD, UINT64_MAX);
}
