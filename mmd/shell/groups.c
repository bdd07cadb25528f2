/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/groups.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "mmd/shell/actions.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"

struct mm_shell_group {
	struct mm_group_kept *kept;
	struct mm_group *group;  /* in kept */
	uint32_t index;          /* in struct mm_groups */
	struct mm_region region; /* only the fd is kept */
	struct mm_session *session[MM_GROUP_RANKS_MAX];
};

/* ---- what the group calls ---- */

static void rank_event_send(void *context, uint32_t rank, const struct mm_msg *msg)
{
	struct mm_shell_group *g = context;

	if (g->session[rank])
		mm_session_event(g->session[rank], msg);
}

static int rank_begin(void *context, uint32_t rank)
{
	const struct mm_shell_group *g = context;
	const struct mm_session *s = g->session[rank];
	const struct mm_event event = { .kind = MM_EVENT_RANK_BEGIN, .tenant = s->tenant };
	struct mm_event_result result;

	mm_pool_event(s->pool, &event, NULL, &result);
	return result.r;
}

static void rank_order_give(void *context, uint32_t rank, uint64_t now_ns,
			    const struct mm_core_rank *order)
{
	const struct mm_shell_group *g = context;
	struct mm_session *s = g->session[rank];
	struct mm_event event = { .kind = MM_EVENT_RANK_ORDER, .now_ns = now_ns, .rank = *order };

	if (!s)
		return;
	event.tenant = s->tenant;
	mm_pool_event(s->pool, &event, NULL, NULL);
}

static const struct mm_group_calls group_calls = {
	.send = rank_event_send,
	.begin = rank_begin,
	.order = rank_order_give,
};

/* ---- joining ---- */

struct join {
	char name[MM_GROUP_NAME_BYTES + 1];
	uint32_t rank, size;
};

/* Whether the request names a group as libclient does. */
static bool join_parse(const struct mm_msg *msg, struct join *ret)
{
	size_t n;

	memset(ret->name, 0, sizeof(ret->name));
	memcpy(ret->name, msg->arg, MM_GROUP_NAME_BYTES);
	ret->rank = (uint32_t)msg->arg[3];
	ret->size = (uint32_t)(msg->arg[3] >> 32);
	n = strlen(ret->name);
	for (size_t i = 0; i < n; i++)
		if (ret->name[i] <= ' ' || ret->name[i] > '~' || ret->name[i] == '"')
			return false;
	for (size_t i = n; i < MM_GROUP_NAME_BYTES; i++)
		if (ret->name[i])
			return false;
	return n != 0;
}

/* The group of this name and account that is not over; NULL: there is none. */
static struct mm_shell_group *group_find(struct mm_shell *shell, uint64_t account, const char *name)
{
	for (uint32_t i = 0; i < MM_GROUPS_MAX; i++) {
		struct mm_shell_group *g = shell->groups.group[i];

		if (g && !g->group->over && g->kept->account == account &&
		    strcmp(g->kept->name, name) == 0)
			return g;
	}
	return NULL;
}

/* A free place for a group. Return: 0; -EDQUOT the account has as many as it may; -EUSERS. */
static int place_find(struct mm_shell *shell, uint64_t account, uint32_t *ret_index)
{
	uint32_t of_account = 0, index = MM_GROUPS_MAX;

	for (uint32_t i = 0; i < MM_GROUPS_MAX; i++) {
		if (!shell->groups.group[i])
			index = MM_MIN(index, i);
		else
			of_account += shell->groups.group[i]->kept->account == account;
	}
	*ret_index = index;
	if (of_account >= MM_GROUPS_ACCOUNT_MAX)
		return -EDQUOT;
	return index < MM_GROUPS_MAX ? 0 : -EUSERS;
}

static struct mm_held_name region_name(uint32_t index)
{
	return (struct mm_held_name){ .kind = MM_HELD_GROUP, .id = index };
}

static void shell_group_free(struct mm_shell *shell, struct mm_shell_group *g)
{
	shell->groups.group[g->index] = NULL;
	mm_kept_publish(&g->kept->used, 0u);
	mm_kept_release(g->kept, sizeof(*g->kept));
	mm_held_drop(&shell->held, region_name(g->index), false);
	mm_region_done(&g->region);
	free(g);
}

static struct mm_shell_group *shell_group_alloc(struct mm_shell *shell, uint32_t index)
{
	struct mm_shell_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->index = index;
	g->kept = &shell->kept.front->group[index];
	g->group = &g->kept->group;
	g->region = MM_REGION_NULL;
	return g;
}

static int shell_group_new(struct mm_session *s, const struct join *join,
			   struct mm_shell_group **ret)
{
	struct mm_shell_group *g;
	uint32_t index;
	int r = place_find(s->shell, s->account, &index);

	if (r < 0)
		return r;
	g = shell_group_alloc(s->shell, index);
	if (!g)
		return -ENOMEM;
	r = mm_region_create(sizeof(struct mm_group_region), MM_REGION_SHARED, "mm-group",
			     &g->region);
	if (r < 0) {
		free(g);
		return r;
	}
	munmap(g->region.base, g->region.size_bytes);
	g->region.base = NULL;
	mm_held_put(&s->shell->held, region_name(index), g->region.fd);
	if (!mm_held_sync(&s->shell->held)) {
		mm_region_done(&g->region);
		free(g);
		return -EIO;
	}
	memset(g->kept, 0, sizeof(*g->kept));
	g->kept->account = s->account;
	snprintf(g->kept->name, sizeof(g->kept->name), "%s", join->name);
	mm_group_init(g->group, join->size, &group_calls, g);
	s->shell->groups.group[index] = g;
	mm_kept_publish(&g->kept->used, 1u);
	*ret = g;
	return 0;
}

/* The session's number in the group is what its events are sent by: it is set first. */
static int rank_add(struct mm_session *s, struct mm_shell_group *g, const struct join *join)
{
	int fd, r;

	if (join->size != g->group->size || join->rank >= g->group->size)
		return -EINVAL;
	if (g->session[join->rank])
		return -EEXIST;
	fd = fcntl(g->region.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	mm_session_fd(s, MM_FD_GROUP, fd);
	g->session[join->rank] = s;
	r = mm_group_add(g->group, join->rank, s->pool->core, s->tenant);
	if (r < 0) {
		g->session[join->rank] = NULL;
		return r;
	}
	s->group = g;
	s->rank = join->rank;
	s->kept->rank = s->rank;
	s->kept->group_position = s->requests.mine;
	mm_kept_publish(&s->kept->group, g->index + 1);
	mm_session_log(s, MM_LOG_INFO, "tenant.group",
		       "tenant=%u name=%s group=%s rank=%u ranks=%u", s->tenant, s->name,
		       g->kept->name, s->rank, g->group->size);
	return 0;
}

static int group_join(struct mm_session *s, const struct join *join)
{
	struct mm_shell_group *g;
	int r = 0;

	if (join->size < 2 || join->size > MM_GROUP_RANKS_MAX || join->rank >= join->size)
		return -EINVAL;
	/* A core that died may have done this very request. */
	if (s->group)
		return s->kept->group_position == s->requests.mine ? 0 : -EEXIST;
	g = group_find(s->shell, s->account, join->name);
	if (!g)
		r = shell_group_new(s, join, &g);
	if (r < 0)
		return r;
	r = rank_add(s, g, join);
	if (r < 0 && !g->group->joined)
		shell_group_free(s->shell, g);
	return r;
}

int mm_session_group_request(struct mm_session *s, const struct mm_msg *msg)
{
	struct join join;

	if (!(s->features & MM_FEAT_GROUP))
		return MM_E_PROTOCOL;
	if (msg->opcode == MM_OP_GROUP_MAPPED)
		return s->group ? mm_group_on_mapped(s->group->group, s->rank, msg->arg[0])
				: MM_E_PROTOCOL;
	if (!join_parse(msg, &join))
		return MM_E_PROTOCOL;
	mm_session_reply(s, msg->user_data, MM_OP_GROUP_JOIN, group_join(s, &join));
	return 0;
}

/* ---- leaving ---- */

static void ranks_end(struct mm_shell_group *g, uint32_t rank)
{
	char text[MM_END_BYTES];

	snprintf(text, sizeof(text), "rank %u of %u of its group %s is gone", rank, g->group->size,
		 g->kept->name);
	for (uint32_t i = 0; i < g->group->size; i++)
		if (g->session[i])
			mm_session_end(g->session[i], text);
}

/* Takes out the rank that the book has as leaving; a core that comes after may have to. */
static void leaving_finish(struct mm_shell *shell, struct mm_shell_group *g)
{
	const uint32_t rank = g->kept->leaving - 1;
	const bool ends = g->kept->died;

	if (g->group->rank[rank].core)
		mm_group_remove(g->group, mm_now_ns(), rank);
	if (ends)
		ranks_end(g, rank);
	mm_kept_publish(&g->kept->leaving, 0u);
	if (!g->group->joined)
		shell_group_free(shell, g);
}

void mm_session_group_leave(struct mm_session *s, bool died)
{
	struct mm_shell_group *g = s->group;

	if (!g)
		return;
	g->kept->died = died && g->group->complete;
	mm_kept_publish(&g->kept->leaving, s->rank + 1);
	mm_kept_publish(&s->kept->group, 0u);
	s->group = NULL;
	g->session[s->rank] = NULL;
	leaving_finish(s->shell, g);
}

/* ---- going on after another core ---- */

/* The core of a rank that is leaving; if its tenant is gone, one that does not know it. */
static struct mm_core *rank_core(struct mm_shell *shell, const struct mm_group_rank *r)
{
	const struct mm_session *s = mm_session_find(shell, r->tenant);

	return s ? s->pool->core : shell->pool[0].core;
}

/* Finds the ranks again: those that the book has, and the one that was leaving. */
static void ranks_resume(struct mm_shell *shell, struct mm_shell_group *g)
{
	for (uint32_t i = 0; i < MM_GROUP_RANKS_MAX; i++) {
		struct mm_group_rank *r = &g->group->rank[i];

		if (r->core)
			r->core = g->kept->leaving == i + 1 ? rank_core(shell, r) : NULL;
	}
	MM_FOREACH_SESSION(shell, s) {
		if (s->state < MM_SESSION_OPEN || s->kept->group != g->index + 1)
			continue;
		s->group = g;
		s->rank = s->kept->rank;
		g->session[s->rank] = s;
		g->group->rank[s->rank].core = s->pool->core;
	}
}

static int shell_group_resume(struct mm_shell *shell, uint32_t index)
{
	struct mm_shell_group *g = shell_group_alloc(shell, index);

	if (!g)
		return -ENOMEM;
	g->region.fd = mm_held_take(&shell->held, region_name(index));
	shell->groups.group[index] = g;
	ranks_resume(shell, g);
	mm_group_resume(g->group, &group_calls, g);
	if (g->kept->leaving)
		leaving_finish(shell, g);
	else if (!g->group->joined)
		shell_group_free(shell, g);
	return 0;
}

int mm_groups_resume(struct mm_shell *shell)
{
	for (uint32_t i = 0; i < MM_GROUPS_MAX; i++) {
		int r = shell->kept.front->group[i].used ? shell_group_resume(shell, i) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- service ---- */

bool mm_groups_settle(struct mm_shell *shell, uint64_t now_ns)
{
	shell->groups.again = false;
	for (uint32_t i = 0; i < MM_GROUPS_MAX; i++)
		if (shell->groups.group[i])
			shell->groups.again |=
				mm_group_settle(shell->groups.group[i]->group, now_ns);
	return shell->groups.again;
}

/* ---- the operator ---- */

/* The plan by hand, as it was before a change that not all ranks could make. */
struct by_hand {
	int32_t alpha;
	uint32_t slots;
};

static int session_plan_set(struct mm_session *s, const struct by_hand *plan, uint32_t *ret_max)
{
	const struct mm_event event = {
		.kind = MM_EVENT_PLAN_SET,
		.tenant = s->tenant,
		.now_ns = mm_now_ns(),
		.plan = { .alpha = plan->alpha, .slots = plan->slots },
	};
	struct mm_event_result result;

	mm_pool_event(s->pool, &event, NULL, &result);
	if (result.r == MM_E_RANGE)
		*ret_max = result.max;
	return result.r;
}

static int ranks_plan_set(struct mm_shell_group *g, const struct by_hand *plan, uint32_t *ret_max,
			  struct mm_session **ret_of)
{
	struct by_hand before[MM_GROUP_RANKS_MAX];
	uint32_t ignored, i;
	int r = 0;

	for (i = 0; i < g->group->size && !r; i++) {
		struct mm_session *s = g->session[i];
		const struct mm_core_plan *now = s ? mm_core_plan(s->pool->core, s->tenant) : NULL;

		before[i] = now ? (struct by_hand){ now->alpha_by_hand, now->slots_by_hand }
				: (struct by_hand){ .alpha = -1 };
		if (!s)
			continue;
		*ret_of = s;
		r = session_plan_set(s, plan, ret_max);
	}
	while (r && --i)
		if (g->session[i - 1])
			session_plan_set(g->session[i - 1], &before[i - 1], &ignored);
	return r;
}

int mm_session_plan_set(struct mm_session *s, int32_t alpha, uint32_t slots, uint32_t *ret_max,
			struct mm_session **ret_of)
{
	const struct by_hand plan = { alpha, slots };

	*ret_of = s;
	return s->group ? ranks_plan_set(s->group, &plan, ret_max, ret_of)
			: session_plan_set(s, &plan, ret_max);
}

json_t *mm_session_group_json(const struct mm_session *s)
{
	const struct mm_shell_group *g = s->group;

	return g ? json_pack("{s:s,s:i,s:i,s:b}", "name", g->kept->name, "rank", (int)s->rank,
			     "ranks", (int)g->group->size, "complete", g->group->complete)
		 : json_null();
}
