/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keyed commit|attach KEY SAFETENSORS LAYERS: commits weights under a key, or asks for those that
 * it names. Says when they are loaded, and gives them back when its standard input ends.
 */
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mm/client.h"
#include "mm/client_model.h"

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

static struct mm_client *client;

static void result_check(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: %s: %s", what, strerror(-r), mm_client_error(client));
}

/* The file's content in a memfd that nobody can change: only such weights have a key. */
static int sealed_copy(const char *path)
{
	int from = open(path, O_RDONLY | O_CLOEXEC);
	int to = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;

	if (from < 0 || to < 0 || fstat(from, &st) < 0)
		err(1, "%s", path);
	for (off_t at = 0; at < st.st_size;)
		if (sendfile(to, from, &at, (size_t)(st.st_size - at)) <= 0)
			err(1, "%s", path);
	close(from);
	if (fcntl(to, F_ADD_SEALS, SEALS) < 0)
		err(1, "seals");
	return to;
}

static struct mm_model *model_commit(const char *key, const char *path, uint32_t layers)
{
	struct mm_model_opts opts = {
		.size = sizeof(opts), .n_layers = layers, .key = key, .key_bytes = strlen(key)
	};
	struct mm_model *model = NULL;
	int fd = sealed_copy(path);

	result_check(mm_model_load_files(client, &fd, 1, &opts, &model), "commit");
	close(fd);
	return model;
}

static struct mm_model *model_attach(const char *key)
{
	struct mm_model *model = NULL;

	result_check(mm_model_load_key(client, key, strlen(key), NULL, &model), "attach");
	return model;
}

int main(int argc, char **argv)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .name = argv[1] };
	struct mm_model *model;
	char why[256] = "";

	if (argc != 5)
		errx(2, "usage: keyed commit|attach KEY SAFETENSORS LAYERS");
	if (mm_client_open(&opts, &client, why, sizeof(why)) < 0)
		errx(1, "%s", why);
	model = strcmp(argv[1], "commit") ? model_attach(argv[2])
					  : model_commit(argv[2], argv[3], (uint32_t)atoi(argv[4]));
	puts("loaded");
	fflush(stdout);
	while (getchar() != EOF)
		;
	result_check(mm_model_unload(model), "unload");
	mm_client_close(client);
	return 0;
}
