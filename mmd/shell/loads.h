/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loads - processes that read tenants' files and fill stores
 *
 * Concept:    A tenant requests a model; a load is started for it and gets the tenant's files on a
 *             channel of its own. The load reports the model's identity: a copy that exists is
 *             shared, one that another load is filling is waited for, else this load fills a new
 *             store (store.h), in memory or, through a spool (spools.h), on disk. Its store is used
 *             only after the load was reaped, and the store sealed and checked. A load without
 *             files asks for a copy by its key (keys.h), and shares it or is refused.
 * Restart:    a load dies with core. Its tenant is told to try again, which libclient does by
 *             itself; before it knows of the load another one is started instead.
 * Ownership:  a load owns its socket and a reference to its store.
 * Trust:      a load parses hostile files and counts as hostile itself: its messages are checked,
 *             and it is killed when one is wrong.
 * Threading:  core's thread.
 * Limits:     one load per session, MM_LOADS_MAX in all.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mmd/common/loop.h"
#include "mmd/common/proto.h"

#define MM_LOADS_MAX 64 /* keeper runs no more at once */

struct mm_session;
struct mm_shell;
struct mm_store;

enum mm_load_state {
	MM_LOAD_FREE,
	MM_LOAD_STARTING, /* keeper was asked to start it */
	MM_LOAD_READING,  /* it parses the tenant's files */
	MM_LOAD_WAITING,  /* another load fills the same store */
	MM_LOAD_SPOOLING, /* a spool makes the file of its store */
	MM_LOAD_FILLING,
	MM_LOAD_SEALING, /* it was reaped; the spool checks whether anybody can still write */
	MM_LOAD_SHARING, /* the copy exists; HAVE was sent */
	MM_LOAD_REFUSED, /* REFUSE was sent */
};

struct mm_load {
	struct mm_shell *shell;
	enum mm_load_state state;
	uint64_t id;
	uint32_t tenant;  /* MM_STORE_NO_TENANT: the tenant is gone, the load is being killed */
	uint64_t account; /* the tenant's account, also when the tenant is gone */
	uid_t uid;        /* the tenant's user, likewise */
	/* The key of the store that it fills or asks for; its kind is 0 if it has none. */
	struct mm_load_key key;
	int fd;
	struct mm_loop_source source;
	struct mm_store *store;
	bool done;                         /* it has sent DONE */
	int result;                        /* from its DONE, or of the refusal */
	uint32_t why;                      /* enum mm_refusal */
	uint64_t read_bytes, filled_bytes; /* from its DONE, or 0 */
	char text[MM_TEXT_BYTES];
};
#define MM_STORE_NO_TENANT UINT32_MAX

/*
 * Starts a load for the MODEL_OPEN @msg of @session. Return: 0 the reply follows, or has followed
 * if a core that has died began with the same request; negative errno for the reply.
 */
int mm_load_open(struct mm_session *session, const struct mm_msg *msg);

/*
 * Kills the session's load and drops its reference to a store: at its end, or on MODEL_DROP of the
 * core.
 */
void mm_load_leave(struct mm_session *session);

/*
 * The spool has opened the file of store @id: @fds (taken over) to write and to read it. Or it
 * could not: @result and @text are the reason.
 */
void mm_load_on_spooled(struct mm_shell *shell, uint64_t id, int result, const char *text,
			int *fds);

/*
 * The spool has checked whether anybody can still write to store @id: @result is 0 if nobody can.
 */
void mm_load_on_sealed(struct mm_shell *shell, uint64_t id, int result, const char *text);

/*
 * Messages of keeper: a load was started, with core's end and the tenant's (both taken over); a
 * load was reaped.
 */
void mm_load_started(struct mm_shell *shell, uint64_t id, int fd, int tenant_fd);
void mm_load_gone(struct mm_shell *shell, uint64_t id, int status);

/*
 * The loads of a core that has died have died with it, and all else that was under way is done:
 * finishes what they had brought, begins again what their tenants do not know of yet, and has the
 * others try again.
 */
void mm_loads_resume(struct mm_shell *shell);
