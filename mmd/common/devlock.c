/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/devlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "mmd/common/log.h"

#define CLAIM_PREFIX "mmd/device/"
#define PATH_BYTES   (sizeof(MM_DEVLOCK_DIR) + MM_DEVLOCK_HEX_BYTES)
/* Attempts to lock a file that its last holder may be removing. */
#define TRIES       16
#define CLAIM_QUEUE 128
/* Time for an mmd that is ending to release the name. */
#define ENDING_NS MM_NS_PER_S
/* Pause between two attempts. */
#define AGAIN_NS (10 * MM_NS_PER_MS)

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

/* Another user who could write to the folder could put a file in place of any lock. */
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

static bool path_is_open_file(int folder_fd, const char *name, int fd)
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

	/* The text only explains a refusal to another mmd; the lock holds without it. */
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
		mm_log(MM_LOG_WARN, "device.lock_unsigned", "error=\"%s\"", strerror(errno));
}

/* Return: 1 the lock is ours; 0 its last holder has removed the file meanwhile; negative errno. */
static int file_try(struct mm_devlock *lock, int folder_fd, char *err, size_t err_bytes)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	char holder[64];

	fd = openat(folder_fd, lock->uuid, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return lock_failed(err, err_bytes, MM_DEVLOCK_DIR);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return lock_failed(err, err_bytes, MM_DEVLOCK_DIR);
		holder_read(fd, holder, sizeof(holder));
		return lock_busy(lock, holder, err, err_bytes);
	}
	if (!path_is_open_file(folder_fd, lock->uuid, fd))
		return 0;
	lock->file_fd = fd;
	fd = -1;
	return 1;
}

static bool folder_is_unavailable(int r)
{
	return r == -EROFS || r == -EACCES || r == -ENOENT;
}

static int file_take(struct mm_devlock *lock, int pid, char *err, size_t err_bytes)
{
	mm_cleanup(mm_close_fd) int folder_fd = -1;
	int r = folder_open(&folder_fd, err, err_bytes);

	if (folder_is_unavailable(r)) {
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
	size_t at = 1; /* A leading NUL makes the name abstract: it is gone with its last holder. */

	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	at += (size_t)snprintf(ret_address->sun_path + at, sizeof(ret_address->sun_path) - at,
			       CLAIM_PREFIX "%s", lock->uuid);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);
}

/* The process that has the name. */
struct claim_holder {
	/*
	 * Error of connecting to it; -ECONNREFUSED: it does not listen, or is gone; 0: cred is
	 * known.
	 */
	int error;
	bool uid_known;
	struct ucred cred; /* pid 0: not known, or not visible from here */
};

static bool attr_is_name(const struct rtattr *attr, const struct sockaddr_un *address,
			 socklen_t bytes)
{
	size_t len = bytes - offsetof(struct sockaddr_un, sun_path);

	return attr->rta_type == UNIX_DIAG_NAME && RTA_PAYLOAD(attr) == len &&
	       memcmp(RTA_DATA(attr), address->sun_path, len) == 0;
}

/*
 * Whether @msg describes the socket with that name. If so, its owner is stored, where the kernel
 * reports one.
 */
static bool diag_is_claim(const struct nlmsghdr *msg, const struct sockaddr_un *address,
			  socklen_t bytes, struct claim_holder *holder)
{
	const struct unix_diag_msg *diag = NLMSG_DATA(msg);
	const struct rtattr *attr = (const struct rtattr *)(diag + 1);
	unsigned int len = (unsigned int)NLMSG_PAYLOAD(msg, sizeof(*diag));
	bool named = false, owned = false;
	uint32_t uid = 0;

	if (diag->udiag_type != SOCK_STREAM) /* each socket type has names of its own */
		return false;
	for (; RTA_OK(attr, len); attr = RTA_NEXT(attr, len)) {
		named |= attr_is_name(attr, address, bytes);
		if (attr->rta_type == UNIX_DIAG_UID && RTA_PAYLOAD(attr) == sizeof(uid)) {
			memcpy(&uid, RTA_DATA(attr), sizeof(uid));
			owned = true;
		}
	}
	if (named && owned) {
		holder->cred.uid = uid;
		holder->uid_known = true;
	}
	return named;
}

static int diag_request(int fd)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req what;
	} request = {
		.head = { .nlmsg_len = sizeof(request),
			  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		/*
		 * Connections that wait to be accepted are left out: they carry the name as well,
		 * and the kernel reports root as their owner, whichever user connected.
		 */
		.what = { .sdiag_family = AF_UNIX,
			  .udiag_states = 1u << TCP_LISTEN | 1u << TCP_CLOSE,
			  .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID },
	};

	return send(fd, &request, sizeof(request), 0) == (ssize_t)sizeof(request) ? 0 : -errno;
}

/*
 * Reads the socket's owner from the kernel's list. Unlike its queue, which any user can fill, the
 * list cannot be influenced by others. Kernels before Linux 5.3 or without unix_diag leave the
 * owner unknown.
 */
static void holder_look_up(const struct mm_devlock *lock, struct claim_holder *holder)
{
	_Alignas(struct nlmsghdr) char buf[16384];
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address;
	socklen_t bytes = claim_address(lock, &address);

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0 || diag_request(fd) < 0)
		return;
	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);
		const struct nlmsghdr *msg = (const struct nlmsghdr *)buf;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		for (; NLMSG_OK(msg, (size_t)n); msg = NLMSG_NEXT(msg, n)) {
			if (msg->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
			    diag_is_claim(msg, &address, bytes, holder))
				return;
		}
	}
}

/*
 * Finds the holder: by a connection, the credentials of the process that last called listen(); else
 * from the kernel's list, the owner since the socket was made.
 */
static void holder_find(const struct mm_devlock *lock, struct claim_holder *ret)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address;
	socklen_t bytes = claim_address(lock, &address), len = sizeof(ret->cred);

	*ret = (struct claim_holder){ .cred = { .uid = (uid_t)-1 } };
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, bytes) == 0 &&
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ret->cred, &len) == 0) {
		ret->uid_known = true;
		return;
	}
	ret->error = -errno;
	ret->cred = (struct ucred){ .uid = (uid_t)-1 };
	holder_look_up(lock, ret);
}

static void holder_describe(const struct claim_holder *holder, char *ret_text, size_t bytes)
{
	static const char look[] = "ss -xlp shows who has @" CLAIM_PREFIX "...";

	if (holder->error == 0)
		snprintf(ret_text, bytes, "pid %d, uid %u", (int)holder->cred.pid,
			 holder->cred.uid);
	else if (holder->uid_known)
		snprintf(ret_text, bytes, "uid %u; %s", holder->cred.uid, look);
	else
		snprintf(ret_text, bytes, "it does not say which: %s", look);
}

/* Whether that process has the same mounts as we have. An mmd there would need our lock. */
static bool process_shares_files(pid_t pid)
{
	char path[32], theirs[64] = "", ours[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	return pid > 0 && readlink(path, theirs, sizeof(theirs) - 1) > 0 &&
	       readlink("/proc/self/ns/mnt", ours, sizeof(ours) - 1) > 0 &&
	       strcmp(theirs, ours) == 0;
}

/*
 * Whether the holder keeps us from using the device. For an ordinary user every holder does. For
 * root another root does, unless it sees the same files and would therefore need the lock that we
 * have. An ordinary user does not bind root, whether its queue is full or not; else any user could
 * keep root's mmd from starting. Where the owner is unknown, a holder that listens and has a full
 * queue binds, since it may be an mmd whose queue somebody fills; one that does not listen does
 * not.
 */
static bool holder_binds(const struct mm_devlock *lock, const struct claim_holder *holder)
{
	if (lock->file_fd < 0)
		return true;
	if (!holder->uid_known)
		return holder->error != -ECONNREFUSED;
	return holder->cred.uid == geteuid() && !process_shares_files(holder->cred.pid);
}

/*
 * Whether it may be worth waiting for the holder to end. An mmd that ends releases its lock a
 * moment before the name; until then its name appears as root's.
 */
static bool holder_may_end(const struct claim_holder *holder)
{
	return !holder->uid_known || holder->cred.uid == geteuid();
}

/* Return: -EADDRINUSE the name is taken; else as mm_devlock_take(). */
static int claim_try(struct mm_devlock *lock, char *err, size_t err_bytes)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address;
	socklen_t bytes = claim_address(lock, &address);

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return lock_failed(err, err_bytes, "socket");
	/*
	 * Connections to the claim are never accepted, and its last close would close the fds
	 * passed in them.
	 */
	(void)mm_sock_refuse_fds(fd);
	if (bind(fd, (struct sockaddr *)&address, bytes) < 0)
		return errno == EADDRINUSE ? -EADDRINUSE : lock_failed(err, err_bytes, "bind");
	if (listen(fd, CLAIM_QUEUE) < 0)
		return lock_failed(err, err_bytes, "listen");
	lock->claim_fd = fd;
	fd = -1;
	return 0;
}

static int claim_wait(struct mm_devlock *lock, char *err, size_t err_bytes)
{
	uint64_t until_ns = mm_now_ns() + ENDING_NS;
	int r;

	do {
		nanosleep(&(struct timespec){ .tv_nsec = AGAIN_NS }, NULL);
		r = claim_try(lock, err, err_bytes);
	} while (r == -EADDRINUSE && mm_now_ns() < until_ns);
	return r;
}

static int claim_take(struct mm_devlock *lock, char *err, size_t err_bytes)
{
	struct claim_holder holder;
	char who[96];
	int r;

	for (bool waited = false;; waited = true) {
		r = waited ? claim_wait(lock, err, err_bytes) : claim_try(lock, err, err_bytes);
		if (r != -EADDRINUSE)
			return r;
		holder_find(lock, &holder);
		holder_describe(&holder, who, sizeof(who));
		if (holder_binds(lock, &holder))
			return lock_busy(lock, who, err, err_bytes);
		if (waited || !holder_may_end(&holder))
			break;
	}
	mm_log(MM_LOG_WARN, "device.name_taken",
	       "uuid=%s holder=\"%s\" meaning=\"the lock is ours: the claim is passed over\"",
	       lock->uuid, who);
	return 0;
}

/* ---- lock and claim ---- */

/*
 * Root of a user namespace counts as an ordinary user: outside it has no privileges, and its
 * /run/mmd-locks may be its own. A kernel without user namespaces has no uid_map.
 */
static bool process_is_root(void)
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
	if (process_is_root())
		r = file_take(lock, pid, err, err_bytes);
	return r < 0 ? r : claim_take(lock, err, err_bytes);
}

bool mm_devlock_name(struct mm_devlock *lock, const char *text)
{
	const size_t digits = sizeof(lock->uuid) - 1;

	if (strlen(text) != digits || strspn(text, "0123456789abcdef") != digits)
		return false;
	memcpy(lock->uuid, text, digits + 1);
	return true;
}

void mm_devlock_adopt(struct mm_devlock *lock)
{
	/* The kernel records the process that called listen() last as the owner. */
	if (lock->claim_fd >= 0 && listen(lock->claim_fd, CLAIM_QUEUE) < 0)
		mm_log(MM_LOG_WARN, "device.lock_unsigned", "error=\"%s\"", strerror(errno));
}

void mm_devlock_close(struct mm_devlock *lock)
{
	mm_close_fd(&lock->claim_fd);
	mm_close_fd(&lock->file_fd);
}

void mm_devlock_leave(struct mm_devlock *lock)
{
	char path[PATH_BYTES];

	lock_path(lock, path);
	/* The file is still locked, so nobody else has replaced it. */
	if (lock->file_fd >= 0 && path_is_open_file(AT_FDCWD, path, lock->file_fd))
		unlink(path);
	*lock = MM_DEVLOCK_NULL;
}
