/* SPDX-License-Identifier: Apache-2.0 */
/* Cold blocks: their declaration, their window, and which entries are live. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/client/internal.h"
#include "libclient/protocol/cold.h"
#include "libclient/protocol/xplan.h"
#include "libclient/support/fault.h"
#include "mm/client_cold.h"

#define WORD_BITS 64

struct cold_window { /* chunks of the arena */
	uint32_t first, chunks;
};

struct mm_cold {
	struct mm_client *client;
	struct mm_kv *kv;
	uint64_t unit_bytes;
	uint32_t layers, entries_max, classes;
	uint32_t limit MM_GUARDED_BY(mm_client_lock);
	uint64_t deadline_ns MM_GUARDED_BY(mm_client_lock);
	/*
	 * Limits with a deadline so far. The least of those that the engine has not read may count
	 * already, also if a higher one came since; `unread`: there is such a one.
	 */
	uint64_t falls MM_GUARDED_BY(mm_client_lock);
	bool unread MM_GUARDED_BY(mm_client_lock);
	uint32_t least MM_GUARDED_BY(mm_client_lock);
	uint64_t least_deadline_ns MM_GUARDED_BY(mm_client_lock);
	struct cold_window window MM_GUARDED_BY(mm_client_lock); /* in force */
	struct cold_window next MM_GUARDED_BY(mm_client_lock);   /* requested, while `request` */
	uint64_t request MM_GUARDED_BY(mm_client_lock);          /* its id; 0: none is under way */
	int error MM_GUARDED_BY(mm_client_lock);                 /* of the last one answered */
	bool changed MM_GUARDED_BY(mm_client_lock);              /* since the last version */
	/* A private copy: the process may write to the shared region. */
	uint64_t live[MM_COLD_MAX / WORD_BITS] MM_GUARDED_BY(mm_client_lock);
};

/* ---- events of mmd ---- */

static void cold_announce(struct mm_cold *cold, int error, bool answer) MM_REQUIRES(mm_client_lock)
{
	mm_event_push(cold->client, &(struct mm_event){ .kind = MM_EVENT_COLD,
							.count = answer,
							.error = error,
							.deadline_ns = cold->deadline_ns });
}

static void limit_fell(struct mm_cold *cold) MM_REQUIRES(mm_client_lock)
{
	cold->falls++;
	if (cold->unread && cold->least < cold->limit)
		return;
	cold->unread = true;
	cold->least = cold->limit;
	cold->least_deadline_ns = cold->deadline_ns;
}

int mm_cold_on_limit(struct mm_client *client, const struct mm_msg *msg, const char **ret_text)
{
	struct mm_cold *cold;
	bool known;

	mm_client_lock_take(&client->lock);
	cold = client->cold;
	/* One that was sent before an unload was answered may come after it. */
	known = client->welcome.features & MM_FEAT_COLD;
	if (cold && known) {
		cold->limit = (uint32_t)MM_MIN(msg->arg[0], cold->entries_max);
		cold->deadline_ns = msg->arg[1];
		if (cold->deadline_ns)
			limit_fell(cold);
		cold_announce(cold, 0, false);
	}
	mm_client_lock_give(&client->lock);
	*ret_text = "mmd limits cold blocks, which it did not offer";
	return known ? 0 : -EPROTO;
}

bool mm_cold_on_reply(struct mm_client *client, const struct mm_msg *msg)
{
	struct mm_cold *cold;
	bool mine;

	mm_client_lock_take(&client->lock);
	cold = client->cold;
	mine = cold && cold->request && cold->request == msg->user_data;
	if (mine) {
		cold->request = 0;
		cold->error = MM_MIN(msg->result, 0);
		if (!cold->error)
			cold->window = cold->next;
		cold_announce(cold, cold->error, true);
	}
	mm_client_lock_give(&client->lock);
	return mine;
}

static bool window_names(const struct cold_window *w, uint32_t chunk)
{
	return chunk >= w->first && chunk - w->first < w->chunks;
}

bool mm_cold_names(const struct mm_cold *cold, uint32_t chunk)
{
	return cold && (window_names(&cold->window, chunk) ||
			(cold->request && window_names(&cold->next, chunk)));
}

uint64_t mm_cold_falls(const struct mm_cold *cold)
{
	return cold ? cold->falls : 0;
}

bool mm_cold_fell(const struct mm_cold *cold, uint64_t falls)
{
	return cold && cold->window.chunks && (cold->unread || cold->falls != falls);
}

/* ---- opening and freeing ---- */

void mm_cold_destroy(struct mm_cold *cold)
{
	free(cold);
}

void mm_cold_drop(struct mm_client *client)
{
	struct mm_cold *cold;

	mm_client_lock_take(&client->lock);
	cold = client->cold;
	client->cold = NULL;
	mm_event_drop(client, MM_EVENT_COLD, UINT64_MAX);
	mm_client_lock_give(&client->lock);
	mm_cold_destroy(cold);
}

static int cold_opts_check(struct mm_client *c, const struct mm_cold_opts *o)
{
	if (o->reserved)
		return mm_fail(c, -EINVAL, "opts: " MM_SIZE_TEXT);
	if (!o->unit_bytes || o->unit_bytes % MM_COLD_UNIT_BYTES)
		return mm_fail(c, -EINVAL, "opts: unit_bytes must be a multiple of %d",
			       MM_COLD_UNIT_BYTES);
	if (!o->entries_max || o->entries_max > MM_COLD_MAX)
		return mm_fail(c, -EINVAL, "opts: entries_max is 1 to %d", MM_COLD_MAX);
	if (o->floor > o->entries_max)
		return mm_fail(c, -EINVAL, "opts: floor is above entries_max");
	if (!o->layers || o->layers != mm_client_layers(c))
		return mm_fail(c, -EINVAL, "opts: %u layers, and the model has %u", o->layers,
			       mm_client_layers(c));
	if (o->layers < MM_COLD_CLASSES_MAX)
		return mm_fail(c, -EOPNOTSUPP, "cold blocks need %d layers", MM_COLD_CLASSES_MAX);
	return 0;
}

/* Return: 0; -EEXIST; -EINVAL no arena of one range, or no swap space; -E2BIG. */
static int cold_install(struct mm_client *c, struct mm_cold *cold) MM_REQUIRES(mm_client_lock)
{
	uint64_t bytes;

	if (c->cold)
		return -EEXIST;
	if (!c->kv || c->kv->ranges != 1 || !c->swap)
		return -EINVAL;
	if (__builtin_mul_overflow(cold->unit_bytes, cold->layers, &bytes) ||
	    __builtin_mul_overflow(bytes, cold->entries_max, &bytes) ||
	    bytes > mm_swap_bytes(c->swap))
		return -E2BIG;
	cold->kv = c->kv;
	c->cold = cold;
	return 0;
}

static void cold_uninstall(struct mm_client *c)
{
	mm_client_lock_take(&c->lock);
	c->cold = NULL;
	mm_client_lock_give(&c->lock);
}

static const char *cold_install_text(int error)
{
	if (error == -EEXIST)
		return "this client has cold blocks already";
	return error == -EINVAL ? "open an arena of one range and a swap space first"
				: "opts: the swap space is too small for all entries";
}

static void version_advance(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	/* The bits come first: xfer reads the version, then the bits. */
	__atomic_store_n(&c->gates->cold.version, ++c->cold_version, __ATOMIC_RELEASE);
}

/*
 * Ends the entries of an earlier declaration. Versions go on where they were, since what was acked
 * of them still stands in the region.
 */
static void live_clear(struct mm_client *c)
{
	mm_client_lock_take(&c->lock);
	for (size_t i = 0; i < MM_ARRAY_SIZE(c->gates->cold.live); i++)
		__atomic_store_n(&c->gates->cold.live[i], 0, __ATOMIC_RELAXED);
	version_advance(c);
	mm_client_lock_give(&c->lock);
}

/* Requests it from mmd. It is installed already: the limit may come before this call returns. */
static int cold_declare(struct mm_client *c, struct mm_cold *cold, uint32_t floor)
{
	struct mm_msg msg = { .opcode = MM_OP_COLD_OPEN,
			      .arg = { cold->unit_bytes, cold->layers, cold->entries_max, floor } };
	int r = mm_link_call(c, &msg);

	if (r)
		return mm_fail(c, r, "mmd did not answer: %s", strerror(-r));
	if (msg.result < 0)
		return mm_fail(c, msg.result, "mmd refused cold blocks: %s", strerror(-msg.result));
	if (msg.arg[1] == cold->classes)
		return 0;
	mm_link_fail(c, -EPROTO, "mmd divides the layers into other classes");
	return mm_fail(c, -EPROTO, "%s", c->dead_text);
}

static int cold_begin(struct mm_client *c, struct mm_cold *cold, uint32_t floor)
{
	int r;

	mm_client_lock_take(&c->lock);
	r = cold_install(c, cold);
	mm_client_lock_give(&c->lock);
	if (r) {
		mm_cold_destroy(cold);
		return mm_fail(c, r, "%s", cold_install_text(r));
	}
	live_clear(c);
	r = cold_declare(c, cold, floor);
	/* After -ETIMEDOUT mmd may still declare it: it stays, unused, until the end. */
	if (r && r != -ETIMEDOUT) {
		cold_uninstall(c);
		mm_cold_destroy(cold);
	}
	return r;
}

int mm_cold_open(struct mm_client *client, const struct mm_cold_opts *opts,
		 struct mm_cold **ret_cold)
{
	struct mm_cold_opts copy;
	struct mm_cold *cold;
	int r = mm_enter(client);

	if (r)
		return r;
	if (mm_sized_read(opts, MM_V1_COLD_OPTS, &copy, sizeof(copy)))
		return mm_fail(client, -EINVAL, "opts: " MM_SIZE_TEXT);
	if (!(client->welcome.features & MM_FEAT_COLD))
		return mm_fail(client, -EOPNOTSUPP, "this mmd streams no cold blocks");
	if (mm_group_is_joined(client))
		return mm_fail(client, -EOPNOTSUPP, "a rank of a group has no cold blocks");
	r = cold_opts_check(client, &copy);
	if (r)
		return r;
	cold = mm_fault("cold.open") ? NULL : calloc(1, sizeof(*cold));
	if (!cold)
		return mm_fail(client, -ENOMEM, "out of memory");
	cold->client = client;
	cold->unit_bytes = copy.unit_bytes;
	cold->layers = copy.layers;
	cold->entries_max = copy.entries_max;
	cold->classes = mm_cold_layer_classes(copy.layers);
	r = cold_begin(client, cold, copy.floor);
	if (!r)
		*ret_cold = cold;
	return r;
}

uint32_t mm_cold_classes(const struct mm_cold *cold)
{
	return cold->classes;
}

/* ---- the window ---- */

static uint32_t window_entries(const struct mm_cold *cold, const struct cold_window *w)
{
	return mm_cold_window_entries(cold->classes, cold->layers, cold->unit_bytes,
				      w->chunks * cold->kv->chunk_bytes);
}

/* Return: 0; -EINVAL beyond the arena, or room for no entry; -E2BIG; -ENOENT; -EBUSY. */
static int window_check(const struct mm_cold *cold, const struct cold_window *w)
	MM_REQUIRES(mm_client_lock)
{
	const struct mm_client *c = cold->client;
	const struct mm_kv *kv = cold->kv;

	if (cold->request)
		return -EBUSY;
	if (!w->chunks)
		return 0;
	if (w->first > kv->chunks_max || w->chunks > kv->chunks_max - w->first ||
	    !window_entries(cold, w))
		return -EINVAL;
	if (w->chunks > MM_SLOT_PAGES_MAX / kv->pages_per_range)
		return -E2BIG;
	for (uint32_t i = w->first; i < w->first + w->chunks; i++) {
		if (!mm_kv_is_usable(kv, i))
			return -ENOENT;
		if (mm_swap_names(c->swap, i))
			return -EBUSY;
	}
	return 0;
}

static int window_failed(struct mm_client *c, int r)
{
	switch (r) {
	case -EINVAL:
		return mm_fail(c, r, "the window leaves the arena, or has no room for an entry");
	case -E2BIG:
		return mm_fail(c, r, "a window has at most %d pages", MM_SLOT_PAGES_MAX);
	case -ENOENT:
		return mm_fail(c, r, "a chunk of the window is not usable");
	default:
		return mm_fail(c, r,
			       "a chunk is being swapped, or the window before this one is "
			       "not answered");
	}
}

int mm_cold_window(struct mm_cold *cold, uint32_t first_chunk, uint32_t chunks)
{
	struct mm_client *c = cold->client;
	const struct cold_window w = { chunks ? first_chunk : 0, chunks };
	struct mm_msg msg = { .opcode = MM_OP_COLD_WINDOW, .arg = { w.first, w.chunks } };
	int r = mm_enter(c);

	if (r)
		return r;
	mm_client_lock_take(&c->lock);
	r = window_check(cold, &w);
	if (!r) {
		cold->next = w;
		cold->request = msg.user_data = ++c->last_wait_id;
	}
	mm_client_lock_give(&c->lock);
	if (r)
		return window_failed(c, r);
	r = mm_link_push(c, &msg);
	if (!r)
		return 0;
	mm_client_lock_take(&c->lock);
	cold->request = 0;
	mm_client_lock_give(&c->lock);
	return mm_fail(c, r, "mmd takes no requests: %s", strerror(-r));
}

/* ---- entries ---- */

int mm_cold_set(struct mm_cold *cold, uint32_t entry, bool live)
{
	struct mm_client *c = cold->client;
	const uint32_t word = entry / WORD_BITS;
	const uint64_t bit = UINT64_C(1) << entry % WORD_BITS;
	int r = mm_enter(c);

	if (r)
		return r;
	if (entry >= cold->entries_max)
		return mm_fail(c, -EINVAL, "entry %u: there are %u", entry, cold->entries_max);
	mm_client_lock_take(&c->lock);
	cold->changed |= !(cold->live[word] & bit) == live;
	cold->live[word] = live ? cold->live[word] | bit : cold->live[word] & ~bit;
	__atomic_store_n(&c->gates->cold.live[word], cold->live[word], __ATOMIC_RELAXED);
	mm_client_lock_give(&c->lock);
	return 0;
}

uint64_t mm_cold_commit(struct mm_cold *cold)
{
	struct mm_client *c = cold->client;
	uint64_t version;

	if (mm_fork_is_child(c))
		return 0;
	mm_client_lock_take(&c->lock);
	if (cold->changed)
		version_advance(c);
	cold->changed = false;
	version = c->cold_version;
	mm_client_lock_give(&c->lock);
	return version;
}

int mm_cold_state(struct mm_cold *cold, struct mm_cold_state *ret_state)
{
	struct mm_client *c = cold->client;
	struct mm_cold_state state = { 0 };
	int r = mm_enter(c);

	if (!r)
		r = mm_size_check(c, ret_state, MM_V1_COLD_STATE);
	if (r)
		return r;
	mm_client_lock_take(&c->lock);
	/* Nobody can have seen a version that was not committed. */
	state.acked =
		MM_MIN(__atomic_load_n(&c->gates->cold_acked, __ATOMIC_ACQUIRE), c->cold_version);
	state.deadline_ns = cold->deadline_ns;
	state.limit = cold->limit;
	if (cold->unread && cold->least < cold->limit) {
		state.deadline_ns = cold->least_deadline_ns;
		state.limit = cold->least;
	}
	cold->unread = false;
	state.window_first = cold->window.first;
	state.window_chunks = cold->window.chunks;
	state.entries = MM_MIN(window_entries(cold, &cold->window), cold->entries_max);
	state.error = cold->error;
	state.pending = cold->request != 0;
	mm_client_lock_give(&c->lock);
	mm_sized_write(ret_state, &state, sizeof(state));
	return 0;
}
