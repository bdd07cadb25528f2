/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/rotate.h"

#include "libclient/base/base.h"
#include "mmd/core/market/value.h"

#define DWELL_NS        MM_NS_PER_S
#define MEMORY_NS       (15 * MM_NS_PER_S) /* that memory is for one while others wait */
#define MEMORY_MIN_NS   (5 * MM_NS_PER_S)  /* the same where goals want less */
#define BESIDE_PERMILLE 400                /* n side by side complete n^0.4 times what one does */
#define BEGIN_NS        (3 * MM_NS_PER_S)  /* in which whose memory it is must run steps */
#define AHEAD_NS        (60 * MM_NS_PER_S) /* that an account may be charged beyond others */

static bool tenant_can_wait(const struct mm_view_tenant *t)
{
	return t->turn == MM_VIEW_NO_TURNS && t->swap_bytes && t->reclaims;
}

void mm_rotate_works(struct mm_draft *d, const struct mm_market_memory *memory)
{
	for (uint32_t i = 0; i < d->n && memory->rotates; i++) {
		struct mm_draft_row *row = &d->row[i];

		if (row->works || !row->t->waiting || !tenant_can_wait(row->t))
			continue;
		row->works = true;
		d->working++;
	}
}

/*
 * All who have work must be able to wait: their KV goes to the host, not away. Returns how many
 * they are; 0: one cannot.
 */
static uint32_t tenants_can_wait(const struct mm_draft *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_view_tenant *t = d->row[i].t;

		if (!d->row[i].works)
			continue;
		if (!tenant_can_wait(t))
			return 0;
		n++;
	}
	return n;
}

/*
 * Returns what each gains by all memory that it can use, instead of its part, in its part of the
 * time, in millionths of ln(rate).
 */
static int64_t rotation_worth(const struct mm_draft *d, uint32_t tenants)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];
		uint64_t model = mm_draft_resident(row, 0), alone = 0;
		uint64_t beside = MM_MAX(MM_MAX(row->held, row->part), 1u);

		if (!row->works)
			continue;
		alone = MM_MIN(row->want, d->pages > model ? d->pages - model : 0);
		sum += mm_value_ln(MM_MAX(alone, beside), beside) *
		       (1000 - (int64_t)mm_value_kappa(row->t)) / 1000;
		sum -= mm_value_ln(tenants, 1) * BESIDE_PERMILLE / 1000;
	}
	return sum;
}

static void rotation_enter(const struct mm_draft *d, struct mm_market_memory *memory,
			   const struct mm_targets *targets, uint32_t tenants)
{
	uint64_t from = memory->rotates ? MM_ROTATE_BELOW : MM_ROTATE_FROM;
	bool rotates = tenants > 1 && targets->demand * 1000 > targets->supply * from;

	if (rotates && !memory->rotates)
		rotates = rotation_worth(d, tenants) > 0;
	if (rotates == memory->rotates) {
		memory->rotates_since_ns = 0;
		return;
	}
	if (!memory->rotates_since_ns)
		memory->rotates_since_ns = MM_MAX(d->view->now_ns, 1u);
	if (tenants > 1 && d->view->now_ns - memory->rotates_since_ns < DWELL_NS)
		return;
	memory->rotates = rotates;
	memory->rotates_since_ns = 0;
	memory->memory_of = MM_NO_TENANT;
}

/* The strictest goal for a first token among those that wait makes the time of each shorter. */
static uint64_t memory_ns(const struct mm_draft *d, uint32_t tenants)
{
	uint64_t most = MEMORY_NS;

	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].works && d->row[i].t->goal_ttft_ns)
			most = MM_MIN(most, d->row[i].t->goal_ttft_ns / (tenants - 1));
	return MM_MAX(most, MEMORY_MIN_NS);
}

static bool memory_stays(const struct mm_draft *d, const struct mm_market_memory *memory,
			 uint32_t tenants)
{
	uint64_t for_ns = d->view->now_ns - memory->memory_of_ns;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_view_tenant *t = d->row[i].t;

		if (d->row[i].works && t->index == memory->memory_of)
			return for_ns < (t->active ? memory_ns(d, tenants) : BEGIN_NS);
	}
	return false;
}

/*
 * The time of whose memory it was is charged to its account, by weight. No account falls so far
 * behind that it would wait for more than AHEAD_NS.
 */
static void memory_time_charge(const struct mm_draft *d, struct mm_market_memory *memory)
{
	uint64_t had_ns = d->view->now_ns - memory->memory_of_ns;
	uint64_t *charged = &memory->charged_ns[memory->memory_account];

	if (memory->memory_of == MM_NO_TENANT)
		return;
	memory->memory_was_ns[memory->memory_of] = d->view->now_ns;
	*charged = MM_MAX(*charged, memory->charged_now_ns) +
		   had_ns * MM_WEIGHT_DEFAULT / memory->memory_weight;
	*charged = MM_MIN(*charged, memory->charged_now_ns + AHEAD_NS);
}

static uint64_t memory_waited(const struct mm_draft_row *row, const struct mm_draft *d,
			      const struct mm_market_memory *memory)
{
	return d->view->now_ns - MM_MIN(memory->memory_was_ns[row->t->index], d->view->now_ns);
}

/*
 * Returns the tenant that comes next: of the account that was charged least, who has waited
 * longest; of equals, who was active first. An account that was away has saved nothing up.
 */
static const struct mm_view_tenant *memory_next(const struct mm_draft *d,
						struct mm_market_memory *memory)
{
	const struct mm_draft_row *next = NULL;
	uint64_t least_ns = UINT64_MAX;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];
		uint64_t *charged = &memory->charged_ns[row->t->account];
		uint64_t waited = memory_waited(row, d, memory);

		if (!row->works)
			continue;
		*charged = MM_MAX(*charged, memory->charged_now_ns);
		if (next && *charged > least_ns)
			continue;
		if (next && *charged == least_ns && waited < memory_waited(next, d, memory))
			continue;
		if (next && *charged == least_ns && waited == memory_waited(next, d, memory) &&
		    row->t->active_ns >= next->t->active_ns)
			continue;
		next = row;
		least_ns = *charged;
	}
	return next ? next->t : NULL;
}

static void memory_pass_on(const struct mm_draft *d, struct mm_market_memory *memory)
{
	const struct mm_view_tenant *next;

	memory_time_charge(d, memory);
	next = memory_next(d, memory);
	memory->memory_of = next ? next->index : MM_NO_TENANT;
	memory->memory_of_ns = d->view->now_ns;
	if (!next)
		return;
	memory->memory_account = next->account;
	memory->memory_weight = MM_MAX(next->weight, 1u);
	memory->charged_now_ns = memory->charged_ns[next->account];
}

/* Takes back what mm_rotate_works() said of those that are idle. */
static void works_as_seen(struct mm_draft *d)
{
	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		if (!row->works || row->t->active || row->t->turn != MM_VIEW_NO_TURNS)
			continue;
		row->works = false;
		d->working--;
	}
}

uint32_t mm_rotate_choose(struct mm_draft *d, struct mm_market_memory *memory,
			  const struct mm_targets *targets)
{
	uint32_t tenants = d->view->may_turns && memory->beside ? tenants_can_wait(d) : 0;

	rotation_enter(d, memory, targets, tenants);
	if (!memory->rotates) {
		works_as_seen(d);
		return MM_NO_TENANT;
	}
	if (!memory_stays(d, memory, tenants))
		memory_pass_on(d, memory);
	return memory->memory_of;
}
