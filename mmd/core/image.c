/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/image.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/described.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/bounds.h"
#include "mmd/core/market/described.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/out/described.h"
#include "mmd/core/plan/described.h"
#include "mmd/core/plan/plans.h"
#include "mmd/fields/rows.h"

#define TABLES_BYTES 65536 /* more than the head and the tables of all structs have */

/* Tables that have no struct: each entry is a row's struct. */
struct own_entry {
	uint32_t page;
};
MM_FIELDS_DEFINE(mm_image_own_fields, struct own_entry, MM_ONE(struct own_entry, page));

struct map_entry {
	uint32_t value;
};
MM_FIELDS_DEFINE(mm_image_map_fields, struct map_entry, MM_ONE(struct map_entry, value));

struct kv_map_entry {
	uint32_t value;
};
MM_FIELDS_DEFINE(mm_image_kv_map_fields, struct kv_map_entry, MM_ONE(struct kv_map_entry, value));

struct preload_entry {
	uint32_t entry;
};
MM_FIELDS_DEFINE(mm_image_preload_entry_fields, struct preload_entry,
		 MM_ONE(struct preload_entry, entry));

struct preload_page {
	uint32_t page;
};
MM_FIELDS_DEFINE(mm_image_preload_page_fields, struct preload_page,
		 MM_ONE(struct preload_page, page));

#ifdef MM_IMAGE_NEXT
/* In builds of tests/e2e/test_upgrade: 1: a later build may have it; 2: each must have it. */
struct image_next {
	uint32_t added;
};
#if MM_IMAGE_NEXT == 1
MM_FIELDS_DEFINE(mm_image_next_fields, struct image_next, MM_OPTIONAL(struct image_next, added));
#else
MM_FIELDS_DEFINE(mm_image_next_fields, struct image_next, MM_ONE(struct image_next, added));
#endif
#endif

/* Pointers of the core, as indices. */
struct image_refs {
	uint32_t turn_holder; /* index of a tenant; MM_NO_OWNER: none */
};
MM_FIELDS_DEFINE(mm_image_refs_fields, struct image_refs, MM_ONE(struct image_refs, turn_holder));

/*
 * Is there if tenants have declared cold blocks: a build that does not know what is streamed into a
 * window must not go on with a core that has one.
 */
struct image_cold {
	uint32_t tenants;
};
MM_FIELDS_DEFINE(mm_image_cold_fields, struct image_cold, MM_ONE(struct image_cold, tenants));

/* A core that is being loaded. */
struct image_load {
	struct mm_core *c;
	struct image_refs refs;
	struct image_cold cold;
#ifdef MM_IMAGE_NEXT
	struct image_next next;
#endif
	uint32_t seen;                    /* a bit per entry of image_parts[] */
	uint32_t of[MM_CORE_TENANTS_MAX]; /* the same for each tenant */
};

enum image_part_kind {
	PART_ONE,    /* a single row */
	PART_LIST,   /* rows by index; there may be none */
	PART_TENANT, /* a row for each tenant */
	PART_TABLE,  /* rows of tenants that have such a table */
};

/*
 * Where the structs of a row belong, and how many there is room for; NULL: there is no such index.
 */
typedef void *image_place(struct image_load *l, uint32_t index, uint32_t *ret_most);

static void *place_one(uint32_t index, void *at, uint32_t most, uint32_t *ret_most)
{
	*ret_most = most;
	return index ? NULL : at;
}

static void *core_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, l->c, 1, ret_most);
}

static void *refs_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, &l->refs, 1, ret_most);
}

static void *cold_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, &l->cold, 1, ret_most);
}

#ifdef MM_IMAGE_NEXT
static void *next_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, &l->next, 1, ret_most);
}
#endif

static void *ledger_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, &l->c->ledger, 1, ret_most);
}

static void *pages_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, l->c->ledger.page, l->c->ledger.pages, ret_most);
}

static void *jobs_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, &l->c->jobs, 1, ret_most);
}

static void *job_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	*ret_most = 1;
	/* Not jobs.n, which may be damaged. */
	return index < l->c->opts.jobs_max + l->c->opts.tenants_max ? &l->c->jobs.job[index] : NULL;
}

static void *accounts_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, l->c->account, l->c->opts.accounts_max, ret_most);
}

static void *mins_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, l->c->mins, 1, ret_most);
}

static void *market_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, l->c->market, 1, ret_most);
}

static void *view_tenants_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, l->c->market->view.tenant, l->c->opts.tenants_max, ret_most);
}

static void *view_accounts_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, l->c->market->view.account, l->c->opts.accounts_max, ret_most);
}

static void *targets_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	return place_one(index, l->c->market->targets.tenant, l->c->opts.tenants_max, ret_most);
}

/* Defines where a part of the tenant at @index is. */
#define TENANT_PLACE(name, at, most)                                                        \
	static void *name##_place(struct image_load *l, uint32_t index, uint32_t *ret_most) \
	{                                                                                   \
		struct mm_core *c = l->c;                                                   \
                                                                                            \
		*ret_most = (most);                                                         \
		return index < c->opts.tenants_max ? (at) : NULL;                           \
	}

TENANT_PLACE(tenant, &c->tenant[index], 1)
TENANT_PLACE(change, &c->plans->change[index], 1)
TENANT_PLACE(sets, &c->plans->sets[index], 1)
TENANT_PLACE(swap, &c->plans->swap[index], 1)
TENANT_PLACE(demand, &c->market->demand[index], 1)
TENANT_PLACE(lends, &c->market->lends[index], 1)
TENANT_PLACE(turn, &c->market->tenant_turn[index], 1)
TENANT_PLACE(own, c->tenant[index].own, c->entries_max)
TENANT_PLACE(map, c->tenant[index].map, MM_MAP_KV_BASE)
TENANT_PLACE(kv_map, c->tenant[index].map + MM_MAP_KV_BASE, MM_KV_ENTRIES)
TENANT_PLACE(preload_entry, c->plans->change[index].pre.entry, c->entries_max)
TENANT_PLACE(tenant_tally, &c->tenant[index].tally, 1)
TENANT_PLACE(preload_page, c->plans->change[index].pre.page, c->entries_max)

/* Lists of a tenant follow each other: the index is tenant * MM_SWAP_LOTS + lot. */
static void *pieces_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	*ret_most = MM_SWAP_PIECES;
	return index < l->c->opts.tenants_max * MM_SWAP_LOTS
		       ? &l->c->plans->swap_pieces[(size_t)index * MM_SWAP_PIECES]
		       : NULL;
}

/* Tallies follow each other: the pool's, those of accounts, those of tenants. */
static void *tally_place(struct image_load *l, uint32_t index, uint32_t *ret_most)
{
	const uint32_t accounts = l->c->opts.accounts_max;

	*ret_most = 1;
	if (index == 0)
		return &l->c->tally;
	if (index - 1 < accounts)
		return &l->c->account[index - 1].tally;
	return index - 1 - accounts < l->c->opts.tenants_max
		       ? &l->c->tenant[index - 1 - accounts].tally.happened
		       : NULL;
}

static const struct {
	const struct mm_fields *fields;
	enum image_part_kind kind;
	image_place *place;
} image_parts[] = {
	{ &mm_core_fields, PART_ONE, core_place },
	{ &mm_image_refs_fields, PART_ONE, refs_place },
	{ &mm_ledger_fields, PART_ONE, ledger_place },
	{ &mm_page_fields, PART_ONE, pages_place },
	{ &mm_jobs_fields, PART_ONE, jobs_place },
	{ &mm_job_fields, PART_LIST, job_place },
	{ &mm_account_fields, PART_ONE, accounts_place },
	{ &mm_c_mins_fields, PART_ONE, mins_place },
	{ &mm_market_fields, PART_ONE, market_place },
	{ &mm_view_tenant_fields, PART_ONE, view_tenants_place },
	{ &mm_view_account_fields, PART_ONE, view_accounts_place },
	{ &mm_target_fields, PART_ONE, targets_place },
	{ &mm_c_tenant_fields, PART_TENANT, tenant_place },
	{ &mm_change_fields, PART_TENANT, change_place },
	{ &mm_c_sets_fields, PART_TENANT, sets_place },
	{ &mm_c_swap_fields, PART_TENANT, swap_place },
	{ &mm_demand_fields, PART_TENANT, demand_place },
	{ &mm_c_lends_fields, PART_TENANT, lends_place },
	{ &mm_c_turn_fields, PART_TENANT, turn_place },
	{ &mm_image_own_fields, PART_TABLE, own_place },
	{ &mm_image_map_fields, PART_TABLE, map_place },
	{ &mm_image_kv_map_fields, PART_TABLE, kv_map_place },
	{ &mm_image_preload_entry_fields, PART_TABLE, preload_entry_place },
	{ &mm_image_preload_page_fields, PART_TABLE, preload_page_place },
	{ &mm_swap_piece_fields, PART_TABLE, pieces_place },
	{ &mm_core_tally_fields, PART_LIST, tally_place },
	{ &mm_c_tally_fields, PART_TABLE, tenant_tally_place },
	{ &mm_image_cold_fields, PART_LIST, cold_place },
#ifdef MM_IMAGE_NEXT
	{ &mm_image_next_fields, MM_IMAGE_NEXT == 1 ? PART_TABLE : PART_ONE, next_place },
#endif
};
#define PARTS MM_ARRAY_SIZE(image_parts)

static void image_roots(const struct mm_fields **ret_roots)
{
	for (uint32_t i = 0; i < PARTS; i++)
		ret_roots[i] = image_parts[i].fields;
}

const struct mm_fields *mm_core_image_fields(uint32_t index)
{
	return index < PARTS ? image_parts[index].fields : NULL;
}

/* ---- saving ---- */

size_t mm_core_image_room(const struct mm_core *c)
{
	const struct mm_core_opts *o = &c->opts;
	const size_t tenant = sizeof(struct mm_c_tenant) + sizeof(struct mm_change) +
			      sizeof(struct mm_c_sets) + sizeof(struct mm_c_swap) +
			      sizeof(struct mm_demand) + sizeof(struct mm_c_lends) +
			      sizeof(struct mm_c_turn) + sizeof(struct mm_view_tenant) +
			      sizeof(struct mm_target) + 3 * sizeof(uint32_t) * c->entries_max +
			      sizeof(uint32_t) * MM_MAP_ENTRIES +
			      MM_SWAP_LOTS * MM_SWAP_PIECES * sizeof(struct mm_swap_piece) + 4096;

	return TABLES_BYTES + sizeof(struct mm_core) + sizeof(struct mm_market) +
	       sizeof(struct mm_c_mins) + o->pages * sizeof(struct mm_page) +
	       o->accounts_max * (sizeof(struct mm_account) + sizeof(struct mm_view_account) + 32) +
	       c->jobs.n * (sizeof(struct mm_job) + 32) + o->tenants_max * tenant;
}

static void tenant_tables_save(struct mm_rows_writer *w, const struct mm_core *c,
			       const struct mm_c_tenant *t)
{
	const uint32_t i = mm_c_index(c, t);
	const struct mm_c_preload *pre = &t->change->pre;

	mm_rows_put(w, &mm_image_own_fields, i, t->own, MM_MIN(t->entries, c->entries_max));
	mm_rows_put(w, &mm_image_map_fields, i, t->map, t->map_end);
	mm_rows_put(w, &mm_image_kv_map_fields, i, t->map + MM_MAP_KV_BASE, t->kv_map_end);
	mm_rows_put(w, &mm_image_preload_entry_fields, i, pre->entry, pre->n);
	mm_rows_put(w, &mm_image_preload_page_fields, i, pre->page, pre->n);
	for (uint32_t lot = 0; lot < MM_SWAP_LOTS; lot++) {
		const uint32_t index = i * MM_SWAP_LOTS + lot;

		if (t->swap->list[lot].used)
			mm_rows_put(w, &mm_swap_piece_fields, index,
				    &c->plans->swap_pieces[(size_t)index * MM_SWAP_PIECES],
				    t->swap->list[lot].n);
	}
}

static void tenant_save(struct mm_rows_writer *w, const struct mm_core *c,
			const struct mm_c_tenant *t)
{
	const uint32_t i = mm_c_index(c, t);

	mm_rows_put(w, &mm_c_tenant_fields, i, t, 1);
	mm_rows_put(w, &mm_change_fields, i, t->change, 1);
	mm_rows_put(w, &mm_c_sets_fields, i, t->sets, 1);
	mm_rows_put(w, &mm_c_swap_fields, i, t->swap, 1);
	mm_rows_put(w, &mm_demand_fields, i, t->demand, 1);
	mm_rows_put(w, &mm_c_lends_fields, i, t->lends, 1);
	mm_rows_put(w, &mm_c_turn_fields, i, t->turn, 1);
	tenant_tables_save(w, c, t);
}

static void tallies_save(struct mm_rows_writer *w, const struct mm_core *c)
{
	mm_rows_put(w, &mm_core_tally_fields, 0, &c->tally, 1);
	for (uint32_t i = 0; i < c->accounts_end; i++)
		mm_rows_put(w, &mm_core_tally_fields, 1 + i, &c->account[i].tally, 1);
	MM_FOREACH_TENANT(c, t) {
		mm_rows_put(w, &mm_core_tally_fields, 1 + c->opts.accounts_max + mm_c_index(c, t),
			    &t->tally.happened, 1);
		mm_rows_put(w, &mm_c_tally_fields, mm_c_index(c, t), &t->tally, 1);
	}
}

static void market_save(struct mm_rows_writer *w, const struct mm_core *c)
{
	const struct mm_market *m = c->market;

	mm_rows_put(w, &mm_market_fields, 0, m, 1);
	mm_rows_put(w, &mm_view_tenant_fields, 0, m->view.tenant, m->view.n_tenants);
	mm_rows_put(w, &mm_view_account_fields, 0, m->view.account, m->view.n_accounts);
	mm_rows_put(w, &mm_target_fields, 0, m->targets.tenant, c->tenants_end);
}

static void cold_save(struct mm_rows_writer *w, const struct mm_core *c)
{
	struct image_cold cold = { 0 };

	MM_FOREACH_TENANT(c, t)
		cold.tenants += t->cold.classes || t->plan.cold.classes;
	if (cold.tenants)
		mm_rows_put(w, &mm_image_cold_fields, 0, &cold, 1);
}

int mm_core_image_save(const struct mm_core *c, void *to, size_t room, size_t *ret_bytes)
{
	const struct mm_c_tenant *holder = c->market->turn.holder;
	const struct image_refs refs = { holder ? mm_c_index(c, holder) : MM_NO_OWNER };
	const struct mm_fields *roots[PARTS];
	struct mm_rows_writer w;

	mm_assert(mm_queue_is_empty(&c->queue));
	image_roots(roots);
	mm_rows_begin(&w, to, room, roots, PARTS);
	mm_rows_put(&w, &mm_core_fields, 0, c, 1);
	mm_rows_put(&w, &mm_image_refs_fields, 0, &refs, 1);
	mm_rows_put(&w, &mm_ledger_fields, 0, &c->ledger, 1);
	mm_rows_put(&w, &mm_page_fields, 0, c->ledger.page, c->ledger.pages);
	mm_rows_put(&w, &mm_jobs_fields, 0, &c->jobs, 1);
	for (uint32_t i = 0; i < c->jobs.n; i++)
		if (c->jobs.job[i].used)
			mm_rows_put(&w, &mm_job_fields, i, &c->jobs.job[i], 1);
	mm_rows_put(&w, &mm_account_fields, 0, c->account, c->accounts_end);
	mm_rows_put(&w, &mm_c_mins_fields, 0, c->mins, 1);
	market_save(&w, c);
	MM_FOREACH_TENANT(c, t)
		tenant_save(&w, c, t);
	tallies_save(&w, c);
	cold_save(&w, c);
#ifdef MM_IMAGE_NEXT
	mm_rows_put(&w, &mm_image_next_fields, 0, &(struct image_next){ 7 }, 1);
#endif
	return mm_rows_end(&w, ret_bytes);
}

/* ---- loading ---- */

static int row_load(struct image_load *l, struct mm_rows_reader *r, const struct mm_row *row)
{
	uint32_t i = 0, most;
	void *at;

	while (i < PARTS && image_parts[i].fields != row->fields)
		i++;
	if (i == PARTS) {
		mm_rows_why(r, "damaged: a row of ", row->fields ? row->fields->name : "nothing",
			    NULL);
		return row->fields ? -EBADMSG : 0;
	}
	at = image_parts[i].place(l, row->index, &most);
	if (!at) {
		mm_rows_why(r, "damaged: no such index of ", row->fields->name, NULL);
		return -EBADMSG;
	}
	l->seen |= 1u << i;
	if (image_parts[i].kind == PART_TENANT)
		l->of[row->index] |= 1u << i;
	return mm_rows_get(r, row, at, most);
}

/* Each part that must be there is there, for each tenant that is there. */
static bool parts_are_complete(const struct image_load *l)
{
	uint32_t all = 0, of_tenant = 0;

	for (uint32_t i = 0; i < PARTS; i++) {
		all |= image_parts[i].kind == PART_ONE ? 1u << i : 0;
		of_tenant |= image_parts[i].kind == PART_TENANT ? 1u << i : 0;
	}
	for (uint32_t i = 0; i < l->c->opts.tenants_max; i++)
		if (l->of[i] && l->of[i] != of_tenant)
			return false;
	return (l->seen & all) == all;
}

/* The tables have the sizes of @had, with which the core was created. */
static bool opts_suit(const struct mm_core_opts *had, const struct mm_core_opts *got)
{
	return got->pages == had->pages && got->page_bytes == had->page_bytes &&
	       got->tenants_max == had->tenants_max && got->accounts_max == had->accounts_max &&
	       got->jobs_max == had->jobs_max && got->tag == had->tag;
}

/* Sets what the image does not have: pointers. */
static void core_attach(struct image_load *l)
{
	struct mm_core *c = l->c;

	c->market->policy = mm_policy_get(c->opts.policy);
	c->market->turn.holder =
		l->refs.turn_holder == MM_NO_OWNER ? NULL : &c->tenant[l->refs.turn_holder];
	MM_FOREACH_TENANT(c, t) {
		mm_plans_attach(c->plans, t, mm_c_index(c, t));
		mm_market_attach(c->market, t, mm_c_index(c, t));
	}
}

static int core_load(struct image_load *l, struct mm_rows_reader *r)
{
	const struct mm_core_opts had = l->c->opts;
	const uint32_t entries_max = l->c->entries_max;
	struct mm_row row;
	const char *why;
	int e;

	while ((e = mm_rows_next(r, &row)) == 0) {
		e = row_load(l, r, &row);
		if (e)
			return e;
		if (!opts_suit(&had, &l->c->opts)) {
			mm_rows_why(r, "the pool, its tables or its tag have changed", NULL, NULL);
			return -EINVAL;
		}
	}
	if (e < 0)
		return e;
	why = parts_are_complete(l) && l->c->entries_max == entries_max ? NULL : "complete";
	if (!why && l->refs.turn_holder != MM_NO_OWNER &&
	    l->refs.turn_holder >= l->c->opts.tenants_max)
		why = "turn_holder";
	if (!why)
		why = mm_core_bounds(l->c);
	if (!why) {
		core_attach(l);
		why = mm_core_check_sentence(l->c);
	}
	if (why)
		mm_rows_why(r, "damaged: not ", why, NULL);
	return why ? -EBADMSG : 0;
}

static void err_copy(char *err, size_t err_bytes, const char *why)
{
	size_t n = 0;

	for (; err_bytes && n + 1 < err_bytes && why[n]; n++)
		err[n] = why[n];
	if (err_bytes)
		err[n] = '\0';
}

int mm_core_image_load(const struct mm_core_opts *opts, const void *from, size_t bytes,
		       struct mm_core **ret_core, char *err, size_t err_bytes)
{
	const struct mm_fields *roots[PARTS];
	struct image_load l = { 0 };
	struct mm_rows_reader r;
	int e;

	image_roots(roots);
	e = mm_rows_open(&r, from, bytes, roots, PARTS);
	if (!e)
		e = mm_core_create(opts, &l.c);
	if (!e)
		e = core_load(&l, &r);
	else if (e == -EINVAL || e == -ENOMEM)
		mm_rows_why(&r, e == -EINVAL ? "invalid options" : "out of memory", NULL, NULL);
	if (e) {
		mm_core_destroy(l.c);
		err_copy(err, err_bytes, r.why);
		return e;
	}
	*ret_core = l.c;
	return 0;
}
