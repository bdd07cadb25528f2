/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "mmd/shell/shell.h"

#define SCHEMA      1
#define PLACES_FEW  8    /* fewer free places than this are worth a warning */
#define FDS_BESIDES 2048 /* open files of core and keeper that are no pages */
#define TEXT_BYTES  512
#define CUDA_TESTED 13 /* the major version that results/gpu.md is about */

/* The results of a check, as they are in the answer. */
#define OK   "ok"
#define NOTE "note" /* nothing is wrong, but something is not enforced or not known */
#define WARN "warn"
#define FAIL "fail"

struct doctor {
	struct mm_shell *shell;
	json_t *checks;
};

/* Appends a check. @device: ordinal; -1: it is of no device. @advice: "" if there is none. */
static void check_add(struct doctor *d, const char *name, int64_t device, const char *result,
		      const char *advice, const char *fmt, ...) MM_PRINTF(6, 7);
static void check_add(struct doctor *d, const char *name, int64_t device, const char *result,
		      const char *advice, const char *fmt, ...)
{
	json_t *check = json_object();
	char text[TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mm_json_put_text(check, "name", name);
	mm_json_put_known(check, "device", device >= 0, (uint64_t)device);
	mm_json_put_text(check, "result", result);
	mm_json_put_text(check, "text", text);
	mm_json_put_text(check, "advice", advice);
	json_array_append_new(d->checks, check);
}

/* ---- a device ---- */

static void books_check(struct doctor *d, const struct mm_pool *pool)
{
	const char *broken = mm_core_check_sentence(pool->core);

	if (broken)
		check_add(d, "books", (int64_t)pool->ordinal, FAIL,
			  "keep mmd's log and this answer, report both, and restart mmd", "%s",
			  broken);
	else
		check_add(d, "books", (int64_t)pool->ordinal, OK, "",
			  "each page has one state and one holder, and charges are what pages say");
}

static uint64_t pages_without_fd(const struct mm_pool *pool)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < pool->worker.device.pages; i++) {
		enum mm_page_state state = mm_core_page(pool->core, i, NULL);

		if (state != MM_PAGE_NONE && state != MM_PAGE_QUARANTINE &&
		    pool->worker.page_fd[i] < 0)
			n++;
	}
	return n;
}

/* Pages that are created anew have no descriptor for a moment. */
static uint64_t pages_in_making(const struct mm_pool *pool)
{
	struct mm_msg job;
	uint64_t n = 0;

	for (uint32_t at = 0; mm_core_next_job(pool->core, &at, &job);)
		n += job.opcode == MM_XOP_RECREATE ? 1
		     : job.opcode == MM_XOP_CREATE ? job.arg[1]
						   : 0;
	return n;
}

static void pages_check(struct doctor *d, const struct mm_pool *pool)
{
	const uint64_t without = pages_without_fd(pool), making = pages_in_making(pool);
	struct mm_core_stats stats;
	uint64_t sum = 0;

	mm_core_stats(pool->core, &stats);
	for (size_t i = 0; i < MM_PAGE_STATES; i++)
		sum += stats.pages[i];
	if (sum != pool->worker.device.pages || without > making)
		check_add(d, "pages", (int64_t)pool->ordinal, FAIL,
			  "keep mmd's log and this answer, report both, and restart mmd",
			  "%u pages; states sum up to %" PRIu64 "; %" PRIu64
			  " have no descriptor, of which %" PRIu64 " are being created",
			  pool->worker.device.pages, sum, without, making);
	else if (stats.pages[MM_PAGE_QUARANTINE])
		check_add(d, "pages", (int64_t)pool->ordinal, WARN,
			  "processes that hold pages of a dead tenant, or memory errors: "
			  "mmctl quota show says whose, mmd's log why",
			  "%" PRIu64 " of %u pages are quarantined",
			  stats.pages[MM_PAGE_QUARANTINE], pool->worker.device.pages);
	else
		check_add(d, "pages", (int64_t)pool->ordinal, OK, "",
			  "%u pages, states sum up, each has its descriptor, none is quarantined",
			  pool->worker.device.pages);
}

static void jobs_check(struct doctor *d, const struct mm_pool *pool)
{
	const struct mm_worker *w = &pool->worker;
	struct mm_msg job;
	uint64_t jobs = 0, unknown = 0;

	for (uint32_t at = 0; mm_core_next_job(pool->core, &at, &job);)
		jobs++;
	for (size_t i = 0; i < MM_PUSHED_JOBS; i++) {
		const struct mm_pushed_job *pushed = &w->kept->pushed.job[i];

		/* The highest bit marks jobs of the shell's own. */
		if (pushed->id && !(pushed->id >> 63) && !mm_core_has_job(pool->core, pushed->id))
			unknown++;
	}
	if (w->kept->state != MM_WORKER_UP)
		check_add(d, "xfer", (int64_t)pool->ordinal, pool->down ? FAIL : WARN,
			  "mmd's log says why (xfer.down); look again in a moment",
			  "no xfer is up; %" PRIu64 " jobs wait for one, %" PRIu64
			  " were started again so far",
			  jobs, w->kept->restarts);
	else
		check_add(d, "xfer", (int64_t)pool->ordinal, unknown ? WARN : OK,
			  unknown ? "look again in a moment: completions may be on their way" : "",
			  "up, with %" PRIu64 " jobs, %" PRIu64
			  " of which core does not know; %" PRIu64 " restarts",
			  jobs, unknown, w->kept->restarts);
}

static void places_check(struct doctor *d, const struct mm_pool *pool)
{
	uint32_t used = 0;

	MM_FOREACH_SESSION(pool->shell, s)
		used += s->state >= MM_SESSION_OPEN && s->pool == pool;
	if (MM_DEVICE_TENANTS_MAX - used < PLACES_FEW)
		check_add(d, "places", (int64_t)pool->ordinal, WARN,
			  "set connections-max of accounts (mmd.conf), or --idle-timeout",
			  "%u of %u places for tenants are taken", used, MM_DEVICE_TENANTS_MAX);
	else
		check_add(d, "places", (int64_t)pool->ordinal, OK, "",
			  "%u of %u places for tenants are taken", used, MM_DEVICE_TENANTS_MAX);
}

static void numa_check(struct doctor *d, const struct mm_pool *pool)
{
	const int device = pool->worker.device.numa_node, wanted = mm_store_node(pool);

	if (device < 0)
		check_add(d, "numa", (int64_t)pool->ordinal, NOTE, "",
			  "the device's NUMA node is not known, or there is only one");
	else if (wanted != device)
		check_add(d, "numa", (int64_t)pool->ordinal, WARN,
			  "leave --numa-node out, so that weights lie next to their device",
			  "weights lie on node %d, the device is at node %d", wanted, device);
	else
		check_add(d, "numa", (int64_t)pool->ordinal, OK, "",
			  "weights lie on node %d, next to the device", device);
}

static void driver_check(struct doctor *d, const struct mm_pool *pool)
{
	const struct mm_device *device = &pool->worker.device;
	const bool software = device->driver_kind == MM_DRIVER_SOFTWARE;

	check_add(d, "driver", (int64_t)pool->ordinal, OK, "",
		  "%s, CUDA %u.%u, capability %u.%u%s%s%s", mm_driver_name(device->driver_kind),
		  device->facts.driver_version / 1000, device->facts.driver_version % 1000 / 10,
		  device->facts.capability / 10, device->facts.capability % 10,
		  device->facts.attributes & MM_XFACT_MPS ? ", MPS" : "",
		  pool->health.sample.flags & MM_XHEALTH_MIG ? ", MIG" : "",
		  device->facts.attributes & MM_XFACT_ECC ? ", ECC" : "");
	if (!software && device->facts.driver_version / 1000 != CUDA_TESTED)
		check_add(d, "cuda", (int64_t)pool->ordinal, NOTE,
			  "ctest -L conformance, with MM_DRIVER=cuda",
			  "the driver's facts were last seen with CUDA %d", CUDA_TESTED);
	if (device->facts.attributes & MM_XFACT_MPS)
		check_add(d, "mps", (int64_t)pool->ordinal, NOTE, "",
			  "under MPS an error of one tenant's kernels may end the contexts of all, "
			  "and xfer cannot become another user");
	if (!software && !(device->facts.attributes & MM_XFACT_ECC))
		check_add(d, "ecc", (int64_t)pool->ordinal, NOTE, "nvidia-smi -e 1, and a reset",
			  "without ECC nobody notices memory errors");
	if (!(device->facts.attributes & MM_XFACT_HOST_READ_ONLY))
		check_add(d, "read-only", (int64_t)pool->ordinal, NOTE, "",
			  "the driver registers no read-only host memory: host copies of weights "
			  "stay writable for xfer, and are sealed for all others");
}

static void health_check(struct doctor *d, const struct mm_pool *pool)
{
	const struct mm_health *h = &pool->health;

	if (pool->down)
		check_add(d, "health", (int64_t)pool->ordinal, FAIL,
			  "mmd's log says why (pool.down); it is tried again by itself",
			  "the device is down");
	else if (h->memory_errors || h->lost || h->sample.flags & MM_XHEALTH_REPAIR_FAILED)
		check_add(
			d, "health", (int64_t)pool->ordinal, WARN,
			"nvidia-smi -q -d ECC,ROW_REMAPPER; reset or replace the GPU",
			"%" PRIu64 " memory errors, lost %" PRIu64 " times, last Xid %" PRIu64 "%s",
			h->memory_errors, h->lost, h->last_xid,
			h->sample.flags & MM_XHEALTH_REPAIR_FAILED ? ", a repair has failed" : "");
	else if (h->sample.flags & MM_XHEALTH_REPAIR_PENDING)
		check_add(d, "health", (int64_t)pool->ordinal, WARN,
			  "reset the GPU when nobody needs it",
			  "a repair of memory waits for a reset");
	else if (!(h->sample.flags & MM_XHEALTH_SEEN))
		check_add(d, "health", (int64_t)pool->ordinal, NOTE, "",
			  "NVML does not show the device: its errors are not noticed early");
	else
		check_add(d, "health", (int64_t)pool->ordinal, OK, "",
			  "no memory errors; last Xid %" PRIu64, h->last_xid);
}

static void pool_check(struct doctor *d, const struct mm_pool *pool)
{
	if (!pool->core) {
		check_add(d, "books", (int64_t)pool->ordinal, WARN, "look again in a moment",
			  "the device is not set up yet");
		return;
	}
	books_check(d, pool);
	pages_check(d, pool);
	jobs_check(d, pool);
	places_check(d, pool);
	numa_check(d, pool);
	driver_check(d, pool);
	health_check(d, pool);
}

/* ---- all devices ---- */

/* The users of @store, counted anew: tenants and loads. */
static uint32_t store_users(const struct mm_shell *shell, const struct mm_store *store)
{
	uint32_t n = 0;

	MM_FOREACH_SESSION(shell, s)
		n += s->store == store;
	for (size_t i = 0; i < MM_LOADS_MAX; i++)
		n += shell->stores.load[i].state != MM_LOAD_FREE &&
		     shell->stores.load[i].store == store;
	return n;
}

static void stores_check(struct doctor *d)
{
	const struct mm_stores *stores = &d->shell->stores;
	uint64_t bytes = 0, n = 0, wrong = 0;

	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		const struct mm_store *store = &stores->store[i];

		if (!store->id)
			continue;
		n++;
		bytes += store->host_bytes;
		wrong += store->refs != store_users(d->shell, store);
	}
	if (wrong || bytes != stores->bytes)
		check_add(d, "stores", -1, FAIL,
			  "keep mmd's log and this answer, report both, and restart mmd",
			  "%" PRIu64 " host copies, of which %" PRIu64
			  " have another number of users than is counted; %" PRIu64
			  " bytes, %" PRIu64 " are charged",
			  n, wrong, bytes, stores->bytes);
	else
		check_add(d, "stores", -1, OK, "",
			  "%" PRIu64 " host copies; their users and %" PRIu64 " bytes add up", n,
			  bytes);
}

static void files_check(struct doctor *d)
{
	uint64_t pages = 0, needed;

	for (uint32_t i = 0; i < d->shell->n_pools; i++)
		pages += d->shell->pool[i].worker.device.pages;
	needed = pages + FDS_BESIDES;
	check_add(d, "files", -1, needed > d->shell->fds_max ? WARN : OK,
		  needed > d->shell->fds_max ? "LimitNOFILE= of the service, or ulimit -Hn" : "",
		  "%" PRIu64 " pages need up to %" PRIu64 " open files, the limit is %" PRIu64,
		  pages, needed, d->shell->fds_max);
}

static void core_check(struct doctor *d)
{
	const struct mm_held *held = &d->shell->held;

	if (held->failed)
		check_add(d, "keeper", -1, FAIL, "mmd's log says why",
			  "descriptors cannot be kept: core gives way to another one");
	else if (held->generation > 1)
		check_add(d, "keeper", -1, NOTE, "mmd's log says why each ended (core.gone)",
			  "this core is the %" PRIu64 "th since mmd was started", held->generation);
	else
		check_add(d, "keeper", -1, OK, "", "core runs since mmd was started");
}

/* ---- the answer ---- */

static void role_add(json_t *roles, const char *role, int64_t device, int64_t pid)
{
	json_t *json = json_object();

	mm_json_put_text(json, "role", role);
	mm_json_put_known(json, "device", device >= 0, (uint64_t)device);
	mm_json_put_u64(json, "pid", (uint64_t)pid);
	json_array_append_new(roles, json);
}

/* Loads and spools are keeper's children, and come and go. */
static json_t *roles_json(const struct mm_shell *shell)
{
	json_t *roles = json_array();

	role_add(roles, "keeper", -1, getppid());
	role_add(roles, "core", -1, getpid());
	for (uint32_t i = 0; i < shell->n_pools; i++)
		if (shell->pool[i].worker.kept->state == MM_WORKER_UP)
			role_add(roles, "xfer", (int64_t)shell->pool[i].ordinal,
				 shell->pool[i].worker.kept->pid);
	return roles;
}

json_t *mm_doctor_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct doctor d = { .shell = context, .checks = json_array() };
	json_t *result = json_object();

	(void)params;
	(void)error;
	for (uint32_t i = 0; i < d.shell->n_pools; i++)
		pool_check(&d, &d.shell->pool[i]);
	stores_check(&d);
	files_check(&d);
	core_check(&d);
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put(result, "roles", roles_json(d.shell));
	mm_json_put_text(result, "hugepages", mm_hugepages_name(d.shell->config->hugepages));
	mm_json_put(result, "checks", d.checks);
	return result;
}
