/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/softgpu/device_state.h"
#include "kernels/softgpu/page.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define NAME_BYTES 24 /* an inode number in hexadecimal */

static void page_name(uint64_t inode, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%llx", (unsigned long long)inode);
}

/* Return: whether some process holds this page; one that is not held is removed. */
static bool page_is_held(const struct sg_device *d, const char *name, uint64_t *ret_bytes)
	MM_REQUIRES(sg_device_mutex)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct stat st;

	fd = openat(d->pages_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		/* This is another user's page, or no descriptor is left: count it as held. */
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
	/*
	 * In a sticky directory only the owner can unlink: the page stays charged until a process
	 * of the owner counts.
	 */
	return unlinkat(d->pages_fd, name, 0) < 0;
}

int sg_pages_count(struct sg_device *d)
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
		if (entry->d_name[0] != '.' && page_is_held(d, entry->d_name, &bytes))
			used += bytes;
	closedir(dir);
	d->state->used_bytes = used;
	return 0;
}

/* Most shells set the soft limit on descriptors to 1024, far fewer than a device has pages. */
static bool fd_limit_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return false;
	limit.rlim_cur = limit.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int capacity_reserve(struct sg_device *d, size_t bytes)
{
	struct sg_device_state *s = d->state;
	int err = sg_device_lock(d);

	if (err)
		return err;
	/* Subtract and never add: with a corrupted counter a sum could wrap around and pass. */
	if (s->used_bytes > d->info.capacity_bytes ||
	    bytes > d->info.capacity_bytes - s->used_bytes)
		err = sg_pages_count(d);
	if (!err && (s->used_bytes > d->info.capacity_bytes ||
		     bytes > d->info.capacity_bytes - s->used_bytes))
		err = -ENOMEM;
	if (!err)
		s->used_bytes += bytes;
	sg_device_unlock(d);
	return err;
}

/*
 * A page belongs to its maker, whatever the directory allows: others get a descriptor of it, or
 * nothing. So another user's page cannot be opened to check whether it is held, and counts as held
 * until a process of that user, or of root, counts.
 */
static int page_open_nameless(const struct sg_device *d)
{
	int fd = openat(d->pages_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && errno == EMFILE && fd_limit_raise())
		fd = openat(d->pages_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd;
}

/* The page is locked before it gets a name, so that no process ever finds it unheld. */
static int page_make(const struct sg_device *d, size_t bytes, struct sg_page *page)
{
	char name[NAME_BYTES], self[64];
	struct stat st;

	page->fd = page_open_nameless(d);
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
	struct sg_device *d = &sg_devices[device];
	struct sg_page page = SG_PAGE_NULL;
	int err = capacity_reserve(d, bytes);

	if (err == -EACCES)
		return CUDA_ERROR_NOT_PERMITTED;
	if (err)
		return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
	page.device = device;
	err = page_make(d, bytes, &page);
	if (err) {
		mm_close_fd(&page.fd);
		return err == -ENOSPC || err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
							: CUDA_ERROR_OPERATING_SYSTEM;
	}
	*ret_page = page;
	return CUDA_SUCCESS;
}

/*
 * A file of the device's file system whose inode number is its name in "pages" is a page: nothing
 * else is put there.
 */
static bool page_is_ours(const struct sg_device *d, int fd, struct stat *ret_st)
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

static int fd_duplicate(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0 && errno == EMFILE && fd_limit_raise())
		copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return copy;
}

CUresult sg_page_adopt(int fd, struct sg_page *ret_page)
{
	struct sg_page page = SG_PAGE_NULL;
	struct stat st;

	while (fd >= 0 && page.device < sg_device_count() &&
	       !page_is_ours(&sg_devices[page.device], fd, &st))
		page.device++;
	if (fd < 0 || page.device == sg_device_count())
		return CUDA_ERROR_INVALID_VALUE;
	page.fd = fd_duplicate(fd);
	if (page.fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	/* A description that another process opened by itself (/proc/PID/fd) has no lock yet. */
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
	return fd_duplicate(page->fd);
}

void sg_page_close(struct sg_page *page)
{
	struct sg_device *d = &sg_devices[page->device];
	char name[NAME_BYTES];
	uint64_t bytes;

	if (page->fd < 0)
		return;
	mm_close_fd(&page->fd);
	if (sg_device_lock(d) == 0) {
		page_name(page->inode, name);
		if (faccessat(d->pages_fd, name, F_OK, 0) == 0 && !page_is_held(d, name, &bytes))
			d->state->used_bytes -= MM_MIN(page->bytes, d->state->used_bytes);
		sg_device_unlock(d);
	}
	*page = SG_PAGE_NULL;
}
