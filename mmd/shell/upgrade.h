/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upgrade - core gives way to another build of itself
 *
 * Concept:   The operator names a file. keeper has it check what core would leave behind
 *            (preflight.h); if it can go on from there, core ends between two events, with an image
 *            of each pool's core that nothing has to be repeated after, and the other build goes on
 *            as after a death (recover.h). Then keeper becomes that build, too. The connection of
 *            the operator ends with core, so the method only begins it, and "upgrade.show" says
 *            what has become of it, and which build each process runs.
 * Threading: core's thread.
 */
#pragma once

#include "mmd/common/proto.h"
#include "mmd/shell/rpc.h"

enum mm_shell_upgrade_state {
	MM_SHELL_UPGRADE_NONE,
	MM_SHELL_UPGRADE_CHECKING,
	MM_SHELL_UPGRADE_CHECKED, /* it can go on, and was to be no more than checked */
	MM_SHELL_UPGRADE_REFUSED,
	MM_SHELL_UPGRADE_LEAVING,
	MM_SHELL_UPGRADE_KEEPER, /* this core is of the other build; keeper follows */
	MM_SHELL_UPGRADE_DONE,
	MM_SHELL_UPGRADE_TAKEN_BACK, /* the other build ended, and this one goes on again */
	MM_SHELL_UPGRADE_STATES
};

struct mm_shell_upgrade {
	enum mm_shell_upgrade_state state;
	char text[MM_TEXT_BYTES];
	char keeper[MM_TEXT_BYTES]; /* why keeper has stayed what it was; "": it has not */
};

/* Methods of the admin socket. */
json_t *mm_upgrade_begin(void *context, const json_t *params, struct mm_rpc_error *error);
json_t *mm_upgrade_show(void *context, const json_t *params, struct mm_rpc_error *error);

struct mm_shell;

/* keeper's answer: core leaves, or not. */
void mm_upgrade_on_answer(struct mm_shell *shell, const struct mm_kmsg *msg);
/* keeper's last word: it is of the other build, or has stayed what it was. */
void mm_upgrade_on_build(struct mm_shell *shell, const struct mm_kmsg *msg);
/* This core has read what another one has left; nothing was done yet. @flags: of MM_K_END. */
void mm_upgrade_stands(struct mm_shell *shell, uint32_t flags);
/* Prepares the end of this core. Return: the exit status. */
int mm_upgrade_leave(struct mm_shell *shell);
