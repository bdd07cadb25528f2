/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the configuration file of mmd and its drop-ins, accounts and knobs of the controller
 * included: what is accepted makes the command lines of roles, and those are accepted again. A line
 * "%%%" ends a file, and what is behind it is the next drop-in.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "mmd/config/config.h"
#include "tests/fuzz/input.h"

static void role_check(const struct mm_config *config)
{
	struct mm_config again = { 0 };
	char *argv[MM_CONFIG_ARGS_MAX], error[MM_OPT_ERROR_BYTES] = "";
	struct mm_opt_line line;
	int argc = 0;

	mm_assert(mm_config_args(config, MM_ROLE_CORE, argv) == 0);
	while (argv[argc])
		argc++;
	mm_assert(mm_opt_parse(&mm_config_program, argc, argv, &again, &line, error) == 0);
	mm_assert(again.role == MM_ROLE_CORE && again.device.n == config->device.n &&
		  again.accounts.n == config->accounts.n && again.policy == config->policy);
	mm_assert(strcmp(again.controller, config->controller) == 0);
	mm_config_args_free(argv);
}

#define FILES 3

static char place[] = "/tmp/mmd-fuzz-XXXXXX";
static char paths[FILES][64];

static void place_remove(void)
{
	for (size_t i = 0; i < FILES; i++)
		unlink(paths[i]);
	strcat(paths[0], ".d");
	rmdir(paths[0]);
	rmdir(place);
}

/* Makes the folder of the files once; its end is that of the process. */
static void place_make(void)
{
	if (*paths[0])
		return;
	mm_assert(mkdtemp(place));
	snprintf(paths[0], sizeof(paths[0]), "%s/f.d", place);
	mm_assert(mkdir(paths[0], 0700) == 0);
	snprintf(paths[0], sizeof(paths[0]), "%s/f", place);
	for (size_t i = 1; i < FILES; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/f.d/%zu.conf", place, i);
	atexit(place_remove);
}

/* Writes a file, or removes it if the input has no such part. */
static void file_write(size_t file, const uint8_t *data, size_t bytes)
{
	int fd;

	if (!data) {
		unlink(paths[file]);
		return;
	}
	fd = open(paths[file], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	mm_assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
	close(fd);
}

static void files_write(const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < FILES; i++) {
		const uint8_t *end = data ? memmem(data, bytes, "%%%\n", 4) : NULL;
		const size_t n = end && i + 1 < FILES ? (size_t)(end - data) : bytes;

		file_write(i, data, n);
		data = data && n < bytes ? data + n + 4 : NULL;
		bytes = data ? bytes - n - 4 : 0;
	}
}

static void origins_check(const struct mm_config *config)
{
	const struct mm_config_sources *s = &config->sources;

	mm_assert(s->n > 0 && s->n <= FILES);
	for (size_t i = 0; i < MM_CONFIG_ARGS_MAX; i++)
		mm_assert(s->option[i].file < s->n);
	for (size_t i = 0; i < config->accounts.n; i++)
		mm_assert(s->account[i].kind == MM_ORIGIN_FILE && s->account[i].line > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	char error[MM_OPT_ERROR_BYTES] = "";
	char program[] = "mmd", option[] = "--config", dir[] = "--dir=/tmp/x";
	char *argv[] = { program, option, paths[0], dir, NULL };
	static struct mm_config config;

	place_make();
	files_write(data, size_bytes);
	memset(&config, 0, sizeof(config));
	if (mm_config_read(4, argv, &config, error) != 0) {
		mm_assert(*error && memchr(error, 0, sizeof(error)) && !strchr(error, '\n'));
		return 0;
	}
	mm_assert(config.device.n <= MM_DEVICES_MAX);
	origins_check(&config);
	role_check(&config);
	return 0;
}
