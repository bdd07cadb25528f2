/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/fault/below/below.h"

#define OBJECTS_MAX    16
#define DRIVER_OBJECT  0xffu
#define EXPORTED       __attribute__((visibility("default")))
#define ARGUMENTS      long a, long b, long c, long d, long e, long f, long g
#define CALLER_ADDRESS ((uintptr_t)__builtin_return_address(0))

/* How a function says that it has failed. */
enum failure {
	MINUS_ONE,    /* -1 and errno, also MAP_FAILED */
	NULL_POINTER, /* NULL and errno */
	ERROR_NUMBER, /* an errno */
	NEGATIVE,     /* a negative errno */
	NO_FAILURE,   /* it never does; only a process is stopped or killed there */
	DONE_ANYWAY,  /* -1 and errno, and the call is made all the same */
};

/*
 * The functions, with the error of each that a sound program may meet. They take seven arguments or
 * fewer (syscall() has most), none of them floating point, so one shape fits all: what a caller did
 * not pass is read from a register or the stack, and the function does not look at it.
 */
#define BELOW_CALLS(X)                                                  \
	X(malloc, NULL_POINTER, ENOMEM, BELOW_MEMORY)                   \
	X(calloc, NULL_POINTER, ENOMEM, BELOW_MEMORY)                   \
	X(realloc, NULL_POINTER, ENOMEM, BELOW_MEMORY)                  \
	X(mmap, MINUS_ONE, ENOMEM, BELOW_MEMORY)                        \
	X(munmap, MINUS_ONE, ENOMEM, BELOW_MEMORY)                      \
	X(madvise, MINUS_ONE, EAGAIN, BELOW_MEMORY)                     \
	X(mbind, MINUS_ONE, ENOMEM, BELOW_MEMORY)                       \
	X(memfd_create, MINUS_ONE, EMFILE, BELOW_FD)                    \
	X(open, MINUS_ONE, EMFILE, BELOW_FD)                            \
	X(openat, MINUS_ONE, EMFILE, BELOW_FD)                          \
	X(fopen, NULL_POINTER, EMFILE, BELOW_FD)                        \
	X(mkostemp, MINUS_ONE, EMFILE, BELOW_FD)                        \
	X(dup2, MINUS_ONE, EMFILE, BELOW_FD)                            \
	X(fcntl, MINUS_ONE, EMFILE, BELOW_FD)                           \
	X(pipe2, MINUS_ONE, EMFILE, BELOW_FD)                           \
	X(eventfd, MINUS_ONE, EMFILE, BELOW_FD)                         \
	X(signalfd, MINUS_ONE, EMFILE, BELOW_FD)                        \
	X(timerfd_create, MINUS_ONE, EMFILE, BELOW_FD)                  \
	X(epoll_create1, MINUS_ONE, EMFILE, BELOW_FD)                   \
	X(accept4, MINUS_ONE, EMFILE, BELOW_FD)                         \
	X(socket, MINUS_ONE, EMFILE, BELOW_FD)                          \
	X(socketpair, MINUS_ONE, EMFILE, BELOW_FD)                      \
	X(syscall, MINUS_ONE, EMFILE, BELOW_FD)                         \
	X(bind, MINUS_ONE, ENOMEM, BELOW_SOCKET)                        \
	X(listen, MINUS_ONE, ENOMEM, BELOW_SOCKET)                      \
	X(connect, MINUS_ONE, EAGAIN, BELOW_SOCKET)                     \
	X(sendmsg, MINUS_ONE, ETOOMANYREFS, BELOW_SOCKET)               \
	X(send, MINUS_ONE, ENOBUFS, BELOW_SOCKET)                       \
	X(recvmsg, MINUS_ONE, ENOMEM, BELOW_SOCKET | BELOW_FD)          \
	X(recv, MINUS_ONE, ENOMEM, BELOW_SOCKET)                        \
	X(getsockopt, MINUS_ONE, ENOMEM, BELOW_SOCKET)                  \
	X(setsockopt, MINUS_ONE, ENOMEM, BELOW_SOCKET)                  \
	X(shutdown, DONE_ANYWAY, ENOTCONN, BELOW_SOCKET)                \
	X(ftruncate, MINUS_ONE, ENOSPC, BELOW_FILE)                     \
	X(fallocate, MINUS_ONE, ENOSPC, BELOW_FILE)                     \
	X(posix_fadvise, ERROR_NUMBER, EINVAL, BELOW_FILE)              \
	X(fdatasync, MINUS_ONE, EIO, BELOW_FILE)                        \
	X(read, MINUS_ONE, EIO, BELOW_FILE)                             \
	X(pread, MINUS_ONE, EIO, BELOW_FILE)                            \
	X(write, MINUS_ONE, ENOSPC, BELOW_FILE)                         \
	X(pwrite, MINUS_ONE, ENOSPC, BELOW_FILE)                        \
	X(lseek, MINUS_ONE, EIO, BELOW_FILE)                            \
	X(fstat, MINUS_ONE, EIO, BELOW_FILE)                            \
	X(fstatat, MINUS_ONE, EIO, BELOW_FILE)                          \
	X(lstat, MINUS_ONE, EIO, BELOW_FILE)                            \
	X(statx, MINUS_ONE, EIO, BELOW_FILE)                            \
	X(fstatfs, MINUS_ONE, EIO, BELOW_FILE)                          \
	X(access, MINUS_ONE, EIO, BELOW_FILE)                           \
	X(chmod, MINUS_ONE, EIO, BELOW_FILE)                            \
	X(fchmod, MINUS_ONE, EIO, BELOW_FILE)                           \
	X(mkdir, MINUS_ONE, ENOSPC, BELOW_FILE)                         \
	X(unlink, MINUS_ONE, EIO, BELOW_FILE)                           \
	X(flock, MINUS_ONE, ENOLCK, BELOW_FILE)                         \
	X(readlink, MINUS_ONE, ENOMEM, BELOW_FILE)                      \
	X(realpath, NULL_POINTER, ENOMEM, BELOW_FILE)                   \
	X(close, DONE_ANYWAY, EIO, BELOW_FILE)                          \
	X(io_uring_queue_init, NEGATIVE, ENOMEM, BELOW_FILE)            \
	X(io_uring_register_buffers, NEGATIVE, ENOMEM, BELOW_FILE)      \
	X(io_uring_register_files_sparse, NEGATIVE, ENOMEM, BELOW_FILE) \
	X(io_uring_register_files_update, NEGATIVE, ENOMEM, BELOW_FILE) \
	X(io_uring_submit, NEGATIVE, EAGAIN, BELOW_FILE)                \
	X(io_uring_submit_and_wait, NEGATIVE, EAGAIN, BELOW_FILE)       \
	X(epoll_ctl, MINUS_ONE, ENOMEM, BELOW_LOOP)                     \
	X(epoll_wait, MINUS_ONE, EINTR, BELOW_LOOP)                     \
	X(poll, MINUS_ONE, EINTR, BELOW_LOOP)                           \
	X(ppoll, MINUS_ONE, EINTR, BELOW_LOOP)                          \
	X(nanosleep, MINUS_ONE, EINTR, BELOW_LOOP)                      \
	X(fork, MINUS_ONE, EAGAIN, BELOW_PROCESS)                       \
	X(execv, MINUS_ONE, ENOMEM, BELOW_PROCESS)                      \
	X(waitpid, NO_FAILURE, 0, BELOW_PROCESS)                        \
	X(kill, NO_FAILURE, 0, BELOW_PROCESS)                           \
	X(prctl, MINUS_ONE, EPERM, BELOW_PROCESS)                       \
	X(setgroups, MINUS_ONE, EPERM, BELOW_PROCESS)                   \
	X(setresgid, MINUS_ONE, EAGAIN, BELOW_PROCESS)                  \
	X(setresuid, MINUS_ONE, EAGAIN, BELOW_PROCESS)                  \
	X(setrlimit, MINUS_ONE, EPERM, BELOW_PROCESS)                   \
	X(getrlimit, MINUS_ONE, EPERM, BELOW_PROCESS)                   \
	X(seccomp_load, NEGATIVE, ENOMEM, BELOW_PROCESS)                \
	X(pthread_create, ERROR_NUMBER, EAGAIN, BELOW_PROCESS)

/* Index 0 is the driver's, whose calls the software GPU reports by name. */
enum below_call {
	CALL_DRIVER,
#define BELOW_INDEX(symbol, failure, error, class) CALL_##symbol,
	BELOW_CALLS(BELOW_INDEX)
#undef BELOW_INDEX
		CALL_COUNT
};

static const struct call_row {
	const char *name;
	enum failure failure;
	int error;
	uint32_t class;
} call_table[CALL_COUNT] = { [CALL_DRIVER] = { "", NO_FAILURE, 0, BELOW_DRIVER },
#define BELOW_ROW(symbol, failure, error, class) \
	[CALL_##symbol] = { #symbol, failure, error, class },
			     BELOW_CALLS(BELOW_ROW)
#undef BELOW_ROW
};

typedef long call_fn(ARGUMENTS);

static call_fn *call_real[CALL_COUNT]; /* atomic */
static struct below_role *orders;      /* NULL: this process is nobody's concern */

/* Code of the program and of the libraries that it was linked with, not of what it loads later. */
static struct object_range {
	uintptr_t begin, end;
} objects[OBJECTS_MAX];
static size_t n_objects;

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

/* dlsym() allocates, so allocation is known without it. */
static call_fn *call_resolve(enum below_call call)
{
	call_fn *fn = __atomic_load_n(&call_real[call], __ATOMIC_RELAXED);

	if (fn)
		return fn;
	if (call == CALL_malloc)
		fn = (call_fn *)(void *)__libc_malloc;
	else if (call == CALL_calloc)
		fn = (call_fn *)(void *)__libc_calloc;
	else if (call == CALL_realloc)
		fn = (call_fn *)(void *)__libc_realloc;
	else
		fn = (call_fn *)dlsym(RTLD_NEXT, call_table[call].name);
	__atomic_store_n(&call_real[call], fn, __ATOMIC_RELAXED);
	return fn;
}

/* ---- sites ---- */

/* Return: the site's key; 0 if @address is in code that does not count. */
static uint64_t key_of_address(enum below_call call, uintptr_t address)
{
	for (size_t i = 0; i < n_objects; i++) {
		if (address >= objects[i].begin && address < objects[i].end)
			return (address - objects[i].begin) << 16 | i << 8 | call;
	}
	return 0;
}

static uint64_t key_of_name(const char *name)
{
	uint64_t hash = 5381;

	for (const char *at = name; *at; at++)
		hash = (hash * 33 + (unsigned char)*at) & 0xffffffff;
	return hash << 16 | DRIVER_OBJECT << 8 | CALL_DRIVER;
}

static struct below_site *site_find(uint64_t key, const char *name)
{
	uint64_t hash = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 40;

	for (uint32_t i = 0; i < BELOW_SITES; i++) {
		struct below_site *site = &orders->sites[(hash + i) % BELOW_SITES];
		uint64_t found = __atomic_load_n(&site->key, __ATOMIC_ACQUIRE);

		if (!found && __atomic_compare_exchange_n(&site->key, &found, key, false,
							  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			strncpy(site->name, name, BELOW_NAME_BYTES - 1);
			return site;
		}
		if (found == key)
			return site;
	}
	return NULL;
}

/* Return: whether this call is the one that the order names. */
static bool site_strikes(uint64_t key, const char *name, uint32_t class)
{
	struct below_site *site = site_find(key, name);
	uint64_t nth = __atomic_load_n(&orders->nth, __ATOMIC_ACQUIRE);
	uint64_t count = orders->count ? orders->count : 1, calls;

	if (!site) {
		__atomic_add_fetch(&orders->sites_lost, 1, __ATOMIC_RELAXED);
		return false;
	}
	__atomic_add_fetch(&site->calls, 1, __ATOMIC_RELAXED);
	if ((orders->site && orders->site != key) ||
	    (orders->classes && !(orders->classes & class)))
		return false;
	calls = __atomic_add_fetch(&orders->calls, 1, __ATOMIC_RELAXED);
	if (!nth || calls < nth || calls - nth >= count)
		return false;
	orders->fired_key = key;
	orders->fired_pid = (uint32_t)call_resolve(CALL_syscall)(SYS_getpid, 0, 0, 0, 0, 0, 0);
	__atomic_add_fetch(&orders->fired, 1, __ATOMIC_RELEASE);
	return true;
}

/* ---- what is done to a call ---- */

/* Sandboxes allow tgkill() to one's own thread, and kill() they do not. */
static void signal_self(int signal)
{
	call_fn *call = call_resolve(CALL_syscall);
	long pid = call(SYS_getpid, 0, 0, 0, 0, 0, 0);

	call(SYS_tgkill, pid, call(SYS_gettid, 0, 0, 0, 0, 0, 0), signal, 0, 0, 0);
}

static long call_fail(enum below_call call, long b)
{
	const struct call_row *row = &call_table[call];
	int error = orders->value ? orders->value : row->error;

	/* Only descriptors can be too many on their way. */
	if (call == CALL_sendmsg && error == ETOOMANYREFS &&
	    !((const struct msghdr *)b)->msg_controllen)
		error = ENOBUFS;
	if (row->failure == ERROR_NUMBER)
		return error;
	if (row->failure == NEGATIVE)
		return -error;
	errno = error;
	return row->failure == NULL_POINTER ? 0 : -1;
}

/* EPOLL_CTL_ADD needs memory; changing and deleting what is there does not, and cannot fail. */
static bool call_can_fail(enum below_call call, long b)
{
	return call_table[call].failure != NO_FAILURE &&
	       (call != CALL_epoll_ctl || (int)b == EPOLL_CTL_ADD);
}

/*
 * A process without a free descriptor receives a message all the same, but not what came in it.
 * Return: that of recvmsg().
 */
static long message_strip(long received, struct msghdr *msg)
{
	if (received < 0)
		return received;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(msg); part; part = CMSG_NXTHDR(msg, part)) {
		int fds[256];
		size_t bytes = part->cmsg_len - CMSG_LEN(0);

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds, CMSG_DATA(part), bytes);
		for (size_t i = 0; i < bytes / sizeof(*fds); i++)
			call_resolve(CALL_close)(fds[i], 0, 0, 0, 0, 0, 0);
		msg->msg_flags |= MSG_CTRUNC;
		msg->msg_controllen = 0;
		break;
	}
	return received;
}

static long call_make(enum below_call call, uintptr_t caller, ARGUMENTS)
{
	call_fn *real = call_resolve(call);
	uint64_t key = orders ? key_of_address(call, caller) : 0;
	int saved_errno = errno;
	bool strikes = key && site_strikes(key, call_table[call].name, call_table[call].class);
	long result;

	errno = saved_errno;
	if (!strikes)
		return real(a, b, c, d, e, f, g);
	if (orders->action == BELOW_STOP || orders->action == BELOW_KILL)
		signal_self(orders->action == BELOW_STOP ? SIGSTOP : SIGKILL);
	if (orders->action > BELOW_STICKY || !call_can_fail(call, b)) {
		result = real(a, b, c, d, e, f, g);
		if (orders->action == BELOW_KILL_AFTER)
			signal_self(SIGKILL);
		return result;
	}
	if (call == CALL_recvmsg && orders->classes == BELOW_FD)
		return message_strip(real(a, b, c, d, e, f, g), (struct msghdr *)b);
	if (call_table[call].failure == DONE_ANYWAY)
		(void)real(a, b, c, d, e, f, g);
	return call_fail(call, b);
}

#define BELOW_DEFINE(symbol, failure, error, class)                                   \
	EXPORTED long below_##symbol(ARGUMENTS) __asm__(#symbol);                     \
	EXPORTED long below_##symbol(ARGUMENTS)                                       \
	{                                                                             \
		return call_make(CALL_##symbol, CALLER_ADDRESS, a, b, c, d, e, f, g); \
	}
BELOW_CALLS(BELOW_DEFINE)
#undef BELOW_DEFINE

/* ---- the driver ---- */

EXPORTED int mm_below_driver(const char *entry);

/* The software GPU asks at each entry point. Return: the CUresult to return; 0: do the work. */
EXPORTED int mm_below_driver(const char *entry)
{
	static bool stuck; /* atomic */
	int value;

	if (!orders || strncmp(entry, "cu", 2) != 0)
		return 0;
	value = orders->value ? orders->value : 2; /* CUDA_ERROR_OUT_OF_MEMORY */
	if (__atomic_load_n(&stuck, __ATOMIC_RELAXED))
		return value;
	if (!site_strikes(key_of_name(entry), entry, BELOW_DRIVER))
		return 0;
	if (orders->action == BELOW_STICKY)
		__atomic_store_n(&stuck, true, __ATOMIC_RELAXED);
	if (orders->action == BELOW_STOP)
		signal_self(SIGSTOP);
	if (orders->action == BELOW_KILL || orders->action == BELOW_KILL_AFTER)
		signal_self(SIGKILL);
	return orders->action <= BELOW_STICKY ? value : 0;
}

/* ---- clocks ---- */

EXPORTED int below_clock_gettime(clockid_t clock, struct timespec *now) __asm__("clock_gettime");

EXPORTED int below_clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	int64_t jump_ns = 0, total_ns;
	int r;

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	r = real(clock, now);
	if (r == 0 && orders && clock == CLOCK_REALTIME)
		jump_ns = orders->jump_realtime_ns;
	else if (r == 0 && orders && (clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME))
		jump_ns = orders->jump_monotonic_ns;
	if (!jump_ns || !key_of_address(CALL_DRIVER, CALLER_ADDRESS))
		return r;
	total_ns = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + jump_ns;
	now->tv_sec = total_ns / 1000000000;
	now->tv_nsec = total_ns % 1000000000;
	return 0;
}

/* ---- beginning ---- */

static int object_note(struct dl_phdr_info *info, size_t bytes, void *own_address)
{
	struct object_range range = { UINTPTR_MAX, 0 };

	(void)bytes;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t begin = info->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD)
			continue;
		range.begin = begin < range.begin ? begin : range.begin;
		range.end = begin + part->p_memsz > range.end ? begin + part->p_memsz : range.end;
	}
	if ((uintptr_t)own_address >= range.begin && (uintptr_t)own_address < range.end)
		return 0;
	if (n_objects < OBJECTS_MAX)
		objects[n_objects++] = range;
	return 0;
}

/* Return: this process's role; BELOW_ROLES if it is neither mmd's nor a tenant of the test. */
static enum below_role_index role_find(int argc, char **argv)
{
	static const char *const names[] = { "keeper", "core", "xfer",  "load",
					     "spool",  "log",  "client" };
	const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
	const char *own = getenv(BELOW_ROLE_ENV);
	enum below_role_index role = BELOW_ROLES;

	name = name ? name + 1 : argc > 0 ? argv[0] : "";
	if (strcmp(name, "mmd") != 0) {
		for (size_t n = 0; own && n < BELOW_ROLES; n++)
			role = strcmp(own, names[n]) == 0 ? (enum below_role_index)n : role;
		return role;
	}
	role = BELOW_KEEPER;
	for (int i = 1; i < argc; i++) {
		for (size_t n = 0; strncmp(argv[i], "--role", 6) == 0 && n < BELOW_ROLES; n++) {
			if (strcmp(argv[i] + 6, "") == 0 && i + 1 < argc &&
			    strcmp(argv[i + 1], names[n]) == 0)
				role = (enum below_role_index)n;
			if (argv[i][6] == '=' && strcmp(argv[i] + 7, names[n]) == 0)
				role = (enum below_role_index)n;
		}
	}
	return role;
}

__attribute__((constructor)) static void below_begin(int argc, char **argv)
{
	const char *path = getenv(BELOW_FILE_ENV);
	enum below_role_index role = role_find(argc, argv);
	struct below_file *file;
	long fd;

	for (enum below_call call = CALL_malloc; call < CALL_COUNT; call++)
		call_resolve(call);
	if (!path || role == BELOW_ROLES)
		return;
	dl_iterate_phdr(object_note, (void *)(uintptr_t)below_begin);
	fd = call_resolve(CALL_open)((long)path, O_RDWR | O_CLOEXEC, 0, 0, 0, 0, 0);
	if (fd < 0)
		return;
	file = (struct below_file *)call_resolve(CALL_mmap)(
		0, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0, 0);
	call_resolve(CALL_close)(fd, 0, 0, 0, 0, 0, 0);
	if (file != MAP_FAILED)
		orders = &file->role[role];
}
