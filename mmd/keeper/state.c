/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/state.h"

#include <signal.h>
#include <stdio.h>

#include "libclient/base/base.h"
#include "mmd/common/log.h"

uint64_t mm_keeper_backoff_ns(unsigned int times, uint64_t max_ns)
{
	if (times < 2)
		return 0;
	return MM_MIN(MM_KEEPER_BACKOFF_NS << MM_MIN(times - 2, 10u), max_ns);
}

void mm_keeper_child_kill(pid_t pid)
{
	if (pid > 0)
		kill(pid, SIGKILL);
}

/* The text may be core's, so a terminal must not obey it. */
void mm_keeper_fail(struct mm_keeper *k, const char *text)
{
	char line[sizeof(k->why)];

	snprintf(line, sizeof(line), "%s", text);
	for (char *c = line; *c; c++)
		*c = *c < ' ' || *c > '~' ? '?' : *c;
	if (fprintf(stderr, "%smmd: %s\n", mm_log_prefix(MM_LOG_ERROR), line) < 0)
		snprintf(k->why, sizeof(k->why), "%s", line);
	k->failed = true;
	mm_keeper_child_kill(k->process.pid);
}
