/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - the model that a session has, and its way to it
 *
 * Concept:   A session has a load (loads.h), then a store (store.h) that its tenant maps and whose
 *            groups the core lays out, then none again. Its tenant gets the store's file and an
 *            event for it, or an event that says why there is none: once, although a core that
 *            takes over from one that died may do it again.
 * Ownership: a session that has a store is one of its users.
 * Threading: core's thread.
 */
#pragma once

#include <stdint.h>

#include "mm/abi.h"

struct mm_session;
struct mm_shell;
struct mm_store;

/* The part that outlives core (kept.h). */
struct mm_model_kept {
#ifdef MM_KEPT_NEXT /* in a build of tests/e2e/test_upgrade two fields have changed places */
	uint64_t store, load;
#else
	uint64_t load;  /* id of its load; 0: none. Stored last */
	uint64_t store; /* id of the store that it uses; 0: none */
#endif
	uint64_t user_data; /* of the MODEL_OPEN of its load */
	uint32_t position;  /* of that request in the tenant's ring */
	uint32_t answered;  /* it was answered: the load was started */
	uint32_t load_deaths;
	uint32_t reserved;
	uint64_t read_bytes, filled_bytes; /* of the load of its model */
};

/*
 * Begins to put items for the end of the session's load, up to mm_session_request_end(). They have
 * serials of their own, so that a core that takes over puts none twice.
 */
void mm_model_items_begin(struct mm_session *session);

/* The tenant gets no model. */
void mm_model_failed(struct mm_session *session, int result, enum mm_refusal why);

/* The session uses the store from now on: its tenant and the core get what they need of it. */
void mm_model_loaded(struct mm_session *session, struct mm_store *store, uint64_t read_bytes,
		     uint64_t filled_bytes);
/* Does what of that was not done yet. */
void mm_model_finish(struct mm_session *session);

/* The session does not use its store any more, if it has one. */
void mm_model_leave(struct mm_session *session);

/* Sessions of a core that has died use their stores again. */
void mm_models_resume(struct mm_shell *shell);
