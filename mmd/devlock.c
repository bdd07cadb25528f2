/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/devlock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "mm/base.h"
#include "mmd/log.h"

#define CLAIM_PREFIX "mmd/device/"
#define PATH_BYTES   (sizeof(MM_DEVLOCK_DIR) + MM_DEVLOCK_HEX_BYTES)
#define TRIES        16 /* to lock a file that its last holder is just removing */

static void lock_path(const struct mm_devlock *lock, char *ret_path)
{
	snprintf(ret_path, PATH_BYTES, MM_DEVLOCK_DIR "/%s", lock->uuid);
}

static int lock_failed(char *err, size_t err_bytes, const char *path)
{
	int r = -errno;

	snprintf(err, err_bytes, "device lock: %s: %s", path, strerror(-r));
	return r;
}

static int lock_busy(const struct mm_devlock *lock, const char *holder, char *err, size_t err_bytes)
{
	snprintf(err, err_bytes, "device %s is managed by another mmd (%s); stop that one first",
		 lock->uuid, holder);
	return -EBUSY;
}

/* ---- the lock ---- */

/* Whoever else could write to it could take the place of any lock. */
static int folder_open(int *ret_fd, char *err, size_t err_bytes)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct stat st;

	if (mkdir(MM_DEVLOCK_DIR, 0700) < 0 && errno != EEXIST)
		return lock_failed(err, err_bytes, MM_DEVLOCK_DIR);
	fd = open(MM_DEVLOCK_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return lock_failed(err, err_bytes, MM_DEVLOCK_DIR);
	if (st.st_uid != geteuid() || (st.st_mode & 077)) {
		snprintf(err, err_bytes,
			 "device lock: " MM_DEVLOCK_DIR
			 ": of uid %u, mode %04o; it must be root's, 0700",
			 st.st_uid, st.st_mode & 07777);
		return -EPERM;
	}
	*ret_fd = fd;
	fd = -1;
	return 0;
}

static bool is_file(int folder_fd, const char *name, int fd)
{
	struct stat named, opened;

	return fstatat(folder_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(fd, &opened) == 0 && named.st_ino == opened.st_ino &&
	       named.st_dev == opened.st_dev;
}

static void holder_read(int fd, char *ret_holder, size_t bytes)
{
	ssize_t n = pread(fd, ret_holder, bytes - 1, 0);

	ret_holder[n < 0 ? 0 : n] = 0;
	if (!ret_holder[0])
		snprintf(ret_holder, bytes, "it does not say which");
}

static void holder_write(int fd, int pid)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "pid %d, uid %u", pid, geteuid());

	/* Only a help for whoever is refused: the lock holds without it. */
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
		mm_log(MM_LOG_WARN, "device.lock_unsigned", "error=\"%s\"", strerror(errno));
}

/* 1: it is ours; 0: its last holder has removed it meanwhile. */
static int file_try(struct mm_devlock *lock, int folder_fd, char *err, size_t err_bytes)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	char holder[64];

	fd = openat(folder_fd, lock->uuid, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return lock_failed(err, err_bytes, MM_DEVLOCK_DIR);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		holder_read(fd, holder, sizeof(holder));
		return lock_busy(lock, holder, err, err_bytes);
	}
	if (!is_file(folder_fd, lock->uuid, fd))
		return 0;
	lock->file_fd = fd;
	fd = -1;
	return 1;
}

static bool has_no_place(int r)
{
	return r == -EROFS || r == -EACCES || r == -ENOENT;
}

static int file_take(struct mm_devlock *lock, int pid, char *err, size_t err_bytes)
{
	mm_cleanup(mm_close_fd) int folder_fd = -1;
	int r = folder_open(&folder_fd, err, err_bytes);

	if (has_no_place(r)) {
		mm_log(MM_LOG_WARN, "device.lock_weak", "reason=\"%s\"", err);
		return 0;
	}
	for (int i = 0; r == 0 && i < TRIES; i++)
		r = file_try(lock, folder_fd, err, err_bytes);
	if (r == 0)
		return lock_busy(lock, "many start at once", err, err_bytes);
	if (r < 0)
		return r;
	holder_write(lock->file_fd, pid);
	return 0;
}

/* ---- the claim ---- */

static socklen_t claim_address(const struct mm_devlock *lock, struct sockaddr_un *ret_address)
{
	size_t at = 1; /* a leading NUL: abstract, gone with the last holder */

	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	at += (size_t)snprintf(ret_address->sun_path + at, sizeof(ret_address->sun_path) - at,
			       CLAIM_PREFIX "%s", lock->uuid);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);
}

/* The kernel's word, from when it began to listen. false: it does not listen, or not to us. */
static bool claimant_find(const struct mm_devlock *lock, struct ucred *ret_cred)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address;
	socklen_t bytes = claim_address(lock, &address), len = sizeof(*ret_cred);

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return fd >= 0 && connect(fd, (struct sockaddr *)&address, bytes) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_cred, &len) == 0;
}

/* Does that process see the files that we see? Then it would have the lock if it were an mmd. */
static bool shares_files(pid_t pid)
{
	char path[32], theirs[64] = "", ours[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	return pid > 0 && readlink(path, theirs, sizeof(theirs) - 1) > 0 &&
	       readlink("/proc/self/ns/mnt", ours, sizeof(ours) - 1) > 0 &&
	       strcmp(theirs, ours) == 0;
}

static int claim_taken(struct mm_devlock *lock, char *err, size_t err_bytes)
{
	char holder[96] = "it does not say which: ss -xlp shows who has @" CLAIM_PREFIX "...";
	struct ucred cred = { .uid = (uid_t)-1 };
	bool known = claimant_find(lock, &cred);

	if (known)
		snprintf(holder, sizeof(holder), "pid %d, uid %u", (int)cred.pid, cred.uid);
	if (lock->file_fd < 0 || (known && cred.uid == geteuid() && !shares_files(cred.pid)))
		return lock_busy(lock, holder, err, err_bytes);
	mm_log(MM_LOG_WARN, "device.claimed",
	       "uuid=%s holder=\"%s\" meaning=\"the lock is ours: the claim is passed over\"",
	       lock->uuid, holder);
	return 0;
}

static int claim_take(struct mm_devlock *lock, char *err, size_t err_bytes)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address;
	socklen_t bytes = claim_address(lock, &address);

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return lock_failed(err, err_bytes, "socket");
	if (bind(fd, (struct sockaddr *)&address, bytes) < 0)
		return errno == EADDRINUSE ? claim_taken(lock, err, err_bytes)
					   : lock_failed(err, err_bytes, "bind");
	if (listen(fd, 1) < 0)
		return lock_failed(err, err_bytes, "listen");
	lock->claim_fd = fd;
	fd = -1;
	return 0;
}

/* ---- both ---- */

/*
 * Root of a user namespace is an ordinary user for everybody outside: its /run/mmd-locks may be its own. A
 * kernel without such namespaces has no such file.
 */
static bool is_root(void)
{
	unsigned int inside = 1, outside = 1, count = 0;
	FILE *map;
	int n;

	if (geteuid() != 0)
		return false;
	map = fopen("/proc/self/uid_map", "re");
	if (!map)
		return true;
	n = fscanf(map, "%u %u %u", &inside, &outside, &count);
	fclose(map);
	return n == 3 && inside == 0 && outside == 0 && count == UINT32_MAX;
}

int mm_devlock_take(struct mm_devlock *lock, const uint8_t uuid[16], int pid, char *err,
		    size_t err_bytes)
{
	int r = 0;

	for (size_t i = 0; i < 16; i++)
		snprintf(lock->uuid + 2 * i, 3, "%02x", uuid[i]);
	if (is_root())
		r = file_take(lock, pid, err, err_bytes);
	return r < 0 ? r : claim_take(lock, err, err_bytes);
}

void mm_devlock_adopt(struct mm_devlock *lock)
{
	/* The kernel notes who listened last. */
	if (lock->claim_fd >= 0 && listen(lock->claim_fd, 1) < 0)
		mm_log(MM_LOG_WARN, "device.lock_unsigned", "error=\"%s\"", strerror(errno));
}

void mm_devlock_close(struct mm_devlock *lock)
{
	mm_close_fd(&lock->claim_fd);
	mm_close_fd(&lock->file_fd);
}

void mm_devlock_drop(struct mm_devlock *lock)
{
	char path[PATH_BYTES];

	lock_path(lock, path);
	/* It is locked still: nobody else has put another in its place. */
	if (lock->file_fd >= 0 && is_file(AT_FDCWD, path, lock->file_fd))
		unlink(path);
	mm_devlock_close(lock);
}
