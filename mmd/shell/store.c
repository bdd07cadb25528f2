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

void mm_stores_init(struct mm_shell *shell)
{
	struct mm_stores *all = &shell->stores;

	*all = (struct mm_stores){ 0 };
	for (size_t i = 0; i < MM_STORES_MAX; i++)
		all->store[i].fd = all->store[i].xfer_fd = all->store[i].disk_fd = -1;
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

void mm_store_put(struct mm_shell *shell, struct mm_store *store)
{
	unsigned int drops = 0;

	mm_assert(store->refs > 0);
	if (--store->refs > 0)
		return;
	for (uint32_t i = 0; store->ready && i < shell->n_pools; i++) {
		drops += shell->pool[i].worker.kept->state == MM_WORKER_UP ||
			 shell->pool[i].worker.kept->state == MM_WORKER_DYING;
		mm_worker_store_drop(&shell->pool[i], store->id);
	}
	shell->stores.bytes -= store->host_bytes;
	mm_close_fd(&store->fd);
	mm_close_fd(&store->xfer_fd);
	mm_close_fd(&store->disk_fd);
	if (store->on_disk)
		mm_spool_release(shell, store->id, drops);
	mm_keys_done(store);
	free(store->groups);
	*store = (struct mm_store){ .fd = -1, .xfer_fd = -1, .disk_fd = -1 };
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
	*store = (struct mm_store){ .id = ++all->store_serial,
				    .fd = -1,
				    .xfer_fd = -1,
				    .disk_fd = -1,
				    .bytes = want->store_bytes,
				    .head_bytes = want->head_bytes,
				    .numa_node = numa_node,
				    .refs = 1 };
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

const char *mm_store_seal(struct mm_shell *shell, struct mm_store *store)
{
	const char *wrong;

	if (!(store->open_for_xfer && store_keep_open_for_xfer(store)) &&
	    fcntl(store->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return "store cannot be sealed";
	wrong = mm_dir_check(store->fd, store, &store->groups, &store->n_groups,
			     &store->tensor_bytes);
	if (wrong)
		return wrong;
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
