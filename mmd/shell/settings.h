/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings - settings that change while core runs
 *
 * Concept:   keeper reads the files and sends what is in force from now on, as the command line
 *            that a new core would get. All of it is checked against the pools before anything is
 *            applied; then accounts, quotas and the knobs change by events of each pool's core, so
 *            that they are in its journal, and core answers. Until it has, keeper starts new cores
 *            with the settings before, and sends the same to a successor again, for which it makes
 *            no difference how much was applied already.
 * Operator:  "config.reload" only has keeper begin; "config.show" has the settings, and what became
 *            of the last reload.
 * Ownership: struct mm_settings owns its JSON and the settings.
 * Threading: core's thread.
 */
#pragma once

#include "mmd/common/kchan.h"
#include "mmd/config/config.h"
#include "mmd/shell/rpc.h"

struct mm_shell;

struct mm_settings {
	json_t *show;    /* keeper's answer of what is in force; NULL: it has sent none */
	json_t *changes; /* of the last reload; NULL: there was none, or it failed */
	char error[MM_CONFIG_ERROR_BYTES]; /* why the last one failed; "": it did not */
	uint64_t serial; /* grows with each, also over the end of a core; 0: there was none */
	struct mm_config config; /* in force, once there was one */
};

/* Takes what keeper holds for it. */
void mm_settings_init(struct mm_shell *shell);
void mm_settings_done(struct mm_shell *shell);

/* keeper's message: settings to apply, or why there are none. */
void mm_settings_on_keeper(struct mm_shell *shell, struct mm_kpacket *packet);

/* Methods of the admin socket. */
json_t *mm_settings_begin(void *context, const json_t *params, struct mm_rpc_error *error);
json_t *mm_settings_show(void *context, const json_t *params, struct mm_rpc_error *error);
