/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune - reads the controller's knobs from text
 *
 * Concept:    mmd --controller, its configuration file and mmsim take KEY=VALUE,KEY=VALUE; the keys
 *             and the ranges of values are those of the core's table (mmd/core/knobs.h).
 * Ownership:  pure functions over the caller's storage.
 * Threading:  any; mm_tune_opts() is called by one thread at a time.
 * Errors:     one sentence that names the key, and the nearest one.
 */
#pragma once

#include "libclient/support/options.h"
#include "mmd/core/knobs.h"

#define MM_TUNE_ERROR_BYTES 256
#define MM_TUNE_TEXT_BYTES  512

/**
 * mm_tune_parse() - read KEY=VALUE,KEY=VALUE
 * @text:  hostile; at most MM_TUNE_TEXT_BYTES - 1 bytes
 * @opts:  the fields that are named are written; all or, on failure, none
 * @error: MM_TUNE_ERROR_BYTES: the sentence on failure
 *
 * Return: 0; -EINVAL.
 */
int mm_tune_parse(const char *text, struct mm_core_opts *opts, char *error);

/* The knobs as a table of options, for help: name, value, range and default; nothing is stored. */
const struct mm_opt *mm_tune_opts(void);
