/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/state.h"

#include <signal.h>
#include <stdio.h>

void mm_keeper_child_kill(pid_t pid)
{
	if (pid > 0)
		kill(pid, SIGKILL);
}

void mm_keeper_fail(struct mm_keeper *k, const char *text)
{
	if (fprintf(stderr, "mmd: %s\n", text) < 0)
		snprintf(k->why, sizeof(k->why), "%s", text);
	k->failed = true;
	mm_keeper_child_kill(k->core_pid);
}
