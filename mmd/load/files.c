/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/load/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "mmd/common/key.h"
#include "mmd/load/content.h"
#include "libclient/support/fault.h"
#include "libclient/model/sha256.h"

#define SILENCE_NS     (10 * MM_NS_PER_S)
#define PHASE_NS       (60 * MM_NS_PER_S)
#define FILE_BYTES_MAX (UINT64_C(1) << 44) /* so that sums over all files cannot wrap */

/* ---- which file systems ---- */

static const struct {
	const char *name;
	uint32_t magic;
} known_fs[] = {
	{ "ext4", 0xef53 },      { "ext3", 0xef53 },         { "ext2", 0xef53 },
	{ "xfs", 0x58465342 },   { "btrfs", 0x9123683e },    { "tmpfs", 0x01021994 },
	{ "f2fs", 0xf2f52010 },  { "overlay", 0x794c7630 },  { "bcachefs", 0xca451a4e },
	{ "erofs", 0xe0f5e1e2 }, { "squashfs", 0x73717368 }, { "zfs", 0x2fc12fc1 },
	{ "ramfs", 0x858458f6 },
};

static bool fs_name_known(const char *name)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(known_fs); i++)
		if (strcmp(known_fs[i].name, name) == 0)
			return true;
	return false;
}

static bool fs_magic_known(uint32_t magic)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(known_fs); i++)
		if (known_fs[i].magic == magic)
			return true;
	return false;
}

/* The type of mount @id, from the mount table, so that no file system is called. */
static bool mount_type(uint64_t id, char *ret_type, size_t type_bytes)
{
	mm_cleanup(mm_close_file) FILE *table = fopen("/proc/self/mountinfo", "re");
	mm_cleanup(mm_free_ptr) char *line = NULL;
	size_t room = 0;
	bool found = false;

	if (!table)
		return false;
	while (!found && getline(&line, &room, table) > 0) {
		char *dash = strstr(line, " - ");

		if (strtoull(line, NULL, 10) != id || !dash)
			continue;
		dash += 3;
		dash[strcspn(dash, " \n")] = 0;
		snprintf(ret_type, type_bytes, "%s", dash);
		found = true;
	}
	return found;
}

/*
 * A mount of another namespace (a container's) is not in this process's table; then fstatfs() is
 * called. The owner of a FUSE file system can make that hang, which blocks only this process, of
 * that tenant.
 */
static int file_check_fs(const struct mm_file *file, const struct statx *sx, struct mm_why *why)
{
	struct statfs fs;
	char type[32];

	if (fcntl(file->fd, F_GET_SEALS) >= 0)
		return 0; /* a memfd */
	if (mount_type(sx->stx_mnt_id, type, sizeof(type))) {
		if (fs_name_known(type))
			return 0;
		return mm_refuse(why, -EPERM,
				 "%s: is on a file system of type %s; copy it to a local one "
				 "(ext4, xfs, btrfs, tmpfs, overlay)",
				 file->name, type);
	}
	if (fstatfs(file->fd, &fs) < 0)
		return mm_refuse(why, -errno, "%s: fstatfs: %s", file->name, strerror(errno));
	if (fs_magic_known((uint32_t)fs.f_type))
		return 0;
	return mm_refuse(why, -EPERM,
			 "%s: is on a file system of unknown type 0x%08x; copy it to a local one "
			 "(ext4, xfs, btrfs, tmpfs, overlay)",
			 file->name, (uint32_t)fs.f_type);
}

/* ---- one file ---- */

/* Uses cached attributes: it makes no call to a remote or user-space server. */
static int file_stat(int fd, struct statx *ret_sx)
{
	const unsigned int mask = STATX_BASIC_STATS | STATX_MNT_ID;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, mask, ret_sx) < 0 ? -errno : 0;
}

static struct mm_file_stamp file_stamp_of(const struct statx *sx)
{
	return (struct mm_file_stamp){
		.device = (uint64_t)sx->stx_dev_major << 32 | sx->stx_dev_minor,
		.inode = sx->stx_ino,
		.bytes = sx->stx_size,
		.mtime_s = sx->stx_mtime.tv_sec,
		.mtime_ns = sx->stx_mtime.tv_nsec,
		.ctime_s = sx->stx_ctime.tv_sec,
		.ctime_ns = sx->stx_ctime.tv_nsec,
	};
}

static int file_check_readable(const struct mm_file *file, struct mm_why *why)
{
	int flags = fcntl(file->fd, F_GETFL);

	if (flags < 0)
		return mm_refuse(why, -errno, "%s: F_GETFL: %s", file->name, strerror(errno));
	if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
		return mm_refuse(why, -EACCES, "%s: was not opened for reading", file->name);
	return 0;
}

static int file_check(struct mm_file *file, struct mm_why *why)
{
	char path[32];
	struct statx sx;
	int r;

	if (mm_fault("load.file"))
		return mm_refuse(why, -EIO, "%s: statx: %s", file->name, strerror(EIO));
	r = file_check_readable(file, why);
	if (r < 0)
		return r;
	r = file_stat(file->fd, &sx);
	if (r < 0)
		return mm_refuse(why, r, "%s: statx: %s", file->name, strerror(-r));
	if (!S_ISREG(sx.stx_mode))
		return mm_refuse(why, -EPERM, "%s: is not a regular file", file->name);
	r = file_check_fs(file, &sx, why);
	if (r < 0)
		return r;
	if (sx.stx_size > FILE_BYTES_MAX)
		return mm_refuse(why, -EFBIG, "%s: has %llu bytes, at most 16 TiB are served",
				 file->name, (unsigned long long)sx.stx_size);
	file->stamp = file_stamp_of(&sx);
	file->proof = mm_content_proof(file->fd, sx.stx_nlink);
	/*
	 * Opens a file description of mmd's own: the tenant can change the flags of the passed one.
	 */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	file->direct_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return 0;
}

int mm_file_check_unchanged(const struct mm_file *file, struct mm_why *why)
{
	struct mm_file_stamp now;
	struct statx sx;
	int r;

	r = mm_fault("load.unchanged") ? -EIO : file_stat(file->fd, &sx);
	if (r < 0)
		return mm_refuse(why, r, "%s: statx: %s", file->name, strerror(-r));
	now = file_stamp_of(&sx);
	if (memcmp(&now, &file->stamp, sizeof(now)) != 0)
		return mm_refuse(why, -ESTALE, "%s: was changed while it was read", file->name);
	return 0;
}

/* ---- the conversation ---- */

static int file_check_name(const struct mm_load_file *msg, struct mm_why *why)
{
	if (!memchr(msg->name, 0, sizeof(msg->name)) || !msg->name[0])
		return mm_refuse(why, -EPROTO, "a file without a name");
	for (const char *c = msg->name; *c; c++)
		if (*c < 0x20 || *c > 0x7e || *c == '/')
			return mm_refuse(why, -EPROTO,
					 "file %s: its name may hold printable ASCII and no /",
					 msg->name);
	return 0;
}

static int files_add(struct mm_files *files, const struct mm_load_file *msg, int fd,
		     struct mm_why *why)
{
	struct mm_file *file = &files->file[files->count];
	int r;

	r = file_check_name(msg, why);
	if (r == 0 && files->count == MM_LOAD_FILES_MAX)
		r = mm_refuse(why, -E2BIG, "more than %d files", MM_LOAD_FILES_MAX);
	for (size_t i = 0; r == 0 && i < files->count; i++)
		if (strcmp(files->file[i].name, msg->name) == 0)
			r = mm_refuse(why, -EEXIST, "file %s: passed twice", msg->name);
	if (r < 0) {
		close(fd);
		return r;
	}
	*file = (struct mm_file){ .kind = msg->kind, .fd = fd, .direct_fd = -1 };
	memcpy(file->name, msg->name, strlen(msg->name) + 1);
	files->count++;
	return file_check(file, why);
}

/* A message of any kind: the first two members are the same. */
union message {
	struct mm_load_file file;
	struct mm_load_pack pack;
	struct mm_load_key key;
};

static int files_add_key(struct mm_files *files, const struct mm_load_key *key, struct mm_why *why)
{
	const char *wrong = files->key.kind ? "key: passed twice" : mm_key_check(key);

	if (wrong)
		return mm_refuse(why, -EINVAL, "%s", wrong);
	files->key = *key;
	return 0;
}

/* Return: 1 for the last message; else 0 or a refusal. */
static int files_on_message(struct mm_files *files, const union message *msg, size_t len, int fd,
			    struct mm_why *why)
{
	uint32_t kind = msg->file.kind;

	if (len < sizeof(msg->file) || msg->file.magic != MM_ABI_MAGIC)
		kind = 0;
	if (kind == MM_LOAD_PACK && len == sizeof(msg->pack) && fd < 0)
		return mm_packs_add(&files->packs, &msg->pack, why);
	if (kind == MM_LOAD_KEY && len == sizeof(msg->key) && fd < 0)
		return files_add_key(files, &msg->key, why);
	if (kind == MM_LOAD_END && len == sizeof(msg->file) && fd < 0)
		return 1;
	if (kind >= MM_LOAD_CONFIG && kind <= MM_LOAD_INDEX && len == sizeof(msg->file) && fd >= 0)
		return files_add(files, &msg->file, fd, why);
	if (fd >= 0)
		close(fd);
	return mm_refuse(why, -EPROTO, "the tenant sent a message that load does not know");
}

static int files_receive_one(struct mm_files *files, int tenant_fd, uint64_t end_ns,
			     struct mm_why *why)
{
	union message msg;
	size_t n_fds = 0, len = 0;
	int fd = -1;
	int r;

	r = mm_sock_wait(tenant_fd, POLLIN, MM_MIN(end_ns, mm_deadline_ns(SILENCE_NS)));
	if (r < 0)
		return mm_refuse(why, r, "the tenant passed no file for too long");
	r = mm_sock_recv(tenant_fd, &msg, sizeof(msg), &fd, 1, &n_fds, &len);
	if (r == -EAGAIN)
		return 0;
	if (r == -EMFILE)
		return mm_refuse(why, r,
				 "a file descriptor got lost: more than one in a message, or mmd's "
				 "limit of open files is too low");
	if (r < 0)
		return mm_refuse(why, r, "the tenant's channel: %s", strerror(-r));
	return files_on_message(files, &msg, len, n_fds == 1 ? fd : -1, why);
}

static int file_compare(const void *a, const void *b)
{
	const struct mm_file *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int files_check_none(const struct mm_files *files, struct mm_why *why)
{
	if (files->count || files->packs.count)
		return mm_refuse(why, -EINVAL, "files or packs for a model that a key is to find");
	return 0;
}

/*
 * A key stands for bytes. Of a file with a path the identity says which file it is, and a memfd
 * that can be written to has none.
 */
static int files_check_keyed(const struct mm_files *files, struct mm_why *why)
{
	for (size_t i = 0; files->key.kind && i < files->count; i++)
		if (files->file[i].proof != MM_FILE_SEALED)
			return mm_refuse(why, -EINVAL,
					 "%s: only sealed memfds can be committed under a key",
					 files->file[i].name);
	return 0;
}

static int files_check_kinds(struct mm_files *files, struct mm_why *why)
{
	qsort(files->file, files->count, sizeof(files->file[0]), file_compare);
	if (files->count == 0 || files->file[0].kind != MM_LOAD_CONFIG)
		return mm_refuse(why, -EBADMSG, "no config.json was passed");
	for (size_t i = 0; i < files->count; i++)
		files->n_weights += files->file[i].kind == MM_LOAD_SAFETENSORS;
	for (size_t i = 1; i < files->count; i++)
		if (files->file[i].kind != MM_LOAD_SAFETENSORS &&
		    files->file[i].kind == files->file[i - 1].kind)
			return mm_refuse(why, -EBADMSG, "two %s files: %s and %s",
					 files->file[i].kind == MM_LOAD_CONFIG ? "config" : "index",
					 files->file[i - 1].name, files->file[i].name);
	if (files->n_weights == 0)
		return mm_refuse(why, -EBADMSG, "no .safetensors file was passed");
	return files_check_keyed(files, why);
}

int mm_files_receive(struct mm_files *files, int tenant_fd, struct mm_why *why)
{
	uint64_t end_ns = mm_deadline_ns(PHASE_NS);
	int r = 0;

	while (r == 0)
		r = files_receive_one(files, tenant_fd, end_ns, why);
	if (r < 0)
		return r;
	if (files->key.flags & MM_LOAD_KEY_ATTACH)
		return files_check_none(files, why);
	mm_packs_sort(&files->packs);
	return files_check_kinds(files, why);
}

void mm_files_done(struct mm_files *files)
{
	for (size_t i = 0; i < files->count; i++) {
		mm_close_fd(&files->file[i].direct_fd);
		mm_close_fd(&files->file[i].fd);
	}
	files->count = 0;
}

int mm_files_identity(const struct mm_files *files, uint32_t layout_version,
		      uint8_t ret_identity[32], uint64_t *read_bytes, struct mm_why *why)
{
	struct mm_sha256 sha;

	mm_sha256_init(&sha);
	mm_sha256_update(&sha, "mmd store", sizeof("mmd store"));
	mm_sha256_update(&sha, &layout_version, sizeof(layout_version));
	mm_packs_hash(&files->packs, &sha);
	for (size_t i = 0; i < files->count; i++) {
		const struct mm_file *file = &files->file[i];
		struct mm_content content;
		int r;

		mm_sha256_update(&sha, &file->kind, sizeof(file->kind));
		mm_sha256_update(&sha, file->name, strlen(file->name) + 1);
		if (file->proof == MM_FILE_STAMPED) {
			mm_sha256_update(&sha, &file->stamp, sizeof(file->stamp));
			continue;
		}
		r = mm_content_read(file, &content, read_bytes, why);
		if (r < 0)
			return r;
		mm_sha256_update(&sha, &content, sizeof(content));
	}
	mm_sha256_final(&sha, ret_identity);
	return 0;
}
