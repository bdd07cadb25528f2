/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softgpu/mig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/softgpu/device_state.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

static int mig_open(int flags)
{
	char parent[PATH_MAX], device[PATH_MAX], path[PATH_MAX + 8];
	int fd;

	if (sg_device_path(0, parent, device) < 0)
		return -ENAMETOOLONG;
	if ((flags & O_CREAT) && mkdir(device, 0700) < 0 && errno != EEXIST)
		return -errno;
	snprintf(path, sizeof(path), "%s/mig", device);
	fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
	return fd < 0 ? -errno : fd;
}

static bool place_is_known(char c)
{
	return c == SG_MIG_NONE || c == SG_MIG_EMPTY || c == SG_MIG_DEVICE;
}

/* @fd: of the file; negative: there is none. A place that says nothing known is empty. */
static void mig_load(int fd, unsigned int first, struct sg_mig *ret)
{
	const ssize_t n = fd < 0 ? 0 : pread(fd, ret->place, sizeof(ret->place), 0);

	for (unsigned int i = 0; i < SG_MIG_MAX; i++) {
		if (n != (ssize_t)sizeof(ret->place))
			ret->place[i] = i < first ? SG_MIG_DEVICE : SG_MIG_NONE;
		else if (!first || !place_is_known(ret->place[i]))
			ret->place[i] = SG_MIG_NONE;
	}
}

void sg_mig_read(unsigned int first, struct sg_mig *ret)
{
	mm_cleanup(mm_close_fd) int fd = first ? mig_open(O_RDONLY) : -1;

	mig_load(fd, first, ret);
}

/* ---- removing a device ---- */

/*
 * A page's file is under a lock as long as anybody holds the page. Return: 0 nobody does; -EBUSY;
 * another negative errno.
 */
static int page_look(int pages, const char *name)
{
	mm_cleanup(mm_close_fd) int fd = openat(pages, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return flock(fd, LOCK_EX | LOCK_NB) < 0 ? -EBUSY : 0;
}

/* Return: 0, and with @remove there is no page left; -EBUSY: somebody has memory there. */
static int pages_look(int dir, bool remove)
{
	mm_cleanup(mm_close_fd) int pages =
		openat(dir, "pages", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	const int copy = pages < 0 ? -1 : fcntl(pages, F_DUPFD_CLOEXEC, 0);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *one;
	int r = 0;

	if (!list) {
		if (copy >= 0)
			close(copy);
		return errno == ENOENT ? 0 : -errno;
	}
	while (!r && (one = readdir(list))) {
		if (one->d_name[0] == '.')
			continue;
		r = page_look(pages, one->d_name);
		if (!r && remove && unlinkat(pages, one->d_name, 0) < 0 && errno != ENOENT)
			r = -errno;
	}
	closedir(list);
	return r;
}

/*
 * Removes what the device of an instance has. Each process that uses it has a shared flock on its
 * state.
 */
static int device_remove(unsigned int place)
{
	static const char *const files[] = { "events", "timeline", "state" };
	mm_cleanup(mm_close_fd) int dir = -1, state = -1;
	char parent[PATH_MAX], path[PATH_MAX];
	int r = sg_device_path(SG_MIG_FIRST + place, parent, path);

	if (r < 0)
		return r;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return errno == ENOENT ? 0 : -errno; /* nobody has ever used it */
	state = openat(dir, "state", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (state < 0 && errno != ENOENT)
		return -errno;
	if (state >= 0 && flock(state, LOCK_EX | LOCK_NB) < 0)
		return -EBUSY;
	r = pages_look(dir, false);
	if (!r)
		r = pages_look(dir, true);
	if (r)
		return r;
	for (size_t i = 0; i < MM_ARRAY_SIZE(files); i++)
		if (unlinkat(dir, files[i], 0) < 0 && errno != ENOENT)
			return -errno;
	(void)unlinkat(dir, "pages", AT_REMOVEDIR);
	(void)rmdir(path);
	return 0;
}

int sg_mig_change(unsigned int first, unsigned int place, enum sg_mig_place from,
		  enum sg_mig_place to)
{
	mm_cleanup(mm_close_fd) int fd = mig_open(O_RDWR | O_CREAT);
	struct sg_mig mig;
	int r = 0;

	if (fd < 0)
		return fd;
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return -errno;
	mig_load(fd, first, &mig);
	if (mig.place[place] != (char)from)
		return -EEXIST;
	if (from == SG_MIG_DEVICE)
		r = device_remove(place);
	mig.place[place] = (char)to;
	if (!r && pwrite(fd, mig.place, sizeof(mig.place), 0) != (ssize_t)sizeof(mig.place))
		r = -EIO;
	return r;
}
