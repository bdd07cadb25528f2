/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words - values of flags on mmbench's command line
 *
 * Concept:   Values are parsed here, and a wrong one is refused with one sentence on stderr.
 * Threading: any.
 */
#pragma once

#include <stdint.h>

#include "libclient/base/base.h"

/**
 * mm_words_refuse() - print one line on stderr: what is wrong, and where to find help
 * @command: subcommand of mmbench
 *
 * Return: -EINVAL.
 */
MM_PRINTF(2, 3) int mm_words_refuse(const char *command, const char *format, ...);

/**
 * mm_words_number() - parse a whole number
 * @command:    subcommand of mmbench
 * @name:       name of the flag, without dashes
 * @text:       its value
 * @least:      smallest number that is allowed
 * @most:       largest number that is allowed
 * @ret_number: written only on success
 *
 * Return: 0; -EINVAL, with a sentence on stderr.
 */
int mm_words_number(const char *command, const char *name, const char *text, uint64_t least,
		    uint64_t most, uint64_t *ret_number);
int mm_words_u32(const char *command, const char *name, const char *text, uint32_t least,
		 uint32_t most, uint32_t *ret_number);
