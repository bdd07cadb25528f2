/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key - the message by which a tenant gives a model a key, or asks for one by its key
 *
 * Concept:   a key is any bytes, 1 to MM_MODEL_KEY_BYTES. load checks the message of the tenant,
 *            core the copy that load passes on.
 * Threading: any; pure.
 */
#pragma once

#include <stddef.h>

#include "mm/abi.h"

/* Room for any key as mm_key_print() writes it, with its NUL. */
#define MM_KEY_TEXT_BYTES (4 * MM_MODEL_KEY_BYTES + 1)

/**
 * mm_key_check() - check a message, whatever it holds
 * @key: a private copy
 *
 * Return: NULL; else what is wrong, a static string.
 */
const char *mm_key_check(const struct mm_load_key *key);

/**
 * mm_key_print() - a key for humans: printable ASCII, everything else and \ as \xNN
 * @key:   any bytes
 * @bytes: at most MM_MODEL_KEY_BYTES
 * @text:  MM_KEY_TEXT_BYTES
 *
 * Different keys have different texts. Return: @text.
 */
const char *mm_key_print(const uint8_t *key, size_t bytes, char *text);
