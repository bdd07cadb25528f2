/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the files of a model's directory and passes them to load, the worker that reads them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/model/shard_names.h"
#include "libclient/client/internal.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/fault.h"

#define CONFIG_NAME  "config.json"
#define INDEX_NAME   "model.safetensors.index.json"
#define SUFFIX       ".safetensors"
#define SLICE_NS     (100 * MM_NS_PER_MS) /* between checks of mmd's state while load works */
#define CONFIG_SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
#define PASS_TIMEOUT 20 /* in timeouts of the client: load may wait for another tenant's load */

struct file {
	int fd;
	enum mm_load_kind kind;
	char name[MM_FILE_NAME_BYTES];
};

struct mm_model_files {
	/* The configuration, the index if there is one, then the weights sorted by name. */
	size_t n;
	struct file file[MM_LOAD_FILES_MAX];
	struct mm_load_pack *packs;
	size_t n_packs;
	uint32_t n_layers;      /* of files that the engine made; 0: the configuration says it */
	struct mm_load_key key; /* its kind is 0 if the model has none */
};

/* ---- opening ---- */

static int model_dir_open(struct mm_client *c, const char *path, DIR **ret_dir)
{
	mm_cleanup(mm_close_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return mm_fail(c, -errno, "%s: %s", path, strerror(errno));
	*ret_dir = fdopendir(fd);
	if (!*ret_dir)
		return mm_fail(c, -ENOMEM, "%s: out of memory", path);
	fd = -1;
	return 0;
}

static int file_open_regular(int dir_fd, const char *name, int *ret_fd)
{
	/* O_NONBLOCK: open() does not wait on a fifo. It is cleared again, for io_uring in load. */
	mm_cleanup(mm_close_fd) int fd =
		openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if (fcntl(fd, F_SETFL, 0) < 0)
		return -errno;
	*ret_fd = fd;
	fd = -1;
	return 0;
}

static int model_file_open(struct mm_client *c, const char *path, DIR *dir, enum mm_load_kind kind,
			   const char *name, struct mm_model_files *files)
{
	struct file *file = &files->file[files->n];
	int r;

	if (files->n == MM_LOAD_FILES_MAX)
		return mm_fail(c, -E2BIG, "%s: more than %d files", path, MM_LOAD_FILES_MAX);
	if (strlen(name) >= sizeof(file->name))
		return mm_fail(c, -ENAMETOOLONG, "%s/%s: the name is too long", path, name);
	r = file_open_regular(dirfd(dir), name, &file->fd);
	if (r)
		return mm_fail(c, r, "%s/%s: %s", path, name,
			       r == -EBADMSG ? "not a regular file" : strerror(-r));
	snprintf(file->name, sizeof(file->name), "%s", name);
	file->kind = kind;
	files->n++;
	return 0;
}

static bool name_is_weights(const char *name)
{
	size_t len = strlen(name);

	return len > strlen(SUFFIX) && !strcmp(name + len - strlen(SUFFIX), SUFFIX);
}

static int file_compare_name(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static int weights_open_found(struct mm_client *c, const char *path, DIR *dir,
			      struct mm_model_files *files)
{
	struct dirent *entry;
	int r = 0;

	while (!r && (entry = readdir(dir)))
		if (name_is_weights(entry->d_name))
			r = model_file_open(c, path, dir, MM_LOAD_SAFETENSORS, entry->d_name,
					    files);
	if (r)
		return r;
	if (files->n < 2)
		return mm_fail(c, -ENOENT, "%s: no *" SUFFIX " in there", path);
	/* The order of readdir() is arbitrary; the identity of a model must not depend on it. */
	qsort(&files->file[1], files->n - 1, sizeof(files->file[0]), file_compare_name);
	return 0;
}

static int shards_open(struct mm_client *c, const char *path, DIR *dir,
		       struct mm_model_files *files)
{
	mm_cleanup(mm_free_ptr) struct mm_shard_names *names = calloc(1, sizeof(*names));
	char err[200] = "";
	int r;

	if (!names)
		return mm_fail(c, -ENOMEM, "out of memory");
	r = mm_shard_names_read(files->file[files->n - 1].fd, names, err, sizeof(err));
	if (r)
		mm_sanitize(err, sizeof(err));
	if (r)
		return mm_fail(c, r, "%s/" INDEX_NAME ": %s", path, err);
	for (size_t i = 0; !r && i < names->n; i++) {
		r = model_file_open(c, path, dir, MM_LOAD_SAFETENSORS, names->name[i], files);
		if (r == -ENOENT)
			mm_fail(c, r, "%s/%s: a shard that " INDEX_NAME " names is missing", path,
				names->name[i]);
	}
	return r;
}

/* The weights are the files that the index names, or all *.safetensors where there is no index. */
static int model_files_open_all(struct mm_client *c, const char *path, struct mm_model_files *files)
{
	mm_cleanup(mm_close_dir) DIR *dir = NULL;
	int r = model_dir_open(c, path, &dir);

	if (!r)
		r = model_file_open(c, path, dir, MM_LOAD_CONFIG, CONFIG_NAME, files);
	if (r)
		return r;
	r = model_file_open(c, path, dir, MM_LOAD_INDEX, INDEX_NAME, files);
	if (r == -ENOENT)
		return weights_open_found(c, path, dir, files);
	return r ? r : shards_open(c, path, dir, files);
}

static int key_put(struct mm_client *c, const void *key, size_t key_bytes,
		   struct mm_load_key *ret_key)
{
	if (!(c->welcome.features & MM_FEAT_KEY))
		return mm_fail(c, -EOPNOTSUPP, "this mmd finds no models by keys");
	if (!key || !key_bytes)
		return mm_fail(c, -EINVAL, "key: it has no byte");
	if (key_bytes > MM_MODEL_KEY_BYTES)
		return mm_fail(c, -E2BIG, "key: %zu bytes, at most %d can be", key_bytes,
			       MM_MODEL_KEY_BYTES);
	*ret_key = (struct mm_load_key){ .magic = MM_ABI_MAGIC,
					 .kind = MM_LOAD_KEY,
					 .key_bytes = (uint32_t)key_bytes };
	memcpy(ret_key->key, key, key_bytes);
	return 0;
}

/* Begins a list of files, with the packing list and the key in it. */
static int model_files_begin(struct mm_client *c, const struct mm_model_opts *opts,
			     struct mm_model_files **ret)
{
	mm_cleanup(mm_model_files_close) struct mm_model_files *files = NULL;
	struct mm_model_opts copy;
	int r;

	if (!mm_fault("files.open"))
		files = calloc(1, sizeof(*files));
	if (!files)
		return mm_fail(c, -ENOMEM, "out of memory");
	r = mm_packs_copy(c, opts, &files->packs, &files->n_packs, &copy);
	if (!r && (copy.key || copy.key_bytes))
		r = key_put(c, copy.key, copy.key_bytes, &files->key);
	if (r)
		return r;
	files->n_layers = copy.n_layers;
	*ret = files;
	files = NULL;
	return 0;
}

int mm_model_files_open(struct mm_client *client, const char *path,
			const struct mm_model_opts *opts, struct mm_model_files **ret)
{
	mm_cleanup(mm_model_files_close) struct mm_model_files *files = NULL;
	int r = model_files_begin(client, opts, &files);

	if (!r && files->n_layers)
		r = mm_fail(client, -EINVAL, "opts: n_layers is what " CONFIG_NAME " says");
	if (!r && files->key.kind)
		r = mm_fail(client, -EINVAL, "opts: only weights that the engine made have a key");
	if (!r)
		r = model_files_open_all(client, path, files);
	if (r)
		return r;
	*ret = files;
	files = NULL;
	return 0;
}

int mm_model_files_by_key(struct mm_client *client, const void *key, size_t key_bytes,
			  const uint8_t *digest, struct mm_model_files **ret)
{
	mm_cleanup(mm_model_files_close) struct mm_model_files *files = NULL;
	int r = model_files_begin(client, NULL, &files);

	if (!r)
		r = key_put(client, key, key_bytes, &files->key);
	if (r)
		return r;
	files->key.flags = MM_LOAD_KEY_ATTACH | (digest ? MM_LOAD_KEY_DIGEST : 0);
	if (digest)
		memcpy(files->key.digest, digest, sizeof(files->key.digest));
	*ret = files;
	files = NULL;
	return 0;
}

/* ---- files that the engine made ---- */

/* Makes the configuration that a folder would have, sealed like the memfds that it describes. */
static int config_make(struct mm_client *c, struct mm_model_files *files)
{
	mm_cleanup(mm_close_fd) int fd = memfd_create("mm-config", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char text[64];
	int n = snprintf(text, sizeof(text), "{\"num_hidden_layers\":%u}", files->n_layers);

	if (fd < 0 || write(fd, text, (size_t)n) != n || fcntl(fd, F_ADD_SEALS, CONFIG_SEALS) < 0)
		return mm_fail(c, -ENOMEM, "no memory for the model's configuration");
	files->file[files->n] = (struct file){ .fd = fd, .kind = MM_LOAD_CONFIG };
	snprintf(files->file[files->n++].name, sizeof(files->file[0].name), CONFIG_NAME);
	fd = -1;
	return 0;
}

static int file_adopt(struct mm_client *c, size_t number, int theirs, struct mm_model_files *files)
{
	struct file *file = &files->file[files->n];
	struct stat st;

	file->fd = fcntl(theirs, F_DUPFD_CLOEXEC, 0);
	if (file->fd < 0)
		return mm_fail(c, -errno, "file %zu: descriptor %d: %s", number, theirs,
			       strerror(errno));
	file->kind = MM_LOAD_SAFETENSORS;
	snprintf(file->name, sizeof(file->name), "file-%03zu" SUFFIX, number);
	files->n++;
	if (fstat(file->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return mm_fail(c, -EPERM, "file %zu: descriptor %d: not a regular file or a memfd",
			       number, theirs);
	return 0;
}

int mm_model_files_adopt(struct mm_client *client, const int *fds, size_t n,
			 const struct mm_model_opts *opts, struct mm_model_files **ret)
{
	mm_cleanup(mm_model_files_close) struct mm_model_files *files = NULL;
	int r = model_files_begin(client, opts, &files);

	if (r)
		return r;
	if (!n || !files->n_layers)
		return mm_fail(client, -EINVAL, "%s",
			       n ? "opts: n_layers must say how many layers the files have"
				 : "no file was passed");
	if (n > MM_LOAD_FILES_MAX - 1)
		return mm_fail(client, -E2BIG, "%zu files, at most %d can be", n,
			       MM_LOAD_FILES_MAX - 1);
	r = config_make(client, files);
	for (size_t i = 0; !r && i < n; i++)
		r = file_adopt(client, i, fds[i], files);
	if (r)
		return r;
	*ret = files;
	files = NULL;
	return 0;
}

void mm_model_files_close(struct mm_model_files **files)
{
	if (!*files)
		return;
	while ((*files)->n)
		mm_close_fd(&(*files)->file[--(*files)->n].fd);
	free((*files)->packs);
	free(*files);
	*files = NULL;
}

/* ---- messages to load ---- */

/* Return: 0; the errno of a dead connection; -ECANCELED mmd has refused the model. */
static int load_check_wanted(struct mm_client *c)
{
	int r;

	mm_client_lock_take(&c->lock);
	r = c->dead ? c->dead : c->model_phase == MM_CLIENT_MODEL_REFUSED ? -ECANCELED : 0;
	mm_client_lock_give(&c->lock);
	return r;
}

/*
 * Waits for @events on the channel. What load has sent comes before the state of mmd is checked:
 * load gives the exact reason why a model is refused.
 */
static int load_wait(struct mm_client *c, int fd, short events)
{
	uint64_t timeout_ns = c->timeout_ns > UINT64_MAX / PASS_TIMEOUT
				      ? UINT64_MAX
				      : PASS_TIMEOUT * c->timeout_ns;
	uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	int r;

	for (;;) {
		r = mm_sock_wait(fd, events, MM_MIN(deadline_ns, mm_deadline_ns(SLICE_NS)));
		if (r != -ETIMEDOUT)
			return r;
		r = load_check_wanted(c);
		if (r)
			return r;
		if (mm_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
	}
}

static int load_send_message(struct mm_client *c, int fd, const void *msg, size_t bytes,
			     const int *file_fd)
{
	int r;

	do {
		r = load_wait(c, fd, POLLOUT);
		if (!r)
			r = mm_sock_send(fd, msg, bytes, file_fd, !!file_fd);
	} while (r == -EAGAIN);
	return r;
}

static int load_send_file(struct mm_client *c, int fd, const struct file *file)
{
	struct mm_load_file msg = { .magic = MM_ABI_MAGIC, .kind = file->kind };

	memcpy(msg.name, file->name, sizeof(msg.name));
	return load_send_message(c, fd, &msg, sizeof(msg), &file->fd);
}

static int load_send_files(struct mm_client *c, int fd, const struct mm_model_files *files)
{
	const struct mm_load_file end = { .magic = MM_ABI_MAGIC, .kind = MM_LOAD_END };
	int r = 0;

	if (files->key.kind)
		r = load_send_message(c, fd, &files->key, sizeof(files->key), NULL);
	for (size_t i = 0; i < files->n && !r; i++)
		r = load_send_file(c, fd, &files->file[i]);
	for (size_t i = 0; i < files->n_packs && !r; i++)
		r = load_send_message(c, fd, &files->packs[i], sizeof(files->packs[i]), NULL);
	return r ? r : load_send_message(c, fd, &end, sizeof(end), NULL);
}

static int load_recv_status(struct mm_client *c, int fd, struct mm_load_status *ret_status)
{
	size_t len = 0;
	int r;

	do {
		r = load_wait(c, fd, POLLIN);
		if (!r)
			r = mm_sock_recv_nofds(fd, ret_status, sizeof(*ret_status), &len);
	} while (r == -EAGAIN);
	if (r)
		return r;
	if (len != sizeof(*ret_status) || ret_status->magic != MM_ABI_MAGIC ||
	    ret_status->result < -4095 || ret_status->result > 0)
		return -EPROTO;
	return 0;
}

static int pass_fail(struct mm_client *c, int error)
{
	if (error == -ECONNRESET) {
		error = load_check_wanted(c);
		if (!error)
			return -EPIPE;
	}
	if (error == -ECANCELED)
		return error;
	if (error == -EPROTO)
		return mm_fail(c, error, "the worker that loads the model sent nonsense");
	return mm_fail(c, error, "while the model was loaded: %s", strerror(-error));
}

int mm_model_files_pass(struct mm_client *client, const struct mm_model_files *files, int fd,
			uint32_t *ret_flags)
{
	struct mm_load_status status = { 0 };
	int sent = load_send_files(client, fd, files);
	int r;

	/* load may have sent a refusal before it read all: that is the better error. */
	if (sent && sent != -ECONNRESET)
		return pass_fail(client, sent);
	do {
		r = load_recv_status(client, fd, &status);
		if (r)
			return pass_fail(client, r);
	} while (!status.done && !status.result);
	if (!status.result && sent)
		return pass_fail(client, sent);
	mm_sanitize(status.text, sizeof(status.text));
	if (status.result)
		return mm_fail(client, status.result, "%s",
			       *status.text ? status.text : strerror(-status.result));
	*ret_flags = status.flags & (MM_LOAD_F_SHARED | MM_LOAD_F_BUFFERED | MM_LOAD_F_PREAD);
	return 0;
}
