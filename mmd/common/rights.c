/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/rights.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

static enum mm_sandbox rights_sandbox = MM_SANDBOX_ON;

void mm_rights_init(enum mm_sandbox sandbox)
{
	rights_sandbox = sandbox;
}

enum mm_sandbox mm_rights_sandbox(void)
{
	return rights_sandbox;
}

/* ---- capabilities ---- */

int mm_rights_keep(uint64_t keep)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	for (size_t i = 0; i < MM_ARRAY_SIZE(data); i++) {
		data[i].permitted &= (uint32_t)(keep >> (32 * i));
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

/* Programs that this process executes get no capabilities. Fails without CAP_SETPCAP. */
static void bounding_set_empty(void)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

/* ---- the user ---- */

/*
 * Looks a name up in the file alone: other sources of users may block, and load code into this
 * process.
 */
static void user_find(const char *name, uid_t *uid, gid_t *gid)
{
	mm_cleanup(mm_close_file) FILE *file = name ? fopen("/etc/passwd", "re") : NULL;
	struct passwd *user;

	while (file && (user = fgetpwent(file))) {
		if (strcmp(user->pw_name, name) == 0 && user->pw_uid != 0 && user->pw_gid != 0) {
			*uid = user->pw_uid;
			*gid = user->pw_gid;
			return;
		}
	}
}

static int user_change(const struct mm_rights_user *user)
{
	uid_t uid = user->uid;
	gid_t gid = user->uid;

	user_find(user->name, &uid, &gid);
	if (setgroups(user->n_groups, user->groups) < 0 || setresgid(gid, gid, gid) < 0 ||
	    setresuid(uid, uid, uid) < 0)
		return -errno;
	return 0;
}

/* Dying with the parent: the kernel forgets that at a change of the user. */
struct death {
	int signal;
	pid_t parent;
};

static int death_note(struct death *ret)
{
	ret->parent = getppid();
	return prctl(PR_GET_PDEATHSIG, &ret->signal) < 0 ? -errno : 0;
}

/* A parent that is not the one from before has died before this call. */
static int death_restore(const struct death *death)
{
	if (prctl(PR_SET_PDEATHSIG, death->signal) < 0)
		return -errno;
	return death->signal && getppid() != death->parent ? -ESRCH : 0;
}

int mm_rights_try(const struct mm_rights_user *user, bool (*works)(void *arg), void *arg)
{
	struct death death;
	int r = death_note(&death);

	if (r < 0)
		return r;
	if (setgroups(user->n_groups, user->groups) == 0 && setegid(user->uid) == 0 &&
	    seteuid(user->uid) == 0)
		r = works(arg);
	if (seteuid(0) < 0 || setegid(0) < 0)
		return -errno;
	if (r >= 0 && death_restore(&death) < 0)
		return -ESRCH;
	return r;
}

int mm_rights_leave_root(const struct mm_rights_user *user, struct mm_rights *ret_rights)
{
	struct mm_rights rights = { .uid = geteuid() };
	struct death death;
	int r = death_note(&death);

	if (r < 0)
		return r;
	if (rights.uid == 0) {
		bounding_set_empty();
		rights.error = user ? -user_change(user) : 0;
		rights.uid = geteuid();
		rights.stays_root = rights.uid == 0;
	}
	r = mm_rights_keep(0);
	if (r == 0)
		r = death_restore(&death);
	if (r < 0)
		return r;
	*ret_rights = rights;
	return 0;
}

/* ---- the rest ---- */

int mm_rights_hide(void)
{
	const struct rlimit none = { 0, 0 };

	/* The leak check at the end of a process is a debugger of its own. */
	if (MM_SANITIZED || rights_sandbox == MM_SANDBOX_OFF)
		return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? -errno : 0;
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0 ? -errno
											   : 0;
}

int mm_rights_close(const struct mm_filter *filter)
{
	int r;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	r = mm_rights_hide();
	return r < 0 ? r : mm_filter_load(filter, rights_sandbox);
}
