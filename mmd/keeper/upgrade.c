/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/keeper/instance.h"
#include "mmd/keeper/reexec.h"
#include "mmd/keeper/spawn.h"
#include "mmd/keeper/state.h"

#define COPY_BYTES 65536

/* Forgets the other build. */
static void upgrade_end(struct mm_upgrade *u)
{
	u->state = MM_UPGRADE_NONE;
	u->due_ns = UINT64_MAX;
	mm_close_fd(&u->next_fd);
	mm_close_fd(&u->answer_fd);
	mm_close_fd(&u->book_fd);
}

static void upgrade_answer(struct mm_keeper *k, int result, const char *text)
{
	struct mm_kmsg msg = { .op = MM_K_UPGRADE,
			       .result = result,
			       .flags = k->upgrade.check ? MM_K_F_CHECK : 0 };

	snprintf(msg.text, sizeof(msg.text), "%s", text);
	mm_log(result < 0 ? MM_LOG_WARN : MM_LOG_INFO, "upgrade.checked", "result=%d text=\"%s\"",
	       result, text);
	if (mm_keeper_has_core(k))
		mm_instance_send(&k->core, &msg, NULL, 0);
}

static void upgrade_refuse(struct mm_keeper *k, const char *text)
{
	upgrade_answer(k, -EINVAL, text);
	upgrade_end(&k->upgrade);
}

/* ---- the file, and its check ---- */

/* Opens a file that nobody can change but root and the user that keeper runs as. */
static int program_open(const char *path, char *why, size_t why_bytes)
{
	mm_cleanup(mm_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	int got;

	if (fd < 0 || fstat(fd, &st) < 0) {
		snprintf(why, why_bytes, "%.120s: %s", path, strerror(errno));
		return -EINVAL;
	}
	if (!S_ISREG(st.st_mode) || !(st.st_mode & 0111))
		snprintf(why, why_bytes, "%.120s: no program", path);
	else if ((st.st_uid != 0 && st.st_uid != geteuid()) || st.st_mode & 022)
		snprintf(why, why_bytes, "%.120s: others than mmd's user can change it", path);
	else {
		got = fd;
		fd = -1;
		return got;
	}
	return -EINVAL;
}

static int preflight_start(struct mm_keeper *k, int export_fd)
{
	struct mm_upgrade *u = &k->upgrade;
	mm_cleanup(mm_close_fd) int state_fd = mm_reexec_save(k);
	int pair[2], fds[3], r;

	if (state_fd < 0 || pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
		return state_fd < 0 ? state_fd : -errno;
	fds[0] = export_fd;
	fds[1] = pair[1];
	fds[2] = state_fd;
	mm_spawn_program(u->next_fd);
	r = mm_spawn(k->config, MM_ROLE_PREFLIGHT, fds, 3, &u->pid);
	mm_spawn_program(u->program_fd);
	close(pair[1]);
	if (r < 0)
		close(pair[0]);
	else
		u->answer_fd = pair[0];
	return r;
}

void mm_upgrade_on_request(struct mm_keeper *k, struct mm_kpacket *packet)
{
	mm_cleanup(mm_close_fd) int export_fd = mm_kpacket_take(packet, 0);
	struct mm_upgrade *u = &k->upgrade;
	char why[MM_TEXT_BYTES];

	packet->msg.text[MM_TEXT_BYTES - 1] = '\0';
	if (u->state != MM_UPGRADE_NONE || k->stopping)
		return; /* core asks for one at a time */
	u->check = packet->msg.flags & MM_K_F_CHECK;
	u->flags = 0;
	u->reexec_by_ns = 0;
	u->next_fd = program_open(packet->msg.text, why, sizeof(why));
	if (u->next_fd < 0) {
		upgrade_refuse(k, why);
		return;
	}
	if (preflight_start(k, export_fd) < 0) {
		upgrade_refuse(k, "it cannot be started");
		return;
	}
	u->state = MM_UPGRADE_CHECKED;
	u->due_ns = mm_now_ns() + MM_UPGRADE_CHECK_NS;
}

/* The answer of a build that can become keeper begins with its name. Return: the sentence. */
static char *answer_split(struct mm_upgrade *u, char *text)
{
	char *end = strchr(text, '\n'), *sentence = end ? end + 1 : text;

	u->takes_keeper = end;
	if (end)
		*end = '\0';
	for (char *c = text; *c; c++)
		*c = *c < ' ' || *c > '~' || *c == '"' ? '.' : *c;
	for (char *c = sentence; *c; c++)
		*c = *c < ' ' || *c > '~' || *c == '"' ? '.' : *c;
	snprintf(u->next_build, sizeof(u->next_build), "%.*s", MM_BUILD_BYTES - 1,
		 end ? text : "unknown");
	return sentence;
}

bool mm_upgrade_reaped(struct mm_keeper *k, pid_t pid, int status)
{
	struct mm_upgrade *u = &k->upgrade;
	char answer[MM_TEXT_BYTES] = "", *text;
	ssize_t n;

	if (!u->pid || pid != u->pid)
		return false;
	u->pid = 0;
	u->due_ns = UINT64_MAX;
	n = read(u->answer_fd, answer, sizeof(answer) - 1);
	answer[n < 0 ? 0 : n] = '\0';
	text = answer_split(u, answer);
	mm_close_fd(&u->answer_fd);
	/* Only an mmd that is able to do this says so; any other program says nothing. */
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !*text) {
		upgrade_refuse(k, *text ? text : "it does not check what it would go on from");
		return true;
	}
	upgrade_answer(k, 0, text);
	if (u->check)
		upgrade_end(u);
	else
		u->state = MM_UPGRADE_AGREED;
	return true;
}

/* ---- the change ---- */

/* Copies what there is of a sparse file. */
static int file_copy(int from, int to, off_t bytes)
{
	static char buffer[COPY_BYTES];
	off_t at = 0;

	while ((at = lseek(from, at, SEEK_DATA)) >= 0 && at < bytes) {
		off_t end = lseek(from, at, SEEK_HOLE);

		while (at < end) {
			size_t part = (size_t)MM_MIN(end - at, (off_t)sizeof(buffer));
			ssize_t n = pread(from, buffer, part, at);

			if (n <= 0 || pwrite(to, buffer, (size_t)n, at) != n)
				return -EIO;
			at += n;
		}
	}
	return at < 0 && errno != ENXIO ? -errno : 0;
}

/* Return: a copy of the book; negative errno. */
static int book_copy(struct mm_keeper *k)
{
	mm_cleanup(mm_close_fd) int copy = -1;
	int book = mm_fdtab_find(&k->hold.fds, (struct mm_held_name){ .kind = MM_HELD_BOOK });
	struct stat st;
	int r;

	if (book < 0 || fstat(book, &st) < 0)
		return -ENOENT;
	copy = memfd_create("mm-book", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (copy < 0 || ftruncate(copy, st.st_size) < 0 || fchown(copy, st.st_uid, st.st_gid) < 0 ||
	    fchmod(copy, 0600) < 0)
		return -errno;
	r = file_copy(book, copy, st.st_size);
	if (r < 0 || fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return r < 0 ? r : -errno;
	r = copy;
	copy = -1;
	return r;
}

/* The old build goes on, from the copy if there is one. */
static void upgrade_take_back(struct mm_keeper *k, const char *why)
{
	struct mm_upgrade *u = &k->upgrade;

	mm_log(MM_LOG_ERROR, "upgrade.taken_back", "reason=\"%s\"", why);
	if (u->book_fd >= 0)
		mm_hold_put(&k->hold, (struct mm_held_name){ .kind = MM_HELD_BOOK }, u->book_fd);
	u->book_fd = -1;
	u->flags = MM_K_F_TAKEN_BACK;
	upgrade_end(u);
}

bool mm_upgrade_core_gone(struct mm_keeper *k, int status)
{
	struct mm_upgrade *u = &k->upgrade;

	if (k->stopping || k->failed || u->state == MM_UPGRADE_NONE)
		return false;
	if (u->state == MM_UPGRADE_STARTED) {
		upgrade_take_back(k, "the new build ended before it stood");
		return true;
	}
	if (u->state == MM_UPGRADE_AGREED && WIFEXITED(status) &&
	    WEXITSTATUS(status) == MM_CORE_REPLACED) {
		u->book_fd = book_copy(k);
		if (u->book_fd < 0) {
			upgrade_take_back(k, "its book cannot be copied");
			return true;
		}
		u->state = MM_UPGRADE_STARTED;
		u->flags = MM_K_F_UPGRADED;
		u->due_ns = mm_now_ns() + MM_UPGRADE_STANDS_NS;
		return true;
	}
	/* It died of something else meanwhile. */
	if (u->pid)
		mm_keeper_child_kill(u->pid);
	else
		upgrade_end(u);
	u->check = true;
	return false;
}

void mm_upgrade_program(const struct mm_keeper *k)
{
	mm_spawn_program(k->upgrade.state == MM_UPGRADE_STARTED ? k->upgrade.next_fd
								: k->upgrade.program_fd);
}

/* Whether it is the file that keeper itself runs, which needs no fd. */
static bool file_is_own(int fd)
{
	struct stat own, st;

	return stat("/proc/self/exe", &own) == 0 && fstat(fd, &st) == 0 &&
	       own.st_dev == st.st_dev && own.st_ino == st.st_ino;
}

static void build_send(struct mm_keeper *k, int result, const char *text)
{
	struct mm_kmsg msg = { .op = MM_K_BUILD, .result = result };

	snprintf(msg.text, sizeof(msg.text), "%s", text);
	if (mm_keeper_has_core(k))
		mm_instance_send(&k->core, &msg, NULL, 0);
}

void mm_upgrade_on_stands(struct mm_keeper *k)
{
	struct mm_upgrade *u = &k->upgrade;

	if (u->state == MM_UPGRADE_STARTED) {
		mm_close_fd(&u->program_fd);
		if (!file_is_own(u->next_fd)) {
			u->program_fd = u->next_fd;
			u->next_fd = -1;
			u->reexec_by_ns = mm_now_ns() + MM_REEXEC_WITHIN_NS;
		}
		mm_spawn_program(u->program_fd);
		memcpy(u->build, u->next_build, sizeof(u->build));
		mm_log(MM_LOG_INFO, "upgrade.done", "pid=%d build=\"%s\"", (int)k->process.pid,
		       u->build);
		upgrade_end(u);
	}
	if (u->reexec_by_ns && !u->takes_keeper)
		mm_upgrade_keeper_stays(k, "that build cannot take over keeper");
	else if (!u->reexec_by_ns)
		build_send(k, 0, mm_build_name());
}

void mm_upgrade_keeper_done(struct mm_keeper *k)
{
	struct mm_upgrade *u = &k->upgrade;

	/* It was the other build's file, and is this one's own. */
	if (u->program_fd >= 0 && file_is_own(u->program_fd))
		mm_close_fd(&u->program_fd);
	mm_spawn_program(u->program_fd);
	mm_log(MM_LOG_INFO, "keeper.replaced", "pid=%d build=\"%s\"", (int)getpid(),
	       mm_build_name());
	build_send(k, 0, mm_build_name());
}

void mm_upgrade_keeper_stays(struct mm_keeper *k, const char *why)
{
	k->upgrade.reexec_by_ns = 0;
	mm_spawn_program(k->upgrade.program_fd);
	mm_log(MM_LOG_ERROR, "keeper.stays", "build=\"%s\" reason=\"%s\"", mm_build_name(), why);
	build_send(k, -ECANCELED, why);
}

void mm_upgrade_service(struct mm_keeper *k)
{
	struct mm_upgrade *u = &k->upgrade;

	if (u->due_ns == UINT64_MAX || mm_now_ns() < u->due_ns)
		return;
	u->due_ns = UINT64_MAX;
	mm_keeper_child_kill(u->pid ? u->pid : k->process.pid);
}
