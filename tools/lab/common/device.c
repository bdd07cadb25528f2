/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/common/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"

bool mm_device_is_software(const char *driver)
{
	const char *name = strrchr(driver, '/');

	return !strcmp(driver, "software") ||
	       (name && !strncmp(name + 1, "libmm-softgpu", strlen("libmm-softgpu")));
}

static int softgpu_read_stats(struct mm_softgpu_stats *ret_stats)
{
	mm_softgpu_stats_fn *stats;
	struct mm_gpu_api gpu;

	if (mm_gpu_open("software", &gpu, NULL, 0))
		return -ENODEV;
	*(void **)&stats = dlsym(gpu.library, MM_SOFTGPU_STATS_SYMBOL);
	if (!stats || gpu.cuInit(0))
		return -ENODEV;
	return stats(0, ret_stats, sizeof(*ret_stats));
}

int mm_device_stats(struct mm_softgpu_stats *ret_stats)
{
	struct mm_softgpu_stats stats = { 0 };
	int ends[2], status = 0;
	ssize_t got;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (!pid) {
		if (softgpu_read_stats(&stats) < 0 ||
		    write(ends[1], &stats, sizeof(stats)) != sizeof(stats))
			_exit(1);
		_exit(0);
	}
	close(ends[1]);
	got = pid < 0 ? -1 : read(ends[0], &stats, sizeof(stats));
	close(ends[0]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	if (got != sizeof(stats) || status)
		return -ENODEV;
	*ret_stats = stats;
	return 0;
}
