/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libclient/support/cleanup.h"
#include "mmd/common/host.h"
#include "mmd/shell/dir.h"
#include "mmd/shell/shell.h"

static void store_clear(struct mm_stores *all, struct mm_store *store)
{
	*store = (struct mm_store){ .fd = -1,
				    .xfer_fd = -1,
				    .disk_fd = -1,
				    .keys = &all->kept->keys,
				    .kept = &all->kept->store[store - all->store] };
}

void mm_stores_init(struct mm_shell *shell)
{
	struct mm_stores *all = &shell->stores;

	*all = (struct mm_stores){ .kept = &shell->kept.front->stores };
	for (size_t i = 0; i < MM_STORES_MAX; i++)
		store_clear(all, &all->store[i]);
	for (size_t i = 0; i < MM_LOADS_MAX; i++)
		all->load[i] =
			(struct mm_load){ .shell = shell, .fd = -1, .source = MM_LOOP_SOURCE_NULL };
}

struct mm_store *mm_store_find(struct mm_shell *shell, uint64_t id)
{
	for (size_t i = 0; id && i < MM_STORES_MAX; i++) {
		if (shell->stores.store[i].id == id)
			return &shell->stores.store[i];
	}
	return NULL;
}

struct mm_store *mm_store_by_identity(struct mm_shell *shell, const struct mm_lmsg *want)
{
	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		struct mm_store *store = &shell->stores.store[i];

		if (store->id && !store->failed && store->bytes == want->store_bytes &&
		    memcmp(store->identity, want->identity, sizeof(store->identity)) == 0)
			return store;
	}
	return NULL;
}

/* ---- at keeper, and in the book ---- */

/* The files of a store that keeper holds, by the index in their names. */
static int *store_file(struct mm_store *store, uint32_t index)
{
	return index == 0 ? &store->fd : index == 1 ? &store->xfer_fd : &store->disk_fd;
}

#define STORE_FILES 3

static struct mm_held_name store_name(uint64_t id, uint32_t index)
{
	return (struct mm_held_name){ .kind = MM_HELD_STORE, .id = id, .index = index };
}

/* keeper has the files before anything depends on the store. Return: 0; -EIO. */
static int store_keep(struct mm_shell *shell, struct mm_store *store)
{
	struct mm_store_kept *kept = store->kept;

	for (uint32_t i = 0; i < STORE_FILES; i++)
		if (*store_file(store, i) >= 0)
			mm_held_put(&shell->held, store_name(store->id, i), *store_file(store, i));
	if (!mm_held_sync(&shell->held))
		return -EIO;
	*kept = (struct mm_store_kept){ .bytes = store->bytes,
					.host_bytes = store->host_bytes,
					.hugepage_bytes = store->hugepage_bytes,
					.payer = store->payer,
					.head_bytes = store->head_bytes,
					.flags = store->flags,
					.numa_node = store->numa_node,
					.on_disk = store->on_disk };
	memcpy(kept->identity, store->identity, sizeof(kept->identity));
	mm_kept_publish(&kept->id, store->id);
	return 0;
}

static void store_unkeep(struct mm_shell *shell, struct mm_store *store)
{
	if (store->kept->id != store->id)
		return;
	mm_kept_publish(&store->kept->id, (uint64_t)0);
	for (uint32_t i = 0; i < STORE_FILES; i++)
		if (*store_file(store, i) >= 0)
			mm_held_drop(&shell->held, store_name(store->id, i), false);
}

/* ---- life ---- */

/* The xfers and the spool let go of it, too. */
static void store_free(struct mm_shell *shell, struct mm_store *store)
{
	unsigned int drops = 0;

	for (uint32_t i = 0; store->ready && i < shell->n_pools; i++) {
		drops += shell->pool[i].worker.kept->state == MM_WORKER_UP ||
			 shell->pool[i].worker.kept->state == MM_WORKER_DYING;
		mm_worker_store_drop(&shell->pool[i], store->id);
	}
	shell->stores.bytes -= store->host_bytes;
	mm_keys_done(store);
	store_unkeep(shell, store);
	mm_close_fd(&store->fd);
	mm_close_fd(&store->xfer_fd);
	mm_close_fd(&store->disk_fd);
	if (store->on_disk)
		mm_spool_release(shell, store->id, drops);
	free(store->groups);
	store_clear(&shell->stores, store);
}

void mm_store_put(struct mm_shell *shell, struct mm_store *store)
{
	mm_assert(store->refs > 0);
	if (--store->refs == 0)
		store_free(shell, store);
}

uint64_t mm_store_pages(const struct mm_store *store, uint64_t page_bytes)
{
	uint64_t pages = 0;

	for (uint32_t i = 0; i < store->n_groups; i++)
		pages += mm_div_up(store->groups[i].bytes, page_bytes);
	return pages;
}

uint64_t mm_stores_host_bytes(const struct mm_shell *shell)
{
	return shell->stores.bytes + shell->n_pools * mm_config_stage_bytes(shell->config);
}

/* The size is sealed at once, so that core never reads beyond an end that load has moved. */
static int store_memory(uint64_t bytes, enum mm_hugepages hugepages, struct mm_store *store)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	int r = mm_host_memfd(bytes, hugepages, &fd, &store->host_bytes, &store->hugepage_bytes);

	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return -errno;
	store->fd = fd;
	fd = -1;
	return 0;
}

int mm_store_node(const struct mm_pool *pool)
{
	if (pool->shell->config->numa_node != MM_NUMA_BY_DEVICE)
		return (int)pool->shell->config->numa_node;
	return pool->worker.device.numa_node;
}

struct mm_store *mm_store_new(struct mm_shell *shell, const struct mm_lmsg *want, int numa_node)
{
	struct mm_stores *all = &shell->stores;
	struct mm_store *store = NULL;

	for (size_t i = 0; i < MM_STORES_MAX && !store; i++)
		store = all->store[i].id ? NULL : &all->store[i];
	if (!store)
		return NULL;
	store->id = ++all->kept->store_serial;
	store->bytes = want->store_bytes;
	store->head_bytes = want->head_bytes;
	store->numa_node = numa_node;
	store->refs = 1;
	memcpy(store->identity, want->identity, sizeof(store->identity));
	return store;
}

/* Whether some device's driver cannot pin memory that is mapped read-only. */
static bool stores_pinned_for_writing(const struct mm_shell *shell)
{
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		const struct mm_device *device = &shell->pool[i].worker.device;

		if (device->pages && !(device->facts.attributes & MM_XFACT_HOST_READ_ONLY))
			return true;
	}
	return false;
}

int mm_store_open_again(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

int mm_store_fill_memory(struct mm_shell *shell, struct mm_store *store)
{
	uint64_t max = shell->config->host_store_max_bytes;
	int r = store->on_disk ? store_memory(store->head_bytes, MM_HUGE_OFF, store)
			       : store_memory(store->bytes,
					      (enum mm_hugepages)shell->config->hugepages, store);

	/* The check whether it fits was made before sizes were rounded up to huge pages. */
	if (r == 0 && max && store->hugepage_bytes &&
	    mm_stores_host_bytes(shell) + store->host_bytes > max) {
		mm_close_fd(&store->fd);
		r = store_memory(store->bytes, MM_HUGE_OFF, store);
	}
	store->open_for_xfer = r == 0 && !store->on_disk && stores_pinned_for_writing(shell) &&
			       fchmod(store->fd, S_IRUSR | S_IWUSR) == 0;
	if (r < 0)
		store->host_bytes = 0; /* nothing was taken, so nothing is to be given back */
	shell->stores.bytes += store->host_bytes;
	return r;
}

/*
 * A seal against writing would keep xfer from pinning the memory. Instead a lease proves that no
 * writer is left (load had a descriptor that counts as one), and tenants get a read-only descriptor
 * of a file that only our user can open. Where that is not possible the store is sealed: then it is
 * copied slowly, but nobody can write to it.
 */
static bool store_keep_open_for_xfer(struct mm_store *store)
{
	int fd = mm_store_open_again(store->fd, O_RDONLY);

	if (fd < 0 || fchmod(store->fd, S_IRUSR | S_IWUSR) < 0 ||
	    fcntl(fd, F_SETLEASE, F_RDLCK) < 0 || fcntl(fd, F_SETLEASE, F_UNLCK) < 0 ||
	    fcntl(store->fd, F_ADD_SEALS, F_SEAL_SEAL) < 0) {
		mm_log(MM_LOG_WARN, "store.sealed_for_xfer", "store=%" PRIu64 " error=\"%s\"",
		       store->id, strerror(errno));
		mm_close_fd(&fd);
		return false;
	}
	store->xfer_fd = store->fd;
	store->fd = fd;
	return true;
}

/* For the tenant: mmd's own lack of memory, or what the load did. */
static int fault_error(int error)
{
	return error == ENOMEM ? -ENOMEM : -EBADMSG;
}

const char *mm_store_seal(struct mm_shell *shell, struct mm_store *store, int *ret_error)
{
	const char *wrong;

	if (!(store->open_for_xfer && store_keep_open_for_xfer(store)) &&
	    fcntl(store->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
		*ret_error = fault_error(errno);
		return "store cannot be sealed";
	}
	wrong = mm_dir_check(store->fd, store, &store->groups, &store->n_groups,
			     &store->tensor_bytes);
	*ret_error = fault_error(errno);
	if (wrong)
		return wrong;
	*ret_error = store_keep(shell, store);
	if (*ret_error < 0)
		return "keeper does not take the store";
	store->ready = true;
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_worker_store(&shell->pool[i], store->id);
	return NULL;
}

void mm_stores_done(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_LOADS_MAX; i++) {
		mm_loop_del(&shell->loop, &shell->stores.load[i].source);
		mm_close_fd(&shell->stores.load[i].fd);
	}
	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		mm_close_fd(&shell->stores.store[i].fd);
		mm_close_fd(&shell->stores.store[i].xfer_fd);
		mm_close_fd(&shell->stores.store[i].disk_fd);
		mm_keys_done(&shell->stores.store[i]);
		free(shell->stores.store[i].groups);
	}
}

/* ---- taking over ---- */

/* Return: NULL; else what is wrong with it. */
static const char *store_resume(struct mm_shell *shell, struct mm_store *store)
{
	const struct mm_store_kept *kept = store->kept;

	store->id = kept->id;
	store->bytes = kept->bytes;
	store->host_bytes = kept->host_bytes;
	store->hugepage_bytes = kept->hugepage_bytes;
	store->payer = kept->payer;
	store->head_bytes = kept->head_bytes;
	store->flags = kept->flags;
	store->numa_node = kept->numa_node;
	store->on_disk = kept->on_disk;
	memcpy(store->identity, kept->identity, sizeof(store->identity));
	for (uint32_t i = 0; i < STORE_FILES; i++)
		*store_file(store, i) = mm_held_take(&shell->held, store_name(store->id, i));
	shell->stores.bytes += store->host_bytes;
	if (store->fd < 0 || (store->on_disk && store->disk_fd < 0))
		return "keeper does not have its files";
	store->ready = true;
	return mm_dir_check(store->fd, store, &store->groups, &store->n_groups,
			    &store->tensor_bytes);
}

void mm_stores_resume(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		struct mm_store *store = &shell->stores.store[i];
		const char *wrong = store->kept->id ? store_resume(shell, store) : NULL;

		if (!wrong)
			continue;
		mm_log(MM_LOG_ERROR, "store.lost", "store=%" PRIu64 " reason=\"%s\"", store->id,
		       wrong);
		store_free(shell, store);
	}
	mm_models_resume(shell);
}

void mm_stores_resume_end(struct mm_shell *shell)
{
	mm_loads_resume(shell);
	for (size_t i = 0; i < MM_STORES_MAX; i++)
		if (shell->stores.store[i].id && !shell->stores.store[i].refs)
			store_free(shell, &shell->stores.store[i]);
	mm_spools_resume(shell);
}
