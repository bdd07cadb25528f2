/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words - flags' values on a command line, and what is said about those that are wrong
 *
 * Ownership: nothing.
 * Threading: any; writes to stderr.
 */
#pragma once

#include <stdint.h>

#include "libclient/base/base.h"

/**
 * mm_words_refuse() - says in one line what is wrong, and where there is help
 * @command: of mmbench
 *
 * Return: -EINVAL.
 */
MM_PRINTF(2, 3) int mm_words_refuse(const char *command, const char *format, ...);

/**
 * mm_words_number() - a whole number
 * @command:    of mmbench
 * @name:       the flag's, without dashes
 * @text:       its value
 * @least:      smallest that will do
 * @most:       largest
 * @ret_number: written only on success
 *
 * Return: 0; -EINVAL, and it was said.
 */
int mm_words_number(const char *command, const char *name, const char *text, uint64_t least,
		    uint64_t most, uint64_t *ret_number);
int mm_words_u32(const char *command, const char *name, const char *text, uint32_t least,
		 uint32_t most, uint32_t *ret_number);
