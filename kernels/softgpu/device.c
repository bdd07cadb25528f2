/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/softgpu/device_state.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/settings.h"
#include "kernels/softgpu/snapshot.h"
#include "kernels/softgpu/timed.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define DEFAULT_GRANULARITY (UINT64_C(2) << 20)
#define PAGES_DIR           "pages"

struct sg_device sg_devices[SG_DEVICES_MAX];

static unsigned int n_open_devices;

/* Not analysed: the lock is taken only if the result is 0. */
int sg_device_lock(struct sg_device *d) MM_NO_THREAD_SAFETY_ANALYSIS
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int err = 0;

	if (d->read_only)
		return -EACCES;
	sg_device_mutex_take(&d->mtx);
	while (fcntl(d->state_fd, F_SETLKW, &lock) < 0 && !err)
		err = errno == EINTR ? 0 : -errno;
	if (err)
		sg_device_mutex_give(&d->mtx);
	return err;
}

void sg_device_unlock(struct sg_device *d)
{
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	fcntl(d->state_fd, F_SETLK, &lock);
	sg_device_mutex_give(&d->mtx);
}

void sg_device_uuid_of_path(const char *path, CUuuid *ret_uuid)
{
	uint64_t hash[2] = { UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4) };

	for (const char *p = path; *p; p++)
		for (int i = 0; i < 2; i++)
			hash[i] = (hash[i] ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
	memcpy(ret_uuid->bytes, hash, sizeof(ret_uuid->bytes));
}

/* Gives what root has made in another user's directory @dir to that user. */
static void owner_follow(int dir_fd, const char *name, const struct stat *dir)
{
	if (dir->st_uid != 0 && geteuid() == 0)
		(void)fchownat(dir_fd, name, dir->st_uid, dir->st_gid, AT_SYMLINK_NOFOLLOW);
}

/* Creates the directory. One in a @parent gets its mode, so that the same users may use it. */
static int directory_make(const char *path, const char *parent)
{
	struct stat st;

	if (mkdir(path, 0700) < 0)
		return errno == EEXIST ? 0 : -errno;
	if (parent && (stat(parent, &st) < 0 || chmod(path, st.st_mode & 01777) < 0))
		return -errno;
	if (parent)
		owner_follow(AT_FDCWD, path, &st);
	return 0;
}

int sg_device_path(unsigned int number, char *ret_parent, char *ret_path)
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

static CUresult directory_open(struct sg_device *d, unsigned int number, char *ret_path)
{
	const char *named = secure_getenv("MM_SOFTGPU_DIR");
	char parent[PATH_MAX];
	struct stat st;
	int err;

	err = sg_device_path(number, parent, ret_path);
	if (!err)
		err = directory_make(parent, NULL);
	if (!err && number)
		err = directory_make(ret_path, parent);
	if (err && err != -EACCES)
		return sg_error(CUDA_ERROR_NO_DEVICE, "cannot make %s: %s; set MM_SOFTGPU_DIR",
				ret_path, strerror(-err));
	d->dir_fd = open(ret_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->dir_fd < 0 || fstat(d->dir_fd, &st) < 0)
		return sg_error(CUDA_ERROR_NO_DEVICE, "cannot open %s: %s; set MM_SOFTGPU_DIR",
				ret_path, strerror(errno));
	if (!(named && *named) && st.st_uid != geteuid())
		return sg_error(CUDA_ERROR_NO_DEVICE, "%s belongs to uid %u; set MM_SOFTGPU_DIR",
				ret_path, (unsigned int)st.st_uid);
	d->filesystem = st.st_dev;
	return CUDA_SUCCESS;
}

/*
 * Opens or creates "state". Plain O_CREAT would be refused on another user's file in a sticky
 * directory (fs.protected_regular).
 */
static int state_open(struct sg_device *d, const struct stat *dir)
{
	/*
	 * A user that may only enter the directory may read the state, and has a read-only device.
	 */
	mode_t mode = (dir->st_mode & 0666) | (dir->st_mode & 0011) << 2;
	int fd = openat(d->dir_fd, "state", O_RDWR | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT) {
		fd = openat(d->dir_fd, "state", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0) {
			fchmod(fd, mode);
			if (dir->st_uid != 0 && geteuid() == 0)
				(void)fchown(fd, dir->st_uid, dir->st_gid);
		} else if (errno == EEXIST)
			fd = openat(d->dir_fd, "state", O_RDWR | O_CLOEXEC);
	}
	if (fd < 0 && errno == EACCES) {
		fd = openat(d->dir_fd, "state", O_RDONLY | O_CLOEXEC);
		d->read_only = fd >= 0;
	}
	return fd;
}

/*
 * The directory's mode decides who may use the device. A page belongs to its maker: see page.c.
 */
static int members_open(struct sg_device *d)
{
	struct stat st;
	mode_t mode;

	if (fstat(d->dir_fd, &st) < 0)
		return -errno;
	mode = st.st_mode & 0777;
	if (mkdirat(d->dir_fd, PAGES_DIR, 0700) == 0) {
		fchmodat(d->dir_fd, PAGES_DIR, mode, 0);
		owner_follow(d->dir_fd, PAGES_DIR, &st);
	}
	d->pages_fd = openat(d->dir_fd, PAGES_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->pages_fd < 0)
		return -errno;
	d->state_fd = state_open(d, &st);
	return d->state_fd < 0 ? -errno : 0;
}

static void state_fill(struct sg_device *d, const struct sg_settings *w, const char *path)
{
	struct sg_device_info *info = &d->state->info;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	*info = (struct sg_device_info){
		.capacity_bytes = w->memory_bytes ? w->memory_bytes : sg_settings_memory(w),
		.granularity_bytes =
			w->granularity_bytes ? w->granularity_bytes : DEFAULT_GRANULARITY,
		.host_page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
		.uuid = w->uuid,
		.timing = w->timing,
	};
	info->timing.epoch_ns = (uint64_t)now.tv_sec * MM_NS_PER_S + (uint64_t)now.tv_nsec;
	if (!w->has_uuid)
		sg_device_uuid_of_path(path, &info->uuid);
	snprintf(info->name, sizeof(info->name), "%s", sg_settings_name(w));
	d->state->magic = SG_STATE_MAGIC;
}

static CUresult settings_check_timing(const struct sg_timing *is, const struct sg_settings *w,
				      const char *path)
{
	if (w->timing.on && !is->on)
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"MM_SOFTGPU_PROFILE: %s is in use, and not timed", path);
	if (w->timing.on && memcmp(&w->timing.profile, &is->profile, sizeof(is->profile)) != 0)
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"MM_SOFTGPU_PROFILE: %s is in use with another profile, of %s",
				path, is->profile.name);
	if (w->has_dilation && is->dilation != w->timing.dilation)
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"MM_SOFTGPU_DILATION: %s is in use with %g", path, is->dilation);
	return CUDA_SUCCESS;
}

/* The device exists already: settings that are given must match it. */
static CUresult settings_check(const struct sg_device *d, const struct sg_settings *w,
			       const char *path)
{
	const struct sg_device_info *info = &d->state->info;

	if (w->memory_bytes && w->memory_bytes != info->capacity_bytes)
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"MM_SOFTGPU_MEMORY: %s is in use with %llu bytes", path,
				(unsigned long long)info->capacity_bytes);
	if (w->granularity_bytes && w->granularity_bytes != info->granularity_bytes)
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"MM_SOFTGPU_GRANULARITY: %s is in use with %llu bytes", path,
				(unsigned long long)info->granularity_bytes);
	return settings_check_timing(&info->timing, w, path);
}

static int state_map(struct sg_device *d, int prot)
{
	void *base = mmap(NULL, sizeof(struct sg_device_state), prot, MAP_SHARED, d->state_fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	d->state = base;
	return 0;
}

static CUresult timeline_attach(struct sg_device *d, bool anew, const char *path)
{
	struct stat st;
	int err = 0;

	if (!d->info.timing.on)
		return CUDA_SUCCESS;
	if (fstat(d->dir_fd, &st) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	err = sg_timed_attach((unsigned int)(d - sg_devices), d->dir_fd, st.st_mode, anew);
	return err ? sg_error(CUDA_ERROR_NO_DEVICE, "%s/timeline: %s", path, strerror(-err))
		   : CUDA_SUCCESS;
}

/*
 * Every process that has it open holds a shared flock on its state. The
 * flocks are taken without waiting, because a read-only user could keep an exclusive one for ever.
 */
static CUresult attach_as_owner(struct sg_device *d, const struct sg_settings *w, const char *path)
	MM_REQUIRES(sg_device_mutex)
{
	bool alone = flock(d->state_fd, LOCK_EX | LOCK_NB) == 0, anew;
	struct stat st;

	flock(d->state_fd, LOCK_SH | LOCK_NB);
	if (fstat(d->state_fd, &st) < 0 ||
	    (st.st_size < (off_t)sizeof(struct sg_device_state) &&
	     ftruncate(d->state_fd, (off_t)sizeof(struct sg_device_state)) < 0))
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (state_map(d, PROT_READ | PROT_WRITE) < 0 || sg_pages_count(d) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	anew = d->state->magic != SG_STATE_MAGIC || (alone && d->state->used_bytes == 0);
	if (anew && w->has_dilation && !w->timing.on)
		return sg_error(
			CUDA_ERROR_INVALID_VALUE,
			"MM_SOFTGPU_DILATION: means something with MM_SOFTGPU_PROFILE only");
	if (anew)
		state_fill(d, w, path);
	else if (settings_check(d, w, path))
		return CUDA_ERROR_INVALID_VALUE;
	d->info = d->state->info;
	return timeline_attach(d, anew, path);
}

static CUresult attach_read_only(struct sg_device *d, const struct sg_settings *w, const char *path)
{
	struct stat st;

	flock(d->state_fd, LOCK_SH | LOCK_NB);
	if (fstat(d->state_fd, &st) < 0 || st.st_size < (off_t)sizeof(struct sg_device_state) ||
	    state_map(d, PROT_READ) < 0 || d->state->magic != SG_STATE_MAGIC)
		return sg_error(CUDA_ERROR_NO_DEVICE, "%s: its owner has not made the device yet",
				path);
	if (settings_check(d, w, path))
		return CUDA_ERROR_INVALID_VALUE;
	d->info = d->state->info;
	return timeline_attach(d, false, path);
}

static void device_close(struct sg_device *d)
{
	if (d->state)
		munmap(d->state, sizeof(struct sg_device_state));
	d->state = NULL;
	sg_timed_detach((unsigned int)(d - sg_devices));
	d->read_only = false;
	mm_close_fd(&d->state_fd);
	mm_close_fd(&d->pages_fd);
	mm_close_fd(&d->dir_fd);
}

/* @d: its directory is open. */
static CUresult device_attach(struct sg_device *d, const struct sg_settings *w, const char *path)
{
	CUresult res;
	int err = members_open(d);

	if (!err && d->read_only)
		return attach_read_only(d, w, path);
	if (err)
		return sg_error(CUDA_ERROR_NO_DEVICE, "%s: %s", path, strerror(-err));
	err = sg_device_lock(d);
	if (err)
		return sg_error(CUDA_ERROR_NO_DEVICE, "%s: %s", path, strerror(-err));
	res = attach_as_owner(d, w, path);
	sg_device_unlock(d);
	return res;
}

static CUresult device_open(struct sg_device *d, const struct sg_settings *w, unsigned int number)
{
	struct sg_settings own = *w;
	char path[PATH_MAX];
	CUresult res;

	*d = (struct sg_device){
		.mtx = MM_LOCK_INIT, .dir_fd = -1, .pages_fd = -1, .state_fd = -1
	};
	own.uuid.bytes[sizeof(own.uuid.bytes) - 1] ^= (char)number;
	res = directory_open(d, number, path);
	if (!res)
		res = device_attach(d, &own, path);
	d->info.number = number;
	if (res)
		device_close(d);
	return res;
}

CUresult sg_devices_open(void)
{
	struct sg_settings w = { 0 };
	CUresult res = sg_settings_read(&w);

	if (!res)
		sg_settings_select_visible(&w);
	if (!res && !w.n_devices)
		return CUDA_ERROR_NO_DEVICE;

	for (unsigned int i = 0; i < w.n_devices && !res; i++) {
		res = device_open(&sg_devices[i], &w, w.device[i]);
		n_open_devices = res ? 0 : i + 1;
		for (unsigned int k = 0; res && k < i; k++)
			device_close(&sg_devices[k]);
	}
	return res;
}

unsigned int sg_device_count(void)
{
	return n_open_devices;
}

const struct sg_device_info *sg_device_info(unsigned int device)
{
	return &sg_devices[device].info;
}

uint64_t sg_granularity_min(void)
{
	uint64_t bytes = sg_devices[0].info.granularity_bytes;

	for (unsigned int i = 1; i < n_open_devices; i++)
		bytes = MM_MIN(bytes, sg_devices[i].info.granularity_bytes);
	return bytes;
}

uint64_t sg_granularity_max(void)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < n_open_devices; i++)
		bytes = MM_MAX(bytes, sg_devices[i].info.granularity_bytes);
	return bytes;
}

CUresult sg_device_used(unsigned int device, uint64_t *ret_used_bytes)
{
	struct sg_device *d = &sg_devices[device];
	int err;

	if (d->read_only) {
		*ret_used_bytes = __atomic_load_n(&d->state->used_bytes, __ATOMIC_RELAXED);
		return CUDA_SUCCESS;
	}
	err = sg_device_lock(d);
	if (!err) {
		err = sg_pages_count(d);
		*ret_used_bytes = d->state->used_bytes;
		sg_device_unlock(d);
	}
	return err ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
