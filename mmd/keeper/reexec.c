/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/reexec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/fields/rows.h"
#include "mmd/keeper/described.h"

#define STATE_MARK   UINT64_C(0x313070656b6d6d00) /* "\0mmkep01" */
#define TABLES_BYTES 65536
#define ROW_BYTES    64 /* a held fd needs less */
#define WHY_BYTES    160

/* Its layout is the same in all builds; the rows follow. */
struct state_head {
	uint64_t mark;
	uint64_t bytes;    /* of the rows */
	int32_t exe_fd;    /* the file of the build that wrote it; -1: none */
	uint32_t returned; /* the other build could not go on: */
	char why[WHY_BYTES];
};

static const struct mm_fields *const state_roots[] = { &mm_keeper_fields, &mm_fdtab_entry_fields };

void mm_reexec_reserve(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* If it is another number, that one was open before mmd, and nothing of mmd has it. */
	if (fd > MM_ROLE_FD)
		close(fd);
}

/* ---- all fds that keeper has to keep ---- */

static bool fd_pass(int fd, bool passes)
{
	return fd < 0 || fcntl(fd, F_SETFD, passes ? 0 : FD_CLOEXEC) == 0;
}

/* Lets all fds pass through an exec, or not. Return: whether each of them is one. */
static bool fds_pass(const struct mm_keeper *k, bool passes)
{
	const int single[] = { k->core.fd,       k->relay.pipe_fd,     k->relay.stderr_fd,
			       k->place.lock_fd, k->place.tenant_fd,   k->place.admin_fd,
			       k->place.view_fd, k->upgrade.program_fd };
	const struct mm_fdtab_entry *entry;
	bool all = true;
	size_t at = 0;

	for (size_t i = 0; i < MM_ARRAY_SIZE(single); i++)
		all &= fd_pass(single[i], passes);
	for (uint32_t i = 0; i < k->n_xfers; i++) {
		all &= fd_pass(k->xfer[i].lock.claim_fd, passes);
		all &= fd_pass(k->xfer[i].lock.file_fd, passes);
	}
	for (unsigned int i = 0; i < k->closer.n_waiting; i++)
		all &= fd_pass(k->closer.waiting[i], passes);
	while ((entry = mm_fdtab_next(&k->hold.fds, &at)))
		all &= fd_pass(entry->fd, passes);
	return all;
}

/* ---- writing ---- */

struct state_map {
	void *base;
	size_t bytes;
};

static void state_unmap(struct state_map *map)
{
	if (map->base)
		munmap(map->base, map->bytes);
}

static int state_map(int fd, struct state_map *ret)
{
	struct stat st;
	void *base;

	if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(struct state_head))
		return -EBADMSG;
	base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	*ret = (struct state_map){ base, (size_t)st.st_size };
	return 0;
}

static int state_write(const struct mm_keeper *k, const struct state_map *map)
{
	static struct mm_rows_writer w;
	const struct mm_fdtab_entry *entry;
	struct state_head *head = map->base;
	size_t at = 0, bytes = 0;
	int r;

	*head = (struct state_head){ .mark = STATE_MARK, .exe_fd = -1 };
	mm_rows_begin(&w, head + 1, map->bytes - sizeof(*head), state_roots,
		      MM_ARRAY_SIZE(state_roots));
	mm_rows_put(&w, &mm_keeper_fields, 0, k, 1);
	while ((entry = mm_fdtab_next(&k->hold.fds, &at)))
		mm_rows_put(&w, &mm_fdtab_entry_fields, 0, entry, 1);
	r = mm_rows_end(&w, &bytes);
	head->bytes = bytes;
	return r;
}

int mm_reexec_save(const struct mm_keeper *k)
{
	const size_t room = sizeof(struct state_head) + TABLES_BYTES + sizeof(*k) +
			    ROW_BYTES * k->hold.fds.count;
	mm_cleanup(mm_close_fd) int fd = memfd_create("mm-keeper", MFD_CLOEXEC);
	mm_cleanup(state_unmap) struct state_map map = { 0 };
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)room) < 0)
		return -errno;
	r = state_map(fd, &map);
	if (r == 0)
		r = state_write(k, &map);
	if (r < 0)
		return r;
	r = fd;
	fd = -1;
	return r;
}

/* ---- reading ---- */

static int state_fail(int error, const char *text, char *why, size_t why_bytes)
{
	snprintf(why, why_bytes, "its keeper: %s", text);
	return error;
}

static int entry_add(struct mm_rows_reader *r, const struct mm_row *row, struct mm_fdtab *fds)
{
	struct mm_fdtab_entry entry = { .fd = -1 };
	int old = -1, e = mm_rows_get(r, row, &entry, 1);

	if (e < 0)
		return e;
	if (!entry.name.kind || entry.fd < 0) {
		mm_rows_why(r, "damaged: a name without an fd", NULL, NULL);
		return -EBADMSG;
	}
	e = mm_fdtab_put(fds, entry.name, entry.fd, &old);
	if (e < 0)
		mm_rows_why(r, "out of memory", NULL, NULL);
	return e;
}

static int rows_read(struct mm_rows_reader *r, const void *from, size_t bytes, struct mm_keeper *k,
		     struct mm_fdtab *fds)
{
	struct mm_row row;
	bool any = false;
	int e = mm_rows_open(r, from, bytes, state_roots, MM_ARRAY_SIZE(state_roots));

	while (e == 0) {
		e = mm_rows_next(r, &row);
		if (e != 0 || !row.fields)
			continue;
		if (row.fields == &mm_fdtab_entry_fields) {
			e = entry_add(r, &row, fds);
			continue;
		}
		e = row.fields == &mm_keeper_fields && !any ? mm_rows_get(r, &row, k, 1) : -EBADMSG;
		any = true;
	}
	if (e == MM_E_EMPTY && !any)
		mm_rows_why(r, "damaged: not complete", NULL, NULL);
	return e == MM_E_EMPTY ? (any ? 0 : -EBADMSG) : e;
}

static int state_read(const struct state_map *map, struct mm_keeper *k, struct mm_fdtab *fds,
		      char *why, size_t why_bytes)
{
	static struct mm_rows_reader r;
	const struct state_head *head = map->base;
	int e;

	if (head->mark != STATE_MARK || head->bytes > map->bytes - sizeof(*head))
		return state_fail(-EBADMSG, "of another format", why, why_bytes);
	e = rows_read(&r, head + 1, head->bytes, k, fds);
	if (e < 0)
		return state_fail(e, *r.why ? r.why : "damaged: a row", why, why_bytes);
	if (k->closer.n_waiting > MM_CLOSER_WAITING || k->closer.n_children > MM_CLOSER_CHILDREN ||
	    k->n_xfers > MM_DEVICES_MAX)
		return state_fail(-EBADMSG, "damaged: a count", why, why_bytes);
	return 0;
}

int mm_reexec_try(int fd, char *why, size_t why_bytes)
{
	mm_cleanup(state_unmap) struct state_map map = { 0 };
	static struct mm_keeper k;
	struct mm_fdtab fds;
	int r = state_map(fd, &map);

	if (r < 0)
		return state_fail(r, "there is no state", why, why_bytes);
	mm_fdtab_init(&fds);
	r = state_read(&map, &k, &fds, why, why_bytes);
	free(fds.entry); /* the numbers are those of another process */
	return r;
}

int mm_reexec_load(int fd, struct mm_keeper *k, char *why, size_t why_bytes)
{
	mm_cleanup(state_unmap) struct state_map map = { 0 };
	const uint32_t n_xfers = k->n_xfers;
	int r = state_map(fd, &map);

	if (r < 0)
		return state_fail(r, "there is no state", why, why_bytes);
	r = state_read(&map, k, &k->hold.fds, why, why_bytes);
	if (r < 0)
		return r;
	if (k->n_xfers != n_xfers)
		return state_fail(-EBADMSG, "it has other devices", why, why_bytes);
	if (!fds_pass(k, true))
		return state_fail(-EBADF, "an fd is missing", why, why_bytes);
	return 0;
}

void mm_reexec_back(int fd, char **argv, const char *why)
{
	mm_cleanup(state_unmap) struct state_map map = { 0 };
	struct state_head *head;

	if (state_map(fd, &map) < 0)
		return;
	head = map.base;
	if (head->mark != STATE_MARK || head->returned)
		return; /* the old build cannot go on either */
	head->returned = 1;
	snprintf(head->why, sizeof(head->why), "%s", why);
	fexecve(head->exe_fd, argv, environ);
}

void mm_reexec_done(int fd, struct mm_keeper *k, char *why, size_t why_bytes)
{
	mm_cleanup(state_unmap) struct state_map map = { 0 };
	struct state_head *head;

	fds_pass(k, false);
	*why = '\0';
	if (state_map(fd, &map) == 0) {
		head = map.base;
		if (head->returned)
			snprintf(why, why_bytes, "%.*s", WHY_BYTES - 1, head->why);
		mm_close_fd(&head->exe_fd);
	}
	close(fd);
	mm_reexec_reserve();
}

/* ---- the change ---- */

/* Executes the other build. Returns only on failure, a negative errno; all is as it was then. */
static int keeper_reexec(struct mm_keeper *k)
{
	mm_cleanup(mm_close_fd) int state_fd = mm_reexec_save(k);
	mm_cleanup(mm_close_fd) int exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	mm_cleanup(state_unmap) struct state_map map = { 0 };
	char *argv[MM_CONFIG_ARGS_MAX];
	int r = state_fd < 0 ? state_fd : exe_fd < 0 ? -errno : state_map(state_fd, &map);

	if (r == 0)
		r = mm_config_args(k->config, MM_ROLE_KEEPER_AGAIN, argv);
	if (r < 0)
		return r;
	((struct state_head *)map.base)->exe_fd = exe_fd;
	mm_log(MM_LOG_INFO, "keeper.reexec", "pid=%d", (int)getpid());
	mm_log_catch_up();
	if (fds_pass(k, true) && fd_pass(exe_fd, true) && dup2(state_fd, MM_ROLE_FD) >= 0)
		fexecve(k->upgrade.program_fd, argv, environ);
	r = -errno;
	fds_pass(k, false);
	fd_pass(MM_ROLE_FD, false);
	mm_config_args_free(argv);
	return r;
}

void mm_reexec_service(struct mm_keeper *k)
{
	struct mm_upgrade *u = &k->upgrade;
	int r = -ETIMEDOUT;

	if (!u->reexec_by_ns || k->stopping || k->failed)
		return;
	if (k->process.serves && mm_keeper_has_core(k) && !mm_kchan_is_waiting(&k->core) &&
	    u->state == MM_UPGRADE_NONE && !k->reload.wanted && !k->reload.under_way)
		r = keeper_reexec(k);
	else if (mm_now_ns() < u->reexec_by_ns)
		return;
	u->reexec_by_ns = 0;
	mm_upgrade_keeper_stays(k, strerror(-r));
}
