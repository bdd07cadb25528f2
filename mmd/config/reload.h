/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reload - settings that change while mmd runs, and what is shown of settings
 *
 * Concept:   The files are read as at the start (mm_config_read()). mm_config_merge() makes of the
 *            settings in force and those read the settings that are in force from now on: what is
 *            live in the table of options is taken over, everything else stays. It lists each
 *            difference. An account keeps its index, by which core knows it, until mmd ends: new
 *            ones come behind, and one that is no longer in the files stays.
 * Ownership: JSON that is returned is the caller's.
 * Threading: none of its own.
 */
#pragma once

#include <jansson.h>

#include "mmd/config/config.h"

/**
 * mm_config_merge() - the settings in force after a reload
 * @now:         in force
 * @read:        complete and checked
 * @ret_next:    written only on success; its sources are those of @read
 * @ret_changes: an array of objects: "key", "from", "to" (null: there is no such value),
 *               "applied": it counts from now on, else it needs a restart; "origin"
 * @error:       MM_CONFIG_ERROR_BYTES: the sentence on failure
 *
 * Return: 0; -EINVAL: what is read cannot follow what is in force; -ENOMEM.
 */
int mm_config_merge(const struct mm_config *now, const struct mm_config *read,
		    struct mm_config *ret_next, json_t **ret_changes, char *error);

/**
 * mm_config_show() - settings with their origin
 * @config: in force
 * @read:   read last; what differs from @config needs a restart
 *
 * Return: an object with "files", "dropins" and "values": objects with "key", "value", "origin",
 * "live", and "after_restart" where that differs. The value of an account is an object. NULL: no
 * memory is left.
 */
json_t *mm_config_show(const struct mm_config *config, const struct mm_config *read);

/* The value of an option as the command line takes it; "": it is not set. free() it. */
char *mm_config_value(const struct mm_config *config, const struct mm_opt *opt);
