/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files and folders named: the committed corpus as a test. */
#undef NDEBUG
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static int replay_file(const char *path)
{
	mm_cleanup(mm_free_ptr) uint8_t *data = NULL;
	FILE *file = fopen(path, "re");
	struct stat st;
	size_t bytes;

	if (!file || fstat(fileno(file), &st) < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	/* The copy is exactly as large as the input, so that ASan finds a read past it. */
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	mm_assert(data != NULL);
	bytes = fread(data, 1, (size_t)st.st_size, file);
	fclose(file);
	(void)LLVMFuzzerTestOneInput(data, bytes);
	return 1;
}

static int replay_folder(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int files = 0;

	if (!folder)
		return replay_file(path);
	while ((entry = readdir(folder))) {
		char name[4096];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (replay_file(name) < 0) {
			closedir(folder);
			return -1;
		}
		files++;
	}
	closedir(folder);
	return files;
}

int main(int argc, char **argv)
{
	int files = 0;

	for (int i = 1; i < argc; i++) {
		int n = replay_folder(argv[i]);

		if (n < 0)
			return 1;
		files += n;
	}
	printf("%d inputs\n", files);
	return files > 0 ? 0 : 1;
}
