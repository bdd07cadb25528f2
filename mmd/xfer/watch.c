/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/base/base.h"
#include "mmd/common/log.h"

#define WAIT_MS       100
#define LOOK_NS       (10 * MM_NS_PER_S)
#define LOST_PAUSE_US 100000
#define LOST_SURE     5 /* answers in a row before a device counts as lost */
#define END_LOOK_US   1000
#define END_NS        (2 * MM_NS_PER_S) /* for a call of NVML that is under way */
#define EVENT_TYPES   (MM_NVML_EVENT_SINGLE_BIT | MM_NVML_EVENT_DOUBLE_BIT | MM_NVML_EVENT_XID)

/* ---- opening ---- */

/* The device, or for a MIG instance the GPU that it is a part of: events are the GPU's. */
static mm_nvml_dev watch_gpu(const struct mm_xwatch *watch)
{
	mm_nvml_dev gpu;

	if (watch->facts.instance < 0 ||
	    !watch->nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle ||
	    watch->nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(watch->facts.device, &gpu))
		return watch->facts.device;
	return gpu;
}

static const char *watch_register_events(struct mm_xwatch *watch)
{
	const struct mm_nvml *nvml = &watch->nvml;
	mm_nvml_dev gpu = watch_gpu(watch);
	unsigned long long types = EVENT_TYPES;

	if (!nvml->nvmlEventSetCreate || !nvml->nvmlEventSetFree ||
	    !nvml->nvmlDeviceRegisterEvents || !nvml->nvmlEventSetWait_v2)
		return "this NVML has no events";
	if (nvml->nvmlDeviceGetSupportedEventTypes &&
	    !nvml->nvmlDeviceGetSupportedEventTypes(gpu, &types))
		types &= EVENT_TYPES;
	if (!types)
		return "the device tells no events";
	if (nvml->nvmlEventSetCreate(&watch->set)) {
		watch->set = NULL;
		return "no event set to be had";
	}
	if (!nvml->nvmlDeviceRegisterEvents(gpu, types, watch->set))
		return NULL;
	(void)nvml->nvmlEventSetFree(watch->set);
	watch->set = NULL;
	return "events are refused";
}

void mm_xwatch_open(struct mm_xwatch *watch, const struct mm_xdev *dev)
{
	char err[160] = "";
	const char *why;

	if (mm_nvml_open(&dev->gpu, &watch->nvml, err, sizeof(err)) < 0) {
		mm_log(MM_LOG_WARN, "health.unavailable",
		       "unseen=\"Xids, ECC errors, memory of others\" reason=\"%s\"", err);
		return;
	}
	watch->found = mm_nvml_find(&watch->nvml, &dev->uuid, &watch->facts) == 0;
	if (!watch->found) {
		mm_log(MM_LOG_WARN, "health.unavailable",
		       "unseen=\"Xids, ECC errors, memory of others\" reason=\"NVML does not show "
		       "the device\"");
		return;
	}
	why = watch_register_events(watch);
	if (why)
		mm_log(MM_LOG_WARN, "health.unavailable",
		       "unseen=\"Xids, ECC errors\" reason=\"%s\"", why);
}

/* ---- looking ---- */

static void process_name(unsigned int pid, char *ret_name, size_t bytes)
{
	char path[32];
	FILE *comm;

	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	comm = fopen(path, "re");
	if (!comm || !fgets(ret_name, (int)bytes, comm))
		snprintf(ret_name, bytes, "?");
	if (comm)
		fclose(comm);
	/* The name goes into logs and terminals. */
	for (char *c = ret_name; *c; c++) {
		if (*c == '\n')
			*c = '\0';
		else if (*c < 0x20 || *c > 0x7e || *c == '"')
			*c = '?';
		if (!*c)
			break;
	}
}

/* Return: NVML's result for its memory; a failure may mean anything, see result_is_gone(). */
static int watch_read(const struct mm_xwatch *watch, struct mm_xhealth *ret_health)
{
	struct mm_nvml_process process[MM_XHOLDERS];
	struct mm_nvml_memory memory = { .version = MM_NVML_MEMORY_VERSION };
	int result = MM_NVML_NOT_SUPPORTED;
	bool pending, failed;
	size_t n;

	*ret_health = (struct mm_xhealth){ 0 };
	if (!watch->found)
		return result;
	ret_health->flags = MM_XHEALTH_SEEN | (watch->set ? MM_XHEALTH_EVENTS : 0) |
			    (watch->facts.instance >= 0 ? MM_XHEALTH_MIG : 0);
	if (watch->nvml.nvmlDeviceGetMemoryInfo_v2)
		result = watch->nvml.nvmlDeviceGetMemoryInfo_v2(watch->facts.device, &memory);
	if (result == MM_NVML_SUCCESS) {
		ret_health->total_bytes = memory.total;
		ret_health->free_bytes = memory.free;
		ret_health->used_bytes = memory.used;
	}
	mm_nvml_repairs(&watch->nvml, watch_gpu(watch), &pending, &failed);
	ret_health->flags |=
		(pending ? MM_XHEALTH_REPAIR_PENDING : 0) | (failed ? MM_XHEALTH_REPAIR_FAILED : 0);
	n = mm_nvml_processes(&watch->nvml, watch->facts.device, process, MM_XHOLDERS);
	for (size_t i = 0; i < n; i++) {
		struct mm_xholder *holder = &ret_health->holder[i];

		holder->pid = process[i].pid;
		holder->bytes = process[i].used_bytes;
		process_name(holder->pid, holder->name, sizeof(holder->name));
	}
	ret_health->n_holders = (uint32_t)n;
	return result;
}

void mm_xwatch_read(const struct mm_xwatch *watch, struct mm_xmsg *ret_msg)
{
	*ret_msg = (struct mm_xmsg){ .magic = MM_PROTO_MAGIC,
				     .kind = MM_X_HEALTH,
				     .id = MM_XHEALTH_SAMPLE };
	(void)watch_read(watch, &ret_msg->health);
}

void mm_xwatch_explain(const struct mm_xwatch *watch, char *text, size_t bytes)
{
	struct mm_xhealth health;
	size_t at = strlen(text);

	(void)watch_read(watch, &health);
	for (uint32_t i = 0; i < health.n_holders && at < bytes; i++) {
		const struct mm_xholder *h = &health.holder[i];

		if ((pid_t)h->pid == getpid())
			continue;
		at += (size_t)snprintf(text + at, bytes - at, "%s pid %u (%s) %" PRIu64 " MiB",
				       strstr(text, "; held by") ? "," : "; held by", h->pid,
				       h->name, h->bytes >> 20);
	}
}

/* ---- the thread ---- */

static bool watch_is_ending(const struct mm_xwatch *watch)
{
	return __atomic_load_n(&watch->stop, __ATOMIC_ACQUIRE);
}

/*
 * A message smaller than PIPE_BUF is never torn. While the pipe is full, a state is left out, since
 * another follows; a message that is sent only once waits for room.
 */
static void watch_send(const struct mm_xwatch *watch, const struct mm_xmsg *msg)
{
	static_assert(sizeof(*msg) <= 4096, "PIPE_BUF");
	struct pollfd pollfd = { .fd = watch->write_fd, .events = POLLOUT };

	while (write(watch->write_fd, msg, sizeof(*msg)) < 0) {
		if (msg->id == MM_XHEALTH_SAMPLE || watch_is_ending(watch))
			return;
		(void)poll(&pollfd, 1, WAIT_MS);
	}
}

static bool result_is_gone(int result)
{
	return result == MM_NVML_GPU_IS_LOST || result == MM_NVML_RESET_REQUIRED;
}

/* Reports the loss of the device, after which nothing works on it any more; once. */
static void watch_send_gone(struct mm_xwatch *watch, int result)
{
	const struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
				     .kind = MM_X_HEALTH,
				     .id = MM_XHEALTH_GONE,
				     .result = result };

	if (!watch->gone)
		watch_send(watch, &msg);
	watch->gone = true;
}

static void watch_send_state(struct mm_xwatch *watch)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
			       .kind = MM_X_HEALTH,
			       .id = MM_XHEALTH_SAMPLE };
	int result = watch_read(watch, &msg.health);

	watch_send(watch, &msg);
	if (result_is_gone(result))
		watch_send_gone(watch, result);
}

static void watch_send_event(struct mm_xwatch *watch, const struct mm_nvml_event *event)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
			       .kind = MM_X_HEALTH,
			       .id = MM_XHEALTH_EVENT };

	/*
	 * Passes on single types that were registered only: core takes any other value for a broken
	 * xfer.
	 */
	if (event->type != MM_NVML_EVENT_XID && event->type != MM_NVML_EVENT_DOUBLE_BIT &&
	    event->type != MM_NVML_EVENT_SINGLE_BIT)
		return;
	if (watch->facts.instance >= 0 && event->gpu_instance != MM_NVML_NO_INSTANCE &&
	    event->gpu_instance != watch->facts.gpu_instance)
		return;
	msg.bytes = event->type;
	msg.pages = event->type == MM_NVML_EVENT_XID ? event->data : 0;
	watch_send(watch, &msg);
	watch_send_state(watch);
}

static void watch_give_back(struct mm_xwatch *watch)
{
	if (watch->set)
		(void)watch->nvml.nvmlEventSetFree(watch->set);
	watch->set = NULL;
	mm_nvml_close(&watch->nvml);
}

static void *watch_run(void *arg)
{
	struct mm_xwatch *watch = arg;
	uint64_t look_ns = mm_now_ns() + LOOK_NS;
	unsigned int lost = 0;

	while (!watch_is_ending(watch)) {
		struct mm_nvml_event event = { .gpu_instance = MM_NVML_NO_INSTANCE };
		int result = MM_NVML_UNKNOWN;

		if (mm_now_ns() >= look_ns) {
			watch_send_state(watch);
			look_ns = mm_now_ns() + LOOK_NS;
		}
		if (watch->set)
			result = watch->nvml.nvmlEventSetWait_v2(watch->set, &event, WAIT_MS);
		if (result == MM_NVML_SUCCESS)
			watch_send_event(watch, &event);
		else if (result != MM_NVML_TIMEOUT)
			usleep(LOST_PAUSE_US);
		lost = result_is_gone(result) ? lost + 1 : 0;
		if (lost == LOST_SURE)
			watch_send_gone(watch, result);
	}
	watch_give_back(watch);
	__atomic_store_n(&watch->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

void mm_xwatch_start(struct mm_xwatch *watch)
{
	sigset_t all, before;
	int fds[2], r;

	if (!watch->found)
		return;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) {
		mm_log(MM_LOG_WARN, "health.unavailable", "reason=\"%s\"", strerror(errno));
		return;
	}
	watch->read_fd = fds[0];
	watch->write_fd = fds[1];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&watch->thread, NULL, watch_run, watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	watch->running = r == 0;
	if (r)
		mm_log(MM_LOG_WARN, "health.unavailable", "reason=\"%s\"", strerror(r));
}

bool mm_xwatch_next(struct mm_xwatch *watch, struct mm_xmsg *ret_msg)
{
	return watch->read_fd >= 0 &&
	       read(watch->read_fd, ret_msg, sizeof(*ret_msg)) == (ssize_t)sizeof(*ret_msg);
}

bool mm_xwatch_done(struct mm_xwatch *watch)
{
	const uint64_t until_ns = mm_now_ns() + END_NS;

	if (watch->running) {
		__atomic_store_n(&watch->stop, true, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&watch->ended, __ATOMIC_ACQUIRE)) {
			if (mm_now_ns() > until_ns)
				return false;
			usleep(END_LOOK_US);
		}
		pthread_join(watch->thread, NULL);
	} else {
		watch_give_back(watch);
	}
	mm_close_fd(&watch->read_fd);
	mm_close_fd(&watch->write_fd);
	*watch = MM_XWATCH_NULL;
	return true;
}
