/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/ipc/reach.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "libclient/base/base.h"

struct sentence {
	const char *path;
	char *text;
	size_t bytes;
};

static void MM_PRINTF(2, 3) sentence_put(const struct sentence *s, const char *format, ...)
{
	va_list args;
	int n = snprintf(s->text, s->bytes, "%s: ", s->path);

	if (n < 0 || (size_t)n >= s->bytes)
		return;
	va_start(args, format);
	vsnprintf(s->text + n, s->bytes - (size_t)n, format, args);
	va_end(args);
}

/* Finds the deepest part of @path that can be looked up: the folder that denies access below it. */
static bool stat_deepest(const char *path, char *part, struct stat *ret_stat)
{
	if (snprintf(part, PATH_MAX, "%s", path) >= PATH_MAX)
		return false;
	while (stat(part, ret_stat) < 0) {
		char *slash = strrchr(part, '/');

		if (!slash || slash == part)
			return false;
		*slash = '\0';
	}
	return true;
}

static void explain_group(const struct sentence *s, const struct stat *st)
{
	const struct group *group = getgrgid(st->st_gid);
	char name[32];

	snprintf(name, sizeof(name), "%u", (unsigned int)st->st_gid);
	if (group)
		snprintf(name, sizeof(name), "%s", group->gr_name);
	sentence_put(s,
		     "permission denied: it is for uid %u and group %s; usermod -aG %s USER adds "
		     "a user to that, from its next login on",
		     (unsigned int)st->st_uid, name, name);
}

static void explain_denied(const struct sentence *s)
{
	char part[PATH_MAX];
	struct stat st;

	if (!stat_deepest(s->path, part, &st))
		sentence_put(s, "permission denied");
	else if (strcmp(part, s->path) == 0 && (st.st_mode & 0060) == 0060)
		explain_group(s, &st);
	else if (strcmp(part, s->path) == 0)
		sentence_put(s,
			     "permission denied: it belongs to uid %u, with mode %04o; run this as "
			     "that user or as root",
			     (unsigned int)st.st_uid, (unsigned int)st.st_mode & 07777);
	else
		sentence_put(s,
			     "permission denied: folder %s belongs to uid %u, with mode %04o; run "
			     "this as that user or as root",
			     part, (unsigned int)st.st_uid, (unsigned int)st.st_mode & 07777);
}

/* Linux returns ECONNREFUSED also for a path that is not a socket. */
static void explain_refused(const struct sentence *s)
{
	struct stat st;

	if (stat(s->path, &st) == 0 && !S_ISSOCK(st.st_mode))
		sentence_put(s, "%s, not a socket; is it the right path?",
			     S_ISDIR(st.st_mode) ? "a folder" : "a file");
	else
		sentence_put(s, "nobody listens on this socket: mmd has ended, or was killed; "
				"is mmd running?");
}

void mm_reach_explain(const char *path, int error, char *text, size_t bytes)
{
	const struct sentence s = { path, text, bytes };

	switch (error) {
	case ENOENT:
		sentence_put(&s,
			     "there is no such socket; is mmd running? (mmctl wait waits for it)");
		break;
	case ECONNREFUSED:
		explain_refused(&s);
		break;
	case EACCES:
	case EPERM:
		explain_denied(&s);
		break;
	case ENOTSOCK:
		sentence_put(&s, "not a socket; is it the right path?");
		break;
	case EPROTOTYPE:
		sentence_put(
			&s, "a socket of another kind: mmctl asks admin.sock or view.sock, engines "
			    "connect to tenant.sock");
		break;
	case ENAMETOOLONG:
		sentence_put(&s,
			     "longer than the %zu bytes that a socket's path may have; choose a "
			     "shorter folder",
			     sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
		break;
	case ENOTDIR:
		sentence_put(&s, "a part of the path is not a folder; is it the right path?");
		break;
	case EAGAIN:
		sentence_put(&s, "too many wait there to be let in; is mmd stopped? Try again");
		break;
	default:
		sentence_put(&s, "%s", strerror(error));
	}
}
