/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/mmd/xfer/rig.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/protocol/cold.h"
#include "libclient/support/clock.h"

const uint32_t slot_pages[2][2][SLOT_PAGES] = { { { 9, 2 }, { 4, 25 } }, { { 5, 11 }, { 21, 3 } } };
const uint32_t window_pages[2][WINDOW_PAGES] = { { 20, 1, 6, 7, 31, 10, 13, 14, 30, 0, 29, 12 },
						 { 15, 28, 16, 27, 18, 19, 26, 22, 24, 23, 17,
						   8 } };

/* ---- shared memory ---- */

struct mm_gate_region *rig_gates(const struct rig *r)
{
	return r->core->gates.base;
}

struct mm_xplan_region *rig_plan(const struct rig *r)
{
	return r->core->plan.base;
}

struct mm_xcursor_region *rig_cursors(const struct rig *r)
{
	return r->core->cursors.base;
}

uint64_t rig_gate(const struct rig *r, uint32_t layer)
{
	return __atomic_load_n(&rig_gates(r)->gate[layer].word, __ATOMIC_ACQUIRE);
}

void rig_put_gate(const struct rig *r, uint32_t layer, uint64_t word)
{
	__atomic_store_n(&rig_gates(r)->gate[layer].word, word, __ATOMIC_RELEASE);
}

uint64_t rig_acked(const struct rig *r)
{
	return __atomic_load_n(&rig_gates(r)->cold_acked, __ATOMIC_ACQUIRE);
}

void rig_wait_ready(const struct rig *r, uint32_t layer)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	while (!(rig_gate(r, layer) & MM_GATE_PASS)) {
		if (mm_now_ns() > until_ns)
			fail_msg("epoch %lu: layer %u of %u: gate %lx", r->epoch, layer, r->layers,
				 (unsigned long)rig_gate(r, layer));
		usleep(20);
	}
}

uint32_t rig_window_entries(const struct rig *r, const struct shape *shape)
{
	uint32_t entries = mm_cold_window_entries(r->classes, r->layers, r->unit_bytes,
						  shape->window_pages * GRANULE);

	return shape->window ? MM_MIN(entries, r->entries) : 0;
}

static void region_write_cold(const struct rig *r, const struct shape *shape)
{
	struct mm_xplan_cold *cold = &rig_plan(r)->cold;

	memset(cold, 0, sizeof(*cold));
	if (!shape->window)
		return;
	cold->classes = r->classes;
	cold->entries = rig_window_entries(r, shape);
	cold->unit_bytes = r->unit_bytes;
	cold->n_pages = shape->window_pages;
	memcpy(cold->page, shape->window, shape->window_pages * sizeof(cold->page[0]));
}

void rig_write_plan(const struct rig *r, const struct shape *shape, uint64_t epoch)
{
	struct mm_xplan_region *plan = rig_plan(r);

	plan->epoch = epoch;
	plan->store_id = STORE;
	plan->n_layers = r->layers;
	plan->n_slots = shape->n_slots;
	for (uint32_t l = 0; l < STORE_LAYERS; l++)
		plan->layer[l] = (struct mm_xplan_layer){ l * STRIDE, LAYER_BYTES };
	for (uint32_t s = 0; s < shape->n_slots; s++) {
		plan->slot[s].n_layers = shape->n[s];
		plan->slot[s].n_pages = SLOT_PAGES;
		plan->slot[s].in_place = shape->in_place[s];
		memcpy(plan->slot[s].page, shape->pages[s], sizeof(slot_pages[0][0]));
		memcpy(plan->slot[s].layer, shape->layer[s], sizeof(shape->layer[s]));
	}
	plan->closed[0] = shape->closed;
	region_write_cold(r, shape);
}

/* ---- the tenant's entries ---- */

uint32_t rig_random(struct rig *r, uint32_t n)
{
	return (uint32_t)rand_r(&r->seed) % n;
}

static uint64_t row_word(uint32_t entry, uint32_t layer, uint32_t generation, uint64_t word)
{
	return core_pattern(((generation * UINT64_C(1024) + entry) * 1024 + layer) * 65536 + word);
}

static uint64_t *row_of(const struct rig *r, uint32_t entry, uint32_t layer)
{
	return (uint64_t *)(void *)((char *)r->space.base +
				    ((uint64_t)entry * r->layers + layer) * r->unit_bytes);
}

void rig_next_version(struct rig *r)
{
	__atomic_store_n(&rig_gates(r)->cold.version, ++r->version, __ATOMIC_RELEASE);
}

static void live_put(const struct rig *r, uint32_t entry, bool live)
{
	uint64_t *word = &rig_gates(r)->cold.live[entry / 64];
	uint64_t bit = UINT64_C(1) << entry % 64;

	__atomic_store_n(word, live ? *word | bit : *word & ~bit, __ATOMIC_RELAXED);
}

void rig_set_entry(struct rig *r, uint32_t entry)
{
	struct entry *e = &r->entry[entry];

	e->generation++;
	for (uint32_t l = 0; l < r->layers; l++)
		for (uint64_t w = 0; w < r->unit_bytes / 8; w++)
			row_of(r, entry, l)[w] = row_word(entry, l, e->generation, w);
	live_put(r, entry, true);
	rig_next_version(r);
	e->live = true;
	e->version = r->version;
}

void rig_clear_entry(struct rig *r, uint32_t entry)
{
	live_put(r, entry, false);
	rig_next_version(r);
	r->entry[entry].live = false;
}

void rig_read_window(const struct rig *r, const struct shape *shape, uint64_t at, void *to,
		     uint64_t bytes)
{
	for (uint64_t n, done = 0; done < bytes; done += n) {
		uint64_t in_page = (at + done) % GRANULE;

		n = MM_MIN(bytes - done, GRANULE - in_page);
		core_read(r->core, shape->window[(at + done) / GRANULE], in_page, (char *)to + done,
			  n);
	}
}

bool rig_row_is(const struct rig *r, const struct shape *shape, uint32_t entry, uint32_t layer)
{
	static uint64_t got[GRANULE / 8];

	rig_read_window(r, shape, (r->classes * (uint64_t)entry + layer) * r->unit_bytes, got,
			r->unit_bytes);
	for (uint64_t w = 0; w < r->unit_bytes / 8; w++)
		if (got[w] != row_word(entry, layer, r->entry[entry].generation, w))
			return false;
	return true;
}

/* ---- xfer ---- */

int rig_job(const struct rig *r, enum mm_xop op, uint64_t epoch)
{
	return core_do(r->core, op, epoch, TENANT, 0, 0, 0);
}

void rig_send_space(const struct rig *r)
{
	const struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
				     .kind = MM_X_SWAP,
				     .count = 1,
				     .id = TENANT,
				     .bytes = r->space.size_bytes };

	core_send(r->core, &msg, &r->space.fd, 1);
}

void rig_restart(const struct rig *r)
{
	core_restart(r->core);
	rig_send_space(r);
}

void rig_prepare(struct rig *r, struct core *core, uint32_t layers, uint64_t unit_bytes,
		 uint32_t entries)
{
	*r = (struct rig){ .core = core,
			   .layers = layers,
			   .classes = mm_cold_layer_classes(layers),
			   .unit_bytes = unit_bytes,
			   .entries = entries,
			   .space = MM_REGION_NULL };
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_int_equal(core_do(core, MM_XOP_CREATE, 0, 0, core->setup.pages, 0, 0), 0);
	core_make_store(core, STORE_LAYERS * STRIDE);
	core_send_store(core);
	core_send_tenant(core);
	assert_int_equal(mm_region_create(entries * layers * unit_bytes, MM_REGION_SHARED, "swap",
					  &r->space),
			 0);
	rig_send_space(r);
	rig_plan(r)->cold_limit = MM_COLD_MAX;
	for (uint32_t l = 0; l < layers; l++)
		rig_put_gate(r, l, MM_GATE_EMPTY);
}

void rig_done(struct rig *r)
{
	mm_region_done(&r->space);
}
