/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/common/dirs.h"

#include <errno.h>
#include <ftw.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int mm_bin_dir(char *ret_dir)
{
	char self[PATH_MAX] = "";

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -errno;
	snprintf(ret_dir, PATH_MAX, "%s", dirname(self));
	return 0;
}

/* Without @keep the folder is in /tmp, not in TMPDIR: its sockets need short paths. */
int mm_work_dir_make(const char *keep, char *ret_dir)
{
	if (!keep) {
		strcpy(ret_dir, "/tmp/mmbench.XXXXXX");
		if (mkdtemp(ret_dir))
			return 0;
	} else if (strlen(keep) > 64) {
		fprintf(stderr,
			"mmbench: --keep %s: longer than 64 characters; a socket in it could "
			"not be named\n",
			keep);
		*ret_dir = '\0';
		return -ENAMETOOLONG;
	} else {
		strcpy(ret_dir, keep);
		if (!mkdir(ret_dir, 0700) || errno == EEXIST)
			return 0;
	}
	fprintf(stderr, "mmbench: cannot create %s: %m\n", ret_dir);
	*ret_dir = '\0';
	return -errno;
}

static int work_dir_remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void mm_work_dir_remove(const char *dir)
{
	nftw(dir, work_dir_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
