/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table - the options of mmd
 *
 * Concept:    The table that the command line, the configuration file, help, and the options of
 *             other roles come from (config.h), with the types of values that only mmd has: lists
 *             by device, drivers, accounts and knobs.
 * Ownership:  constant.
 * Threading:  any.
 */
#pragma once

#include "mmd/config/config.h"

extern const struct mm_opt mm_config_options[];

/* Reads the file that --config names into a struct mm_config. */
mm_opt_parse_fn mm_config_file_parse;

/* Whether the field is a struct mm_config_list. */
bool mm_config_is_list(const struct mm_opt *o);
/* Whether the option is --device, whose words may be UUIDs. */
bool mm_config_is_device(const struct mm_opt *o);
/* Whether the field is a text. */
bool mm_config_is_text(const struct mm_opt *o);
bool mm_config_is_accounts(const struct mm_opt *o);
/* Whether the option is --controller. */
bool mm_config_is_knobs(const struct mm_opt *o);

/* Where the option's value comes from. */
struct mm_origin *mm_config_origin(struct mm_config *c, const struct mm_opt *o);

/* The field of an option whose field is a list; else the pointer has no meaning. */
struct mm_config_list *mm_config_list(struct mm_config *c, const struct mm_opt *o);
