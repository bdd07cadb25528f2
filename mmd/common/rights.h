/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rights - what a role gives up once it holds everything that needs privileges
 *
 * Concept:    Each role begins with the rights of whoever started mmd and ends its start without
 *             them. Where that was root, it becomes a user of its own, without capabilities; where
 *             the kernel forbids that (a container without CAP_SETUID), it stays root without
 *             capabilities, and says so. In any case it gets no new privileges, dumps no core, lets
 *             no debugger attach, and may make no other system calls than its filter names
 *             (filter.h). Documentation/security.md has the roles in a table.
 * Use:        mm_rights_init() once; then mm_rights_leave_root(), then mm_rights_close(), both
 *             before a first byte of a tenant is read.
 * Threading:  the change of the user reaches all threads of the process, as the filter does; the
 *             capabilities of a process that stays root are given up by the calling thread alone.
 * Invariants: the process dies with its parent as before; the kernel forgets that at a change of
 *             the user, so it is set again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "mmd/common/filter.h"

/*
 * Users that no system gives away: above the range of systemd's dynamic users, below nobody. Each
 * has a group of the same number.
 */
#define MM_UID_CORE  65520
#define MM_UID_XFER  65521
#define MM_UID_SPOOL 65522
#define MM_UID_LOG   65523
#define MM_UID_LOAD  65534 /* nobody */

/* Whom a role becomes that is root. */
struct mm_rights_user {
	const char *name; /* if this system has a user of that name other than root, it is taken */
	uid_t uid;        /* taken otherwise, with the group of the same number */
	const gid_t *groups;
	size_t n_groups; /* besides */
};

/* The outcome of mm_rights_leave_root(). */
struct mm_rights {
	uid_t uid;
	bool stays_root; /* the kernel did not let it become another user */
	int error;       /* why: an errno */
};

/* Sets how strict mm_rights_close() will be; MM_SANDBOX_ON if it is not called. */
void mm_rights_init(enum mm_sandbox sandbox);

/* As mm_rights_init() has set it. */
enum mm_sandbox mm_rights_sandbox(void);

/**
 * mm_rights_leave_root() - become another user, without capabilities
 * @user:       who; NULL: stay root, without capabilities
 * @ret_rights: what became of it
 *
 * An ordinary user stays itself.
 * Return: 0, also if the process stays root; -ESRCH the parent has died meanwhile; or a failure
 * after which the process has more rights than it should have, and must end.
 */
int mm_rights_leave_root(const struct mm_rights_user *user, struct mm_rights *ret_rights);

/**
 * mm_rights_try() - find out whether something works as another user
 * @user:  who; the process is root before and after the call, without supplementary groups
 * @works: called as that user
 * @arg:   its argument
 *
 * Return: 1 it works; 0 it does not, or the process cannot become that user; -ESRCH the parent has
 * died meanwhile; or another failure after which the process must end.
 */
int mm_rights_try(const struct mm_rights_user *user, bool (*works)(void *arg), void *arg);

/* Gives up all capabilities but those of @keep, a mask of bits by number. Return: 0; -errno. */
int mm_rights_keep(uint64_t keep);

/* Dumps no core and lets no debugger attach; not with MM_SANDBOX_OFF. Return: 0; -errno. */
int mm_rights_hide(void);

/**
 * mm_rights_close() - no new privileges, no core dump, no debugger; then the filter
 * @filter: outlives the process
 *
 * With MM_SANDBOX_OFF only the first of it is done.
 * Return: 0; -errno, and the role must not go on.
 */
int mm_rights_close(const struct mm_filter *filter);
