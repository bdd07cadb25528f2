/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/reload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "mmd/config/reload.h"
#include "mmd/keeper/instance.h"
#include "mmd/keeper/state.h"

#define WORDS_MAX       1024 /* more than options of a command line make */
#define WORDS_BYTES_MAX (1 << 20)

/* Names of what keeper holds: what core shows, and the words that mmd was started with. */
static const struct mm_held_name show_name = { .kind = MM_HELD_CONFIG, .index = 0 };
static const struct mm_held_name words_name = { .kind = MM_HELD_CONFIG, .index = 1 };

void mm_reload_init(struct mm_keeper *k, const struct mm_config *config)
{
	k->reload = (struct mm_reload){ .due_ns = UINT64_MAX };
	k->reload.in_force = *config;
	k->config = &k->reload.in_force;
}

void mm_reload_done(struct mm_keeper *k)
{
	mm_json_done(&k->reload.document);
}

/* Return: a memfd with the text of @json; negative errno. */
static int json_memfd(const json_t *json)
{
	mm_cleanup(mm_free_ptr) char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	mm_cleanup(mm_close_fd) int fd = -1;
	const size_t bytes = text ? strlen(text) : 0;
	int got;

	if (!text)
		return -ENOMEM;
	fd = memfd_create("mm-config", MFD_CLOEXEC);
	if (fd < 0 || write(fd, text, bytes) != (ssize_t)bytes)
		return -EIO;
	got = fd;
	fd = -1;
	return got;
}

static int json_hold(struct mm_keeper *k, struct mm_held_name name, const json_t *json)
{
	int fd = json_memfd(json);

	return fd < 0 ? fd : mm_hold_put(&k->hold, name, fd);
}

/* Holds the words, each with its 0. */
static int words_hold(struct mm_keeper *k, int argc, char **argv)
{
	mm_cleanup(mm_close_fd) int fd = memfd_create("mm-words", MFD_CLOEXEC);
	int held;

	if (fd < 0)
		return -errno;
	for (int i = 0; i < argc; i++) {
		const size_t bytes = strlen(argv[i]) + 1;

		if (write(fd, argv[i], bytes) != (ssize_t)bytes)
			return -EIO;
	}
	held = fd;
	fd = -1;
	return mm_hold_put(&k->hold, words_name, held);
}

int mm_reload_hold(struct mm_keeper *k, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *show = mm_config_show(k->config, k->config);
	int r = json_hold(k, show_name, show);

	return r < 0 ? r : words_hold(k, argc, argv);
}

/* ---- reading ---- */

/* The settings as the command line of a core; NULL: a value is no UTF-8, or no memory is left. */
static json_t *args_list(const struct mm_config *config)
{
	char *argv[MM_CONFIG_ARGS_MAX];
	bool fits = true;
	json_t *args;

	if (mm_config_args(config, MM_ROLE_CORE, argv) < 0)
		return NULL;
	args = json_array();
	for (size_t i = 0; i < MM_CONFIG_ARGS_MAX && argv[i]; i++)
		fits &= json_array_append_new(args, json_string(argv[i])) == 0;
	mm_config_args_free(argv);
	if (!fits)
		json_decref(args);
	return fits ? args : NULL;
}

/* Reads the command line that mmd was started with, and the files. @error: the sentence. */
static int settings_read(struct mm_keeper *k, struct mm_config *read, char *error)
{
	mm_cleanup(mm_free_ptr) char *bytes = calloc(1, WORDS_BYTES_MAX + 1);
	mm_cleanup(mm_free_ptr) char **argv = calloc(WORDS_MAX + 1, sizeof(*argv));
	int argc = 0, fd = mm_fdtab_find(&k->hold.fds, words_name);
	ssize_t n = fd < 0 || !bytes || !argv ? -1 : pread(fd, bytes, WORDS_BYTES_MAX, 0);

	snprintf(error, MM_CONFIG_ERROR_BYTES, "mmd's command line is not known any more");
	for (ssize_t at = 0; at < n && argc < WORDS_MAX; at += (ssize_t)strlen(bytes + at) + 1)
		argv[argc++] = bytes + at;
	return argc ? mm_config_read(argc, argv, read, error) : -ENOENT;
}

/* Makes the settings that follow. Return: 0; negative, with the sentence. */
static int settings_make(struct mm_keeper *k, json_t *document, char *error)
{
	struct mm_reload *reload = &k->reload;
	mm_cleanup(mm_free_ptr) struct mm_config *read = calloc(1, sizeof(*read));
	json_t *changes = NULL, *args;
	int r;

	snprintf(error, MM_CONFIG_ERROR_BYTES, "no memory is left");
	r = read ? settings_read(k, read, error) : -ENOMEM;
	if (r == 0)
		r = mm_config_merge(k->config, read, &reload->next, &changes, error);
	if (r < 0)
		return r;
	args = args_list(&reload->next);
	if (!args) {
		json_decref(changes);
		snprintf(error, MM_CONFIG_ERROR_BYTES, "a value is no UTF-8");
		return -EINVAL;
	}
	mm_json_put(document, "args", args);
	mm_json_put(document, "show", mm_config_show(&reload->next, read));
	mm_json_put(document, "changes", changes);
	return 0;
}

static void reload_begin(struct mm_keeper *k)
{
	struct mm_reload *reload = &k->reload;
	char error[MM_CONFIG_ERROR_BYTES];

	mm_notify_reloading(&k->notify);
	reload->wanted = false;
	reload->under_way = true;
	reload->generation = 0;
	reload->due_ns = UINT64_MAX;
	reload->serial++;
	mm_json_done(&reload->document);
	reload->document = json_object();
	reload->failed = settings_make(k, reload->document, error) < 0;
	if (reload->failed)
		mm_json_put(reload->document, "error", json_string(error));
}

/* ---- core ---- */

static void reload_end(struct mm_keeper *k, const char *status)
{
	struct mm_reload *reload = &k->reload;

	reload->under_way = false;
	reload->due_ns = UINT64_MAX;
	mm_json_done(&reload->document);
	mm_notify_ready(&k->notify, status);
}

static void reload_adopt(struct mm_keeper *k)
{
	struct mm_reload *reload = &k->reload;

	reload->in_force = reload->next;
	mm_log_set_level((enum mm_log_level)k->config->log_level);
	if (json_hold(k, show_name, json_object_get(reload->document, "show")) < 0)
		mm_log(MM_LOG_WARN, "config.not_held", "serial=%" PRIu64, reload->serial);
}

void mm_reload_want(struct mm_keeper *k)
{
	if (!k->stopping)
		k->reload.wanted = true;
}

void mm_reload_on_message(struct mm_keeper *k, const struct mm_kmsg *msg)
{
	struct mm_reload *reload = &k->reload;

	if (!msg->id) {
		mm_reload_want(k);
		return;
	}
	if (!reload->under_way || msg->id != reload->serial)
		return;
	if (msg->result == 0 && !reload->failed)
		reload_adopt(k);
	reload_end(k, msg->result == 0 ? "serving"
				       : "serving; the configuration was refused, see the log");
}

static void document_send(struct mm_keeper *k)
{
	struct mm_reload *reload = &k->reload;
	struct mm_kmsg msg = { .op = MM_K_RELOAD, .id = reload->serial };
	int fd = json_memfd(reload->document);

	reload->generation = k->process.generation;
	reload->due_ns = mm_now_ns() + MM_RELOAD_ANSWER_NS;
	if (fd >= 0)
		mm_instance_send(&k->core, &msg, &fd, 1);
}

void mm_reload_service(struct mm_keeper *k)
{
	struct mm_reload *reload = &k->reload;

	if (reload->wanted && !reload->under_way && k->ready && !k->stopping)
		reload_begin(k);
	if (!reload->under_way)
		return;
	if (mm_now_ns() >= reload->due_ns) {
		mm_log(MM_LOG_ERROR, "config.refused", "reason=\"core does not answer\"");
		reload_end(k, "serving; core did not take the configuration");
	} else if (k->process.serves && reload->generation != k->process.generation) {
		document_send(k);
	}
}

uint64_t mm_reload_due_ns(const struct mm_keeper *k)
{
	return k->reload.due_ns;
}
