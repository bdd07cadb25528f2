/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "tests/unit/tools/mmserve/rig_cold.h"

int rig_cold_open(struct rig_cold *c, const struct mm_cold_opts *opts, uint32_t *ret_classes)
{
	assert_true(!c->opts.size && c->space);
	c->opts = *opts;
	c->classes = *ret_classes = mm_cold_layer_classes(opts->layers);
	c->state.limit = opts->floor;
	return 0;
}

int rig_cold_window(struct rig_cold *c, uint32_t first_chunk, uint32_t chunks)
{
	assert_false(c->state.pending);
	c->next_first = first_chunk;
	c->next_chunks = chunks;
	if (chunks && (!c->lowest || first_chunk < c->lowest))
		c->lowest = first_chunk;
	c->state.pending = 1;
	return 0;
}

static void window_poison(const struct rig_cold *c)
{
	assert_int_equal(c->gpu->cuMemsetD8Async(c->arena + c->window_first * c->chunk_bytes, 0xff,
						 c->window_chunks * c->chunk_bytes, NULL),
			 0);
}

void rig_cold_answer(struct rig_cold *c)
{
	assert_true(c->state.pending);
	c->state.pending = 0;
	if (c->window_chunks)
		window_poison(c);
	c->window_first = c->next_first;
	c->window_chunks = c->next_chunks;
	rig_cold_restart(c);
}

bool rig_cold_names(const struct rig_cold *c, uint32_t chunk)
{
	return (chunk >= c->window_first && chunk - c->window_first < c->window_chunks) ||
	       (c->state.pending && chunk >= c->next_first &&
		chunk - c->next_first < c->next_chunks);
}

int rig_cold_set(struct rig_cold *c, uint32_t entry, bool live)
{
	const uint64_t bit = UINT64_C(1) << entry % 64;

	assert_true(entry < c->opts.entries_max);
	c->live[entry / 64] = live ? c->live[entry / 64] | bit : c->live[entry / 64] & ~bit;
	return 0;
}

uint64_t rig_cold_commit(struct rig_cold *c)
{
	return ++c->version;
}

static uint32_t window_room_of(const struct rig_cold *c)
{
	return MM_MIN(mm_cold_window_entries(c->classes, c->opts.layers, c->opts.unit_bytes,
					     c->window_chunks * c->chunk_bytes),
		      c->opts.entries_max);
}

int rig_cold_state(struct rig_cold *c, struct mm_cold_state *ret_state)
{
	assert_int_equal(ret_state->size, sizeof(*ret_state));
	c->state.acked = UINT64_MAX;
	for (uint32_t k = 0; k < c->classes; k++)
		c->state.acked = MM_MIN(c->state.acked, c->seen[k]);
	c->state.size = sizeof(c->state);
	c->state.window_first = c->window_first;
	c->state.window_chunks = c->window_chunks;
	c->state.entries = window_room_of(c);
	c->streamed = c->state.limit;
	*ret_state = c->state;
	return 0;
}

static void rows_stream(struct rig_cold *c, uint32_t layer, CUstream stream)
{
	const uint64_t unit = c->opts.unit_bytes;
	const CUdeviceptr window = c->arena + c->window_first * c->chunk_bytes;
	const uint32_t room = MM_MIN(c->streamed, c->state.entries);

	c->seen[layer % c->classes] = c->version;
	for (uint32_t i = 0; i < room; i++) {
		const CUdeviceptr to = window + ((uint64_t)c->classes * i + layer) * unit;
		const uint8_t *from = c->space + ((uint64_t)i * c->opts.layers + layer) * unit;

		if (c->live[i / 64] >> i % 64 & 1)
			assert_int_equal(c->gpu->cuMemcpyHtoDAsync(to, from, unit, stream), 0);
	}
}

void rig_cold_restart(struct rig_cold *c)
{
	if (!c->window_chunks)
		return;
	c->state.entries = window_room_of(c);
	window_poison(c);
	for (uint32_t layer = 0; layer < c->classes; layer++)
		rows_stream(c, layer, NULL);
	assert_int_equal(c->gpu->cuCtxSynchronize(), 0);
}

bool rig_cold_cut(struct rig_cold *c, uint32_t limit)
{
	c->state.limit = limit;
	if (limit >= c->streamed)
		return false;
	c->streamed = limit;
	rig_cold_restart(c);
	return true;
}

void rig_cold_layer_end(struct rig_cold *c, uint32_t layer, CUstream stream)
{
	if (c->window_chunks && layer + c->classes < c->opts.layers)
		rows_stream(c, layer + c->classes, stream);
}
