/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/state.h"

#include <errno.h>

#include "mm/base.h"
#include "mmd/core/controller.h"
#include "mmd/core/swap.h"

static void reply(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *msg,
		  int result)
{
	mm_c_event(c, t,
		   &(struct mm_msg){ .opcode = MM_EV_REPLY,
				     .result = result,
				     .user_data = msg->user_data,
				     .arg = { msg->opcode } });
}

bool mm_c_kv_holds(const struct mm_c_tenant *t, uint32_t chunk)
{
	return t->kv.held_map[chunk / 64] >> (chunk % 64) & 1;
}

uint32_t mm_c_kv_chunk_page(const struct mm_c_tenant *t, uint32_t chunk, uint32_t i)
{
	return t->map[MM_MAP_KV_BASE + chunk * t->kv.chunk_pages + i] - 1;
}

static int declare(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint64_t bytes = msg->arg[0], ranges = msg->arg[1], chunks = msg->arg[2];
	uint64_t pages = bytes / c->opts.page_bytes;

	if (t->kv.declared)
		return -EEXIST;
	if (!bytes || bytes % c->opts.page_bytes || !ranges || !chunks || msg->arg[3] > chunks)
		return -EINVAL;
	if (pages > MM_KV_ENTRIES || ranges > MM_KV_ENTRIES / pages ||
	    chunks > MM_KV_ENTRIES / (pages * ranges))
		return -E2BIG;
	t->kv.declared = true;
	t->kv.chunk_pages = (uint32_t)(pages * ranges);
	t->kv.ranges = (uint32_t)ranges;
	t->kv.chunks_max = (uint32_t)chunks;
	t->kv.share = (uint32_t)msg->arg[3];
	if (c->policy->kv_static) {
		t->kv.want = t->kv.share;
		t->kv.told = true;
	}
	return 0;
}

int mm_c_kv_declare(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	reply(c, t, msg, declare(c, t, msg));
	return 0;
}

void mm_c_kv_turn(struct mm_core *c, struct mm_c_tenant *t)
{
	t->kv.since_ns = c->now_ns;
	t->kv.kept_ns = 0;
	t->kv.turn = ++c->turns;
}

int mm_c_kv_want(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (!t->kv.declared || msg->arg[0] > t->kv.chunks_max)
		return MM_E_PROTOCOL;
	mm_c_wait_begin(c, t);
	if (t->kv.want <= t->kv.held)
		mm_c_kv_turn(c, t);
	t->kv.want = (uint32_t)msg->arg[0];
	t->kv.told = false;
	return 0;
}

/* The lowest chunk that is not held; the caller knows that there is one. */
static uint32_t lowest_free(const struct mm_c_tenant *t)
{
	uint32_t word = 0;

	while (t->kv.held_map[word] == UINT64_MAX)
		word++;
	return word * 64 + (uint32_t)__builtin_ctzll(~t->kv.held_map[word]);
}

void mm_c_kv_grant(struct mm_core *c, struct mm_c_tenant *t)
{
	uint32_t chunk = lowest_free(t);

	mm_assert(chunk < t->kv.chunks_max);
	for (uint32_t i = 0; i < t->kv.chunk_pages; i++) {
		uint32_t page = mm_c_reserve(c, t);

		mm_ledger_give(&c->ledger, page, MM_PAGE_KV);
		mm_c_map(c, t, MM_MAP_KV_BASE + chunk * t->kv.chunk_pages + i, page);
		mm_c_fds(c, t, page);
	}
	t->kv.held_map[chunk / 64] |= UINT64_C(1) << (chunk % 64);
	t->kv.held++;
	mm_c_sum_anew(c);
	mm_c_kv_turn(c, t);
	mm_account_serve(&c->account[t->account], t->kv.chunk_pages, &c->served);
	c->stats.grants++;
	mm_c_event(c, t, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { chunk } });
}

int mm_c_kv_release(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint32_t chunk;

	if (!t->kv.declared || msg->arg[0] >= t->kv.chunks_max)
		return MM_E_PROTOCOL;
	chunk = (uint32_t)msg->arg[0];
	if (!mm_c_kv_holds(t, chunk))
		return MM_E_PROTOCOL;
	t->kv.releases++;
	if (mm_c_swap_names(c, t, chunk)) {
		reply(c, t, msg, -EBUSY);
		return 0;
	}
	for (uint32_t i = 0; i < t->kv.chunk_pages; i++) {
		mm_c_drop(c, mm_c_kv_chunk_page(t, chunk, i));
		mm_c_map(c, t, MM_MAP_KV_BASE + chunk * t->kv.chunk_pages + i, MM_NO_PAGE);
	}
	t->kv.held_map[chunk / 64] &= ~(UINT64_C(1) << (chunk % 64));
	t->kv.held--;
	t->kv.want -= t->kv.want != 0;
	t->kv.reclaiming -= t->kv.reclaiming != 0;
	t->kv.deaf = false;
	reply(c, t, msg, 0);
	return 0;
}

uint32_t mm_c_kv_unmet(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t want = t->kv.want;

	if (t->life != MM_LIFE_LIVE || t->kicked || !t->kv.declared)
		return 0;
	if (c->policy->kv_static)
		want = MM_MIN(want, t->kv.share);
	return want > t->kv.held ? want - t->kv.held : 0;
}

void mm_c_kv_deny(struct mm_core *c, struct mm_c_tenant *t, int error)
{
	if (t->kv.told ||
	    (t->kv.denied_ns && c->now_ns < t->kv.denied_ns + mm_c_time(c, MM_DENY_NS)))
		return;
	if (!mm_c_burst(c))
		return;
	t->kv.told = true;
	t->kv.denied_ns = c->now_ns;
	c->stats.denials++;
	mm_c_event(c, t,
		   &(struct mm_msg){ .opcode = MM_EV_KV_DENIED,
				     .result = error,
				     .arg = { t->kv.want, t->kv.held } });
}

bool mm_c_kv_hears(const struct mm_c_tenant *t)
{
	return !t->kv.reclaiming || t->kv.reclaiming < t->kv.asked;
}

/* What is owed from now on, whatever was asked before. Releases that are on their way count towards it. */
void mm_c_kv_ask(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks, uint64_t until_ns)
{
	t->kv.deaf = !mm_c_kv_hears(t);
	t->kv.reclaiming = t->kv.asked = chunks;
	t->kv.reclaim_until_ns = until_ns;
	mm_c_expect_anew(c);
	c->stats.reclaims++;
	mm_c_event(c, t,
		   &(struct mm_msg){ .opcode = MM_EV_KV_RECLAIM,
				     .arg = { chunks, until_ns, t->kv.releases + 1 } });
}

void mm_c_kv_reclaim(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks)
{
	mm_c_kv_ask(c, t, chunks, c->now_ns + c->opts.reclaim_ns);
}
