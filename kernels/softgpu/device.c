/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/timed.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/size.h"

#define STATE_MAGIC         UINT64_C(0x325550474d4d) /* "MMGPU2" */
#define DEFAULT_MEMORY      (UINT64_C(1) << 30)
#define DEFAULT_GRANULARITY (UINT64_C(2) << 20)
#define DEFAULT_NAME        "mmd software GPU"
#define SUBDIR              "pages"
#define NAME_BYTES          24 /* an inode number in hexadecimal */
#define UUID_DIGITS         32

/* The file "state", mapped by every process; guarded by the record lock on it. */
struct state {
	uint64_t magic;
	uint64_t used_bytes;
	struct sg_device_info info;
};

/* What the environment asks for; a zero or an empty string asks for nothing. */
struct wish {
	uint64_t memory_bytes, granularity_bytes;
	const char *name;
	CUuuid uuid;
	bool has_uuid;
	unsigned int device[SG_DEVICES_MAX]; /* what the driver's ordinals stand for */
	unsigned int n_devices;
	unsigned int there;     /* GPUs, visible or not */
	unsigned int instances; /* of MIG on the first of them; 0: it is not in MIG mode */
	struct sg_timing timing;
	bool has_dilation;
};

static struct device {
	pthread_mutex_t mtx; /* taken before the record lock: that one excludes processes only */
	int dir_fd, pages_fd, state_fd;
	dev_t filesystem;
	bool guest; /* may not write to the device: it imports and maps what others made */
	struct state *state;
	struct sg_device_info info;
} devices[SG_DEVICES_MAX]; /* by ordinal */

static unsigned int n_devices;

CUresult sg_complain(CUresult result, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("libmm-softgpu: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return result;
}

static int lock_device(struct device *d)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int err = 0;

	if (d->guest)
		return -EACCES;
	pthread_mutex_lock(&d->mtx);
	while (fcntl(d->state_fd, F_SETLKW, &lock) < 0 && !err)
		err = errno == EINTR ? 0 : -errno;
	if (err)
		pthread_mutex_unlock(&d->mtx);
	return err;
}

static void unlock_device(struct device *d)
{
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	fcntl(d->state_fd, F_SETLK, &lock);
	pthread_mutex_unlock(&d->mtx);
}

static CUresult wish_size(const char *variable, uint64_t *ret_bytes)
{
	const char *text = secure_getenv(variable);
	uint64_t bytes;

	if (!text || !*text)
		return CUDA_SUCCESS;
	if (mm_size_parse(text, &bytes) < 0 || !bytes || bytes > INT64_MAX)
		return sg_complain(CUDA_ERROR_INVALID_VALUE,
				   "%s=%s: not a size; give bytes, or a number with K, M, G or T",
				   variable, text);
	*ret_bytes = bytes;
	return CUDA_SUCCESS;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Dashes are ignored, wherever they stand. */
static CUresult wish_uuid(struct wish *w)
{
	const char *text = secure_getenv("MM_SOFTGPU_UUID");
	unsigned int n = 0;

	if (!text || !*text)
		return CUDA_SUCCESS;
	for (const char *p = text; *p; p++) {
		int digit = hex_digit(*p);

		if (*p == '-')
			continue;
		if (digit < 0 || n == UUID_DIGITS)
			n = UUID_DIGITS + 1;
		if (n > UUID_DIGITS)
			break;
		w->uuid.bytes[n / 2] = (char)(w->uuid.bytes[n / 2] << 4 | digit);
		n++;
	}
	if (n != UUID_DIGITS)
		return sg_complain(CUDA_ERROR_INVALID_VALUE,
				   "MM_SOFTGPU_UUID=%s: not a UUID; give 32 hexadecimal digits",
				   text);
	w->has_uuid = true;
	return CUDA_SUCCESS;
}

static CUresult wish_number(const char *variable, const char *text, unsigned int min,
			    unsigned int max, unsigned int *ret_number, const char **ret_end)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || number < min || number > max)
		return sg_complain(CUDA_ERROR_INVALID_VALUE, "%s=%s: give numbers from %u to %u",
				   variable, secure_getenv(variable), min, max);
	*ret_number = (unsigned int)number;
	*ret_end = end;
	return CUDA_SUCCESS;
}

/* All there are, or some of them in another order: as CUDA_VISIBLE_DEVICES does. */
static CUresult wish_devices(struct wish *w)
{
	const char *count = secure_getenv("MM_SOFTGPU_DEVICES"), *end = "";
	const char *visible = secure_getenv("MM_SOFTGPU_VISIBLE");
	const char *mig = secure_getenv("MM_SOFTGPU_MIG");
	unsigned int there = 1, n;

	if (count && *count)
		SG_TRY(wish_number("MM_SOFTGPU_DEVICES", count, 1, SG_DEVICES_MAX, &there, &end));
	if (!*end && mig && *mig)
		SG_TRY(wish_number("MM_SOFTGPU_MIG", mig, 0, SG_MIG_MAX, &w->instances, &end));
	w->there = there;
	for (n = 0; n < there; n++)
		w->device[n] = n;
	if (!*end && visible && *visible) {
		n = 0;
		end = visible;
		do
			SG_TRY(wish_number("MM_SOFTGPU_VISIBLE", end + (n > 0), 0, there - 1,
					   &w->device[n], &end));
		while (++n < there && *end == ',');
	}
	if (*end)
		return sg_complain(
			CUDA_ERROR_INVALID_VALUE,
			"MM_SOFTGPU_DEVICES, MM_SOFTGPU_MIG, MM_SOFTGPU_VISIBLE: '%s' is not "
			"understood; give a number, and numbers with commas between",
			end);
	for (unsigned int i = 0; i < n; i++)
		for (unsigned int k = 0; k < i; k++)
			if (w->device[i] == w->device[k])
				return sg_complain(CUDA_ERROR_INVALID_VALUE,
						   "MM_SOFTGPU_VISIBLE=%s: %u is there twice",
						   visible, w->device[i]);
	w->n_devices = n;
	return CUDA_SUCCESS;
}

static CUresult read_environment(struct wish *w)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	CUresult res;

	res = wish_size("MM_SOFTGPU_MEMORY", &w->memory_bytes);
	if (!res)
		res = wish_size("MM_SOFTGPU_GRANULARITY", &w->granularity_bytes);
	if (!res)
		res = wish_uuid(w);
	if (!res)
		res = wish_devices(w);
	if (!res)
		res = sg_timed_wish(&w->timing, &w->has_dilation);
	if (res)
		return res;
	if (w->granularity_bytes &&
	    (w->granularity_bytes < page || (w->granularity_bytes & (w->granularity_bytes - 1))))
		return sg_complain(CUDA_ERROR_INVALID_VALUE,
				   "MM_SOFTGPU_GRANULARITY: give a power of two of at least %llu",
				   (unsigned long long)page);
	w->name = secure_getenv("MM_SOFTGPU_NAME");
	return CUDA_SUCCESS;
}

/* The same directory is the same device, also after everybody has gone: its UUID stays. */
static void uuid_from_path(const char *path, CUuuid *ret_uuid)
{
	uint64_t hash[2] = { UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4) };

	for (const char *p = path; *p; p++)
		for (int i = 0; i < 2; i++)
			hash[i] = (hash[i] ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
	memcpy(ret_uuid->bytes, hash, sizeof(ret_uuid->bytes));
}

/* Device 0 is the directory itself; the others lie in it, and who may do what is the same there. */
static int make_directory(const char *path, const char *parent)
{
	struct stat st;

	if (mkdir(path, 0700) < 0)
		return errno == EEXIST ? 0 : -errno;
	if (parent && (stat(parent, &st) < 0 || chmod(path, st.st_mode & 01777) < 0))
		return -errno;
	return 0;
}

/* Of the first device, and of another in it. Return: 0; -ENAMETOOLONG. */
static int name_directory(unsigned int number, char *ret_parent, char *ret_path)
{
	const char *named = secure_getenv("MM_SOFTGPU_DIR");
	int n;

	if (named && *named)
		snprintf(ret_parent, PATH_MAX, "%s", named);
	else
		snprintf(ret_parent, PATH_MAX, "/dev/shm/mm-softgpu-%u", (unsigned int)geteuid());
	if (number >= SG_MIG_FIRST)
		n = snprintf(ret_path, PATH_MAX, "%s/mig-%u", ret_parent,
			     number - SG_MIG_FIRST + 1);
	else
		n = snprintf(ret_path, PATH_MAX, number ? "%s/device-%u" : "%s", ret_parent,
			     number);
	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static CUresult open_directory(struct device *d, unsigned int number, char *ret_path)
{
	const char *named = secure_getenv("MM_SOFTGPU_DIR");
	char parent[PATH_MAX];
	struct stat st;
	int err;

	err = name_directory(number, parent, ret_path);
	if (!err)
		err = make_directory(parent, NULL);
	if (!err && number)
		err = make_directory(ret_path, parent);
	if (err && err != -EACCES)
		return sg_complain(CUDA_ERROR_NO_DEVICE, "cannot make %s: %s; set MM_SOFTGPU_DIR",
				   ret_path, strerror(-err));
	d->dir_fd = open(ret_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->dir_fd < 0 || fstat(d->dir_fd, &st) < 0)
		return sg_complain(CUDA_ERROR_NO_DEVICE, "cannot open %s: %s; set MM_SOFTGPU_DIR",
				   ret_path, strerror(errno));
	if (!(named && *named) && st.st_uid != geteuid())
		return sg_complain(CUDA_ERROR_NO_DEVICE, "%s belongs to uid %u; set MM_SOFTGPU_DIR",
				   ret_path, (unsigned int)st.st_uid);
	d->filesystem = st.st_dev;
	return CUDA_SUCCESS;
}

/*
 * Plain O_CREAT would be refused on another user's file in a sticky directory
 * (fs.protected_regular).
 */
static int open_state(struct device *d, mode_t dir_mode)
{
	/* Who may only enter the directory may see how the device is, too: a guest. */
	mode_t mode = (dir_mode & 0666) | (dir_mode & 0011) << 2;
	int fd = openat(d->dir_fd, "state", O_RDWR | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT) {
		fd = openat(d->dir_fd, "state", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0)
			fchmod(fd, mode);
		else if (errno == EEXIST)
			fd = openat(d->dir_fd, "state", O_RDWR | O_CLOEXEC);
	}
	if (fd < 0 && errno == EACCES) {
		fd = openat(d->dir_fd, "state", O_RDONLY | O_CLOEXEC);
		d->guest = fd >= 0;
	}
	return fd;
}

/* The directory's mode says who may use the device; pages are their makers' (open_nameless()). */
static int open_members(struct device *d)
{
	struct stat st;
	mode_t mode;

	if (fstat(d->dir_fd, &st) < 0)
		return -errno;
	mode = st.st_mode & 0777;
	if (mkdirat(d->dir_fd, SUBDIR, 0700) == 0)
		fchmodat(d->dir_fd, SUBDIR, mode, 0);
	d->pages_fd = openat(d->dir_fd, SUBDIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->pages_fd < 0)
		return -errno;
	d->state_fd = open_state(d, mode);
	return d->state_fd < 0 ? -errno : 0;
}

/* Is this page held by anybody? One that is not is removed. The device is locked. */
static bool page_lives(const struct device *d, const char *name, uint64_t *ret_bytes)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct stat st;

	fd = openat(d->pages_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		/* Another user's page, or no descriptor left: count it as held. */
		*ret_bytes = fstatat(d->pages_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0
				     ? 0
				     : (uint64_t)st.st_size;
		return *ret_bytes != 0;
	}
	if (fstat(fd, &st) < 0)
		return false;
	*ret_bytes = (uint64_t)st.st_size;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return true;
	/* In a sticky directory only the owner can: then it stays charged until the owner looks. */
	return unlinkat(d->pages_fd, name, 0) < 0;
}

/* Sets state.used to what is really held. The device is locked. */
static int count_pages(struct device *d)
{
	uint64_t used = 0, bytes;
	struct dirent *entry;
	DIR *dir;
	int fd;

	fd = openat(d->pages_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.' && page_lives(d, entry->d_name, &bytes))
			used += bytes;
	closedir(dir);
	d->state->used_bytes = used;
	return 0;
}

static uint64_t default_memory(const struct wish *w)
{
	return w->timing.on ? w->timing.profile.memory_bytes : DEFAULT_MEMORY;
}

static void make_device(struct device *d, const struct wish *w, const char *path)
{
	struct sg_device_info *info = &d->state->info;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	*info = (struct sg_device_info){
		.capacity_bytes = w->memory_bytes ? w->memory_bytes : default_memory(w),
		.granularity_bytes =
			w->granularity_bytes ? w->granularity_bytes : DEFAULT_GRANULARITY,
		.host_page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
		.uuid = w->uuid,
		.timing = w->timing,
	};
	info->timing.epoch_ns = (uint64_t)now.tv_sec * MM_NS_PER_S + (uint64_t)now.tv_nsec;
	if (!w->has_uuid)
		uuid_from_path(path, &info->uuid);
	snprintf(info->name, sizeof(info->name), "%s",
		 w->name && *w->name ? w->name : DEFAULT_NAME);
	d->state->magic = STATE_MAGIC;
}

static CUresult check_timing(const struct sg_timing *is, const struct wish *w, const char *path)
{
	if (w->timing.on && !is->on)
		return sg_complain(CUDA_ERROR_INVALID_VALUE,
				   "MM_SOFTGPU_PROFILE: %s is in use, and not timed", path);
	if (w->timing.on && memcmp(&w->timing.profile, &is->profile, sizeof(is->profile)) != 0)
		return sg_complain(CUDA_ERROR_INVALID_VALUE,
				   "MM_SOFTGPU_PROFILE: %s is in use with another profile, of %s",
				   path, is->profile.name);
	if (w->has_dilation && is->dilation != w->timing.dilation)
		return sg_complain(CUDA_ERROR_INVALID_VALUE,
				   "MM_SOFTGPU_DILATION: %s is in use with %g", path, is->dilation);
	return CUDA_SUCCESS;
}

/* Somebody else uses the device: what we ask for must be what it is. */
static CUresult check_wish(const struct device *d, const struct wish *w, const char *path)
{
	const struct sg_device_info *info = &d->state->info;

	if (w->memory_bytes && w->memory_bytes != info->capacity_bytes)
		return sg_complain(CUDA_ERROR_INVALID_VALUE,
				   "MM_SOFTGPU_MEMORY: %s is in use with %llu bytes", path,
				   (unsigned long long)info->capacity_bytes);
	if (w->granularity_bytes && w->granularity_bytes != info->granularity_bytes)
		return sg_complain(CUDA_ERROR_INVALID_VALUE,
				   "MM_SOFTGPU_GRANULARITY: %s is in use with %llu bytes", path,
				   (unsigned long long)info->granularity_bytes);
	return check_timing(&info->timing, w, path);
}

static int map_state(struct device *d, int prot)
{
	void *base = mmap(NULL, sizeof(struct state), prot, MAP_SHARED, d->state_fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	d->state = base;
	return 0;
}

static CUresult attach_time(struct device *d, bool anew, const char *path)
{
	struct stat st;
	int err = 0;

	if (!d->info.timing.on)
		return CUDA_SUCCESS;
	if (fstat(d->dir_fd, &st) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	err = sg_timed_attach((unsigned int)(d - devices), d->dir_fd, st.st_mode, anew);
	return err ? sg_complain(CUDA_ERROR_NO_DEVICE, "%s/timeline: %s", path, strerror(-err))
		   : CUDA_SUCCESS;
}

/*
 * The device is locked; whoever has it open holds a shared flock on its state. Without waiting: a
 * guest could keep an exclusive one for ever.
 */
static CUresult attach(struct device *d, const struct wish *w, const char *path)
{
	bool alone = flock(d->state_fd, LOCK_EX | LOCK_NB) == 0, anew;
	struct stat st;

	flock(d->state_fd, LOCK_SH | LOCK_NB);
	if (fstat(d->state_fd, &st) < 0 ||
	    (st.st_size < (off_t)sizeof(struct state) &&
	     ftruncate(d->state_fd, (off_t)sizeof(struct state)) < 0))
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (map_state(d, PROT_READ | PROT_WRITE) < 0 || count_pages(d) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	anew = d->state->magic != STATE_MAGIC || (alone && d->state->used_bytes == 0);
	if (anew && w->has_dilation && !w->timing.on)
		return sg_complain(
			CUDA_ERROR_INVALID_VALUE,
			"MM_SOFTGPU_DILATION: means something with MM_SOFTGPU_PROFILE only");
	if (anew)
		make_device(d, w, path);
	else if (check_wish(d, w, path))
		return CUDA_ERROR_INVALID_VALUE;
	d->info = d->state->info;
	return attach_time(d, anew, path);
}

static CUresult attach_as_guest(struct device *d, const struct wish *w, const char *path)
{
	struct stat st;

	flock(d->state_fd, LOCK_SH | LOCK_NB);
	if (fstat(d->state_fd, &st) < 0 || st.st_size < (off_t)sizeof(struct state) ||
	    map_state(d, PROT_READ) < 0 || d->state->magic != STATE_MAGIC)
		return sg_complain(CUDA_ERROR_NO_DEVICE,
				   "%s: its owner has not made the device yet", path);
	if (check_wish(d, w, path))
		return CUDA_ERROR_INVALID_VALUE;
	d->info = d->state->info;
	return attach_time(d, false, path);
}

static void close_device(struct device *d)
{
	if (d->state)
		munmap(d->state, sizeof(struct state));
	d->state = NULL;
	sg_timed_detach((unsigned int)(d - devices));
	d->guest = false;
	mm_close_fd(&d->state_fd);
	mm_close_fd(&d->pages_fd);
	mm_close_fd(&d->dir_fd);
}

static CUresult open_device(struct device *d, const struct wish *w, unsigned int number)
{
	struct wish own = *w;
	char path[PATH_MAX];
	CUresult res;
	int err;

	*d = (struct device){
		.mtx = PTHREAD_MUTEX_INITIALIZER, .dir_fd = -1, .pages_fd = -1, .state_fd = -1
	};
	own.uuid.bytes[sizeof(own.uuid.bytes) - 1] ^= (char)number;
	res = open_directory(d, number, path);
	if (!res) {
		err = open_members(d);
		if (!err && !d->guest)
			err = lock_device(d);
		if (err) {
			res = sg_complain(CUDA_ERROR_NO_DEVICE, "%s: %s", path, strerror(-err));
		} else if (d->guest) {
			res = attach_as_guest(d, &own, path);
		} else {
			res = attach(d, &own, path);
			unlock_device(d);
		}
	}
	d->info.number = number;
	if (res)
		close_device(d);
	return res;
}

/* ---- devices as management and CUDA_VISIBLE_DEVICES see them: without using them ---- */

static void look_at(const struct wish *w, unsigned int number, struct sg_seen *ret)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	char parent[PATH_MAX], state_path[PATH_MAX + 8];
	struct state state = { 0 };

	*ret = (struct sg_seen){ .number = number };
	if (name_directory(number, parent, ret->path) < 0)
		return;
	snprintf(state_path, sizeof(state_path), "%s/state", ret->path);
	fd = open(state_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && pread(fd, &state, sizeof(state), 0) == (ssize_t)sizeof(state) &&
	    state.magic == STATE_MAGIC) {
		ret->info = state.info;
		ret->info.name[sizeof(ret->info.name) - 1] = '\0';
		ret->used_bytes = MM_MIN(state.used_bytes, state.info.capacity_bytes);
	} else {
		/* Nobody has made it yet; who does will make this. */
		ret->info.capacity_bytes = w->memory_bytes ? w->memory_bytes : default_memory(w);
		snprintf(ret->info.name, sizeof(ret->info.name), "%s",
			 w->name && *w->name ? w->name : DEFAULT_NAME);
		uuid_from_path(ret->path, &ret->info.uuid);
	}
	if (w->has_uuid) {
		ret->info.uuid = w->uuid;
		ret->info.uuid.bytes[sizeof(ret->info.uuid.bytes) - 1] ^= (char)number;
	}
	ret->info.number = number;
}

unsigned int sg_look(struct sg_seen *ret, unsigned int max, unsigned int *ret_instances)
{
	struct wish w = { 0 };
	unsigned int n = 0;

	if (read_environment(&w))
		return 0;
	for (unsigned int i = 0; i < w.there && n < max; i++)
		look_at(&w, i, &ret[n++]);
	for (unsigned int i = 0; i < w.instances && n < max; i++)
		look_at(&w, SG_MIG_FIRST + i, &ret[n++]);
	*ret_instances = w.instances;
	return n;
}

void sg_uuid_text(const struct sg_seen *seen, char *ret_text)
{
	const unsigned char *b = (const unsigned char *)seen->info.uuid.bytes;
	size_t at;

	at = (size_t)snprintf(ret_text, SG_UUID_TEXT, "%s",
			      seen->number >= SG_MIG_FIRST ? "MIG" : "GPU");
	for (size_t i = 0; i < sizeof(seen->info.uuid.bytes); i++)
		at += (size_t)snprintf(ret_text + at, SG_UUID_TEXT - at, "%s%02x",
				       i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				       b[i]);
}

/* The device that a word of CUDA_VISIBLE_DEVICES begins to name; -1: none, or several. */
static int device_by_word(const struct sg_seen *seen, unsigned int n, const char *word,
			  size_t bytes)
{
	char text[SG_UUID_TEXT];
	int found = -1;

	for (unsigned int i = 0; i < n; i++) {
		sg_uuid_text(&seen[i], text);
		if (strncasecmp(text, word, bytes) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

/*
 * UUIDs in CUDA_VISIBLE_DEVICES, as CUDA reads them: up to the first that names nothing; one MIG
 * instance at most, and then nothing else. Numbers there are a real driver's.
 */
static void see_by_uuid(struct wish *w, const char *words)
{
	struct sg_seen *seen = calloc(SG_DEVICES_MAX + SG_MIG_MAX, sizeof(*seen));
	unsigned int n, instances;

	w->n_devices = 0;
	n = seen ? sg_look(seen, SG_DEVICES_MAX + SG_MIG_MAX, &instances) : 0;
	while (*words && w->n_devices < SG_DEVICES_MAX) {
		size_t bytes = strcspn(words, ",");
		int found = device_by_word(seen, n, words, bytes);

		if (found < 0 || (w->n_devices && seen[found].number >= SG_MIG_FIRST))
			break;
		w->device[w->n_devices++] = seen[found].number;
		if (seen[found].number >= SG_MIG_FIRST)
			break;
		words += bytes + (words[bytes] == ',');
	}
	free(seen);
}

/* Of a GPU in MIG mode a process gets one instance, the first where nothing else is said. */
static void see(struct wish *w)
{
	const char *words = secure_getenv("CUDA_VISIBLE_DEVICES");

	if (words && (strncmp(words, "GPU-", 4) == 0 || strncmp(words, "MIG-", 4) == 0))
		see_by_uuid(w, words);
	for (unsigned int i = 0; w->instances && i < w->n_devices; i++) {
		if (w->device[i] != 0)
			continue;
		w->device[0] = SG_MIG_FIRST;
		w->n_devices = 1;
	}
}

CUresult sg_devices_open(void)
{
	struct wish w = { 0 };
	CUresult res = read_environment(&w);

	if (!res)
		see(&w);
	if (!res && !w.n_devices)
		return CUDA_ERROR_NO_DEVICE;

	for (unsigned int i = 0; i < w.n_devices && !res; i++) {
		res = open_device(&devices[i], &w, w.device[i]);
		n_devices = res ? 0 : i + 1;
		for (unsigned int k = 0; res && k < i; k++)
			close_device(&devices[k]);
	}
	return res;
}

unsigned int sg_device_count(void)
{
	return n_devices;
}

const struct sg_device_info *sg_device_info(unsigned int device)
{
	return &devices[device].info;
}

uint64_t sg_granularity_min(void)
{
	uint64_t bytes = devices[0].info.granularity_bytes;

	for (unsigned int i = 1; i < n_devices; i++)
		bytes = MM_MIN(bytes, devices[i].info.granularity_bytes);
	return bytes;
}

uint64_t sg_granularity_max(void)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < n_devices; i++)
		bytes = MM_MAX(bytes, devices[i].info.granularity_bytes);
	return bytes;
}

/* The soft limit on descriptors is 1024 in most shells: far fewer than a device has pages. */
static bool raise_fd_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return false;
	limit.rlim_cur = limit.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int reserve_capacity(struct device *d, size_t bytes)
{
	struct state *s = d->state;
	int err = lock_device(d);

	if (err)
		return err;
	/* Subtract, never add; a scribbled counter must not let anybody through. */
	if (s->used_bytes > d->info.capacity_bytes ||
	    bytes > d->info.capacity_bytes - s->used_bytes)
		err = count_pages(d);
	if (!err && (s->used_bytes > d->info.capacity_bytes ||
		     bytes > d->info.capacity_bytes - s->used_bytes))
		err = -ENOMEM;
	if (!err)
		s->used_bytes += bytes;
	unlock_device(d);
	return err;
}

static void page_name(uint64_t inode, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%llx", (unsigned long long)inode);
}

/*
 * A page is its maker's, whatever the directory lets others do: they get a descriptor of it, or
 * nothing. So another user's page cannot be opened to see whether it is still held, and counts as
 * held until one of that user's processes, or root's, counts.
 */
static int open_nameless(const struct device *d)
{
	int fd = openat(d->pages_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && errno == EMFILE && raise_fd_limit())
		fd = openat(d->pages_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd;
}

/* The lock comes before the name: nobody ever sees the page unheld. */
static int make_page(const struct device *d, size_t bytes, struct sg_page *page)
{
	char name[NAME_BYTES], self[64];
	struct stat st;

	page->fd = open_nameless(d);
	if (page->fd < 0 || flock(page->fd, LOCK_SH) < 0)
		return -errno;
	if (ftruncate(page->fd, (off_t)bytes) < 0 || fstat(page->fd, &st) < 0)
		return -errno;
	page_name(st.st_ino, name);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", page->fd);
	if (linkat(AT_FDCWD, self, d->pages_fd, name, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	page->inode = st.st_ino;
	page->bytes = bytes;
	return 0;
}

CUresult sg_page_create(unsigned int device, size_t bytes, struct sg_page *ret_page)
{
	struct device *d = &devices[device];
	struct sg_page page = SG_PAGE_NULL;
	int err = reserve_capacity(d, bytes);

	if (err == -EACCES)
		return CUDA_ERROR_NOT_PERMITTED;
	if (err)
		return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
	page.device = device;
	err = make_page(d, bytes, &page);
	if (err) {
		mm_close_fd(&page.fd);
		return err == -ENOSPC || err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
							: CUDA_ERROR_OPERATING_SYSTEM;
	}
	*ret_page = page;
	return CUDA_SUCCESS;
}

/*
 * A file of our file system under its own number in our folder is a page: no one else puts any
 * there.
 */
static bool is_page(const struct device *d, int fd, struct stat *ret_st)
{
	char name[NAME_BYTES];
	struct stat named;

	if (fstat(fd, ret_st) < 0 || !S_ISREG(ret_st->st_mode) || ret_st->st_size <= 0 ||
	    ret_st->st_dev != d->filesystem)
		return false;
	page_name(ret_st->st_ino, name);
	return fstatat(d->pages_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       named.st_ino == ret_st->st_ino;
}

static int dup_fd(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0 && errno == EMFILE && raise_fd_limit())
		copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return copy;
}

CUresult sg_page_adopt(int fd, struct sg_page *ret_page)
{
	struct sg_page page = SG_PAGE_NULL;
	struct stat st;

	while (fd >= 0 && page.device < n_devices && !is_page(&devices[page.device], fd, &st))
		page.device++;
	if (fd < 0 || page.device == n_devices)
		return CUDA_ERROR_INVALID_VALUE;
	page.fd = dup_fd(fd);
	if (page.fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	/* A description of somebody's own making (open of /proc/PID/fd) has no lock yet. */
	if (flock(page.fd, LOCK_SH | LOCK_NB) < 0) {
		close(page.fd);
		return CUDA_ERROR_INVALID_VALUE;
	}
	page.inode = st.st_ino;
	page.bytes = (size_t)st.st_size;
	*ret_page = page;
	return CUDA_SUCCESS;
}

int sg_page_export(const struct sg_page *page)
{
	return dup_fd(page->fd);
}

void sg_page_close(struct sg_page *page)
{
	struct device *d = &devices[page->device];
	char name[NAME_BYTES];
	uint64_t bytes;

	if (page->fd < 0)
		return;
	mm_close_fd(&page->fd);
	if (lock_device(d) == 0) {
		page_name(page->inode, name);
		if (faccessat(d->pages_fd, name, F_OK, 0) == 0 && !page_lives(d, name, &bytes))
			d->state->used_bytes -= MM_MIN(page->bytes, d->state->used_bytes);
		unlock_device(d);
	}
	*page = SG_PAGE_NULL;
}

CUresult sg_device_used(unsigned int device, uint64_t *ret_used_bytes)
{
	struct device *d = &devices[device];
	int err;

	if (d->guest) {
		*ret_used_bytes = __atomic_load_n(&d->state->used_bytes, __ATOMIC_RELAXED);
		return CUDA_SUCCESS;
	}
	err = lock_device(d);
	if (!err) {
		err = count_pages(d);
		*ret_used_bytes = d->state->used_bytes;
		unlock_device(d);
	}
	return err ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
