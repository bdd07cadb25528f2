/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_save - writes an account's limits to a drop-in of mmd's configuration
 *
 * The drop-in is a comment and JSON, which is YAML as well: mmd reads it as any other file, and
 * mmctl needs no more than jansson. It is replaced as a whole, by a rename, so that mmd never reads
 * a part of it, and a crash leaves the old one or the new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "tools/mmctl/ctl.h"

#define SAVE_FILE  "90-mmctl.conf"
#define SAVE_BYTES (1 << 20)
#define SAVE_HEAD                                                                          \
	"# Written by mmctl quota set --save, which replaces it. Keep what you write by\n" \
	"# hand in another file; a later one counts.\n"

static int save_fail(const char *path, int error)
{
	return mmctl_error(MM_EXIT_FAILED, "--save: %s: %s", path, strerror(error));
}

/* Reads the drop-in as it is; an empty object where there is none. */
static int dropin_read(const char *path, json_t **ret_root)
{
	mm_cleanup(mm_close_file) FILE *in = fopen(path, "re");
	mm_cleanup(mm_free_ptr) char *text = malloc(SAVE_BYTES);
	char *at = text;
	size_t n;

	if (!in && errno != ENOENT)
		return save_fail(path, errno);
	*ret_root = NULL;
	if (!in)
		*ret_root = json_object();
	if (!text || (!in && !*ret_root))
		return save_fail(path, ENOMEM);
	if (!in)
		return MM_EXIT_DONE;
	n = fread(text, 1, SAVE_BYTES - 1, in);
	text[n] = '\0';
	while (*at == '#') {
		at += strcspn(at, "\n");
		at += *at == '\n';
	}
	*ret_root = json_loads(at, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(*ret_root))
		return MM_EXIT_DONE;
	mm_json_done(ret_root);
	return mmctl_error(
		MM_EXIT_FAILED,
		"--save: %s: was not written by mmctl; put its contents into another file", path);
}

/* Adds the keys to the account's object, which is made if it is not there. */
static int account_update(json_t *root, const char *account, json_t *keys)
{
	json_t *accounts = json_object_get(root, "accounts"), *one;
	size_t i;

	if (!json_is_array(accounts)) {
		accounts = json_array();
		mm_json_put(root, "accounts", accounts);
	}
	json_array_foreach(accounts, i, one) {
		if (strcmp(mm_json_text(one, "name"), account) == 0)
			return json_object_update(one, keys);
	}
	one = json_pack("{s:s}", "name", account);
	if (json_object_update(one, keys) < 0)
		return -1;
	return json_array_append_new(accounts, one);
}

static bool text_write(int fd, const char *text)
{
	const size_t bytes = strlen(text);

	return write(fd, text, bytes) == (ssize_t)bytes;
}

/* Writes the file under another name, and renames it once its bytes are on the disk. */
static int dropin_write(const char *folder, const char *path, const json_t *root)
{
	mm_cleanup(mm_free_ptr) char *text = json_dumps(root, JSON_INDENT(2));
	mm_cleanup(mm_close_fd) int fd = -1;
	mm_cleanup(mm_close_fd) int at = -1;
	char fresh[PATH_MAX + 8];
	int error = 0;

	if (!text)
		return save_fail(path, ENOMEM);
	snprintf(fresh, sizeof(fresh), "%s.XXXXXX", path);
	fd = mkostemp(fresh, O_CLOEXEC);
	if (fd < 0)
		return save_fail(path, errno);
	errno = EIO;
	if (!text_write(fd, SAVE_HEAD) || !text_write(fd, text) || !text_write(fd, "\n") ||
	    fchmod(fd, 0644) < 0 || fsync(fd) < 0 || rename(fresh, path) < 0) {
		error = errno;
		unlink(fresh);
		return save_fail(path, error);
	}
	at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (at < 0 || fsync(at) < 0)
		return save_fail(folder, errno);
	return MM_EXIT_DONE;
}

int mmctl_config_save(const struct mmctl *ctl, const char *account, json_t *keys)
{
	mm_cleanup(mm_json_done) json_t *show = NULL;
	mm_cleanup(mm_json_done) json_t *root = NULL;
	const char *folder;
	char path[PATH_MAX];
	int r = mmctl_request(ctl, "config.show", NULL, &show);

	if (r != MM_EXIT_DONE)
		return r;
	folder = mm_json_text(show, "dropins");
	if (!*folder)
		return mmctl_error(MM_EXIT_FAILED, "--save: mmd reads no file; start it with "
						   "--config FILE. The quota holds until mmd ends");
	if (mkdir(folder, 0755) < 0 && errno != EEXIST)
		return save_fail(folder, errno);
	if (snprintf(path, sizeof(path), "%s/%s", folder, SAVE_FILE) >= (int)sizeof(path))
		return save_fail(folder, ENAMETOOLONG);
	r = dropin_read(path, &root);
	if (r != MM_EXIT_DONE)
		return r;
	if (account_update(root, account, keys) < 0)
		return save_fail(path, ENOMEM);
	r = dropin_write(folder, path, root);
	if (r == MM_EXIT_DONE && !ctl->json)
		printf("saved in %s\n", path);
	return r;
}
