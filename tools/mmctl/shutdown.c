/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shutdown - mmd ends after its tenants, and with --release who still has its devices
 *
 * mmd tells its tenants and ends by itself; this command waits for the end of the process, in
 * which all roles have ended. Its pid is that of whoever listens on the admin socket, so a core
 * that is replaced meanwhile makes no difference.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/driver/nvml.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/size.h"
#include "tools/common/rpc_client.h"
#include "tools/mmctl/ctl.h"

#define HOLDERS_MAX 64
/* mmd kills tenants that do not leave, and gives a device that hangs up; then it is late. */
#define LATE_NS    (90 * MM_NS_PER_S)
#define HEX_BYTES  16
#define NAME_BYTES 64

/* A pidfd of the process that listens on the admin socket. Return: negative errno. */
static int mmd_pidfd(const struct mmctl *ctl)
{
	mm_cleanup(mm_close_fd) int fd = mm_rpc_client_open(ctl->socket, 30 * MM_NS_PER_S);
	struct ucred cred;
	socklen_t bytes = sizeof(cred);
	long pidfd;

	if (fd < 0)
		return fd;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) < 0)
		return -errno;
	if (!cred.pid)
		return -ESRCH;
	pidfd = syscall(SYS_pidfd_open, cred.pid, 0);
	return pidfd < 0 ? -errno : (int)pidfd;
}

/* ---- who still has a device ---- */

static void process_name_read(unsigned int pid, char *name, size_t bytes)
{
	mm_cleanup(mm_close_file) FILE *file = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	file = fopen(path, "re");
	if (!file || !fgets(name, (int)bytes, file))
		snprintf(name, bytes, "?");
	name[strcspn(name, "\n")] = '\0';
}

static json_t *holder_json(const struct mm_nvml_process *process)
{
	json_t *holder = json_object();
	char name[NAME_BYTES];

	process_name_read(process->pid, name, sizeof(name));
	mm_json_put_u64(holder, "pid", process->pid);
	mm_json_put_text(holder, "name", name);
	mm_json_put_known(holder, "bytes", process->used_bytes != UINT64_MAX, process->used_bytes);
	return holder;
}

static bool uuid_read(const char *hex, CUuuid *ret_uuid)
{
	unsigned int byte;

	for (size_t i = 0; i < HEX_BYTES; i++) {
		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			return false;
		ret_uuid->bytes[i] = (char)byte;
	}
	return true;
}

/* Adds the holders of @device, one of mmd's status, or null where NVML does not show it. */
static void holders_add(const struct mm_nvml *nvml, const json_t *device, json_t *devices)
{
	struct mm_nvml_process process[HOLDERS_MAX];
	struct mm_nvml_facts facts;
	json_t *one = json_object(), *holders = NULL;
	CUuuid uuid;

	if (uuid_read(mm_json_text(device, "uuid"), &uuid) &&
	    mm_nvml_find(nvml, &uuid, &facts) == 0) {
		size_t n = mm_nvml_processes(nvml, facts.device, process, HOLDERS_MAX);

		holders = json_array();
		for (size_t i = 0; i < n; i++)
			json_array_append_new(holders, holder_json(&process[i]));
	}
	mm_json_put_u64(one, "device", mm_json_u64(device, "ordinal"));
	mm_json_put_text(one, "uuid", mm_json_text(device, "uuid"));
	mm_json_put(one, "holders", holders ? holders : json_null());
	json_array_append_new(devices, one);
}

static int devices_release(const json_t *status, json_t *ret_answer)
{
	const json_t *list = json_object_get(status, "devices"), *one;
	const char *driver =
		mm_json_text(json_object_get(json_array_get(list, 0), "device"), "driver");
	struct mm_gpu_api gpu = { 0 };
	struct mm_nvml nvml = { 0 };
	char err[256];
	size_t i;
	json_t *devices;

	if (mm_gpu_open(strcmp(driver, "software") == 0 ? "software" : "cuda", &gpu, err,
			sizeof(err)) < 0)
		return mmctl_error(MM_EXIT_FAILED,
				   "mmd has ended; who has its devices is not known: %s", err);
	if (mm_nvml_open(&gpu, &nvml, err, sizeof(err)) < 0)
		fprintf(stderr, "mmctl: who has the devices is not known: %s\n", err);
	devices = json_array();
	json_array_foreach(list, i, one)
		holders_add(&nvml, json_object_get(one, "device"), devices);
	mm_json_put(ret_answer, "devices", devices);
	mm_nvml_close(&nvml);
	mm_gpu_close(&gpu);
	return MM_EXIT_DONE;
}

/* ---- printing ---- */

static void tenants_print(const json_t *answer)
{
	const json_t *tenant;
	size_t i;

	json_array_foreach(json_object_get(answer, "tenants"), i, tenant)
		printf("tenant %" PRIu64 " %s (pid %" PRIu64 ", device %" PRIu64 ")%s\n",
		       mm_json_u64(tenant, "tenant"), mm_json_text(tenant, "name"),
		       mm_json_u64(tenant, "pid"), mm_json_u64(tenant, "device"),
		       json_is_true(json_object_get(tenant, "told"))
			       ? ""
			       : ": cannot be told, will lose its connection");
}

/* Return: how many processes there are. */
static size_t holders_print(const json_t *device)
{
	const json_t *holders = json_object_get(device, "holders"), *holder;
	const uint64_t ordinal = mm_json_u64(device, "device");
	char size[MM_SIZE_TEXT_BYTES];
	size_t i;

	if (!holders || json_is_null(holders))
		printf("device %" PRIu64 ": given back; who else has it is not known\n", ordinal);
	else if (!json_array_size(holders))
		printf("device %" PRIu64 ": free\n", ordinal);
	json_array_foreach(holders, i, holder)
		printf("device %" PRIu64 ": %s (pid %" PRIu64 ") still has %s of it\n", ordinal,
		       mm_json_text(holder, "name"), mm_json_u64(holder, "pid"),
		       json_is_integer(json_object_get(holder, "bytes"))
			       ? mm_size_print(mm_json_u64(holder, "bytes"), size)
			       : "some");
	return json_array_size(holders);
}

static int answer_print(const struct mmctl *ctl, const json_t *answer)
{
	const json_t *device;
	size_t held = 0, i;

	if (ctl->json) {
		json_array_foreach(json_object_get(answer, "devices"), i, device)
			held += json_array_size(json_object_get(device, "holders"));
		mmctl_print_json(answer);
	} else {
		printf("mmd has ended\n");
		json_array_foreach(json_object_get(answer, "devices"), i, device)
			held += holders_print(device);
	}
	return held ? MM_EXIT_FAILED : MM_EXIT_DONE;
}

/* ---- the command ---- */

static int dry_run_print(const struct mmctl *ctl, const json_t *answer)
{
	if (ctl->json)
		return mmctl_print_json(answer);
	tenants_print(answer);
	printf("%zu tenants would have %" PRIu64 " s to leave\n",
	       json_array_size(json_object_get(answer, "tenants")), ctl->options->within_s);
	return MM_EXIT_DONE;
}

static int mmd_wait(int pidfd, uint64_t within_s)
{
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };
	const uint64_t by_ns = mm_deadline_ns(within_s * MM_NS_PER_S + LATE_NS);

	while (poll(&ended, 1, 1000) <= 0) {
		if (mm_now_ns() > by_ns)
			return mmctl_error(MM_EXIT_FAILED, "mmd has not ended; its log says why");
	}
	return MM_EXIT_DONE;
}

int mmctl_shutdown_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	mm_cleanup(mm_json_done) json_t *status = NULL;
	mm_cleanup(mm_json_done) json_t *answer = NULL;
	mm_cleanup(mm_close_fd) int pidfd = -1;
	int r;

	(void)argc;
	(void)argv;
	r = mmctl_request(ctl, "status", NULL, &status);
	if (r == MM_EXIT_DONE) {
		pidfd = mmd_pidfd(ctl);
		if (pidfd < 0)
			return mmctl_error(MM_EXIT_FAILED, "cannot find mmd's process: %s",
					   strerror(-pidfd));
		r = mmctl_request(ctl, "shutdown",
				  json_pack("{s:I,s:b}", "within_s", (json_int_t)o->within_s,
					    "dry_run", (int)o->dry_run),
				  &answer);
	}
	if (r != MM_EXIT_DONE)
		return r;
	if (o->dry_run)
		return dry_run_print(ctl, answer);
	if (!ctl->json)
		tenants_print(answer);
	fflush(stdout);
	r = mmd_wait(pidfd, o->within_s);
	if (r == MM_EXIT_DONE && o->release)
		r = devices_release(status, answer);
	return r == MM_EXIT_DONE ? answer_print(ctl, answer) : r;
}
