/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/loads.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/size.h"
#include "mmd/shell/model.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"

#define MESSAGES_PER_WAKEUP 16
/* After so many deaths of one session's loads its files are at fault. */
#define LOAD_DEATHS_MAX 2

static struct mm_load *load_find(struct mm_shell *shell, uint64_t id)
{
	for (size_t i = 0; id && i < MM_LOADS_MAX; i++) {
		if (shell->stores.load[i].id == id)
			return &shell->stores.load[i];
	}
	return NULL;
}

static struct mm_load *load_place_find(struct mm_stores *all)
{
	for (size_t i = 0; i < MM_LOADS_MAX; i++)
		if (!all->load[i].id)
			return &all->load[i];
	return NULL;
}

/* Starts a load for the MODEL_OPEN that is in the session's kept part. */
static void load_start(struct mm_session *s, struct mm_load *load)
{
	struct mm_stores *all = &s->shell->stores;

	load->id = ++all->kept->load_serial;
	load->account = s->account;
	load->uid = s->uid;
	load->state = MM_LOAD_STARTING;
	load->tenant = s->tenant;
	mm_kept_publish(&s->kept->model.load, load->id);
	mm_shell_send_keeper(s->shell, MM_K_START, MM_ROLE_LOAD, load->id);
}

int mm_load_open(struct mm_session *s, const struct mm_msg *msg)
{
	struct mm_model_kept *model = &s->kept->model;
	struct mm_load *load = load_place_find(&s->shell->stores);

	if (model->load && model->position == s->requests.mine)
		return 0;
	if (s->store)
		return -EEXIST;
	if (model->load)
		return -EALREADY;
	if (!load || !mm_quota_may_load(s))
		return -EAGAIN;
	model->user_data = msg->user_data;
	model->position = s->requests.mine;
	model->answered = 0;
	load_start(s, load);
	return 0;
}

/* The load in @state that fills @store. */
static struct mm_load *load_of_store(struct mm_shell *shell, uint64_t store,
				     enum mm_load_state state)
{
	for (size_t i = 0; i < MM_LOADS_MAX; i++) {
		struct mm_load *load = &shell->stores.load[i];

		if (load->state == state && load->store->id == store)
			return load;
	}
	return NULL;
}

static void waiters_wake(struct mm_shell *shell, struct mm_store *store);

static void load_kill(struct mm_load *load)
{
	mm_shell_send_keeper(load->shell, MM_K_KILL, MM_ROLE_LOAD, load->id);
}

/* Kills a load that broke the protocol; what it sends from now on is ignored. */
static void load_abandon(struct mm_load *load)
{
	mm_loop_del(&load->shell->loop, &load->source);
	load->done = false;
	load_kill(load);
}

static void load_send(struct mm_load *load, struct mm_lmsg *msg, const int *fds, size_t n_fds)
{
	int r;

	msg->magic = MM_PROTO_MAGIC;
	r = mm_sock_send(load->fd, msg, sizeof(*msg), fds, n_fds);
	/* A load that is gone may have said why: that is still in the socket. */
	if (r == -ECONNRESET)
		load_kill(load);
	else if (r < 0)
		load_abandon(load);
}

static void load_send_refusal(struct mm_load *load, int result, enum mm_refusal why,
			      const char *fmt, ...) MM_PRINTF(4, 5);
static void load_send_refusal(struct mm_load *load, int result, enum mm_refusal why,
			      const char *fmt, ...)
{
	struct mm_lmsg msg = { .op = MM_L_REFUSE, .result = result, .numa_node = -1 };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg.text, sizeof(msg.text), fmt, ap);
	va_end(ap);
	load->state = MM_LOAD_REFUSED;
	load->result = result;
	load->why = why;
	load_send(load, &msg, NULL, 0);
}

static void load_share(struct mm_load *load)
{
	struct mm_lmsg msg = { .op = MM_L_HAVE,
			       .store_bytes = load->store->bytes,
			       .numa_node = -1 };

	memcpy(msg.identity, load->store->identity, sizeof(msg.identity));
	load->state = MM_LOAD_SHARING;
	load_send(load, &msg, NULL, 0);
}

/* Sends the load what it fills: memory, or a head in memory and a file to write. */
static void load_alloc(struct mm_load *load, int write_fd)
{
	struct mm_store *store = load->store;
	struct mm_lmsg msg = { .op = MM_L_ALLOC,
			       .store_bytes = store->bytes,
			       .head_bytes = store->head_bytes,
			       .numa_node = store->numa_node };
	mm_cleanup(mm_close_fd) int again = -1;

	if (store->open_for_xfer)
		again = mm_store_open_again(store->fd, O_RDWR);
	store->open_for_xfer = again >= 0;
	memcpy(msg.identity, store->identity, sizeof(msg.identity));
	load->state = MM_LOAD_FILLING;
	load_send(load, &msg, (int[]){ again >= 0 ? again : store->fd, write_fd },
		  store->on_disk ? 2 : 1);
}

/* Refuses a load whose store cannot be made. */
static void load_fail_store(struct mm_load *load, int result, const char *text)
{
	struct mm_store *store = load->store;

	load->store = NULL;
	load_send_refusal(load, result, MM_REFUSED_STORE, "%s", text);
	waiters_wake(load->shell, store);
	mm_store_put(load->shell, store);
}

void mm_load_on_spooled(struct mm_shell *shell, uint64_t id, int result, const char *text, int *fds)
{
	struct mm_load *load = load_of_store(shell, id, MM_LOAD_SPOOLING);
	char why[MM_TEXT_BYTES];

	/* The load is gone, or has reported why it ends. */
	if (!load || load->done)
		return;
	if (result == 0) {
		result = mm_store_fill_memory(shell, load->store);
		snprintf(why, sizeof(why), "host memory for a model's directory: %s",
			 strerror(-result));
		text = why;
	}
	if (result < 0) {
		load_fail_store(load, result, text);
		return;
	}
	load->store->disk_fd = fds[1];
	fds[1] = -1;
	load_alloc(load, fds[0]);
}

static void load_to_disk(struct mm_load *load)
{
	struct mm_store *store = load->store;
	int r;

	store->on_disk = true;
	load->state = MM_LOAD_SPOOLING;
	r = mm_spool_open(load->shell, store->id, store->bytes);
	if (r < 0)
		load_fail_store(load, r, "too many stores on disk at once");
}

static void load_to_memory(struct mm_load *load)
{
	char text[MM_TEXT_BYTES];
	int r = mm_store_fill_memory(load->shell, load->store);

	if (r == 0) {
		load_alloc(load, -1);
		return;
	}
	snprintf(text, sizeof(text), "host memory for %" PRIu64 " bytes of weights: %s",
		 load->store->bytes, strerror(-r));
	load_fail_store(load, r, text);
}

/* Places a new store in memory while the budget lasts, else on disk. */
static void load_place(struct mm_load *load, const struct mm_lmsg *want)
{
	struct mm_shell *shell = load->shell;
	uint64_t max = shell->config->host_store_max_bytes, used = mm_stores_host_bytes(shell);
	uint64_t left = max > used ? max - used : 0;
	bool fits = !max || want->store_bytes <= left;
	const struct mm_session *s = mm_session_find(shell, load->tenant);
	char needs[MM_SIZE_TEXT_BYTES], has[MM_SIZE_TEXT_BYTES], all[MM_SIZE_TEXT_BYTES];

	mm_size_print(want->store_bytes, needs);
	if (!fits && (!*shell->config->store_dir || want->head_bytes > left)) {
		load_send_refusal(
			load, -EDQUOT, MM_REFUSED_STORE,
			"model needs %s of host memory, %s of %s are left; "
			"raise --host-store-max, name a --store-dir or end another model's tenants",
			needs, mm_size_print(left, has), mm_size_print(max, all));
		return;
	}
	left = s ? mm_quota_host_room(shell, s->account) : 0;
	if (fits && want->store_bytes > left) {
		load_send_refusal(load, -EDQUOT, MM_REFUSED_STORE,
				  "model needs %s of host memory, its account has %s left; "
				  "raise its host_max or end another model's tenants",
				  needs, mm_size_print(left, has));
		return;
	}
	load->store = mm_store_new(shell, want, s ? mm_store_node(s->pool) : -1);
	if (load->store && s)
		load->store->payer = s->account;
	if (!load->store)
		load_send_refusal(load, -ENOSPC, MM_REFUSED_STORE, "too many models at once");
	else if (fits)
		load_to_memory(load);
	else
		load_to_disk(load);
}

/* Pages of the device that the model needs if no two groups share a page. */
static uint64_t ident_pages(const struct mm_lident *ident, uint64_t page_bytes)
{
	uint64_t pages = 0;

	for (uint32_t i = 0; i < ident->msg.n_groups; i++)
		pages += mm_div_up(ident->group_bytes[i], page_bytes);
	return pages;
}

static void load_refuse_pages(struct mm_load *load, const struct mm_session *s, enum mm_refusal why,
			      uint64_t pages, uint64_t max_pages)
{
	const uint64_t page_bytes = s->pool->worker.device.page_bytes;
	char needs[MM_SIZE_TEXT_BYTES], has[MM_SIZE_TEXT_BYTES], account[MM_ACCOUNT_NAME_BYTES];

	mm_size_print(pages * page_bytes, needs);
	mm_size_print(max_pages * page_bytes, has);
	if (why == MM_REFUSED_QUOTA)
		load_send_refusal(load, -EDQUOT, why,
				  "model needs %s of device memory (%" PRIu64
				  " pages), account %s may have %s (%" PRIu64 " pages)",
				  needs, pages, mm_quota_name(load->shell, s->account, account),
				  has, max_pages);
	else
		load_send_refusal(load, -ENOSPC, why,
				  "model needs %s of device memory (%" PRIu64
				  " pages), the pool has room for a model of %s (%" PRIu64
				  " pages)",
				  needs, pages, has, max_pages);
}

/* @s: the load's, or NULL. It refuses a model that can never fit on the device. */
static bool load_fits_on_device(struct mm_load *load, const struct mm_session *s, uint64_t pages)
{
	uint64_t max_pages = 0;
	enum mm_refusal why;

	if (!s)
		return true; /* the session is gone, and its load is being killed */
	why = mm_core_model_fits(s->pool->core, s->tenant, pages, &max_pages);
	if (why != MM_REFUSED_NO)
		load_refuse_pages(load, s, why, pages, max_pages);
	return why == MM_REFUSED_NO;
}

/* The load now uses @store: it shares the copy, or waits until it is there. */
static void load_join(struct mm_load *load, struct mm_store *store)
{
	store->refs++;
	load->store = store;
	if (store->ready)
		load_share(load);
	else
		load->state = MM_LOAD_WAITING;
}

/* ---- keys ---- */

static struct mm_scope load_scope(const struct mm_load *load)
{
	return (struct mm_scope){ .account = load->account, .uid = load->uid };
}

static bool load_is_keyed_like(const struct mm_load *load, const struct mm_load *other)
{
	const struct mm_scope a = load_scope(load), b = load_scope(other);

	return load->key.kind && other->key.kind && mm_scope_equal(&a, &b) &&
	       load->key.key_bytes == other->key.key_bytes &&
	       memcmp(load->key.key, other->key.key, sizeof(load->key.key)) == 0;
}

/*
 * Whether a load may add a key to its store: not if its tenant is gone, nor if it waits for a store
 * itself because it asks for one by the key.
 */
static bool load_may_bring_key(const struct mm_load *load)
{
	return load->store && !load->store->failed && load->tenant != MM_STORE_NO_TENANT &&
	       !(load->state == MM_LOAD_WAITING && (load->key.flags & MM_LOAD_KEY_ATTACH));
}

/*
 * The store that has the load's key, or will have it when another load has filled it; NULL: none.
 */
static struct mm_store *load_keyed_store(const struct mm_load *load)
{
	const struct mm_scope scope = load_scope(load);
	struct mm_store *store = mm_key_find(load->shell, &scope, &load->key);

	for (size_t i = 0; !store && i < MM_LOADS_MAX; i++) {
		const struct mm_load *other = &load->shell->stores.load[i];

		if (other != load && load_may_bring_key(other) && load_is_keyed_like(load, other))
			store = other->store;
	}
	return store;
}

/* Whether what was announced may have the load's key: the first that has one keeps it. */
static bool load_may_have_key(struct mm_load *load, const struct mm_lmsg *msg)
{
	const struct mm_scope scope = load_scope(load);
	char text[MM_KEY_TEXT_BYTES];
	struct mm_store *store;

	if (!load->key.kind)
		return true;
	store = load_keyed_store(load);
	mm_key_print(load->key.key, load->key.key_bytes, text);
	if (store && (store->bytes != msg->store_bytes ||
		      memcmp(store->identity, msg->identity, sizeof(store->identity)) != 0)) {
		load_send_refusal(load, -EEXIST, MM_REFUSED_LOAD,
				  "other weights have the key already: %.100s; load them by it, or "
				  "take another key",
				  text);
		return false;
	}
	store = mm_store_by_identity(load->shell, msg);
	if (!store || mm_key_may_add(store, &scope, &load->key) == 0)
		return true;
	load_send_refusal(load, -ENOSPC, MM_REFUSED_STORE,
			  "these weights have %d keys of this user already, one more cannot be: "
			  "%.100s",
			  MM_STORE_KEYS_MAX, text);
	return false;
}

/* Answers a load that has no files, but asks for a store by its key. */
static void load_attach(struct mm_load *load)
{
	const struct mm_session *s = mm_session_find(load->shell, load->tenant);
	struct mm_store *store = load_keyed_store(load);
	char text[MM_KEY_TEXT_BYTES];

	mm_key_print(load->key.key, load->key.key_bytes, text);
	if (!store) {
		load_send_refusal(load, -ENOENT, MM_REFUSED_LOAD,
				  "this user has committed no weights under this key in this "
				  "account: %.100s",
				  text);
		return;
	}
	if ((load->key.flags & MM_LOAD_KEY_DIGEST) &&
	    memcmp(load->key.digest, store->identity, sizeof(store->identity)) != 0) {
		load_send_refusal(load, -ESTALE, MM_REFUSED_LOAD,
				  "the weights of this key have another digest: %.100s", text);
		return;
	}
	if (!store->ready ||
	    load_fits_on_device(load, s,
				s ? mm_store_pages(store, s->pool->worker.device.page_bytes) : 0))
		load_join(load, store);
}

static int load_on_key(struct mm_load *load, const struct mm_load_key *key)
{
	const struct mm_session *s = mm_session_find(load->shell, load->tenant);

	if (mm_key_check(key))
		return -EPROTO;
	load->key = *key;
	if (s && !(s->features & MM_FEAT_KEY))
		load_send_refusal(load, -EOPNOTSUPP, MM_REFUSED_LOAD,
				  "a key of a client that did not offer to use keys");
	else if (key->flags & MM_LOAD_KEY_ATTACH)
		load_attach(load);
	return 0;
}

/* ---- files ---- */

static void load_on_ident(struct mm_load *load, const struct mm_lmsg *msg)
{
	struct mm_store *store;

	if (!load_may_have_key(load, msg))
		return;
	store = mm_store_by_identity(load->shell, msg);
	if (store)
		load_join(load, store);
	else
		load_place(load, msg);
}

/* A load that waited for @store goes on without it. */
static void waiter_release(struct mm_load *load, struct mm_store *store)
{
	load->store = NULL;
	load->state = MM_LOAD_READING;
	mm_store_put(load->shell, store);
}

/*
 * The load that was filling @store ended. Loads that waited for it share the copy; if there is
 * none, the first of them that has files fills a new one and the others wait for that.
 */
static void waiters_wake(struct mm_shell *shell, struct mm_store *store)
{
	struct mm_lmsg again = { .store_bytes = store->bytes, .head_bytes = store->head_bytes };

	memcpy(again.identity, store->identity, sizeof(again.identity));
	store->failed = !store->ready;
	/* Those that have only a key come last: they find what the others fill. */
	for (size_t i = 0; i < 2 * MM_LOADS_MAX; i++) {
		struct mm_load *load = &shell->stores.load[i % MM_LOADS_MAX];
		bool attach = load->key.flags & MM_LOAD_KEY_ATTACH;

		if (load->state != MM_LOAD_WAITING || load->store != store ||
		    attach != (i >= MM_LOADS_MAX))
			continue;
		if (store->ready && !attach) {
			load_share(load);
			continue;
		}
		waiter_release(load, store);
		if (attach)
			load_attach(load);
		else
			load_on_ident(load, &again);
	}
}

/* Bounds that keep every sum over the groups from wrapping. */
static bool ident_is_valid(const struct mm_lident *ident)
{
	const struct mm_lmsg *msg = &ident->msg;

	for (uint32_t i = 0; i < msg->n_groups; i++)
		if (ident->group_bytes[i] > msg->store_bytes)
			return false;
	return msg->store_bytes >= sizeof(struct mm_dir) && msg->store_bytes <= INT64_MAX / 2 &&
	       msg->n_groups >= 2 && msg->n_tensors <= MM_TENSORS_MAX &&
	       msg->head_bytes >= sizeof(struct mm_dir) && msg->head_bytes <= msg->store_bytes;
}

/* A message of a load; each kind begins with the same struct. */
union load_received {
	struct mm_lmsg msg;
	struct mm_lident ident;
	struct mm_lkey key;
};

/* Whether the message has the length of its kind; an IDENT carries all of its groups. */
static bool message_is_whole(const union load_received *received, size_t len)
{
	if (len < sizeof(received->msg))
		return false;
	if (received->msg.op == MM_L_KEY)
		return len == sizeof(received->key);
	if (received->msg.op != MM_L_IDENT)
		return len == sizeof(received->msg);
	return received->msg.n_groups <= MM_LAYERS_MAX + 1 &&
	       len == mm_lident_bytes(received->msg.n_groups);
}

static void load_on_files(struct mm_load *load, const struct mm_lident *ident)
{
	const struct mm_session *s = mm_session_find(load->shell, load->tenant);
	uint64_t page_bytes = s ? s->pool->worker.device.page_bytes : 1;

	/* Before weights are read, or memory is taken for them. */
	if (load_fits_on_device(load, s, ident_pages(ident, page_bytes)))
		load_on_ident(load, &ident->msg);
}

static int load_message(struct mm_load *load, union load_received *received)
{
	struct mm_lmsg *msg = &received->msg;

	if (msg->magic != MM_PROTO_MAGIC || load->done)
		return -EPROTO;
	msg->text[sizeof(msg->text) - 1] = 0;
	if (msg->op == MM_L_KEY && load->state == MM_LOAD_READING && !load->key.kind)
		return load_on_key(load, &received->key.key);
	/* It is sent without waiting for what becomes of the key, which was refused. */
	if (msg->op == MM_L_IDENT && load->state == MM_LOAD_REFUSED && load->key.kind)
		return 0;
	if (msg->op == MM_L_IDENT && load->state == MM_LOAD_READING &&
	    ident_is_valid(&received->ident)) {
		load_on_files(load, &received->ident);
		return 0;
	}
	if (msg->op != MM_L_DONE || msg->result > 0)
		return -EPROTO;
	/*
	 * Only a load that filled or shares a copy may report success; a failure may come in any
	 * state.
	 */
	if (msg->result == 0 && load->state != MM_LOAD_FILLING && load->state != MM_LOAD_SHARING)
		return load->state == MM_LOAD_REFUSED ? 0 : -EPROTO;
	load->done = true;
	if (load->state == MM_LOAD_FILLING)
		load->store->flags = msg->flags;
	if (load->state != MM_LOAD_REFUSED) {
		load->result = msg->result;
		load->why = MM_REFUSED_LOAD;
	}
	load->read_bytes = msg->read_bytes;
	load->filled_bytes = msg->filled_bytes;
	memcpy(load->text, msg->text, sizeof(load->text));
	return 0;
}

/* Reads at most @max messages. The end of the process is reported by keeper, not by the socket. */
static void load_receive(struct mm_load *load, unsigned int max)
{
	union load_received received;
	size_t len = 0;
	int r = 0;

	for (unsigned int i = 0; i < max && r == 0 && load->source.fd >= 0; i++) {
		r = mm_sock_recv_nofds(load->fd, &received, sizeof(received), &len);
		if (r == 0)
			r = message_is_whole(&received, len) ? load_message(load, &received)
							     : -EPROTO;
	}
	if (r == -ECONNRESET) {
		mm_loop_del(&load->shell->loop, &load->source);
	} else if (r < 0 && r != -EAGAIN) {
		mm_log(MM_LOG_WARN, "load.protocol", "load=%" PRIu64 " error=%d", load->id, r);
		load_abandon(load);
	}
}

static void load_on_socket(struct mm_loop_source *source, uint32_t events)
{
	(void)events;
	load_receive(mm_loop_source_owner(source, struct mm_load, source), MESSAGES_PER_WAKEUP);
}

void mm_load_started(struct mm_shell *shell, uint64_t id, int fd, int tenant_fd)
{
	struct mm_load *load = load_find(shell, id);
	struct mm_session *s = load ? mm_session_find(shell, load->tenant) : NULL;

	if (!s || s->state != MM_SESSION_OPEN || s->kept->model.load != id) {
		mm_close_fd(&fd);
		mm_close_fd(&tenant_fd);
		if (load)
			load_kill(load);
		return;
	}
	load->fd = fd;
	load->state = MM_LOAD_READING;
	if (mm_loop_add(&shell->loop, &load->source, fd, EPOLLIN, load_on_socket) < 0) {
		mm_close_fd(&tenant_fd);
		load_kill(load);
		return;
	}
	mm_session_request_begin(s, s->kept->model.position);
	mm_session_reply(s, s->kept->model.user_data, MM_OP_MODEL_OPEN, 0);
	mm_session_fd(s, MM_FD_LOAD, tenant_fd);
	mm_session_request_end(s);
	mm_kept_publish(&s->kept->model.answered, 1u);
}

/* ---- the end of a load ---- */

/* Return: 0 the load succeeded; negative errno for the tenant. */
static int load_outcome(struct mm_load *load, struct mm_session *s, int status)
{
	if (load->state == MM_LOAD_REFUSED || (load->done && load->result < 0))
		return load->result;
	load->why = MM_REFUSED_LOAD;
	if (!load->done || status != 0) {
		load->shell->stores.kept->deaths += load->tenant != MM_STORE_NO_TENANT;
		if (!s || mm_session_may_log(s))
			mm_log(MM_LOG_WARN, "load.died", "load=%" PRIu64 " status=%#x", load->id,
			       (unsigned int)status);
		return s && ++s->kept->model.load_deaths >= LOAD_DEATHS_MAX ? -EIO : -EAGAIN;
	}
	return 0;
}

static int load_seal(struct mm_load *load)
{
	int error;
	const char *wrong = mm_store_seal(load->shell, load->store, &error);

	if (!wrong)
		return 0;
	mm_log(MM_LOG_ERROR, "load.invalid", "load=%" PRIu64 " reason=\"%s\"", load->id, wrong);
	return error;
}

/* The store is a tenant's model now, and can be found by its key. */
static int load_add_key(struct mm_load *load)
{
	const struct mm_scope scope = load_scope(load);
	int r = load->key.kind ? mm_key_add(load->store, &scope, &load->key) : 0;

	load->why = r < 0 ? MM_REFUSED_STORE : load->why;
	return r;
}

static void tenant_notify(struct mm_load *load, struct mm_session *s, int result)
{
	struct mm_model_kept *model = &s->kept->model;

	if (s->state == MM_SESSION_OPEN && result == 0)
		result = load_add_key(load);
	if (s->state == MM_SESSION_OPEN) {
		mm_session_log(s, MM_LOG_INFO, "load.ended",
			       "tenant=%u load=%" PRIu64 " result=%d shared=%d text=\"%s\"",
			       s->tenant, load->id, result, load->state == MM_LOAD_SHARING,
			       load->text);
		mm_model_items_begin(s);
		if (load->state == MM_LOAD_STARTING)
			mm_session_reply(s, model->user_data, MM_OP_MODEL_OPEN, result);
		else if (result < 0)
			mm_model_failed(s, result, load->why);
		else
			mm_model_loaded(s, load->store, load->read_bytes, load->filled_bytes);
		mm_session_request_end(s);
	}
	/* Whatever the tenant is told of the load is put, so that no core tells it again. */
	mm_kept_publish(&model->load, (uint64_t)0);
}

static struct mm_session *load_session(const struct mm_load *load)
{
	struct mm_session *s = mm_session_find(load->shell, load->tenant);

	return s && s->kept->model.load == load->id ? s : NULL;
}

/* Ends a load with @result: 0, or negative errno for the tenant. */
static void load_finish(struct mm_load *load, int result)
{
	struct mm_shell *shell = load->shell;
	struct mm_session *s = load_session(load);
	struct mm_store *store = load->store;
	bool filled = load->state == MM_LOAD_SPOOLING || load->state == MM_LOAD_FILLING ||
		      load->state == MM_LOAD_SEALING;

	if (s) {
		const struct mm_scope scope = load_scope(load);

		tenant_notify(load, s, result);
		/* If the session could not take the store its key goes, too. */
		if (store && s->store != store)
			mm_keys_leave(shell, store, &scope);
	}
	*load = (struct mm_load){ .shell = shell, .fd = -1, .source = MM_LOOP_SOURCE_NULL };
	if (filled)
		waiters_wake(shell, store);
	if (store)
		mm_store_put(shell, store);
}

void mm_load_on_sealed(struct mm_shell *shell, uint64_t id, int result, const char *text)
{
	struct mm_load *load = load_of_store(shell, id, MM_LOAD_SEALING);

	if (!load)
		return;
	if (result < 0)
		snprintf(load->text, sizeof(load->text), "%.200s", text);
	load_finish(load, result < 0 ? result : load_seal(load));
}

void mm_load_gone(struct mm_shell *shell, uint64_t id, int status)
{
	struct mm_load *load = load_find(shell, id);
	int r;

	if (!load)
		return;
	/* Messages that it sent before its death may still be in the socket. */
	load_receive(load, UINT32_MAX);
	r = load_outcome(load, load_session(load), status);
	mm_loop_del(&shell->loop, &load->source);
	mm_close_fd(&load->fd);
	if (r == 0 && load->state == MM_LOAD_FILLING && load->store->on_disk) {
		load->state = MM_LOAD_SEALING;
		mm_spool_seal(shell, load->store->id);
		return;
	}
	if (r == 0 && load->state == MM_LOAD_FILLING)
		r = load_seal(load);
	load_finish(load, r);
}

void mm_load_leave(struct mm_session *s)
{
	struct mm_load *load = load_find(s->shell, s->kept->model.load);

	mm_kept_publish(&s->kept->model.load, (uint64_t)0);
	if (load) {
		load->tenant = MM_STORE_NO_TENANT;
		load_kill(load);
	}
	mm_model_leave(s);
}

/* ---- taking over ---- */

/*
 * The load of a session died with core. What it had brought already is finished; a tenant that
 * knows of the load tries again; for one that does not another load is started.
 */
static void load_resume(struct mm_session *s)
{
	struct mm_model_kept *model = &s->kept->model;
	struct mm_load *load = load_place_find(&s->shell->stores);

	/* The answer is put before it is noted. */
	if (!model->answered && load && !mm_session_has_answer(s, model->position)) {
		load_start(s, load);
		return;
	}
	mm_model_items_begin(s);
	if (s->store)
		mm_model_finish(s);
	else
		mm_model_failed(s, -EAGAIN, MM_REFUSED_LOAD);
	mm_session_request_end(s);
	mm_kept_publish(&model->load, (uint64_t)0);
}

void mm_loads_resume(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state != MM_SESSION_OPEN)
			continue;
		if (s->kept->model.store && !s->store)
			mm_session_end(s, "mmd was restarted, and its model is lost");
		else if (s->kept->model.load)
			load_resume(s);
	}
}
