/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_roles - what `mmctl doctor` sees of mmd's processes: users, capabilities, filters */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "tools/mmctl/doctor.h"

#define PATH_BYTES  64
#define NAME_BYTES  32
#define WORDS_BYTES 4096

struct role_status { /* of /proc/PID/status */
	uint64_t ppid, uid, caps, no_new_privs, seccomp;
};

static bool status_read(uint64_t pid, struct role_status *ret)
{
	mm_cleanup(mm_close_file) FILE *file = NULL;
	char path[PATH_BYTES], line[256];
	uint64_t real;

	*ret = (struct role_status){ .caps = UINT64_MAX };
	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/status", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		(void)sscanf(line, "PPid: %" SCNu64, &ret->ppid);
		(void)sscanf(line, "Uid: %" SCNu64 " %" SCNu64, &real, &ret->uid);
		(void)sscanf(line, "CapEff: %" SCNx64, &ret->caps);
		(void)sscanf(line, "NoNewPrivs: %" SCNu64, &ret->no_new_privs);
		(void)sscanf(line, "Seccomp: %" SCNu64, &ret->seccomp);
	}
	return ret->caps != UINT64_MAX;
}

/* The role of a process of mmd's, which its command line names; false: it has none. */
static bool process_role(uint64_t pid, char role[NAME_BYTES])
{
	mm_cleanup(mm_close_file) FILE *file = NULL;
	char path[PATH_BYTES], words[WORDS_BYTES];
	size_t bytes;

	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/cmdline", pid);
	file = fopen(path, "re");
	bytes = file ? fread(words, 1, sizeof(words) - 1, file) : 0;
	words[bytes] = '\0';
	for (const char *word = words; word < words + bytes; word += strlen(word) + 1)
		if (sscanf(word, "--role=%31s", role) == 1)
			return true;
	return false;
}

static void role_check(struct mmctl_doctor *d, const char *role, uint64_t pid, uint64_t owner)
{
	const char *advice = "Documentation/security.md; mmd's log says why a right was kept";
	struct role_status s;

	if (!status_read(pid, &s))
		return; /* it has ended */
	if (!s.no_new_privs || s.seccomp != 2 || s.caps)
		mmctl_doctor_add(d, role, MMCTL_WARN, advice,
				 "process %" PRIu64 ": user %" PRIu64 "%s%s%s", pid, s.uid,
				 s.caps ? ", it has capabilities" : "",
				 s.no_new_privs ? "" : ", it may get new privileges",
				 s.seccomp == 2 ? "" : ", its system calls are not filtered");
	else if (owner == 0 && s.uid == 0)
		mmctl_doctor_add(d, role, MMCTL_NOTE, "",
				 "process %" PRIu64 ": root, without capabilities, filtered", pid);
	else
		mmctl_doctor_add(d, role, MMCTL_OK, "",
				 "process %" PRIu64 ": user %" PRIu64 ", no capabilities, filtered",
				 pid, s.uid);
}

static void owner_check(struct mmctl_doctor *d, uint64_t keeper, const struct role_status *s)
{
	if (s->uid == 0)
		mmctl_doctor_add(d, "keeper", MMCTL_OK, "",
				 "process %" PRIu64 ": root, and reads no byte of a tenant",
				 keeper);
	else
		mmctl_doctor_add(
			d, "keeper", MMCTL_NOTE, "mmd as root protects users from each other",
			"process %" PRIu64 ": mmd of user %" PRIu64
			": its tenants of that user can kill it and write to what it shows "
			"them, and it cannot kill tenants of others",
			keeper, s->uid);
}

/* All children of keeper's that have a role. */
static void children_check(struct mmctl_doctor *d, uint64_t keeper, uint64_t owner)
{
	mm_cleanup(mm_close_dir) DIR *proc = opendir("/proc");
	const struct dirent *entry;
	struct role_status s;
	char role[NAME_BYTES];

	while (proc && (entry = readdir(proc))) {
		const uint64_t pid = strtoull(entry->d_name, NULL, 10);

		if (pid && status_read(pid, &s) && s.ppid == keeper && process_role(pid, role))
			role_check(d, role, pid, owner);
	}
}

void mmctl_doctor_roles(struct mmctl_doctor *d, const json_t *answer)
{
	const json_t *keeper = json_array_get(json_object_get(answer, "roles"), 0);
	const uint64_t pid = mm_json_u64(keeper, "pid");
	struct role_status s;
	char role[NAME_BYTES];

	/* In another namespace of processes the number is somebody else's. */
	if (!pid || !status_read(pid, &s) || process_role(pid, role)) {
		mmctl_doctor_add(d, "roles", MMCTL_NOTE, "run it where mmd's processes are seen",
				 "mmd's processes are not visible from here");
		return;
	}
	owner_check(d, pid, &s);
	children_check(d, pid, s.uid);
}
