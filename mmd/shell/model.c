/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/model.h"

#include <errno.h>
#include <fcntl.h>

#include "libclient/support/clock.h"
#include "mmd/shell/session_out.h"
#include "mmd/shell/shell.h"

/* Serials of items that are put for a load; they differ from those of actions and requests. */
#define SERIAL_OF_LOAD (UINT64_C(1) << 62)
#define SERIAL_SHIFT   8

void mm_model_items_begin(struct mm_session *s)
{
	s->shell->serial = SERIAL_OF_LOAD | s->kept->model.load << SERIAL_SHIFT;
}

void mm_model_failed(struct mm_session *s, int result, enum mm_refusal why)
{
	struct mm_msg msg = { .opcode = MM_EV_MODEL_READY, .result = result, .arg[0] = why };

	mm_session_event(s, &msg);
}

/* The core gets the groups of the session's store, once. */
static void model_report(struct mm_session *s)
{
	const struct mm_store *store = s->store;
	const struct mm_event event = { .kind = MM_EVENT_MODEL,
					.tenant = s->tenant,
					.now_ns = mm_now_ns(),
					.model = { .store = store->id,
						   .store_bytes = store->bytes,
						   .n_groups = store->n_groups },
					.groups = store->groups };
	struct mm_event_result result;
	struct mm_core_tenant known;

	if (mm_core_tenant(s->pool->core, s->tenant, &known) && known.has_model)
		return;
	mm_pool_event(s->pool, &event, NULL, &result);
	if (result.r)
		mm_session_end(s, "a model that it must not have");
}

/* Puts what the tenant gets for its store, unless it is there. */
static void model_send(struct mm_session *s)
{
	const struct mm_store *store = s->store;
	struct mm_msg msg = { .opcode = MM_EV_MODEL_LOADED,
			      .arg = { store->n_groups,
				       mm_store_pages(store, s->pool->worker.device.page_bytes),
				       store->bytes, store->on_disk ? store->head_bytes : 0 } };
	int fd = fcntl(store->fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0) {
		mm_session_end(s, "its store could not be sent");
		return;
	}
	mm_session_fd(s, MM_FD_STORE, fd);
	mm_session_event(s, &msg);
}

void mm_model_finish(struct mm_session *s)
{
	model_send(s);
	model_report(s);
}

void mm_model_loaded(struct mm_session *s, struct mm_store *store, uint64_t read_bytes,
		     uint64_t filled_bytes)
{
	struct mm_model_kept *model = &s->kept->model;

	model->read_bytes = read_bytes;
	model->filled_bytes = filled_bytes;
	store->refs++;
	s->store = store;
	mm_kept_publish(&model->store, store->id);
	mm_model_finish(s);
}

void mm_model_leave(struct mm_session *s)
{
	const struct mm_scope scope = mm_session_scope(s);
	struct mm_store *store = s->store;

	s->store = NULL;
	s->kept->model.read_bytes = s->kept->model.filled_bytes = 0;
	mm_kept_publish(&s->kept->model.store, (uint64_t)0);
	if (!store)
		return;
	mm_keys_leave(s->shell, store, &scope);
	mm_store_put(s->shell, store);
}

void mm_models_resume(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->kept->state < MM_SESSION_OPEN || !s->kept->model.store)
			continue;
		s->store = mm_store_find(shell, s->kept->model.store);
		if (s->store)
			s->store->refs++;
	}
}
